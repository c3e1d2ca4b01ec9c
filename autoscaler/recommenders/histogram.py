"""The recommender of the Kubernetes Vertical Pod Autoscaler (VPA 1.7), so that people can move over and compare.

Source: pkg/recommender (model, logic, util) and pkg/updater/priority of kubernetes/autoscaler. CPU is a histogram of
176 buckets, 5 % apart, in which a sample of a minute weighs 0.1 and half as much after a day; memory is one peak for
each 24 hours, faded likewise. The target is the end of the bucket that holds the percentile, cut to whole millicores
or bytes, plus a margin, cut again, and at least the floor. Around it lie bounds that come closer the longer the history
is, and the size in force is left alone until VPA's updater would change it.

What is not as in VPA: an OOM kill is reckoned from the limit at the time, not from the request, and found where usage
has reached its limit as well as in the container's last end, so that a controller that restarts still knows of it;
history is that of one pod by name, not of all pods of a workload.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from datetime import timedelta
from itertools import chain
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Abstain, Recommender, Samples, Signal, Situation, Step, Target
from autoscaler.core.units import Bytes, Millicores
from autoscaler.recommenders.buckets import Buckets, Fading, Weights
from autoscaler.recommenders.kills import Limits, killed_with, limit_at, limits_after, raised
from autoscaler.recommenders.parameters import (
    CpuAmount,
    Duration,
    MemoryAmount,
    Parameters,
    Percentile,
    Ratio,
    bounded,
)
from autoscaler.recommenders.updater import UpdateParameters, Updates, settled
from autoscaler.recommenders.usage import SCALE, known, span

BUCKETS = {
    Resource.CPU: Buckets.exponential(0.01, 1000.0, 1.05),
    Resource.MEMORY: Buckets.exponential(1e7, 1e12, 1.05),
}
"""Cores; bytes. 176 buckets each."""

DAY_S = 86400
EXPIRY_S = 8 * DAY_S
"""After so long without a sample VPA forgets a container."""

_BUMP, _LEAST_BUMP = 0.2, 100 * 2.0**20  # at an OOM kill: 20 %, at least 100 MiB
_CPU_WEIGHT = 0.1  # of a minute
_KEPT = 30  # half-lives for which a day of memory is kept; less than 1e-9 of its weight is left then
_LOWER, _UPPER = 0.5, 0.95  # the percentiles of the bounds
_UNBOUNDED = 10**14  # VPA's upper bound as long as nothing is known
_ROWS = 1024  # of a batch at a time, to stay in the processor's cache

HalfLife = Annotated[Duration, bounded(timedelta(minutes=10), timedelta(days=90))]


class CpuParameters(Parameters):
    """How CPU usage becomes a CPU target."""

    target: Percentile = Field(Percentile("p90"), description="The percentile of faded usage that is wanted.")
    margin: Ratio = Field(0.15, description="What is added on top.")
    half_life: HalfLife = Field(timedelta(hours=24), description="Age at which a sample counts half.")
    floor: CpuAmount = Field(
        Millicores(25), description="The least target. VPA divides its 25m by the number of containers."
    )


class MemoryParameters(Parameters):
    """How the working set becomes a memory target."""

    target: Percentile = Field(Percentile("p90"), description="The percentile of faded daily peaks that is wanted.")
    margin: Ratio = Field(0.15, description="What is added on top.")
    half_life: HalfLife = Field(timedelta(hours=24), description="Age at which a peak counts half.")
    floor: MemoryAmount = Field(
        Bytes(250 << 20), description="The least target. VPA divides its 250Mi by the number of containers."
    )


class HistogramParameters(Parameters):
    """Parameters of the recommender `histogram`."""

    cpu: CpuParameters = Field(CpuParameters(), description="How CPU usage becomes a CPU target.")
    memory: MemoryParameters = Field(MemoryParameters(), description="How the working set becomes a memory target.")
    updates: UpdateParameters = Field(UpdateParameters(), description="When the size in force is changed.")

    def remembers(self) -> timedelta:
        return timedelta(seconds=EXPIRY_S)


class Day(NamedTuple):
    """24 hours of memory: when they end (unix seconds), the greatest sample, and the greatest that an OOM kill stands
    for (0: none)."""

    end_at: int
    peak: float
    kill: float = 0.0


class Folded(NamedTuple):
    """The past of one container. Instants are unix seconds.

    `cpu`: weights by bucket, relative to `reference`. `cpu_minutes`, `memory_minutes`: how long all samples are.
    `first_at`, `last_at`: the first and last of each resource. `killed_at`: the last two times at which memory had
    reached its limit.
    """

    cpu: Weights
    reference: float = 0.0
    cpu_first_at: int = 0
    cpu_last_at: int = 0
    cpu_minutes: float = 0.0
    memory_first_at: int = 0
    memory_last_at: int = 0
    memory_minutes: float = 0.0
    days: tuple[Day, ...] = ()
    limits: Limits = ()
    killed_at: tuple[int, int] = (0, 0)

    @property
    def last_at(self) -> int:
        return max(self.cpu_last_at, self.memory_last_at)

    @property
    def first_at(self) -> int:
        return min(filter(None, (self.cpu_first_at, self.memory_first_at)), default=0)

    @property
    def known_days(self) -> float:
        """How much is known, as VPA reckons it: by CPU, and by memory alone where there is no CPU."""
        if self.cpu_minutes:
            return confidence(self.cpu_last_at - self.cpu_first_at, self.cpu_minutes)
        return confidence(self.memory_last_at - self.memory_first_at, self.memory_minutes)


def bumped(used: float) -> float:
    """What an OOM kill stands for that happened at so many bytes."""
    return raised(used, _BUMP, _LEAST_BUMP)


def confidence(history_s: float, minutes: float) -> float:
    """How many days are known: the less of the age of the history and of the samples."""
    return min(history_s / DAY_S, minutes / (DAY_S / 60))


class Histogram(Recommender[Folded]):
    """Recommends what VPA would, when it would."""

    name: ClassVar[str] = "histogram"
    Parameters: ClassVar[type[Any]] = HistogramParameters
    params: HistogramParameters

    def __init__(self, params: HistogramParameters) -> None:
        super().__init__(params)
        self._cpu = Fading(params.cpu.half_life.total_seconds())
        self._memory = Fading(params.memory.half_life.total_seconds())
        self._kept_s = max(_KEPT * self._memory.half_life_s, EXPIRY_S)
        self._estimates = {resource: _Estimates(resource, params) for resource in Resource}

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({Signal.MEMORY_LIMIT})

    @property
    def fold_key(self) -> Hashable:
        return (self.name, self._cpu.half_life_s, self._memory.half_life_s)

    def start(self) -> Folded:
        return Folded(np.zeros(len(BUCKETS[Resource.CPU])))

    def fold(self, state: Folded, samples: Samples, block_s: int) -> Folded:
        if not len(samples):
            return state
        since = state.last_at or int(samples.end_at[0])
        if samples.end_at[-1] - since > EXPIRY_S:
            gaps = np.diff(samples.end_at, prepend=since)
            if (gaps > EXPIRY_S).any():
                samples = samples[int(np.flatnonzero(gaps > EXPIRY_S)[-1]) :]
                state = self.start()
        return self._with_memory(self._with_cpu(state, samples, block_s), samples, block_s)

    def _with_cpu(self, state: Folded, samples: Samples, block_s: int) -> Folded:
        usable = known(samples.cpu, Resource.CPU)
        at, usage = samples.end_at[usable], samples.cpu[usable]
        if not len(at):
            return state
        last_at = int(at[-1])
        reference = self._cpu.reference(last_at)
        weights = self._cpu.moved(state.cpu, state.reference, reference).copy()
        fresh = self._cpu.weight(at, reference) * (_CPU_WEIGHT * block_s / 60)
        np.add.at(weights, BUCKETS[Resource.CPU].find(usage), fresh)
        return state._replace(
            cpu=weights,
            reference=reference,
            cpu_first_at=state.cpu_first_at or int(at[0]),
            cpu_last_at=last_at,
            cpu_minutes=state.cpu_minutes + len(at) * block_s / 60,
        )

    def _with_memory(self, state: Folded, samples: Samples, block_s: int) -> Folded:
        usable = known(samples.memory, Resource.MEMORY)
        at, usage, limit = samples.end_at[usable], samples.memory[usable], samples.signal(Signal.MEMORY_LIMIT)[usable]
        if not len(at):
            return state
        first_at = state.memory_first_at or int(at[0])
        days, killed_at = state.days, state.killed_at
        for end_at, part in _days(at, first_at):
            begun = bool(days) and days[-1].end_at == end_at
            running = days[-1] if begun else Day(end_at, 0.0)
            day = running._replace(peak=max(running.peak, float(usage[part].max())))
            for index in np.flatnonzero(usage[part] >= limit[part]) + part.start:
                so_far = max(running.peak, float(usage[part.start : index + 1].max()))
                day = day._replace(kill=max(day.kill, bumped(max(float(limit[index]), so_far))))
                killed_at = (killed_at[1], int(at[index]))
            if day != running or not begun:
                days = (*(days[:-1] if begun else days), day)
        last_at = int(at[-1])
        if days[0].end_at <= last_at - self._kept_s:
            days = tuple(day for day in days if day.end_at > last_at - self._kept_s)
        return state._replace(
            memory_first_at=first_at,
            memory_last_at=last_at,
            memory_minutes=state.memory_minutes + len(at) * block_s / 60,
            days=days,
            limits=limits_after(state.limits, at, limit),
            killed_at=killed_at,
        )

    def recommend(self, state: Folded, situation: Situation) -> Target | Abstain:
        return self.recommend_many((state,), (situation,))[0]

    def recommend_many(self, states: Sequence[Folded], situations: Sequence[Situation]) -> list[Target | Abstain]:
        pairs = list(zip(states, situations, strict=True))
        # what is newer than the last complete block is folded for this answer alone
        states = [self.fold(state, one.open, one.sample_s) if len(one.open) else state for state, one in pairs]
        answers: list[Target | Abstain] = []
        for start in range(0, len(states), _ROWS):
            part = slice(start, start + _ROWS)
            answers += self._answers(states[part], situations[part])
        return answers

    def _answers(self, states: Sequence[Folded], situations: Sequence[Situation]) -> Iterator[Target | Abstain]:
        cpu, memory = self._estimates[Resource.CPU], self._estimates[Resource.MEMORY]
        cpus = cpu.read(np.stack([state.cpu for state in states]))
        days = [_with_kill(state, one) for state, one in zip(states, situations, strict=True)]
        memories = memory.read(self._weights(days))
        for state, situation, past, of_cpu, of_memory in zip(states, situations, days, cpus, memories, strict=True):
            if of_cpu[1] < 0 and of_memory[1] < 0:
                yield Abstain("no sample yet", insufficient_history=True)
                continue
            cores, cpu_trail = cpu.answer(of_cpu, state, situation, f"{span(60 * state.cpu_minutes)} of samples")
            size, memory_trail = memory.answer(of_memory, state, situation, _counted(past))
            yield Target(cores, size, cpu_trail + memory_trail)

    def _weights(self, days: Sequence[tuple[Day, ...]]) -> Weights:
        """Rows of weights by bucket, each relative to its newest day."""
        counts = np.fromiter(map(len, days), np.intp, len(days))
        row = np.repeat(np.arange(len(days)), counts)
        flat = np.fromiter(chain.from_iterable(chain.from_iterable(days)), np.float64, 3 * len(row)).reshape(-1, 3)
        newest = np.array([past[-1].end_at if past else 0 for past in days], np.float64)
        weights = np.zeros((len(days), len(BUCKETS[Resource.MEMORY])))
        bucket = BUCKETS[Resource.MEMORY].find(flat[:, 1:].max(axis=1)) if len(flat) else np.empty(0, np.intp)
        np.add.at(weights, (row, bucket), np.exp2((flat[:, 0] - newest[row]) / self._memory.half_life_s))
        return weights


def _days(at: NDArray[np.int64], first_at: int) -> Iterator[tuple[int, slice]]:
    """The samples of each 24 hours since the first, and when those end."""
    begin = 0
    while begin < len(at):
        end_at = first_at + ((int(at[begin]) - first_at) // DAY_S + 1) * DAY_S
        end = len(at) if at[-1] < end_at else int(at.searchsorted(end_at))
        yield end_at, slice(begin, end)
        begin = end


def _with_kill(state: Folded, situation: Situation) -> tuple[Day, ...]:
    """The days with the newest kill, which need not have shown in samples."""
    kill = situation.oom_kill
    if kill is None:
        return state.days
    at = int(kill.finished_at.timestamp())
    limit = limit_at(state.limits, at)
    around = None if limit else killed_with(situation)
    used = limit or (around[1] if around else 0.0)
    return tuple(
        day._replace(kill=max(day.kill, bumped(used))) if used and day.end_at - DAY_S <= at < day.end_at else day
        for day in state.days
    )


def _counted(days: Sequence[Day]) -> str:
    kills = sum(day.kill > 0 for day in days)
    return f"{len(days)} daily peaks" + (f", {kills} of them of an OOM kill" if kills else "")


class _Estimates:
    """One resource: from the buckets of percentiles to a target, its bounds, and the trail. Amounts in base units."""

    def __init__(self, resource: Resource, params: HistogramParameters) -> None:
        own = params.cpu if resource is Resource.CPU else params.memory
        self._resource = resource
        self._own = own
        self._updates = params.updates
        self._ends = [int(end * SCALE[resource]) for end in BUCKETS[resource].ends.tolist()]  # cut, as in VPA
        self._sums = [end + int(end * own.margin) for end in self._ends]
        self._rest = [self._after_usage(*pair) for pair in zip(self._ends, self._sums, strict=True)]

    def _after_usage(self, end: int, total: int) -> tuple[Step, ...]:
        """The steps after the percentile, shared by all answers of a bucket."""
        steps = [Step(self._resource, "margin", end, total, f"margin {100 * self._own.margin:g}%")]
        if total < self._own.floor:
            steps.append(Step(self._resource, "floor", total, self._own.floor, "the least target", cap=True))
        return tuple(steps)

    def read(self, weights: Weights) -> list[list[int]]:
        """The buckets of lower bound, target and upper bound, for each row; -1 without weight."""
        shares = (_LOWER, self._own.target.fraction, _UPPER)
        found: list[list[int]] = BUCKETS[self._resource].percentile(weights, shares).T.tolist()
        return found

    def bounds(self, lower: int, upper: int, days: float) -> tuple[int, int]:
        """What the size in force may be without a change being due, from the buckets of its percentiles: the closer
        the more days are known."""
        if days <= 0:
            return 0, _UNBOUNDED
        least = int(self._sums[lower] * (1 + 0.001 / days) ** -2)
        most = min(int(self._sums[upper] * (1 + 1 / days)), _UNBOUNDED)
        return max(least, self._own.floor), max(most, self._own.floor)

    def answer(
        self, buckets: Sequence[int], state: Folded, situation: Situation, of: str
    ) -> tuple[float | None, tuple[Step, ...]]:
        """The target in cores or bytes and its trail; None where nothing was measured."""
        lower, target, upper = buckets
        if target < 0:
            return None, (Step(self._resource, "usage", None, None, "no sample yet"),)
        trail = (
            Step(self._resource, "usage", None, self._ends[target], f"{self._own.target} of {of}"),
            *self._rest[target],
        )
        value = max(self._sums[target], self._own.floor)
        if self._updates.when is Updates.WHEN_DUE:
            bounds = self.bounds(lower, upper, state.known_days)
            value, step = settled(
                self._resource, value, bounds, situation, state.first_at, state.killed_at, self._updates
            )
            trail = (*trail, step)
        return value / SCALE[self._resource], trail
