"""A histogram of usage whose weights halve with every half-life, read at a percentile. Pure numpy.

Buckets are 2 % apart, and an answer is the upper edge of one, so that it exceeds the sample it rests on by at most
that.
`max` is exact where a decaying weight would not be: it is the highest bucket in which a sample fell during the last
seven half-lives, however many samples fell there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.model import Resource

Weights = NDArray[np.float32]
"""By bucket. For a percentile the seconds of samples in it, each halved with every half-life since; for `max` 1 when a
sample falls into it, and halved likewise."""

REMEMBERED = 7
"""Half-lives, after which less than 1 % of a weight is left; 14 days at 48 h."""

_RATIO = 1.02
_FADED = np.float32(1e-3)  # seconds of weight that no longer matter; also keeps float32 from becoming subnormal
_TIE = 1 - 1e-6  # weights are float32: a sum that misses its threshold by rounding has reached it
_ROWS = 1024  # of a batch at a time, to stay in the processor's cache


def _edges(first: float, last: float) -> NDArray[np.float64]:
    """Upper edges of the buckets, from `first` until one is at least `last`."""
    count = int(np.ceil(np.log(last / first) / np.log(_RATIO))) + 1
    return np.asarray(first * _RATIO ** np.arange(count), np.float64)


_EDGES = {Resource.CPU: _edges(0.001, 1000), Resource.MEMORY: _edges(2.0**20, 2.0**42)}  # cores; bytes


class Fresh(NamedTuple):
    """Samples of many containers that no fold has seen yet, one container after the other.

    `row`: whose it is. `at`, `each_s`, `usage`: its end, the seconds that it stands for, and how much. `until`,
    `newest`: of each container the end of the newest sample that was folded, and of the newest of all. Unix seconds.
    """

    row: NDArray[np.intp]
    at: NDArray[np.int64]
    each_s: NDArray[np.float32]
    usage: Weights
    until: NDArray[np.int64]
    newest: NDArray[np.int64]

    def of(self, usage: Weights, known: NDArray[np.bool_]) -> Fresh:
        """The same samples with one resource's usage, where it is known."""
        return self._replace(row=self.row[known], at=self.at[known], each_s=self.each_s[known], usage=usage[known])


class Faded:
    """One resource: its buckets, how they fade, and what they say. `share`: of the samples, that must not exceed the
    answer; 1 is `max`."""

    def __init__(self, resource: Resource, half_life_s: float, share: float) -> None:
        self._edges = _EDGES[resource]
        self._half_life_s = half_life_s
        self._share = share
        self._is_max = share >= 1
        self._faded = np.float32(0.5**REMEMBERED) if self._is_max else _FADED

    def start(self) -> Weights:
        """What there is before any sample."""
        return np.zeros(len(self._edges), np.float32)

    def _fading(self, age_s: NDArray[np.int64]) -> Weights:
        return np.exp2(-age_s.astype(np.float64) / self._half_life_s).astype(np.float32)

    def fold(
        self, weights: Weights, since: int, at: NDArray[np.int64], usage: Weights, each_s: int, until: int
    ) -> Weights:
        """The weights of `since` at `until`, with samples of then or before."""
        faded = weights * np.float32(2.0 ** ((since - until) / self._half_life_s))
        faded[faded < self._faded] = 0
        fresh = self._fading(until - at)
        bucket = self._bucket(usage)
        if self._is_max:
            np.maximum.at(faded, bucket, fresh)
        else:
            np.add.at(faded, bucket, fresh * np.float32(each_s))
        return faded

    def _bucket(self, usage: Weights) -> NDArray[np.intp]:
        return np.minimum(np.searchsorted(self._edges, usage), len(self._edges) - 1)

    def read(self, rows: Sequence[Weights], fresh: Fresh) -> list[float | None]:
        """The percentile of each row of weights, faded and joined by its fresh samples; None where nothing is left."""
        bucket = np.full(len(rows), -1, np.intp)
        fade = self._fading(fresh.newest - fresh.until)
        for start in range(0, len(rows), _ROWS):
            part = slice(start, start + _ROWS)
            bucket[part] = self._read(np.stack(rows[part]) * fade[part, None], fresh, start)
        edges = self._edges[bucket].tolist()
        return [None if found < 0 else edge for found, edge in zip(bucket.tolist(), edges, strict=True)]

    def _read(self, weights: Weights, fresh: Fresh, start: int) -> NDArray[np.intp]:
        """The bucket that holds the percentile in each row; -1 where there is nothing."""
        low, high = np.searchsorted(fresh.row, (start, start + len(weights)))
        row, bucket = fresh.row[low:high] - start, self._bucket(fresh.usage[low:high])
        weight = self._fading(fresh.newest[fresh.row[low:high]] - fresh.at[low:high])
        if self._is_max:
            np.maximum.at(weights, (row, bucket), weight)
            reached = weights >= self._faded
            last = weights.shape[1] - 1 - reached[:, ::-1].argmax(axis=1)
            return np.where(reached.any(axis=1), last, -1)
        np.add.at(weights, (row, bucket), weight * fresh.each_s[low:high])
        sums = weights.cumsum(axis=1, dtype=np.float64)
        total = sums[:, -1]
        first = (sums >= (total * (self._share * _TIE))[:, None]).argmax(axis=1)
        return np.where(total > 0, first, -1)
