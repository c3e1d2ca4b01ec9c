"""The heap: a saw of garbage and its collections, and a leak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.scenarios.draws import Draws
from autoscaler.scenarios.elementary import Floats
from autoscaler.scenarios.lifecycle import Life
from autoscaler.scenarios.ranges import GIB, MIB


class Heap(NamedTuple):
    """Shape (seconds,): memory above what lives, in bytes; cores of collections. collections_s: when they happen."""

    memory: Floats
    cores: Floats
    collections_s: tuple[int, ...]


def garbage(draws: Draws, runs: Sequence[Life], users: NDArray[np.int64]) -> Heap:
    """A saw: it grows with the users up to the trigger and falls to what lives within a second."""
    trigger = draws.nth("heap.trigger_gib") * GIB
    if "heap.period_s" in draws.ranges:
        growth = np.full(len(users), trigger / draws.nth("heap.period_s"))
    else:
        growth = (draws.nth("heap.growth_mib") + draws.nth("heap.growth_per_session_mib") * users) * MIB
    memory, cores, collected = np.zeros(len(users)), np.zeros(len(users)), list[int]()
    for life in runs:
        begin = life.ready_s
        while begin < life.ends_s:
            grown = np.cumsum(growth[begin : life.ends_s])
            length = int(np.searchsorted(grown, trigger, side="right"))
            memory[begin : begin + length] = grown[:length]
            begin += length
            if begin < life.ends_s:
                cores[begin] += draws.nth("heap.collection_core_s", len(collected))
                collected.append(begin)
                begin += 1
    return Heap(memory, cores, tuple(collected))


def leak(draws: Draws, runs: Sequence[Life], users: NDArray[np.int64]) -> Floats:
    """Bytes that leaked, shape (seconds,): half as fast while nobody is there, gone with a restart."""
    rate = draws.nth("heap.leak_mib_per_hour") * MIB / 3600 * np.where(users > 0, 1, 0.5)
    memory = np.zeros(len(users))
    for life in runs:
        memory[life.ready_s : life.ends_s] = np.cumsum(rate[life.ready_s : life.ends_s])
    return memory
