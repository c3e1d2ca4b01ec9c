"""Chance that is the same everywhere: numbers that are a function of what they are for, and of nothing else.

A stream is named by generator version, scenario, seed, and the quantity that is drawn. Its n-th number does not depend
on how many were drawn before: a new quantity leaves the others as they are, and a longer run begins with the shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from autoscaler.scenarios.elementary import circle, exp, log

VERSION = 1  # raising it is the only way to change the bytes of a scenario

_GOLDEN, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = (np.uint64(bits) for bits in (30, 27, 31, 11))


@dataclass(frozen=True, slots=True)
class Stream:
    """Numbered draws: SplitMix64 (Steele, Lea, Flood 2014) started at `key`."""

    key: int

    def uniforms(self, first: int, count: int) -> NDArray[np.float64]:
        """Draws number `first` and following, from [0, 1): 53 random bits each."""
        bits = np.arange(first + 1, first + count + 1, dtype=np.uint64)
        bits *= _GOLDEN
        bits += np.uint64(self.key)
        bits ^= bits >> _30
        bits *= _MIX_1
        bits ^= bits >> _27
        bits *= _MIX_2
        bits ^= bits >> _31
        return (bits >> _11).astype(np.float64) * 2.0**-53

    def normals(self, first: int, count: int) -> NDArray[np.float64]:
        """Draws number `first` and following, standard normal: Box and Muller, two from each pair of uniform ones."""
        even = first - first % 2
        pairs = (first - even + count + 1) // 2
        uniforms = self.uniforms(even, 2 * pairs)
        radius = np.sqrt(-2 * log(1 - uniforms[::2]))
        cosine, sine = circle(uniforms[1::2])
        both = np.empty(2 * pairs)
        both[::2], both[1::2] = radius * cosine, radius * sine
        return both[first - even :][:count]

    def exponentials(self, first: int, count: int) -> NDArray[np.float64]:
        """Draws number `first` and following, exponential with mean 1, by inversion."""
        return -log(1 - self.uniforms(first, count))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every number from `low` to `high` alike."""

    low: float
    high: float

    def draw(self, stream: Stream, first: int, count: int) -> NDArray[np.float64]:
        """Draws number `first` and following of a stream."""
        return self.low + (self.high - self.low) * stream.uniforms(first, count)


@dataclass(frozen=True, slots=True)
class Whole:
    """Every whole number from `low` to `high` alike, both included."""

    low: int
    high: int

    def draw(self, stream: Stream, first: int, count: int) -> NDArray[np.float64]:
        """Draws number `first` and following of a stream."""
        return self.low + np.floor((self.high - self.low + 1) * stream.uniforms(first, count))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Lognormal with this median and this sigma of the logarithm, moved to `low` or `high` if it is outside."""

    median: float
    sigma: float
    low: float
    high: float

    def draw(self, stream: Stream, first: int, count: int) -> NDArray[np.float64]:
        """Draws number `first` and following of a stream."""
        return np.clip(self.median * exp(self.sigma * stream.normals(first, count)), self.low, self.high)


Range = Uniform | Whole | LogNormal


@dataclass(frozen=True, slots=True)
class Draws:
    """What chance gives to one seed of one scenario. `ranges`: of each quantity, by `component.name`."""

    scenario: str
    seed: int
    ranges: Mapping[str, Range]

    def stream(self, quantity: str) -> Stream:
        """The stream of a quantity."""
        name = f"{VERSION}/{self.scenario}/{self.seed}/{quantity}"
        return Stream(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little"))

    def each(self, quantity: str, count: int, *, first: int = 0) -> NDArray[np.float64]:
        """Draws number `first` and following of a quantity."""
        return self.ranges[quantity].draw(self.stream(quantity), first, count)

    def nth(self, quantity: str, number: int = 0) -> float:
        """Draw number `number` of a quantity."""
        return float(self.each(quantity, 1, first=number)[0])

    def whole(self, quantity: str, number: int = 0) -> int:
        """Draw number `number` of a quantity, to the next whole number."""
        return round(self.nth(quantity, number))
