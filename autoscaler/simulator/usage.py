"""What a container has used: its demand, cut by the limits that were in force at each moment.

Derived from the demand and the history of limits whenever it is asked for, so nothing is sampled or stored as the
virtual time goes by, and the past before the start of a simulation is as real as the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from math import inf

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.model import Container
from autoscaler.core.units import Bytes
from autoscaler.simulator.traces import Demand


@dataclass(frozen=True, slots=True)
class Span:
    """From `since_s` (unix seconds) on: whether the container ran, and the limits in force (cores, bytes)."""

    since_s: float
    running: bool
    cpu_limit: float
    memory_limit: float


@dataclass(frozen=True, slots=True, eq=False)
class UsageRecord:
    """The usage of one container by name, over all its incarnations. It has none before the first `since`."""

    demand: Demand
    spans: tuple[Span, ...] = ()

    @property
    def first_s(self) -> float:
        """When the container first existed, in unix seconds."""
        return self.spans[0].since_s

    def since(self, instant: datetime, container: Container) -> UsageRecord:
        """The record with what is in force from `instant` on."""
        limits = container.in_force.limits
        span = Span(
            instant.timestamp(),
            container.running,
            inf if limits.cpu is None else limits.cpu / 1000,
            inf if limits.memory is None else float(limits.memory),
        )
        if self.spans and replace(span, since_s=self.spans[-1].since_s) == self.spans[-1]:
            return self
        return replace(self, spans=(*self.spans, span))

    def ended(self, instant: datetime) -> UsageRecord:
        """The record of a container that is gone from `instant` on."""
        return replace(self, spans=(*self.spans, Span(instant.timestamp(), False, inf, inf)))

    def at(self, instants: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """CPU in cores and memory in bytes at these unix seconds; NaN while the container did not run."""
        index = np.searchsorted([span.since_s for span in self.spans], instants, side="right") - 1
        exists = (index >= 0) & np.asarray([span.running for span in self.spans])[index]
        cpu = np.minimum(self.demand.cpu.at(instants), np.asarray([s.cpu_limit for s in self.spans])[index])
        memory = np.minimum(self.demand.memory.at(instants), np.asarray([s.memory_limit for s in self.spans])[index])
        return np.where(exists, cpu, np.nan), np.where(exists, memory, np.nan)

    def memory_with_cache(self, instants: NDArray[np.int64]) -> NDArray[np.float64]:
        """Bytes that the cgroup shows as used at these unix seconds; NaN while the container did not run."""
        _, memory = self.at(instants)
        index = np.searchsorted([span.since_s for span in self.spans], instants, side="right") - 1
        limits = np.asarray([span.memory_limit for span in self.spans])[index]
        used: NDArray[np.float64] = np.minimum(memory + self.demand.cache.at(instants), limits)
        return used

    def memory_in_use(self, instant: datetime) -> Bytes:
        """What the cgroup of the running container shows at this moment, page cache included."""
        at = np.asarray([int(instant.timestamp())])
        wanted = float((self.demand.memory.at(at) + self.demand.cache.at(at))[0])
        return Bytes(int(min(wanted, self.spans[-1].memory_limit)))

    def wanted_memory(self, instant: datetime) -> Bytes:
        """The memory that the container would take at this moment without a limit."""
        return Bytes(int(self.demand.memory.at(np.asarray([int(instant.timestamp())]))[0]))
