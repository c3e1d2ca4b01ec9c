"""What was learned from refusals: a cache. Losing it costs one refused ask for each pod, never more.

The ask of a pod that was refused is not repeated as it is; a static CPU or memory manager, which no field of a node
tells of, is recognised by the kubelet's words and remembered for the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from autoscaler.core.actions import AskKind, Evict, Outcome, OutcomeKind, Scale, ScaleKind
from autoscaler.core.model import RESOURCES, Pod, PodRef, Resource, ResourceList, Resources, Workload
from autoscaler.core.plan import Decision, Plan, PredictedOutcome
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import Phase, phase_of

_STATIC = re.compile(r'(CPU|Memory) Manager policy "[Ss]tatic"')
_THROTTLED_S = 1.0  # where a 429 does not say how long
_BY_CAUSE = {
    "NodeCapacity": Reason.EXCEEDS_NODE,
    "LimitRange": Reason.LIMIT_RANGE,
    "ResourceQuota": Reason.RESOURCE_QUOTA,
    "AdmissionPolicy": Reason.ADMISSION_DENIED,
    "AdmissionWebhook": Reason.ADMISSION_DENIED,
    "NodeFeatures": Reason.RESIZE_UNSUPPORTED,
    "UnsupportedPlatform": Reason.RESIZE_UNSUPPORTED,
    "ResizeUnsupported": Reason.RESIZE_UNSUPPORTED,
    "QoSClass": Reason.QOS_WOULD_CHANGE,
}

_MOVE_REFUSED = {
    OutcomeKind.BLOCKED: Reason.EVICTION_BLOCKED,
    OutcomeKind.THROTTLED: Reason.THROTTLED,
    OutcomeKind.REFUSED: Reason.EVICTION_REFUSED,
    OutcomeKind.FORBIDDEN: Reason.MIGRATION_NOT_PERMITTED,
}
_BACK_OFF, _BACK_OFF_AT_MOST = timedelta(seconds=5), timedelta(minutes=5)
_FORGOTTEN = timedelta(minutes=10)  # after which a refusal is no longer one in a row

_MOST = 16  # refusals that are remembered of one pod

Requests = Mapping[str, ResourceList]  # of a pod's containers, by name


class Refusal(NamedTuple):
    """An ask that was refused, by whom in which words, and until when it is not repeated (None: on this node never).

    `kind`: of the ask, where it was the API server that refused. `has`: what the spec had then.
    """

    node: str | None
    requests: Requests
    reason: Reason
    detail: str
    until: datetime | None
    kind: AskKind | None = None
    has: Requests = MappingProxyType({})


class MoveRefusal(NamedTuple):
    """A move that did not come about. `times`: how often in a row."""

    reason: Reason
    detail: str
    until: datetime
    times: int = 1


class Successor(NamedTuple):
    """What an evicted pod's successor will ask for, by container name, and when the pod was evicted."""

    pod: Pod
    target: Mapping[str, Resources]
    at: datetime


@dataclass(frozen=True, slots=True)
class Notes:
    """Refusals by pod uid, and the resources that a node's static managers do not let Guaranteed pods change.

    `moves`: refused evictions and surges by pod uid, and refused ends of surges by the uid of the Deployment. `surges`:
    until when none of a Deployment (by uid) is begun, which may not show that one was, as somebody else may set the
    number since. `beyond`: since when a pod (by uid) has been wanted larger than its node can ever make it.
    `successors`: of evicted pods. `called_off`: when the move of a pod (by uid) was, because of its sessions.
    `began_at`: when the first turn was that was learned from.
    """

    refusals: Mapping[str, tuple[Refusal, ...]] = field(default_factory=lambda: MappingProxyType({}))
    static: Mapping[str, frozenset[Resource]] = field(default_factory=lambda: MappingProxyType({}))
    moves: Mapping[str, MoveRefusal] = field(default_factory=lambda: MappingProxyType({}))
    surges: Mapping[str, datetime] = field(default_factory=lambda: MappingProxyType({}))
    beyond: Mapping[str, datetime] = field(default_factory=lambda: MappingProxyType({}))
    successors: Mapping[PodRef, Successor] = field(default_factory=lambda: MappingProxyType({}))
    called_off: Mapping[str, datetime] = field(default_factory=lambda: MappingProxyType({}))
    began_at: datetime | None = None

    def refused_move(self, uid: str, now: datetime) -> MoveRefusal | None:
        """Why a move is not tried again yet: of a pod, or back to as many replicas as before of a Deployment."""
        found = self.moves.get(uid)
        return found if found is not None and now < found.until else None

    def called_off_at(self, pod: Pod, rest: timedelta, now: datetime) -> datetime | None:
        """When the pod's move was called off, less than `rest` ago: else it would be told anew at once that it should
        take no new sessions, as who is called off is not followed any longer."""
        at = self.called_off.get(pod.uid)
        return at if at is not None and now < at + rest else None

    def surged(self, deployment: Workload, now: datetime) -> datetime | None:
        """Until when no surge of a Deployment is begun, as one was a short time ago."""
        until = self.surges.get(deployment.uid)
        return until if until is not None and now < until else None

    def refusal(self, pod: Pod, resources: Mapping[str, Resources], now: datetime) -> Refusal | None:
        """The refusal that asking for these resources would meet again: the same ask, or one that goes further."""
        asked = {c.name: resources.get(c.name, c.spec).requests for c in pod.containers}
        return next((known for known in self._valid(pod, now) if _repeats(asked, known)), None)

    def refused_rung(
        self, pod: Pod, kind: AskKind, resources: Mapping[str, Resources], now: datetime
    ) -> Refusal | None:
        """The API server's refusal of the very same ask, by which it is not sent again with each turn."""
        asked = {c.name: resources.get(c.name, c.spec).requests for c in pod.containers}
        return next((one for one in self._valid(pod, now) if one.kind is kind and one.requests == asked), None)

    def _valid(self, pod: Pod, now: datetime) -> Iterator[Refusal]:
        return (one for one in self.refusals.get(pod.uid, ()) if one.node == pod.node and _holds(one, now))


def _holds(refusal: Refusal, now: datetime) -> bool:
    return refusal.until is None or now < refusal.until


def _repeats(asked: Requests, refusal: Refusal) -> bool:
    """What was to fall and may not says nothing about growing: amounts that fell count as far as they fell."""
    return all(
        wanted <= refused if refused < has else wanted >= refused
        for name in refusal.requests
        for resource in RESOURCES
        for has, refused, wanted in [_amounts(resource, name, refusal.has, refusal.requests, asked)]
    )


def _amounts(resource: Resource, name: str, *of: Requests) -> list[int]:
    return [one.get(name, ResourceList()).get(resource) or 0 for one in of]


def _reaches(asked: Requests, refused: Requests) -> bool:
    """Whether all that is asked for is as much as was refused, or more."""
    return all(
        (asked.get(name, ResourceList()).get(resource) or 0) >= (requests.get(resource) or 0)
        for name, requests in refused.items()
        for resource in RESOURCES
    )


def _noted(known: tuple[Refusal, ...], new: Refusal, now: datetime) -> tuple[Refusal, ...]:
    """With one more refusal, without those that it makes superfluous, or that are over. A pod has a handful."""
    known = tuple(r for r in known if r.node == new.node and _holds(r, now))
    if new.until is not None:
        kept = [r for r in known if r.until is None or r.requests != new.requests]
    elif any(r.until is None and _reaches(new.requests, r.requests) for r in known):
        return known
    else:
        kept = [r for r in known if r.until is not None or not _reaches(r.requests, new.requests)]
    return (*kept, new)[-_MOST:]


def learn(
    notes: Notes,
    pods: Iterable[Pod],
    done: Iterable[tuple[Decision, Outcome]],
    policies: Mapping[str, Policy],
    now: datetime,
) -> Notes:
    """The notes after a turn that saw all these pods and did these things. What is known of other pods is dropped, and
    of nodes on which none of them is: a node may come back without the manager."""
    refusals: dict[str, tuple[Refusal, ...]] = {}
    static, nodes = dict(notes.static), set[str | None]()
    beyond: dict[str, datetime] = {}
    called_off: dict[str, datetime] = {}
    for pod in pods:
        nodes.add(pod.node)
        if (since := notes.called_off.get(pod.uid)) is not None:
            called_off[pod.uid] = since
        if (since := notes.beyond.get(pod.uid)) is not None:
            beyond[pod.uid] = since
        if (known := notes.refusals.get(pod.uid)) is not None:
            refusals[pod.uid] = known
        if not pod.conditions or (report := phase_of(pod)).phase is not Phase.INFEASIBLE or pod.node is None:
            continue
        requests = {c.name: c.spec.requests for c in pod.containers}
        infeasible = Refusal(pod.node, requests, Reason.RESIZE_INFEASIBLE, report.detail, None)
        refusals[pod.uid] = _noted(refusals.get(pod.uid, ()), infeasible, now)
        if (words := _STATIC.search(report.detail)) is not None:
            resource = Resource.CPU if words[1] == "CPU" else Resource.MEMORY
            static[pod.node] = static.get(pod.node, frozenset()) | {resource}
    for decision, outcome in done:
        if (policy := policies.get(decision.policy or "")) is None:
            continue
        told = None if outcome.retry_after_s is None else timedelta(seconds=outcome.retry_after_s)
        if outcome.kind is OutcomeKind.REFUSED:
            reason, wait = _BY_CAUSE.get(outcome.cause, Reason.REFUSED), told or policy.fallback.retry_after
        elif outcome.kind is OutcomeKind.ALTERED:
            reason, wait = Reason.ADMISSION_DENIED, policy.fallback.retry_after
        elif outcome.kind is OutcomeKind.THROTTLED:
            reason, wait = Reason.THROTTLED, told or timedelta(seconds=_THROTTLED_S)
        else:
            continue
        requests = {p.container.name: p.proposed.requests for p in decision.proposals}
        has = {p.container.name: p.container.spec.requests for p in decision.proposals}
        kind = decision.action.kind if decision.action is not None else None
        refused = Refusal(decision.pod.node, requests, reason, outcome.detail, now + wait, kind, has)
        refusals[decision.pod.uid] = _noted(refusals.get(decision.pod.uid, ()), refused, now)
    static = {node: resources for node, resources in static.items() if node in nodes}
    return _with(notes, refusals=refusals, static=static, beyond=beyond, called_off=called_off)


def _with(notes: Notes, **learned: Mapping[Any, Any]) -> Notes:
    """The notes with what was learned; the same where that is nothing new, as in most turns."""
    new: dict[str, Any] = {
        name: MappingProxyType(each) for name, each in learned.items() if each != getattr(notes, name)
    }
    return replace(notes, **new) if new else notes


def learn_moves(
    notes: Notes, moved: Iterable[tuple[Decision, Outcome]], policies: Mapping[str, Policy], now: datetime
) -> Notes:
    """The notes after moves were tried. What is refused again and again is tried less and less often."""
    moves = {uid: known for uid, known in notes.moves.items() if now < known.until + _FORGOTTEN}
    surges = {uid: until for uid, until in notes.surges.items() if now < until}
    successors = {ref: one for ref, one in notes.successors.items() if now < one.at + _FORGOTTEN}
    for decision, outcome in moved:
        uid, policy = noted_of(decision), policies.get(decision.policy or "")
        evicted = isinstance(decision.move, Evict) and outcome.kind is OutcomeKind.ACCEPTED
        # a ReplicaSet makes its next pod at once, under another name, and at the size that it was evicted for
        if evicted and (decision.pod.owner or "").startswith("StatefulSet/"):
            target = {one.container.name: one.proposed for one in decision.proposals}
            successors[decision.pod.ref] = Successor(decision.pod, target, now)
        if policy is not None and isinstance(decision.move, Scale):
            surges.pop(decision.move.uid, None)
            if decision.move.kind is ScaleKind.SURGE and outcome.kind is OutcomeKind.ACCEPTED:
                surges[decision.move.uid] = now + policy.fallback.retry_after
        if policy is None or (reason := _refused(decision, outcome)) is None:
            moves.pop(uid, None)
            continue
        count = moves[uid].times + 1 if uid in moves else 1
        if outcome.kind not in (OutcomeKind.REFUSED, OutcomeKind.FORBIDDEN):
            told = timedelta(seconds=outcome.retry_after_s or 0)
            wait = max(told, min(_BACK_OFF * 2 ** min(count - 1, 8), _BACK_OFF_AT_MOST))
        else:
            wait = policy.fallback.retry_after
        moves[uid] = MoveRefusal(reason, outcome.detail, now + wait, count)
    return replace(
        notes,
        moves=MappingProxyType(moves),
        surges=MappingProxyType(surges),
        successors=MappingProxyType(successors),
    )


def noted_of(decision: Decision) -> str:
    """The uid under which the refusal of a decision's move is noted."""
    # the end of a surge is the Deployment's: the next decision about it may be one about another of its pods
    return decision.move.uid if decision.move is not None and _ends_surge(decision) else decision.pod.uid


def _ends_surge(decision: Decision) -> bool:
    return isinstance(decision.move, Scale) and decision.move.kind is ScaleKind.BACK


def _refused(decision: Decision, outcome: Outcome) -> Reason | None:
    """Why a move is not tried again at once."""
    if _ends_surge(decision) and outcome.kind in (OutcomeKind.CONFLICT, OutcomeKind.SUPERSEDED):
        return Reason.SURGING  # or pod after pod would be evicted for a scale that comes too late each time
    return _MOVE_REFUSED.get(outcome.kind)


def learn_wishes(notes: Notes, plan: Plan) -> Notes:
    """The notes after a plan: since when those of its pods are wanted larger than their node can make them, and whose
    move has been called off because of their sessions."""
    beyond, called_off = dict(notes.beyond), dict(notes.called_off)
    for decision in plan.decisions:
        if _called_off(decision, plan.taken_at):
            called_off.setdefault(decision.pod.uid, plan.taken_at)
        else:
            called_off.pop(decision.pod.uid, None)
        if decision.prediction.outcome is PredictedOutcome.INFEASIBLE:
            beyond.setdefault(decision.pod.uid, plan.taken_at)
        else:
            beyond.pop(decision.pod.uid, None)
    if notes.began_at is None:
        notes = replace(notes, began_at=plan.taken_at)
    return _with(notes, beyond=beyond, called_off=called_off)


def _called_off(decision: Decision, now: datetime) -> bool:
    report = decision.migration
    if report is None or now < report.due_at or (check := report.blocked) is None or check.due_at is None:
        return False
    return check.reason in (Reason.DRAINING, Reason.GATE_UNKNOWN) and check.due_at <= now
