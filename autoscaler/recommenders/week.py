"""What was used at the same time of day on most of the last seven days. Pure numpy.

Days are those of UTC, in slots of 15 minutes, each with its highest usage. Habits of users show on most days: what was
used on six of the last seven is expected again, and what came on one or two of them is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.recommenders.blocks import BLOCK_S

DAYS, MOST_DAYS = 7, 6
_BLOCKS = 900 // BLOCK_S  # of a slot
_OF_A_DAY = 86400 // 900
_KEPT = (DAYS + 1) * _OF_A_DAY  # today is not over
_NONE = np.zeros(0, np.float32)


class Week(NamedTuple):
    """The slots of seven days and of today. `slot`: the newest, counted since the epoch; -1: none. `peaks`: the highest
    usage in cores of each slot, at its number modulo 768; 0 where nothing was used or is known; empty before the first.
    """

    slot: int = -1
    peaks: NDArray[np.float32] = _NONE

    def seen(self, blocks: Sequence[tuple[int, float]]) -> Week:
        """With the highest usage of further blocks, by their numbers, ascending in time and none older than the
        newest slot."""
        if not blocks:
            return self
        newest = blocks[-1][0] // _BLOCKS
        if len(blocks) == 1:  # what a turn has to fold
            place, peak = newest % _KEPT, blocks[0][1]
            if newest == self.slot and peak <= self.peaks[place]:
                return self
            peaks = self._until(newest)
            peaks[place] = max(peak, peaks[place])
            return Week(newest, peaks)
        slots = np.fromiter((number for number, _ in blocks), np.int64, len(blocks)) // _BLOCKS
        usage = np.fromiter((peak for _, peak in blocks), np.float32, len(blocks))
        kept = slots > newest - _KEPT
        peaks = self._until(newest)
        np.maximum.at(peaks, slots[kept] % _KEPT, usage[kept])
        return Week(newest, peaks)

    def _until(self, newest: int) -> NDArray[np.float32]:
        """A copy of the slots, in which those after the newest so far are empty."""
        if self.slot < 0:
            return np.zeros(_KEPT, np.float32)
        peaks = self.peaks.copy()
        if newest > self.slot:
            peaks[np.arange(max(self.slot, newest - _KEPT) + 1, newest + 1) % _KEPT] = 0
        return peaks

    def usual(self, block: int) -> float:
        """What was used on six of the seven days before, at the time of day of the slot of this block; the slot is the
        newest, or the one after it. 0 where fewer days are known."""
        if self.slot < 0:
            return 0.0
        slot = block // _BLOCKS
        days: list[float] = self.peaks[slot % _OF_A_DAY :: _OF_A_DAY].tolist()
        del days[slot % _KEPT // _OF_A_DAY]
        days.sort()
        return days[DAYS - MOST_DAYS]
