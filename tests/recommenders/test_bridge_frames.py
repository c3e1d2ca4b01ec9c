"""`bridge` on a made-up bridge, second by second: frames that come late for lack of CPU, against VPA's rule."""

from __future__ import annotations

import numpy as np

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.running import Terms, demand_for, run_on
from autoscaler.backtest.scoring import score
from autoscaler.plugins import discover
from autoscaler.scenarios.generator import generate
from autoscaler.traces.trace import Column

LATE_MS = 1000 / 30


def late_and_slack(name: str) -> tuple[int, float]:
    """Seconds with frames that the limit made late, and slack in percent, with a decision every 5 s."""
    found, terms = discover().usable[name], Terms(Replayed.CPU, 5, 0)
    demand = demand_for(generate("demo-step", 1), terms)
    replayed = run_on(demand, found(found.Parameters()), terms)
    frames = demand.of(Column.FRAME_TIME)
    assert frames is not None
    late = frames * np.fmax(1, replayed.wanted / replayed.limit) > LATE_MS
    scores = score(replayed.wanted, replayed.limit, 1, kills=False)
    return int((late & ~(frames > LATE_MS)).sum()), scores.slack_percent


def test_a_quarter_of_the_late_frames_at_no_more_slack() -> None:
    late, slack = late_and_slack("bridge")
    of_vpa, slack_of_vpa = late_and_slack("histogram")
    assert of_vpa > 100
    assert late <= of_vpa / 4
    assert slack <= slack_of_vpa
