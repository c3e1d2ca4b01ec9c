"""A case in the making: nodes whose room is settled last, once it is known what runs on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from autoscaler.core.model import ResourceList, Resources
from autoscaler.core.units import parse_cpu, parse_memory
from tests.proof.cases import DRIVER, HOSTNAME, MIB, NAMESPACE, OTHER, ZONE, Case, Json, Placed, quantities, size

_EVICTED_BY_NOBODY = [{"operator": "Exists", "effect": "NoExecute"}]


@dataclass
class Spot:
    """A node in the making. `lacks`: predicates that shall fail on it. `room`: free for the subject, it being gone."""

    name: str
    zone: str
    old: bool = False
    lacks: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[Json] = field(default_factory=list)
    ready: str = "True"
    cordoned: bool = False
    static: bool = False
    room: ResourceList = ResourceList()
    free: dict[str, int] = field(default_factory=dict)  # of other resources
    spare_pods: int = 8
    attachable: int | None = None
    pods: list[Placed] = field(default_factory=list)


class Draft:
    """What features add to. `need`: the subject's footprint at its target, `created_need` at its creation."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"landing proof {seed}")
        self.case = Case(seed)
        self.spots: list[Spot] = []
        self.labels: dict[str, str] = {"app": "bridge"}
        self.spec: Json = {}
        self.main: Json = {}
        self.need = self.created_need = self.current_need = ResourceList()
        self.current = Resources()
        self._number = 0

    def name(self, what: str) -> str:
        """A name that no other object of any case has."""
        self._number += 1
        return f"{what}-{self.case.seed}-{self._number}"

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pod(
        self,
        spot: Spot | None,
        labels: Mapping[str, str] | None = None,
        *,
        of: ResourceList | None = None,
        namespace: str = NAMESPACE,
        **spec: Any,
    ) -> Placed:
        """Another pod, on a node or pending."""
        requests = of or self.small()
        manifest: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name("pod"),
                "namespace": namespace,
                "labels": {"app": "other", **(labels or {})},
            },
            "spec": {
                "terminationGracePeriodSeconds": 600,
                "containers": [
                    {"name": "main", "image": "other", "resources": {"requests": quantities(requests)}}
                    | spec.pop("container", {})
                ],
                **spec,
            },
        }
        made = Placed(manifest)
        if spot is not None:
            manifest["spec"] |= {"nodeName": spot.name, "tolerations": _EVICTED_BY_NOBODY}
            spot.pods.append(made)
        self.case.pods.append(made)
        return made

    def small(self) -> ResourceList:
        return size(self.random.randrange(50, 400, 10), self.random.randrange(32, 512, 8) * MIB)

    def crowd(self, spot: Spot) -> None:
        """Pods that have nothing to do with the subject but for the room they take."""
        for _ in range(self.random.choice((0, 1, 1, 2))):
            one = self.pod(spot, namespace=self.random.choice((NAMESPACE, OTHER)), of=self.small())
            kind = self.random.random()
            if kind < 0.15:
                one.leaving = True
            elif kind < 0.35:  # a decrease that has not been applied, of one resource or both
                one.sets_aside = self._more(one, self.random.choice(((300, 0), (0, 300), (500, 400))))
            elif kind < 0.6:  # a raise that waits, or that never comes
                one.asks = self._more(one, self.random.choice(((200, 0), (0, 200), (400, 300))))
                one.infeasible = self.chance(0.3)
            elif kind < 0.7:  # one container waits to grow, the other one to shrink
                self._swap(one)
            elif kind < 0.8:  # has ended, and takes nothing
                one.phase = self.random.choice(("Succeeded", "Failed"))

    def _swap(self, one: Placed) -> None:
        of = self.small()
        side = {"name": "side", "image": "other", "resources": {"requests": quantities(of)}}
        one.manifest["spec"]["containers"].append(side)
        one.side_sets_aside = size((of.cpu or 0) + 250, (of.memory or 0) + 200 * MIB)
        one.asks = self._more(one, self.random.choice(((200, 0), (0, 150), (400, 300))))

    def _more(self, one: Placed, by: tuple[int, int]) -> ResourceList:
        now = requested(one)
        return size((now.cpu or 0) + by[0], (now.memory or 0) + by[1] * MIB)

    def finish(self) -> Case:
        """Give every node what makes its free room come out as settled, and return the case."""
        for spot in self.spots:
            held = [holds(one) for one in spot.pods if one.phase == "Running"]
            cpu = sum(one.cpu or 0 for one in held) + (spot.room.cpu or 0)
            memory = sum(one.memory or 0 for one in held) + (spot.room.memory or 0)
            for one in spot.pods:  # the API server refuses to store what is beyond the node
                most = one.asks if one.side_sets_aside is None else holds(one)
                if most is not None and ((most.cpu or 0) > cpu or (most.memory or 0) > memory):
                    one.asks, one.infeasible = None, False
            pods = len(held) + spot.spare_pods
            others = dict(spot.free)
            for one in spot.pods:
                for resource, text in one.manifest["spec"]["containers"][0]["resources"]["requests"].items():
                    if resource in others and one.phase == "Running":
                        others[resource] += int(text)
            self.case.nodes.append(_node(spot, {**quantities(size(cpu, memory)), "pods": str(pods)}, others))
            if spot.attachable is not None:
                self.case.csi_nodes.append(_csi_node(spot.name, spot.attachable))
        return self.case


def requested(one: Placed, container: int = 0) -> ResourceList:
    """Requests of a container as the pod is created."""
    texts = one.manifest["spec"]["containers"][container]["resources"]["requests"]
    return size(parse_cpu(texts["cpu"]), parse_memory(texts["memory"]))


def holds(one: Placed) -> ResourceList:
    """What the scheduler counts for a pod: the largest of spec, allocated and actual, but no infeasible spec."""
    now = one.sets_aside or requested(one)
    wish = requested(one) if one.asks is None else now if one.infeasible else one.asks
    if one.side_sets_aside is not None:
        now, wish = _sum(now, one.side_sets_aside), _sum(wish, requested(one, 1))
    return size(max(now.cpu or 0, wish.cpu or 0), max(now.memory or 0, wish.memory or 0))


def _sum(one: ResourceList, other: ResourceList) -> ResourceList:
    return size((one.cpu or 0) + (other.cpu or 0), (one.memory or 0) + (other.memory or 0))


def _node(spot: Spot, amounts: Json, others: Mapping[str, int]) -> Json:
    labels = {"kubernetes.io/os": "linux", HOSTNAME: spot.name, ZONE: spot.zone} | spot.labels
    allocatable = amounts | {resource: str(amount) for resource, amount in others.items()}
    spec: Json = {"taints": spot.taints} if spot.taints else {}
    if spot.cordoned:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spot.name, "labels": {key: value for key, value in labels.items() if value}},
        "spec": spec,
        "status": {
            "capacity": allocatable,
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": spot.ready, "reason": "Played", "message": ""}],
            "declaredFeatures": ["InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"],
        },
    }


def _csi_node(name: str, count: int) -> Json:
    driver = {"name": DRIVER, "nodeID": name, "allocatable": {"count": count}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [driver]},
    }
