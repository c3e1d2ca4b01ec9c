"""The parts of the API server's JSON that are read, as structs. Everything else in an object is skipped.

Go writes null for absent lists, maps and times, never for texts and numbers. Field names: Kubernetes API v1 (Pod,
Node), apps/v1, meta/v1 (ObjectMeta, List, WatchEvent). Kinds that are read only where permitted: schema_extras.py.
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
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    managed_fields: list[ManagedFields] | None = None


class Object(Wire):
    """Any object, as far as all have the same."""

    metadata: Meta


class Amounts(Wire):
    cpu: str | None = None
    memory: str | None = None


class Resources(Wire):
    requests: Amounts | None = None
    limits: Amounts | None = None


class WantedResources(Wire):
    """`resources` of a spec, whose requests may be of anything that a node has."""

    requests: dict[str, str] | None = None
    limits: Amounts | None = None


class ResizePolicy(Wire):
    resource_name: str = ""
    restart_policy: str = ""


class Port(Wire):
    host_port: int = 0
    protocol: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(Wire):
    name: str
    resources: WantedResources | None = None
    ports: list[Port] | None = None
    resize_policy: list[ResizePolicy] | None = None
    restart_policy: str = ""


class Running(Wire):
    started_at: datetime | None = None


class Terminated(Wire):
    reason: str = ""
    exit_code: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Waiting(Wire):
    reason: str = ""


class State(Wire):
    running: Running | None = None
    waiting: Waiting | None = None
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


class SelectorRequirement(Wire):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Wire):
    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None


class NodeSelectorTerm(Wire):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(Wire):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(Wire):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinityTerm(Wire):
    label_selector: LabelSelector | None = None
    topology_key: str = ""
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class PodAffinity(Wire):
    required: list[PodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Wire):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SpreadConstraint(Wire):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ClaimSource(Wire):
    claim_name: str = ""


class EphemeralSource(Wire):
    pass


class PodVolume(Wire):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class ResourceClaim(Wire):
    pass


class PodSpec(Wire):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    restart_policy: str = "Always"
    node_name: str = ""
    priority: int | None = None
    resources: WantedResources | None = None
    overhead: dict[str, str] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduler_name: str = ""
    node_selector: dict[str, str] | None = None
    # as they are: the pods of a workload have the same, which are read once
    affinity: msgspec.Raw = msgspec.Raw()
    tolerations: msgspec.Raw = msgspec.Raw()
    topology_spread_constraints: msgspec.Raw = msgspec.Raw()
    volumes: list[PodVolume] | None = None
    resource_claims: list[ResourceClaim] | None = None


class PodStatus(Wire):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    qos_class: str = ""
    observed_generation: int = 0
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: dict[str, str] | None = None  # of the whole pod


class Pod(Object):
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class Taint(Wire):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Wire):
    taints: list[Taint] | None = None
    unschedulable: bool = False


class NodeInfo(Wire):
    operating_system: str = ""
    kubelet_version: str = ""


class NodeStatus(Wire):
    allocatable: dict[str, str] | None = None
    conditions: list[Condition] | None = None
    node_info: NodeInfo | None = None
    declared_features: list[str] | None = None


class Node(Object):
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class TemplateMeta(Wire):
    labels: dict[str, str] | None = None


class PodTemplate(Wire):
    metadata: TemplateMeta = msgspec.field(default_factory=TemplateMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class RollingUpdate(Wire):
    partition: int | None = None


class UpdateStrategy(Wire):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class WorkloadSpec(Wire):
    replicas: int | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)
    paused: bool = False
    update_strategy: UpdateStrategy = msgspec.field(default_factory=UpdateStrategy)


class WorkloadStatus(Wire):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""


class Workload(Object):
    """A StatefulSet, Deployment or ReplicaSet."""

    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


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
    git_version: str = ""


class ApiResource(Wire):
    name: str = ""


class ApiResources(Wire):
    """`GET /api/v1`."""

    resources: list[ApiResource] | None = None


class Event(Wire):
    type: str
    object: msgspec.Raw
