"""Demand under a limit, by hand and in general."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.scenarios.catalog import SCENARIOS
from autoscaler.scenarios.generator import Demand
from autoscaler.scenarios.limits import first_kill, live, starve
from autoscaler.scenarios.ranges import GIB
from autoscaler.traces.trace import Column, Trace
from tests.scenarios.made import made


def demand_of(cpu: list[float], phase: list[float]) -> Demand:
    """The demand of so many cores, of which `phase` are carried over."""
    columns = {Column.CPU: cpu, Column.FRAME_TIME: [20.0] * len(cpu)}
    return replace(made("cold-start", 0, 60), trace=Trace.of("t", 1, columns), phase_cores=np.array(phase))


def test_a_limit_drops_frames_and_makes_them_late() -> None:
    starved = starve(demand_of([1.0, 2.0, 4.0, 0.0], [0.0] * 4), 2)
    assert starved.usage.tolist() == [1, 2, 2, 0]
    assert starved.wanted.tolist() == [1, 2, 4, 0]
    assert starved.throttled.tolist() == [0, 0, 0.5, 0]
    assert starved.frame_time_ms.tolist() == [20, 20, 40, 20]


def test_what_a_load_could_not_do_is_done_later() -> None:
    """Three core-seconds of loading beside 1 core of frames under a limit of 2 take three seconds instead of one."""
    starved = starve(demand_of([4.0, 1.0, 1.0, 1.0], [3.0, 0.0, 0.0, 0.0]), 2)
    assert starved.usage.tolist() == [2, 2, 2, 1]
    assert starved.wanted.tolist() == [4, 3, 2, 1]
    np.testing.assert_allclose(starved.throttled, [1 / 2, 1 / 3, 0, 0])


def test_limits_may_change() -> None:
    starved = starve(demand_of([4.0, 1.0, 1.0], [3.0, 0.0, 0.0]), [2, 9, 9])
    assert starved.usage.tolist() == [2, 3, 1]


@settings(max_examples=60)
@given(
    work=st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=2, max_size=30),
    limit=st.floats(0.1, 20),
)
def test_work_of_a_load_is_never_lost(work: list[tuple[float, float]], limit: float) -> None:
    """Second by second, and against the formula: what is left over plus what was done is what there was to do."""
    cpu, phase = [frames + load for frames, load in work], [load for _, load in work]
    starved = starve(demand_of(cpu, phase), limit)
    left = 0.0
    for second, (frames, load) in enumerate(work):
        assert starved.wanted[second] == pytest.approx(frames + load + left, abs=1e-9)
        left = max(0.0, left + load - (limit - min(frames, limit)))
    assert (starved.usage <= limit).all()
    assert (starved.throttled >= 0).all()


def test_without_a_limit_nothing_changes() -> None:
    demand = made("scene-hopper", 0, 3600)
    starved = starve(demand, 64)
    np.testing.assert_array_equal(starved.usage, demand.trace.columns[Column.CPU])
    np.testing.assert_array_equal(starved.frame_time_ms, demand.trace.columns[Column.FRAME_TIME])
    assert not starved.throttled.any()


def test_the_kernel_kills_above_the_limit() -> None:
    trace = Trace.of("t", 1, {Column.MEMORY: [1.0, 3.0, 2.0, 3.0]})
    assert first_kill(trace, 2.5) == 1
    assert first_kill(trace, 2.5, 2) == 3
    assert first_kill(trace, 3) is None
    assert first_kill(trace, [1, 3, 1, 3]) == 2


def test_a_kill_restarts_with_a_warm_cache_and_users_come_back() -> None:
    free = made("slow-leak", 0, 12 * 3600)
    limit = float(np.median(free.trace.columns[Column.MEMORY][9 * 3600 : 9 * 3600 + 60]))
    killed = live(SCENARIOS["slow-leak"], 0, limit, 12 * 3600)
    (kill_s,) = killed.kills_s
    assert first_kill(free.trace, limit) == kill_s
    _, again = killed.demand.runs
    assert again.starts_s == kill_s
    assert 15 <= again.ready_s - again.starts_s <= 60
    users = killed.demand.trace.columns[Column.SESSIONS]
    assert users[kill_s - 1] == 6
    assert users[kill_s : again.ready_s].max() == 0
    assert users[kill_s + 300] == 6
    assert killed.demand.trace.columns[Column.MEMORY][kill_s + 400] < limit - 0.5 * GIB
    assert killed.demand.trace.columns[Column.MEMORY].max() <= limit


def test_what_cannot_start_is_given_up() -> None:
    assert len(live(SCENARIOS["cold-start"], 0, GIB / 2, 600, most=3).kills_s) == 3
