"""The one way in: what to do about every selected pod, from values alone.

`decide` neither waits nor acts. A recommender's error, nonsense or slowness holds the pods concerned and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from autoscaler.core import kubelet, quality
from autoscaler.core.actions import ContainerResize, Resize
from autoscaler.core.consult import Candidate, consult
from autoscaler.core.guards import Hold, objection
from autoscaler.core.history import ContainerRef, History, Measurements
from autoscaler.core.model import (
    ClusterSnapshot,
    Container,
    ContainerKind,
    Pod,
    PodRef,
    Problem,
    Resource,
    ResourceList,
    Resources,
)
from autoscaler.core.plan import Decision, Plan, PredictedOutcome, Proposal
from autoscaler.core.policy import Config, Mode, Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.rooms import Rooms
from autoscaler.core.sizing import Sized, size, unchanged

_FINISHED = frozenset({"Succeeded", "Failed"})


def policies_of(pod: Pod, config: Config) -> list[Policy]:
    """The policies that select a pod; more than one is a mistake that only a person can solve."""
    if config.namespaces and pod.namespace not in config.namespaces:
        return []
    return [policy for policy in config.policies if policy.selector.matches(pod)]


def select(snapshot: ClusterSnapshot, config: Config) -> Mapping[ContainerRef, Policy]:
    """The containers whose usage has to be known, each with the policy that sizes it."""
    wanted: dict[ContainerRef, Policy] = {}
    for pod in snapshot.pods.values():
        if pod.phase in _FINISHED:
            continue
        match policies_of(pod, config):
            case [policy] if policy.mode is not Mode.OFF:
                for container in _sized_containers(pod, policy):
                    wanted[ContainerRef(pod.namespace, pod.name, container.name)] = policy
    return wanted


def _sized_containers(pod: Pod, policy: Policy) -> Iterable[Container]:
    return (c for c in pod.containers if c.kind is not ContainerKind.INIT and policy.container_policy(c) is not None)


def decide(
    snapshot: ClusterSnapshot,
    measurements: Measurements,
    config: Config,
    scope: AbstractSet[PodRef] | None = None,
    tick: Callable[[], float] = lambda: 0.0,
) -> Plan:
    """Decide about the selected pods (only those in `scope`, if given).

    `tick` gives seconds of some monotonic clock and serves to measure how long recommenders take.
    """
    decisions: list[Decision] = []
    candidates: list[Candidate] = []
    matched: set[str] = set()
    for ref in sorted(snapshot.pods if scope is None else scope & snapshot.pods.keys()):
        pod = snapshot.pods[ref]
        policies = policies_of(pod, config)
        matched.update(policy.name for policy in policies)
        if not policies or pod.phase in _FINISHED:
            continue
        if len(policies) > 1:
            names = " and ".join(_named(policy) for policy in policies)
            decisions.append(_held(pod, None, Hold(Reason.AMBIGUOUS_POLICY, f"selected by {names}")))
            continue
        (policy,) = policies
        if (hold := objection(pod, policy, config, snapshot.taken_at)) is not None:
            decisions.append(_held(pod, policy, hold))
            continue
        candidates.append(_measured(Candidate(pod, policy), snapshot, measurements, config))
    consult(candidates, snapshot, config, tick)
    rooms = Rooms(snapshot)
    decisions += (_decision(candidate, snapshot, config, rooms) for candidate in candidates)
    decisions.sort(key=lambda decision: decision.pod.ref)
    unmatched = [] if scope is not None else [p for p in config.policies if p.name not in matched]
    problems = (*measurements.problems, *(_matches_nothing(policy) for policy in unmatched))
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
    for container in _sized_containers(pod, policy):
        found = measurements.of(ContainerRef(pod.namespace, pod.name, container.name))
        hold = quality.unfit(found, container.name, policy.grid, snapshot.taken_at, config.max_sample_age)
        if hold is not None:
            candidate.hold = hold
            break
        if isinstance(found, History):
            candidate.histories[container.name] = found
    return candidate


def _decision(candidate: Candidate, snapshot: ClusterSnapshot, config: Config, rooms: Rooms) -> Decision:
    pod, policy = candidate.pod, candidate.policy
    if candidate.hold is not None:
        return _held(pod, policy, candidate.hold)
    sized = size(pod, policy, candidate.targets, candidate.histories, config, snapshot.taken_at)
    if sized.hold is not None:
        return _held(pod, policy, sized.hold, sized.proposals)
    resources = sized.resources
    prediction = kubelet.predict(pod, resources, snapshot.nodes.get(pod.node or ""), rooms.others(pod))
    reason, detail = _direction(sized), _summary(sized)
    action: Resize | None = _resize(pod, sized)
    if prediction.outcome is PredictedOutcome.INFEASIBLE:
        reason, action, detail = Reason.EXCEEDS_NODE, None, prediction.detail
    elif policy.mode is Mode.RECOMMEND:
        reason, action = Reason.RECOMMEND_ONLY, None
    elif prediction.outcome is not PredictedOutcome.DEFERRED:
        rooms.grant(pod, resources)
    return Decision(pod, policy.name, reason, detail, sized.proposals, action, prediction)


def _direction(sized: Sized) -> Reason:
    ups = downs = False
    for proposal in sized.proposals:
        for old, new in _pairs(proposal.container.spec, proposal.proposed):
            ups, downs = ups or new > old, downs or new < old
    return Reason.REBALANCE if ups and downs else Reason.INCREASE if ups else Reason.DECREASE


def _pairs(old: Resources, new: Resources) -> Iterable[tuple[int, int]]:
    for resource in Resource:
        for before, after in ((old.requests, new.requests), (old.limits, new.limits)):
            yield before.get(resource) or 0, after.get(resource) or 0


def _summary(sized: Sized) -> str:
    """The requests that change, in one line."""
    return ", ".join(
        f"{proposal.container.name} {resource} {resource.quantity(old)} -> {resource.quantity(new)}"
        for proposal in sized.proposals
        for resource in Resource
        if (old := proposal.container.spec.requests.get(resource)) is not None
        and (new := proposal.proposed.requests.get(resource)) is not None
        and old != new
    )


def _resize(pod: Pod, sized: Sized) -> Resize:
    """One patch for the whole pod with the fields that differ, and no others."""
    return Resize(
        pod.ref,
        pod.uid,
        pod.generation,
        tuple(
            ContainerResize(p.container.name, p.container.kind, _changes(p.container.spec, p.proposed))
            for p in sized.proposals
            if p.changed
        ),
    )


def _changes(old: Resources, new: Resources) -> Resources:
    def differing(before: ResourceList, after: ResourceList) -> ResourceList:
        return ResourceList(
            after.cpu if after.cpu != before.cpu else None,
            after.memory if after.memory != before.memory else None,
        )

    return Resources(differing(old.requests, new.requests), differing(old.limits, new.limits))
