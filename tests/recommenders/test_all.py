"""What holds for every shipped recommender, found as the program finds them: hostile input, restarts, OOM kills."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.history import History, advance, blocks
from autoscaler.core.model import Resource, ResourceList, Resources, Termination
from autoscaler.core.recommender import Abstain, Grid, Recommender, Samples, Signal, Situation, Target
from autoscaler.core.units import Bytes, Millicores
from autoscaler.plugins import discover

CATALOG = discover()
SHIPPED = {
    name: found for name, found in CATALOG.usable.items() if found.__module__.startswith("autoscaler.recommenders.")
}
FINE = Grid(60, 86400)  # every sample is a block
COARSE = Grid()  # 14 days in blocks of five minutes
T0 = 1_700_006_400  # midnight
MIB = 2.0**20
NAN, INF = math.nan, math.inf

OTHERWISE: dict[str, tuple[dict[str, Any], ...]] = {
    "percentile": (
        {
            "cpu": {"target": "p95", "window": "6h"},
            "memory": {"window": "6h"},
            "deadBand": {"increase": "2%", "decrease": "10%"},
            "oom": {"hold": "1h"},
        },
    ),
    "histogram": ({"updates": {"when": "Always"}},),
    "window": ({"cpu": {"statistic": "mean"}, "memory": {"statistic": "intermediate"}},),
}
"""Parameters under which a recommender goes other ways than by default."""


def made(name: str, parameters: dict[str, Any] | None = None) -> Recommender[Any]:
    found = SHIPPED[name]
    return found(found.Parameters.model_validate(parameters or {}))


CASES = [
    pytest.param(made(name, parameters), id=f"{name}-{number}" if number else name)
    for name in SHIPPED
    for number, parameters in enumerate(({}, *OTHERWISE.get(name, ())))
]


def samples(
    cpu: Sequence[float], memory: Sequence[float], *, start: int = T0, step: int = 60, limit: float = NAN
) -> Samples:
    """From `start` on, one each step."""
    end_at = start + step * (1 + np.arange(len(cpu), dtype=np.int64))
    amounts = [np.asarray(values, np.float32) for values in (cpu, memory, [limit] * len(cpu))]
    return Samples(end_at, amounts[0], amounts[1], {Signal.MEMORY_LIMIT: amounts[2]})


def folded(recommender: Recommender[Any], *chunks: Samples, grid: Grid = FINE) -> History | None:
    history: History | None = None
    for chunk in chunks:
        history = advance(history, chunk, recommender, grid, sample_s=grid.step)
    return history


def situation(
    history: History,
    grid: Grid = FINE,
    *,
    in_force: Resources | None = None,
    ended: Termination | None = None,
    after_s: int = 90,
) -> Situation:
    return Situation(
        datetime.fromtimestamp(history.newest_at + after_s, UTC),
        history.recent,
        history.open,
        in_force or Resources(),
        grid.step,
        grid.block,
        ended,
        pod_uid="uid",
        container="app",
    )


def answer(recommender: Recommender[Any], history: History, grid: Grid = FINE, **more: Any) -> Target | Abstain:
    """What is recommended, which is sound."""
    assert not history.failure
    asked = situation(history, grid, **more)
    found = recommender.recommend(history.state, asked)
    check(found)
    many = recommender.recommend_many([history.state] * 2, [asked] * 2)
    assert list(many) == [found, found]
    return found


def check(found: Target | Abstain) -> None:
    """A reason, or finite amounts that follow from their trail, rounded up."""
    if isinstance(found, Abstain):
        assert found.because
        return
    assert found.cpu is not None or found.memory is not None
    for resource, value, unit in ((Resource.CPU, found.cpu, 1000), (Resource.MEMORY, found.memory, 1)):
        steps = [step for step in found.trail if step.resource is resource]
        assert all(step.because for step in steps)
        if value is None:
            continue
        assert math.isfinite(value)
        assert value > 0
        amounts = [step for step in steps if step.after is not None]
        assert amounts[0].before is None
        for step, following in pairwise(amounts):
            assert following.before == step.after, steps
        last = amounts[-1].after
        assert last is not None
        assert value * unit * (1 - 1e-9) <= last <= value * unit + 1, steps


HOURS = 2 * 60
HOSTILE: dict[str, Samples] = {
    "one sample": samples([0.5], [512 * MIB]),
    "two samples": samples([0.5, 0.4], [512 * MIB] * 2),
    "NaN alone": samples([NAN] * HOURS, [NAN] * HOURS),
    "NaN between": samples([0.5, NAN] * HOURS, [NAN, 512 * MIB] * HOURS),
    "infinite": samples([0.5, INF, -INF] * HOURS, [512 * MIB, -INF, INF] * HOURS),
    "negative": samples([-1.0] * HOURS + [0.5] * HOURS, [-1.0] * HOURS + [MIB] * HOURS),
    "negative alone": samples([-1.0] * HOURS, [-5.0] * HOURS),
    "constant zero": samples([0.0] * HOURS, [0.0] * HOURS),
    "a step": samples([0.1] * HOURS + [4.0] * HOURS, [100 * MIB] * HOURS + [4096 * MIB] * HOURS),
    "a step down": samples([4.0] * HOURS + [0.1] * HOURS, [4096 * MIB] * HOURS + [100 * MIB] * HOURS),
    "one spike": samples([0.1] * HOURS + [30.0] + [0.1] * 60, [100 * MIB] * HOURS + [9000 * MIB] + [100 * MIB] * 60),
    "1e18": samples([1e18] * HOURS, [1e18] * HOURS),
    "1e18 once": samples([0.5] * HOURS + [1e18] + [0.5] * 9, [512 * MIB] * HOURS + [1e18] + [512 * MIB] * 9),
    "tiny": samples([1e-30] * HOURS, [1e-30] * HOURS),
    "counter resets": samples(([2.0, 0.0, NAN] + [2.0] * 7) * 60, ([900 * MIB, 0.0, NAN] + [900 * MIB] * 7) * 60),
    "ten years": samples([1.0, 2.0] * 3650, [MIB, 512 * MIB] * 3650, step=43200),
    "always at its limit": samples([1.0] * HOURS, [512 * MIB] * HOURS, limit=512 * MIB),
}


@pytest.mark.parametrize("grid", [FINE, COARSE], ids=["fine", "coarse"])
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("recommender", CASES)
def test_hostile_input_is_answered_soundly(recommender: Recommender[Any], name: str, grid: Grid) -> None:
    history = folded(recommender, HOSTILE[name], grid=grid)
    if history is not None:
        answer(recommender, history, grid)
        answer(recommender, history, grid, in_force=Resources(ResourceList(Millicores(500), Bytes(1 << 30))))


@pytest.mark.parametrize("recommender", CASES)
def test_before_any_sample_there_is_no_answer(recommender: Recommender[Any]) -> None:
    nothing = samples([], [])
    asked = Situation(datetime.fromtimestamp(T0, UTC), nothing, nothing, Resources(), 60, 60)
    found = recommender.recommend(recommender.start(), asked)
    assert isinstance(found, Abstain)
    assert found.insufficient_history
    assert list(recommender.recommend_many([], [])) == []


@pytest.mark.parametrize("recommender", CASES)
def test_nonsense_is_missing_and_missing_is_not_zero(recommender: Recommender[Any]) -> None:
    sound, holes = [0.5] * HOURS, [[NAN, -3.0, INF, -INF][number % 4] for number in range(HOURS)]
    plain = folded(recommender, samples(sound, [512 * MIB] * HOURS))
    mixed = folded(recommender, samples([*holes, *sound], [*holes, *[512 * MIB] * HOURS], start=T0 - 60 * HOURS))
    assert plain is not None
    assert mixed is not None
    one, other = answer(recommender, plain), answer(recommender, mixed)
    assert isinstance(one, Target)
    assert isinstance(other, Target)
    assert (one.cpu, one.memory) == (other.cpu, other.memory)


@pytest.mark.parametrize("count", [1, 5, 31, 24 * 60])
@pytest.mark.parametrize("recommender", CASES)
def test_little_data_inflates_and_deflates_nothing(recommender: Recommender[Any], count: int) -> None:
    """Steady usage is given itself and at most as much again, from the first answer on."""
    history = folded(recommender, samples([0.5] * count, [2048 * MIB] * count))
    assert history is not None
    found = answer(recommender, history)
    if isinstance(found, Target):
        assert found.cpu is None or 0.5 <= found.cpu <= 1.0
        assert found.memory is None or 2048 * MIB <= found.memory <= 4096 * MIB


@pytest.mark.parametrize("recommender", CASES)
def test_what_comes_twice_or_too_late_changes_nothing(recommender: Recommender[Any]) -> None:
    rng = np.random.default_rng(1)
    whole = samples(rng.uniform(0.1, 2.0, HOURS).tolist(), (rng.uniform(0.1, 2.0, HOURS) * 1024 * MIB).tolist())
    once = folded(recommender, whole)
    untidy = folded(recommender, whole[:100], whole[:100], whole[50:200], whole[:60], whole[150:], whole)
    assert once is not None
    assert untidy is not None
    same(answer(recommender, once), answer(recommender, untidy))


def same(one: Target | Abstain, other: Target | Abstain) -> None:
    """The same answer, but for the rounding of sums in another order."""
    if isinstance(one, Abstain) or isinstance(other, Abstain):
        assert one == other
        return
    for this, that in ((one.cpu, other.cpu), (one.memory, other.memory)):
        assert (this is None) == (that is None)
        if this is not None and that is not None:
            assert this == pytest.approx(that, rel=1e-5)
    assert [(step.resource, step.name, step.because) for step in one.trail] == [
        (step.resource, step.name, step.because) for step in other.trail
    ]


def days(count: int) -> Samples:
    """Usage with a daily rhythm, noise, gaps, and memory that reaches its limit now and then."""
    rng = np.random.default_rng(7)
    minute = np.arange(count * 1440)
    rhythm = 1 + np.sin(2 * np.pi * minute / 1440) ** 2
    cpu = rhythm * rng.uniform(0.8, 1.2, len(minute))
    memory = np.minimum(rhythm * rng.uniform(0.9, 1.1, len(minute)) * 1024, 2200) * MIB
    cpu[rng.random(len(minute)) < 0.05] = NAN
    memory[(minute > 2000) & (minute < 2300)] = NAN
    return samples(cpu.tolist(), memory.tolist(), limit=2200 * MIB)


@pytest.mark.parametrize("grid", [FINE, COARSE], ids=["fine", "coarse"])
@pytest.mark.parametrize("recommender", CASES)
def test_a_restart_ends_where_live_folding_is(recommender: Recommender[Any], grid: Grid) -> None:
    """Fold as it comes, in uneven pieces; and all at once, the far past in blocks as a server reduces it."""
    whole = days(4)
    live: History | None = None
    rng, at = np.random.default_rng(3), 0
    while at < len(whole):
        size = int(rng.choice([1, 1, 1, 2, 7, 61, 500]))
        live = advance(live, whole[at : at + size], recommender, grid, sample_s=60)
        at += size
    coarse = int(whole.end_at[-1]) // grid.block * grid.block - 7200
    cut = int(whole.end_at.searchsorted(coarse, side="right"))
    restarted = advance(None, blocks(whole[:cut], grid.block), recommender, grid, sample_s=grid.block)
    restarted = advance(restarted, whole[cut:], recommender, grid, sample_s=60)
    assert live is not None
    assert restarted is not None
    same(answer(recommender, live, grid), answer(recommender, restarted, grid))


@pytest.mark.parametrize("recommender", CASES)
def test_a_state_is_never_changed(recommender: Recommender[Any]) -> None:
    early, late = days(1), days(2).after(T0 + 86400)
    before = folded(recommender, early)
    assert before is not None
    first = answer(recommender, before)
    for chunk in (late, late[:1]):
        advance(before, chunk, recommender, FINE, sample_s=60)
    assert answer(recommender, before) == first


@pytest.mark.parametrize("recommender", CASES)
def test_one_oom_kill_raises_once(recommender: Recommender[Any]) -> None:
    """However often it is seen, and although each size that follows from it is put in force: no ratchet."""
    limit = 1024 * MIB
    history = folded(recommender, samples([0.5] * HOURS, [0.7 * limit] * (HOURS - 1) + [limit], limit=limit))
    assert history is not None
    killed_at = datetime.fromtimestamp(history.newest_at, UTC)
    ended = Termination("OOMKilled", 137, killed_at, killed_at - timedelta(hours=6))
    sizes: list[float] = []
    in_force = limit
    for _ in range(90):
        resources = Resources(ResourceList(Millicores(1000), Bytes(int(in_force))))
        found = answer(recommender, history, in_force=resources, ended=ended, after_s=0)
        assert isinstance(found, Target)
        assert found.memory is not None
        sizes.append(found.memory)
        in_force = found.memory
        usage = samples([0.5], [0.7 * limit], start=history.newest_at, limit=in_force)
        history = advance(history, usage, recommender, FINE, sample_s=60)
        assert history is not None
    assert max(sizes) <= max(sizes[0], in_force) * (1 + 1e-6)
    assert max(sizes) <= 2 * limit


NASTY = st.one_of(
    st.sampled_from([NAN, INF, -INF, -1.0, 0.0, 1e18, 1e-30]),
    st.floats(0.0, 64.0, width=32),
)
ROWS = st.lists(st.tuples(NASTY, NASTY, st.sampled_from([NAN, 0.0, 512 * MIB])), min_size=1, max_size=30)
CHUNKS = st.lists(st.tuples(st.integers(-30, 3000), ROWS), min_size=1, max_size=6)


def chunked(parts: Sequence[tuple[int, Sequence[tuple[float, float, float]]]]) -> Iterator[Samples]:
    """Each chunk so many minutes after the one before: earlier ones come too late, far ones leave a gap."""
    at = T0
    for later, rows in parts:
        at = max(at + 60 * later, T0)
        table = np.asarray(rows, np.float64)
        end_at = at + 60 * (1 + np.arange(len(rows), dtype=np.int64))
        values = [table[:, 0], table[:, 1] * 512 * MIB, table[:, 2]]
        with np.errstate(over="ignore"):
            cpu, memory, limit = (column.astype(np.float32) for column in values)
        yield Samples(end_at, cpu, memory, {Signal.MEMORY_LIMIT: limit})
        at = int(end_at[-1])


@pytest.mark.parametrize("recommender", CASES)
@given(parts=CHUNKS, coarse=st.booleans(), cpu=st.integers(0, 5000), mebibytes=st.integers(0, 5000), kill=st.booleans())
@settings(deadline=None, max_examples=25)
def test_any_input_is_answered_soundly(
    recommender: Recommender[Any],
    parts: list[tuple[int, list[tuple[float, float, float]]]],
    coarse: bool,
    cpu: int,
    mebibytes: int,
    kill: bool,
) -> None:
    grid = COARSE if coarse else FINE
    history = folded(recommender, *chunked(parts), grid=grid)
    if history is None:
        return
    at = datetime.fromtimestamp(history.newest_at - 30, UTC)
    ended = Termination("OOMKilled", 137, at, at - timedelta(minutes=5)) if kill else None
    resources = Resources(ResourceList(Millicores(cpu) if cpu else None, Bytes(mebibytes << 20) if mebibytes else None))
    answer(recommender, history, grid, in_force=resources, ended=ended)


def test_all_shipped_recommenders_are_here() -> None:
    assert CATALOG.broken == {}
    assert SHIPPED.keys() >= {"bridge", "forecast", "histogram", "percentile", "window"}
