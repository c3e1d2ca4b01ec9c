"""JSON of pods and nodes to the core's values, and a resize to JSON. Pure: bytes in, values out.

Unknown fields are ignored and unknown words kept or left alone; an object that still cannot be read becomes a
`Problem`, never an exception. What sizing does not use is dropped, and texts that repeat are shared: the pods of a
whole cluster are held in memory, because the room on a node is the sum over all of them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Any

import msgspec

from autoscaler.adapters.kubernetes import schema
from autoscaler.adapters.kubernetes.decoded import UNREADABLE, Decoded, name_of, unreadable
from autoscaler.adapters.kubernetes.wire_parts import (
    amounts,
    amounts_among,
    controller,
    labels,
    moment,
    others,
    resources,
    wanted,
)
from autoscaler.adapters.kubernetes.wire_scheduling import scheduling
from autoscaler.core.actions import Resize
from autoscaler.core.model import (
    ANNOTATION_PREFIX,
    Ask,
    Condition,
    Container,
    ContainerKind,
    Node,
    Pod,
    PodRef,
    Problem,
    QoSClass,
    Resource,
    ResourceList,
    Resources,
    Termination,
)
from autoscaler.core.problems import Trouble
from autoscaler.core.scheduling import Taint

_CONDITIONS = frozenset({"PodResizePending", "PodResizeInProgress"})
_MIRROR = "kubernetes.io/config.mirror"  # set by a kubelet on the API's copy of a static pod
_OS = "kubernetes.io/os"
_KUEUE = "kueue.x-k8s.io/"  # queue-name, managed, podset, …: labels and annotations of what Kueue admits
# people say with these that a pod must stay where it is; cluster-autoscaler and Karpenter heed them
_NOT_TO_BE_MOVED = frozenset({"cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"})
_QOS = {str(word): word for word in QoSClass}
_RESOURCES = {str(word): word for word in Resource}

_pods = msgspec.json.Decoder(schema.Pod)
_nodes = msgspec.json.Decoder(schema.Node)
_versions = msgspec.json.Decoder(schema.Version)
_DIGITS = re.compile(r"[0-9]{1,4}")


def decode_pod(raw: msgspec.Raw | bytes) -> Decoded[PodRef, Pod]:
    """A Pod. Its `workload` is its direct controller: who owns that is not in the pod."""
    try:
        wire = _pods.decode(raw)
        pod = _pod(wire)
    except UNREADABLE as error:
        name = name_of(raw)
        ref = PodRef(name.namespace, name.name)
        return Decoded(ref, name.resource_version, None, unreadable(f"pod {ref}", error))
    return Decoded(pod.ref, pod.resource_version, pod, _odd_qos(wire.status.qos_class, pod.ref))


def decode_node(raw: msgspec.Raw | bytes) -> Decoded[str, Node]:
    """A Node."""
    try:
        wire = _nodes.decode(raw)
        node = _node(wire)
    except UNREADABLE as error:
        name = name_of(raw)
        return Decoded(name.name, name.resource_version, None, unreadable(f"node {name.name}", error))
    return Decoded(node.name, wire.metadata.resource_version, node)


def decode_minor(raw: bytes) -> int | None:
    """The minor version in an answer of /version ("37", "36+"); None if it holds none."""
    try:
        digits = _DIGITS.match(_versions.decode(raw).minor)
    except UNREADABLE:
        return None
    return None if digits is None else int(digits[0])


def pod_path(pod: PodRef) -> str:
    """Where the API server has a pod."""
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def patch_body(resize: Resize, resource_version: str) -> dict[str, Any]:
    """The strategic merge patch for `pods/resize`: changed keys only, containers merged by name (KEP-1287).

    uid and resourceVersion are preconditions: the server refuses the patch if the pod is another one or has changed.
    """
    spec: dict[str, list[dict[str, Any]]] = {}
    for container in resize.containers:
        sides = {"requests": container.change.requests, "limits": container.change.limits}
        changed = {side: quantities for side, wanted in sides.items() if (quantities := _quantities(wanted))}
        if changed:
            field = "containers" if container.kind is ContainerKind.CONTAINER else "initContainers"
            spec.setdefault(field, []).append({"name": container.name, "resources": changed})
    return {"metadata": {"uid": resize.uid, "resourceVersion": resource_version}, "spec": spec}


def _quantities(wanted: ResourceList) -> dict[str, str]:
    known = ((resource, wanted.get(resource)) for resource in Resource)
    return {str(resource): resource.quantity(amount) for resource, amount in known if amount is not None}


def _odd_qos(word: str, ref: PodRef) -> Problem | None:
    if word in _QOS:
        return None
    detail = f"pod {ref} is left alone: status.qosClass is {word!r}, known are {', '.join(_QOS)}"
    return Problem(f"pod {ref}", Trouble.UNKNOWN_QOS_CLASS, detail)


def _pod(wire: schema.Pod) -> Pod:
    meta, spec, status = wire.metadata, wire.spec, wire.status
    owner = controller(meta)
    conditions = {one.type: one for one in status.conditions or ()}
    return Pod(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=labels(meta.labels),
        annotations=labels({key: value for key, value in (meta.annotations or {}).items() if _is_kept(key)}),
        workload=owner,
        node=intern(spec.node_name) or None,
        phase=intern(status.phase),
        deleting=meta.deletion_timestamp is not None,
        ready=_is_true(conditions.get("Ready")),
        static=_MIRROR in (meta.annotations or {}),
        # a BestEffort pod is never given anything, which is what must happen to a class that nobody here knows
        qos_class=_QOS.get(status.qos_class, QoSClass.BEST_EFFORT),
        priority=spec.priority or 0,
        generation=meta.generation,
        observed_generation=status.observed_generation,
        conditions=tuple(_condition(one) for kind, one in conditions.items() if kind in _CONDITIONS),
        containers=_containers(spec, status),
        pod_level=_pod_level(spec.resources),
        overhead=amounts_among(spec.overhead),
        sums_reported=bool(status.allocated_resources),
        asks=tuple(
            Ask(intern(entry.manager), at)
            for entry in meta.managed_fields or ()
            if entry.subresource == "resize" and (at := moment(entry.time)) is not None
        ),
        gated=_gated(meta, spec),
        owner=owner,
        created_at=moment(meta.creation_timestamp),
        gone_by=moment(meta.deletion_timestamp),
        ready_changed_at=None if (ready := conditions.get("Ready")) is None else moment(ready.last_transition_time),
        ip=status.pod_ip,
        disrupted=_is_true(conditions.get("DisruptionTarget")),
        unscheduled=_unscheduled(conditions.get("PodScheduled")),
        scheduling=scheduling(meta.name, spec),
    )


def _is_kept(annotation: str) -> bool:
    return annotation.startswith(ANNOTATION_PREFIX) or annotation in _NOT_TO_BE_MOVED


def _is_true(condition: schema.Condition | None) -> bool:
    return condition is not None and condition.status == "True"


def _unscheduled(scheduled: schema.Condition | None) -> str | None:
    if scheduled is None or scheduled.status != "False":
        return None
    return scheduled.message or scheduled.reason or "the scheduler does not say why"


def _gated(meta: schema.Meta, spec: schema.PodSpec) -> str | None:
    if spec.scheduling_gates:
        return f"scheduling gates {', '.join(one.name for one in spec.scheduling_gates)}"
    for what, entries in (("label", meta.labels), ("annotation", meta.annotations)):
        for key in entries or ():
            if key.startswith(_KUEUE):
                return f"{what} {key}"
    return None


def _node(wire: schema.Node) -> Node:
    known, allocatable = labels(wire.metadata.labels), wire.status.allocatable
    info, extended = wire.status.node_info, others(allocatable)
    return Node(
        name=intern(wire.metadata.name),
        allocatable=amounts_among(allocatable),
        ready=any(one.type == "Ready" and one.status == "True" for one in wire.status.conditions or ()),
        # the server's own check reads the label, and lets a node without one pass
        os=known.get(_OS) or (info.operating_system if info else "") or "linux",
        declared_features=frozenset(map(intern, wire.status.declared_features or ())),
        labels=known,
        taints=tuple(Taint(intern(one.key), intern(one.value), intern(one.effect)) for one in wire.spec.taints or ()),
        unschedulable=wire.spec.unschedulable,
        pods=extended.pop("pods", None),
        extended=MappingProxyType(extended),
    )


def _condition(wire: schema.Condition) -> Condition:
    return Condition(
        intern(wire.type),
        intern(wire.status),
        intern(wire.reason),
        wire.message,
        wire.observed_generation,
        moment(wire.last_transition_time),
    )


def _containers(spec: schema.PodSpec, status: schema.PodStatus) -> tuple[Container, ...]:
    inits = {one.name: one for one in status.init_container_statuses or ()}
    mains = {one.name: one for one in status.container_statuses or ()}
    made = []
    for wire in spec.init_containers or ():
        kind = ContainerKind.SIDECAR if wire.restart_policy == "Always" else ContainerKind.INIT
        made.append(_container(wire, kind, inits.get(wire.name), spec.restart_policy))
    made.extend(
        _container(wire, ContainerKind.CONTAINER, mains.get(wire.name), spec.restart_policy)
        for wire in spec.containers or ()
    )
    return tuple(made)


def _container(
    wire: schema.Container, kind: ContainerKind, status: schema.ContainerStatus | None, restart: str
) -> Container:
    name, spec, restart_on = intern(wire.name), wanted(wire.resources), _restart_on(wire)
    if status is None:
        return Container(name, kind, spec, restart_on=restart_on)
    state, last = status.state or schema.State(), (status.last_state or schema.State()).terminated
    allocated = status.allocated_resources
    return Container(
        name,
        kind,
        spec,
        # a kubelet that reports `resources` reports both; it omits an allocation of nothing
        allocated=amounts(allocated) if allocated or status.resources else None,
        actual=resources(status.resources) if status.resources else None,
        restart_on=restart_on,
        running=state.running is not None,
        ended=state.terminated is not None and _stays_ended(kind, wire.restart_policy or restart, state.terminated),
        waiting=intern(state.waiting.reason) if state.waiting else "",
        restart_count=status.restart_count,
        started_at=moment(state.running.started_at) if state.running else None,
        last_terminated=_termination(last) if last else None,
    )


def _termination(wire: schema.Terminated) -> Termination:
    return Termination(intern(wire.reason), wire.exit_code, moment(wire.finished_at), moment(wire.started_at))


def _stays_ended(kind: ContainerKind, restart: str, terminated: schema.Terminated) -> bool:
    if restart == "Never":
        return True
    return terminated.exit_code == 0 and (restart == "OnFailure" or kind is ContainerKind.INIT)


def _pod_level(wire: schema.WantedResources | None) -> Resources | None:
    return wanted(wire) if wire and (wire.requests or wire.limits) else None


def _restart_on(wire: schema.Container) -> frozenset[Resource]:
    names = (one.resource_name for one in wire.resize_policy or () if one.restart_policy == "RestartContainer")
    return _shared_set(frozenset(_RESOURCES[name] for name in names if name in _RESOURCES))


@lru_cache(maxsize=8)
def _shared_set(resources: frozenset[Resource]) -> frozenset[Resource]:
    return resources
