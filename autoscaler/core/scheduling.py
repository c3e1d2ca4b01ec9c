"""What a scheduler asks of nodes for a pod, and what nodes, volumes and budgets answer. Frozen values, nothing else.

Source: core/v1 PodSpec, NodeSpec, PersistentVolume and PersistentVolumeClaim; storage/v1 StorageClass and CSINode;
policy/v1 PodDisruptionBudget. Only what is required of nodes: preferences decide between nodes that qualify.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from autoscaler.core.labels import LabelSelector

_EMPTY: Mapping[str, str] = MappingProxyType({})
_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Taint:
    """An entry of `spec.taints` of a node. `effect`: NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """An entry of `spec.tolerations`. No key and operator Exists: every taint; no effect: every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """A NodeSelectorRequirement. `operator`: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """A NodeSelectorTerm: all of its requirements must hold. `fields` are on `metadata.name`. Empty: matches nothing.

    Several terms are alternatives.
    """

    expressions: tuple[NodeRequirement, ...] = ()
    fields: tuple[NodeRequirement, ...] = ()


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A required PodAffinityTerm. `namespaces` empty and `namespace_selector` None: the pod's own namespace.

    The API server has already merged `matchLabelKeys` into the selector.
    """

    topology_key: str
    selector: LabelSelector | None = None
    namespaces: frozenset[str] = frozenset()
    namespace_selector: LabelSelector | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """A TopologySpreadConstraint with `whenUnsatisfiable: DoNotSchedule`."""

    max_skew: int
    topology_key: str
    selector: LabelSelector | None = None
    min_domains: int = 1
    honors_affinity: bool = True  # nodeAffinityPolicy
    honors_taints: bool = False  # nodeTaintsPolicy
    match_label_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port that a container takes of its node. `ip` 0.0.0.0 collides with every address."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"  # noqa: S104 (the API's word for every address; nothing listens here)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """What a pod asks of a node besides CPU and memory.

    `extended`: requests of all other resources (devices, ephemeral storage in bytes, hugepages), summed as the
    scheduler does. `claims`: names of PersistentVolumeClaims. `devices`: the pod has `spec.resourceClaims` (DRA).
    `node_terms` None: no node affinity is required.
    """

    scheduler: str = "default-scheduler"
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeTerm, ...] | None = None
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[Spread, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    extended: Mapping[str, int] = field(default_factory=lambda: _NONE, hash=False)
    claims: tuple[str, ...] = ()
    devices: bool = False


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget, as its controller has filled it in. `current`: the status is of this generation.

    `always_allow`: `unhealthyPodEvictionPolicy: AlwaysAllow`. `min_available`, `max_unavailable`: "2" or "50%", at most
    one of them; empty where it is absent.
    """

    namespace: str
    name: str
    selector: LabelSelector | None = None
    allowed: int = 0  # status.disruptionsAllowed
    healthy: int = 0  # status.currentHealthy
    desired: int = 0  # status.desiredHealthy
    expected: int = 0  # status.expectedPods
    always_allow: bool = False
    current: bool = True
    min_available: str = ""
    max_unavailable: str = ""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim. `volume`: the PersistentVolume that it is bound to. `of_pod`: it was made for its pod (a
    generic ephemeral volume) and goes with it: the next pod gets another one."""

    namespace: str
    name: str
    volume: str | None = None
    storage_class: str = ""
    access_modes: frozenset[str] = frozenset()
    of_pod: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume. `node_terms` None: usable from every node. `driver`: of its CSI volume, "" for others.

    `labels`: zone and region of old kinds of volumes, which bind like a node affinity.
    """

    name: str
    node_terms: tuple[NodeTerm, ...] | None = None
    driver: str = ""
    handle: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: _EMPTY, hash=False)


@dataclass(frozen=True, slots=True)
class StorageClass:
    """`waits`: `volumeBindingMode: WaitForFirstConsumer`. `topologies`: `allowedTopologies`, None for everywhere."""

    name: str
    waits: bool = False
    topologies: tuple[NodeTerm, ...] | None = None
    provisioner: str = ""


@dataclass(frozen=True, slots=True)
class Storage:
    """Everything about volumes. `limits`: how many volumes of a CSI driver a node can attach, by node and driver."""

    claims: Mapping[tuple[str, str], VolumeClaim] = field(default_factory=lambda: MappingProxyType({}))
    volumes: Mapping[str, Volume] = field(default_factory=lambda: MappingProxyType({}))
    classes: Mapping[str, StorageClass] = field(default_factory=lambda: MappingProxyType({}))
    limits: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))
