"""How much memory `bridge` finds needed: the level, room for a rise, and what a kill has shown. Pure.

Memory comes without notice: what the next minutes bring cannot be told from the last ones, but a container that has
once taken 2 GiB more within a quarter of an hour may do so again. So the room above the level is as large as the
largest rise that is remembered, and narrow on a container that is calm. It ends a little above the highest usage that
is remembered, as a container at its peak does not rise by as much again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Step
from autoscaler.recommenders.blocks import BLOCK_S, Fading, Peaks, count_of, greatest_since, in_blocks
from autoscaler.recommenders.bridge_parameters import MemoryParameters
from autoscaler.recommenders.lowering import REMEMBERED
from autoscaler.recommenders.parameters import format_duration
from autoscaler.recommenders.usage import amount, span

MIB = 2.0**20
LEAST = MIB
"""Bytes: the least target. Even what uses nothing gets an amount."""

_MEMORY = Resource.MEMORY  # an enumeration is slow to look things up in
_NEWCOMER = "for what has not been seen of it yet, fading"


class MemoryPast(NamedTuple):
    """The past of one container's memory, in bytes.

    `block`: the running one; `peak`: the highest in it; `before`: of complete blocks, as many as matter. `rise`,
    `highest`: the largest that are remembered; `first`: the first sample. `needs`: at the ends of complete blocks.
    """

    block: int = -1
    peak: float = 0.0
    before: Peaks = ()
    rise: Fading = Fading()
    highest: Fading = Fading()
    first: Fading = Fading()
    needs: tuple[float, ...] = ()


NO_MEMORY = MemoryPast()


class Need(NamedTuple):
    """What is needed, in bytes, and what it is made of: `level` and `room` for a rise, which ends at `top`;
    `newcomer`: room for what has not been seen yet; `least`: what stays free in any case, added to the level."""

    level: float
    room: float
    top: float
    newcomer: float
    least: float

    @property
    def total(self) -> float:
        return max(self.least, min(self.level + self.room, self.top) + self.newcomer, LEAST)


class MemoryNeeds:
    """The rule, with its parameters."""

    def __init__(self, params: MemoryParameters) -> None:
        self._params = params
        self._window = count_of(params.window)
        self._within = count_of(params.rise_within)
        self._kept = max(self._window, self._within)
        self._rise_half_life = in_blocks(params.rise_half_life)
        self._highest_half_life = in_blocks(params.highest_half_life)
        self._newcomer_half_life = in_blocks(params.newcomer_half_life)
        self._level_because = f"highest of {format_duration(params.window)}"
        self._margin_because = f"at least {params.margin:.0%} above the level"
        self._rises, self._beyond = f"{params.rises:.0%}", f"{params.beyond:.0%}"

    def seen(self, past: MemoryPast, block: int, peak: float) -> MemoryPast:
        """The past with the highest usage that was seen in a block, or in a part of one. Older blocks are ignored."""
        if block < past.block:
            return past
        if past.block < 0:
            first = Fading(peak, block)
            return MemoryPast(block, peak, (), Fading(), first, first, ())
        before, needs = past.before, past.needs
        if block > past.block:
            before = (*before, (past.block, past.peak))[-self._kept :]
            needs = (*needs, self.need(past).total)[-REMEMBERED:]
        else:
            peak = max(peak, past.peak)
        rise = past.rise
        if before:
            lowest = min([before[-1][1], *(low for number, low in before if number >= block - self._within)])
            if peak > lowest:
                rise = rise.or_greater(Fading(peak - lowest, block), self._rise_half_life)
        highest = past.highest.or_greater(Fading(peak, block), self._highest_half_life)
        return MemoryPast(block, peak, before, rise, highest, past.first, needs)

    def all_seen(self, past: MemoryPast, peaks: Sequence[tuple[int, float]]) -> MemoryPast:
        """The past with those of many blocks, ascending in time. The far past of a back-fill is taken at once."""
        far = len(peaks) - REMEMBERED - self._kept - 1
        if far > self._kept:
            past, peaks = self._far_seen(self.seen(past, *peaks[0]), peaks[1:far]), peaks[far:]
        for block, peak in peaks:
            past = self.seen(past, block, peak)
        return past

    def _far_seen(self, past: MemoryPast, peaks: Sequence[tuple[int, float]]) -> MemoryPast:
        """The same as `seen` one after the other, but for the needs, as later ones take their place."""
        known = len(past.before) + 1
        block, peak = (np.array(part) for part in zip(*past.before, (past.block, past.peak), *peaks, strict=True))
        lowest = np.minimum(peak[:-1], peak[1:])  # the one before counts, however long ago it was
        for lag in range(2, self._within + 1):
            near = block[lag:] - block[:-lag] <= self._within
            lowest[lag - 1 :] = np.where(near, np.minimum(lowest[lag - 1 :], peak[:-lag]), lowest[lag - 1 :])
        rises = (peak[1:] - lowest)[known - 1 :]
        block, peak = block[known:], peak[known:]
        rise = past.rise
        if rises.max() > 0:
            rise = rise.or_greater(_most(block, rises, self._rise_half_life), self._rise_half_life)
        highest = past.highest
        if peak.max() > 0:
            highest = highest.or_greater(_most(block, peak, self._highest_half_life), self._highest_half_life)
        *before, (last, running) = peaks[-self._kept - 1 :]
        return MemoryPast(last, running, tuple(before), rise, highest, past.first, ())

    def need(self, past: MemoryPast) -> Need:
        """What is needed as of the running block."""
        params, block = self._params, past.block
        level = greatest_since(past.before, past.peak, block - self._window + 1)
        return Need(
            level,
            params.rises * past.rise.at(block, self._rise_half_life),
            past.highest.at(block, self._highest_half_life) * (1 + params.beyond),
            params.newcomer * past.first.at(block, self._newcomer_half_life),
            level * (1 + params.margin),
        )

    def trail(self, past: MemoryPast, need: Need) -> list[Step]:
        """How the need comes about, step by step."""
        block, value = past.block, _bytes(need.level)
        steps = [Step(_MEMORY, "usage", None, value, self._level_because)]
        roomy = need.level + need.room
        if need.room > 0:
            before, value = value, _bytes(roomy)
            ago = _age(block - past.rise.block)
            because = f"{self._rises} of the largest rise, {past.rise.amount / MIB:.0f}Mi {ago} ago, fading"
            steps.append(Step(_MEMORY, "rise", before, value, because))
        if need.top < roomy:
            roomy = need.top
            before, value = value, _bytes(roomy)
            ago = _age(block - past.highest.block)
            because = f"{self._beyond} above the highest usage, {past.highest.amount / MIB:.0f}Mi {ago} ago, fading"
            steps.append(Step(_MEMORY, "highest", before, value, because))
        if need.newcomer >= 1:
            before, value = value, _bytes(roomy + need.newcomer)
            steps.append(Step(_MEMORY, "newcomer", before, value, _NEWCOMER))
        if (total := _bytes(need.total)) > value:
            steps.append(Step(_MEMORY, "margin", value, total, self._margin_because))
        return steps


def _most(block: NDArray[np.int64], amounts: NDArray[np.float64], half_life: float) -> Fading:
    """The amount of which most is left; of equals the newest."""
    with np.errstate(divide="ignore"):
        left = np.log2(amounts) + block / half_life
    index = len(left) - 1 - int(left[::-1].argmax())
    return Fading(float(amounts[index]), int(block[index]))


def _bytes(value: float) -> int:
    return amount(_MEMORY, value)


@lru_cache(maxsize=8192)  # two weeks of blocks, over and over
def _age(blocks: int) -> str:
    return span(blocks * BLOCK_S)
