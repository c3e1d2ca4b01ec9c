"""What a resource uses at the same time of each season, with an interval that past seasons vouch for. Pure numpy.

A season (a day, if not said otherwise) has slots of 15 minutes, each with the peak of its samples. The forecast of a
slot is the mean over the known seasons of the peak of that slot and its two neighbours, so that what comes some minutes
earlier or later is not missed. How far off that may be is measured and not assumed: each season is forecast from the
others alone, and the interval has the share of those errors that is asked for, with the correction of split conformal
prediction for few of them (Vovk et al., Algorithmic Learning in a Random World, 2005).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SLOT_S = 900
LEAST_SEASONS = 3
"""Seasons without which nothing is forecast."""

_WHOLE = 0.8  # the share of its slots that a season must have
_SMALL = 0.01  # of the greatest: what is less than this does not count as a multiple of itself

Slots = NDArray[np.float32]
Table = NDArray[np.float64]


class Season(NamedTuple):
    """What is forecast, by slot; empty where it is not. `strength`: from 1 (each season is like the others) to 0 and
    below (the same slot of other seasons says no more than their mean). `seasons`: how many it rests on."""

    seasons: int
    strength: float = 0.0
    point: Slots = np.empty(0, np.float32)
    lower: Slots = np.empty(0, np.float32)
    upper: Slots = np.empty(0, np.float32)


def learned(rows: list[Slots], coverage: float) -> Season:
    """The season of rows of slots, one a season, NaN where nothing is known.

    `coverage`: the share of errors up to the upper end, and from the lower one on. No end is above the greatest value.
    """
    whole = [row for row in rows if np.isfinite(row).mean() >= _WHOLE]
    if len(whole) < LEAST_SEASONS:
        return Season(len(whole))
    values = np.stack(whole).astype(np.float64)
    around = np.fmax(values, np.fmax(np.roll(values, 1, axis=1), np.roll(values, -1, axis=1)))
    highest = float(np.nanmax(values))
    small = _SMALL * highest or 1.0
    errors = np.sort(((values + small) / (_of_others(around) + small))[np.isfinite(values)])
    point = _mean(around)
    point[np.isnan(point)] = highest  # a slot that no season knows
    upper = np.clip((point + small) * _quantile(errors, coverage) - small, 0.0, highest)
    lower = np.clip((point + small) * -_quantile(-errors[::-1], coverage) - small, 0.0, upper)
    return Season(
        len(whole),
        _strength(values),
        point.astype(np.float32),
        lower.astype(np.float32),
        upper.astype(np.float32),
    )


def _mean(values: Table) -> Table:
    """The mean over seasons; NaN where none is known."""
    known = np.isfinite(values)
    counts = known.sum(axis=0)
    return np.where(counts > 0, np.where(known, values, 0.0).sum(axis=0) / np.maximum(counts, 1), np.nan)


def _of_others(values: Table) -> Table:
    """Of each season the mean of all others; where no other is known, its own."""
    known = np.isfinite(values)
    filled = np.where(known, values, 0.0)
    counts = known.sum(axis=0) - known
    return np.where(counts > 0, (filled.sum(axis=0) - filled) / np.maximum(counts, 1), values)


def _strength(values: Table) -> float:
    """How much better the same slot of the other seasons tells a value than the mean of all their slots does."""
    known = np.isfinite(values)
    by_slot = _of_others(values)
    means = _mean(values.T)
    by_mean = ((means.sum() - means) / (len(means) - 1))[:, None]
    spread = float(np.abs(values - by_mean)[known].sum())
    return 1 - float(np.abs(values - by_slot)[known].sum()) / spread if spread > 0 else 0.0


def _quantile(ascending: Table, share: float) -> float:
    """The least value that a next one, if it is like those, exceeds with a chance of 1 - share; at most the last."""
    place = math.ceil((len(ascending) + 1) * share) - 1
    return float(ascending[min(place, len(ascending) - 1)])
