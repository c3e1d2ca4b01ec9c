"""A recommender that looks ahead: what was used at this time of earlier days, with an interval that they vouch for.

It sizes for the upper end of what is forecast for the next minutes, and never for less than what was used just now. As
long as there are not three whole days, or where the time of day tells too little, it sizes for the peak of a plain
window instead, and says so in its trail. How a season is learned is in season.py.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import timedelta
from itertools import pairwise
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Abstain, Recommender, Samples, Signal, Situation, Step, Target
from autoscaler.recommenders.kills import KillParameters, held_up
from autoscaler.recommenders.parameters import Duration, Parameters, Ratio, bounded, format_duration
from autoscaler.recommenders.peaks import Peaks, pushed, within
from autoscaler.recommenders.season import LEAST_SEASONS, SLOT_S, Season, Slots, learned
from autoscaler.recommenders.usage import LEAST_CPU, LEAST_MEMORY, SCALE, amount, known, span

RECENT_S = 900
"""What was used for so long is always covered."""

_FLOOR = {Resource.CPU: LEAST_CPU, Resource.MEMORY: LEAST_MEMORY}


class CpuParameters(Parameters):
    """What is added to CPU."""

    margin: Ratio = Field(0.15, description="What is added on top.")


class MemoryParameters(Parameters):
    """What is added to memory."""

    margin: Ratio = Field(0.15, description="What is added on top.")


class ForecastParameters(Parameters):
    """Parameters of the recommender `forecast`."""

    cpu: CpuParameters = Field(CpuParameters(), description="What is added to CPU.")
    memory: MemoryParameters = Field(MemoryParameters(), description="What is added to memory.")
    season: Annotated[Duration, bounded(timedelta(hours=1), timedelta(days=7))] = Field(
        timedelta(hours=24), description="After how long usage repeats itself, counted in UTC; a multiple of 15m."
    )
    seasons: int = Field(14, ge=LEAST_SEASONS, le=60, description="How many of them are remembered.")
    horizon: Annotated[Duration, bounded(timedelta(0), timedelta(hours=6))] = Field(
        timedelta(minutes=30), description="How far ahead is looked."
    )
    coverage: Annotated[Ratio, bounded(0.5, 0.999)] = Field(
        0.95, description="The share of past forecasts whose upper end held."
    )
    min_strength: Annotated[Ratio, bounded(0.0, 1.0)] = Field(
        0.3, description="How much better than a mean the time of day must tell usage to count as a season."
    )
    window: Annotated[Duration, bounded(timedelta(minutes=15), timedelta(days=14))] = Field(
        timedelta(hours=24), description="Without a season: the window whose peak is wanted."
    )
    min_history: Annotated[Duration, bounded(timedelta(0), timedelta(days=30))] = Field(
        timedelta(minutes=30), description="Samples that must be there, in time."
    )
    oom: KillParameters = Field(KillParameters(), description="What follows from an OOM kill.")

    def needs(self) -> timedelta:
        return self.min_history

    def remembers(self) -> timedelta:
        return max(self.window, self.seasons * self.season)

    @model_validator(mode="after")
    def _whole_slots(self) -> ForecastParameters:
        if self.season % timedelta(seconds=SLOT_S):
            raise ValueError(f"season: {format_duration(self.season)} is not a multiple of 15m")
        return self


class Past(NamedTuple):
    """One resource of one container.

    `rows`: earlier seasons by their number since the epoch, with the peak of each slot. `number`, `running`: the one
    that is going on. `season`: what was learned from `rows`. `peaks`: of the window. `last_at`: unix seconds.
    """

    running: Slots
    number: int = 0
    rows: tuple[tuple[int, Slots], ...] = ()
    season: Season = Season(0)
    peaks: Peaks = ()
    last_at: int = 0
    seen_s: int = 0


class Folded(NamedTuple):
    """The past of one container."""

    cpu: Past
    memory: Past


class Forecast(Recommender[Folded]):
    """Recommends the upper end of what is to be expected, plus a margin."""

    name: ClassVar[str] = "forecast"
    Parameters: ClassVar[type[Any]] = ForecastParameters
    params: ForecastParameters

    def __init__(self, params: ForecastParameters) -> None:
        super().__init__(params)
        season_s = int(params.season.total_seconds())
        self._slots = season_s // SLOT_S
        self._window_s = max(int(params.window.total_seconds()), RECENT_S)
        self._horizon_s = int(params.horizon.total_seconds())
        self._min_s = int(params.min_history.total_seconds())
        self._as_in = f"as in the {span(self._horizon_s)} from this time on of"
        self._covers = f"upper end for {params.coverage:.4g} of the errors of past forecasts; the lower one is"
        self._every = "day" if season_s == 86400 else format_duration(params.season)

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({Signal.MEMORY_LIMIT}) if self.params.oom.hold else frozenset()

    @property
    def fold_key(self) -> Hashable:
        params = self.params
        return (self.name, params.season, params.seasons, params.coverage, params.window)

    def start(self) -> Folded:
        nothing = np.full(self._slots, np.nan, np.float32)
        return Folded(Past(nothing), Past(nothing))

    def fold(self, state: Folded, samples: Samples, block_s: int) -> Folded:
        cpu, memory = known(samples.cpu, Resource.CPU), known(samples.memory, Resource.MEMORY)
        return Folded(
            self._folded(state.cpu, samples.end_at[cpu], samples.cpu[cpu], block_s),
            self._folded(state.memory, samples.end_at[memory], samples.memory[memory], block_s),
        )

    def _folded(self, past: Past, at: NDArray[np.int64], usage: Slots, each_s: int) -> Past:
        if not len(at):
            return past
        last_at = int(at[-1])
        peaks = pushed(past.peaks, zip(at.tolist(), usage.tolist(), strict=True), last_at - self._window_s)
        seen_s = past.seen_s + len(at) * each_s
        newest = (last_at - 1) // SLOT_S
        if len(at) == 1 and newest // self._slots == past.number:  # live, and worth being fast
            running, value = past.running, usage.item()
            if not running.item(newest % self._slots) >= value:  # NaN compares false
                running = running.copy()
                running[newest % self._slots] = value
            return Past(running, past.number, past.rows, past.season, peaks, last_at, seen_s)
        past = past._replace(peaks=peaks, last_at=last_at, seen_s=seen_s)
        slot = (at - 1) // SLOT_S  # a sample that ends with a slot is of it
        number, phase = slot // self._slots, slot % self._slots
        rows, running, current = [*past.rows], past.running.copy(), past.number
        for start, end in _runs(number):
            if (one := int(number[start])) != current:
                if current:
                    rows.append((current, running))
                running, current = np.full(self._slots, np.nan, np.float32), one
            np.fmax.at(running, phase[start:end], usage[start:end])
        if current == past.number:
            return past._replace(running=running)
        kept = tuple(row for row in rows if row[0] >= current - self.params.seasons)
        season = learned([row for _, row in kept], self.params.coverage)
        return past._replace(running=running, number=current, rows=kept, season=season)

    def recommend(self, state: Folded, situation: Situation) -> Target | Abstain:
        if len(situation.open):
            state = self.fold(state, situation.open, situation.sample_s)
        cpu, cpu_trail = self._sized(Resource.CPU, state.cpu, self.params.cpu.margin)
        memory, memory_trail = self._sized(Resource.MEMORY, state.memory, self.params.memory.margin)
        if cpu is None and memory is None:
            return Abstain(self._shortage(max(state.cpu.seen_s, state.memory.seen_s)), insufficient_history=True)
        memory, held = held_up(situation, self.params.oom, memory)
        return Target(cpu, memory, cpu_trail + memory_trail + held)

    def _shortage(self, seen_s: int) -> str:
        return f"{seen_s // 60} of {self._min_s // 60} minutes"

    def _sized(self, resource: Resource, past: Past, margin: float) -> tuple[float | None, tuple[Step, ...]]:
        if past.seen_s < self._min_s or not past.seen_s:
            return None, (Step(resource, "usage", None, None, self._shortage(past.seen_s)),)
        season = past.season
        forecasts = season.seasons >= LEAST_SEASONS and season.strength >= self.params.min_strength
        usage, trail = self._ahead(resource, past) if forecasts else self._plain(resource, past)
        before, wanted = amount(resource, usage), usage * (1 + margin)
        after, floor = amount(resource, wanted), _FLOOR[resource]
        trail = (*trail, Step(resource, "margin", before, after, f"margin {100 * margin:g}%"))
        if after >= floor:
            return wanted, trail
        return floor / SCALE[resource], (*trail, Step(resource, "floor", after, floor, "the least target", cap=True))

    def _ahead(self, resource: Resource, past: Past) -> tuple[float, tuple[Step, ...]]:
        """The upper end for the time from the newest sample to the horizon, and no less than was used just now."""
        season, every = past.season, self._every
        ahead = range(past.last_at // SLOT_S, (past.last_at + self._horizon_s) // SLOT_S + 1)
        slot = max((number % self._slots for number in ahead), key=season.upper.item)
        point, lower, upper = season.point.item(slot), season.lower.item(slot), season.upper.item(slot)
        expected, end = amount(resource, point), amount(resource, upper)
        told = f"the time of {every} tells {season.strength:.0%}"
        seen = f"{self._as_in} {season.seasons} earlier {every}s; {told}"
        least = resource.quantity(amount(resource, lower))
        covers = f"{self._covers} {least}"
        trail = (
            Step(resource, "forecast", None, expected, seen),
            Step(resource, "interval", expected, end, covers),
        )
        recent = within(past.peaks, past.last_at - RECENT_S) or 0.0
        if recent <= upper:
            return upper, trail
        more = f"used in the last {span(RECENT_S)}, which is more than forecast"
        return recent, (*trail, Step(resource, "recent", end, amount(resource, recent), more, cap=True))

    def _plain(self, resource: Resource, past: Past) -> tuple[float, tuple[Step, ...]]:
        """The peak of the window."""
        season, every = past.season, self._every
        if season.seasons < LEAST_SEASONS:
            why = f"{season.seasons} of {LEAST_SEASONS} whole {every}s known for a season"
        else:
            why = f"no season: the time of {every} tells {max(season.strength, 0):.0%}"
        usage = past.peaks[0][1]
        because = f"max of {span(min(self._window_s, past.seen_s))}; {why}"
        return usage, (Step(resource, "usage", None, amount(resource, usage), because),)


def _runs(number: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Where equal neighbours begin and end."""
    if number[0] == number[-1]:
        return [(0, len(number))]
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
    return list(pairwise(edges))
