"""JSON of what an eviction is proved with to the core's values: disruption budgets and volumes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from types import MappingProxyType

import msgspec

from autoscaler.adapters.kubernetes import schema_extras
from autoscaler.adapters.kubernetes.decoded import Decoded, Owned, read
from autoscaler.adapters.kubernetes.wire_parts import labels, node_terms, selector
from autoscaler.core.scheduling import DisruptionBudget, NodeRequirement, NodeTerm, StorageClass, Volume, VolumeClaim

_budgets = msgspec.json.Decoder(schema_extras.Budget)
_claims = msgspec.json.Decoder(schema_extras.Claim)
_volumes = msgspec.json.Decoder(schema_extras.Volume)
_classes = msgspec.json.Decoder(schema_extras.StorageClass)
_csi_nodes = msgspec.json.Decoder(schema_extras.CSINode)

_BOUND = "pv.kubernetes.io/bind-completed"  # an annotation; until then the name of a volume is only a wish
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"  # an annotation that still goes before the field
# what the scheduler's plug-in VolumeZone looks at
_ZONES = frozenset(
    {
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)


def decode_budget(raw: msgspec.Raw | bytes) -> Decoded[Owned, DisruptionBudget]:
    """A PodDisruptionBudget."""
    return read("PodDisruptionBudget", raw, _budgets, _budget)


def decode_claim(raw: msgspec.Raw | bytes) -> Decoded[Owned, VolumeClaim]:
    """A PersistentVolumeClaim. One that is being deleted counts as gone: no new pod is scheduled with it."""
    return read("PersistentVolumeClaim", raw, _claims, _claim)


def decode_volume(raw: msgspec.Raw | bytes) -> Decoded[Owned, Volume]:
    """A PersistentVolume."""
    return read("PersistentVolume", raw, _volumes, _volume)


def decode_class(raw: msgspec.Raw | bytes) -> Decoded[Owned, StorageClass]:
    """A StorageClass."""
    return read("StorageClass", raw, _classes, _class)


def decode_csi_node(raw: msgspec.Raw | bytes) -> Decoded[Owned, tuple[str, Mapping[str, int]]]:
    """A CSINode: the node's name, and how many volumes of each driver it can attach, where that is limited."""
    return read("CSINode", raw, _csi_nodes, _limits)


def _budget(wire: schema_extras.Budget) -> DisruptionBudget:
    status = wire.status
    return DisruptionBudget(
        wire.metadata.namespace,
        wire.metadata.name,
        selector(wire.spec.selector),
        allowed=status.disruptions_allowed,
        healthy=status.current_healthy,
        desired=status.desired_healthy,
        expected=status.expected_pods,
        always_allow=wire.spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
        current=status.observed_generation == wire.metadata.generation,
        min_available=_number(wire.spec.min_available),
        max_unavailable=_number(wire.spec.max_unavailable),
    )


def _number(wire: int | str | None) -> str:
    """An IntOrString as text."""
    return "" if wire is None else str(wire)


def _claim(wire: schema_extras.Claim) -> VolumeClaim | None:
    meta, spec, annotations = wire.metadata, wire.spec, wire.metadata.annotations or {}
    if meta.deletion_timestamp is not None:
        return None
    return VolumeClaim(
        intern(meta.namespace),
        meta.name,
        volume=spec.volume_name if spec.volume_name and _BOUND in annotations else None,
        storage_class=intern(annotations.get(_OLD_CLASS) or spec.storage_class_name or ""),
        access_modes=frozenset(map(intern, spec.access_modes or ())),
        of_pod=any(one.kind == "Pod" for one in meta.owner_references or ()),
    )


def _volume(wire: schema_extras.Volume) -> Volume:
    affinity, csi = wire.spec.node_affinity, wire.spec.csi
    found = wire.metadata.labels or {}
    return Volume(
        wire.metadata.name,
        node_terms(affinity.required) if affinity is not None else None,
        driver=intern(csi.driver) if csi is not None else "",
        handle=csi.volume_handle if csi is not None else "",
        labels=labels({key: value for key, value in found.items() if key in _ZONES}),
    )


def _class(wire: schema_extras.StorageClass) -> StorageClass:
    topologies = tuple(map(_topology, wire.allowed_topologies or ()))
    waits = wire.volume_binding_mode == "WaitForFirstConsumer"
    return StorageClass(wire.metadata.name, waits, topologies or None, wire.provisioner)


def _topology(wire: schema_extras.TopologyTerm) -> NodeTerm:
    return NodeTerm(
        tuple(NodeRequirement(one.key, "In", tuple(one.values or ())) for one in wire.match_label_expressions or ())
    )


def _limits(wire: schema_extras.CSINode) -> tuple[str, Mapping[str, int]]:
    limits = {
        intern(one.name): one.allocatable.count
        for one in wire.spec.drivers or ()
        if one.allocatable is not None and one.allocatable.count is not None
    }
    return wire.metadata.name, MappingProxyType(limits)
