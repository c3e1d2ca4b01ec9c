"""The kinds that are read only where it is permitted, as structs: what schema.py is for all others.

Field names: autoscaling/v2 (HorizontalPodAutoscaler), autoscaling.k8s.io/v1 (VerticalPodAutoscaler), policy/v1
(PodDisruptionBudget), v1 (PersistentVolume, PersistentVolumeClaim), storage.k8s.io/v1 (StorageClass, CSINode),
authorization.k8s.io/v1 (SelfSubjectAccessReview), authentication.k8s.io/v1 (SelfSubjectReview).
"""

from __future__ import annotations

import msgspec

from autoscaler.adapters.kubernetes.schema import LabelSelector, NodeSelector, Object, Wire


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


class Horizontal(Object):
    spec: HorizontalSpec


class UpdatePolicy(Wire):
    update_mode: str | None = None


class VerticalSpec(Wire):
    target_ref: TargetRef | None = None
    update_policy: UpdatePolicy | None = None


class Vertical(Object):
    spec: VerticalSpec


class BudgetSpec(Wire):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class BudgetStatus(Wire):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class Budget(Object):
    spec: BudgetSpec = msgspec.field(default_factory=BudgetSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)


class ClaimSpec(Wire):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None


class Claim(Object):
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)


class VolumeNodeAffinity(Wire):
    required: NodeSelector | None = None


class CSIVolume(Wire):
    driver: str = ""
    volume_handle: str = ""


class VolumeSpec(Wire):
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolume | None = None


class Volume(Object):
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)


class TopologyRequirement(Wire):
    key: str = ""
    values: list[str] | None = None


class TopologyTerm(Wire):
    match_label_expressions: list[TopologyRequirement] | None = None


class StorageClass(Object):
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class DriverLimit(Wire):
    count: int | None = None


class Driver(Wire):
    name: str = ""
    allocatable: DriverLimit | None = None


class CSINodeSpec(Wire):
    drivers: list[Driver] | None = None


class CSINode(Object):
    spec: CSINodeSpec = msgspec.field(default_factory=CSINodeSpec)


class ReviewStatus(Wire):
    allowed: bool = False


class AccessReview(Wire):
    status: ReviewStatus = msgspec.field(default_factory=ReviewStatus)


class UserInfo(Wire):
    username: str = ""


class SubjectStatus(Wire):
    user_info: UserInfo = msgspec.field(default_factory=UserInfo)


class SubjectReview(Wire):
    status: SubjectStatus = msgspec.field(default_factory=SubjectStatus)
