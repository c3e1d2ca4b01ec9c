"""Usage by blocks of five minutes, whatever the distance of its samples, and amounts that fade. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.model import Resource
from autoscaler.recommenders.usage import MOST, known

BLOCK_S = 300
"""As long as the blocks to which the far past is reduced, so that a back-fill sees what live folding saw."""

Peaks = tuple[tuple[int, float], ...]
"""Numbers of blocks (unix seconds / 300) and the greatest sample in each, ascending in time."""


def count_of(span: timedelta) -> int:
    """How many blocks come closest to a length of time, at least one."""
    return max(1, int(span.total_seconds() / BLOCK_S + 0.5))


class Seen(NamedTuple):
    """The greatest sample of each block that has any, and how many samples there were."""

    peaks: Sequence[tuple[int, float]]
    samples: int


_NOTHING = Seen((), 0)


def seen(resource: Resource, end_at: NDArray[np.int64], usage: NDArray[np.float32]) -> Seen:
    """What usage says, in cores or bytes; what is no usage is missing."""
    if len(usage) == 1:  # what a turn has to fold
        value = usage.item()
        return Seen((((end_at.item() - 1) // BLOCK_S, value),), 1) if 0 <= value <= MOST[resource] else _NOTHING
    there = known(usage, resource)
    block = (end_at[there] - 1) // BLOCK_S
    if not len(block):
        return _NOTHING
    first = np.flatnonzero(np.diff(block, prepend=block[0] - 1))
    greatest = np.maximum.reduceat(usage[there].astype(np.float64), first)
    return Seen(list(zip(block[first].tolist(), greatest.tolist(), strict=True)), len(block))


def greatest_since(before: Peaks, running: float, block: int) -> float:
    """The greatest of a running block and those before it, back to a block."""
    most = running
    for number, peak in reversed(before):
        if number < block:
            break
        if peak > most:
            most = peak
    return most


class Fading(NamedTuple):
    """An amount that halves with every half-life since its block. Which of two is greater does not depend on when."""

    amount: float = 0.0
    block: int = 0

    def at(self, block: int, half_life: float) -> float:
        """What is left of it. `half_life` is in blocks."""
        return self.amount * 2.0 ** ((self.block - block) / half_life) if self.amount else 0.0

    def or_greater(self, fresh: Fading, half_life: float) -> Fading:
        """The one of which more is left. `fresh` is not older."""
        return fresh if fresh.amount >= self.at(fresh.block, half_life) else self


def in_blocks(half_life: timedelta) -> float:
    """A length of time in blocks."""
    return half_life.total_seconds() / BLOCK_S
