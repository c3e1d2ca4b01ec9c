"""What is known about the cluster at one moment, in Kubernetes' own words. Frozen values, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from autoscaler.core.problems import ProblemWord
from autoscaler.core.scheduling import DisruptionBudget, Scheduling, Storage, Taint
from autoscaler.core.units import Bytes, Millicores, format_cpu, format_memory

_EMPTY: Mapping[str, str] = MappingProxyType({})
_NONE: Mapping[str, int] = MappingProxyType({})

ANNOTATION_PREFIX = "bridge-autoscaler.dev/"


class Resource(StrEnum):
    """The two resources that a running pod can change (KEP-1287)."""

    CPU = "cpu"
    MEMORY = "memory"

    def quantity(self, amount: int) -> str:
        """Canonical quantity of an amount in this resource's base unit: millicores or bytes."""
        return format_cpu(Millicores(amount)) if self is Resource.CPU else format_memory(Bytes(amount))


RESOURCES = tuple(Resource)
"""Both, in the order in which a kubelet looks at them."""


class QoSClass(StrEnum):
    """`status.qosClass`."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerKind(StrEnum):
    """Where a container stands in the pod. A sidecar is an init container with restartPolicy Always."""

    CONTAINER = "Container"
    SIDECAR = "Sidecar"
    INIT = "Init"


@dataclass(frozen=True, slots=True)
class ResourceList:
    """Amounts by resource; None where the field is absent (which is not zero)."""

    cpu: Millicores | None = None
    memory: Bytes | None = None

    def get(self, resource: Resource) -> int | None:
        """The amount in the resource's base unit: millicores or bytes."""
        return self.cpu if resource is Resource.CPU else self.memory

    @staticmethod
    def of(amounts: Mapping[Resource, int]) -> ResourceList:
        """The list of these amounts; a resource that is not named is absent."""
        cpu, memory = amounts.get(Resource.CPU), amounts.get(Resource.MEMORY)
        return ResourceList(None if cpu is None else Millicores(cpu), None if memory is None else Bytes(memory))

    def with_amount(self, resource: Resource, amount: int | None) -> ResourceList:
        """The same list with one amount replaced."""
        if resource is Resource.CPU:
            return ResourceList(None if amount is None else Millicores(amount), self.memory)
        return ResourceList(self.cpu, None if amount is None else Bytes(amount))


@dataclass(frozen=True, slots=True)
class Resources:
    """`resources` of a container: what it is promised and what it may use at most."""

    requests: ResourceList = ResourceList()
    limits: ResourceList = ResourceList()


@dataclass(frozen=True, slots=True)
class Termination:
    """`lastState.terminated` of a container."""

    reason: str
    exit_code: int
    finished_at: datetime | None
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod: desired (spec), set aside (allocated) and in force (actual).

    `allocated` and `actual` are None where the kubelet does not report them. `waiting`: the reason for which one that
    does not run waits, such as `CrashLoopBackOff`.
    """

    name: str
    kind: ContainerKind = ContainerKind.CONTAINER
    spec: Resources = Resources()
    allocated: ResourceList | None = None
    actual: Resources | None = None
    restart_on: frozenset[Resource] = frozenset()
    running: bool = False
    ended: bool = False
    waiting: str = ""
    restart_count: int = 0
    started_at: datetime | None = None
    last_terminated: Termination | None = None

    @property
    def in_force(self) -> Resources:
        """The size that the node enforces now, as far as known; the spec is only what is wanted."""
        if self.actual is not None:
            return self.actual
        if self.allocated is not None:
            return Resources(self.allocated, self.spec.limits)
        return self.spec


@dataclass(frozen=True, slots=True)
class Condition:
    """An entry of `status.conditions`."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A `managedFields` entry with subresource `resize`: who asked for a size, and when (1 s resolution)."""

    manager: str
    at: datetime


class PodRef(NamedTuple):
    """A pod by name. Names return with another uid: compare uids before acting."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, as far as sizing needs it. `containers` holds init containers first, as the spec orders them.

    `annotations`: those under `ANNOTATION_PREFIX`, with which people speak to this program, and those by which others
    say that a pod must not be moved. `ready`: condition Ready; `ready_changed_at`: since when it is as it is. `owner`:
    the direct controller, "Kind/name". `disrupted`: condition DisruptionTarget, by whoever it was. `unscheduled`: why
    the scheduler finds no node for it. `gone_by`: when one that is being deleted should have stopped. `sums_reported`:
    its kubelet reports what is allocated to the pod as a whole, too.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: _EMPTY, hash=False)
    annotations: Mapping[str, str] = field(default_factory=lambda: _EMPTY, hash=False)
    workload: str | None = None  # "Kind/name" of the topmost controller
    node: str | None = None
    phase: str = "Running"
    deleting: bool = False
    ready: bool = True
    static: bool = False
    qos_class: QoSClass = QoSClass.BURSTABLE
    priority: int = 0
    generation: int = 1
    observed_generation: int = 0  # 0: the kubelet does not report it (before 1.34)
    conditions: tuple[Condition, ...] = ()
    containers: tuple[Container, ...] = ()
    pod_level: Resources | None = None
    overhead: ResourceList = ResourceList()
    sums_reported: bool = False
    asks: tuple[Ask, ...] = ()
    gated: str | None = None  # what marks it as another quota system's, in words
    owner: str | None = None
    created_at: datetime | None = None
    gone_by: datetime | None = None
    ready_changed_at: datetime | None = None
    ip: str = ""
    disrupted: bool = False
    unscheduled: str | None = None
    scheduling: Scheduling = Scheduling()

    @property
    def ref(self) -> PodRef:
        return PodRef(self.namespace, self.name)

    @property
    def newest_ask(self) -> Ask | None:
        """The last time that anyone asked for another size, read from `managedFields`; None if nobody has."""
        return max(self.asks, key=lambda ask: ask.at, default=None)

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type if its status is True: a False one counts as absent."""
        return next((c for c in self.conditions if c.type == kind and c.status == "True"), None)


@dataclass(frozen=True, slots=True)
class Node:
    """A node: what its pods can be given in all, and what it is able to do.

    `extended`: allocatable of every other resource, as in `Scheduling.extended`; `pods`: how many pods it takes (None:
    not said). `unschedulable`: cordoned.
    """

    name: str
    allocatable: ResourceList
    ready: bool = True
    os: str = "linux"
    declared_features: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=lambda: _EMPTY, hash=False)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    pods: int | None = None
    extended: Mapping[str, int] = field(default_factory=lambda: _NONE, hash=False)


class WorkloadRef(NamedTuple):
    """A controller of pods: its namespace and "Kind/name"."""

    namespace: str
    object: str

    @property
    def kind(self) -> str:
        return self.object.partition("/")[0]

    @property
    def name(self) -> str:
        return self.object.partition("/")[2]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Workload:
    """A StatefulSet, ReplicaSet or Deployment: how many pods it wants, and what a new one would ask for.

    `labels`: of its template. `template`: resources of its containers by name, init containers included. `settled`: no
    rollout is going on, it is not being deleted, and the status is of this generation. `owned`: it has a controller
    itself, as the ReplicaSet of a Deployment has, whose pods these are. `revision`: what the label
    `controller-revision-hash` of a StatefulSet's next pod will be. `scaled`: who last set the number of replicas
    through the subresource `scale`, from `managedFields`; None if someone has set it in another way since.
    """

    ref: WorkloadRef
    uid: str
    resource_version: str = ""
    replicas: int = 1
    labels: Mapping[str, str] = field(default_factory=lambda: _EMPTY, hash=False)
    template: Mapping[str, Resources] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    settled: bool = True
    owned: bool = False
    revision: str = ""
    scaled: Ask | None = None


class Capability(StrEnum):
    """What may be missing at run time, each a folder under rbac/."""

    AUTOSCALERS = "autoscalers"  # see other people's autoscalers
    MIGRATE = "migrate"  # evict, and see what an eviction has to be proved with
    SURGE = "surge"  # scale Deployments


class ScaledResource(NamedTuple):
    """A resource that a HorizontalPodAutoscaler scales on by its utilisation, which is usage divided by the request.

    No container: that of all the pod's containers together.
    """

    resource: Resource
    container: str | None = None


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """A HorizontalPodAutoscaler or VerticalPodAutoscaler of a workload.

    `target`: "Kind/name" in its namespace. `mode`: `updatePolicy.updateMode` of a VerticalPodAutoscaler.
    """

    kind: str
    namespace: str
    name: str
    target: str
    resources: frozenset[ScaledResource] = frozenset()
    mode: str = ""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Everything a turn may know about the cluster. `taken_at` is the API server's time, aware UTC.

    `problems`: objects that could not be read, and are therefore not in it. `autoscalers`: those of others.
    `server_minor`: 37 for an API server 1.37; None if it is not known. `capabilities`: what is permitted and can be
    read now; without `MIGRATE` there are no disruption budgets and no storage in it.
    """

    taken_at: datetime
    pods: Mapping[PodRef, Pod]
    nodes: Mapping[str, Node]
    problems: tuple[Problem, ...] = ()
    autoscalers: tuple[Autoscaler, ...] = ()
    server_minor: int | None = None
    workloads: Mapping[WorkloadRef, Workload] = field(default_factory=lambda: MappingProxyType({}))
    disruption_budgets: tuple[DisruptionBudget, ...] = ()
    storage: Storage = Storage()
    capabilities: frozenset[Capability] = frozenset()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that went wrong and belongs to no single pod: a source, a reason word, and what to do."""

    source: str
    reason: ProblemWord
    detail: str
