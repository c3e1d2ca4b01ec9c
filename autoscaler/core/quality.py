"""Is what was measured fit to act on? Named reasons when it is not."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.guards import Hold
from autoscaler.core.history import Gap, History
from autoscaler.core.model import Resource
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid, Samples

_STEPS_BEFORE_STALE = 3  # the newest grid point may rightly be one step and two scrapes old


def unfit(found: History | Gap, container: str, grid: Grid, now: datetime, max_age: timedelta) -> Hold | None:
    """The reason to hold a pod because of one container's measurements, or None."""
    if isinstance(found, Gap):
        return Hold(found.reason, f"container {container}: {found.detail}")
    if found.failure:
        return Hold(Reason.RECOMMENDER_FAILED, f"container {container}: {found.failure}")
    age = now.timestamp() - found.newest_at
    if abs(age) > oldest(grid, max_age):
        return Hold(Reason.STALE_DATA, f"container {container}: newest sample is {aged(age)}")
    return None


def aged(age: float) -> str:
    """How old, in words. A sample of a clock that runs ahead is from the future: nobody knows how old that one is."""
    return f"{age:.0f} s old" if age >= 0 else f"{-age:.0f} s in the future; compare the clocks"


def oldest(grid: Grid, max_age: timedelta) -> float:
    """Seconds that a newest sample may be old."""
    return max(max_age.total_seconds(), float(_STEPS_BEFORE_STALE * grid.step))


def newest_age(recent: Samples, resource: Resource, now: float) -> float:
    """Seconds from the newest sample of one resource to `now` (unix seconds); infinite if there is none."""
    values = recent.cpu if resource is Resource.CPU else recent.memory
    if not len(values):
        return float("inf")
    if values[-1] == values[-1]:  # the usual case, without a pass over the array: NaN differs from itself
        return now - float(recent.end_at[-1])
    finite = np.flatnonzero(np.isfinite(values))
    return now - float(recent.end_at[finite[-1]]) if len(finite) else float("inf")


def greatest(values: NDArray[np.float32]) -> float | None:
    """The greatest finite value, None if there is none."""
    if len(values) and math.isfinite(top := float(np.fmax.reduce(values))):  # fmax passes over NaN
        return top
    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else None
