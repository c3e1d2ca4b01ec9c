"""The parts of the API server's JSON that are read, as structs. Everything else in an object is skipped.

Go writes null for absent lists, maps and times, never for texts and numbers.
Field names: Kubernetes API v1 (Pod, Node), meta/v1 (ObjectMeta, List, WatchEvent), autoscaling/v2
(HorizontalPodAutoscaler), autoscaling.k8s.io/v1 (VerticalPodAutoscaler).
"""

from __future__ import annotations

from datetime import datetime

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are not what they should be; the last where they nest beyond all reason."""


class Wire(msgspec.Struct, rename="camel", gc=False):
    """Base of what is read. gc=False: these trees have no cycles, and tracking them is most of the cost."""


class OwnerReference(Wire):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class ManagedFields(Wire):
    manager: str = ""
    subresource: str = ""
    time: datetime | None = None


class Meta(Wire):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 1
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    deletion_timestamp: str | None = None
    managed_fields: list[ManagedFields] | None = None


class Amounts(Wire):
    cpu: str | None = None
    memory: str | None = None


class Resources(Wire):
    requests: Amounts | None = None
    limits: Amounts | None = None


class ResizePolicy(Wire):
    resource_name: str = ""
    restart_policy: str = ""


class Container(Wire):
    name: str
    resources: Resources | None = None
    resize_policy: list[ResizePolicy] | None = None
    restart_policy: str = ""


class Running(Wire):
    started_at: datetime | None = None


class Terminated(Wire):
    reason: str = ""
    exit_code: int = 0
    finished_at: datetime | None = None


class State(Wire):
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Wire):
    name: str
    state: State | None = None
    last_state: State | None = None
    restart_count: int = 0
    allocated_resources: Amounts | None = None
    resources: Resources | None = None


class Condition(Wire):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: datetime | None = None


class SchedulingGate(Wire):
    name: str = ""


class PodSpec(Wire):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    restart_policy: str = "Always"
    node_name: str = ""
    priority: int | None = None
    resources: Resources | None = None
    overhead: Amounts | None = None
    scheduling_gates: list[SchedulingGate] | None = None


class PodStatus(Wire):
    phase: str = ""
    qos_class: str = ""
    observed_generation: int = 0
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(Wire):
    metadata: Meta
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class NodeInfo(Wire):
    operating_system: str = ""


class NodeStatus(Wire):
    allocatable: Amounts | None = None
    conditions: list[Condition] | None = None
    node_info: NodeInfo | None = None
    declared_features: list[str] | None = None


class Node(Wire):
    metadata: Meta
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class TargetRef(Wire):
    kind: str = ""
    name: str = ""


class MetricTarget(Wire):
    type: str = ""


class ResourceMetric(Wire):
    name: str = ""
    container: str | None = None
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)


class MetricSpec(Wire):
    resource: ResourceMetric | None = None
    container_resource: ResourceMetric | None = None


class HorizontalSpec(Wire):
    scale_target_ref: TargetRef
    metrics: list[MetricSpec] | None = None


class Horizontal(Wire):
    metadata: Meta
    spec: HorizontalSpec


class UpdatePolicy(Wire):
    update_mode: str | None = None


class VerticalSpec(Wire):
    target_ref: TargetRef | None = None
    update_policy: UpdatePolicy | None = None


class Vertical(Wire):
    metadata: Meta
    spec: VerticalSpec


class Object(Wire):
    metadata: Meta


class Name(Wire):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class Named(Wire):
    metadata: Name = msgspec.field(default_factory=Name)


class ListMeta(Wire):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class List(Wire):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class Version(Wire):
    """`GET /version`."""

    minor: str = ""


class Event(Wire):
    type: str
    object: msgspec.Raw
