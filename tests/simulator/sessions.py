"""Users' sessions in virtual time: how many there are, as a script has it, and what the pods were told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from autoscaler.core.model import PodRef
from autoscaler.core.plan import Drain, Gate
from autoscaler.simulator.cluster import SimulatedCluster


class Told(NamedTuple):
    """Something that a pod was told: to take no new sessions, or that it may again."""

    at: datetime
    uid: str
    draining: bool


class ScriptedSessions:
    """`ports.Sessions` over a simulated cluster. Asks whenever it is asked, and tells at once.

    `counts`: for a pod the moments from which on it has so many sessions, in order; None: it does not answer. A pod
    that is not in it has none.
    """

    def __init__(
        self, cluster: SimulatedCluster, counts: Mapping[PodRef, Sequence[tuple[datetime, int | None]]] | None = None
    ) -> None:
        self.counts = dict(counts or {})
        self.told: list[Told] = []
        self.followed: frozenset[PodRef] = frozenset()
        self._cluster = cluster
        self._drains: dict[PodRef, Drain] = {}
        self._draining: dict[str, datetime] = {}  # by uid, since when
        self._gates: dict[PodRef, Gate] = {}

    def follow(self, drains: Mapping[PodRef, Drain], *, telling: bool) -> None:
        """Look at these pods, and tell those that should take no new sessions, and those that may again."""
        self._drains = dict(drains)
        self.followed |= frozenset(drains)
        if telling:
            now, draining = self._cluster.now, {drain.uid for drain in drains.values() if drain.telling}
            self.told += [Told(now, uid, uid in draining) for uid in sorted(draining ^ self._draining.keys())]
            self._draining = {uid: self._draining.get(uid, now) for uid in draining}

    def latest(self) -> Mapping[PodRef, Gate]:
        """What the pods answer now; of one that does not answer, what it answered last."""
        for ref, drain in self._drains.items():
            if (sessions := self.sessions(ref)) is not None:
                detail = f"{sessions} sessions" if sessions else "no sessions"
                self._gates[ref] = Gate(drain.uid, sessions == 0, detail, self._cluster.now)
            elif ref not in self._gates or self._gates[ref].uid != drain.uid:
                self._gates[ref] = Gate(drain.uid, False, "not known", self._cluster.now, known=False)
        self._gates = {ref: gate for ref, gate in self._gates.items() if ref in self._drains}
        return {ref: replace(gate, told_at=self._draining.get(gate.uid)) for ref, gate in self._gates.items()}

    def told_since(self, uid: str) -> datetime | None:
        """Since when a pod is to take no new sessions, by what it was told."""
        return self._draining.get(uid)

    def sessions(self, ref: PodRef) -> int | None:
        """How many sessions a pod has now; None: it does not answer."""
        begun = [count for since, count in self.counts.get(ref, ()) if since <= self._cluster.now]
        return begun[-1] if begun else 0
