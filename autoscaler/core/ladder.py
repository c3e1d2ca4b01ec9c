"""What to do about a resize that is not over: wait, fit, give up. One rung at a time, derived from the pod alone.

Which rung was last is read from who asked last: each kind of ask has a field manager of its own, and `managedFields`
dates it. So a controller that restarts goes on where the other stopped. Source: KEP-1287; patience is the policy's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from autoscaler.core import kubelet
from autoscaler.core.actions import AskKind
from autoscaler.core.bounds import ROUND_TO
from autoscaler.core.guards import Hold
from autoscaler.core.model import (
    RESOURCES,
    Container,
    ContainerKind,
    Node,
    Pod,
    QoSClass,
    Resource,
    ResourceList,
    Resources,
)
from autoscaler.core.notes import Notes
from autoscaler.core.pairing import Blocked, Wish, pair, qos_class
from autoscaler.core.plan import PredictedOutcome, Proposal
from autoscaler.core.policy import Config, Fallback, FallbackAction, Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Step
from autoscaler.core.resize import Phase, PhaseReport
from autoscaler.core.restarts import unexplained
from autoscaler.core.rooms import Rooms


@dataclass(frozen=True, slots=True)
class Rung:
    """A patch that an unfinished resize calls for, and why. `due_at`: the deadline that runs on if it is refused."""

    kind: AskKind
    reason: Reason
    detail: str
    proposals: tuple[Proposal, ...]
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table of phases.

    `read_from`: what shows the phase. `waiting`: the reason while it is waited for, as long as `patience` says (None:
    for ever), which is set by `setting`. `overdue`: the reason when that is over, None where it never is. `then`: what
    is done then, in words. `next`: the phases that may follow while nobody else asks; Deleting and Unknown may always.
    """

    read_from: str
    waiting: Reason
    setting: str
    patience: Callable[[Fallback, Config], timedelta | None]
    overdue: Reason | None
    then: str
    next: tuple[Phase, ...] = ()


PHASES: Mapping[Phase, Rule] = {
    Phase.DELETING: Rule(
        "`deletionTimestamp`", Reason.DELETING, "", lambda fallback, config: None, None, "the pod is left alone"
    ),
    Phase.UNKNOWN: Rule(
        "a resize condition with any other reason",
        Reason.RESIZE_UNKNOWN,
        "",
        lambda fallback, config: None,
        None,
        "hands off, until a version of this program knows the reason",
        tuple(Phase),
    ),
    Phase.DEFERRED: Rule(
        "`PodResizePending`, reason Deferred",
        Reason.RESIZE_DEFERRED,
        "fallback.after",
        lambda fallback, config: fallback.after,
        Reason.DEADLINE_PASSED,
        "half-way a fit, if that is a gain; at the deadline `fallback.action`",
        (Phase.IN_PROGRESS, Phase.INFEASIBLE, Phase.PROPOSED, Phase.SETTLED),
    ),
    Phase.INFEASIBLE: Rule(
        "`PodResizePending`, reason Infeasible",
        Reason.RESIZE_INFEASIBLE,
        "fallback.infeasibleAfter",
        lambda fallback, config: fallback.infeasible_after,
        Reason.DEADLINE_PASSED,
        "`fallback.action`; the same or a larger ask is not sent to this node again",
        (Phase.DEFERRED, Phase.IN_PROGRESS, Phase.PROPOSED, Phase.SETTLED),
    ),
    Phase.ERROR: Rule(
        "`PodResizeInProgress`, reason Error",
        Reason.RESIZE_ERROR,
        "fallback.errorAfter",
        lambda fallback, config: fallback.error_after,
        Reason.DEADLINE_PASSED,
        "the spec goes back to what is in force",
        (Phase.IN_PROGRESS, Phase.DEFERRED, Phase.INFEASIBLE, Phase.PROPOSED, Phase.SETTLED),
    ),
    Phase.IN_PROGRESS: Rule(
        "`PodResizeInProgress` without a reason",
        Reason.RESIZE_IN_PROGRESS,
        "2 minutes",
        lambda fallback, config: config.actuation_patience,
        Reason.RESIZE_STALLED,
        "nothing but this warning: the kubelet is still at it",
        (Phase.ERROR, Phase.DEFERRED, Phase.INFEASIBLE, Phase.SETTLED),
    ),
    Phase.PROPOSED: Rule(
        "no resize condition, and spec, allocated and actual differ",
        Reason.RESIZE_PROPOSED,
        "30 seconds",
        lambda fallback, config: config.kubelet_patience,
        Reason.KUBELET_SILENT,
        "nothing but this warning",
        (Phase.IN_PROGRESS, Phase.DEFERRED, Phase.INFEASIBLE, Phase.ERROR, Phase.SETTLED),
    ),
}
"""Every phase but Settled, in order of precedence. From Settled a new ask leads to Proposed."""


MOVABLE = frozenset({Phase.DEFERRED, Phase.INFEASIBLE})
"""Phases in which another node might help."""


def deadline(pod: Pod, report: PhaseReport, policy: Policy, config: Config) -> datetime | None:
    """From when on a resize that stands like this is a reason to move its pod; None if it is none, as where the pod has
    more than it needs."""
    if report.phase not in MOVABLE or report.since is None or policy.fallback.action is not FallbackAction.MIGRATE:
        return None
    if not kubelet.grows(pod, {}):
        return None
    patience = PHASES[report.phase].patience(policy.fallback, config)
    return None if patience is None else report.since + patience


def climb(
    pod: Pod,
    report: PhaseReport,
    policy: Policy,
    node: Node | None,
    rooms: Rooms,
    config: Config,
    notes: Notes,
    now: datetime,
) -> Hold | Rung:
    """What a resize that is not over, and stands as reported, calls for now.

    A rung that the API server has refused is not sent again before its time; meanwhile a deadline is kept all the same.
    """
    rung = _climb(pod, report, policy, node, rooms, config, now)
    return rung if isinstance(rung, Hold) else unless_refused(pod, report, rung, notes, now)


def unless_refused(pod: Pod, report: PhaseReport, rung: Rung, notes: Notes, now: datetime) -> Hold | Rung:
    """The rung, or the hold of one that the API server has refused and that is not sent again yet."""
    proposed = {p.container.name: p.proposed for p in rung.proposals}
    if (refusal := notes.refused_rung(pod, rung.kind, proposed, now)) is None:
        return rung
    words = f"{rung.reason} was refused before: {refusal.detail}; {rung.detail}"
    if rung.due_at is None:
        return Hold(refusal.reason, words, refusal.until)
    return Hold(PHASES[report.phase].waiting, words, min(refusal.until or rung.due_at, rung.due_at))


def _climb(
    pod: Pod, report: PhaseReport, policy: Policy, node: Node | None, rooms: Rooms, config: Config, now: datetime
) -> Hold | Rung:
    rule = PHASES[report.phase]
    patience = rule.patience(policy.fallback, config)
    if patience is None or report.since is None:
        return Hold(rule.waiting, report.detail)
    due_at = report.since + patience
    if now >= due_at:
        return _overdue(pod, policy, node, report, rule, now - report.since)
    words = f"{report.detail}; deadline {due_at.isoformat(timespec='seconds')}"
    if report.phase is Phase.DEFERRED and _has_room(pod, node, rooms):
        return Hold(Reason.KUBELET_NOT_RETRYING, words, due_at)
    if report.phase is not Phase.DEFERRED or not policy.fallback.fit or _has_fitted(pod):
        return Hold(rule.waiting, words, due_at)
    if unexplained(pod, policy) is not None:
        return Hold(rule.waiting, words, due_at)
    halfway_at = report.since + patience / 2
    if now < halfway_at:
        return Hold(rule.waiting, words, halfway_at)
    fit = _fit(pod, policy, node, rooms)
    return Hold(rule.waiting, words, due_at) if fit is None else replace(fit, due_at=due_at)


def _has_fitted(pod: Pod) -> bool:
    """Whether this wait has been prolonged by a fit: once is enough, however often a little room appears."""
    return pod.newest_ask is not None and pod.newest_ask.manager in (AskKind.FIT, AskKind.REST)


def _has_room(pod: Pod, node: Node | None, rooms: Rooms) -> bool:
    """Whether the whole ask would fit by now. To send the same again would change nothing, and a detour through the old
    size would give up the room that it reserves; the kubelet looks again by itself, at most 3 minutes later."""
    found = kubelet.predict(pod, {}, node, rooms.others(pod)).outcome
    return found in (PredictedOutcome.IN_PLACE, PredictedOutcome.RESTART)


def _overdue(
    pod: Pod, policy: Policy, node: Node | None, report: PhaseReport, rule: Rule, waited: timedelta
) -> Hold | Rung:
    words = f"{report.detail or report.phase} for {int(waited.total_seconds())} s"
    if rule.overdue is not Reason.DEADLINE_PASSED:
        return Hold(rule.overdue or rule.waiting, words)
    action = policy.fallback.action
    # a decrease that the kubelet cannot apply is no reason to move a pod
    if report.phase is Phase.ERROR or (action is FallbackAction.MIGRATE and not kubelet.grows(pod, {})):
        action = FallbackAction.REVERT
    if action is FallbackAction.REVERT:
        return revert(pod, report.phase, node, words) or Hold(rule.waiting, words)
    return Hold(Reason.DEADLINE_PASSED, words)


def revert(pod: Pod, phase: Phase, node: Node | None, because: str) -> Hold | Rung | None:
    """Back to what the node has granted: a pending ask would reserve room on it for as long as the pod lives.

    None: the spec is what is granted; or a revert waits itself, for room that a refused decrease of memory gave up, and
    what is granted to a Guaranteed pod is that decrease, which would be refused again.
    """
    back = granted(pod, phase)
    if pod.newest_ask is not None and pod.newest_ask.manager == AskKind.REVERT and _lowers_memory(pod, back):
        return None
    if (found := qos_class(pod, back)) is not pod.qos_class:
        return Hold(Reason.QOS_WOULD_CHANGE, f"what is in force would make the pod {found}; {because}")
    # a node that has become too small for what it has granted: the server refuses to put that back
    if node is not None and (refusal := kubelet.refused_by_api_server(kubelet.resized(pod, back), node)) is not None:
        return Hold(Reason.EXCEEDS_NODE, f"{refusal}; {because}")
    proposals = _proposals(pod, back, "revert", because)
    return Rung(AskKind.REVERT, Reason.REVERT, because, proposals) if any(p.changed for p in proposals) else None


def _lowers_memory(pod: Pod, back: Mapping[str, Resources]) -> bool:
    return any((back.get(c.name, c.spec).limits.memory or 0) < (c.in_force.limits.memory or 0) for c in pod.containers)


def granted(pod: Pod, phase: Phase) -> dict[str, Resources]:
    """What is in force: requests as allocated and limits from status; after an Error both from status, since
    `allocatedResources` already shows the refused decrease there.

    An ask may follow an Error and wait: limits from status are then still those before the decrease. What is allocated
    may be above them, and a Guaranteed pod needs those that go with what is allocated.
    """
    return {c.name: _granted(pod, phase, c) for c in pod.containers if c.kind is not ContainerKind.INIT}


def _granted(pod: Pod, phase: Phase, container: Container) -> Resources:
    actual = container.actual
    found = actual.requests if phase is Phase.ERROR and actual else container.allocated
    requests = _known(found, container.spec.requests)
    limits = _known(actual.limits if actual else None, container.spec.limits)
    for resource in RESOURCES:
        request, limit = requests.get(resource), limits.get(resource)
        if request and limit and (request > limit or pod.qos_class is QoSClass.GUARANTEED):
            limits = limits.with_amount(resource, request)
    return Resources(requests, limits)


def _known(found: ResourceList | None, spec: ResourceList) -> ResourceList:
    """The found amounts where the spec has the field: presence of fields never changes."""
    if found is None:
        return spec
    return ResourceList(
        None if spec.cpu is None else found.cpu or spec.cpu,
        None if spec.memory is None else found.memory or spec.memory,
    )


def _proposals(
    pod: Pod, resources: Mapping[str, Resources], rung: str, because: str, *, cap: bool = False
) -> tuple[Proposal, ...]:
    """Every container of the pod with its new resources, and a step named by the rung for each request that moves."""

    def proposal(container: Container) -> Proposal:
        old, new = container.spec, resources.get(container.name, container.spec)
        steps = (
            Step(resource, rung, old.requests.get(resource), new.requests.get(resource), because, cap)
            for resource in RESOURCES
            if old.requests.get(resource) != new.requests.get(resource)
        )
        return Proposal(container, new, tuple(steps))

    return tuple(map(proposal, pod.containers))


def _fit(pod: Pod, policy: Policy, node: Node | None, rooms: Rooms) -> Rung | None:
    """Ask for what the node can give right now, if that is a real gain; None if it is not."""
    if node is None:
        return None
    others, in_force = rooms.others(pod), granted(pod, Phase.DEFERRED)
    base = kubelet.resized(pod, in_force)
    wishes: dict[str, ResourceList] = {}
    for resource in RESOURCES:
        for name, amount in _shares(pod, base, resource, node, others, policy.stability.min_change.increase).items():
            wishes[name] = wishes.get(name, ResourceList()).with_amount(resource, amount)
    if not wishes:
        return None
    paired = pair(base, {c.name: _wish(policy, c, wishes[c.name]) for c in policy.sized(pod) if c.name in wishes})
    if isinstance(paired, Blocked):
        return None
    fitting = {**in_force, **paired[0]}
    if kubelet.predict(base, fitting, node, others).outcome is not PredictedOutcome.IN_PLACE:
        return None
    proposals = _proposals(pod, fitting, "fit", "what the node has room for", cap=True)
    if not any(proposal.changed for proposal in proposals):
        return None  # there is room for all of it: the kubelet will try again
    return Rung(AskKind.FIT, Reason.FIT, "as much as the node has room for now", proposals)


def _wish(policy: Policy, container: Container, requests: ResourceList) -> Wish:
    entry = policy.container_policy(container)
    limit = container.in_force.limits.memory or 0  # what asks for more lowers no memory limit on the way
    return Wish(requests) if entry is None else Wish(requests, entry.limits, entry.max_allowed, limit)


def _shares(
    pod: Pod, base: Pod, resource: Resource, node: Node, others: ResourceList, least: float
) -> Mapping[str, int]:
    """The node's free room of one resource, shared among the containers that want more, in proportion to how much."""
    capacity = node.allocatable.get(resource)
    if capacity is None:
        return {}
    has = {c.name: c.spec.requests.get(resource) or 0 for c in base.containers}
    missing = {
        c.name: (c.spec.requests.get(resource) or 0) - has[c.name]
        for c in pod.containers
        if c.kind is not ContainerKind.INIT and (c.spec.requests.get(resource) or 0) > has[c.name]
    }
    taken = kubelet.footprint(base, kubelet.desired).get(resource) or 0
    free = max(capacity - (others.get(resource) or 0) - taken, 0)
    whole, unit = sum(missing.values()), ROUND_TO[resource]
    shares = {name: min(wanted, free * wanted // whole // unit * unit) for name, wanted in missing.items()}
    return {name: has[name] + more for name, more in shares.items() if more > 0 and more >= least * has[name]}
