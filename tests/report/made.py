"""Results of back-tests from a few numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autoscaler.backtest.demand import Replayed, demand_of
from autoscaler.backtest.replay import Replay
from autoscaler.backtest.running import Outcome, Terms, judged
from autoscaler.cli.rendering.backtest import Result
from autoscaler.traces.trace import Trace

GIB = float(1 << 30)


def outcome(
    wanted: NDArray[np.float64],
    limit: NDArray[np.float64],
    terms: Terms,
    *,
    name: str = "t",
    start: float | None = None,
) -> Outcome:
    """What comes of a trace by the minute under these limits."""
    demand = demand_of(Trace.of(name, 60, {terms.replayed.column: wanted}), terms.replayed, 60, start)
    return judged(demand, Replay(limit, wanted, {}, {}), terms)


def two_weeks(replayed: Replayed, name: str, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Usage with a day's rhythm, noise, one spike of a minute and a hole, and limits that change 300 times."""
    random = np.random.default_rng(seed)
    at = np.arange(14 * 1440)
    unit = 1.0 if replayed is Replayed.CPU else GIB
    wanted = unit * (2 + np.sin(at / 1440 * 2 * np.pi) + random.uniform(0, 0.5, len(at)))
    wanted[9000] = 9 * unit
    wanted[5000:5200] = np.nan
    limit = np.repeat(unit * random.uniform(3, 4, 300), 14 * 1440 // 300 + 1)[: len(at)]
    return wanted, limit


def results(replayed: Replayed, *labels: str, traces: tuple[str, ...] = ("first", "second")) -> list[Result]:
    """Two weeks of each trace under each label."""
    terms = Terms(replayed)
    return [
        Result(label, terms, [outcome(*two_weeks(replayed, name, seed), terms, name=name) for name in traces])
        for seed, label in enumerate(labels)
    ]
