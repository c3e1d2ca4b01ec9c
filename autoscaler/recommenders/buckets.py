"""Buckets of usage whose weights fade with age: what the recommenders that follow VPA and Autopilot share. Pure numpy.

A weight is kept relative to a reference instant instead of being faded again and again: a sample at time t weighs
2^((t - reference) / half-life) times its own weight, so that all weights of one reference can be compared and added,
and one more sample costs one addition. (VPA: pkg/recommender/util/decaying_histogram.go does the same.) References lie
on multiples of 100 half-lives since the epoch, so that they follow from the time of the newest sample alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float64]

_SPAN = 100  # half-lives between two references: 2^100 is well within a float64
_TIE = 1 - 1e-12  # a sum that misses its threshold by rounding alone has reached it


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """Ascending buckets: bucket n is [starts[n], starts[n + 1]). What is below the first or beyond the last falls into
    it. `ends`: what a percentile that falls into the bucket answers; of the last one its start, as it has no end."""

    starts: NDArray[np.float64]
    ends: NDArray[np.float64]

    @classmethod
    def of(cls, starts: NDArray[np.float64]) -> Buckets:
        """Buckets with these starts, the first of which is 0."""
        return cls(starts, np.append(starts[1:], starts[-1]))

    @classmethod
    def exponential(cls, first: float, most: float, ratio: float) -> Buckets:
        """The first bucket is `first` wide, each further one `ratio` times as wide as the one before, up to `most`."""
        count = math.ceil(math.log(most * (ratio - 1) / first + 1, ratio)) + 1
        return cls.of(first * (np.power(ratio, np.arange(count, dtype=np.float64)) - 1) / (ratio - 1))

    @classmethod
    def linear(cls, width: float, most: float) -> Buckets:
        """Buckets of one width."""
        return cls.of(width * np.arange(math.ceil(most / width) + 1.0))

    def __len__(self) -> int:
        return len(self.starts)

    def find(self, values: NDArray[np.floating]) -> NDArray[np.intp]:
        """The bucket of each value; values are numbers, no NaN."""
        return self.starts[1:].searchsorted(values, side="right")

    def percentile(self, weights: Weights, shares: tuple[float, ...]) -> NDArray[np.intp]:
        """For each share the first bucket up to which that share of a row's weights lies; -1 in rows without weight.

        `weights`: rows of one weight a bucket. The answer has a row for each share.
        """
        sums = weights.cumsum(axis=1)
        total = sums[:, -1]
        filled = (weights > 0).argmax(axis=1)  # a share of nothing is still in a bucket that has something
        answers = [
            np.where(total > 0, np.maximum((sums >= (total * (share * _TIE))[:, None]).argmax(axis=1), filled), -1)
            for share in shares
        ]
        return np.stack(answers)


@dataclass(frozen=True, slots=True)
class Fading:
    """How weights fade. Instants are unix seconds."""

    half_life_s: float

    def reference(self, at: int) -> float:
        """The reference for weights whose newest is of this instant."""
        span = _SPAN * self.half_life_s
        return math.floor(at / span) * span

    def weight(self, at: NDArray[np.int64] | int, reference: float) -> Weights:
        """What a weight of 1 at these instants is, relative to the reference."""
        return np.exp2((np.asarray(at, np.float64) - reference) / self.half_life_s)

    def moved(self, weights: Weights, before: float, after: float) -> Weights:
        """The same weights relative to another reference."""
        return weights if before == after else weights * 2.0 ** ((before - after) / self.half_life_s)
