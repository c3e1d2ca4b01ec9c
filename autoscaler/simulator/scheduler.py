"""The scheduler of a simulated cluster: which node a pod is bound to, and why it is not.

Not modelled: priorities beyond the order of the queue, preemption, back-off, inter-pod affinity, topology spread,
volumes and host ports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from autoscaler.core.kubelet import desired, footprint, holds_room, reserved
from autoscaler.core.model import RESOURCES, Node, Pod, PodRef
from autoscaler.core.predicates import admits, matches_any, selects, tolerated
from autoscaler.simulator.state import State


class Scheduler:
    """Binds each pod to the node with most room left, as soon as one takes it.

    `preferred`: the node that is taken first wherever it will do, as scores of a real scheduler may have it.
    """

    def __init__(self, state: State) -> None:
        self.preferred: str | None = None
        self._state = state
        self._waiting: dict[PodRef, str] = {}  # uids, in the order of arrival
        self._awake = False

    def watch(self, pod: Pod | None) -> None:
        """Take note of a pod without a node; look at those that wait whenever anything changes."""
        if pod is not None and pod.node is None and pod.phase == "Pending" and not pod.deleting:
            self._waiting[pod.ref] = pod.uid
        if self._waiting and not self._awake:
            self._awake = True
            self._state.later(timedelta(0), self._place_all)

    def _place_all(self) -> None:
        waiting = [self._state.pod(ref, uid) for ref, uid in self._waiting.items()]
        self._waiting = {pod.ref: pod.uid for pod in waiting if pod is not None and pod.node is None}
        for pod in sorted((pod for pod in waiting if pod is not None and pod.node is None), key=_urgency):
            self._place(pod)
        self._awake = False

    def _place(self, pod: Pod) -> None:
        nodes = list(self._state.nodes.values())
        refusals = {node.name: sorted(self._refusals(node, pod)) for node in nodes}
        taking = [node for node in nodes if not refusals[node.name]]
        if taking:
            best = min(taking, key=lambda node: (node.name != self.preferred, -self._left(node, pod), node.name))
            del self._waiting[pod.ref]
            self._state.put(replace(pod, node=best.name, unscheduled=None))
            return
        counted = Counter(word for words in refusals.values() for word in words)
        words = ", ".join(sorted(f"{count} {word}" for word, count in counted.items()))
        self._state.put(replace(pod, unscheduled=f"0/{len(nodes)} nodes are available: {words or 'there is none'}."))

    def _refusals(self, node: Node, pod: Pod) -> Iterator[str]:
        """Why a node does not take a pod, in the words of a real scheduler (1.37)."""
        wants = pod.scheduling
        taken = [other for other in self._state.pods_on(node.name) if holds_room(other)]
        if not admits(node, wants.tolerations, doubt=True):
            yield "node(s) were unschedulable"
        elif not node.ready or not tolerated(node.taints, wants.tolerations, doubt=True):
            yield "node(s) had untolerated taint(s)"
        elif not selects(wants.node_selector, node) or not (
            wants.node_terms is None or matches_any(wants.node_terms, node)
        ):
            yield "node(s) didn't match Pod's node affinity/selector"
        elif node.pods is not None and len(taken) >= node.pods:
            yield "Too many pods"
        else:
            yield from (f"Insufficient {resource}" for resource, left in self._room(node, pod).items() if left < 0)

    def has_room(self, node: Node, pod: Pod) -> bool:
        """Whether what is not reserved on a node suffices for a pod."""
        return all(left >= 0 for left in self._room(node, pod).values())

    def _room(self, node: Node, pod: Pod) -> dict[str, float]:
        """What would be left of each resource of a node that took the pod, as a share of all."""
        wanted = footprint(pod, desired)
        taken = [reserved(other) for other in self._state.pods_on(node.name) if holds_room(other)]
        return {
            resource: (capacity - (wanted.get(resource) or 0) - sum(one.get(resource) or 0 for one in taken))
            / max(capacity, 1)
            for resource in RESOURCES
            if (capacity := node.allocatable.get(resource)) is not None
        }

    def _left(self, node: Node, pod: Pod) -> float:
        room = self._room(node, pod)
        return sum(room.values()) / len(room) if room else 1.0


def _urgency(pod: Pod) -> int:
    return -pod.priority
