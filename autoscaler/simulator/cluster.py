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

from autoscaler.core.actions import ContainerResize, Evict, Move, Outcome, OutcomeKind, Resize, Scale
from autoscaler.core.history import ContainerRef
from autoscaler.core.model import (
    Autoscaler,
    Capability,
    ClusterSnapshot,
    ContainerKind,
    Node,
    Pod,
    PodRef,
    Workload,
    WorkloadRef,
)
from autoscaler.core.scheduling import DisruptionBudget, Storage, Taint
from autoscaler.simulator import disruptions
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
    `server_minor`: what the API server says of its version; it behaves as 37 all the same. `capabilities`: what is
    permitted. `autoscalers` and `storage`: what is observed of them; `storage` binds no pod here.
    """

    def __init__(
        self,
        now: datetime,
        usage_step: timedelta = timedelta(seconds=60),
        *,
        server_minor: int | None = 37,
        capabilities: AbstractSet[Capability] = frozenset(Capability),
    ) -> None:
        self._server_minor = server_minor
        self.capabilities = frozenset(capabilities)
        self.autoscalers: tuple[Autoscaler, ...] = ()
        self.storage = Storage()
        self.state = State(now)
        self.kubelets = Kubelets(self.state, usage_step)
        self.scheduler = Scheduler(self.state)
        self._controllers = Controllers(self.state, self.kubelets.ready_since)
        self._budgets: dict[tuple[str, str], DisruptionBudget] = {}
        self.state.watchers += [self.kubelets.watch, self._controllers.watch, self.scheduler.watch]

    # ---- the port

    async def observe(self) -> ClusterSnapshot:
        """The state at this moment of virtual time."""
        state, migrates = self.state, Capability.MIGRATE in self.capabilities
        return ClusterSnapshot(
            self.now,
            MappingProxyType(dict(state.pods)),
            MappingProxyType(dict(state.nodes)),
            autoscalers=self.autoscalers if Capability.AUTOSCALERS in self.capabilities else (),
            server_minor=self._server_minor,
            workloads=MappingProxyType(dict(state.workloads)),
            disruption_budgets=self._counted() if migrates else (),
            storage=self.storage if migrates else Storage(),
            capabilities=self.capabilities,
        )

    def _counted(self) -> tuple[DisruptionBudget, ...]:
        return tuple(disruptions.counted(budget, self.state.pods.values()) for budget in self._budgets.values())

    async def move(self, move: Move) -> Outcome:
        """Evict or scale, if what it is about is still as it was decided about; controllers and kubelets do the rest
        later."""
        return self._evict(move) if isinstance(move, Evict) else self._scale(move)

    def _evict(self, move: Evict) -> Outcome:
        pod = self.state.pods.get(move.pod)
        if (outcome := _outdated(str(move.pod), pod, move)) is not None or pod is None:
            return outcome or Outcome(OutcomeKind.GONE)
        if Capability.MIGRATE not in self.capabilities:
            return Outcome(OutcomeKind.FORBIDDEN, 'cannot create resource "pods/eviction"')
        if (refused := disruptions.objection(pod, self._budgets.values(), self.state.pods.values())) is not None:
            return refused
        self.state.delete(pod, disrupted=True)
        return Outcome(OutcomeKind.ACCEPTED)

    def _scale(self, move: Scale) -> Outcome:
        workload = self.state.workloads.get(move.workload)
        if (outcome := _outdated(str(move.workload), workload, move)) is not None:
            return outcome
        if Capability.SURGE not in self.capabilities:
            return Outcome(OutcomeKind.FORBIDDEN, 'cannot patch resource "deployments/scale"')
        self.scale(move.workload, move.replicas, move.kind)
        return Outcome(OutcomeKind.ACCEPTED)

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

    def cordon(self, node: str) -> None:
        """Let no further pod onto a node."""
        self.state.put_node(replace(self.state.nodes[node], unschedulable=True))

    def uncordon(self, node: str) -> None:
        """Let pods onto a node again."""
        self.state.put_node(replace(self.state.nodes[node], unschedulable=False))

    def taint(self, node: str, *taints: Taint) -> None:
        """Set the taints of a node; they drive nobody away who is there."""
        self.state.put_node(replace(self.state.nodes[node], taints=taints))

    def remove_node(self, node: str) -> None:
        """Delete a node; a minute later its pods are collected, if it has not come back."""
        self.state.drop_node(node)
        self._controllers.node_gone(node)

    def add_budget(self, budget: DisruptionBudget) -> None:
        """Add a PodDisruptionBudget or replace one. `desired` is its `minAvailable`; the pods give the rest."""
        self._budgets[budget.namespace, budget.name] = budget

    def remove_budget(self, namespace: str, name: str) -> None:
        """Delete a PodDisruptionBudget, if it is there."""
        self._budgets.pop((namespace, name), None)

    def add_workload(self, workload: Workload, template: Pod, demand: Mapping[str, Demand]) -> None:
        """Add a StatefulSet, ReplicaSet or Deployment, or give it another template, of which the containers' `spec`,
        labels, annotations, priority, overhead and `scheduling` count.

        The pods that it lacks are made when time goes on; those of a Deployment x are named x-abc-1, x-abc-2, ..., and
        owned by ReplicaSet/x-abc. `demand`: of each of its pods, by container name.
        """
        self._controllers.add(workload, template, demand)

    def add_pod(self, pod: Pod, demand: Mapping[str, Demand], *, since: datetime | None = None) -> None:
        """Add a running pod, bound to a node, at the size of its spec. `demand`: by container name.

        `since`: when it started, in the past, for a usage history. Where its workload was not added, that has as many
        pods as are added, and a pod comes back as it is now: one of a StatefulSet under its own name.
        """
        for container in pod.containers:
            if container.kind is not ContainerKind.INIT:
                self.state.usage[ContainerRef(*pod.ref, container.name)] = UsageRecord(demand[container.name])
        began_at = since or self.now
        created_at = pod.created_at or began_at.replace(microsecond=0)
        self.kubelets.start(replace(self._controllers.adopt(pod, demand), created_at=created_at), began_at)

    def ready_after(self, workload: WorkloadRef, delay: timedelta | None) -> None:
        """How long pods of a workload run from now on before they are Ready; None: they never are."""
        self.kubelets.ready_after[workload] = delay

    def scale(self, workload: WorkloadRef, replicas: int, manager: str | None) -> None:
        """Anyone's change of the number of replicas: through the subresource `scale`, under the name that
        `managedFields` will show, or, without one, in another way."""
        self._controllers.scale(workload, replicas, manager)

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
        """Delete a pod; it stops first, and its workload, if that is of a kind that does so, makes another one."""
        self.state.delete(self.state.pods[ref])

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


def _outdated(name: str, now: Pod | Workload | None, move: Move) -> Outcome | None:
    """The answer to a move whose object is not the one that was decided about, or has changed since."""
    if now is None or now.uid != move.uid:
        return Outcome(OutcomeKind.GONE, f"{name} with uid {move.uid} is gone")
    if now.resource_version != move.resource_version:
        detail = f"resourceVersion {now.resource_version}, decided on {move.resource_version}"
        return Outcome(OutcomeKind.SUPERSEDED, detail)
    return None
