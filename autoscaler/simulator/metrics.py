"""The simulated usage as measurements: the same grid, the same folding and the same gaps as with Prometheus."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import datetime
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.history import ContainerRef, Gap, History, Measurements, MemoryInUse, advance
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import EMPTY, Samples
from autoscaler.core.units import Bytes
from autoscaler.simulator.cluster import SimulatedCluster
from autoscaler.simulator.usage import UsageRecord

_SCRAPE_S = 15
_SCRAPES_NOW = 4  # of which the greatest memory in use counts as that of now
_COVERAGE = 0.8  # below this share of its window a CPU rate is biased low, and dropped

_NOTHING = Gap(Reason.NO_DATA, "no usage simulated for this container")


class SimulatedMetrics:
    """`ports.Metrics` over the usage of a simulated cluster. Measures when asked: nothing here can be slow."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._wanted: Mapping[ContainerRef, Policy] = {}
        self._histories: dict[ContainerRef, tuple[Hashable, History | None]] = {}

    def follow(self, wanted: Mapping[ContainerRef, Policy]) -> None:
        """From now on measure these containers, each as its policy says."""
        self._wanted = dict(wanted)

    def latest(self) -> Measurements:
        """Usage up to two scrapes ago, folded into each recommender's state."""
        now = self._cluster.now
        kept = self._histories
        self._histories = {ref: self._measured(ref, policy, kept.get(ref), now) for ref, policy in self._wanted.items()}
        histories = {ref: history for ref, (_, history) in self._histories.items() if history is not None}
        return Measurements(now, MappingProxyType(histories), _NOTHING, in_use=self._in_use(now))

    def _in_use(self, now: datetime) -> MemoryInUse:
        """Of all containers of the pods that are followed, page cache included."""
        scrapes = int(now.timestamp()) // _SCRAPE_S * _SCRAPE_S - np.arange(_SCRAPES_NOW, dtype=np.int64) * _SCRAPE_S
        found: dict[ContainerRef, Bytes] = {}
        for ref, record in self._cluster.usage_in({ref.pod_ref for ref in self._wanted}).items():
            used = np.fmax.reduce(record.memory_with_cache(scrapes))
            if np.isfinite(used):
                found[ref] = Bytes(int(used))
        return MemoryInUse(now, MappingProxyType(found))

    def _measured(
        self, ref: ContainerRef, policy: Policy, kept: tuple[Hashable, History | None] | None, now: datetime
    ) -> tuple[Hashable, History | None]:
        key = (policy.grid, policy.rate_window, policy.recommender.fold_key)
        history = kept[1] if kept is not None and kept[0] == key else None
        record = self._cluster.usage_of(ref)
        if record is None:
            return key, history
        grid = policy.grid
        newest = (int(now.timestamp()) - 2 * _SCRAPE_S) // grid.step * grid.step
        after = newest - grid.lookback if history is None else history.newest_at
        if newest <= after:
            return key, history
        samples = sampled(record, after, newest, grid.step, int(policy.rate_window.total_seconds()))
        return key, advance(history, samples, policy.recommender, grid, sample_s=grid.step)


def sampled(record: UsageRecord, after: int, until: int, step: int, rate_window: int) -> Samples:
    """Samples on the grid with `after` < end <= `until`, all in seconds.

    CPU is the mean over the rate window, memory the maximum over the step, as the queries to Prometheus have it.
    """
    first = max(after, int(min(record.first_s, until)))
    end_at = np.arange(first // step * step + step, until + 1, step, dtype=np.int64)
    if not len(end_at):
        return EMPTY
    cpu, _ = record.at(_before(end_at, rate_window, -_SCRAPE_S))
    _, memory = record.at(_before(end_at, step, 0))
    cpu, memory = cpu.reshape(len(end_at), -1), memory.reshape(len(end_at), -1)
    seen = np.isfinite(cpu)
    covered = seen.mean(axis=1) >= _COVERAGE
    mean = np.where(seen, cpu, 0.0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    return Samples(
        end_at,
        np.where(covered, mean, np.nan).astype(np.float32),
        np.fmax.reduce(memory, axis=1).astype(np.float32),
    )


def _before(end_at: NDArray[np.int64], span: int, shift: int) -> NDArray[np.int64]:
    """For each end, the scrapes of the `span` seconds before it, flattened."""
    scrapes = np.arange(-max(span, _SCRAPE_S) + _SCRAPE_S, 1, _SCRAPE_S, dtype=np.int64)
    return (end_at[:, None] + scrapes[None, :] + shift).ravel()
