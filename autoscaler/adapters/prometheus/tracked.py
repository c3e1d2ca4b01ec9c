"""Containers that are followed: what is asked for of each, and how far it has been measured."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from autoscaler.core.history import Gap, History
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid, Signal

NOT_YET = Gap(Reason.NOT_MEASURED_YET, "its history is being read")


class Asked(NamedTuple):
    """What is asked for beside the grid. `own`: the policy's own queries that its recommender reads, by name."""

    rate_window_s: int
    signals: frozenset[str]
    own: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, policy: Policy) -> Asked:
        reads = policy.recommender.signals
        own = tuple(sorted((name, query) for name, query in policy.signals.items() if name in reads))
        return cls(max(1, round(policy.rate_window.total_seconds())), reads, own)

    @property
    def queries(self) -> int:
        """How many it takes for a short range: CPU, memory, and one for each signal."""
        return 2 + len(self.signals & frozenset(Signal)) + len(self.own)


class Key(NamedTuple):
    """What a history depends on: as long as it is the same, a reloaded policy goes on with it."""

    fold_key: Hashable
    grid: Grid
    asked: Asked

    @classmethod
    def of(cls, policy: Policy) -> Key:
        return cls(policy.recommender.fold_key, policy.grid, Asked.of(policy))


@dataclass(frozen=True, slots=True)
class Tracked:
    """A container that is followed. `measured_until`: the newest grid point that was asked for, whatever came back."""

    key: Key
    policy: Policy
    history: History | None = None
    measured_until: int | None = None
    gap: Gap = NOT_YET
