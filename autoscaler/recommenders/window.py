"""Google Autopilot's moving window (Rzadca et al., EuroSys 2020, section 3.2), as far as it has been described.

Usage is aggregated over five minutes. What is said of each five minutes is a statistic of all of them so far: a mean or
a load-adjusted percentile, in which a bucket counts by its weight times its usage and weights halve with age; the peak
of a window; or the greater of the 60th percentile and half of the peak ("intermediate" tolerance of OOM kills). The
target is the greatest that was said in the last hour, plus a margin.

Autopilot samples once a second and keeps histograms of that; here the samples are those of the policy's grid. What
follows an OOM kill is not described; here memory is held up for an hour.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Abstain, Recommender, Samples, Signal, Situation, Step, Target
from autoscaler.core.units import Millicores
from autoscaler.recommenders.buckets import Fading, Weights
from autoscaler.recommenders.kills import KillParameters, held_up
from autoscaler.recommenders.parameters import (
    CpuAmount,
    Duration,
    MemoryAmount,
    Parameters,
    Percentile,
    Ratio,
    bounded,
    format_duration,
)
from autoscaler.recommenders.peaks import Peaks, pushed, within
from autoscaler.recommenders.usage import LEAST_MEMORY, SCALE, amount, known

AGGREGATE_S = 300
HOLD_S = 3600
_EDGES = {Resource.CPU: np.geomspace(1e-3, 256.0, 400), Resource.MEMORY: np.geomspace(1e6, 1e12, 400)}

HalfLife = Annotated[Duration, bounded(timedelta(minutes=10), timedelta(days=90))]
PeakWindow = Annotated[Duration, bounded(timedelta(minutes=5), timedelta(days=30))]
Statistic = Percentile | Literal["mean", "intermediate"]


class CpuParameters(Parameters):
    """How CPU usage becomes a CPU target."""

    statistic: Statistic = Field(
        Percentile("p95"),
        description="`mean` (Autopilot: of batch jobs), a load-adjusted percentile (of services), `max` of `window`, "
        "or `intermediate`: the greater of p60 and half of the maximum.",
    )
    half_life: HalfLife = Field(timedelta(hours=12), description="Age at which a sample counts half.")
    window: PeakWindow = Field(timedelta(hours=24), description="How far back the maximum is looked for.")
    margin: Ratio = Field(0.15, description="What is added on top.")
    floor: CpuAmount = Field(Millicores(10), description="The least target.")


class MemoryParameters(Parameters):
    """How the working set becomes a memory target."""

    statistic: Statistic = Field(
        Percentile("max"),
        description="As of CPU. Autopilot: `p98` for jobs that tolerate OOM kills, `intermediate`, `max` for others.",
    )
    half_life: HalfLife = Field(timedelta(hours=48), description="Age at which a sample counts half.")
    window: PeakWindow = Field(timedelta(hours=24), description="How far back the maximum is looked for.")
    margin: Ratio = Field(0.15, description="What is added on top.")
    floor: MemoryAmount = Field(LEAST_MEMORY, description="The least target.")


class WindowParameters(Parameters):
    """Parameters of the recommender `window`."""

    cpu: CpuParameters = Field(CpuParameters(), description="How CPU usage becomes a CPU target.")
    memory: MemoryParameters = Field(MemoryParameters(), description="How the working set becomes a memory target.")
    oom: KillParameters = Field(KillParameters(), description="What follows from an OOM kill.")

    def needs(self) -> timedelta:
        return timedelta(seconds=AGGREGATE_S)

    def remembers(self) -> timedelta:
        return max(self.cpu.window, self.memory.window, 7 * self.cpu.half_life)


class Past(NamedTuple):
    """One resource of one container. Instants are unix seconds.

    `weights`: by bucket, relative to `reference`; empty where no percentile is wanted. `peaks`: of five minutes each.
    `said`: the statistic of each of the last hour. `open_at`, `open`: the five minutes that are running, by their end,
    and the samples in them.
    """

    weights: Weights
    reference: float = 0.0
    peaks: Peaks = ()
    said: Peaks = ()
    open_at: int = 0
    open: tuple[float, ...] = ()
    last_at: int = 0
    minutes: int = 0


class Folded(NamedTuple):
    """The past of one container."""

    cpu: Past
    memory: Past


class _Statistic:
    """One resource: how its past is folded, and what is said of it."""

    def __init__(self, resource: Resource, params: CpuParameters | MemoryParameters) -> None:
        self.resource = resource
        self.params = params
        self._edges = _EDGES[resource]
        self._inner = self._edges[:-1]  # what is beyond the last edge counts as that
        self._of_memory = resource is Resource.MEMORY
        self._fading = Fading(params.half_life.total_seconds())
        self._window_s = int(params.window.total_seconds())
        self._share, self._is_mean = _share(params.statistic), params.statistic == "mean"
        self._peak = {"max": 1.0, "intermediate": 0.5}.get(str(params.statistic), 0.0)
        self._weighs = self._share is not None or self._is_mean

    def start(self) -> Past:
        return Past(np.zeros(len(self._edges)) if self._weighs else np.empty(0))

    def fold(self, past: Past, at: NDArray[np.int64], usage: NDArray[np.float32], each_s: int) -> Past:
        """With further samples of known usage, each of which stands for so many seconds."""
        if not len(at):
            return past
        end_at = -(-at // AGGREGATE_S) * AGGREGATE_S
        if past.open:
            end_at = np.concatenate((np.full(len(past.open), past.open_at), end_at))
            usage = np.concatenate((np.asarray(past.open, np.float32), usage))
        last_at = int(at[-1])
        running = int(end_at[-1])
        closed = len(end_at) if last_at == running else int(end_at.searchsorted(running))
        past = past._replace(
            open_at=running,
            open=tuple(usage[closed:].tolist()),
            last_at=last_at,
            minutes=past.minutes + len(at) * each_s // 60,
        )
        return self._closed(past, end_at[:closed], usage[:closed], each_s) if closed else past

    def _closed(self, past: Past, end_at: NDArray[np.int64], usage: NDArray[np.float32], each_s: int) -> Past:
        newest = int(end_at[-1])
        weights, reference, peaks = past.weights, past.reference, past.peaks
        if self._weighs:
            reference = self._fading.reference(newest)
            weights = self._fading.moved(weights, past.reference, reference).copy()
        # what was said before the last hour no longer matters, so that it need not be found out
        silent = int(end_at.searchsorted(newest - HOLD_S, side="right"))
        if silent:
            peaks = self._add(weights, peaks, end_at[:silent], usage[:silent], reference, each_s)
        said, begin = [], silent
        while begin < len(end_at):
            closed_at = int(end_at[begin])
            end = len(end_at) if closed_at == newest else int(end_at.searchsorted(closed_at, side="right"))
            peaks = self._add(weights, peaks, end_at[begin:end], usage[begin:end], reference, each_s)
            said.append((closed_at, self._say(weights, peaks)))
            begin = end
        return past._replace(
            weights=weights, reference=reference, peaks=peaks, said=pushed(past.said, said, newest - HOLD_S)
        )

    def _add(
        self,
        weights: Weights,
        peaks: Peaks,
        end_at: NDArray[np.int64],
        usage: NDArray[np.float32],
        reference: float,
        each_s: int,
    ) -> Peaks:
        """Add samples of whole five minutes to weights that nobody else has yet, and to the peaks."""
        ends, peak = end_at, usage
        if len(end_at) > 1:
            first = np.flatnonzero(np.diff(end_at, prepend=-1))
            ends, peak = end_at[first], np.maximum.reduceat(usage, first)
        if self._weighs:
            at, values, each = (ends, peak, 1.0) if self._of_memory else (end_at, usage, each_s / 60)
            np.add.at(weights, self._inner.searchsorted(values), self._fading.weight(at, reference) * each)
        if not self._peak:
            return peaks
        return pushed(peaks, zip(ends.tolist(), peak.tolist(), strict=True), int(ends[-1]) - self._window_s)

    def _say(self, weights: Weights, peaks: Peaks) -> float:
        said = peaks[0][1] * self._peak if peaks else 0.0
        if self._is_mean:
            return float((weights * self._edges).sum() / weights.sum())
        if self._share is not None:
            sums = (weights * self._edges).cumsum()
            said = max(said, float(self._edges[sums.searchsorted(sums[-1] * self._share * (1 - 1e-12))]))
        return said

    def words(self) -> str:
        """What is wanted, in a few words."""
        statistic = str(self.params.statistic)
        if statistic == "max":
            return f"max of {format_duration(self.params.window)}"
        half_life = f"half-life {format_duration(self.params.half_life)}"
        if statistic == "intermediate":
            return f"greater of p60 and half of the max of {format_duration(self.params.window)}, {half_life}"
        return f"mean, {half_life}" if self._is_mean else f"load-adjusted {statistic}, {half_life}"


def _share(statistic: Percentile | str) -> float | None:
    if isinstance(statistic, Percentile):
        return None if statistic.is_max else statistic.fraction
    return 0.6 if statistic == "intermediate" else None


class Window(Recommender[Folded]):
    """Recommends the greatest statistic of the last hour, plus a margin."""

    name: ClassVar[str] = "window"
    Parameters: ClassVar[type[Any]] = WindowParameters
    params: WindowParameters

    def __init__(self, params: WindowParameters) -> None:
        super().__init__(params)
        self._cpu = _Statistic(Resource.CPU, params.cpu)
        self._memory = _Statistic(Resource.MEMORY, params.memory)
        self._cpu_words, self._memory_words = self._cpu.words(), self._memory.words()

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({Signal.MEMORY_LIMIT}) if self.params.oom.hold else frozenset()

    @property
    def fold_key(self) -> Hashable:
        parts = (self.params.cpu, self.params.memory)
        return (self.name, *((str(part.statistic), part.half_life, part.window) for part in parts))

    def start(self) -> Folded:
        return Folded(self._cpu.start(), self._memory.start())

    def fold(self, state: Folded, samples: Samples, block_s: int) -> Folded:
        cpu, memory = known(samples.cpu, Resource.CPU), known(samples.memory, Resource.MEMORY)
        return Folded(
            self._cpu.fold(state.cpu, samples.end_at[cpu], samples.cpu[cpu], block_s),
            self._memory.fold(state.memory, samples.end_at[memory], samples.memory[memory], block_s),
        )

    def recommend(self, state: Folded, situation: Situation) -> Target | Abstain:
        if len(situation.open):
            state = self.fold(state, situation.open, situation.sample_s)
        cpu, cpu_trail = self._sized(self._cpu, state.cpu, self._cpu_words)
        memory, memory_trail = self._sized(self._memory, state.memory, self._memory_words)
        if cpu is None and memory is None:
            return Abstain("no five minutes of samples yet", insufficient_history=True)
        memory, held = held_up(situation, self.params.oom, memory)
        return Target(cpu, memory, cpu_trail + memory_trail + held)

    def _sized(self, statistic: _Statistic, past: Past, words: str) -> tuple[float | None, tuple[Step, ...]]:
        said = within(past.said, past.last_at - HOLD_S - AGGREGATE_S)
        resource, margin = statistic.resource, statistic.params.margin
        if said is None:
            return None, (Step(resource, "usage", None, None, "no five minutes of samples yet"),)
        before, value = amount(resource, said), said * (1 + margin)
        after, floor = amount(resource, value), statistic.params.floor
        trail = (
            Step(resource, "usage", None, before, f"{words}; greatest of an hour"),
            Step(resource, "margin", before, after, f"margin {100 * margin:g}%"),
        )
        if after >= floor:
            return value, trail
        floored = Step(resource, "floor", after, floor, "the least target", cap=True)
        return floor / SCALE[resource], (*trail, floored)
