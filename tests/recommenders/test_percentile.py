"""The percentile recommender against a plain reckoning with the samples themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.model import Resource, Resources
from autoscaler.core.recommender import EMPTY, Abstain, Samples, Situation, Step, Target
from autoscaler.recommenders import parameters
from autoscaler.recommenders.percentile import (
    CpuParameters,
    Folded,
    MemoryParameters,
    Percentile,
    PercentileParameters,
)

T0 = 1_700_000_100 // 300 * 300
MIB = 1 << 20
NAN = math.nan


def situation(opened: Samples = EMPTY) -> Situation:
    return Situation(datetime.fromtimestamp(T0, UTC), opened, opened, Resources(), 60, 300)


def samples(cpu: Sequence[float], memory: Sequence[float], step: int = 300, start: int = T0) -> Samples:
    return Samples.of([start + step * (index + 1) for index in range(len(cpu))], cpu, memory)


def recommender(
    cpu: str = "p95",
    memory: str = "max",
    margin: float = 0.0,
    half_life: timedelta = timedelta(hours=24),
    min_history: timedelta = timedelta(0),
) -> Percentile:
    return Percentile(
        PercentileParameters(
            cpu=CpuParameters(target=parameters.Percentile(cpu), margin=margin, half_life=half_life),
            memory=MemoryParameters(target=parameters.Percentile(memory), margin=margin, half_life=half_life),
            min_history=min_history,
        )
    )


def target(answer: Target | Abstain) -> Target:
    assert isinstance(answer, Target)
    return answer


def answered(algorithm: Percentile, past: Samples, opened: Samples = EMPTY) -> Target:
    state = algorithm.fold(algorithm.start(), past, 300) if len(past) else algorithm.start()
    return target(algorithm.recommend(state, situation(opened)))


def test_a_steady_usage_is_answered_within_one_bucket() -> None:
    answer = answered(recommender(), samples([0.25] * 12, [512 * MIB] * 12))
    assert answer.cpu is not None
    assert answer.memory is not None
    assert 0.25 <= answer.cpu <= 0.25 * 1.02 + 1e-9
    assert 512 * MIB <= answer.memory <= 512 * MIB * 1.02


def test_the_answer_and_its_trail() -> None:
    algorithm = recommender(cpu="p50", margin=0.15, min_history=timedelta(minutes=30))
    answer = answered(algorithm, samples([0.1, 0.1, 0.1, 0.1, 3.0, 3.0], [MIB] * 6))
    assert answer.cpu is not None
    assert answer.trail == (
        Step(Resource.CPU, "usage", None, 101, "p50 of 30m of samples"),
        Step(Resource.CPU, "margin", 101, 117, "margin 15%"),
        Step(Resource.MEMORY, "usage", None, MIB, "max of 30m of samples"),
        Step(Resource.MEMORY, "margin", MIB, math.ceil(MIB * 1.15), "margin 15%"),
    )
    assert math.ceil(answer.cpu * 1000) == 117
    assert isinstance(answer.cpu, float)


def test_too_short_a_history_is_said_in_minutes() -> None:
    algorithm = recommender(min_history=timedelta(minutes=30))
    state = algorithm.fold(algorithm.start(), samples([1, 1], [1, 1]), 300)
    opened = samples([1, 1], [NAN, NAN], step=60, start=T0 + 600)
    assert algorithm.recommend(state, situation(opened)) == Abstain("12 of 30 minutes", insufficient_history=True)
    odd = recommender(min_history=timedelta(seconds=90))
    assert odd.recommend(odd.start(), situation()) == Abstain("0 of 90 seconds", insufficient_history=True)


def test_a_resource_without_samples_is_left_alone() -> None:
    answer = answered(recommender(min_history=timedelta(minutes=10)), samples([NAN] * 3, [MIB] * 3))
    assert answer.cpu is None
    assert answer.memory is not None
    assert answer.trail[0] == Step(Resource.CPU, "usage", None, None, "0 of 10 minutes")


def test_nonsense_is_missing_not_zero() -> None:
    answer = answered(recommender(), samples([-1.0, math.inf, 1e18, 2.0], [math.inf, -5.0, NAN, 1e18]))
    assert answer.cpu is not None
    assert 2.0 <= answer.cpu <= 2.05
    assert answer.memory is None


def test_usage_beyond_the_buckets_is_the_last_one() -> None:
    answer = answered(recommender(), samples([1e4] * 2, [1e15] * 2))
    assert answer.cpu is not None
    assert answer.memory is not None
    assert 1000 <= answer.cpu <= 1020
    assert 2**42 <= answer.memory <= 2**42 * 1.02
    low = answered(recommender(), samples([0.0], [0.0]))
    assert (low.cpu, low.memory) == (0.001, MIB)


def test_a_burst_of_a_twentieth_is_not_seen_by_p95_and_one_sample_more_is() -> None:
    quiet, loud = [4.0] * 5 + [0.1] * 95, [4.0] * 6 + [0.1] * 94
    endless = timedelta(days=365)
    assert answered(recommender(half_life=endless), samples(quiet, quiet)).cpu == pytest.approx(0.1, rel=0.02)
    assert answered(recommender(half_life=endless), samples(loud, loud)).cpu == pytest.approx(4.0, rel=0.02)


def test_old_usage_loses_weight_with_its_half_life() -> None:
    algorithm = recommender(cpu="p50", half_life=timedelta(hours=1))
    past = samples([4.0] * 12 + [0.5] * 12, [MIB] * 24)  # one hour of each: the older hour weighs half as much
    assert answered(algorithm, past).cpu == pytest.approx(0.5, rel=0.02)
    assert answered(recommender(cpu="p70", half_life=timedelta(hours=1)), past).cpu == pytest.approx(4.0, rel=0.02)


@pytest.mark.parametrize("sustained", [1, 500])
def test_max_is_remembered_for_seven_half_lives_however_long_it_lasted(sustained: int) -> None:
    algorithm = recommender(half_life=timedelta(hours=1))
    state = algorithm.fold(algorithm.start(), samples([1] * sustained, [900 * MIB] * sustained), 300)
    last = T0 + 300 * sustained

    def after(blocks: int) -> float | None:
        later = samples([1] * blocks, [100 * MIB] * blocks, start=last)
        return target(algorithm.recommend(algorithm.fold(state, later, 300), situation())).memory

    assert after(7 * 12 - 1) == pytest.approx(900 * MIB, rel=0.02)
    assert after(7 * 12 + 1) == pytest.approx(100 * MIB, rel=0.02)


def test_max_forgets_a_resource_that_is_no_longer_measured() -> None:
    algorithm = recommender(half_life=timedelta(minutes=5))
    answer = answered(algorithm, samples([1.0] * 9, [MIB] + [NAN] * 8))
    assert answer.memory is None
    assert answer.trail[-1].because == "no sample in the last 35m"


def test_open_samples_count_by_their_own_length() -> None:
    algorithm = recommender(cpu="p80", half_life=timedelta(days=365))
    past = samples([0.1], [MIB])  # 300 s
    opened = samples([2.0], [50 * MIB], step=60, start=T0 + 300)  # 60 s: a sixth
    assert answered(algorithm, past, opened).cpu == pytest.approx(0.1, rel=0.02)
    assert answered(recommender(cpu="p84", half_life=timedelta(days=365)), past, opened).cpu == pytest.approx(
        2.0, rel=0.02
    )
    assert answered(algorithm, past, opened).memory == pytest.approx(50 * MIB, rel=0.02)
    assert answered(algorithm, EMPTY, opened).cpu == pytest.approx(2.0, rel=0.02)


def weights(kept: object) -> np.ndarray[Any, Any]:
    """A histogram's, which is kept where there is no window."""
    assert isinstance(kept, np.ndarray)
    return kept


def test_fold_changes_no_state() -> None:
    algorithm = recommender()
    state = algorithm.fold(algorithm.start(), samples([1, 2], [MIB, MIB]), 300)
    before = (weights(state.cpu).copy(), weights(state.memory).copy())
    algorithm.fold(state, samples([3], [MIB], start=T0 + 600), 300)
    algorithm.recommend(state, situation(samples([9], [MIB], step=60, start=T0 + 600)))
    np.testing.assert_array_equal(weights(state.cpu), before[0])
    np.testing.assert_array_equal(weights(state.memory), before[1])


def test_fold_does_not_depend_on_margin_percentile_or_history() -> None:
    assert recommender().fold_key == recommender(cpu="p50", margin=0.5, min_history=timedelta(1)).fold_key
    assert recommender().fold_key != recommender(cpu="max").fold_key
    assert recommender().fold_key != recommender(half_life=timedelta(1.5)).fold_key


USAGE = st.one_of(st.just(NAN), st.floats(0.0, 64.0, width=32))
PASTS = st.lists(st.tuples(USAGE, st.one_of(st.just(NAN), st.floats(0, 2.0**36, width=32))), max_size=40)
TARGETS = st.sampled_from(["p50", "p90", "p95", "p99.9", "max"])


def of(past: Sequence[tuple[float, float]], step: int = 300, start: int = T0) -> Samples:
    return samples([cpu for cpu, _ in past], [memory for _, memory in past], step, start)


@given(PASTS, st.integers(0, 40), TARGETS, TARGETS)
@settings(deadline=None)
def test_folding_in_pieces_is_folding_at_once(past: list[tuple[float, float]], cut: int, cpu: str, memory: str) -> None:
    algorithm = recommender(cpu, memory, half_life=timedelta(hours=1))
    whole = of(past)
    once = algorithm.fold(algorithm.start(), whole, 300) if len(whole) else algorithm.start()
    pieces = algorithm.start()
    for part in (whole[:cut], whole[cut:]):
        pieces = algorithm.fold(pieces, part, 300) if len(part) else pieces
    np.testing.assert_allclose(weights(pieces.cpu), weights(once.cpu), rtol=1e-5, atol=2e-3)
    np.testing.assert_allclose(weights(pieces.memory), weights(once.memory), rtol=1e-5, atol=1e-2)
    assert pieces[2:] == once[2:]


@given(st.lists(st.tuples(PASTS, PASTS.map(lambda past: past[:5])), min_size=1, max_size=6), TARGETS, TARGETS)
@settings(deadline=None)
def test_many_at_once_are_answered_as_one_by_one(
    containers: list[tuple[list[tuple[float, float]], list[tuple[float, float]]]], cpu: str, memory: str
) -> None:
    algorithm = recommender(cpu, memory, margin=0.15, min_history=timedelta(minutes=10))
    states: list[Folded] = []
    situations: list[Situation] = []
    for past, opened in containers:
        whole = of(past)
        states.append(algorithm.fold(algorithm.start(), whole, 300) if len(whole) else algorithm.start())
        situations.append(situation(of(opened, step=60, start=T0 + 300 * len(past))))
    many = algorithm.recommend_many(states, situations)
    assert many == [algorithm.recommend(*pair) for pair in zip(states, situations, strict=True)]


@given(PASTS, st.sampled_from([("p50", 0.5), ("p95", 0.95), ("p99.9", 0.999)]))
@settings(deadline=None)
def test_the_answer_is_the_weighted_percentile_of_the_samples(
    past: list[tuple[float, float]], rank: tuple[str, float]
) -> None:
    half_life = 3600.0
    algorithm = recommender(rank[0], half_life=timedelta(seconds=half_life))
    answer = algorithm.recommend(
        algorithm.fold(algorithm.start(), of(past), 300) if past else algorithm.start(), situation()
    )
    known = sorted(
        (usage, 300 * 0.5 ** (300 * (len(past) - 1 - index) / half_life))
        for index, (usage, _) in enumerate(past)
        if not math.isnan(usage)
    )
    if not known:
        assert isinstance(answer, Abstain) or answer.cpu is None
        return
    value = target(answer).cpu
    assert value is not None
    total = sum(weight for _, weight in known)
    not_above = sum(weight for usage, weight in known if usage <= value * (1 + 1e-6))
    below = sum(weight for usage, weight in known if usage < value / 1.02 * (1 - 1e-6) and usage > 0.001)
    assert not_above >= rank[1] * total * (1 - 1e-4) - 0.1
    assert below <= rank[1] * total * (1 + 1e-4) + 0.1


def test_nothing_asked_nothing_answered() -> None:
    assert recommender().recommend_many([], []) == []
