"""`bridge` on made-up bridges, second by second: frames that come late for lack of CPU, against VPA's rule."""

from __future__ import annotations

import pytest

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.running import Terms, run
from autoscaler.backtest.scoring import Scores, mean
from autoscaler.plugins import discover
from autoscaler.scenarios.catalog import SCENARIOS
from autoscaler.scenarios.generator import generate

_SEED = 100  # parameters were chosen on seeds 0 to 9


def scores(name: str, scenario: str, seed: int) -> Scores:
    """With a decision every 5 s, from the first second on."""
    found = discover().usable[name]
    return run(generate(scenario, seed), found(found.Parameters()), Terms(Replayed.CPU, 5, 0)).scores


def compare(own: Scores, of_vpa: Scores) -> None:
    assert own.late_frames_percent is not None
    assert of_vpa.late_frames_percent is not None
    assert of_vpa.late_frames_percent > 5
    assert own.late_frames_percent <= of_vpa.late_frames_percent / 4
    assert own.slack_percent <= of_vpa.slack_percent


def test_a_quarter_of_the_late_frames_at_no_more_slack() -> None:
    compare(scores("bridge", "demo-step", 1), scores("histogram", "demo-step", 1))


@pytest.mark.slow
def test_in_the_mean_of_all_scenarios_too() -> None:
    own, of_vpa = ([scores(name, each, _SEED) for each in SCENARIOS] for name in ("bridge", "histogram"))
    compare(mean(own), mean(of_vpa))
