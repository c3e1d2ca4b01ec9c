"""JSON of the API server to the core's values, and a resize to JSON. Pure: bytes in, values out.

Unknown fields are ignored and unknown words kept or left alone; an object that still cannot be read becomes a
`Problem`, never an exception. What sizing does not use is dropped, and texts that repeat are shared: the pods of a
whole cluster are held in memory, because the room on a node is the sum over all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from autoscaler.adapters.kubernetes import schema
from autoscaler.core.actions import Resize
from autoscaler.core.model import (
    ANNOTATION_PREFIX,
    Ask,
    Autoscaler,
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
    ScaledResource,
    Termination,
)
from autoscaler.core.units import QuantityError, parse_cpu, parse_memory

K = TypeVar("K")
T = TypeVar("T")

_CONDITIONS = frozenset({"PodResizePending", "PodResizeInProgress"})
_MIRROR = "kubernetes.io/config.mirror"  # set by a kubelet on the API's copy of a static pod
_OS = "kubernetes.io/os"
_KUEUE = "kueue.x-k8s.io/"  # queue-name, managed, podset, …: labels and annotations of what Kueue admits
_FAR = 9000  # a year after which nothing happens: the longest duration is 100 years
_QOS = {str(word): word for word in QoSClass}
_RESOURCES = {str(word): word for word in Resource}


HORIZONTAL, VERTICAL = "HorizontalPodAutoscaler", "VerticalPodAutoscaler"


class Owned(NamedTuple):
    """An object that may have a controller: its namespace and "Kind/name"."""

    namespace: str
    object: str


class Decoded(NamedTuple, Generic[K, T]):
    """One object as read. `value` is None if it could not be; `problem` says why, or what was odd about it."""

    key: K
    version: str
    value: T | None
    problem: Problem | None = None


_pods = msgspec.json.Decoder(schema.Pod)
_nodes = msgspec.json.Decoder(schema.Node)
_objects = msgspec.json.Decoder(schema.Object)
_horizontals = msgspec.json.Decoder(schema.Horizontal)
_verticals = msgspec.json.Decoder(schema.Vertical)
_named = msgspec.json.Decoder(schema.Named)
_versions = msgspec.json.Decoder(schema.Version)
_DIGITS = re.compile(r"[0-9]{1,4}")
_UNREADABLE = (*schema.UNREADABLE, QuantityError)


def decode_pod(raw: msgspec.Raw | bytes) -> Decoded[PodRef, Pod]:
    """A Pod. Its `workload` is its direct controller: who owns that is not in the pod."""
    try:
        wire = _pods.decode(raw)
        pod = _pod(wire)
    except _UNREADABLE as error:
        name = _name(raw)
        ref = PodRef(name.namespace, name.name)
        return Decoded(ref, name.resource_version, None, _unreadable(f"pod {ref}", error))
    return Decoded(pod.ref, pod.resource_version, pod, _odd_qos(wire.status.qos_class, pod.ref))


def decode_node(raw: msgspec.Raw | bytes) -> Decoded[str, Node]:
    """A Node."""
    try:
        wire = _nodes.decode(raw)
        node = _node(wire)
    except _UNREADABLE as error:
        name = _name(raw)
        return Decoded(name.name, name.resource_version, None, _unreadable(f"node {name.name}", error))
    return Decoded(node.name, wire.metadata.resource_version, node)


def decode_minor(raw: bytes) -> int | None:
    """The minor version in an answer of /version ("37", "36+"); None if it holds none."""
    try:
        digits = _DIGITS.match(_versions.decode(raw).minor)
    except _UNREADABLE:
        return None
    return None if digits is None else int(digits[0])


def decode_owner(kind: str, raw: msgspec.Raw | bytes) -> Decoded[Owned, str]:
    """The controller ("Kind/name", "" if there is none) of an object of a kind, from its metadata alone."""
    try:
        meta = _objects.decode(raw).metadata
    except _UNREADABLE as error:
        return _unreadable_object(raw, kind, error)
    owned = Owned(intern(meta.namespace), intern(f"{kind}/{meta.name}"))
    return Decoded(owned, meta.resource_version, _controller(meta) or "")


def decode_horizontal(raw: msgspec.Raw | bytes) -> Decoded[Owned, Autoscaler]:
    """A HorizontalPodAutoscaler. Only targets of type Utilization divide by the request."""
    try:
        wire = _horizontals.decode(raw)
    except _UNREADABLE as error:
        return _unreadable_object(raw, HORIZONTAL, error)
    metrics = (one.resource or one.container_resource for one in wire.spec.metrics or ())
    scaled = frozenset(
        ScaledResource(_RESOURCES[one.name], one.container)
        for one in metrics
        if one is not None and one.name in _RESOURCES and one.target.type == "Utilization"
    )
    return _autoscaler(HORIZONTAL, wire.metadata, wire.spec.scale_target_ref, scaled)


def decode_vertical(raw: msgspec.Raw | bytes) -> Decoded[Owned, Autoscaler]:
    """A VerticalPodAutoscaler. Without an update mode it acts (its API's default)."""
    try:
        wire = _verticals.decode(raw)
    except _UNREADABLE as error:
        return _unreadable_object(raw, VERTICAL, error)
    policy = wire.spec.update_policy
    mode = (policy.update_mode if policy else None) or "Auto"
    return _autoscaler(VERTICAL, wire.metadata, wire.spec.target_ref, mode=mode)


def _autoscaler(
    kind: str,
    meta: schema.Meta,
    target: schema.TargetRef | None,
    scaled: frozenset[ScaledResource] = frozenset(),
    mode: str = "",
) -> Decoded[Owned, Autoscaler]:
    words = f"{target.kind}/{target.name}" if target else ""
    made = Autoscaler(kind, meta.namespace, meta.name, words, scaled, mode)
    return Decoded(Owned(meta.namespace, f"{kind}/{meta.name}"), meta.resource_version, made)


def _unreadable_object(raw: msgspec.Raw | bytes, kind: str, error: Exception) -> Decoded[Owned, Any]:
    name = _name(raw)
    owned = Owned(name.namespace, f"{kind}/{name.name}")
    return Decoded(owned, name.resource_version, None, _unreadable(f"{owned.object} in {owned.namespace}", error))


def patch_body(resize: Resize, resource_version: str) -> dict[str, Any]:
    """The strategic merge patch for `pods/resize`: changed keys only, containers merged by name (KEP-1287).

    uid and resourceVersion are preconditions: the server refuses the patch if the pod is another one or has changed.
    """
    spec: dict[str, list[dict[str, Any]]] = {}
    for container in resize.containers:
        sides = {"requests": container.change.requests, "limits": container.change.limits}
        resources = {side: amounts for side, wanted in sides.items() if (amounts := _quantities(wanted))}
        if resources:
            field = "containers" if container.kind is ContainerKind.CONTAINER else "initContainers"
            spec.setdefault(field, []).append({"name": container.name, "resources": resources})
    return {"metadata": {"uid": resize.uid, "resourceVersion": resource_version}, "spec": spec}


def _quantities(amounts: ResourceList) -> dict[str, str]:
    known = ((resource, amounts.get(resource)) for resource in Resource)
    return {str(resource): resource.quantity(amount) for resource, amount in known if amount is not None}


def _name(raw: msgspec.Raw | bytes) -> schema.Name:
    try:
        return _named.decode(raw).metadata
    except schema.UNREADABLE:
        return schema.Name(name="?")


def _unreadable(source: str, error: Exception) -> Problem:
    return Problem(source, "Unreadable", f"{source} is left out, this version cannot read it: {error}")


def _odd_qos(word: str, ref: PodRef) -> Problem | None:
    if word in _QOS:
        return None
    detail = f"pod {ref} is left alone: status.qosClass is {word!r}, known are {', '.join(_QOS)}"
    return Problem(f"pod {ref}", "UnknownQoSClass", detail)


def _pod(wire: schema.Pod) -> Pod:
    meta, spec, status = wire.metadata, wire.spec, wire.status
    return Pod(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=_labels(tuple(sorted((meta.labels or {}).items()))),
        annotations=_labels(tuple(sorted(one for one in (meta.annotations or {}).items() if _is_own(one[0])))),
        workload=_controller(meta),
        node=intern(spec.node_name) or None,
        phase=intern(status.phase),
        deleting=meta.deletion_timestamp is not None,
        ready=_is_ready(status.conditions),
        static=_MIRROR in (meta.annotations or {}),
        # a BestEffort pod is never given anything, which is what must happen to a class that nobody here knows
        qos_class=_QOS.get(status.qos_class, QoSClass.BEST_EFFORT),
        priority=spec.priority or 0,
        generation=meta.generation,
        observed_generation=status.observed_generation,
        conditions=tuple(_condition(one) for one in status.conditions or () if one.type in _CONDITIONS),
        containers=_containers(spec, status),
        pod_level=_pod_level(spec.resources),
        overhead=_amounts(spec.overhead),
        asks=tuple(
            Ask(intern(entry.manager), at)
            for entry in meta.managed_fields or ()
            if entry.subresource == "resize" and (at := _moment(entry.time)) is not None
        ),
        gated=_gated(meta, spec),
    )


def _moment(found: datetime | None) -> datetime | None:
    """A moment that durations can be added to. Whoever may write a pod may make up the times in its managedFields."""
    return found if found is not None and found.year < _FAR else None


def _is_own(annotation: str) -> bool:
    return annotation.startswith(ANNOTATION_PREFIX)


def _is_ready(conditions: list[schema.Condition] | None) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in conditions or ())


def _gated(meta: schema.Meta, spec: schema.PodSpec) -> str | None:
    if spec.scheduling_gates:
        return f"scheduling gates {', '.join(one.name for one in spec.scheduling_gates)}"
    for what, entries in (("label", meta.labels), ("annotation", meta.annotations)):
        for key in entries or ():
            if key.startswith(_KUEUE):
                return f"{what} {key}"
    return None


def _node(wire: schema.Node) -> Node:
    labels = wire.metadata.labels or {}
    info = wire.status.node_info
    return Node(
        name=intern(wire.metadata.name),
        allocatable=_amounts(wire.status.allocatable),
        ready=_is_ready(wire.status.conditions),
        # the server's own check reads the label, and lets a node without one pass
        os=labels.get(_OS) or (info.operating_system if info else "") or "linux",
        declared_features=frozenset(map(intern, wire.status.declared_features or ())),
    )


def _controller(meta: schema.Meta) -> str | None:
    return next((intern(f"{one.kind}/{one.name}") for one in meta.owner_references or () if one.controller), None)


def _condition(wire: schema.Condition) -> Condition:
    return Condition(
        intern(wire.type),
        intern(wire.status),
        intern(wire.reason),
        wire.message,
        wire.observed_generation,
        _moment(wire.last_transition_time),
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
    name, spec, restart_on = intern(wire.name), _resources(wire.resources), _restart_on(wire)
    if status is None:
        return Container(name, kind, spec, restart_on=restart_on)
    state, last = status.state or schema.State(), (status.last_state or schema.State()).terminated
    allocated = status.allocated_resources
    return Container(
        name,
        kind,
        spec,
        # a kubelet that reports `resources` reports both; it omits an allocation of nothing
        allocated=_amounts(allocated) if allocated or status.resources else None,
        actual=_resources(status.resources) if status.resources else None,
        restart_on=restart_on,
        running=state.running is not None,
        ended=state.terminated is not None and _stays_ended(kind, wire.restart_policy or restart, state.terminated),
        restart_count=status.restart_count,
        started_at=_moment(state.running.started_at) if state.running else None,
        last_terminated=Termination(intern(last.reason), last.exit_code, _moment(last.finished_at)) if last else None,
    )


def _stays_ended(kind: ContainerKind, restart: str, terminated: schema.Terminated) -> bool:
    if restart == "Never":
        return True
    return terminated.exit_code == 0 and (restart == "OnFailure" or kind is ContainerKind.INIT)


def _pod_level(wire: schema.Resources | None) -> Resources | None:
    return _resources(wire) if wire and (wire.requests or wire.limits) else None


def _restart_on(wire: schema.Container) -> frozenset[Resource]:
    names = (one.resource_name for one in wire.resize_policy or () if one.restart_policy == "RestartContainer")
    return _shared_set(frozenset(_RESOURCES[name] for name in names if name in _RESOURCES))


def _amounts(wire: schema.Amounts | None) -> ResourceList:
    return _shared_list(wire.cpu, wire.memory) if wire else _shared_list(None, None)


def _resources(wire: schema.Resources | None) -> Resources:
    return _shared_resources(_amounts(wire.requests), _amounts(wire.limits)) if wire else Resources()


# Few sizes occur in a cluster, however many its pods: the same size is parsed once and held once.
@lru_cache(maxsize=8192)
def _shared_list(cpu: str | None, memory: str | None) -> ResourceList:
    return ResourceList(None if cpu is None else parse_cpu(cpu), None if memory is None else parse_memory(memory))


@lru_cache(maxsize=8192)
def _shared_resources(requests: ResourceList, limits: ResourceList) -> Resources:
    return Resources(requests, limits)


@lru_cache(maxsize=8)
def _shared_set(resources: frozenset[Resource]) -> frozenset[Resource]:
    return resources


@lru_cache(maxsize=8192)
def _labels(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return MappingProxyType({intern(key): intern(value) for key, value in items})
