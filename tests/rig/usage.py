"""What containers consume: demand set by tests, and the counters that a kernel would keep of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.core.model import Resources

Amount = float | Callable[[float], float]  # a constant, or a function of unix seconds

_CFS_PERIOD_S = 0.1


@dataclass(frozen=True)
class Usage:
    """What a container would use if nothing held it back.

    `cpu` in cores; `memory` in bytes, the working set; `cache` in bytes, the page cache that can be reclaimed.
    """

    cpu: Amount = 0.005
    memory: Amount = 16 * 2**20
    cache: Amount = 0.0


def at(amount: Amount, now: float) -> float:
    """An amount at that unix time."""
    return amount(now) if callable(amount) else amount


class Meter:
    """The counters of one container's cgroup since it was made."""

    def __init__(self, now: float) -> None:
        self._read_at = now
        self.cpu_seconds = 0.0
        self.periods = 0.0
        self.throttled_periods = 0.0
        self.throttled_seconds = 0.0
        self.working_set = 0.0
        self.cache = 0.0

    @property
    def memory_usage(self) -> float:
        """Page cache included: what the kubelet compares with a limit that shrinks."""
        return self.working_set + self.cache

    def read(self, usage: Usage, in_force: Resources, now: float) -> None:
        """Bring the counters up to date. CPU is capped by the limit in force, and so is memory (never an OOM kill)."""
        elapsed = max(now - self._read_at, 0.0)
        self._read_at = max(now, self._read_at)
        demand = max(at(usage.cpu, now), 0.0)
        used = demand
        if in_force.limits.cpu is not None:
            used = min(demand, in_force.limits.cpu / 1000)
            self.periods += elapsed / _CFS_PERIOD_S
            if demand > used:
                self.throttled_periods += elapsed / _CFS_PERIOD_S
                self.throttled_seconds += (demand - used) * elapsed
        self.cpu_seconds += used * elapsed
        ceiling = float("inf") if in_force.limits.memory is None else float(in_force.limits.memory)
        self.working_set = min(max(at(usage.memory, now), 0.0), ceiling)
        self.cache = min(max(at(usage.cache, now), 0.0), ceiling - self.working_set)
