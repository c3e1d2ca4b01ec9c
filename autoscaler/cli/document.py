"""The plan as a document: the one source of `plan -o json`, of its JSON Schema and of every other rendering.

Pure. More keys may be added within one schema version; none may change its meaning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from autoscaler.core.actions import AskKind, Evict, Move, Outcome, OutcomeKind, Scale, ScaleKind
from autoscaler.core.drift import Drift, Side, drifts
from autoscaler.core.model import (
    Container,
    ContainerKind,
    PodRef,
    Problem,
    QoSClass,
    Resource,
    ResourceList,
    Resources,
    WorkloadRef,
)
from autoscaler.core.pairing import qos_class
from autoscaler.core.plan import Check, Decision, MigrationReport, Plan, PredictedOutcome, Proposal
from autoscaler.core.policy import Mode, Policy, Strategy
from autoscaler.core.reasons import Reason
from autoscaler.core.trail import sentence

SURGE_ENDS = frozenset({Reason.SURGE_BACK, Reason.SURGE_FAILED})
"""With one of these, an eviction is that of the new pod of a surge."""

SCHEMA_VERSION = "bridge-autoscaler.dev/plan/v1"

Quantity = Annotated[
    str, Meta(description="A canonical Kubernetes quantity: 250m, 2, 954Mi.", pattern="^[0-9]+[A-Za-z]*$")
]
Instant = Annotated[str, Meta(description="RFC 3339, UTC.", extra_json_schema={"format": "date-time"})]
Countdown = Annotated[int, Meta(description="Seconds from takenAt; negative once it has passed.")]


class ActionWord(StrEnum):
    """What is done about a pod."""

    RESIZE = "Resize"
    MIGRATE = "Migrate"
    REVERT = "Revert"
    SURGE = "Surge"
    SURGE_BACK = "SurgeBack"
    NONE = "None"


class _Part(Struct, frozen=True, rename="camel"):
    """A part of the document: keys in camelCase, every key always present, null where a field is absent."""


class Amounts(_Part, frozen=True):
    """One request or limit. `actual` is what the kubelet reports; null too where it reports nothing."""

    spec: Quantity | None
    actual: Quantity | None
    proposed: Quantity | None


class Sides(_Part, frozen=True):
    """Request and limit of one resource."""

    request: Amounts
    limit: Amounts


class ContainerPart(_Part, frozen=True):
    """One container. `because`: the steps from measurement to final value, one sentence each."""

    name: str
    kind: ContainerKind
    cpu: Sides
    memory: Sides
    because: list[str]
    changed: Annotated[bool, Meta(description="Whether a proposed amount differs from the spec.")]


class PredictionPart(_Part, frozen=True):
    """What the kubelet is expected to answer, and the arithmetic behind it."""

    outcome: PredictedOutcome
    detail: str


class ServerAnswer(_Part, frozen=True):
    """The API server's answer to the same patch with dryRun=All."""

    outcome: OutcomeKind
    detail: str
    cause: str


class CheckPart(_Part, frozen=True):
    """One precondition of a migration. `reason` is what the pod is held for where it does not hold."""

    name: str
    holds: bool
    reason: Reason
    detail: str
    due_at: Annotated[Instant | None, Meta(description="When it will hold, if only time is wanting.")]
    in_seconds: Countdown | None


class MigrationPart(_Part, frozen=True):
    """How a pod would be moved whose resize does not come to an end, and whether everything that it needs holds now."""

    strategy: Strategy
    due_at: Annotated[Instant, Meta(description="The deadline of the resize: the pod is not moved before it.")]
    in_seconds: Countdown
    blocked_by: Annotated[Reason | None, Meta(description="The first check that does not hold.")]
    landing: Annotated[list[str], Meta(description="Nodes that have room for the new size, best first.")]
    checks: list[CheckPart]


class MovePart(_Part, frozen=True):
    """The step of a migration that is due, and the object, in the version that it was decided on, that it is about."""

    object: Annotated[str, Meta(description="Kind/name, in the pod's namespace: the pod, or its Deployment.")]
    uid: str
    resource_version: str
    replicas: Annotated[int | None, Meta(description="How many the Deployment gets; null for an eviction.")]
    then_replicas: Annotated[
        int | None, Meta(description="How many the Deployment gets right after an eviction that ends a surge.")
    ]


class DriftPart(_Part, frozen=True):
    """One amount in force that differs from what the owner's template would give the next pod."""

    container: str
    resource: Resource
    side: Side
    template: Quantity
    live: Annotated[Quantity | None, Meta(description="In force, whatever has been asked for; null: there is none.")]


class Item(_Part, frozen=True):
    """One selected pod. `reason` says why something is done, or why not; docs/reasons.md lists them all."""

    namespace: str
    pod: str
    uid: str
    workload: Annotated[str | None, Meta(description="Kind/name of the topmost controller.")]
    node: str | None
    policy: str | None
    mode: Annotated[Mode | None, Meta(description="How far the policy may go.")]
    qos_class: QoSClass
    qos_class_after: Annotated[QoSClass, Meta(description="The QoS class with every proposed amount in place.")]
    action: ActionWord
    reason: Reason
    detail: str
    prediction: PredictionPart
    containers: list[ContainerPart]
    due_at: Annotated[Instant | None, Meta(description="When this is looked at again even if nothing changes.")]
    server: Annotated[ServerAnswer | None, Meta(description="Only with --server-dry-run.")]
    migration: Annotated[
        MigrationPart | None, Meta(description="Where the policy may move the pod and its resize is not over.")
    ]
    move: Annotated[MovePart | None, Meta(description="With action Migrate, Surge or SurgeBack.")]
    drift: Annotated[
        list[DriftPart], Meta(description="Empty where there is none, or the owner's template is not known.")
    ]

    @property
    def proposes(self) -> bool:
        """Whether an amount is proposed that differs from the spec, even if nothing comes of it."""
        return any(container.changed for container in self.containers)

    @property
    def changes(self) -> bool:
        """Whether there is something to do: for the controller, or, where a policy only recommends, for a person."""
        return self.action is not ActionWord.NONE or self.reason is Reason.RECOMMEND_ONLY


class ProblemPart(_Part, frozen=True):
    """Something that went wrong and belongs to no single pod."""

    source: str
    reason: str
    detail: str


class Document(_Part, frozen=True):
    """What `bridge-autoscaler plan` found: every selected pod once, ordered by namespace and pod."""

    schema_version: Annotated[str, Meta(extra_json_schema={"const": SCHEMA_VERSION})]
    taken_at: Instant
    items: list[Item]
    problems: list[ProblemPart]


def document(
    plan: Plan,
    policies: Iterable[Policy] = (),
    answers: Mapping[PodRef, Outcome] | None = None,
    problems: Iterable[Problem] = (),
) -> Document:
    """The document of a plan. `policies` give the modes, `answers` the server's dry runs; `problems` are added."""
    modes = {policy.name: policy.mode for policy in policies}
    decisions = sorted(plan.decisions, key=lambda decision: decision.pod.ref)
    return Document(
        SCHEMA_VERSION,
        _instant(plan.taken_at),
        [_item(decision, plan, modes, (answers or {}).get(decision.pod.ref)) for decision in decisions],
        [ProblemPart(p.source, p.reason, p.detail) for p in sorted({*plan.problems, *problems}, key=_problem_key)],
    )


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the document."""
    schema = msgspec.json.schema(Document)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _item(decision: Decision, plan: Plan, modes: Mapping[str, Mode], answer: Outcome | None) -> Item:
    pod = decision.pod
    owner = plan.workloads.get(WorkloadRef(pod.namespace, pod.owner or ""))
    return Item(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        workload=pod.workload,
        node=pod.node,
        policy=decision.policy,
        mode=modes.get(decision.policy or ""),
        qos_class=pod.qos_class,
        qos_class_after=_qos_class_after(decision),
        action=_action_word(decision),
        reason=decision.reason,
        detail=decision.detail,
        prediction=PredictionPart(decision.prediction.outcome, decision.prediction.detail),
        containers=[_container(proposal) for proposal in decision.proposals],
        due_at=None if decision.due_at is None else _instant(decision.due_at),
        server=None if answer is None else ServerAnswer(answer.kind, answer.detail, answer.cause),
        migration=None if decision.migration is None else _migration(decision.migration, plan.taken_at),
        move=None if decision.move is None else _move(decision.move, _left(decision, plan)),
        drift=[_drift(one) for one in drifts(pod, owner)],
    )


def _action_word(decision: Decision) -> ActionWord:
    if decision.action is not None:
        return ActionWord.REVERT if decision.action.kind is AskKind.REVERT else ActionWord.RESIZE
    match decision.move:
        case Evict():
            return ActionWord.MIGRATE
        case Scale(kind=ScaleKind.SURGE):
            return ActionWord.SURGE
        case Scale(kind=ScaleKind.BACK):
            return ActionWord.SURGE_BACK
        case _:
            return ActionWord.NONE


def _migration(report: MigrationReport, now: datetime) -> MigrationPart:
    blocked = report.blocked
    return MigrationPart(
        strategy=report.strategy,
        due_at=_instant(report.due_at),
        in_seconds=_seconds(report.due_at, now),
        blocked_by=None if blocked is None else blocked.reason,
        landing=list(report.landing),
        checks=[_check(check, now) for check in report.checks],
    )


def _check(check: Check, now: datetime) -> CheckPart:
    due_at = check.due_at
    return CheckPart(
        name=check.name,
        holds=check.holds,
        reason=check.reason,
        detail=check.detail,
        due_at=None if due_at is None else _instant(due_at),
        in_seconds=None if due_at is None else _seconds(due_at, now),
    )


def _move(move: Move, left: int | None) -> MovePart:
    if isinstance(move, Evict):
        return MovePart(f"Pod/{move.pod.name}", move.uid, move.resource_version, None, left)
    return MovePart(move.workload.object, move.uid, move.resource_version, move.replicas, None)


def _left(decision: Decision, plan: Plan) -> int | None:
    """How many replicas a Deployment has without the one that a surge gave it."""
    workload = plan.workloads.get(WorkloadRef(decision.pod.namespace, decision.pod.workload or ""))
    ends = decision.reason in SURGE_ENDS
    return workload.replicas - 1 if ends and workload is not None and workload.replicas else None


def _drift(drift: Drift) -> DriftPart:
    quantity = drift.resource.quantity
    live = None if drift.live is None else quantity(drift.live)
    return DriftPart(drift.container, drift.resource, drift.side, quantity(drift.template), live)


def _qos_class_after(decision: Decision) -> QoSClass:
    changed = {p.container.name: p.proposed for p in decision.proposals if p.changed}
    return qos_class(decision.pod, changed) if changed else decision.pod.qos_class


def _container(proposal: Proposal) -> ContainerPart:
    container = proposal.container
    return ContainerPart(
        name=container.name,
        kind=container.kind,
        cpu=_sides(container, proposal.proposed, Resource.CPU),
        memory=_sides(container, proposal.proposed, Resource.MEMORY),
        because=[sentence(step) for resource in Resource for step in proposal.trail if step.resource is resource],
        changed=proposal.changed,
    )


def _sides(container: Container, proposed: Resources, resource: Resource) -> Sides:
    actual = container.actual or Resources()
    return Sides(
        _amounts(container.spec.requests, actual.requests, proposed.requests, resource),
        _amounts(container.spec.limits, actual.limits, proposed.limits, resource),
    )


def _amounts(spec: ResourceList, actual: ResourceList, proposed: ResourceList, resource: Resource) -> Amounts:
    def text(amounts: ResourceList) -> str | None:
        amount = amounts.get(resource)
        return None if amount is None else resource.quantity(amount)

    return Amounts(text(spec), text(actual), text(proposed))


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _seconds(moment: datetime, now: datetime) -> int:
    """Rounded up: a countdown that says 0 has ended."""
    return math.ceil((moment - now).total_seconds())


def _problem_key(problem: Problem) -> tuple[str, str, str]:
    return problem.source, problem.reason, problem.detail
