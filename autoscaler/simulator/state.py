"""What a simulated cluster stores, and what is going to happen in it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count

from autoscaler.core.history import ContainerRef
from autoscaler.core.model import Node, Pod, PodRef, Workload, WorkloadRef
from autoscaler.simulator.usage import UsageRecord


class State:
    """Objects as an API server stores them, each frozen and replaced as a whole, and the events to come.

    `watchers` are told of each pod that was stored or dropped, and with None that a node was. They may only call
    `later`: what they do about it happens afterwards, as with a real watch.
    """

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.nodes: dict[str, Node] = {}
        self.pods: dict[PodRef, Pod] = {}
        self.workloads: dict[WorkloadRef, Workload] = {}
        self.usage: dict[ContainerRef, UsageRecord] = {}
        self.watchers: list[Callable[[Pod | None], None]] = []
        self._events: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order, self._versions = count(), count(1)
        self._changed: set[PodRef] = set()

    # ---- virtual time

    @property
    def next_event_at(self) -> datetime:
        """When something will happen next by itself."""
        return self._events[0][0]

    def later(self, delay: timedelta, happen: Callable[[], None]) -> None:
        """Let something happen after so much virtual time; what is due at once, in the order of the calls."""
        heapq.heappush(self._events, (self.now + delay, next(self._order), happen))

    def advance(self, until: datetime) -> frozenset[PodRef]:
        """Let everything happen up to and including `until`; which pods have changed since the last call."""
        while self._events[0][0] <= until:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
        self.now = max(self.now, until)
        changed, self._changed = frozenset(self._changed), set()
        return changed

    # ---- objects

    def pod(self, ref: PodRef, uid: str) -> Pod | None:
        """This incarnation of a pod, if it is still there."""
        pod = self.pods.get(ref)
        return pod if pod is not None and pod.uid == uid else None

    def pods_on(self, node: str | None) -> list[Pod]:
        """The pods that are bound to a node."""
        return [] if node is None else [pod for pod in self.pods.values() if pod.node == node]

    def put(self, pod: Pod, *, at: datetime | None = None) -> None:
        """Store a new version of a pod; what it may use from now on (or from `at` on) follows from it."""
        if pod == self.pods.get(pod.ref):
            return
        stored = self.pods[pod.ref] = replace(pod, resource_version=self._version())
        for container in pod.containers:
            ref = ContainerRef(*pod.ref, container.name)
            if (record := self.usage.get(ref)) is not None:
                self.usage[ref] = record.since(at or self.now, container)
        self._tell(stored)

    def delete(self, pod: Pod, *, disrupted: bool = False) -> None:
        """Mark a pod as being deleted; one without a node, which no kubelet has to stop, is gone at once.

        `disrupted`: with condition DisruptionTarget.
        """
        self.put(replace(pod, deleting=True, disrupted=pod.disrupted or disrupted))
        if pod.node is None:
            self.drop(self.pods[pod.ref])

    def drop(self, pod: Pod) -> None:
        """Remove a pod."""
        del self.pods[pod.ref]
        for container in pod.containers:
            ref = ContainerRef(*pod.ref, container.name)
            if (record := self.usage.get(ref)) is not None:
                self.usage[ref] = record.ended(self.now)
        self._tell(pod)

    def put_node(self, node: Node) -> None:
        """Store a node."""
        self.nodes[node.name] = node
        self._tell(None)

    def drop_node(self, name: str) -> None:
        """Remove a node; the pods that are bound to it stay."""
        del self.nodes[name]
        self._tell(None)

    def put_workload(self, workload: Workload) -> None:
        """Store a new version of a workload."""
        if workload != self.workloads.get(workload.ref):
            self.workloads[workload.ref] = replace(workload, resource_version=self._version())

    def _version(self) -> str:
        return str(next(self._versions))

    def _tell(self, pod: Pod | None) -> None:
        if pod is not None:
            self._changed.add(pod.ref)
        for watcher in self.watchers:
            watcher(pod)
