"""Recommenders that look at a window: `window`, `percentile` with one, and `forecast`; choosing the number (NUM-…)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autoscaler.core.model import Resource, ResourceList, Resources, Termination
from autoscaler.core.recommender import EMPTY, Recommender, Samples, Situation, Step, Target
from autoscaler.core.units import Bytes, Millicores
from autoscaler.recommenders.forecast import Forecast, ForecastParameters
from autoscaler.recommenders.peaks import Peaks, pushed, within
from autoscaler.recommenders.percentile import Percentile, PercentileParameters
from autoscaler.recommenders.season import learned
from autoscaler.recommenders.window import Window, WindowParameters

T0 = 1_700_006_400  # midnight
MIB = 1 << 20
NAN = float("nan")
DAY_S = 86400


def samples(cpu: Sequence[float], memory: Sequence[float], start: int = T0, step: int = 60) -> Samples:
    return Samples.of([start + step * (number + 1) for number in range(len(cpu))], cpu, memory)


def asked(at: int, recent: Samples = EMPTY, **more: Any) -> Situation:
    return Situation(datetime.fromtimestamp(at, UTC), recent, EMPTY, more.pop("in_force", Resources()), 60, 60, **more)


def target(recommender: Recommender[Any], past: Samples, **more: Any) -> Target:
    state = recommender.fold(recommender.start(), past, 60)
    found = recommender.recommend(state, asked(int(past.end_at[-1]), past, **more))
    assert isinstance(found, Target)
    return found


def percentile(**parameters: Any) -> Percentile:
    return Percentile(PercentileParameters.model_validate({"minHistory": "0s", **parameters}))


def window(**parameters: Any) -> Window:
    return Window(WindowParameters.model_validate(parameters))


def forecast(**parameters: Any) -> Forecast:
    return Forecast(ForecastParameters.model_validate(parameters))


def step_of(found: Target, name: str, resource: Resource = Resource.CPU) -> Step:
    return next(step for step in found.trail if step.resource is resource and step.name == name)


USAGE = st.lists(st.floats(0.125, 8, width=32), min_size=1, max_size=50)


@given(USAGE, st.integers(1, 60), st.sampled_from(["p50", "p95", "p99.9", "max"]))
def test_a_hard_window_is_the_percentile_of_its_samples(usage: list[float], minutes: int, rank: str) -> None:
    found = target(
        percentile(cpu={"target": rank, "window": f"{max(minutes, 5)}m", "margin": "0%"}),
        samples(usage, [NAN] * len(usage)),
    )
    inside = np.asarray(usage, np.float32)[-max(minutes, 5) :].astype(np.float64)
    share = 100 if rank == "max" else float(rank[1:])
    assert found.cpu == pytest.approx(np.percentile(inside, share), rel=1e-6)


@given(st.lists(st.floats(0, 9), max_size=30), st.integers(1, 9))
def test_the_maximum_of_a_sliding_window(values: list[float], length: int) -> None:
    peaks: Peaks = ()
    for at, value in enumerate(values, 1):
        peaks = pushed(peaks, [(at, value)], at - length)
        assert within(peaks, at - length) == max(values[max(0, at - length) : at])


def test_a_window_and_a_half_life_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="halfLife has no effect with a window"):
        percentile(cpu={"window": "6h", "halfLife": "1h"})
    assert percentile(cpu={"window": "6h"}).fold_key != percentile().fold_key


@pytest.mark.parametrize(("in_force", "expected"), [(1130, 1130), (1120, 1150), (1277, 1277), (1278, 1150)])
def test_a_dead_band_leaves_what_is_close(in_force: int, expected: int) -> None:
    algorithm = percentile(cpu={"target": "max", "window": "1h"}, deadBand={"increase": "2%", "decrease": "10%"})
    size = Resources(ResourceList(Millicores(in_force)))
    found = target(algorithm, samples([1.0] * 60, [NAN] * 60), in_force=size)
    assert round((found.cpu or 0) * 1000) == expected
    assert found.trail[0].resource is Resource.CPU


@pytest.mark.parametrize(("minutes_ago", "held"), [(1, True), (59, True), (61, False)])
@pytest.mark.parametrize("make", [percentile, window, forecast])
def test_memory_is_held_up_for_an_hour_after_a_kill(make: Any, minutes_ago: int, held: bool) -> None:
    usage = [400.0 * MIB] * 119 + [300.0 * MIB] * 60
    past = samples([NAN] * len(usage), usage)
    at = datetime.fromtimestamp(int(past.end_at[-1]) - 60 * minutes_ago, UTC)
    found = target(
        make(oom={"hold": "1h", "bump": "100%"}), past[-110:], last_terminated=Termination("OOMKilled", 137, at)
    )
    assert any(step.name == "oomKill" for step in found.trail) is held


def test_a_load_adjusted_percentile_counts_usage_by_its_size() -> None:
    usage = [0.1] * 80 + [4.0] * 20  # the fifth of the time is nine tenths of the load
    assert target(window(cpu={"statistic": "p50"}), samples(usage, [NAN] * 100)).cpu == pytest.approx(4.6, rel=0.04)
    mean = target(window(cpu={"statistic": "mean"}), samples(usage, [NAN] * 100)).cpu
    assert mean == pytest.approx(0.88 * 1.15, rel=0.06)


def test_the_greatest_of_an_hour_and_of_a_day() -> None:
    high, low = [2000.0 * MIB] * 60, [500.0 * MIB] * (24 * 60 + 70)
    for minutes, expected in ((24 * 60, 2000), (24 * 60 + 70, 500)):
        usage = [*high, *low[:minutes]]
        found = target(window(), samples([NAN] * len(usage), usage))
        assert found.memory == pytest.approx(expected * MIB * 1.15, rel=1e-6)
    peak = target(window(memory={"statistic": "intermediate"}), samples([NAN] * 305, [*high[:5], *low[:300]]))
    assert peak.memory == pytest.approx(1000 * MIB * 1.15, rel=0.05)


def rhythm(days: int, noise: float, seed: int = 0) -> Samples:
    """Quiet nights, and eight busy hours from nine on."""
    rng = np.random.default_rng(seed)
    minute = np.arange(days * 1440)
    busy = (minute % 1440 >= 540) & (minute % 1440 < 1020)
    cpu = np.where(busy, 3.0, 0.2) * rng.lognormal(0, noise, len(minute))
    return samples(cpu.tolist(), [NAN] * len(minute))


def test_a_daily_rhythm_is_foreseen() -> None:
    past = rhythm(6, 0.05)
    morning = past[: 5 * 1440 + 535]  # five minutes before it begins
    found = target(forecast(), morning)
    assert found.cpu is not None
    assert 3.0 < found.cpu < 4.6
    assert "earlier days" in step_of(found, "forecast").because
    assert step_of(found, "interval").after is not None
    night = target(forecast(), past[: 5 * 1440 + 200])
    assert night.cpu is not None
    assert night.cpu < 0.5


def test_more_than_was_foreseen_is_given_all_the_same() -> None:
    past = rhythm(6, 0.05)
    usage = past.cpu.copy()
    usage[-10:] = 7.0
    found = target(forecast(), Samples(past.end_at, usage, past.memory))
    assert found.cpu == pytest.approx(7.0 * 1.15)
    assert step_of(found, "recent").cap


@pytest.mark.parametrize("seed", range(5))
def test_where_there_is_no_season_that_is_said_and_the_window_counts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    walk = np.clip(np.cumsum(rng.normal(0, 0.02, 8 * 1440)) + 2, 0.1, 6).tolist()
    for usage in (rng.uniform(0.5, 2.0, 8 * 1440).tolist(), walk, [1.0] * (8 * 1440)):
        found = target(forecast(window="6h"), samples(usage, [NAN] * len(usage)))
        assert found.cpu == pytest.approx(max(usage[-360:]) * 1.15, rel=1e-6)
        assert "max of 6h; no season: the time of day tells" in found.trail[0].because


def test_two_days_are_no_season() -> None:
    found = target(forecast(), rhythm(3, 0.05)[: 2 * 1440 + 60])
    assert "2 of 3 whole days known for a season" in found.trail[0].because


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_the_interval_holds_as_often_as_it_says(coverage: float) -> None:
    """Over many series: of a day that was not learned, slot by slot."""
    above = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        level = 2 + np.sin(np.arange(96) * 2 * np.pi / 96)
        days = (level * rng.lognormal(0, 0.2, (8, 96))).astype(np.float32)
        season = learned(list(days[:7]), coverage)
        above.append(float((days[7] > season.upper).mean()))
    assert np.mean(above) == pytest.approx(1 - coverage, abs=0.035)


def test_a_season_is_a_multiple_of_a_slot() -> None:
    with pytest.raises(ValidationError, match="season: 1h1m is not a multiple of 15m"):
        forecast(season="1h1m")


def test_num_01_the_peak_of_a_start_is_covered() -> None:
    usage = [3072.0 * MIB] * 2 + [600.0 * MIB] * (3 * 1440) + [3072.0 * MIB] * 2 + [600.0 * MIB] * (4 * 1440)
    past = samples([0.1] * len(usage), usage)
    for algorithm in (percentile(), percentile(memory={"target": "max", "window": "7d"})):
        assert (target(algorithm, past).memory or 0) >= 3072 * MIB


def test_num_02_max_covers_three_samples_of_90_days_and_p99_does_not() -> None:
    usage = [1024.0 * MIB] * 129_600
    for number in (40_000, 80_000, 129_000):
        usage[number] = 8192.0 * MIB
    past = samples([0.1] * len(usage), usage)
    assert (
        target(percentile(memory={"target": "max", "halfLife": "90d", "margin": "0%"}), past).memory or 0
    ) >= 8192 * MIB
    found = target(percentile(memory={"target": "p99", "halfLife": "90d", "margin": "0%"}), past)
    assert found.memory == pytest.approx(1024 * MIB, rel=0.021)


def test_num_02_a_percentile_of_a_window_says_how_many_samples_are_above_it() -> None:
    usage = np.full(129_600, 1024.0 * MIB)
    usage[[100_000, 110_000, 129_000]] = 8192.0 * MIB
    past = samples([0.1] * len(usage), usage.tolist())
    found = target(percentile(memory={"target": "p99", "window": "30d", "margin": "15%"}), past)
    assert found.memory == pytest.approx(1.15 * 1024 * MIB, rel=1e-6)
    assert step_of(found, "margin", Resource.MEMORY).because == "margin 15%; samples above the limit: 3"
    assert "above" not in step_of(found, "margin").because


def test_num_05_a_day_of_data_is_no_reason_for_a_multiple() -> None:
    for days in (1, 7):
        past = samples([0.2] * (days * 1440), [NAN] * (days * 1440))
        found = target(percentile(cpu={"window": "7d", "margin": "20%"}), past)
        assert found.cpu == pytest.approx(0.24, rel=1e-6)


def test_num_04_each_container_is_answered_from_its_own_past() -> None:
    algorithm = percentile()
    states = [algorithm.fold(algorithm.start(), samples([cpu] * 60, [NAN] * 60), 60) for cpu in (0.2, 3.0)]
    found = algorithm.recommend_many(states, [asked(T0 + 3600)] * 2)
    sizes = [one.cpu for one in found if isinstance(one, Target)]
    assert sizes == pytest.approx([0.23, 3.45], rel=0.021)


def test_the_least_of_memory_is_kept() -> None:
    size = Resources(ResourceList(Millicores(1), Bytes(1)))
    found = target(percentile(memory={"window": "1h", "floor": "100Mi"}), samples([NAN] * 9, [0.0] * 9), in_force=size)
    assert found.memory == 100 * MIB
