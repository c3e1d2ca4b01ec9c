"""What a scheduler asks of one node for a pod, each under a stable name. Pure, and about nothing but values.

Source: pkg/scheduler/framework/plugins of Kubernetes 1.37. Some questions cannot be answered from what is read of a
cluster. Those take `doubt`, the answer in that case: False to prove that a pod fits, True to find where it might.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from autoscaler.core.model import Node, Pod
from autoscaler.core.scheduling import HostPort, NodeRequirement, NodeTerm, Storage, Taint, Toleration, Volume

DEFAULT_SCHEDULER = "default-scheduler"
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 (the API's word for every address; nothing listens here)

_CORDON = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
_REPELLING = frozenset({"NoSchedule", "NoExecute"})
_NO_PROVISIONER = frozenset({"", "kubernetes.io/no-provisioner"})
_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_ZONES = {  # labels of volumes, and by which label of a node each is answered if the node has not the very same
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
_SHARED_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_SINGLE_POD = "ReadWriteOncePod"


class Predicate(StrEnum):
    """Why a node is ruled out, in the order in which they are asked. A resource other than CPU and memory goes by its
    own name instead."""

    SCHEDULER = "Scheduler"  # another scheduler than the default one places the pod, by rules of its own
    DEVICES = "Devices"  # the pod claims devices (DRA), which are not looked at
    READY = "Ready"
    UNSCHEDULABLE = "Unschedulable"  # cordoned
    TAINTS = "Taints"
    NODE_SELECTOR = "NodeSelector"
    NODE_AFFINITY = "NodeAffinity"
    VOLUME_BINDING = "VolumeBinding"  # a claim or its volume is missing, or not bound and not to be provided here
    VOLUME_AFFINITY = "VolumeAffinity"  # a volume is tied to other nodes or zones
    VOLUME_IN_USE = "VolumeInUse"  # another pod uses a volume that one pod, or one node, can use at a time
    HOST_PORTS = "HostPorts"
    POD_AFFINITY = "PodAffinity"
    POD_ANTI_AFFINITY = "PodAntiAffinity"
    TOPOLOGY_SPREAD = "TopologySpread"
    RESIZABLE = "Resizable"  # the new size could not be reached there: static manager, or another system than Linux
    PODS = "Pods"
    CPU = "Cpu"
    MEMORY = "Memory"
    VOLUME_LIMIT = "VolumeLimit"
    COMPETITION = "Competition"  # pods that wait for a node may take the room first


def tolerates(toleration: Toleration, taint: Taint, *, doubt: bool) -> bool:
    """Whether one toleration covers a taint. The operators Lt and Gt count only where a feature gate (alpha) is on."""
    if (toleration.effect and toleration.effect != taint.effect) or (toleration.key and toleration.key != taint.key):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            return doubt
        case _:
            return False


def tolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration], *, doubt: bool) -> bool:
    """Whether no taint keeps new pods with these tolerations away (plugin TaintToleration)."""
    return all(
        any(tolerates(toleration, taint, doubt=doubt) for toleration in tolerations)
        for taint in taints
        if taint.effect in _REPELLING
    )


def admits(node: Node, tolerations: Sequence[Toleration], *, doubt: bool) -> bool:
    """Whether the node is not cordoned, or the pod does not mind (plugin NodeUnschedulable)."""
    return not node.unschedulable or tolerated((_CORDON,), tolerations, doubt=doubt)


def selects(selector: Iterable[tuple[str, str]], node: Node) -> bool:
    """Whether the node has all labels of a `nodeSelector`."""
    return all(node.labels.get(key) == value for key, value in selector)


def matches_any(terms: Iterable[NodeTerm], node: Node) -> bool:
    """Whether one of the terms holds for the node; a term without requirements holds for none (NodeSelectorTerm)."""
    return any(
        (term.expressions or term.fields)
        and all(_holds(one, node.labels) for one in term.expressions)
        and all(_holds_field(one, node.name) for one in term.fields)
        for term in terms
    )


def _holds(requirement: NodeRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: NodeRequirement, value: str | None) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    if not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(requirement.values[0])):
        return False
    has, bound = int(value), int(requirement.values[0])
    return has > bound if requirement.operator == "Gt" else has < bound


def _holds_field(requirement: NodeRequirement, name: str) -> bool:
    if requirement.key != "metadata.name" or len(requirement.values) != 1:
        return False
    match requirement.operator:
        case "In":
            return name == requirement.values[0]
        case "NotIn":
            return name != requirement.values[0]
        case _:
            return False


def collide(wanted: Iterable[HostPort], taken: Sequence[HostPort]) -> bool:
    """Whether a port that is wanted of a node is taken there (plugin NodePorts)."""
    return any(
        one.port == other.port
        and one.protocol == other.protocol
        and (one.ip == other.ip or EVERY_ADDRESS in (one.ip, other.ip))
        for one in wanted
        for other in taken
    )


class VolumeNeeds(NamedTuple):
    """What a pod's claims ask of a node.

    `unknown`: a claim of which nothing can be said: it or its volume is missing, or is not bound and nobody is going to
    provide it on the pod's node. `volumes`: those it is bound to. `places`: where volumes can be made that do not exist
    yet. `attached`: driver and handle of each volume that counts for the limit of a driver. `single_pod` and
    `single_node`: claims that one pod, or the pods of one node, can use at a time.
    """

    unknown: bool
    volumes: tuple[Volume, ...]
    places: tuple[tuple[NodeTerm, ...], ...]
    attached: tuple[tuple[str, str], ...]
    single_pod: tuple[str, ...]
    single_node: tuple[str, ...]


def volume_needs(pod: Pod, storage: Storage) -> VolumeNeeds:
    """What the pod's claims ask of a node (plugins VolumeBinding, VolumeZone, VolumeRestrictions, NodeVolumeLimits)."""
    unknown = False
    volumes: list[Volume] = []
    places: list[tuple[NodeTerm, ...]] = []
    attached: list[tuple[str, str]] = []
    single_pod: list[str] = []
    single_node: list[str] = []
    for name in pod.scheduling.claims:
        claim = storage.claims.get((pod.namespace, name))
        if claim is None:
            unknown = True
            continue
        if _SINGLE_POD in claim.access_modes and not claim.of_pod:
            single_pod.append(name)
        if not claim.access_modes & _SHARED_MODES and not claim.of_pod:
            single_node.append(name)
        if claim.volume is not None and not claim.of_pod:
            volume = storage.volumes.get(claim.volume)
            unknown = unknown or volume is None
            if volume is not None:
                volumes.append(volume)
                if volume.driver and volume.handle:
                    attached.append((volume.driver, volume.handle))
            continue
        made_by = storage.classes.get(claim.storage_class)
        if made_by is None or not made_by.waits or made_by.provisioner in _NO_PROVISIONER:
            unknown = True
            continue
        # a handle that no volume has: the plugin counts a volume that is still to be made as a further one
        attached.append((made_by.provisioner, f"{pod.namespace}/{name} to be made"))
        if made_by.topologies:
            places.append(made_by.topologies)
    return VolumeNeeds(unknown, tuple(volumes), tuple(places), tuple(attached), tuple(single_pod), tuple(single_node))


def reaches(volume: Volume, node: Node) -> bool:
    """Whether the node can use the volume, by its node affinity and by its labels of zone and region."""
    if volume.node_terms is not None and not matches_any(volume.node_terms, node):
        return False
    if not volume.labels or not any(key in node.labels for key in _ZONES):
        return True  # in a cluster of one zone nodes need not have these labels
    for key, instead in _ZONES.items():
        if (zones := volume.labels.get(key)) is None:
            continue
        values = [zone.strip() for zone in zones.split("__")]
        if all(values) and node.labels.get(key, node.labels.get(instead)) not in values:
            return False
    return True
