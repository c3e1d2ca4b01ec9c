"""A percentile of the samples of a window, all of which count alike, interpolated linearly as in KRR; `max` is exact.

In contrast to a histogram it keeps the samples themselves: 12 bytes each, or for `max` those that no later one exceeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.bounds import SAMPLE_PRECISION
from autoscaler.recommenders.faded import Fresh
from autoscaler.recommenders.peaks import Peaks, pushed, within

Values = NDArray[np.float32]


class Kept(NamedTuple):
    """The samples of the window: all of them with their ends (unix seconds), or the peaks among them."""

    at: NDArray[np.int64]
    usage: Values
    peaks: Peaks = ()


class HardWindow:
    """A window of so many seconds, of which a share of the samples must not exceed the answer (1: none).

    `every_s`: a percentile is renewed at multiples of so many seconds since the epoch; 0: with each sample.
    """

    def __init__(self, window_s: int, share: float, every_s: int = 0) -> None:
        self._every_s = every_s
        self._window_s = window_s
        self._share = share

    def start(self) -> Kept:
        """What is kept before any sample."""
        return Kept(np.empty(0, np.int64), np.empty(0, np.float32))

    def fold(self, kept: Kept, since: int, at: NDArray[np.int64], usage: Values, each_s: int, until: int) -> Kept:
        """What is kept at `until`, with samples of then or before."""
        before = until - self._window_s - self._every_s
        if self._share >= 1:
            return kept._replace(peaks=pushed(kept.peaks, zip(at.tolist(), usage.tolist(), strict=True), before))
        at, usage = np.concatenate((kept.at, at)), np.concatenate((kept.usage, usage))
        first = int(at.searchsorted(before, side="right"))
        return Kept(at[first:], usage[first:])

    def read(self, rows: Sequence[Kept], fresh: Fresh) -> list[float | None]:
        """The answer for each row, joined by its fresh samples; None where there are no samples."""
        if self._share < 1:
            return [self._percentile(usage) for usage in self._usages(rows, fresh)]
        parts = np.searchsorted(fresh.row, np.arange(len(rows) + 1)).tolist()
        since = (fresh.newest - self._window_s).tolist()
        return [_peak(kept, since[row], fresh.usage[parts[row] : parts[row + 1]]) for row, kept in enumerate(rows)]

    def above(self, rows: Sequence[Kept], fresh: Fresh, amounts: Sequence[float | None]) -> list[int]:
        """How many of the samples that `read` answers from exceed an amount for each row; 0 where there is none."""
        if self._share >= 1:
            return [0] * len(rows)
        return [
            0 if amount is None else int((usage > amount).sum())
            for usage, amount in zip(self._usages(rows, fresh), amounts, strict=True)
        ]

    def _usages(self, rows: Sequence[Kept], fresh: Fresh) -> Iterator[Values]:
        parts = np.searchsorted(fresh.row, np.arange(len(rows) + 1)).tolist()
        newest = fresh.newest
        if self._every_s:
            newest = newest // self._every_s * self._every_s
        for row, (kept, until) in enumerate(zip(rows, newest.tolist(), strict=True)):
            part = slice(parts[row], parts[row + 1])
            opened = fresh.usage[part]
            if self._every_s:
                kept, opened = _until(kept, until), opened[fresh.at[part] <= until]
            first = int(kept.at.searchsorted(until - self._window_s, side="right"))
            yield np.concatenate((kept.usage[first:], opened))

    def _percentile(self, usage: Values) -> float | None:
        if not len(usage):
            return None
        place = (len(usage) - 1) * self._share
        low = int(place)
        around = np.partition(usage, (low, min(low + 1, len(usage) - 1))).astype(np.float64)
        found = around[low] + (place - low) * (around[min(low + 1, len(usage) - 1)] - around[low])
        return float(found) * (1 + SAMPLE_PRECISION)  # samples are 32-bit floats, and may have been rounded down


def _peak(kept: Kept, since: int, opened: Values) -> float | None:
    peak = within(kept.peaks, since)
    if not len(opened):
        return peak
    return max(float(opened.max()), peak or 0.0)


def _until(kept: Kept, instant: int) -> Kept:
    end = int(kept.at.searchsorted(instant, side="right"))
    return kept._replace(at=kept.at[:end], usage=kept.usage[:end])
