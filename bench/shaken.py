"""How the defaults of `bridge` bear being wrong: every parameter at once drawn from 10 % around its default.

`python -m bench.shaken [FOLDER [SETS]]`. Replays the public traces of a folder (those that ship), by the minute and
with the first hour not scored, and prints for each resource the figures of the defaults and the medians of so many
shaken sets (50), each a mean over traces. Seeded.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.ranking import harm
from autoscaler.backtest.running import Terms
from autoscaler.backtest.scoring import mean
from autoscaler.recommenders.bridge import Bridge
from autoscaler.recommenders.bridge_parameters import BridgeParameters
from autoscaler.traces.reading import read_trace
from tests.backtest.plain import run_plainly
from tests.backtest.public import CPU, GENTD, MEMORY, SHIPPED

_SHARE, _SETS, _TRIES = 0.1, 50, 100
_NAMES = {Replayed.CPU: CPU, Replayed.MEMORY: MEMORY, Replayed.GPU_MEMORY: GENTD}

Figures = tuple[float, float, float]
"""Slack in percent, throttled time in percent or OOM episodes a day, and changes a day."""


def shaken(params: BaseModel, rng: np.random.Generator) -> Any:
    """The same parameters, each moved by up to 10 %, within its bounds."""
    made: dict[str, Any] = {}
    for name, value in params:
        if isinstance(value, BaseModel):
            made[name] = shaken(value, rng)
        elif isinstance(value, float | int | timedelta):
            made[name] = _moved(params, name, value, rng)
    return params.model_copy(update=made)


def _moved(params: BaseModel, name: str, value: Any, rng: np.random.Generator) -> Any:
    for _ in range(_TRIES):
        moved = value * (1 + _SHARE * float(rng.uniform(-1, 1)))
        try:
            type(params)(**{name: f"{100 * moved:.6f}%" if isinstance(moved, float) else moved})
        except ValidationError:
            continue
        return moved
    raise ValueError(f"nothing within {_SHARE:.0%} of {name} = {value} is allowed")


def _figures(paths: Sequence[Path], replayed: Replayed, seed: int | None) -> Figures:
    defaults = BridgeParameters()
    recommender = Bridge(defaults if seed is None else shaken(defaults, np.random.default_rng(seed)))
    found = mean([run_plainly(read_trace(path), recommender, Terms(replayed)).scores for path in paths])
    return found.slack_percent, harm(found, replayed), found.resizes_per_day


def main() -> None:
    """Print the figures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED
    sets = int(sys.argv[2]) if len(sys.argv) > 2 else _SETS
    words = "slack {:.1f} %, harm {:.2f}, {:.1f} changes a day"
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for replayed, names in _NAMES.items():
            paths = [path for name in names if (path := folder / f"{name}.csv").exists()]
            if not paths:
                print(f"{replayed}: none of its traces is in {folder}")
                continue
            own, *others = pool.map(partial(_figures, paths, replayed), [None, *range(sets)])
            medians = [statistics.median(each) for each in zip(*others, strict=True)]
            print(
                f"{replayed}, {len(paths)} traces: {words.format(*own)}; shaken: {words.format(*medians)}", flush=True
            )


if __name__ == "__main__":
    main()
