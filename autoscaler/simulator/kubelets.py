"""The kubelets of a simulated cluster: they start and stop pods, and answer resizes by the rules of `core.kubelet`.

How long they take is what a real one (1.37.2) was seen to take. Not modelled: contention for CPU between pods, and
crash-loop back-off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from autoscaler.core.history import ContainerRef
from autoscaler.core.kubelet import (
    FINISHED_PHASES,
    Answer,
    Verdict,
    admit,
    allocated,
    allocated_on,
    counted,
    desired,
    footprint,
    memory_decrease_error,
    resized,
    restarts,
    retry_order,
)
from autoscaler.core.model import (
    RESOURCES,
    Condition,
    Container,
    ContainerKind,
    Pod,
    PodRef,
    Resource,
    Resources,
    Termination,
    WorkloadRef,
)
from autoscaler.core.resize import IN_PROGRESS, PENDING
from autoscaler.core.units import Bytes
from autoscaler.simulator.state import State

_DECIDES = timedelta(seconds=0.2)  # seen: 0.1 to 0.34 s
_APPLIES = timedelta(seconds=0.5)  # seen: 0.5 to 1.9 s
_REPORTS_ERROR = timedelta(seconds=12.5)  # seen: reason Error 12 to 14 s after the ask
_RETRIES_ERROR = timedelta(seconds=13)  # about every 10 to 15 s
_FIRST_RETRY = timedelta(seconds=30)
_NEXT_RETRY = timedelta(minutes=3)
_RESTARTS = timedelta(seconds=2.3)  # seen after an OOM kill; 2.2 to 8.5 s for a restart by resizePolicy
_STOPS = timedelta(seconds=2.6)  # an evicted pod was gone after 2.6 to 5.6 s
_STARTS = timedelta(seconds=3.7)
_READY = timedelta(seconds=5)  # of a readiness probe that needs a while
_IP = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class _Grant:
    """What a kubelet has set aside for a pod, limits included, which the API does not show; and since which spec."""

    uid: str
    generation: int
    resources: Mapping[str, Resources]


class Kubelets:
    """One for each node. `usage_step`: how often memory in use is compared with the limit in force.

    What no API shows: `static_cpu`: nodes whose kubelet runs CPU manager policy static. `swap`: nodes that give
    containers swap, so that no memory request can change. `ready_after`: how long pods of a workload run before they
    are Ready; None: they never are.
    """

    def __init__(self, state: State, usage_step: timedelta) -> None:
        self.static_cpu: set[str] = set()
        self.swap: set[str] = set()
        self.ready_after: dict[WorkloadRef, timedelta | None] = {}
        self.ready_since: dict[str, datetime] = {}  # by uid, kept while a container restarts
        self._state, self._usage_step = state, usage_step
        self._silent_until: dict[str, datetime] = {}
        self._grants: dict[PodRef, _Grant] = {}
        self._starting: set[str] = set()
        self._stopping: set[str] = set()
        state.later(usage_step, self._check_memory)

    def silence(self, node: str, until: datetime) -> None:
        """Until then the node's kubelet answers and applies nothing; then it catches up."""
        self._silent_until[node] = until

    def watch(self, pod: Pod | None) -> None:
        """Start what was bound, stop what is being deleted."""
        if pod is None or pod.node is None:
            return
        if pod.deleting and pod.uid not in self._stopping:
            self._stopping.add(pod.uid)
            self._later(_STOPS, pod.ref, partial(self._stopped, pod.ref, pod.uid))
        elif pod.phase == "Pending" and pod.uid not in self._starting:
            self._starting.add(pod.uid)
            self._later(_STARTS, pod.ref, partial(self._start_pod, pod.ref, pod.uid))

    def asked(self, pod: Pod) -> None:
        """A spec has changed: decide about it."""
        self._later(_DECIDES, pod.ref, partial(self._decide, pod.ref, pod.uid, pod.generation))

    def start(self, pod: Pod, at: datetime) -> None:
        """Have a pod run at the size of its spec since `at`."""
        self._grants[pod.ref] = _Grant(pod.uid, pod.generation, {c.name: c.spec for c in pod.containers})
        if pod.ready:
            self.ready_since[pod.uid] = at
        self._state.put(_started(replace(pod, ip=pod.ip or _IP), at), at=at)

    def _start_pod(self, ref: PodRef, uid: str) -> None:
        pod = self._state.pod(ref, uid)
        if pod is None or pod.deleting:
            return
        self.start(replace(pod, phase="Running"), self._state.now)
        delay = self.ready_after.get(WorkloadRef(pod.namespace, pod.workload or ""), _READY)
        if delay is not None:
            self._later(delay, ref, partial(self._ready, ref, uid))

    def _ready(self, ref: PodRef, uid: str) -> None:
        if (pod := self._state.pod(ref, uid)) is not None:
            self.ready_since[uid] = self._state.now
            self._state.put(replace(pod, ready=_runs(pod)))

    def _stopped(self, ref: PodRef, uid: str) -> None:
        if (pod := self._state.pod(ref, uid)) is not None:
            self._grants.pop(ref, None)
            self._state.drop(pod)
            self._room_appeared(pod.node)

    def _later(self, delay: timedelta, ref: PodRef, happen: Callable[[], None]) -> None:
        state = self._state

        def unless_silent() -> None:
            node = pod.node or "" if (pod := state.pods.get(ref)) is not None else ""
            until = self._silent_until.get(node)
            if node and node not in state.nodes:
                return  # nothing is heard of a kubelet whose node is gone
            if until is not None and state.now < until:
                state.later(until - state.now, unless_silent)
            else:
                happen()

        state.later(delay, unless_silent)

    # ---- decide, apply, try again

    def _decide(self, ref: PodRef, uid: str, generation: int, retry_after: timedelta | None = _FIRST_RETRY) -> None:
        """Decide about the newest spec. `retry_after`: when the timer looks again if it is deferred."""
        pod = self._state.pod(ref, uid)
        if pod is None or pod.generation != generation or pod.node not in self._state.nodes or pod.deleting:
            return
        if pod.phase in FINISHED_PHASES:
            return  # its kubelet is done with it
        others = allocated_on(other for other in self._state.pods_on(pod.node) if other.ref != ref)
        static = frozenset({Resource.CPU} if pod.node in self.static_cpu else ())
        answer = admit(pod, self._state.nodes[pod.node], others, static)
        if (grant := self._grants.get(ref)) is not None and grant.resources == {c.name: c.spec for c in pod.containers}:
            answer = Answer(Verdict.ACCEPTED)  # nothing to decide, however little the node can allocate by now
        elif pod.node in self.swap and footprint(pod, desired).memory != footprint(pod, allocated).memory:
            answer = Answer(Verdict.INFEASIBLE, "In-place resize of containers with swap is not supported.")
        if answer.verdict is not Verdict.ACCEPTED:
            self._state.put(self._with_condition(pod, PENDING, generation, answer.verdict, answer.message))
            if retry_after is not None and answer.verdict is Verdict.DEFERRED:
                self._later(retry_after, ref, partial(self._retry, ref, uid, generation))
            return
        containers = tuple(  # a kubelet says nothing of a container that has never run
            c if c.allocated is None else replace(c, allocated=c.spec.requests) for c in pod.containers
        )
        accepted = _without_condition(replace(pod, containers=containers), PENDING)
        self._grants[ref] = _Grant(uid, generation, {c.name: c.spec for c in pod.containers})
        self._state.put(self._with_condition(accepted, IN_PROGRESS, generation))
        self._later(_APPLIES, ref, partial(self._apply, ref, uid, generation))
        self._changed(pod, accepted)

    def _retry(self, ref: PodRef, uid: str, generation: int) -> None:
        pod = self._state.pod(ref, uid)
        if pod is not None and _deferred_since(pod) is not None:
            self._decide(ref, uid, generation, _NEXT_RETRY)

    def _apply(self, ref: PodRef, uid: str, generation: int, first: bool = True) -> None:
        """Write the granted sizes into the cgroups, unless a later grant has replaced this one."""
        pod, grant = self._state.pod(ref, uid), self._grants.get(ref)
        if pod is None or grant is None or (grant.uid, grant.generation) != (uid, generation):
            return
        granted = resized(pod, grant.resources)
        if (error := memory_decrease_error(granted, self._memory_in_use(pod))) is not None:
            if not first:
                self._state.put(self._with_condition(pod, IN_PROGRESS, generation, "Error", error))
            delay = _REPORTS_ERROR if first else _RETRIES_ERROR
            self._later(delay, ref, partial(self._apply, ref, uid, generation, False))
            return
        running = {container.name for container in pod.containers if container.running}
        restarting = running.intersection(restarts(pod, granted))
        containers = tuple(
            c if c.actual is None else replace(c, actual=grant.resources[c.name]) for c in pod.containers
        )
        applied = _without_condition(replace(pod, containers=containers), IN_PROGRESS)
        self._state.put(applied)
        for name in sorted(restarting):
            self._stop(ref, name, Termination("Completed", 0, self._state.now))
        self._kill_over_limit(ref)
        self._changed(pod, applied)

    def _changed(self, before: Pod, after: Pod) -> None:
        had, has = counted(before), counted(after)
        if any((has.get(resource) or 0) < (had.get(resource) or 0) for resource in RESOURCES):
            self._room_appeared(after.node)

    def _room_appeared(self, node: str | None) -> None:
        if self._state.now < self._silent_until.get(node or "", self._state.now):
            return
        here = self._state.pods_on(node)
        pending = [(pod, since) for pod in here if (since := _deferred_since(pod)) is not None]
        for pod in retry_order(pending):
            self._decide(pod.ref, pod.uid, pod.generation, None)

    def _with_condition(self, pod: Pod, kind: str, generation: int, reason: str = "", message: str = "") -> Pod:
        old = pod.condition(kind)
        moved_at = old.last_transition_at if old is not None and old.reason == reason else self._state.now
        rest = _without_condition(pod, kind).conditions
        new = Condition(kind, "True", reason, message, generation, moved_at)
        return replace(pod, conditions=(*rest, new), observed_generation=max(pod.observed_generation, generation))

    # ---- containers: memory in use, kills, restarts

    def _check_memory(self) -> None:
        for ref in tuple(self._state.pods):
            self._kill_over_limit(ref)
        self._state.later(self._usage_step, self._check_memory)

    def _kill_over_limit(self, ref: PodRef) -> None:
        for container in self._state.pods[ref].containers:
            limit = container.in_force.limits.memory
            record = self._state.usage.get(ContainerRef(*ref, container.name))
            if not container.running or limit is None or record is None:
                continue
            if record.wanted_memory(self._state.now) > limit:
                self._stop(ref, container.name, Termination("OOMKilled", 137, self._state.now))

    def _memory_in_use(self, pod: Pod) -> dict[str, Bytes]:
        """Of running containers, as their cgroups would show it: page cache included, never above the limit."""
        records = {c.name: self._state.usage.get(ContainerRef(*pod.ref, c.name)) for c in pod.containers if c.running}
        return {name: record.memory_in_use(self._state.now) for name, record in records.items() if record is not None}

    def _stop(self, ref: PodRef, name: str, termination: Termination) -> None:
        pod = self._state.pods[ref]
        stopped = _with_container(pod, name, lambda c: replace(c, running=False, last_terminated=termination))
        self._state.put(replace(stopped, ready=False))
        self._state.later(_RESTARTS, partial(self._start_again, ref, pod.uid, name))

    def _start_again(self, ref: PodRef, uid: str, name: str) -> None:
        if (pod := self._state.pod(ref, uid)) is not None:
            again = partial(replace, running=True, started_at=self._state.now)
            pod = _with_container(pod, name, lambda c: again(c, restart_count=c.restart_count + 1))
            if _runs(pod) and uid in self.ready_since:
                self.ready_since[uid] = self._state.now
                pod = replace(pod, ready=True)
            self._state.put(pod)


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
    return replace(pod, containers=containers, observed_generation=pod.generation, sums_reported=True)


def _runs(pod: Pod) -> bool:
    return all(container.running or container.ended for container in pod.containers)


def _deferred_since(pod: Pod) -> datetime | None:
    """Since when the kubelet has had no room for what the pod asks for, however often that has changed."""
    pending = pod.condition(PENDING)
    if pending is None or pending.reason != "Deferred" or pending.observed_generation != pod.generation:
        return None
    return pending.last_transition_at


def _without_condition(pod: Pod, kind: str) -> Pod:
    return replace(pod, conditions=tuple(condition for condition in pod.conditions if condition.type != kind))


def _with_container(pod: Pod, name: str, change: Callable[[Container], Container]) -> Pod:
    return replace(pod, containers=tuple(change(c) if c.name == name else c for c in pod.containers))
