"""How long a back-test of 14 days by the minute takes `bridge`, through the one loop, on one core.

`python -m bench.backtest`. Usage with a day's rhythm and noise; prints the median of three rounds of process time for
CPU and for memory.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.running import Terms, run
from autoscaler.recommenders.bridge import Bridge
from autoscaler.recommenders.bridge_parameters import BridgeParameters
from autoscaler.traces.trace import Column, Trace

_MINUTES, _ROUNDS = 14 * 1440, 3


def _two_weeks() -> Trace:
    rng = np.random.default_rng(0)
    rhythm = 2 + np.sin(np.arange(_MINUTES) * 2 * np.pi / 1440)
    cpu = rhythm * rng.lognormal(0, 0.3, _MINUTES)
    memory = (rhythm + rng.uniform(0, 0.3, _MINUTES)) * 2.0**30
    return Trace.of("two-weeks", 60, {Column.CPU: cpu, Column.MEMORY: memory})


def main() -> None:
    """Print the medians."""
    trace, bridge = _two_weeks(), Bridge(BridgeParameters())
    for replayed in (Replayed.CPU, Replayed.MEMORY):
        took = []
        for _ in range(_ROUNDS):
            started = time.process_time()
            resizes = run(trace, bridge, Terms(replayed)).scores.resizes
            took.append(time.process_time() - started)
        print(f"{replayed}, {_MINUTES} samples, {resizes} resizes: {statistics.median(took):.2f} s")


if __name__ == "__main__":
    main()
