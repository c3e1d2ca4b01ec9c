"""The replay through the loop, against a plain loop over the same rules and against the published rows."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from autoscaler.backtest.demand import Replayed, ReplayError, demand_of
from autoscaler.backtest.playback import CONTAINER, Playback
from autoscaler.backtest.replay import neutral
from autoscaler.backtest.running import Terms, demand_for, run, run_on
from autoscaler.core.history import History
from autoscaler.core.model import Resource
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import EMPTY, Abstain, Recommender, Samples, Signal, Situation, Target
from autoscaler.traces.trace import Column, Trace
from tests.backtest.peak import Peak, replayed
from tests.backtest.public import trace

BLANK = float("nan")


class Scripted(Recommender[Samples]):
    """Wants what a function says, and keeps all that it is shown."""

    name = "scripted"
    Parameters = dict

    def __init__(self, wanted: object = None, signals: frozenset[str] = frozenset()) -> None:
        super().__init__({})
        self.wanted = wanted
        self.seen: list[Situation] = []
        self.past = EMPTY
        self._signals = signals

    @property
    def signals(self) -> frozenset[str]:
        return self._signals

    def start(self) -> Samples:
        return EMPTY

    def fold(self, state: Samples, samples: Samples, block_s: int) -> Samples:
        self.past = state + samples
        return self.past

    def recommend(self, state: Samples, situation: Situation) -> Target | Abstain:
        self.seen.append(situation)
        if callable(self.wanted):
            answer = self.wanted(situation)
            assert isinstance(answer, (Target, Abstain))
            return answer
        return Target(None, None)


def terms(replayed: Replayed = Replayed.CPU, warmup_s: int = 0, interval_s: int = 60, *, soft: bool = False) -> Terms:
    return Terms(replayed, interval_s, warmup_s, soft=soft)


def cpu(*values: float, step_s: int = 60, **columns: list[float]) -> Trace:
    return Trace.of("t", step_s, {Column.CPU: list(values), **{Column(name): v for name, v in columns.items()}})


@pytest.mark.parametrize("resource", Resource)
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("hours", [1, 6])
def test_the_loop_does_what_a_plain_loop_does(resource: Resource, soft: bool, hours: int) -> None:
    on = Terms(Replayed(resource.value), soft=soft)
    demand = demand_for(trace("nezha_tt_gateway_0129"), on)
    found = run_on(demand, Peak(hours, resource), on)
    expected = replayed(demand.values, demand.start, hours, resource, soft=soft and resource is Resource.CPU)
    assert found.limit == pytest.approx(np.asarray(expected), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "hours", "slack", "throttled", "resizes"),
    [
        ("nezha_tt_basic_0129", 6, 90, 0.6, 11.7),
        ("nezha_tt_basic_0129", 1, 73, 1.0, 35.2),
        ("nezha_tt_gateway_0129", 6, 72, 0, 3.4),
        ("nezha_tt_gateway_0129", 1, 44, 0.2, 20.1),
    ],
)
def test_published_rows_of_cpu(name: str, hours: int, slack: float, throttled: float, resizes: float) -> None:
    found = run(trace(name), Peak(hours, Resource.CPU), Terms(Replayed.CPU)).scores
    assert found.slack_percent == pytest.approx(slack, abs=0.5)
    assert found.throttled_percent == pytest.approx(throttled, abs=0.05)
    assert found.resizes_per_day == pytest.approx(resizes, abs=0.05)


def test_a_size_is_in_force_from_the_next_sample_on_to_the_last_digit() -> None:
    wanted = iter([0.123456789, 0.05, 3.0])
    recommender = Scripted(lambda _: Target(next(wanted), None))
    demand = demand_for(cpu(0.1, 0.1, 0.1), terms())
    assert run_on(demand, recommender, terms()).limit.tolist() == [0.2, 0.123456789, 0.05]


def test_a_hard_limit_hides_demand_and_says_that_it_throttles() -> None:
    recommender = Scripted(signals=frozenset({Signal.THROTTLED}))
    run(cpu(1.0, *[1.0] * 59, 9.0, 1.0), recommender, terms())
    assert recommender.past.cpu[-2:].tolist() == [2.0, 1.0]
    assert recommender.past.signal(Signal.THROTTLED)[-2:].tolist() == [1.0, 0.0]
    assert recommender.seen[-1].in_force.limits.cpu == 2000


def test_without_a_limit_all_demand_shows() -> None:
    recommender = Scripted(signals=frozenset({Signal.THROTTLED}))
    run(cpu(1.0, *[1.0] * 59, 9.0, 1.0), recommender, terms(soft=True))
    assert recommender.past.cpu[-2:].tolist() == [9.0, 1.0]
    assert np.isnan(recommender.past.signal(Signal.THROTTLED)).all()
    assert recommender.seen[-1].in_force.limits.cpu is None


def test_a_kill_is_seen_once_with_its_time_and_memory_at_the_limit() -> None:
    gib = 2.0**30
    recommender = Scripted(signals=frozenset({Signal.MEMORY_PEAK}))
    memory = Trace.of("t", 60, {Column.MEMORY: [gib] * 60 + [3 * gib, 3 * gib, gib]})
    outcome = run(memory, recommender, terms(Replayed.MEMORY))
    assert (outcome.scores.oom_episodes, outcome.scores.oom_kills) == (1, 2)
    assert recommender.past.memory[-3:].tolist() == [2 * gib, 2 * gib, gib]
    kills = [None if seen.oom_kill is None else seen.oom_kill.finished_at for seen in recommender.seen[-4:]]
    nows = [seen.now for seen in recommender.seen]
    assert kills == [None, nows[-3], nows[-2], nows[-2]]
    assert [seen.restarts for seen in recommender.seen[-4:]] == [0, 1, 2, 2]
    assert recommender.past.signal(Signal.MEMORY_PEAK)[-3:].tolist() == [2 * gib, 2 * gib, gib]


def test_memory_is_not_lowered_to_what_is_in_use_and_lowered_right_after_a_kill_if_so_wanted() -> None:
    gib = 2.0**30
    wanted = iter([0.9 * gib, 1.5 * gib, 0.6 * gib])
    recommender = Scripted(lambda _: Target(None, next(wanted)))
    memory = demand_for(Trace.of("t", 60, {Column.MEMORY: [gib, 3 * gib, 0.5 * gib]}), terms(Replayed.MEMORY))
    # the peak of the first hour is 3 GiB
    assert run_on(memory, recommender, terms(Replayed.MEMORY)).limit.tolist() == [6 * gib, 6 * gib, 6 * gib]


def test_the_first_hour_passes_without_a_decision() -> None:
    recommender = Scripted(lambda _: Target(5.0, None))
    on = terms(warmup_s=3600)
    found = run_on(demand_for(cpu(*[1.0] * 63), on), recommender, on)
    assert found.limit.tolist() == [2.0] * 60 + [5.0] * 3
    assert len(recommender.seen[0].recent) == 60


def test_several_samples_between_two_turns() -> None:
    recommender = Scripted(signals=frozenset({Signal.THROTTLED, "frameTime", "sessions"}))
    values = [1.0] * 3600 + [1.0, 2.0, 3.0, 4.0, 5.0] + [1.0] * 3
    beside = {"frame_time_ms": [20.0] * 3608, "sessions": [4.0] * 3608, "memory_bytes": [7.0] * 3608}
    on = terms(interval_s=5)
    demand = demand_for(cpu(*values, step_s=1, **beside), on)
    found = run_on(demand, recommender, on)
    assert len(found.limit) == 3605  # the last turn is not a whole one
    past = recommender.past
    assert past.cpu[-1] == pytest.approx((1 + 2 + 2 + 2 + 2) / 5)
    assert past.signal(Signal.THROTTLED)[-1] == pytest.approx(3 / 5)
    assert past.signal("frameTime")[-2:].tolist() == pytest.approx([0.02, 0.05])
    assert past.signal("sessions")[-1] == 4
    assert past.memory[-1] == 7


def test_a_coarse_trace_is_held() -> None:
    demand = demand_for(cpu(1.0, 2.0, step_s=120), terms())
    assert demand.values.tolist() == [1, 1, 2, 2]


def test_what_is_blank_is_not_seen_and_changes_nothing() -> None:
    recommender = Scripted(lambda _: Target(3.0, None))
    found = run(cpu(1.0, BLANK, BLANK, 1.0), recommender, terms())
    assert recommender.past.cpu.tolist() == [1.0, 1.0]
    assert found.scores.days == pytest.approx(2 / 1440)


def test_what_is_blank_is_not_taken_for_nothing() -> None:
    """In a gap it is not known that memory may be lowered."""
    gib = 2.0**30
    memory = demand_for(Trace.of("t", 60, {Column.MEMORY: [gib, BLANK, BLANK, gib]}), terms(Replayed.MEMORY))
    found = run_on(memory, Scripted(lambda _: Target(None, 0.5 * gib)), terms(Replayed.MEMORY))
    assert found.limit.tolist() == [2 * gib] * 4


def test_what_a_recommender_raises_is_told() -> None:
    def fail(_: Situation) -> Target:
        raise RuntimeError("no idea")

    found = run(cpu(1.0, 1.0, 1.0), Scripted(fail), terms())
    assert found.held == {Reason.RECOMMENDER_FAILED: 3}
    assert "no idea" in found.replay.first_hold[Reason.RECOMMENDER_FAILED]


def test_what_cannot_be_replayed_says_what_to_change() -> None:
    with pytest.raises(ReplayError, match="has no memory_bytes; resources recorded there: cpu"):
        demand_for(cpu(1.0, 1.0), terms(Replayed.MEMORY))
    with pytest.raises(ReplayError, match="step of 60 s, which does not fit a control interval of 7 s"):
        demand_of(cpu(1.0, 1.0), Replayed.CPU, 7)
    with pytest.raises(ReplayError, match="shorter --warmup"):
        demand_for(cpu(1.0, 1.0), terms(warmup_s=3600))
    with pytest.raises(ReplayError, match="shorter than the control interval"):
        demand_of(cpu(1.0, 1.0), Replayed.CPU, 180)


def test_what_is_followed_is_what_folding_sample_by_sample_gives() -> None:
    """The short way that a replay takes where nothing is blank, against the way of a controller."""
    demand = demand_for(trace("nezha_tt_gateway_0129"), terms(warmup_s=3600))
    short, long = Scripted(), Scripted()
    quick = Playback(demand, neutral(short, demand), idle=60)
    usual = Playback(demand, replace(neutral(long, demand), min_coverage=0.1), idle=60)
    for _ in range(200):
        one, other = quick.latest().of(CONTAINER), usual.latest().of(CONTAINER)
        assert isinstance(one, History)
        assert isinstance(other, History)
        for name in ("folded_until", "first_at", "newest_at", "failure"):
            assert getattr(one, name) == getattr(other, name)
        for left, right in ((one.recent, other.recent), (one.open, other.open), (one.state, other.state)):
            assert left.end_at.tolist() == right.end_at.tolist()
            assert left.cpu.tolist() == right.cpu.tolist()
            assert np.array_equal(left.memory, right.memory, equal_nan=True)
        with pytest.raises(ValueError, match="read-only"):
            one.recent.cpu[0] = 1
        asyncio.run(quick.wait(None))
        asyncio.run(usual.wait(None))


def test_a_closed_loop_makes_up_for_what_was_not_done() -> None:
    on = replace(terms(), closed=True)
    found = run(cpu(*[1.0] * 60, 3.0, 0.5, 0.5), Scripted(), on)
    assert found.replay.wanted[-3:].tolist() == [3.0, 1.5, 0.5]
    assert found.scores.throttled_percent == pytest.approx(100 / 63)
