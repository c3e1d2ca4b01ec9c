"""A policy as the core sees it: validated, in units, its recommender built. policyfile.py makes these from YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from autoscaler.core.labels import LabelSelector
from autoscaler.core.model import Container, ContainerKind, Pod, Resource, ResourceList, Workload
from autoscaler.core.recommender import Grid, Recommender

T = TypeVar("T")


class Mode(StrEnum):
    """How far a policy may go."""

    OFF = "Off"
    RECOMMEND = "Recommend"
    RESIZE = "Resize"
    RESIZE_OR_MIGRATE = "ResizeOrMigrate"


class LimitMode(StrEnum):
    """What happens to a limit when its request moves. The QoS class comes first in every mode."""

    KEEP = "Keep"  # the ratio of limit to request
    EQUAL = "Equal"  # limit = request
    REQUESTS_ONLY = "RequestsOnly"  # limits stay


@dataclass(frozen=True, slots=True)
class Selector:
    """Which pods a policy is for. No namespaces: all of them. All label requirements must hold."""

    namespaces: frozenset[str] = frozenset()
    labels: LabelSelector = LabelSelector()

    def matches(self, pod: Pod) -> bool:
        return (not self.namespaces or pod.namespace in self.namespaces) and self.labels.matches(pod.labels)


@dataclass(frozen=True, slots=True)
class ContainerPolicy:
    """How the containers whose name matches are sized. An exact name wins over a pattern, then file order."""

    name: str = "*"
    managed: bool = True
    controlled: frozenset[Resource] = frozenset(Resource)
    min_allowed: ResourceList = ResourceList()
    max_allowed: ResourceList = ResourceList()
    limits: LimitMode = LimitMode.KEEP


@dataclass(frozen=True, slots=True)
class ByDirection(Generic[T]):
    """One setting for growing and one for shrinking."""

    increase: T
    decrease: T


@dataclass(frozen=True, slots=True)
class Stability:
    """What keeps sizes from flapping. Ratios are relative to the size in force: 0.05 is 5 %.

    `other_writer_hold`: how long a pod is left alone after someone else asked for a size.
    """

    min_change: ByDirection[float] = ByDirection(0.05, 0.10)
    max_step: ByDirection[float] = ByDirection(1.0, 0.30)
    cooldown: ByDirection[timedelta] = ByDirection(timedelta(seconds=30), timedelta(minutes=10))
    other_writer_hold: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Care:
    """What is taken care of whatever a policy says. A back-test that scores a recommender alone takes none.

    `whole_units`: sizes are rounded up to what a node can tell apart. `memory_floor`: memory stays above what was used
    lately. `recovery`: a container that has just restarted gets no less.
    """

    whole_units: bool = True
    memory_floor: bool = True
    recovery: bool = True


class FallbackAction(StrEnum):
    """What happens when a resize has waited past its deadline."""

    REVERT = "Revert"  # the spec goes back to what is in force
    HOLD = "Hold"  # the ask stays, and with it the room that it reserves
    MIGRATE = "Migrate"


class Strategy(StrEnum):
    """How a pod is moved."""

    EVICT = "Evict"  # evicted; its controller makes another one
    SURGE = "Surge"  # one replica more first: the new pod is ready before the old one goes (Deployments)
    NONE = "None"  # say what would be done, and do nothing


class Landing(StrEnum):
    """Which of the nodes that could take a replacement smaller than the target must have room for the target."""

    EVERY = "Every"
    SOME = "Some"


@dataclass(frozen=True, slots=True)
class PodEndpoint:
    """An HTTP address of a pod: `http://POD-IP:port/path`."""

    port: int
    path: str = "/"


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """How the users' sessions are asked for and waited for. Of `query` and `endpoint` one is given.

    `query`: PromQL for the number of live sessions by pod, `$pod` standing for a regular expression of pod names.
    `endpoint`: answers GET with that number. `notify`: is POSTed to when the bridge should take no new sessions, and
    when it may again. `max_wait`: for how long sessions are waited for, from the first such notice on, and without
    `notify` from the deadline; then the pod is moved all the same if `then_force`, else the move is called off.
    """

    query: str | None = None
    endpoint: PodEndpoint | None = None
    notify: PodEndpoint | None = None
    max_wait: timedelta = timedelta(hours=1)
    then_force: bool = False


@dataclass(frozen=True, slots=True)
class Migration:
    """How a pod is moved whose resize has waited past its deadline.

    `min_pod_age`: the youngest pod of its workload must be this old. `ready_within`: how long a surge waits for its new
    pod. `drain` None: there are no sessions to wait for.
    """

    strategy: Strategy = Strategy.EVICT
    min_pod_age: timedelta = timedelta(minutes=30)
    landing: Landing = Landing.EVERY
    ready_within: timedelta = timedelta(minutes=5)
    drain: DrainPolicy | None = None


@dataclass(frozen=True, slots=True)
class Fallback:
    """How long an unfinished resize is waited for, from the newest ask on, and what then.

    `after`: Deferred. `infeasible_after`: Infeasible. `error_after`: a memory decrease that the kubelet cannot apply.
    `fit`: ask for what there is room for when half of `after` has passed. `retry_after`: after giving up, an ask that
    would be deferred again waits this long.
    """

    after: timedelta = timedelta(seconds=30)
    infeasible_after: timedelta = timedelta(seconds=30)
    error_after: timedelta = timedelta(minutes=10)
    retry_after: timedelta = timedelta(minutes=10)
    action: FallbackAction = FallbackAction.REVERT
    fit: bool = True
    migration: Migration = Migration()


@dataclass(frozen=True, slots=True)
class Policy:
    """One BridgePolicy. `grid` says which samples are asked for; `rate_window` the range of CPU rates; `min_coverage`
    the share of them, from 0 to 1, without which nothing is lowered; `signals` the PromQL of further ones by name."""

    name: str
    recommender: Recommender[Any]
    selector: Selector = Selector()
    mode: Mode = Mode.RECOMMEND
    containers: tuple[ContainerPolicy, ...] = (ContainerPolicy(),)
    stability: Stability = Stability()
    care: Care = Care()
    fallback: Fallback = Fallback()
    grid: Grid = field(default_factory=Grid)
    rate_window: timedelta = timedelta(minutes=5)
    min_coverage: float = 0.8
    signals: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    source: str = ""  # where it was read from, for messages

    @property
    def moves(self) -> bool:
        """Whether it may move the pods that it selects."""
        return self.mode is Mode.RESIZE_OR_MIGRATE and self.fallback.action is FallbackAction.MIGRATE

    def container_policy(self, container: Container) -> ContainerPolicy | None:
        """The entry for a container, or None if the policy leaves it alone."""
        found: ContainerPolicy | None = None
        for entry in self.containers:
            if entry.name == container.name:
                found = entry
                break
            if found is None and fnmatchcase(container.name, entry.name):
                found = entry
        return found if found is not None and found.managed else None

    def sized(self, pod: Pod) -> list[Container]:
        """The containers of a pod that the policy sizes. Plain init containers have ended and are left alone."""
        return [c for c in pod.containers if c.kind is not ContainerKind.INIT and self.container_policy(c) is not None]


@dataclass(frozen=True, slots=True)
class Budgets:
    """How much may be going on at once. None: no limit.

    In flight on a node: resizes that wait for room. In flight of a workload: pods whose resize is not over.
    Disruptions: pods that `resizePolicy` restarts, that are being evicted, or whose replacement is not ready yet; of a
    workload every pod that is not available counts.
    """

    max_in_flight_per_node: int = 1
    max_in_flight_per_workload: int | None = None
    max_disruptions_per_workload: int = 1
    max_disruptions_per_namespace: int = 2
    max_disruptions_cluster: int = 5


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that a decision depends on besides the cluster and the measurements."""

    policies: tuple[Policy, ...] = ()
    namespaces: frozenset[str] = frozenset()  # what is looked at at all; empty: everything
    recommender_patience: timedelta = timedelta(seconds=1)  # for one container's answer
    kubelet_patience: timedelta = timedelta(seconds=30)  # from an ask to the kubelet's first word
    actuation_patience: timedelta = timedelta(minutes=2)  # from an ask to its end, once the kubelet has begun
    max_sample_age: timedelta = timedelta(minutes=5)
    budgets: Budgets = Budgets()

    def policies_of(self, pod: Pod) -> list[Policy]:
        """The policies that select a pod; more than one is a mistake that only a person can solve."""
        if self.namespaces and pod.namespace not in self.namespaces:
            return []
        return [policy for policy in self.policies if policy.selector.matches(pod)]

    def moves(self, pod: Pod) -> bool:
        """Whether a policy may move the pod."""
        return any(policy.moves for policy in self.policies_of(pod))

    def moves_pods_of(self, workload: Workload) -> bool:
        """Whether a policy may move the pods of a workload, also those that are nowhere to be seen."""
        return self.moves(Pod(workload.ref.namespace, "", "", labels=workload.labels))
