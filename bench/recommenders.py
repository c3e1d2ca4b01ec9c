"""Time of each shipped recommender for 20,000 containers on one core: folding one more sample, and the answers.

`python -m bench.recommenders`. Every container has four days of samples behind it, states of its own, and a size and a
limit in force. Prints the median of five rounds, of process time, once for each recommender with its default
parameters.
"""

from __future__ import annotations

import copy
import statistics
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.cli.wiring import relax_garbage_collection
from autoscaler.core.model import ResourceList, Resources
from autoscaler.core.recommender import EMPTY, Recommender, Samples, Signal, Situation
from autoscaler.core.units import Bytes, Millicores
from autoscaler.plugins import discover

_CONTAINERS, _KINDS, _ROUNDS, _BLOCK_S = 20_000, 20, 5, 300
_T0 = 1_700_006_400
_LIMIT = 2 << 30
_IN_FORCE = ResourceList(Millicores(2000), Bytes(_LIMIT))


def _past(seed: int) -> Samples:
    rng = np.random.default_rng(seed)
    count = 4 * 86400 // _BLOCK_S
    end_at = _T0 + _BLOCK_S * (1 + np.arange(count, dtype=np.int64))
    rhythm = 1 + np.sin(end_at * 2 * np.pi / 86400)
    cpu = (rhythm * rng.uniform(0.1, 2.0) + rng.uniform(0, 0.1, count)).astype(np.float32)
    return Samples(end_at, cpu, (cpu * 2.0**30).astype(np.float32))


def _measured(recommender: Recommender[Any]) -> tuple[float, float]:
    kinds = [recommender.fold(recommender.start(), _past(seed), _BLOCK_S) for seed in range(_KINDS)]
    # every container has arrays of its own, as in a controller: shared ones would stay in the processor's cache
    states = [copy.deepcopy(kinds[index % _KINDS]) for index in range(_CONTAINERS)]
    folding, answering = [], []
    end = int(_past(0).end_at[-1])
    for _ in range(_ROUNDS):
        end += _BLOCK_S
        signals: dict[str, NDArray[np.float32]] = {name: np.zeros(1, np.float32) for name in Signal}
        signals[Signal.MEMORY_LIMIT] = np.full(1, _LIMIT, np.float32)
        fresh = replace(Samples.of([end], [1.5], [1.5 * 2.0**30]), signals=signals)
        started = time.process_time()
        states = [recommender.fold(state, fresh, _BLOCK_S) for state in states]
        folding.append(time.process_time() - started)
        now = datetime.fromtimestamp(end, UTC)
        asked = [Situation(now, fresh, EMPTY, Resources(_IN_FORCE, _IN_FORCE), 60, _BLOCK_S) for _ in states]
        started = time.process_time()
        recommender.recommend_many(states, asked)
        answering.append(time.process_time() - started)
    return statistics.median(folding), statistics.median(answering)


def main() -> None:
    """Print the medians."""
    relax_garbage_collection()  # as the commands do
    for name, found in discover().usable.items():
        fold, answer = _measured(found(found.Parameters()))
        print(f"{name}, {_CONTAINERS} containers: fold {fold:.2f} s, recommend {answer:.2f} s, {fold + answer:.2f} s")


if __name__ == "__main__":
    main()
