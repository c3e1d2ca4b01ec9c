"""Published rows of baselines, out of the shipped recommenders: of each trace that ships through the loop, and as means
over all where the other traces may be read, by the plain replay that does as the loop does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.running import Terms, demand_for, run, run_on
from autoscaler.backtest.scoring import mean
from autoscaler.core.recommender import Recommender
from autoscaler.plugins import discover
from autoscaler.traces.trace import Trace
from tests.backtest.plain import replayed_plainly, run_plainly
from tests.backtest.public import CPU, GENTD, MEMORY, trace

_BAND = {"increase": "2%", "decrease": "10%"}
_HOLD = {"hold": "1h"}


def _peak(hours: int) -> dict[str, Any]:
    cpu = {"target": "max", "window": f"{hours}h", "floor": "10m"}
    return {"cpu": cpu, "memory": {"window": f"{hours}h"}, "deadBand": _BAND, "oom": _HOLD}


_KRR = {
    "cpu": {"target": "p95", "margin": "0%", "window": "14d", "every": "30m", "floor": "10m"},
    "memory": {"window": "14d"},
}
BASELINES: dict[str, tuple[str, dict[str, Any]]] = {
    "vpa": ("histogram", {}),
    "vpa-raw": ("histogram", {"updates": {"when": "Always"}}),
    "autopilot-mw": ("window", {}),
    "krr": ("percentile", {**_KRR, "deadBand": _BAND, "oom": _HOLD}),
    "peak6h": ("percentile", _peak(6)),
    "peak1h": ("percentile", _peak(1)),
}


def made(row: str) -> Recommender[Any]:
    name, parameters = BASELINES[row]
    found = discover().usable[name]
    return found(found.Parameters.model_validate(parameters))


@pytest.mark.parametrize(
    ("name", "row", "slack", "throttled", "resizes"),
    [
        ("nezha_tt_basic_0129", "vpa", 91, 0.5, 1.7),
        ("nezha_tt_basic_0129", "autopilot-mw", 83, 0.6, 13.4),
        ("nezha_tt_basic_0129", "krr", 67, 4.2, 1.7),
        ("nezha_tt_basic_0129", "peak6h", 90, 0.6, 11.7),
        ("nezha_tt_basic_0129", "peak1h", 73, 1.0, 35.2),
        ("nezha_tt_gateway_0129", "autopilot-mw", 57, 0, 13.4),
        ("nezha_tt_gateway_0129", "krr", 25, 2.4, 0),
        ("nezha_tt_gateway_0129", "peak6h", 72, 0, 3.4),
        ("nezha_tt_gateway_0129", "peak1h", 44, 0.2, 20.1),
    ],
)
def test_rows_of_cpu(name: str, row: str, slack: float, throttled: float, resizes: float) -> None:
    found = run(trace(name), made(row), Terms(Replayed.CPU)).scores
    assert found.slack_percent == pytest.approx(slack, abs=0.5)
    assert found.throttled_percent == pytest.approx(throttled, abs=0.06)
    assert found.resizes_per_day == pytest.approx(resizes, abs=0.06)


@pytest.mark.parametrize(
    ("name", "row", "slack", "resizes"),
    [
        ("nezha_tt_basic_0129", "vpa", 39, 1.7),
        ("nezha_tt_basic_0129", "autopilot-mw", 13, 72.1),
        ("nezha_tt_basic_0129", "krr", 13, 11.7),
        ("nezha_tt_basic_0129", "peak6h", 13, 11.7),
        ("nezha_tt_gateway_0129", "vpa", 48, 1.7),
        ("nezha_tt_gateway_0129", "autopilot-mw", 20, 62.0),
        ("nezha_tt_gateway_0129", "krr", 20, 10.1),
        ("nezha_tt_gateway_0129", "peak6h", 19, 20.1),
        ("nezha_tt_gateway_0129", "peak1h", 14, 30.2),
    ],
)
def test_rows_of_memory(name: str, row: str, slack: float, resizes: float) -> None:
    found = run(trace(name), made(row), Terms(Replayed.MEMORY)).scores
    assert found.slack_percent == pytest.approx(slack, abs=0.51)
    assert found.oom_episodes == 0
    assert found.resizes_per_day == pytest.approx(resizes, abs=0.06)


@pytest.mark.parametrize("replayed", [Replayed.CPU, Replayed.MEMORY])
@pytest.mark.parametrize("row", BASELINES)
def test_the_plain_replay_does_as_the_loop_does(row: str, replayed: Replayed) -> None:
    """On usage with steps and spikes, so that there are raises, cuts, refused cuts and kills."""
    random = np.random.default_rng(5)
    level = np.repeat(random.uniform(0.5, 2.0, 8), 60) * random.lognormal(0, 0.1, 480)
    level[[150, 290, 291, 400]] *= 6
    unit = 1.0 if replayed is Replayed.CPU else 2.0**30
    on = Terms(replayed, today=20.0 if replayed is Replayed.CPU else None)  # too much, which even VPA mends soon
    demand = demand_for(Trace.of("t", 60, {replayed.column: level * unit}), on)
    looped = run_on(demand, made(row), on).limit
    assert looped.tolist() == replayed_plainly(demand, made(row), on).limit.tolist()
    assert len(np.unique(looped)) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "slack", "throttled", "unmet", "resizes"),
    [
        ("vpa", 53.8, 10.33, 24.1, 2.8),
        ("vpa-raw", 45.9, 10.09, 24.6, 3.9),
        ("autopilot-mw", 57.7, 1.16, 8.7, 10.1),
        ("krr", 17.7, 46.21, 45.3, 0.2),
        ("peak6h", 58.2, 0.65, 5.9, 16.6),
        ("peak1h", 40.5, 1.27, 6.8, 39.4),
    ],
)
def test_means_of_cpu(shared: Path, row: str, slack: float, throttled: float, unmet: float, resizes: float) -> None:
    found = mean([run_plainly(trace(name, shared), made(row), Terms(Replayed.CPU)).scores for name in CPU])
    assert found.slack_percent == pytest.approx(slack, abs=0.5)
    assert found.throttled_percent == pytest.approx(throttled, abs=0.1)
    assert found.unmet_percent == pytest.approx(unmet, abs=0.1)
    assert found.resizes_per_day == pytest.approx(resizes, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "slack", "episodes", "resizes"),
    [
        ("vpa", 60.2, 0.27, 2.9),
        ("vpa-raw", 51.8, 0.399, 4.5),
        ("autopilot-mw", 48.3, 0.67, 25.4),
        ("krr", 51.1, 0.391, 7.6),
        ("peak6h", 41.6, 1.26, 14.0),
        ("peak1h", 31.0, 5.13, 35.1),
    ],
)
def test_means_of_memory(shared: Path, row: str, slack: float, episodes: float, resizes: float) -> None:
    found = mean([run_plainly(trace(name, shared), made(row), Terms(Replayed.MEMORY)).scores for name in MEMORY])
    assert found.slack_percent == pytest.approx(slack, abs=0.5)
    assert found.oom_per_day == pytest.approx(episodes, abs=0.1)
    assert found.resizes_per_day == pytest.approx(resizes, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replayed", "names", "slack", "most_slack", "harm", "most_harm", "resizes"),
    [
        (Replayed.CPU, CPU, 37.3, 38, 0.63, 1.0, 21.2),
        (Replayed.MEMORY, MEMORY, 42.5, 43, 0.28, 0.4, 9.8),
        (Replayed.GPU_MEMORY, GENTD, 38.5, 39, 0.70, 1.0, 15.6),
    ],
)
def test_bridge_is_as_good_as_documented_and_as_was_aimed_at(
    shared: Path,
    replayed: Replayed,
    names: tuple[str, ...],
    slack: float,
    most_slack: float,
    harm: float,
    most_harm: float,
    resizes: float,
) -> None:
    """docs/adr/0014-lowered-when-it-pays.md"""
    factory = discover().usable["bridge"]
    own = factory(factory.Parameters())
    found = mean([run_plainly(trace(name, shared), own, Terms(replayed)).scores for name in names])
    done = found.throttled_percent if replayed is Replayed.CPU else found.oom_per_day
    assert found.slack_percent == pytest.approx(slack, abs=0.2)
    assert done == pytest.approx(harm, abs=0.03)
    assert found.resizes_per_day == pytest.approx(resizes, abs=0.3)
    assert found.slack_percent <= most_slack
    assert done <= most_harm
    assert found.resizes_per_day <= 24
