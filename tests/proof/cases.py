"""What a case of the landing proof consists of: manifests, and what is done to them before the proof."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoscaler.core.kubelet import footprint
from autoscaler.core.model import Container, Pod, Resource, ResourceList, Resources
from autoscaler.core.units import Bytes, Millicores

Json = dict[str, Any]

NAMESPACE, OTHER = "proof", "proof-other"
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
DRIVER, CLASS, WAITING_CLASS = "disk.example.com", "proof", "proof-waiting"
GPU = "example.com/gpu"
MAIN = "bridge"
MIB = 1 << 20
RUNTIME = "heavy"
"""A runtime class whose pods take `OVERHEAD` besides what their containers request."""


@dataclass
class Placed:
    """A pod other than the subject.

    `sets_aside`: `status.allocatedResources`, if it is not what the spec requests. `asks`: requests that are asked for
    through pods/resize afterwards. `infeasible`: the node answers that it never can. `side_sets_aside`: the allocated
    requests of its second container, if it has one. `leaving`: it is being deleted.
    `phase`: what the status says of a pod that has a node. `late`: it comes when the subject is about to go.
    """

    manifest: Json
    sets_aside: ResourceList | None = None
    asks: ResourceList | None = None
    infeasible: bool = False
    side_sets_aside: ResourceList | None = None
    leaving: bool = False
    phase: str = "Running"
    late: bool = False

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.manifest['metadata']['namespace']}/pods/{self.name}"

    @property
    def node(self) -> str | None:
        node: str | None = self.manifest["spec"].get("nodeName")
        return node


@dataclass
class Case:
    """A cluster, the subject, the size at which its replacement is created, and the one that it shall have then.

    Sizes by container name. `stays`: the subject is still there when its replacement comes, as in a surge. `static`:
    nodes with a static CPU manager, which no API shows.
    """

    seed: int
    subject: Json = field(default_factory=dict)
    created: Mapping[str, Resources] = field(default_factory=dict)
    target: Mapping[str, Resources] = field(default_factory=dict)
    nodes: list[Json] = field(default_factory=list)
    csi_nodes: list[Json] = field(default_factory=list)
    volumes: list[Json] = field(default_factory=list)
    claims: list[Json] = field(default_factory=list)
    pods: list[Placed] = field(default_factory=list)
    stays: bool = False
    static: dict[str, frozenset[Resource]] = field(default_factory=dict)

    @property
    def old_node(self) -> str:
        return str(self.subject["spec"]["nodeName"])

    @property
    def replacement_name(self) -> str:
        return f"{self.subject['metadata']['name']}{'-new' if self.stays else ''}"

    def replacement(self, size: Mapping[str, Resources]) -> Json:
        """The pod that the owner creates in place of the subject, or beside it."""
        spec = {key: value for key, value in self.subject["spec"].items() if key != "nodeName"}
        spec["containers"] = [
            one | {"resources": resized(one.get("resources", {}), size[one["name"]])} if one["name"] in size else one
            for one in spec["containers"]
        ]
        return self.subject | {"metadata": self.subject["metadata"] | {"name": self.replacement_name}, "spec": spec}


def size(cpu: int, memory: int) -> ResourceList:
    """An amount in millicores and bytes."""
    return ResourceList(Millicores(cpu), Bytes(memory))


OVERHEAD = size(120, 64 * MIB)


def quantities(amounts: ResourceList) -> Json:
    """The amounts as the API has them."""
    return {str(r): r.quantity(amount) for r in Resource if (amount := amounts.get(r)) is not None}


def resized(old: Json, new: Resources) -> Json:
    """`resources` of a container at another size; what is neither CPU nor memory stays."""
    merged = {
        side: {**old.get(side, {}), **quantities(of)}
        for side, of in (("requests", new.requests), ("limits", new.limits))
    }
    return {side: of for side, of in merged.items() if of}


def needs(containers: Iterable[Container], overhead: ResourceList) -> ResourceList:
    """What the scheduler keeps for a pod of these containers."""
    pod = Pod("", "", "", containers=tuple(containers), overhead=overhead)
    return footprint(pod, lambda one: one.spec.requests)
