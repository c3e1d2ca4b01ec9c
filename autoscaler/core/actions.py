"""What can be done to a pod, and what came of it. Values; the ports perform them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.core.model import Ask, ContainerKind, PodRef, Resources, WorkloadRef


class AskKind(StrEnum):
    """Why a size is asked for. The value is the field manager of the patch, by which the pod itself tells which ask
    was the last, and of what kind."""

    TARGET = "bridge-autoscaler"  # what the recommender says, after bounds
    FIT = "bridge-autoscaler-fit"  # as much of it as the node has room for
    REST = "bridge-autoscaler-rest"  # what the recommender says, right after a fit: to reserve room that appears
    FIRST = "bridge-autoscaler-first"  # what goes down in a pod, before what goes up
    REVERT = "bridge-autoscaler-revert"  # back to what is in force: the ask is given up


OURS = frozenset(map(str, AskKind))
"""The field managers of this program."""


@dataclass(frozen=True, slots=True)
class ContainerResize:
    """The fields of one container that change, and only those: an absent amount stays as it is."""

    name: str
    kind: ContainerKind
    change: Resources


@dataclass(frozen=True, slots=True)
class Resize:
    """One patch to `pods/resize`, for one incarnation (uid) of one pod at one generation of its spec."""

    pod: PodRef
    uid: str
    generation: int
    containers: tuple[ContainerResize, ...]
    kind: AskKind = AskKind.TARGET


@dataclass(frozen=True, slots=True)
class Evict:
    """One call of the Eviction API for one incarnation of a pod, at this version: a pod that has changed meanwhile, and
    may have its size by now, is left alone. `landing`: the nodes that were proved to have room for the replacement."""

    pod: PodRef
    uid: str
    resource_version: str
    landing: tuple[str, ...] = ()


class ScaleKind(StrEnum):
    """Why a Deployment is scaled. The value is the field manager, by which the Deployment itself tells that it has one
    pod more than it should, and since when."""

    SURGE = "bridge-autoscaler-surge"  # one more
    BACK = "bridge-autoscaler-surge-back"  # as many as before


@dataclass(frozen=True, slots=True)
class Scale:
    """One patch to `deployments/scale`, for one Deployment (uid) at this version. `pod`: the one that is to move.

    `undoes`: the scale that it takes back. Then that one has to be the last, and the version may be another: with each
    pod that comes and goes the status changes, and so the version.
    """

    workload: WorkloadRef
    uid: str
    resource_version: str
    replicas: int
    kind: ScaleKind
    pod: PodRef
    undoes: Ask | None = None


Move = Evict | Scale
"""A step of moving a pod to another node."""


class OutcomeKind(StrEnum):
    """What came of an action."""

    ACCEPTED = "Accepted"  # stored by the server; the kubelet's answer is yet to come
    ALTERED = "Altered"  # stored, but admission made something else of it
    SUPERSEDED = "Superseded"  # the pod changed since the decision: nothing was sent
    CONFLICT = "Conflict"  # 409: someone wrote in between
    GONE = "Gone"  # 404, or the name belongs to another uid now
    REFUSED = "Refused"  # the server says no: admission, validation, quota
    FORBIDDEN = "Forbidden"  # a permission is missing
    THROTTLED = "Throttled"  # 429
    BLOCKED = "Blocked"  # a PodDisruptionBudget does not allow the eviction now
    UNKNOWN = "Unknown"  # no answer: it may or may not have happened


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one action. `cause` is the server's machine-readable cause, if it gave one."""

    kind: OutcomeKind
    detail: str = ""
    cause: str = ""
    retry_after_s: float | None = None
