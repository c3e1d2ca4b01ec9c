"""Scrapes of a demand: what they keep of it, what they lose, and the faults."""

from __future__ import annotations

import numpy as np
import pytest

from autoscaler.scenarios import observation
from autoscaler.scenarios.generator import Demand
from autoscaler.scenarios.limits import Starved, starve
from autoscaler.scenarios.observation import Faults, Scrapes, observe
from autoscaler.traces.trace import Column
from tests.scenarios.made import made


@pytest.fixture(scope="module")
def demand() -> Demand:
    return made("scene-hopper", 0)


@pytest.fixture(scope="module")
def starved(demand: Demand) -> Starved:
    return starve(demand, 3)


@pytest.mark.parametrize("scrape_s", [15, 30, 60])
def test_scrapes_come_at_their_interval_give_or_take(demand: Demand, starved: Starved, scrape_s: int) -> None:
    for name, series in observe(demand, starved, scrape_s=scrape_s).items():
        (one,) = series
        apart = np.diff(one.at_s) / (30 if name == observation.GPU_MEMORY else scrape_s)
        assert 0.9 <= apart.min() < 0.95 < 1.05 < apart.max() <= 1.1
        assert len(one.values) == len(one.at_s)


def test_counters_are_integrals_and_gauges_are_instants(demand: Demand, starved: Starved) -> None:
    seen = observe(demand, starved)
    (cpu,), (periods,), (throttled,) = (
        seen[name] for name in (observation.CPU, observation.PERIODS, observation.THROTTLED)
    )
    for at_s, value in zip(cpu.at_s[:50], cpu.values[:50], strict=True):
        whole = int(at_s)
        assert value == pytest.approx(starved.usage[:whole].sum() + starved.usage[whole] * (at_s - whole))
    np.testing.assert_allclose(periods.values, periods.at_s * 10, atol=1)
    share = (throttled.values[-1] - throttled.values[0]) / (periods.values[-1] - periods.values[0])
    assert share == pytest.approx((starved.wanted > 3).mean(), abs=0.01)
    (memory,), (gpu,) = seen[observation.MEMORY], seen[observation.GPU_MEMORY]
    columns = demand.trace.columns
    assert memory.values.tolist() == columns[Column.MEMORY][memory.at_s.astype(int)].tolist()
    assert gpu.values.tolist() == (columns[Column.GPU_MEMORY][gpu.at_s.astype(int)] / 2**20).tolist()
    assert memory.values.max() <= columns[Column.MEMORY].max()
    (frames,) = seen[observation.FRAME_TIME]
    assert frames.values.tolist() == starved.frame_time_ms[frames.at_s.astype(int)].tolist()


def test_peaks_between_scrapes_are_lost(demand: Demand, starved: Starved) -> None:
    (often,), (seldom,) = (observe(demand, starved, scrape_s=scrape_s)[observation.MEMORY] for scrape_s in (15, 60))
    peaks = [change.peak for change in demand.transitions]
    assert np.sum(often.values > min(peaks)) > np.sum(seldom.values > min(peaks))


def test_counters_begin_anew_with_a_restart() -> None:
    demand = made("slow-leak", 0, 37 * 3600)
    (cpu,) = observe(demand, starve(demand, 64))[observation.CPU]
    resets = cpu.at_s[1:][np.diff(cpu.values) < 0]
    assert [36 * 3600 <= at_s < 36 * 3600 + 20 for at_s in resets] == [True]


def one(demand: Demand, starved: Starved, name: str, faults: Faults) -> Scrapes:
    (series,) = observe(demand, starved, faults=faults)[name]
    return series


def test_faults(demand: Demand, starved: Starved) -> None:
    gap = one(demand, starved, observation.CPU, Faults(gaps_s=((600, 180),)))
    assert not ((gap.at_s >= 600) & (gap.at_s < 780)).any()
    assert 180 <= np.diff(gap.at_s).max() < 215
    late = one(demand, starved, observation.MEMORY, Faults(first_s=500))
    assert 500 <= late.at_s[0] < 517
    nan = one(demand, starved, observation.SESSIONS, Faults(nans_s=(100, 10**6)))
    (where,) = np.flatnonzero(np.isnan(nan.values))
    assert 100 <= nan.at_s[where] < 117
    reset = one(demand, starved, observation.CPU, Faults(resets_s=(1000,)))
    assert len(np.flatnonzero(np.diff(reset.values) < 0)) == 1
    assert not np.diff(one(demand, starved, observation.CPU, Faults()).values).min() < 0


def test_a_second_job_sees_the_same_at_other_instants(demand: Demand, starved: Starved) -> None:
    for series in observe(demand, starved, faults=Faults(duplicated=True)).values():
        first, second = series
        assert not set(first.at_s) & set(second.at_s)
        assert abs(np.median(first.values) - np.median(second.values)) <= 0.2 * np.median(first.values) + 1
