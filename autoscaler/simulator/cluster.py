"""A cluster that lives in virtual time: nodes, pods, and what answers and replaces them.

It stands behind the same port as the real cluster. Every value in it is frozen and replaced as a whole, so a snapshot
that was handed out never changes.

Not modelled: LimitRange and ResourceQuota, and what the modules of kubelets, scheduler and controllers say of
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType

from autoscaler.core.actions import ContainerResize, Move, Outcome, OutcomeKind, Resize
from autoscaler.core.history import ContainerRef
from autoscaler.core.model import ClusterSnapshot, ContainerKind, Node, Pod, PodRef
from autoscaler.simulator.admission import Refusal, submit
from autoscaler.simulator.controllers import Controllers
from autoscaler.simulator.kubelets import Kubelets
from autoscaler.simulator.scheduler import Scheduler
from autoscaler.simulator.state import State
from autoscaler.simulator.traces import Demand
from autoscaler.simulator.usage import UsageRecord


class SimulatedCluster:
    """`ports.Cluster` over a model. Time passes only in `advance`.

    `usage_step`: how often memory in use is compared with the limit in force; give the step of the recordings.
    `server_minor`: what the API server says of its version; it behaves as 37 all the same.
    """

    def __init__(
        self, now: datetime, usage_step: timedelta = timedelta(seconds=60), *, server_minor: int | None = 37
    ) -> None:
        self._server_minor = server_minor
        self.state = State(now)
        self.kubelets = Kubelets(self.state, usage_step)
        self.scheduler = Scheduler(self.state)
        self._controllers = Controllers(self.state, self.scheduler)
        self.state.watchers += [self.kubelets.watch, self._controllers.watch]

    # ---- the port

    async def observe(self) -> ClusterSnapshot:
        """The state at this moment of virtual time."""
        pods, nodes = MappingProxyType(dict(self.state.pods)), MappingProxyType(dict(self.state.nodes))
        return ClusterSnapshot(self.now, pods, nodes, server_minor=self._server_minor)

    async def move(self, move: Move) -> Outcome:
        raise NotImplementedError

    async def perform(self, action: Resize) -> Outcome:
        """Store the ask if the pod is still the one that was decided about; its kubelet answers later."""
        pod = self.state.pods.get(action.pod)
        if pod is None or pod.uid != action.uid:
            return Outcome(OutcomeKind.GONE, f"{action.pod} with uid {action.uid} is gone")
        if pod.generation != action.generation:
            detail = f"generation {pod.generation}, decided on {action.generation}"
            return Outcome(OutcomeKind.SUPERSEDED, detail)
        return self.resize(action.pod, action.containers, action.kind)

    # ---- what others do to the cluster

    def add_node(self, node: Node, *, static_cpu: bool = False, swap: bool = False) -> None:
        """Add a node or replace one. What no API shows: `static_cpu`: its kubelet runs CPU manager policy static.
        `swap`: it gives containers swap, so that no memory request can change."""
        self.state.put_node(node)
        for has, nodes in ((static_cpu, self.kubelets.static_cpu), (swap, self.kubelets.swap)):
            (nodes.add if has else nodes.discard)(node.name)

    def silence(self, node: str, until: datetime) -> None:
        """Until then the node's kubelet answers and applies nothing; then it catches up."""
        self.kubelets.silence(node, until)

    def add_pod(self, pod: Pod, demand: Mapping[str, Demand], *, since: datetime | None = None) -> None:
        """Add a running pod, bound to a node, at the size of its spec. `demand`: by container name.

        `since`: when it started, in the past, for a usage history. A pod whose workload is a StatefulSet comes back
        under its name and at this size whenever it is deleted.
        """
        for container in pod.containers:
            if container.kind is not ContainerKind.INIT:
                self.state.usage[ContainerRef(*pod.ref, container.name)] = UsageRecord(demand[container.name])
        self._controllers.adopt(pod)
        self.kubelets.start(pod, since or self.now)

    def resize(self, ref: PodRef, changes: tuple[ContainerResize, ...], manager: str) -> Outcome:
        """Anyone's patch to `pods/resize`, under the name that `managedFields` will show. The pod must exist."""
        pod = self.state.pods[ref]
        stored = submit(pod, changes, self.state.nodes.get(pod.node or ""), manager, self.now)
        if isinstance(stored, Refusal):
            return Outcome(OutcomeKind.REFUSED, stored.message, stored.cause)
        if stored != pod:
            self.state.put(stored)
            self.kubelets.asked(stored)
        return Outcome(OutcomeKind.ACCEPTED)

    def delete_pod(self, ref: PodRef) -> None:
        """Delete a pod; it stops first, and its StatefulSet (if it has one) replaces it."""
        self.state.put(replace(self.state.pods[ref], deleting=True))

    # ---- virtual time

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return self.state.now

    @property
    def next_event_at(self) -> datetime:
        """When something will happen next by itself."""
        return self.state.next_event_at

    def advance(self, until: datetime) -> frozenset[PodRef]:
        """Let everything happen up to and including `until`; which pods have changed since the last call."""
        return self.state.advance(until)

    def usage_of(self, container: ContainerRef) -> UsageRecord | None:
        """What a container has used so far."""
        return self.state.usage.get(container)

    def usage_in(self, pods: AbstractSet[PodRef]) -> dict[ContainerRef, UsageRecord]:
        """The same of all containers of these pods."""
        return {container: record for container, record in self.state.usage.items() if container.pod_ref in pods}
