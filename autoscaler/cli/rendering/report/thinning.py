"""Long series as no more columns than can be seen, without losing a spike. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Thinned:
    """Columns of a series. `starts`: the sample with which each begins, and after the last how many there are.

    `low`, `high`: the least and the greatest value of each column, `last` its last one; NaN where it has none.
    """

    starts: NDArray[np.intp]
    low: Values
    high: Values
    last: Values


def thinned(values: Values, most: int) -> Thinned:
    """At most `most` columns, of equal length but for one sample. A short series is left as it is."""
    starts = _starts(len(values), most)
    # where the last sample of a column is missing, so is what comes after it
    return Thinned(
        np.append(starts, len(values)),
        np.fmin.reduceat(values, starts),
        np.fmax.reduceat(values, starts),
        values[np.append(starts[1:], len(values)) - 1],
    )


def spans(happens: NDArray[np.bool_], most: int) -> list[tuple[int, int]]:
    """Stretches of samples in whose columns it happens at all, as first sample and the one after the last."""
    starts = _starts(len(happens), most)
    edges = np.append(starts, len(happens))
    there = np.concatenate(([False], np.logical_or.reduceat(happens, starts), [False]))
    turns = edges[np.flatnonzero(there[1:] != there[:-1])]
    return list(zip(turns[::2].tolist(), turns[1::2].tolist(), strict=True))


def _starts(count: int, most: int) -> NDArray[np.intp]:
    columns = min(count, most)
    return np.arange(columns) * count // columns
