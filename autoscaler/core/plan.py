"""What was decided: one decision for each selected pod, each with its reason and its trail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from autoscaler.core.actions import AskKind, ContainerResize, Move, Resize
from autoscaler.core.model import Container, Pod, PodRef, Problem, ResourceList, Resources, Workload, WorkloadRef
from autoscaler.core.order import precedence
from autoscaler.core.policy import DrainPolicy, Strategy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Step


class PredictedOutcome(StrEnum):
    """What the kubelet (or the API server before it) is expected to answer."""

    IN_PLACE = "InPlace"
    RESTART = "Restart"
    DEFERRED = "Deferred"
    ERROR = "Error"  # accepted, and then not applied: a memory limit at or below what is in use
    INFEASIBLE = "Infeasible"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted outcome and the arithmetic behind it."""

    outcome: PredictedOutcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One container, what is proposed for it (its spec, where nothing is), and the steps that led there."""

    container: Container
    proposed: Resources
    trail: tuple[Step, ...] = ()

    @property
    def changed(self) -> bool:
        return self.proposed != self.container.spec


@dataclass(frozen=True, slots=True)
class Check:
    """One precondition of a migration. `reason`: what it is held for if it does not hold. `due_at`: when it will, if
    only time is wanting."""

    name: str
    reason: Reason
    holds: bool
    detail: str = ""
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """How a pod would be moved, from when on, and each precondition as it stands now, in the order of `checks`.

    `landing`: the nodes that have room for it, best first.
    """

    strategy: Strategy
    due_at: datetime
    checks: tuple[Check, ...]
    landing: tuple[str, ...] = ()

    @property
    def blocked(self) -> Check | None:
        """The first precondition that does not hold."""
        return next((check for check in self.checks if not check.holds), None)


@dataclass(frozen=True, slots=True)
class Drain:
    """A pod whose users' sessions matter now: their number is asked for as the policy says.

    `telling`: it should take no new sessions from now on. `due_at`: since when it may have been told so.
    """

    pod: PodRef
    uid: str
    ip: str
    how: DrainPolicy
    telling: bool
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Gate:
    """What is known of a pod's sessions. `open`: it may go. `measured_at`: API server's time. Not `known`: it is closed
    because nobody can tell whether there are any. `told_at`: when this controller first told the pod, or tried to, to
    take no new sessions; None: it has not, or has called that off since."""

    uid: str
    open: bool
    detail: str
    measured_at: datetime
    known: bool = True
    told_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about one pod. `action` None: nothing, and `reason` says why.

    `due_at`: when this should be looked at again even if nothing changes. `proposals` covers all containers of the pod
    in the order of its spec, whether or not anything is done. `migration`: where the policy may move the pod and its
    resize is not over; `move`: the step of it that is due. `drain`: where the pod's sessions matter by now.
    """

    pod: Pod
    policy: str | None
    reason: Reason
    detail: str
    proposals: tuple[Proposal, ...]
    action: Resize | None = None
    prediction: Prediction = Prediction(PredictedOutcome.UNKNOWN)
    due_at: datetime | None = None
    migration: MigrationReport | None = None
    move: Move | None = None
    drain: Drain | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer of one turn. `workloads`: those of the snapshot, for whoever compares pods with their templates.

    `measured_at`: when usage, as it was decided on, was last measured; None: it never was.
    """

    taken_at: datetime
    decisions: tuple[Decision, ...]
    problems: tuple[Problem, ...] = ()
    workloads: Mapping[WorkloadRef, Workload] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    measured_at: datetime | None = None

    @property
    def measurement_age(self) -> timedelta | None:
        """How long before this turn usage was last measured; None: it never was."""
        return None if self.measured_at is None else self.taken_at - self.measured_at

    @property
    def acting(self) -> list[Decision]:
        """The decisions to resize a pod, in the order in which it is done."""
        return sorted((d for d in self.decisions if d.action is not None), key=lambda d: precedence(d.pod))

    @property
    def moving(self) -> list[Decision]:
        """The decisions to move a pod, in the order in which it is done."""
        return sorted((d for d in self.decisions if d.move is not None), key=lambda d: precedence(d.pod))


def resize_of(pod: Pod, proposals: tuple[Proposal, ...], kind: AskKind = AskKind.TARGET) -> Resize:
    """One patch for the whole pod with the fields that differ from the spec, and no others."""
    return Resize(
        pod.ref,
        pod.uid,
        pod.generation,
        tuple(
            ContainerResize(p.container.name, p.container.kind, _changes(p.container.spec, p.proposed))
            for p in proposals
            if p.changed
        ),
        kind,
    )


def _changes(old: Resources, new: Resources) -> Resources:
    def differing(before: ResourceList, after: ResourceList) -> ResourceList:
        return ResourceList(
            after.cpu if after.cpu != before.cpu else None,
            after.memory if after.memory != before.memory else None,
        )

    return Resources(differing(old.requests, new.requests), differing(old.limits, new.limits))
