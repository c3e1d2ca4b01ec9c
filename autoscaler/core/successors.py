"""Pods that take the place of evicted ones and have not asked for their size yet: room that is spoken for. Pure.

A scheduler keeps room for what a pod asks for. Between its eviction and the first ask of its successor, nothing in the
cluster tells how large a pod is going to be. This program remembers it for those that it evicted itself; of others,
which a controller before it may have evicted, it waits until they run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cached_property

from autoscaler.core.model import ClusterSnapshot, Pod, Resources, WorkloadRef
from autoscaler.core.notes import Notes, Successor
from autoscaler.core.policy import Config
from autoscaler.core.preconditions import smaller
from autoscaler.core.siblings import Siblings

_STATEFUL_SET = "StatefulSet"
_PREDECESSORS = timedelta(minutes=10)
"""For how long after its start a controller reckons with evictions of the one before it."""


class Successors:
    """Those of one snapshot."""

    def __init__(self, snapshot: ClusterSnapshot, config: Config, siblings: Siblings, notes: Notes) -> None:
        self._snapshot = snapshot
        self._config = config
        self._siblings = siblings
        self._notes = notes

    def remembered(self) -> Iterator[tuple[Pod, Mapping[str, Resources]]]:
        """The evicted pods whose successors have not asked yet, each with the size that its successor will have."""
        return ((one.pod, one.target) for one in self._notes.successors.values() if not self._asked(one))

    @cached_property
    def unknown(self) -> str:
        """A workload with pods on their way of which nobody knows how large they will be; empty if there is none."""
        began_at = self._notes.began_at
        if began_at is not None and self._snapshot.taken_at >= began_at + _PREDECESSORS:
            return ""
        known = {WorkloadRef(one.pod.namespace, one.pod.workload or "") for one in self._notes.successors.values()}
        for workload in self._snapshot.workloads.values():
            if workload.ref.kind != _STATEFUL_SET or workload.ref in known:
                continue
            pods = self._siblings.of(workload.ref)
            if not self._siblings.missing(workload) and all(map(_runs, pods)):
                continue
            if self._config.moves_pods_of(workload):
                return str(workload.ref)
        return ""

    def _asked(self, one: Successor) -> bool:
        pod = self._snapshot.pods.get(one.pod.ref)
        if pod is None or pod.uid == one.pod.uid:
            return False
        return _runs(pod) and bool(pod.asks or not smaller({c.name: c.spec for c in pod.containers}, one.target))


def _runs(pod: Pod) -> bool:
    return pod.phase == "Running" and not pod.deleting
