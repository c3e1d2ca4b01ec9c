"""Lower bounds: the least that could have been reserved by someone who knew all of the demand beforehand. Pure.

Both are exact dynamic programmes over where the limit changes; between two changes it is the greatest demand there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Values = NDArray[np.float64]

_LONGEST = 6000  # samples that the search with a budget takes as they are
_COARSE_S = 300
_HALVINGS = 60


class Oracle(NamedTuple):
    """The limits of an oracle, one for each sample, and how often they change."""

    limit: Values
    changes: int

    def slack_percent(self, demand: Values) -> float:
        """Of what it reserves, the part that is not used."""
        whole = float(self.limit.sum())
        return 100 * (whole - float(demand.sum())) / whole if whole else 0.0


def with_pieces(demand: Values, shortest: int) -> Oracle:
    """The least sum of limits that never lie below `demand` and stay the same for `shortest` samples at least.

    `demand`: finite, at least one sample. A series that is shorter than that is one piece.
    """
    count = len(demand)
    if count < 2 * shortest:
        return _pieces(demand, [0, count])
    best, cut = np.full(count + 1, np.inf), np.zeros(count + 1, np.intp)
    best[0] = 0
    # a piece of twice the shortest length or more is never better than the same in two
    lengths = np.arange(shortest, 2 * shortest)
    before = np.concatenate((np.full(2 * shortest, np.inf), demand))  # what begins before the series costs too much
    for first in range(shortest, count + 1, shortest):  # no end in one stretch depends on another one there
        ends = np.arange(first, min(first + shortest, count + 1))
        windows = sliding_window_view(before[first + 1 : ends[-1] + 2 * shortest], 2 * shortest - 1)
        greatest = np.maximum.accumulate(windows[:, ::-1], axis=1)[:, shortest - 1 :]
        begins = ends[:, None] - lengths
        total = np.where(begins < 0, np.inf, best[begins] + greatest * lengths)
        least = total.argmin(axis=1)
        rows = np.arange(len(ends))
        best[ends], cut[ends] = total[rows, least], begins[rows, least]
    return _pieces(demand, _ends(cut, count))


def with_changes(demand: Values, most: float, step_s: float) -> Oracle:
    """The least sum of limits that never lie below `demand` and change at most `most` times.

    Found with a price for each change, which is bisected: what comes out is a valid series of limits, and no series
    with as many changes reserves less. Series of more than 6,000 samples are searched in maxima of 5 minutes.
    `demand`: finite, at least one sample of `step_s` seconds.
    """
    group = max(1, round(_COARSE_S / step_s)) if len(demand) > _LONGEST else 1
    starts = np.arange(0, len(demand), group)
    coarse = np.maximum.reduceat(demand, starts)
    length = np.diff(np.append(starts, len(demand)))
    low, high = 0.0, float(coarse.max()) * len(demand)
    best = [0, len(coarse)]
    free = _cheapest(coarse, length, 0.0)
    if len(free) - 2 <= most:
        best = free
    else:
        for _ in range(_HALVINGS):
            price = (low + high) / 2
            ends = _cheapest(coarse, length, price)
            changes = len(ends) - 2
            if changes <= most:
                high, best = price, ends
                if changes == int(most):
                    break
            else:
                low = price
            if high - low <= 1e-9 * max(high, 1e-300):
                break
    return _pieces(demand, [*(int(starts[end]) for end in best[:-1]), len(demand)])


def _cheapest(demand: Values, length: NDArray[np.intp], price: float) -> list[int]:
    """Where the limit begins and ends that costs least, a change costing `price`; of equals the fewest changes."""
    count = len(demand)
    best, cut = np.full(count + 1, np.inf), np.zeros(count + 1, np.intp)
    best[0] = -price  # the first piece is no change
    before = np.concatenate(([0], np.cumsum(length)))
    greatest = np.zeros(count)  # of the demand from each start up to the end that is looked at
    for end in range(1, count + 1):
        value = demand[end - 1]
        # ascending towards the past, so those below the newest are at the end
        first = end - int(np.searchsorted(greatest[:end][::-1], value, side="left"))
        greatest[first:end] = value
        total = best[:end] + greatest[:end] * (before[end] - before[:end])
        least = int(total.argmin())
        best[end], cut[end] = total[least] + price, least
    return _ends(cut, count)


def _ends(cut: NDArray[np.intp], count: int) -> list[int]:
    ends = [count]
    while ends[-1]:
        ends.append(int(cut[ends[-1]]))
    return ends[::-1]


def _pieces(demand: Values, ends: list[int]) -> Oracle:
    greatest = np.maximum.reduceat(demand, ends[:-1])
    limit = np.repeat(greatest, np.diff(ends))
    return Oracle(limit, int((np.diff(greatest) != 0).sum()))


def perfect_constant(demand: Values) -> Oracle:
    """The greatest demand from the beginning to the end."""
    return _pieces(demand, [0, len(demand)])
