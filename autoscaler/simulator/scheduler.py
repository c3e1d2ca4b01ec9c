"""The scheduler of a simulated cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

from autoscaler.core.kubelet import desired, footprint, holds_room, reserved
from autoscaler.core.model import Node, Pod, PodRef, Resource
from autoscaler.simulator.state import State

_RETRIES = timedelta(seconds=10)


class Scheduler:
    """Places pods on the first ready node with room."""

    def __init__(self, state: State) -> None:
        self._state = state

    def place(self, ref: PodRef, uid: str, preferred: str | None) -> None:
        """Bind a pod to a node, `preferred` first of all, as soon as there is one with room."""
        pod = self._state.pod(ref, uid)
        if pod is None:
            return
        nodes = sorted(self._state.nodes.values(), key=lambda node: node.name != preferred)
        node = next((node for node in nodes if node.ready and self.has_room(node, pod)), None)
        if node is None:
            self._state.later(_RETRIES, partial(self.place, ref, uid, preferred))
            return
        self._state.put(replace(pod, node=node.name))

    def has_room(self, node: Node, pod: Pod) -> bool:
        """Whether what is not reserved on a node suffices for a pod."""
        wanted = footprint(pod, desired)
        taken = [reserved(other) for other in self._state.pods_on(node.name) if holds_room(other)]
        return all(
            (capacity := node.allocatable.get(resource)) is None
            or (wanted.get(resource) or 0) + sum(t.get(resource) or 0 for t in taken) <= capacity
            for resource in Resource
        )
