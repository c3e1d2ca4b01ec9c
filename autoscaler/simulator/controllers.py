"""The controllers of a simulated cluster that make and remove pods: of StatefulSets, ReplicaSets and Deployments, and
the one that collects the pods of nodes that are gone.

Not modelled: rollouts, the order in which a StatefulSet's pods start, and other kinds of workloads, whose pods do not
come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from math import log2
from types import MappingProxyType
from typing import NamedTuple

from autoscaler.core.history import ContainerRef
from autoscaler.core.kubelet import FINISHED_PHASES
from autoscaler.core.model import Ask, Container, ContainerKind, Pod, PodRef, Workload, WorkloadRef
from autoscaler.core.pairing import qos_class
from autoscaler.simulator.state import State
from autoscaler.simulator.traces import Demand
from autoscaler.simulator.usage import UsageRecord

_COLLECTS = timedelta(seconds=60)  # the pod garbage collector looks every 20 s, and waits for 40 s more
_REVISION = "controller-revision-hash"
_PHASES = ("Pending", "Unknown", "Running")


class _Mould(NamedTuple):
    """What the pods of a workload are made from. `counted`: the workload has as many pods as were added to it."""

    template: Pod
    demand: Mapping[str, Demand]
    counted: bool


class Controllers:
    """Make the pods that are missing and remove those that are too many. `ready_since`: by uid of the pod."""

    def __init__(self, state: State, ready_since: Mapping[str, datetime]) -> None:
        self._state, self._ready_since = state, ready_since
        self._moulds: dict[WorkloadRef, _Mould] = {}
        self._own: dict[PodRef, Pod] = {}  # of pods whose workload nobody has described: what they were added as
        self._ordinals: dict[WorkloadRef, list[PodRef]] = {}
        self._uids: dict[PodRef, str] = {}  # of the newest incarnation

    def add(self, workload: Workload, template: Pod, demand: Mapping[str, Demand]) -> None:
        """Make the pods of a workload from this template from now on."""
        self._describe(workload, _Mould(template, demand, False))
        for ref in self._ordinals.get(workload.ref, ()):
            self._own.pop(ref, None)

    def adopt(self, pod: Pod, demand: Mapping[str, Demand]) -> Pod:
        """The pod as one of its workload's. Where nobody has described that, pods are made as this one is now."""
        self._uids[pod.ref] = pod.uid
        if pod.workload is None:
            return pod
        ref = WorkloadRef(pod.namespace, pod.workload)
        if ref.kind == "StatefulSet" and pod.ref not in (names := self._ordinals.setdefault(ref, [])):
            names.append(pod.ref)
        if _owner(ref) is not None:
            pod = replace(pod, owner=pod.owner or _owner(ref))
            if ref not in self._moulds:
                self._describe(Workload(ref, str(ref.object), replicas=0), _Mould(pod, demand, True))
            if self._moulds[ref].counted:
                self._own[pod.ref] = pod
                self._set(replace(self._state.workloads[ref], replicas=self._state.workloads[ref].replicas + 1))
        return pod

    def scale(self, ref: WorkloadRef, replicas: int, manager: str | None) -> None:
        """Set the number of replicas, through the subresource `scale`, or, without a manager, in another way."""
        before = self._state.workloads[ref]
        if replicas != before.replicas:  # who changes nothing is not named in managedFields
            asked = None if manager is None else Ask(manager, self._now_in_seconds())
            self._set(replace(before, replicas=replicas, scaled=asked))

    def watch(self, pod: Pod | None) -> None:
        """Look at the workload of a pod that is gone or on its way out."""
        if pod is not None and pod.workload is not None and (pod.ref not in self._state.pods or not _active(pod)):
            self._sync_later(WorkloadRef(pod.namespace, pod.workload))

    def node_gone(self, name: str) -> None:
        """Remove the pods of a node that is gone, unless it comes back."""
        self._state.later(_COLLECTS, partial(self._collect, name))

    def _collect(self, name: str) -> None:
        if name not in self._state.nodes:
            for pod in self._state.pods_on(name):
                self._state.put(replace(pod, disrupted=True, deleting=True))
                self._state.drop(self._state.pods[pod.ref])

    # ---- workloads

    def _describe(self, workload: Workload, mould: _Mould) -> None:
        template = {container.name: container.spec for container in mould.template.containers}
        self._moulds[workload.ref] = mould
        self._set(replace(workload, labels=mould.template.labels, template=MappingProxyType(template)))

    def _set(self, workload: Workload) -> None:
        """Store a workload, and with a Deployment its ReplicaSet."""
        self._state.put_workload(workload)
        if (owner := _owner(workload.ref)) is not None and owner != workload.ref.object:
            ref = WorkloadRef(workload.ref.namespace, owner)
            below = self._state.workloads.get(ref) or Workload(ref, f"{workload.uid}-{ref.name}", owned=True)
            self._state.put_workload(
                replace(below, replicas=workload.replicas, labels=workload.labels, template=workload.template)
            )
        self._sync_later(workload.ref)

    def _sync_later(self, ref: WorkloadRef) -> None:
        if ref in self._moulds:
            self._state.later(timedelta(0), partial(self._sync, ref))

    def _sync(self, ref: WorkloadRef) -> None:
        if ref.kind == "StatefulSet":
            self._sync_ordinals(ref)
            return
        replicas = self._state.workloads[ref].replicas
        pods = [pod for pod in self._state.pods.values() if (pod.namespace, pod.workload) == ref and _active(pod)]
        for _ in range(replicas - len(pods)):
            owner = _owner(ref) or ""
            names = (PodRef(ref.namespace, f"{owner.partition('/')[2]}-{number}") for number in count(1))
            self._make(ref, next(name for name in names if name not in self._uids))
        for pod in self._first_to_go(pods)[: max(len(pods) - replicas, 0)]:
            self._state.delete(pod)

    def _sync_ordinals(self, ref: WorkloadRef) -> None:
        names, replicas = self._ordinals.setdefault(ref, []), self._state.workloads[ref].replicas
        further = (PodRef(ref.namespace, f"{ref.name}-{number}") for number in count())
        while len(names) < replicas:
            names.append(next(name for name in further if name not in names))
        for name in names[:replicas]:
            if name not in self._state.pods:
                self._make(ref, name)
        for name in names[replicas:]:
            if (pod := self._state.pods.get(name)) is not None and not pod.deleting:
                self._state.delete(pod)

    def _first_to_go(self, pods: list[Pod]) -> list[Pod]:
        """In the order of a ReplicaSet that is scaled down (ActivePodsWithRanks; moments are compared by the logarithm
        of how long ago they are, and then the uids decide)."""

        def ago(at: datetime | None) -> int:
            seconds = 0.0 if at is None else (self._state.now - at).total_seconds()
            return int(log2(seconds * 1e9)) if seconds > 0 else -1

        def rank(pod: Pod) -> tuple[bool, int, bool, int, int, int, int, str]:
            return (
                pod.node is not None,
                _PHASES.index(pod.phase),
                pod.ready,
                -sum(other.node == pod.node for other in pods),
                ago(self._ready_since.get(pod.uid)) if pod.ready else 0,
                -max((container.restart_count for container in pod.containers), default=0),
                ago(pod.created_at),
                pod.uid,
            )

        return sorted(pods, key=rank)

    def _make(self, ref: WorkloadRef, name: PodRef) -> None:
        mould, workload = self._moulds[ref], self._state.workloads[ref]
        template = self._own.get(name, mould.template)
        first, _, incarnation = self._uids.get(name, f"{name.name}#0").partition("#")
        uid = self._uids[name] = f"{first}#{int(incarnation or 1) + 1}"
        labels = {**template.labels, **({_REVISION: workload.revision} if workload.revision else {})}
        made = Pod(
            *name,
            uid,
            labels=MappingProxyType(labels),
            annotations=template.annotations,
            workload=ref.object,
            phase="Pending",
            ready=False,
            priority=template.priority,
            containers=tuple(map(_unstarted, template.containers)),
            pod_level=template.pod_level,
            overhead=template.overhead,
            owner=_owner(ref),
            created_at=self._now_in_seconds(),
            scheduling=template.scheduling,
        )
        for container in template.containers:
            usage = ContainerRef(*name, container.name)
            if container.kind is not ContainerKind.INIT and usage not in self._state.usage:
                self._state.usage[usage] = UsageRecord(mould.demand[container.name])
        self._state.put(replace(made, qos_class=qos_class(made, {})))

    def _now_in_seconds(self) -> datetime:
        return self._state.now.replace(microsecond=0)  # as metav1.Time has it


def _owner(ref: WorkloadRef) -> str | None:
    """The direct controller of a workload's pods; None for kinds that are not modelled."""
    match ref.kind:
        case "StatefulSet" | "ReplicaSet":
            return ref.object
        case "Deployment":
            return f"ReplicaSet/{ref.name}-abc"
        case _:
            return None


def _active(pod: Pod) -> bool:
    return not pod.deleting and pod.phase not in FINISHED_PHASES


def _unstarted(container: Container) -> Container:
    return Container(container.name, container.kind, container.spec, restart_on=container.restart_on)
