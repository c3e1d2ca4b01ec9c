"""A cluster that lives in virtual time: nodes, pods, and kubelets that answer by the rules of `core.kubelet`.

It stands behind the same port as the real cluster. Every value in it is frozen and replaced as a whole, so a snapshot
that was handed out never changes. How long a kubelet takes is what a real one (1.37.2) was seen to take.

Not modelled: contention for CPU between pods, crash-loop back-off, LimitRange and ResourceQuota, the scheduler beyond
"the first node with room".
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from types import MappingProxyType

from autoscaler.core.actions import ContainerResize, Move, Outcome, OutcomeKind, Resize
from autoscaler.core.history import ContainerRef
from autoscaler.core.kubelet import (
    Answer,
    Verdict,
    admit,
    allocated,
    allocated_on,
    desired,
    footprint,
    holds_room,
    memory_decrease_error,
    reserved,
    resized,
    restarts,
    retry_order,
)
from autoscaler.core.model import (
    ClusterSnapshot,
    Condition,
    Container,
    ContainerKind,
    Node,
    Pod,
    PodRef,
    Resource,
    Resources,
    Termination,
)
from autoscaler.core.resize import IN_PROGRESS, PENDING
from autoscaler.core.units import Bytes
from autoscaler.simulator.admission import Refusal, submit
from autoscaler.simulator.traces import Demand
from autoscaler.simulator.usage import UsageRecord

_DECIDES = timedelta(seconds=0.2)  # seen: 0.1 to 0.34 s
_APPLIES = timedelta(seconds=0.5)  # seen: 0.5 to 1.9 s
_REPORTS_ERROR = timedelta(seconds=12.5)  # seen: reason Error 12 to 14 s after the ask
_RETRIES_ERROR = timedelta(seconds=13)  # about every 10 to 15 s
_FIRST_RETRY = timedelta(seconds=30)
_NEXT_RETRY = timedelta(minutes=3)
_RESTARTS = timedelta(seconds=2.3)  # seen after an OOM kill; 2.2 to 8.5 s for a restart by resizePolicy
_STOPS = timedelta(seconds=2.6)  # an evicted pod was gone after 2.6 to 5.6 s
_STARTS = timedelta(seconds=3.7)
_SCHEDULER_RETRIES = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class _Grant:
    """What a kubelet has set aside for a pod, limits included, which the API does not show; and since which spec."""

    uid: str
    generation: int
    resources: Mapping[str, Resources]


class SimulatedCluster:
    """`ports.Cluster` over a model. Time passes only in `advance`.

    `usage_step`: how often memory in use is compared with the limit in force; give the step of the recordings.
    `server_minor`: what the API server says of its version; it behaves as 37 all the same.
    """

    def __init__(
        self, now: datetime, usage_step: timedelta = timedelta(seconds=60), *, server_minor: int | None = 37
    ) -> None:
        self._now, self._usage_step, self._server_minor = now, usage_step, server_minor
        self._nodes: dict[str, Node] = {}
        self._static_cpu: set[str] = set()
        self._swap: set[str] = set()
        self._silent_until: dict[str, datetime] = {}
        self._pods: dict[PodRef, Pod] = {}
        self._templates: dict[PodRef, Pod] = {}
        self._grants: dict[PodRef, _Grant] = {}
        self._usage: dict[ContainerRef, UsageRecord] = {}
        self._events: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order, self._versions = count(), count(1)
        self._changed: set[PodRef] = set()
        self._later(usage_step, self._check_memory)

    # ---- the port

    async def observe(self) -> ClusterSnapshot:
        """The state at this moment of virtual time."""
        pods, nodes = MappingProxyType(dict(self._pods)), MappingProxyType(dict(self._nodes))
        return ClusterSnapshot(self._now, pods, nodes, server_minor=self._server_minor)

    async def move(self, move: Move) -> Outcome:
        raise NotImplementedError

    async def perform(self, action: Resize) -> Outcome:
        """Store the ask if the pod is still the one that was decided about; its kubelet answers later."""
        pod = self._pods.get(action.pod)
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
        self._nodes[node.name] = node
        for has, nodes in ((static_cpu, self._static_cpu), (swap, self._swap)):
            (nodes.add if has else nodes.discard)(node.name)

    def silence(self, node: str, until: datetime) -> None:
        """Until then the node's kubelet answers and applies nothing; then it catches up."""
        self._silent_until[node] = until

    def add_pod(self, pod: Pod, demand: Mapping[str, Demand], *, since: datetime | None = None) -> None:
        """Add a running pod, bound to a node, at the size of its spec. `demand`: by container name.

        `since`: when it started, in the past, for a usage history. A pod whose workload is a StatefulSet comes back
        under its name and at this size whenever it is deleted.
        """
        began = since or self._now
        for container in pod.containers:
            if container.kind is not ContainerKind.INIT:
                self._usage[ContainerRef(*pod.ref, container.name)] = UsageRecord(demand[container.name])
        self._templates[pod.ref] = pod
        self._start(pod, began)

    def resize(self, ref: PodRef, changes: tuple[ContainerResize, ...], manager: str) -> Outcome:
        """Anyone's patch to `pods/resize`, under the name that `managedFields` will show. The pod must exist."""
        pod = self._pods[ref]
        stored = submit(pod, changes, self._nodes.get(pod.node or ""), manager, self._now)
        if isinstance(stored, Refusal):
            return Outcome(OutcomeKind.REFUSED, stored.message, stored.cause)
        if stored != pod:
            self._put(stored)
            self._kubelet_later(_DECIDES, ref, partial(self._decide, ref, pod.uid, stored.generation))
        return Outcome(OutcomeKind.ACCEPTED)

    def delete_pod(self, ref: PodRef) -> None:
        """Delete a pod; it stops first, and its StatefulSet (if it has one) replaces it."""
        pod = self._pods[ref]
        self._put(replace(pod, deleting=True))
        self._later(_STOPS, partial(self._remove, ref, pod.uid))

    # ---- virtual time

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return self._now

    @property
    def next_event_at(self) -> datetime:
        """When something will happen next by itself."""
        return self._events[0][0]

    def advance(self, until: datetime) -> frozenset[PodRef]:
        """Let everything happen up to and including `until`; which pods have changed since the last call."""
        while self._events[0][0] <= until:
            self._now, _, happen = heapq.heappop(self._events)
            happen()
        self._now = max(self._now, until)
        changed, self._changed = frozenset(self._changed), set()
        return changed

    def usage_of(self, container: ContainerRef) -> UsageRecord | None:
        """What a container has used so far."""
        return self._usage.get(container)

    def usage_in(self, pods: AbstractSet[PodRef]) -> dict[ContainerRef, UsageRecord]:
        """The same of all containers of these pods."""
        return {container: record for container, record in self._usage.items() if container.pod_ref in pods}

    def _later(self, delay: timedelta, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + delay, next(self._order), happen))

    def _kubelet_later(self, delay: timedelta, ref: PodRef, happen: Callable[[], None]) -> None:
        def unless_silent() -> None:
            until = self._silent_until.get(pod.node or "") if (pod := self._pods.get(ref)) is not None else None
            if until is not None and self._now < until:
                self._later(until - self._now, unless_silent)
            else:
                happen()

        self._later(delay, unless_silent)

    def _put(self, pod: Pod, *, at: datetime | None = None) -> None:
        """Store a new version of a pod; what it may use from now on follows from it."""
        if pod == self._pods.get(pod.ref):
            return
        self._pods[pod.ref] = replace(pod, resource_version=str(next(self._versions)))
        self._changed.add(pod.ref)
        for container in pod.containers:
            ref = ContainerRef(*pod.ref, container.name)
            if (record := self._usage.get(ref)) is not None:
                self._usage[ref] = record.since(at or self._now, container)

    def _pod(self, ref: PodRef, uid: str) -> Pod | None:
        pod = self._pods.get(ref)
        return pod if pod is not None and pod.uid == uid else None

    def _pods_on(self, node: str) -> Iterable[Pod]:
        return [pod for pod in self._pods.values() if pod.node == node]

    # ---- the kubelet: decide, apply, try again

    def _decide(self, ref: PodRef, uid: str, generation: int, retry_after: timedelta | None = _FIRST_RETRY) -> None:
        """Decide about the newest spec. `retry_after`: when the timer looks again if it is deferred."""
        pod = self._pod(ref, uid)
        if pod is None or pod.generation != generation or pod.node is None or pod.deleting:
            return
        others = allocated_on(other for other in self._pods_on(pod.node) if other.ref != ref)
        static = frozenset({Resource.CPU} if pod.node in self._static_cpu else ())
        answer = admit(pod, self._nodes[pod.node], others, static)
        if (grant := self._grants.get(ref)) is not None and grant.resources == {c.name: c.spec for c in pod.containers}:
            answer = Answer(Verdict.ACCEPTED)  # nothing to decide, however little the node can allocate by now
        elif pod.node in self._swap and footprint(pod, desired).memory != footprint(pod, allocated).memory:
            answer = Answer(Verdict.INFEASIBLE, "In-place resize of containers with swap is not supported.")
        if answer.verdict is not Verdict.ACCEPTED:
            self._put(self._with_condition(pod, PENDING, generation, answer.verdict, answer.message))
            if retry_after is not None and answer.verdict is Verdict.DEFERRED:
                self._kubelet_later(retry_after, ref, partial(self._retry, ref, uid, generation))
            return
        containers = tuple(replace(container, allocated=container.spec.requests) for container in pod.containers)
        accepted = _without_condition(replace(pod, containers=containers), PENDING)
        self._grants[ref] = _Grant(uid, generation, {c.name: c.spec for c in pod.containers})
        self._put(self._with_condition(accepted, IN_PROGRESS, generation))
        self._kubelet_later(_APPLIES, ref, partial(self._apply, ref, uid, generation))

    def _retry(self, ref: PodRef, uid: str, generation: int) -> None:
        pod = self._pod(ref, uid)
        if pod is not None and _deferred(pod):
            self._decide(ref, uid, generation, _NEXT_RETRY)

    def _apply(self, ref: PodRef, uid: str, generation: int, first: bool = True) -> None:
        """Write the granted sizes into the cgroups, unless a later grant has replaced this one."""
        pod, grant = self._pod(ref, uid), self._grants.get(ref)
        if pod is None or grant is None or (grant.uid, grant.generation) != (uid, generation):
            return
        granted = resized(pod, grant.resources)
        if (error := memory_decrease_error(granted, self._memory_in_use(pod))) is not None:
            if not first:
                self._put(self._with_condition(pod, IN_PROGRESS, generation, "Error", error))
            delay = _REPORTS_ERROR if first else _RETRIES_ERROR
            self._kubelet_later(delay, ref, partial(self._apply, ref, uid, generation, False))
            return
        running = {container.name for container in pod.containers if container.running}
        restarting = running.intersection(restarts(pod, granted))
        containers = tuple(replace(c, actual=grant.resources[c.name]) for c in pod.containers)
        self._put(_without_condition(replace(pod, containers=containers), IN_PROGRESS))
        for name in sorted(restarting):
            self._stop(ref, name, Termination("Completed", 0, self._now))
        self._kill_over_limit(ref)
        self._room_appeared(pod.node)

    def _room_appeared(self, node: str | None) -> None:
        if self._now < self._silent_until.get(node or "", self._now):
            return
        pending = [
            (pod, ask.at) for pod in self._pods_on(node or "") if _deferred(pod) and (ask := pod.newest_ask) is not None
        ]
        for pod in retry_order(pending):
            self._decide(pod.ref, pod.uid, pod.generation, None)

    def _with_condition(self, pod: Pod, kind: str, generation: int, reason: str = "", message: str = "") -> Pod:
        old = pod.condition(kind)
        moved_at = old.last_transition_at if old is not None and old.reason == reason else self._now
        rest = _without_condition(pod, kind).conditions
        new = Condition(kind, "True", reason, message, generation, moved_at)
        return replace(pod, conditions=(*rest, new), observed_generation=max(pod.observed_generation, generation))

    # ---- containers: memory in use, kills, restarts

    def _check_memory(self) -> None:
        for ref in tuple(self._pods):
            self._kill_over_limit(ref)
        self._later(self._usage_step, self._check_memory)

    def _kill_over_limit(self, ref: PodRef) -> None:
        for container in self._pods[ref].containers:
            limit = container.in_force.limits.memory
            record = self._usage.get(ContainerRef(*ref, container.name))
            if not container.running or limit is None or record is None:
                continue
            if record.wanted_memory(self._now) > limit:
                self._stop(ref, container.name, Termination("OOMKilled", 137, self._now))

    def _memory_in_use(self, pod: Pod) -> dict[str, Bytes]:
        """Of running containers, as their cgroups would show it: page cache included, never above the limit."""
        records = {c.name: self._usage.get(ContainerRef(*pod.ref, c.name)) for c in pod.containers if c.running}
        return {name: record.memory_in_use(self._now) for name, record in records.items() if record is not None}

    def _stop(self, ref: PodRef, name: str, termination: Termination) -> None:
        pod = self._pods[ref]
        self._put(_with_container(pod, name, lambda c: replace(c, running=False, last_terminated=termination)))
        self._later(_RESTARTS, partial(self._start_again, ref, pod.uid, name))

    def _start_again(self, ref: PodRef, uid: str, name: str) -> None:
        if (pod := self._pod(ref, uid)) is not None:
            again = partial(replace, running=True, started_at=self._now)
            self._put(_with_container(pod, name, lambda c: again(c, restart_count=c.restart_count + 1)))

    # ---- StatefulSet and scheduler

    def _remove(self, ref: PodRef, uid: str) -> None:
        pod = self._pod(ref, uid)
        if pod is None:
            return
        del self._pods[ref]
        self._grants.pop(ref, None)
        self._changed.add(ref)
        for container in pod.containers:
            usage = ContainerRef(*ref, container.name)
            if usage in self._usage:
                self._usage[usage] = self._usage[usage].ended(self._now)
        self._room_appeared(pod.node)
        template = self._templates[ref]
        if (template.workload or "").startswith("StatefulSet/"):
            name, _, incarnation = uid.partition("#")
            again = replace(template, uid=f"{name}#{int(incarnation or 1) + 1}", node=None, phase="Pending")
            self._put(replace(again, containers=tuple(replace(c, running=False) for c in again.containers)))
            self._schedule(ref, again.uid, pod.node)

    def _schedule(self, ref: PodRef, uid: str, preferred: str | None) -> None:
        pod = self._pod(ref, uid)
        if pod is None:
            return
        nodes = sorted(self._nodes.values(), key=lambda node: node.name != preferred)
        node = next((node for node in nodes if node.ready and self._has_room(node, pod)), None)
        if node is None:
            self._later(_SCHEDULER_RETRIES, partial(self._schedule, ref, uid, preferred))
            return
        self._put(replace(pod, node=node.name))
        self._later(_STARTS, partial(self._start_pod, ref, uid))

    def _has_room(self, node: Node, pod: Pod) -> bool:
        wanted = footprint(pod, desired)
        taken = [reserved(other) for other in self._pods_on(node.name) if holds_room(other)]
        return all(
            (capacity := node.allocatable.get(resource)) is None
            or (wanted.get(resource) or 0) + sum(t.get(resource) or 0 for t in taken) <= capacity
            for resource in Resource
        )

    def _start_pod(self, ref: PodRef, uid: str) -> None:
        pod = self._pod(ref, uid)
        if pod is not None and not pod.deleting:
            self._start(replace(pod, phase="Running"), self._now)

    def _start(self, pod: Pod, at: datetime) -> None:
        self._grants[pod.ref] = _Grant(pod.uid, pod.generation, {c.name: c.spec for c in pod.containers})
        self._put(_started(pod, at), at=at)


def _started(pod: Pod, at: datetime) -> Pod:
    """The pod as its kubelet reports it once everything runs at the size of the spec."""
    containers = tuple(
        replace(
            c,
            allocated=c.spec.requests,
            actual=c.spec,
            running=c.kind is not ContainerKind.INIT,
            ended=c.kind is ContainerKind.INIT,
            started_at=at,
        )
        for c in pod.containers
    )
    return replace(pod, containers=containers, observed_generation=pod.generation)


def _deferred(pod: Pod) -> bool:
    pending = pod.condition(PENDING)
    return pending is not None and pending.reason == "Deferred" and pending.observed_generation == pod.generation


def _without_condition(pod: Pod, kind: str) -> Pod:
    return replace(pod, conditions=tuple(condition for condition in pod.conditions if condition.type != kind))


def _with_container(pod: Pod, name: str, change: Callable[[Container], Container]) -> Pod:
    return replace(pod, containers=tuple(change(c) if c.name == name else c for c in pod.containers))
