"""A percentile of decayed usage plus a margin, for CPU and memory each.

The method is that of the Kubernetes Vertical Pod Autoscaler and of Google's Autopilot (Rzadca et al., EuroSys 2020): a
histogram whose weights halve with every half-life, read at a percentile, with a margin on top. Differences: buckets
of 2 % (VPA: 5 %), a sample weighs as much as the time it stands for, and the whole past is folded once, so that a
decision costs the same after two hours as after two weeks.

`max` is exact where a decaying weight would not be: it is the highest bucket in which a sample fell during the last
seven half-lives, however many samples fell there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Abstain, Recommender, Samples, Situation, Step, Target
from autoscaler.recommenders import parameters
from autoscaler.recommenders.parameters import Duration, Parameters, Ratio, format_duration

Weights = NDArray[np.float32]

_RATIO = 1.02  # an answer exceeds the sample it rests on by at most this
_REMEMBERED = 7  # half-lives, after which less than 1 % of a weight is left; 14 days at 48 h
_FADED = np.float32(1e-3)  # seconds of weight that no longer matter; also keeps float32 from becoming subnormal
_TIE = 1 - 1e-6  # weights are float32: a sum that misses its threshold by rounding has reached it
_ROWS = 1024  # of a batch at a time, to stay in the processor's cache


def _edges(first: float, last: float) -> NDArray[np.float64]:
    """Upper edges of the buckets, from `first` until one is at least `last`."""
    count = int(np.ceil(np.log(last / first) / np.log(_RATIO))) + 1
    return np.asarray(first * _RATIO ** np.arange(count), np.float64)


_EDGES = {Resource.CPU: _edges(0.001, 1000), Resource.MEMORY: _edges(2.0**20, 2.0**42)}  # cores; bytes
_BASE = {Resource.CPU: 1000, Resource.MEMORY: 1}  # from a target's unit to the base unit of steps


def _half_life(value: timedelta) -> timedelta:
    if not timedelta(seconds=1) <= value <= timedelta(days=365):
        raise ValueError(f"{format_duration(value)} is out of range; write 1s to 365d")
    return value


HalfLife = Annotated[Duration, AfterValidator(_half_life)]


class CpuParameters(Parameters):
    """How CPU usage becomes a CPU target."""

    target: parameters.Percentile = Field(
        parameters.Percentile("p95"), description="The percentile of usage that is wanted."
    )
    margin: Ratio = Field(0.15, description="What is added on top.")
    half_life: HalfLife = Field(timedelta(hours=24), description="Age at which a sample counts half.")


class MemoryParameters(Parameters):
    """How the working set becomes a memory target."""

    target: parameters.Percentile = Field(
        parameters.Percentile("max"), description="The percentile of usage that is wanted."
    )
    margin: Ratio = Field(0.15, description="What is added on top.")
    half_life: HalfLife = Field(timedelta(hours=48), description="Age at which a sample counts half.")


class PercentileParameters(Parameters):
    """Parameters of the recommender `percentile`."""

    cpu: CpuParameters = Field(CpuParameters(), description="How CPU usage becomes a CPU target.")
    memory: MemoryParameters = Field(MemoryParameters(), description="How the working set becomes a memory target.")
    min_history: Duration = Field(timedelta(minutes=30), description="Samples that must be there, in time.")

    def needs(self) -> timedelta:
        return self.min_history

    def remembers(self) -> timedelta:
        return _REMEMBERED * max(self.cpu.half_life, self.memory.half_life)


class Folded(NamedTuple):
    """The past of one container. Weights are those at `until` (unix seconds), the end of the newest sample.

    For a percentile a bucket's weight is the seconds of samples in it, each halved with every half-life since; for
    `max` it is 1 when a sample falls into it, and halves likewise. `*_s`: seconds that all samples stand for.
    """

    cpu: Weights
    memory: Weights
    until: int
    cpu_s: int
    memory_s: int


class _Histogram:
    """One resource: its buckets, how they fade, and what they say."""

    def __init__(self, resource: Resource, params: CpuParameters | MemoryParameters, min_history: timedelta) -> None:
        self.edges = _EDGES[resource]
        self._resource = resource
        self._params = params
        self._half_life_s = params.half_life.total_seconds()
        self._is_max = params.target.is_max
        self._faded = np.float32(0.5**_REMEMBERED) if self._is_max else _FADED
        self._min_s = int(min_history.total_seconds())
        self._cap_s = int(_REMEMBERED * self._half_life_s)
        amounts = self.edges * _BASE[resource]
        self._before: list[int] = np.ceil(amounts).astype(np.int64).tolist()
        self._targets: list[float] = (self.edges * (1 + params.margin)).tolist()
        after: list[int] = np.ceil(amounts * (1 + params.margin)).astype(np.int64).tolist()
        because = f"margin {100 * params.margin:g}%"
        self._margins = [
            Step(resource, "margin", *pair, because) for pair in zip(self._before, after, strict=True)
        ]  # shared by all answers that fall into the bucket

    def start(self) -> Weights:
        return np.zeros(len(self.edges), np.float32)

    def fading(self, age_s: NDArray[np.float64]) -> NDArray[np.float32]:
        return np.exp2(-age_s / self._half_life_s).astype(np.float32)

    def fold(self, weights: Weights, elapsed_s: int, ages_s: NDArray[np.int64], usage: Weights, each_s: int) -> Weights:
        """The weights `elapsed_s` later, with samples of `usage` that are `ages_s` old by then."""
        faded = weights * np.float32(2.0 ** (-elapsed_s / self._half_life_s))
        faded[faded < self._faded] = 0
        fresh = self.fading(ages_s.astype(np.float64))
        bucket = self._bucket(usage)
        if self._is_max:
            np.maximum.at(faded, bucket, fresh)
        else:
            np.add.at(faded, bucket, fresh * np.float32(each_s))
        return faded

    def _bucket(self, usage: Weights) -> NDArray[np.intp]:
        return np.minimum(np.searchsorted(self.edges, usage), len(self.edges) - 1)

    def answers(
        self, rows: Sequence[Weights], fade: Weights, seen_s: NDArray[np.int64], fresh: _Fresh
    ) -> list[tuple[float | None, tuple[Step, ...]]]:
        """Target and trail for each row of weights, faded and joined by the open samples."""
        bucket = np.full(len(rows), -1, np.intp)
        for start in range(0, len(rows), _ROWS):
            part = slice(start, start + _ROWS)
            bucket[part] = self._read(np.stack(rows[part]) * fade[part, None], fresh, start)
        keys = list(zip(bucket.tolist(), seen_s.tolist(), strict=True))
        known = {key: self._answer(*key) for key in set(keys)}  # containers of one age and size share their answer
        return [known[key] for key in keys]

    def _read(self, weights: Weights, fresh: _Fresh, start: int) -> NDArray[np.intp]:
        """The bucket that holds the percentile in each row; -1 where there is nothing."""
        low, high = np.searchsorted(fresh.row, (start, start + len(weights)))
        row, bucket = fresh.row[low:high] - start, self._bucket(fresh.usage[low:high])
        weight = self.fading(fresh.age_s[low:high].astype(np.float64))
        if self._is_max:
            np.maximum.at(weights, (row, bucket), weight)
            reached = weights >= self._faded
            last = weights.shape[1] - 1 - reached[:, ::-1].argmax(axis=1)
            return np.where(reached.any(axis=1), last, -1)
        np.add.at(weights, (row, bucket), weight * fresh.each_s[low:high])
        sums = weights.cumsum(axis=1, dtype=np.float64)
        total = sums[:, -1]
        first = (sums >= (total * (self._params.target.fraction * _TIE))[:, None]).argmax(axis=1)
        return np.where(total > 0, first, -1)

    def _answer(self, bucket: int, seen_s: int) -> tuple[float | None, tuple[Step, ...]]:
        if seen_s < self._min_s or bucket < 0:
            return None, (Step(self._resource, "usage", None, None, self.shortage(seen_s)),)
        because = f"{self._params.target.text} of {_span(min(seen_s, self._cap_s))} of samples"
        usage = Step(self._resource, "usage", None, self._before[bucket], because)
        return self._targets[bucket], (usage, self._margins[bucket])

    def shortage(self, seen_s: int) -> str:
        if seen_s >= self._min_s:
            return f"no sample in the last {format_duration(_REMEMBERED * self._params.half_life)}"
        if self._min_s % 60 == 0:
            return f"{seen_s // 60} of {self._min_s // 60} minutes"
        return f"{seen_s} of {self._min_s} seconds"


class _Fresh(NamedTuple):
    """Open samples of many containers, one after the other: whose, how long before the newest, and the usage."""

    row: NDArray[np.intp]
    age_s: NDArray[np.int64]
    each_s: NDArray[np.float32]
    usage: Weights

    def of(self, usage: Weights) -> _Fresh:
        """The same samples with another resource's usage, where it is known."""
        known = _known(usage)
        return _Fresh(self.row[known], self.age_s[known], self.each_s[known], usage[known])


def _known(usage: Weights) -> NDArray[np.bool_]:
    return np.isfinite(usage) & (usage >= 0)


def _span(seconds: int) -> str:
    for length, unit in ((86400, "d"), (3600, "h")):
        if seconds >= length:
            return f"{seconds / length:.1f}".removesuffix(".0") + unit
    return f"{seconds // 60}m" if seconds >= 60 else f"{seconds}s"


class Percentile(Recommender[Folded]):
    """Recommends the upper edge of the bucket that holds the percentile, times one plus the margin."""

    name: ClassVar[str] = "percentile"
    Parameters: ClassVar[type[Any]] = PercentileParameters
    params: PercentileParameters

    def __init__(self, params: PercentileParameters) -> None:
        super().__init__(params)
        self._cpu = _Histogram(Resource.CPU, params.cpu, params.min_history)
        self._memory = _Histogram(Resource.MEMORY, params.memory, params.min_history)

    @property
    def fold_key(self) -> Hashable:
        return (self.name, *((part.half_life, part.target.is_max) for part in (self.params.cpu, self.params.memory)))

    def start(self) -> Folded:
        return Folded(self._cpu.start(), self._memory.start(), 0, 0, 0)

    def fold(self, state: Folded, samples: Samples, block_s: int) -> Folded:
        until = int(samples.end_at[-1])
        elapsed_s, ages_s = until - state.until, until - samples.end_at
        cpu, memory = _known(samples.cpu), _known(samples.memory)
        return Folded(
            self._cpu.fold(state.cpu, elapsed_s, ages_s[cpu], samples.cpu[cpu], block_s),
            self._memory.fold(state.memory, elapsed_s, ages_s[memory], samples.memory[memory], block_s),
            until,
            state.cpu_s + block_s * int(cpu.sum()),
            state.memory_s + block_s * int(memory.sum()),
        )

    def recommend(self, state: Folded, situation: Situation) -> Target | Abstain:
        return self.recommend_many((state,), (situation,))[0]

    def recommend_many(self, states: Sequence[Folded], situations: Sequence[Situation]) -> list[Target | Abstain]:
        if not states:
            return []
        cpu_s, memory_s = _seconds(states, "cpu_s"), _seconds(states, "memory_s")
        fresh, idle_s, cpu, memory = _open(states, situations)
        parts = []
        for histogram, rows, usage, seen_s in (
            (self._cpu, [state.cpu for state in states], cpu, cpu_s),
            (self._memory, [state.memory for state in states], memory, memory_s),
        ):
            known = fresh.of(usage)
            seen_s = seen_s + np.bincount(known.row, known.each_s, len(states)).astype(np.int64)
            parts.append((histogram.answers(rows, histogram.fading(idle_s), seen_s, known), seen_s))
        (cpus, cpu_s), (memories, memory_s) = parts
        answers = (
            Target(cpu, memory, cpu_trail + memory_trail)
            for (cpu, cpu_trail), (memory, memory_trail) in zip(cpus, memories, strict=True)
        )
        return self._or_abstain(answers, np.maximum(cpu_s, memory_s).tolist())

    def _or_abstain(self, targets: Iterable[Target], seen_s: Iterable[int]) -> list[Target | Abstain]:
        return [
            Abstain(self._cpu.shortage(seen), insufficient_history=True)
            if target.cpu is None and target.memory is None
            else target
            for target, seen in zip(targets, seen_s, strict=True)
        ]


def _seconds(states: Sequence[Folded], name: str) -> NDArray[np.int64]:
    return np.fromiter((getattr(state, name) for state in states), np.int64, len(states))


def _open(
    states: Sequence[Folded], situations: Sequence[Situation]
) -> tuple[_Fresh, NDArray[np.float64], Weights, Weights]:
    """The open samples, the seconds from each state to its newest sample, and the samples' CPU and memory."""
    opened = [situation.open for situation in situations]
    counts = np.fromiter(map(len, opened), np.intp, len(opened))
    end_at = np.concatenate([samples.end_at for samples in opened])
    row = np.repeat(np.arange(len(opened)), counts)
    until = np.fromiter((state.until for state in states), np.int64, len(states))
    newest = until.copy()
    newest[row] = end_at  # ascending in time, so the last one of a row stays
    each_s = np.fromiter((situation.sample_s for situation in situations), np.float32, len(situations))[row]
    usage = np.empty(0, np.float32)
    return (
        _Fresh(row, newest[row] - end_at, each_s, usage),
        (newest - until).astype(np.float64),
        np.concatenate([samples.cpu for samples in opened]),
        np.concatenate([samples.memory for samples in opened]),
    )
