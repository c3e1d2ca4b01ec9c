"""Which pods belong together, and how many of them there should be. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from autoscaler.core import kubelet
from autoscaler.core.model import ClusterSnapshot, Pod, Workload, WorkloadRef


class Siblings:
    """The pods of one snapshot by their topmost controller, found when they are first asked for."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._pods: defaultdict[WorkloadRef, list[Pod]] | None = None

    def of(self, ref: WorkloadRef) -> Sequence[Pod]:
        """The pods of a workload, those on their way out included."""
        if self._pods is None:
            self._pods = defaultdict(list)
            for one in self._snapshot.pods.values():
                if one.workload is not None:
                    self._pods[WorkloadRef(one.namespace, one.workload)].append(one)
        return self._pods.get(ref, ())

    def beside(self, pod: Pod) -> list[Pod]:
        """The other pods of a pod's workload."""
        ref = WorkloadRef(pod.namespace, pod.workload or "")
        return [one for one in self.of(ref) if one.ref != pod.ref]

    def missing(self, workload: Workload) -> int:
        """How many pods are nowhere to be seen: an evicted one has gone, and its controller has not made another."""
        there = [one for one in self.of(workload.ref) if one.phase not in kubelet.FINISHED_PHASES]
        return max(workload.replicas - len(there), 0)
