"""Frames: what drawing and encoding them costs, and how long the slow ones take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.scenarios.draws import Draws, Uniform
from autoscaler.scenarios.elementary import Floats, exp

BUDGET_MS = 16.67
_A_SECOND = 60  # frames that are drawn from chance, of which a slow second shows fewer
_SLOWEST = 57  # the nearest rank of the 95th percentile of 60
_SPREAD = 0.15
_AT_ONCE_S = 300  # what fits into the processor's cache


class Frames(NamedTuple):
    """Shape (seconds,): cores that frames and encoders take; 95th percentile of frame times in ms."""

    cores: Floats
    time_ms: Floats


def frames(draws: Draws, work: Floats, users: NDArray[np.int64], stalls: Sequence[tuple[int, int]]) -> Frames:
    """The frames of a scene with this work factor (0: there is none) for so many users."""
    median_ms = work * draws.nth("frames.cost_ms") * (1 + draws.nth("frames.cost_per_session") * users)
    cores, time_ms = np.zeros(len(work)), np.full(len(work), BUDGET_MS)
    chance, idle_hz = draws.nth("frames.hitch_chance"), draws.nth("frames.idle_hz")
    for first in range(0, len(work), _AT_ONCE_S):
        part = slice(first, first + _AT_ONCE_S)
        if not median_ms[part].any():
            continue
        costs = median_ms[part, None] * _spread(draws, chance, first, len(work[part]))
        per_second = np.minimum(60, 1000 * _A_SECOND / _total(np.maximum(BUDGET_MS, costs)))
        per_second[users[part] == 0] = idle_hz
        cores[part] = per_second * (_total(costs) / _A_SECOND) / 1000
        slow = np.partition(costs, _SLOWEST - 1, axis=1)[:, _SLOWEST - 1]
        time_ms[part] = np.maximum(BUDGET_MS, slow)
    for begin, end in stalls:
        cores[begin:end] = 0
        time_ms[begin:end] = 1000  # none within the second
    cores *= 1 + draws.nth("frames.simulation")
    return Frames(cores + draws.nth("frames.encoder_cores") * users, time_ms)


def _spread(draws: Draws, chance: float, first: int, count: int) -> Floats:
    """Costs of frames in multiples of their median, shape (count, 60), hitches among them."""
    begin, size = first * _A_SECOND, count * _A_SECOND
    spread = exp(_SPREAD * draws.stream("frames.cost").normals(begin, size))
    hitch = draws.stream("frames.hitch").uniforms(begin, size)
    factor = draws.ranges["frames.hitch_factor"]
    assert isinstance(factor, Uniform)
    hits = np.flatnonzero(hitch < chance)
    # below the chance a number is again uniform, which spares a second draw
    spread[hits] *= factor.low + (factor.high - factor.low) * (hitch[hits] / chance)
    return spread.reshape(count, _A_SECOND)


def _total(costs: Floats) -> Floats:
    """The sum over a second, one frame after the other: in which order numpy adds depends on the processor."""
    total = np.zeros(len(costs))
    for frame in range(costs.shape[1]):
        total += costs[:, frame]
    return total
