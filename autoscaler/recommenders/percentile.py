"""A percentile of decayed usage plus a margin, for CPU and memory each.

The method is that of the Kubernetes Vertical Pod Autoscaler and of Google's Autopilot (Rzadca et al., EuroSys 2020): a
histogram whose weights halve with every half-life, read at a percentile, with a margin on top. Differences: buckets
of 2 % (VPA: 5 %), a sample weighs as much as the time it stands for, and the whole past is folded once, so that a
decision costs the same after two hours as after two weeks.

With a `window` all samples of that long count alike and older ones not at all (see hard_window.py). Together with the
dead band and what follows an OOM kill, that makes policies like KRR's or "the peak of six hours plus 15 %" out of it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from autoscaler.core.bounds import SAMPLE_PRECISION
from autoscaler.core.model import Resource
from autoscaler.core.recommender import Abstain, Recommender, Samples, Signal, Situation, Step, Target
from autoscaler.recommenders import parameters
from autoscaler.recommenders.faded import REMEMBERED, Faded, Fresh, Weights
from autoscaler.recommenders.hard_window import HardWindow, Kept
from autoscaler.recommenders.kills import KillParameters, held_up
from autoscaler.recommenders.parameters import (
    CpuAmount,
    Duration,
    MemoryAmount,
    Parameters,
    Ratio,
    bounded,
    format_duration,
)
from autoscaler.recommenders.usage import LEAST_CPU, LEAST_MEMORY, SCALE, amount, known, span

HalfLife = Annotated[Duration, bounded(timedelta(seconds=1), timedelta(days=365))]
HardWindowLength = Annotated[Duration, bounded(timedelta(minutes=5), timedelta(days=30))]

_WINDOW = "A window instead of the half-life: in it all samples count alike, before it none."


class CpuParameters(Parameters):
    """How CPU usage becomes a CPU target."""

    target: parameters.Percentile = Field(
        parameters.Percentile("p95"), description="The percentile of usage that is wanted."
    )
    margin: Ratio = Field(0.15, description="What is added on top.")
    half_life: HalfLife = Field(timedelta(hours=24), description="Age at which a sample counts half.")
    window: HardWindowLength | None = Field(None, description=_WINDOW)
    every: Annotated[Duration, bounded(timedelta(0), timedelta(days=1))] = Field(
        timedelta(0), description="How often the percentile of a window is reckoned anew; 0s: with each sample."
    )
    floor: CpuAmount = Field(LEAST_CPU, description="The least target.")

    _one_of_two = model_validator(mode="after")(lambda params: _either(params))


class MemoryParameters(Parameters):
    """How the working set becomes a memory target."""

    target: parameters.Percentile = Field(
        parameters.Percentile("max"), description="The percentile of usage that is wanted."
    )
    margin: Ratio = Field(0.15, description="What is added on top.")
    half_life: HalfLife = Field(timedelta(hours=48), description="Age at which a sample counts half.")
    window: HardWindowLength | None = Field(None, description=_WINDOW)
    floor: MemoryAmount = Field(LEAST_MEMORY, description="The least target.")

    _one_of_two = model_validator(mode="after")(lambda params: _either(params))


Sized = TypeVar("Sized", CpuParameters, MemoryParameters)


def _either(params: Sized) -> Sized:
    if params.window is not None and "half_life" in params.model_fields_set:
        raise ValueError("halfLife has no effect with a window; leave one of them out")
    return params


class DeadBand(Parameters):
    """Targets this close to the size in force leave it alone."""

    increase: Ratio = Field(0.0, description="A raise by this share of the size in force or less is left out.")
    decrease: Ratio = Field(0.0, description="A cut by this share of the size in force or less is left out.")


class PercentileParameters(Parameters):
    """Parameters of the recommender `percentile`."""

    cpu: CpuParameters = Field(CpuParameters(), description="How CPU usage becomes a CPU target.")
    memory: MemoryParameters = Field(MemoryParameters(), description="How the working set becomes a memory target.")
    min_history: Annotated[Duration, bounded(timedelta(0), timedelta(days=365))] = Field(
        timedelta(minutes=30), description="Samples that must be there, in time."
    )
    dead_band: DeadBand = Field(DeadBand(), description="What is too small a change.")
    oom: KillParameters = Field(KillParameters(hold=timedelta(0)), description="What follows from an OOM kill.")

    def needs(self) -> timedelta:
        return self.min_history

    def remembers(self) -> timedelta:
        return max(part.window or REMEMBERED * part.half_life for part in (self.cpu, self.memory))


class Folded(NamedTuple):
    """The past of one container, until the end of the newest sample (unix seconds). `*_s`: seconds that all samples
    stand for."""

    cpu: Weights | Kept
    memory: Weights | Kept
    until: int
    cpu_s: int
    memory_s: int


def _every_s(params: CpuParameters | MemoryParameters) -> int:
    return int(params.every.total_seconds()) if isinstance(params, CpuParameters) else 0


class _Resource:
    """One resource: what is kept of its past, and what follows from it."""

    def __init__(self, resource: Resource, params: CpuParameters | MemoryParameters, min_history: timedelta) -> None:
        self.resource = resource
        self._params = params
        self._min_s = int(min_history.total_seconds())
        self._reach = params.window or REMEMBERED * params.half_life
        self.past: Any  # of Faded or of HardWindow, each with states of its own
        if params.window is None:
            self.past = Faded(resource, params.half_life.total_seconds(), params.target.fraction)
        else:
            self.past = HardWindow(int(params.window.total_seconds()), params.target.fraction, _every_s(params))

    @property
    def fold_key(self) -> Hashable:
        params = self._params
        return (params.window or params.half_life, params.window is None, params.target.is_max, _every_s(params))

    def answers(
        self, rows: Sequence[Any], seen_s: NDArray[np.int64], fresh: Fresh
    ) -> list[tuple[float | None, tuple[Step, ...]]]:
        """Target and trail for each row of the past, joined by its fresh samples."""
        usages = self.past.read(rows, fresh)
        above = [0] * len(rows) if self._params.window is None else self.past.above(rows, fresh, self._wanted(usages))
        keys = list(zip(usages, seen_s.tolist(), above, strict=True))
        found = {key: self._answer(*key) for key in set(keys)}  # containers of one age and size share their answer
        return [found[key] for key in keys]

    def _wanted(self, usages: Sequence[float | None]) -> list[float | None]:
        floor = self._params.floor / SCALE[self.resource]
        return [None if usage is None else max(usage * (1 + self._params.margin), floor) for usage in usages]

    def _answer(self, usage: float | None, seen_s: int, above: int) -> tuple[float | None, tuple[Step, ...]]:
        if seen_s < self._min_s or usage is None:
            return None, (Step(self.resource, "usage", None, None, self.shortage(seen_s)),)
        before, wanted = amount(self.resource, usage), usage * (1 + self._params.margin)
        after, floor = amount(self.resource, wanted), self._params.floor
        because = f"{self._params.target.text} of {span(min(seen_s, self._reach.total_seconds()))} of samples"
        exceeded = f"; samples above the limit: {above}" if above else ""
        margin = f"margin {100 * self._params.margin:g}%{exceeded}"
        trail = (
            Step(self.resource, "usage", None, before, because),
            Step(self.resource, "margin", before, after, margin),
        )
        if after >= floor:
            return wanted, trail
        return floor / SCALE[self.resource], (
            *trail,
            Step(self.resource, "floor", after, floor, "the least target", cap=True),
        )

    def shortage(self, seen_s: int) -> str:
        if seen_s >= self._min_s:
            return f"no sample in the last {format_duration(self._reach)}"
        if self._min_s % 60 == 0:
            return f"{seen_s // 60} of {self._min_s // 60} minutes"
        return f"{seen_s} of {self._min_s} seconds"


class Percentile(Recommender[Folded]):
    """Recommends the percentile of usage, times one plus the margin. Out of a histogram it is a bucket's upper edge."""

    name: ClassVar[str] = "percentile"
    Parameters: ClassVar[type[Any]] = PercentileParameters
    params: PercentileParameters

    def __init__(self, params: PercentileParameters) -> None:
        super().__init__(params)
        self._cpu = _Resource(Resource.CPU, params.cpu, params.min_history)
        self._memory = _Resource(Resource.MEMORY, params.memory, params.min_history)
        self._settles = bool(params.oom.hold or params.dead_band.increase or params.dead_band.decrease)

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({Signal.MEMORY_LIMIT}) if self.params.oom.hold else frozenset()

    @property
    def fold_key(self) -> Hashable:
        return (self.name, self._cpu.fold_key, self._memory.fold_key)

    def start(self) -> Folded:
        return Folded(self._cpu.past.start(), self._memory.past.start(), 0, 0, 0)

    def fold(self, state: Folded, samples: Samples, block_s: int) -> Folded:
        until = int(samples.end_at[-1])
        cpu, memory = known(samples.cpu, Resource.CPU), known(samples.memory, Resource.MEMORY)
        return Folded(
            self._cpu.past.fold(state.cpu, state.until, samples.end_at[cpu], samples.cpu[cpu], block_s, until),
            self._memory.past.fold(
                state.memory, state.until, samples.end_at[memory], samples.memory[memory], block_s, until
            ),
            until,
            state.cpu_s + block_s * int(cpu.sum()),
            state.memory_s + block_s * int(memory.sum()),
        )

    def recommend(self, state: Folded, situation: Situation) -> Target | Abstain:
        return self.recommend_many((state,), (situation,))[0]

    def recommend_many(self, states: Sequence[Folded], situations: Sequence[Situation]) -> list[Target | Abstain]:
        if not states:
            return []
        fresh, cpu, memory = _open(states, situations)
        parts = []
        for resource, rows, usage, seen in (
            (self._cpu, [state.cpu for state in states], cpu, [state.cpu_s for state in states]),
            (self._memory, [state.memory for state in states], memory, [state.memory_s for state in states]),
        ):
            opened = fresh.of(usage, known(usage, resource.resource))
            seen_s = np.asarray(seen, np.int64)
            seen_s += np.bincount(opened.row, opened.each_s, len(states)).astype(np.int64)
            parts.append((resource.answers(rows, seen_s, opened), seen_s))
        (cpus, cpu_s), (memories, memory_s) = parts
        return [
            Abstain(self._cpu.shortage(seen), insufficient_history=True)
            if cores is None and size is None
            else self._settled(Target(cores, size, cpu_trail + memory_trail), situation)
            for (cores, cpu_trail), (size, memory_trail), seen, situation in zip(
                cpus, memories, np.maximum(cpu_s, memory_s).tolist(), situations, strict=True
            )
        ]

    def _settled(self, target: Target, situation: Situation) -> Target:
        """With what follows from an OOM kill, and the size in force where the target is close to it."""
        if not self._settles:
            return target
        cpu, memory, trail = target.cpu, target.memory, target.trail
        memory, held = held_up(situation, self.params.oom, memory)
        cpu, cpu_step = self._left(Resource.CPU, cpu, situation)
        memory, memory_step = self._left(Resource.MEMORY, memory, situation)
        return Target(cpu, memory, (*trail, *cpu_step, *held, *memory_step))

    def _left(
        self, resource: Resource, wanted: float | None, situation: Situation
    ) -> tuple[float | None, tuple[Step, ...]]:
        in_force = situation.in_force.requests.get(resource)
        if wanted is None or not in_force:
            return wanted, ()
        change = wanted * SCALE[resource] / in_force - 1
        band = self.params.dead_band
        if not -band.decrease - SAMPLE_PRECISION <= change <= band.increase + SAMPLE_PRECISION:
            return wanted, ()
        because = f"{change:+.1%} is within +{band.increase:.0%} and -{band.decrease:.0%}"
        step = Step(resource, "deadBand", amount(resource, wanted), math.ceil(in_force), because, cap=True)
        return in_force / SCALE[resource], (step,)


def _open(states: Sequence[Folded], situations: Sequence[Situation]) -> tuple[Fresh, Weights, Weights]:
    """The open samples of all, and their CPU and memory."""
    opened = [situation.open for situation in situations]
    counts = np.fromiter(map(len, opened), np.intp, len(opened))
    end_at = np.concatenate([samples.end_at for samples in opened])
    row = np.repeat(np.arange(len(opened)), counts)
    until = np.fromiter((state.until for state in states), np.int64, len(states))
    newest = until.copy()
    newest[row] = end_at  # ascending in time, so the last one of a row stays
    each_s = np.fromiter((situation.sample_s for situation in situations), np.float32, len(situations))[row]
    cpu = np.concatenate([samples.cpu for samples in opened])
    memory = np.concatenate([samples.memory for samples in opened])
    return Fresh(row, end_at, each_s, cpu, until, newest), cpu, memory
