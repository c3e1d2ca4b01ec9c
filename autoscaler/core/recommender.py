"""The plug-in API: a recommender turns a container's past into a target, and knows nothing of Kubernetes.

It gets numbers and returns numbers with a reason. It never sees a client, a clock, PromQL, limits or QoS classes, so
that everything it needs can be replayed. Plug-ins are found through the entry-point group
`bridge_autoscaler.recommenders`; docs/recommenders.md has an example.

How the past arrives: samples lie on a grid (`Grid`). Complete blocks of the grid reach `fold` once each, in order of
time. What is newer than the last complete block waits in `Situation.open`. When a controller starts, blocks older than
`Grid.fine` are fetched at block resolution; CPU keeps the value at the end of a block, memory the maximum in it, which
is what live blocks are reduced to as well, so that a restart ends in the same state. Signals do as their kind says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.model import Resource, Resources, Termination

State = TypeVar("State")

ENTRY_POINT_GROUP = "bridge_autoscaler.recommenders"
_MAX_FINE_SAMPLES = 4320  # 3 days at 60 s; more would cost 1 GiB for 10,000 containers
_COARSE_BLOCK_S = 300


@dataclass(frozen=True, slots=True)
class Grid:
    """Where samples lie: multiples of `step` since the epoch, `lookback` long. All in seconds.

    Short look-backs keep every sample; long ones are reduced to 5-minute blocks.
    """

    step: int = 60
    lookback: int = 14 * 86400
    fine: int = 2 * 3600

    @property
    def block(self) -> int:
        """Length of the blocks that `fold` sees, a multiple of the step."""
        short = self.lookback <= self.step * _MAX_FINE_SAMPLES
        return self.step if short else -(-_COARSE_BLOCK_S // self.step) * self.step


class Signal(StrEnum):
    """What can be read of each container beside CPU and memory, if a recommender declares it.

    Shares are from 0 to 1. Of a block peaks keep the maximum, all others, which are means over the rate window of the
    policy, the value at its end.
    """

    THROTTLED = "throttled"  # share of CFS periods that ended with the CPU limit used up; missing where there is none
    CPU_PRESSURE = "cpuPressure"  # share of time in which some task waited for a CPU (PSI)
    MEMORY_PRESSURE = "memoryPressure"  # share of time in which some task waited for memory (PSI)
    MEMORY_PEAK = "memoryPeak"  # peak, bytes with page cache, since the container started; as the kernel counts it
    MEMORY_LIMIT = "memoryLimit"  # bytes; missing where there is none
    GPU_MEMORY = "gpuMemory"  # peak, bytes
    GPU_MEMORY_FILLED = "gpuMemoryFilled"  # peak, share of the fullest of its devices that is taken, by whomever
    GPU_UTILISATION = "gpuUtilisation"  # share of time in which the busiest of its devices worked


PEAKS: frozenset[str] = frozenset({Signal.MEMORY_PEAK, Signal.GPU_MEMORY, Signal.GPU_MEMORY_FILLED})
"""The signals of which a block has the maximum."""

GPU_SIGNALS: frozenset[str] = frozenset({Signal.GPU_MEMORY, Signal.GPU_MEMORY_FILLED, Signal.GPU_UTILISATION})
"""The signals of GPUs."""

_NO_SIGNALS: Mapping[str, NDArray[np.float32]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Usage of one container on an even grid; arrays of one length, ascending in time.

    `end_at`: unix seconds at which each interval ends (int64). `cpu`: cores (float32). `memory`: working set in bytes,
    the maximum of the interval (float32). `signals`: the same of what else was asked for (float32), by `Signal` or by
    the name that the policy gave its own. NaN where a value is missing: missing is never zero.
    """

    end_at: NDArray[np.int64]
    cpu: NDArray[np.float32]
    memory: NDArray[np.float32]
    signals: Mapping[str, NDArray[np.float32]] = field(default_factory=lambda: _NO_SIGNALS)

    def __len__(self) -> int:
        return len(self.end_at)

    def signal(self, name: str) -> NDArray[np.float32]:
        """The values of a signal; all of them missing where it is not there."""
        found = self.signals.get(name)
        return np.full(len(self), np.nan, np.float32) if found is None else found

    def after(self, instant: int) -> Samples:
        """The samples that end after an instant (unix seconds)."""
        return self[int(self.end_at.searchsorted(instant, side="right")) :]

    def each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Samples:
        """The same change made to every array."""
        signals = {name: change(values) for name, values in self.signals.items()} if self.signals else _NO_SIGNALS
        return Samples(change(self.end_at), change(self.cpu), change(self.memory), signals)

    def __getitem__(self, part: slice) -> Samples:
        return self.each(lambda values: values[part])

    def __add__(self, later: Samples) -> Samples:
        names = self.signals.keys() | later.signals.keys()
        return Samples(
            np.concatenate((self.end_at, later.end_at)),
            np.concatenate((self.cpu, later.cpu)),
            np.concatenate((self.memory, later.memory)),
            {name: np.concatenate((self.signal(name), later.signal(name))) for name in names} or _NO_SIGNALS,
        )

    @staticmethod
    def of(end_at: Sequence[int], cpu: Sequence[float], memory: Sequence[float]) -> Samples:
        """Samples from plain sequences."""
        return Samples(np.asarray(end_at, np.int64), np.asarray(cpu, np.float32), np.asarray(memory, np.float32))


EMPTY = Samples.of((), (), ())


class OomKill(NamedTuple):
    """One kill for lack of memory. It is reported until the container ends in another way, long after its limit may
    have been raised: what is done about it is to follow from it, not from how often it was seen."""

    pod_uid: str
    container: str
    finished_at: datetime


_BEFORE_END_S = 600
_FULL = 0.95
_BY_SIGNAL = range(129, 256)  # exit codes of programs that were killed


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """What a recommender may know beside its state.

    `recent`: the newest samples (up to `Grid.fine`) at the grid's step. `open`: those of them that no fold has seen
    yet. `sample_s`, `block_s`: seconds that one of them, and one folded sample, stand for.

    The past goes by the pod's name, and pods may have had it before. `own_from` (unix seconds): from then on all
    samples are of this pod alone, however late the series of one before it ended; 0 where that is not known.

    `pod_uid`, `container`, `restarts`: whose past it is, and how often it has started anew. `started_at`: when it last
    did (unix seconds); 0 where that is not known.

    `resized_at`: when a resize of the pod was last asked for, by anybody (unix seconds); 0 where that is not known.
    `rate_window_s`: seconds before its end over which a sample of CPU or of a share of time is a mean.
    """

    now: datetime
    recent: Samples
    open: Samples
    in_force: Resources
    sample_s: int
    block_s: int
    last_terminated: Termination | None = None
    own_from: int = 0
    pod_uid: str = ""
    container: str = ""
    restarts: int = 0
    started_at: int = 0
    resized_at: int = 0
    rate_window_s: int = 0

    def own(self, samples: Samples) -> Samples:
        """Those of the samples that are of this pod alone, for recommenders that want to start anew with each."""
        return samples.after(self.own_from - 1)

    @property
    def oom_kill(self) -> OomKill | None:
        """The newest kill for lack of memory, if the container's last end was one that has a time."""
        ended = self.last_terminated
        if ended is None or ended.reason != "OOMKilled" or ended.finished_at is None:
            return None
        return OomKill(self.pod_uid, self.container, ended.finished_at)

    def startup_peak(self, samples: Samples, within_s: int) -> float | None:
        """The most memory in bytes within so many seconds after the last start; None if there is no sample of then.

        The first of the samples may begin before the start.
        """
        if not self.started_at:
            return None
        began = samples.after(self.started_at)
        memory = began.memory[began.end_at <= self.started_at + within_s]
        known = memory[np.isfinite(memory)]
        return float(known.max()) if len(known) else None

    @property
    def out_of_gpu_memory(self) -> bool:
        """Whether the container's last end looks as if memory of its GPU had run out, which is an error of the program.

        More memory of the container is no help then. Needs `Signal.GPU_MEMORY_FILLED` of the minutes before the end.
        """
        ended = self.last_terminated
        if ended is None or ended.reason != "Error" or ended.exit_code in _BY_SIGNAL or ended.finished_at is None:
            return False
        end = int(ended.finished_at.timestamp())
        # the sample that is running at the end counts as well, as it began before
        before = self.recent.after(end - _BEFORE_END_S)
        filled = before.signal(Signal.GPU_MEMORY_FILLED)[before.end_at < end + self.sample_s]
        return bool((filled >= _FULL).any())


class Step(NamedTuple):
    """One step on the way from measurement to final value; together they are the explanation.

    Amounts are in the resource's base unit (millicores, bytes), None where there is none yet. `cap` is set where a
    bound bit.
    """

    resource: Resource
    name: str
    before: int | None
    after: int | None
    because: str
    cap: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """What a container should be given: `cpu` in cores, `memory` in bytes; None leaves that resource alone."""

    cpu: float | None
    memory: float | None
    trail: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Abstain:
    """No answer, and why ("12 of 30 samples")."""

    because: str
    insufficient_history: bool = False


class Recommender(ABC, Generic[State]):
    """Base of every recommender. Subclasses declare `name` and `Parameters` and write three pure functions.

    `Parameters` is the type of `params`: a subclass of `autoscaler.recommenders.parameters.Parameters`.
    """

    name: ClassVar[str]
    Parameters: ClassVar[type[Any]]

    def __init__(self, params: Any) -> None:
        self.params = params

    @property
    def signals(self) -> frozenset[str]:
        """What it reads beside CPU and memory: signals, and names of such as the policy has to define. What is not
        named here is not asked for; what is may still be missing."""
        return frozenset()

    @property
    def optional_signals(self) -> frozenset[str]:
        """Those of `signals` that a policy may define, and need not."""
        return frozenset()

    @property
    def fold_key(self) -> Hashable:
        """Whatever `fold` depends on: while it stays the same, a reloaded policy keeps its states."""
        return (self.name, repr(self.params))

    def for_gpu_memory(self) -> Recommender[Any]:
        """The one that answers for the memory of GPUs, which it is given as memory. Override it where that needs other
        parameters."""
        return self

    @abstractmethod
    def start(self) -> State:
        """The state before any sample."""

    @abstractmethod
    def fold(self, state: State, samples: Samples, block_s: int) -> State:
        """The state after these complete blocks of `block_s` seconds. Returns a new one, never changes the old."""

    @abstractmethod
    def recommend(self, state: State, situation: Situation) -> Target | Abstain:
        """The target for one container."""

    def recommend_many(self, states: Sequence[State], situations: Sequence[Situation]) -> Sequence[Target | Abstain]:
        """Targets for many containers at once. Override to work on arrays; then each answer counts as equally slow."""
        return [self.recommend(state, situation) for state, situation in zip(states, situations, strict=True)]


class WindowRecommender(Recommender[Samples]):
    """Base for recommenders that look at the samples themselves: write only `recommend(window, situation)`.

    The window holds the complete blocks of the look-back; `situation.open` is what is newer. Costs 16 bytes a block
    and container (14 days of 5-minute blocks: 63 KiB), and 4 more for each signal.
    """

    lookback_s: ClassVar[int] = 14 * 86400

    def start(self) -> Samples:
        return EMPTY

    def fold(self, state: Samples, samples: Samples, block_s: int) -> Samples:
        joined = state + samples
        return joined.after(int(joined.end_at[-1]) - self.lookback_s) if len(joined) else joined
