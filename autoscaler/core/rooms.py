"""How much of each node is taken, as its kubelet counts it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from autoscaler.core import kubelet
from autoscaler.core.model import ClusterSnapshot, Pod, ResourceList, Resources
from autoscaler.core.units import Bytes, Millicores


class Rooms:
    """Σ allocated per node, counted once a turn, with what this plan adds, so that two increases cannot both count
    on the same room."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._pods: defaultdict[str, list[Pod]] | None = None
        self._taken: dict[str, ResourceList] = {}

    def others(self, pod: Pod) -> ResourceList:
        """Σ allocated of the other pods on a pod's node, with what has been granted to them."""
        own = kubelet.footprint(pod, kubelet.allocated)
        taken = self._taken_on(pod.node or "")
        return ResourceList(
            Millicores((taken.cpu or 0) - (own.cpu or 0)), Bytes((taken.memory or 0) - (own.memory or 0))
        )

    def grant(self, pod: Pod, proposed: Mapping[str, Resources]) -> None:
        """Count an increase that is going to be asked for; what a decrease frees is not there yet."""
        before, wanted = kubelet.footprint(pod, kubelet.allocated), kubelet.proposed_footprint(pod, proposed)
        taken = self._taken_on(pod.node or "")
        self._taken[pod.node or ""] = ResourceList(
            Millicores((taken.cpu or 0) + max((wanted.cpu or 0) - (before.cpu or 0), 0)),
            Bytes((taken.memory or 0) + max((wanted.memory or 0) - (before.memory or 0), 0)),
        )

    def _taken_on(self, node: str) -> ResourceList:
        if self._pods is None:
            self._pods = defaultdict(list)
            for pod in self._snapshot.pods.values():
                self._pods[pod.node or ""].append(pod)
        if node not in self._taken:
            self._taken[node] = kubelet.allocated_on(self._pods[node])
        return self._taken[node]
