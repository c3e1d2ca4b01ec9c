"""What has been measured, folded into each recommender's state. Pure: samples in, a new history out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.foreign import told
from autoscaler.core.model import PodRef, Problem
from autoscaler.core.presence import Seen
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import EMPTY, PEAKS, Grid, Recommender, Samples
from autoscaler.core.units import Bytes


class ContainerRef(NamedTuple):
    """A container by name. A new pod of the same name goes on with the history of the old one."""

    namespace: str
    pod: str
    container: str

    @property
    def pod_ref(self) -> PodRef:
        return PodRef(self.namespace, self.pod)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """One container's past under one policy. Instants are unix seconds on the grid.

    `folded_until`: end of the newest block in `state`. `newest_at`: end of the newest sample. `failure`: what fold
    raised, if it did; the state is then of no use. `seen`: for which steps there are values; None where that is not
    kept. `partial_at`: the newest instant of an answer that the server said was partial; 0: there has been none.
    `unread_before`: nothing older than this instant was asked for, as that would have been too much; 0: all of the
    look-back was.
    """

    state: Any
    recent: Samples
    folded_until: int
    first_at: int
    newest_at: int
    failure: str = ""
    seen: Seen | None = None
    partial_at: int = 0
    unread_before: int = 0

    def knows(self, signal: str) -> bool:
        """Whether there is a sample of the signal among the recent ones."""
        return bool(np.isfinite(self.recent.signal(signal)).any())

    @property
    def open(self) -> Samples:
        """The samples that no fold has seen yet."""
        return self.recent.after(self.folded_until)


@dataclass(frozen=True, slots=True)
class Gap:
    """Why there is no history: one of the quality reasons."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class MemoryInUse:
    """Bytes that containers use now, page cache included: what a kubelet compares with a memory limit that shrinks.

    All containers of the pods that are followed, each with the greatest of its newest samples before `measured_at`
    (None: never measured). `series`: where they come from, for messages.
    """

    measured_at: datetime | None = None
    of: Mapping[ContainerRef, Bytes] = field(default_factory=lambda: MappingProxyType({}))
    series: str = "container_memory_usage_bytes"


@dataclass(frozen=True, slots=True)
class Measurements:
    """The newest that is known of usage. Immutable; a new one is published after each measurement.

    `measured_at` is when the newest successful measurement was made (None: never). `default` says why a container that
    is not in `histories` has none. `scrape_interval_s`: how often containers are scraped; None: not found out. `moved`:
    containers whose series have lately come from another source, and from which now.
    """

    measured_at: datetime | None = None
    histories: Mapping[ContainerRef, History | Gap] = field(default_factory=lambda: MappingProxyType({}))
    default: Gap = Gap(Reason.NO_DATA, "no samples in Prometheus")
    problems: tuple[Problem, ...] = ()
    in_use: MemoryInUse = MemoryInUse()
    scrape_interval_s: int | None = None
    moved: Mapping[ContainerRef, str] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, container: ContainerRef) -> History | Gap:
        return self.histories.get(container, self.default)


def advance(
    history: History | None, samples: Samples, recommender: Recommender[Any], grid: Grid, *, sample_s: int
) -> History | None:
    """Fold samples that are newer than the history. None as long as there has been no sample at all.

    `sample_s` is the resolution of `samples`: the grid's block (back-fill of the far past) or its step. Blocks are
    aligned to the epoch, and the one that is still running stays open. What is not newer than the history is ignored,
    so folding in pieces, twice, or at once gives the same.
    """
    if history is not None:
        samples = samples.after(history.newest_at)
    samples = _locked(_finite(samples))
    if not len(samples):
        return history
    if history is None:
        start = _start(recommender)
        first_at = int(samples.end_at[0])
        history = History(start[0], EMPTY, 0, first_at, 0, failure=start[1], seen=Seen.nothing(grid))
    newest = int(samples.end_at[-1])
    pending = _locked(history.open + samples)
    closed_until = newest - newest % grid.block
    cut = int(np.searchsorted(pending.end_at, closed_until, side="right"))
    state, failure = history.state, history.failure
    complete = _locked(_finite(blocks(pending[:cut], grid.block)))  # a CPU value inside a block is not one of the block
    if len(complete) and not failure:
        try:
            state = recommender.fold(state, complete, grid.block)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plug-in may raise anything: it costs its own containers alone
            failure = told(error)
    seen = (history.seen or Seen.nothing(grid)).overall(complete, grid)
    if sample_s == grid.step:
        seen = seen.recently(samples, grid)
    recent = history.recent + samples if sample_s == grid.step else history.recent
    recent = _compact(recent.after(newest - grid.fine)) if len(recent) else pending[cut:]
    return replace(
        history,
        state=state,
        recent=_locked(recent),
        folded_until=max(history.folded_until, closed_until),
        newest_at=newest,
        failure=failure,
        seen=seen,
    )


def _start(recommender: Recommender[Any]) -> tuple[Any, str]:
    try:
        return recommender.start(), ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # as above
        return None, told(error)


def _compact(samples: Samples) -> Samples:
    """The same samples; a copy where they are a small part of arrays that they would otherwise keep in memory."""
    whole = samples.cpu.base
    if whole is None or whole.size <= 2 * len(samples):
        return samples
    return samples.each(np.copy)


def _locked(samples: Samples) -> Samples:
    """The same samples, which a plug-in then cannot change under those that share them."""
    samples.end_at.flags.writeable = False
    for values in (samples.cpu, samples.memory, *samples.signals.values()):
        values.flags.writeable = False
    return samples


def _finite(samples: Samples) -> Samples:
    """Those that have CPU or memory: signals alone do not make a history that looks fresh."""
    keep = np.isfinite(samples.cpu) | np.isfinite(samples.memory)
    return samples if keep.all() else samples.each(lambda values: values[keep])


def blocks(samples: Samples, block_s: int) -> Samples:
    """Reduce samples to blocks of `block_s` seconds: CPU at the end of the block, memory the maximum in it, and each
    signal the one or the other.

    The CPU rate at a block's end is the mean over the rate window before it, so nothing is lost by taking it alone;
    it is missing if that sample is. `blocks(blocks(x)) == blocks(x)`.
    """
    if not len(samples):
        return samples
    end_at = -(-samples.end_at // block_s) * block_s
    first = np.flatnonzero(np.diff(end_at, prepend=end_at[0] - 1))
    if len(first) == len(samples) and (end_at == samples.end_at).all():
        return samples
    last = np.append(first[1:], len(samples)) - 1
    whole = samples.end_at[last] == end_at[last]

    def at_end(values: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.where(whole, values[last], np.float32(np.nan)).astype(np.float32)

    def greatest(values: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.fmax.reduceat(values, first)

    signals = {name: (greatest if name in PEAKS else at_end)(values) for name, values in samples.signals.items()}
    return Samples(end_at[first], at_end(samples.cpu), greatest(samples.memory), signals)
