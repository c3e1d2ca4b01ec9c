"""For which steps there are values: one bit a step, so that two weeks of a container cost half a kilobyte. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Grid, Samples


class Covered(NamedTuple):
    """How much of a window has values, in steps. `hole`: the longest stretch without any."""

    there: int
    expected: int
    hole: int

    @property
    def share(self) -> float:
        """From 0 to 1; 1 where nothing is expected."""
        return self.there / self.expected if self.expected else 1.0


@dataclass(frozen=True, slots=True)
class Presence:
    """Steps of `step` seconds that have a value. Bit 0 is the step that ends at `until` (unix seconds)."""

    step: int
    until: int = 0
    bits: int = 0

    def with_values(self, end_at: NDArray[np.int64], there: NDArray[np.bool_], lookback: int) -> Presence:
        """With steps that end later, ascending; `there`: which of them have a value. Keeps `lookback` seconds."""
        until = int(end_at[-1])
        back = (until - end_at[there]) // self.step
        flags = np.zeros((until - int(end_at[0])) // self.step + 1, np.uint8)
        flags[back] = 1
        bits = int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")
        old = self.bits << (until - self.until) // self.step if self.until else 0
        return Presence(self.step, until, (old | bits) & _ones(lookback // self.step))

    def within(self, since: float, every_s: float) -> Covered:
        """What there is of the steps that begin at `since` (unix seconds) or later. `every_s`: how often there can be
        a value; each counts for so long."""
        expected = max(0, int(self.until - since) // self.step)
        bits = self.bits
        for steps in range(1, -int(-every_s // self.step)):
            bits |= self.bits >> steps
        bits &= _ones(expected)
        there = bits.bit_count()
        if there == expected:
            return Covered(there, expected, 0)
        return Covered(there, expected, max(map(len, format(bits, f"0{expected}b").split("1"))))


class Seen(NamedTuple):
    """Of a history: for which steps of the newest samples, and for which blocks of all of them, there are values."""

    cpu: tuple[Presence, Presence]
    memory: tuple[Presence, Presence]

    @staticmethod
    def nothing(grid: Grid) -> Seen:
        """Before the first sample."""
        both = Presence(grid.step), Presence(grid.block)
        return Seen(both, both)

    def of(self, resource: Resource) -> tuple[Presence, Presence]:
        """Recently, and over all."""
        return self.cpu if resource is Resource.CPU else self.memory

    def recently(self, samples: Samples, grid: Grid) -> Seen:
        """With samples at the grid's step."""
        return Seen(
            (_more(self.cpu[0], samples, samples.cpu, grid.fine), self.cpu[1]),
            (_more(self.memory[0], samples, samples.memory, grid.fine), self.memory[1]),
        )

    def overall(self, blocks: Samples, grid: Grid) -> Seen:
        """With complete blocks."""
        return Seen(
            (self.cpu[0], _more(self.cpu[1], blocks, blocks.cpu, grid.lookback)),
            (self.memory[0], _more(self.memory[1], blocks, blocks.memory, grid.lookback)),
        )


def _more(known: Presence, samples: Samples, values: NDArray[np.float32], lookback: int) -> Presence:
    return known.with_values(samples.end_at, np.isfinite(values), lookback) if len(samples) else known


def _ones(count: int) -> int:
    return (1 << count) - 1
