"""Is what was measured fit to act on? Named reasons when it is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.guards import Hold
from autoscaler.core.history import Gap, History
from autoscaler.core.model import Resource
from autoscaler.core.presence import Covered, Presence, Seen
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid, Samples, Step

MOST_MISSING = 0.1
"""Holes that make up more than this share of a window are a reason to lower nothing."""

SCRAPES_IN_A_WINDOW = 4
"""A rate's window holds so many scrapes, so that one that fails does not leave it without two samples."""

_SCRAPES_IN_A_HOLE = 2  # what is longer is a hole; a single scrape that fails is usual
_STEPS_BEFORE_STALE = 3  # the newest grid point may rightly be one step and two scrapes old


class Effect(StrEnum):
    """What a doubt about measurements comes to."""

    HOLD = "hold"  # no change at all
    NO_DOWN = "no-down"  # raises alone
    NOTE = "note"  # it is said


EFFECTS: Mapping[Reason, Effect] = MappingProxyType(
    {
        Reason.METRICS_UNAVAILABLE: Effect.HOLD,
        Reason.NOT_MEASURED_YET: Effect.HOLD,
        Reason.NO_DATA: Effect.HOLD,
        Reason.STALE_DATA: Effect.HOLD,
        Reason.CLUSTER_AMBIGUOUS: Effect.HOLD,
        Reason.AMBIGUOUS_SOURCE: Effect.HOLD,
        Reason.DUPLICATE_SERIES: Effect.HOLD,
        Reason.INSUFFICIENT_HISTORY: Effect.HOLD,
        Reason.RATE_WINDOW_TOO_SHORT: Effect.HOLD,
        Reason.LOW_COVERAGE: Effect.NO_DOWN,
        Reason.PARTIAL_RESPONSE: Effect.NO_DOWN,
        Reason.SCRAPE_GAP: Effect.NO_DOWN,
        Reason.SOURCE_CHANGED: Effect.NO_DOWN,
        Reason.RANGE_TRUNCATED: Effect.NO_DOWN,
        Reason.RESOLUTION_REDUCED: Effect.NO_DOWN,
        Reason.COUNTER_RESET_STORM: Effect.NO_DOWN,
        Reason.COUNTER_RESET: Effect.NOTE,
        Reason.GPU_UNATTRIBUTED: Effect.HOLD,
        Reason.GPU_UTILIZATION_UNKNOWN: Effect.HOLD,
    }
)
"""The strongest effect that each reason to doubt a measurement can have."""


class Doubt(NamedTuple):
    """What speaks against a change of one resource of a container, with its numbers in words."""

    reason: Reason
    resource: Resource
    effect: Effect
    words: str

    @property
    def step(self) -> str:
        """The name of the step that it makes."""
        return self.reason[0].lower() + self.reason[1:]

    @property
    def note(self) -> Step:
        """It said, whether or not it keeps anything."""
        return Step(self.resource, self.step, None, None, self.words)


Doubts = Mapping[str, tuple[Doubt, ...]]
"""Those of a pod, by container."""

NO_DOUBTS: Doubts = MappingProxyType({})


class Window(NamedTuple):
    """What is judged of a container, and how. Seconds, and unix seconds.

    `began_at`: when the container of today was first there, as far as known; nothing is expected of before.
    `every_s`: how often it is scraped; None: not known.
    """

    grid: Grid
    rate_window_s: float
    min_coverage: float
    began_at: float
    every_s: int | None


def rate_window_doubt(window: Window, recent: Samples) -> Doubt | None:
    """Whether the rate's window is too short for the scrapes, which shows as memory without CPU."""
    if window.every_s is None:
        lacking = np.isfinite(recent.memory).any() and not np.isfinite(recent.cpu).any()
        words = f"rate window {window.rate_window_s:g} s, and memory has samples while CPU has none"
    else:
        lacking = window.rate_window_s < SCRAPES_IN_A_WINDOW * window.every_s
        words = f"rate window too short ({window.rate_window_s:g} s for {window.every_s} s scrapes)"
    return Doubt(Reason.RATE_WINDOW_TOO_SHORT, Resource.CPU, Effect.HOLD, words) if lacking else None


def resolution_doubt(grid: Grid, rate_window_s: float) -> Doubt | None:
    """Whether rates that are kept once a block leave time out in which CPU may have peaked. Memory keeps its peaks."""
    if rate_window_s >= grid.block or grid.block == grid.step:
        return None
    words = f"rates over {_span(rate_window_s)} are kept every {_span(grid.block)}: peaks in between are not seen"
    return Doubt(Reason.RESOLUTION_REDUCED, Resource.CPU, Effect.NO_DOWN, words)


def range_words(unread_before: int, newest_at: int, grid: Grid) -> str:
    """How much of the look-back was read, where it is not all; empty: as far as it reaches now it was."""
    read_s = newest_at - unread_before
    return f"{_span(read_s)} of {_span(grid.lookback)} were read" if read_s < grid.lookback else ""


def gaps(seen: Seen, resource: Resource, first_at: int, window: Window) -> list[Doubt]:
    """What the holes in one resource's samples come to: recently, and in all that is looked back on."""
    found: dict[Reason, tuple[float, Doubt]] = {}
    lengths = (min(window.grid.fine, window.grid.lookback), window.grid.lookback)
    for presence, length_s in zip(seen.of(resource), lengths, strict=True):
        every_s = max(presence.step, window.every_s or presence.step)
        since = max(presence.until - length_s, window.began_at, first_at - presence.step)
        if resource is Resource.CPU and since > presence.until - length_s:
            since += window.rate_window_s  # the first rate is that of a whole window
        covered = presence.within(since, every_s)
        for doubt in _judged(covered, presence, every_s, resource, window.min_coverage):
            if doubt.reason not in found or covered.share < found[doubt.reason][0]:
                found[doubt.reason] = covered.share, doubt
    return [doubt for _, doubt in found.values()]


def _judged(covered: Covered, presence: Presence, every_s: float, resource: Resource, least: float) -> list[Doubt]:
    length_s = covered.expected * presence.step
    doubts = []
    if covered.share < least:
        words = f"{covered.share:.0%} of the samples of {_span(length_s)}, below {least:.0%}"
        doubts.append(Doubt(Reason.LOW_COVERAGE, resource, Effect.NO_DOWN, words))
    # a value counts for as long as until the next, so that the hole seems shorter by that
    hole_s = covered.hole * presence.step + (every_s - presence.step if covered.hole else 0)
    if hole_s > _SCRAPES_IN_A_HOLE * every_s:
        missing = 1 - covered.share
        effect = Effect.NO_DOWN if missing > MOST_MISSING else Effect.NOTE
        words = f"no samples for {_span(hole_s)} of {_span(length_s)}; {missing:.1%} missing, allowed are"
        words = f"{words} {MOST_MISSING:.0%}"
        doubts.append(Doubt(Reason.SCRAPE_GAP, resource, effect, words))
    return doubts


def _span(seconds: float) -> str:
    for length, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * length or (unit == "m" and seconds >= length):
            return f"{seconds / length:.1f}".removesuffix(".0") + unit
    return f"{seconds:.0f}s"


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
