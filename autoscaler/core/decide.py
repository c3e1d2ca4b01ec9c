"""The one way in: what to do about every selected pod, from values alone.

`decide` neither waits nor acts. A recommender's error, nonsense or slowness holds the pods concerned and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from autoscaler.core import decreases, kubelet, quality
from autoscaler.core.actions import AskKind, Resize
from autoscaler.core.budgets import Ledger
from autoscaler.core.consult import Candidate, consult
from autoscaler.core.guards import Hold, objection, unsizable
from autoscaler.core.history import ContainerRef, Gap, Measurements
from autoscaler.core.ladder import Rung, climb
from autoscaler.core.model import RESOURCES, ClusterSnapshot, Node, Pod, PodRef, Problem, Resources
from autoscaler.core.notes import Notes
from autoscaler.core.order import precedence
from autoscaler.core.plan import Decision, Plan, PredictedOutcome, Prediction, Proposal, resize_of
from autoscaler.core.policy import Config, Mode, Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import Phase, PhaseReport, phase_of
from autoscaler.core.restarts import unexplained
from autoscaler.core.rivals import Rivals
from autoscaler.core.rooms import Rooms
from autoscaler.core.sizing import Sized, size, unchanged

_NO_NOTES = Notes()


class _Unfinished(NamedTuple):
    """A pod whose resize is not over."""

    pod: Pod
    policy: Policy
    report: PhaseReport


def policies_of(pod: Pod, config: Config) -> list[Policy]:
    """The policies that select a pod; more than one is a mistake that only a person can solve."""
    if config.namespaces and pod.namespace not in config.namespaces:
        return []
    return [policy for policy in config.policies if policy.selector.matches(pod)]


def select(snapshot: ClusterSnapshot, config: Config) -> Mapping[ContainerRef, Policy]:
    """The containers whose usage has to be known, each with the policy that sizes it."""
    wanted: dict[ContainerRef, Policy] = {}
    for pod in snapshot.pods.values():
        if pod.phase in kubelet.FINISHED_PHASES:
            continue
        match policies_of(pod, config):
            case [policy] if policy.mode is not Mode.OFF:
                for container in policy.sized(pod):
                    wanted[ContainerRef(pod.namespace, pod.name, container.name)] = policy
    return wanted


def decide(
    snapshot: ClusterSnapshot,
    measurements: Measurements,
    config: Config,
    scope: AbstractSet[PodRef] | None = None,
    tick: Callable[[], float] = lambda: 0.0,
    notes: Notes = _NO_NOTES,
) -> Plan:
    """Decide about the selected pods (only those in `scope`, if given).

    `tick` gives seconds of some monotonic clock and serves to measure how long recommenders take. `notes`: what
    earlier turns learned from refusals.
    """
    decisions: list[Decision] = []
    rooms, rivals = Rooms(snapshot), Rivals(snapshot)
    ledger = Ledger(snapshot, rooms, config.budgets)
    unfinished: list[_Unfinished] = []
    candidates: list[Candidate] = []
    matched: set[str] = set()
    for ref in sorted(snapshot.pods if scope is None else scope & snapshot.pods.keys()):
        pod = snapshot.pods[ref]
        policies = policies_of(pod, config)
        matched.update(policy.name for policy in policies)
        if not policies or pod.phase in kubelet.FINISHED_PHASES:
            continue
        if len(policies) > 1:
            names = " and ".join(_named(policy) for policy in policies)
            decisions.append(_held(pod, None, Hold(Reason.AMBIGUOUS_POLICY, f"selected by {names}")))
            continue
        (policy,) = policies
        if (hold := objection(pod, policy) or rivals.objection(pod, policy)) is not None:
            decisions.append(_held(pod, policy, hold))
            continue
        if (report := phase_of(pod)).phase is not Phase.SETTLED:
            unfinished.append(_Unfinished(pod, policy, report))
            continue
        if (hold := unexplained(pod, policy)) is not None:
            decisions.append(_held(pod, policy, hold))
            continue
        if (hold := unsizable(pod, policy)) is not None:
            decisions.append(_held(pod, policy, hold))
            continue
        candidates.append(_measured(Candidate(pod, policy, rivals.claims(pod)), snapshot, measurements, config))
    consult(candidates, snapshot, config, tick)
    # room and budgets are given in this order
    undecided: list[_Unfinished | Candidate] = [*unfinished, *candidates]
    for one in sorted(undecided, key=lambda one: precedence(one.pod)):
        if isinstance(one, Candidate):
            decisions.append(_decision(one, snapshot, config, rooms, ledger, notes))
        else:
            node = snapshot.nodes.get(one.pod.node or "")
            rung = climb(one.pod, one.report, one.policy, node, rooms, config, notes, snapshot.taken_at)
            decisions.append(_on_rung(one.pod, one.policy, rung, rooms))
    decisions.sort(key=lambda decision: decision.pod.ref)
    unmatched = [] if scope is not None else [p for p in config.policies if p.name not in matched]
    problems = (*snapshot.problems, *measurements.problems, *(_matches_nothing(policy) for policy in unmatched))
    return Plan(snapshot.taken_at, tuple(decisions), problems)


def _named(policy: Policy) -> str:
    return f"{policy.name} ({policy.source})" if policy.source else policy.name


def _matches_nothing(policy: Policy) -> Problem:
    return Problem(f"policy {_named(policy)}", "NothingSelected", "its selector matches no pod; check spec.selector")


def _held(pod: Pod, policy: Policy | None, hold: Hold, proposals: tuple[Proposal, ...] | None = None) -> Decision:
    return Decision(
        pod,
        None if policy is None else policy.name,
        hold.reason,
        hold.detail,
        unchanged(pod) if proposals is None else proposals,
        due_at=hold.due_at,
    )


def _measured(candidate: Candidate, snapshot: ClusterSnapshot, measurements: Measurements, config: Config) -> Candidate:
    """Attach the histories of the pod's containers, or the hold that their lack means."""
    pod, policy = candidate.pod, candidate.policy
    for container in policy.sized(pod):
        found = measurements.of(ContainerRef(pod.namespace, pod.name, container.name))
        hold = quality.unfit(found, container.name, policy.grid, snapshot.taken_at, config.max_sample_age)
        if isinstance(found, Gap) or hold is not None:
            candidate.hold = hold
            break
        candidate.histories[container.name] = found
    candidate.in_use = measurements.in_use
    return candidate


def _on_rung(pod: Pod, policy: Policy, rung: Hold | Rung, rooms: Rooms) -> Decision:
    """A resize that is not over: hold, or the patch that the ladder calls for."""
    if isinstance(rung, Hold):
        return _held(pod, policy, rung)
    if policy.mode is Mode.RECOMMEND:
        return _held(pod, policy, Hold(Reason.RECOMMEND_ONLY, f"{rung.reason}: {rung.detail}"), rung.proposals)
    action = resize_of(pod, rung.proposals, rung.kind)
    rooms.grant(pod, {p.container.name: p.proposed for p in rung.proposals})
    prediction = Prediction(PredictedOutcome.IN_PLACE)
    return Decision(pod, policy.name, rung.reason, rung.detail, rung.proposals, action, prediction, rung.due_at)


def _decision(
    candidate: Candidate, snapshot: ClusterSnapshot, config: Config, rooms: Rooms, ledger: Ledger, notes: Notes
) -> Decision:
    pod, policy, now = candidate.pod, candidate.policy, snapshot.taken_at
    if candidate.hold is not None:
        return _held(pod, policy, candidate.hold)
    oldest_s = quality.oldest(policy.grid, config.max_sample_age)
    known = decreases.Known(candidate.in_use, oldest_s, now, snapshot.server_minor)
    sized = size(pod, policy, candidate.targets, candidate.histories, config, known, candidate.claims)
    if sized.hold is not None:
        return replace(_held(pod, policy, sized.hold, sized.proposals), prediction=sized.prediction)
    node, proposed = snapshot.nodes.get(pod.node or ""), sized.resources
    static = notes.static.get(pod.node or "", frozenset())
    prediction = kubelet.predict(pod, proposed, node, rooms.others(pod), static)
    hold = _not_asked(pod, policy, node, prediction, proposed, notes, now)
    if hold is not None:
        return replace(_held(pod, policy, hold, sized.proposals), prediction=prediction)
    kind, later = _kind(pod, policy, now), ""
    # what restarts containers is one change, for one restart
    if policy.mode is not Mode.RECOMMEND and prediction.outcome is not PredictedOutcome.RESTART:
        first = decreases.first_step(pod, sized.proposals, snapshot.server_minor)
        if first is not None:
            sized, kind, later = replace(sized, proposals=first), AskKind.FIRST, "; increases follow"
            prediction = kubelet.predict(pod, sized.resources, node, rooms.others(pod), static)
    reason, detail = _direction(sized), _summary(sized) + later
    action: Resize | None = resize_of(pod, sized.proposals, kind)
    if policy.mode is Mode.RECOMMEND:
        reason, action = Reason.RECOMMEND_ONLY, None
    elif (hold := ledger.spend(pod, sized.resources, prediction)) is not None:
        return replace(_held(pod, policy, hold, sized.proposals), prediction=prediction)
    return Decision(pod, policy.name, reason, detail, sized.proposals, action, prediction)


def _kind(pod: Pod, policy: Policy, now: datetime) -> AskKind:
    """Of an ask for what the recommender says. The rest of a fit belongs to its wait, for as long as that may last."""
    ask = pod.newest_ask
    fitted = ask is not None and ask.manager == AskKind.FIT and now < ask.at + policy.fallback.after
    return AskKind.REST if fitted else AskKind.TARGET


def _not_asked(
    pod: Pod,
    policy: Policy,
    node: Node | None,
    prediction: Prediction,
    proposed: Mapping[str, Resources],
    notes: Notes,
    now: datetime,
) -> Hold | None:
    """Why a change that is wanted is not asked for: it can never be, it was refused, or it was just given up."""
    if prediction.outcome is PredictedOutcome.INFEASIBLE:
        static = notes.static.get(pod.node or "", frozenset())
        if node is not None and node.os != "linux":
            reason = Reason.RESIZE_UNSUPPORTED
        elif kubelet.refused_by_static_manager(pod, proposed, static) == prediction.detail:
            reason = Reason.STATIC_MANAGER
        else:
            reason = Reason.EXCEEDS_NODE
        return Hold(reason, prediction.detail)
    if (refusal := notes.refusal(pod, proposed, now)) is not None:
        return Hold(refusal.reason, f"refused before: {refusal.detail}", refusal.until)
    ask = pod.newest_ask
    if prediction.outcome is PredictedOutcome.DEFERRED and ask is not None and ask.manager == AskKind.REVERT:
        due_at = ask.at + policy.fallback.retry_after
        if now < due_at:
            return Hold(
                Reason.RETRY_LATER, f"until {due_at.isoformat(timespec='seconds')}. {prediction.detail}", due_at
            )
    return None


def _direction(sized: Sized) -> Reason:
    ups = downs = False
    for proposal in sized.proposals:
        for old, new in _pairs(proposal.container.spec, proposal.proposed):
            ups, downs = ups or new > old, downs or new < old
    return Reason.REBALANCE if ups and downs else Reason.INCREASE if ups else Reason.DECREASE


def _pairs(old: Resources, new: Resources) -> Iterable[tuple[int, int]]:
    for before, after in ((old.requests, new.requests), (old.limits, new.limits)):
        yield before.cpu or 0, after.cpu or 0
        yield before.memory or 0, after.memory or 0


def _summary(sized: Sized) -> str:
    """What changes, in one line: requests, and limits where they change alone."""
    words: list[str] = []
    for proposal in sized.proposals:
        old, new = proposal.container.spec, proposal.proposed
        for resource in RESOURCES:
            for side, before, after in (("", old.requests, new.requests), (" limit", old.limits, new.limits)):
                was, now = before.get(resource), after.get(resource)
                if was is not None and now is not None and was != now:
                    change = f"{resource.quantity(was)} -> {resource.quantity(now)}"
                    words.append(f"{proposal.container.name} {resource}{side} {change}")
                    break
    return ", ".join(words)
