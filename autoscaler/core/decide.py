"""The one way in: what to do about every selected pod, from values alone.

`decide` neither waits nor acts. A recommender's error, nonsense or slowness holds the pods concerned and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple

from autoscaler.core import kubelet, wanted
from autoscaler.core.consult import Candidate, consult
from autoscaler.core.decisions import Decisions, Wish, held, measured
from autoscaler.core.guards import Hold, away, objection, unsizable
from autoscaler.core.history import ContainerRef, Measurements
from autoscaler.core.ladder import deadline
from autoscaler.core.model import Capability, ClusterSnapshot, Pod, PodRef, Problem
from autoscaler.core.notes import Notes
from autoscaler.core.order import precedence
from autoscaler.core.plan import Decision, Gate, Plan
from autoscaler.core.policy import Config, Mode, Policy, Strategy
from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason
from autoscaler.core.replacing import replacing
from autoscaler.core.resize import Phase, PhaseReport, phase_of
from autoscaler.core.restarts import crash_loop, unexplained
from autoscaler.core.rivals import Rivals

_NO_NOTES = Notes()
_NO_GATES: Mapping[PodRef, Gate] = MappingProxyType({})


class _Unfinished(NamedTuple):
    """A pod whose resize is not over."""

    pod: Pod
    policy: Policy
    report: PhaseReport
    wish: Wish | None  # where it may be moved


def select(snapshot: ClusterSnapshot, config: Config) -> Mapping[ContainerRef, Policy]:
    """The containers whose usage has to be known, each with the policy that sizes it."""
    wanted: dict[ContainerRef, Policy] = {}
    for pod in snapshot.pods.values():
        if pod.phase in kubelet.FINISHED_PHASES:
            continue
        match config.policies_of(pod):
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
    gates: Mapping[PodRef, Gate] = _NO_GATES,
) -> Plan:
    """Decide about the selected pods (only those in `scope`, if given).

    `tick` gives seconds of some monotonic clock and serves to measure how long recommenders take. `notes`: what
    earlier turns learned from refusals. `gates`: what is known of the sessions of pods that are going to be moved.
    """
    made: list[Decision] = []
    rivals, decisions = Rivals(snapshot), Decisions(snapshot, measurements, config, notes, gates)
    unfinished: list[_Unfinished] = []
    candidates: list[Candidate] = []
    matched: set[str] = set()
    for ref in sorted(snapshot.pods if scope is None else scope & snapshot.pods.keys()):
        pod = snapshot.pods[ref]
        policies = config.policies_of(pod)
        matched.update(policy.name for policy in policies)
        if not policies or pod.phase in kubelet.FINISHED_PHASES:
            continue
        if len(policies) > 1:
            names = " and ".join(_named(policy) for policy in policies)
            made.append(held(pod, None, Hold(Reason.AMBIGUOUS_POLICY, f"selected by {names}")))
            continue
        (policy,) = policies
        if (hold := objection(pod, policy) or rivals.objection(pod, policy)) is not None:
            made.append(held(pod, policy, replacing(pod, policy, hold, snapshot.taken_at)))
            continue
        if (report := phase_of(pod)).phase is not Phase.SETTLED:
            wish = _wish(pod, report, policy, rivals, snapshot, measurements, config)
            unfinished.append(_Unfinished(pod, policy, report, wish))
            continue
        if (hold := _left_alone(pod, policy, snapshot)) is not None:
            made.append(held(pod, policy, replacing(pod, policy, hold, snapshot.taken_at)))
            continue
        if (leaving := decisions.surges.taken_over(pod)) is not None:
            made.append(decisions.of_newcomer(pod, policy, leaving))
            continue
        candidates.append(measured(Candidate(pod, policy, rivals.claims(pod)), snapshot, measurements, config))
    wishes = [one.wish.candidate for one in unfinished if one.wish is not None]
    consult([*candidates, *wishes], snapshot, config, tick)
    # room and budgets are given in this order
    undecided: list[_Unfinished | Candidate] = [*unfinished, *candidates]
    for one in sorted(undecided, key=lambda one: precedence(one.pod)):
        if isinstance(one, Candidate):
            made.append(decisions.of_candidate(one))
        else:
            made.append(decisions.of_unfinished(one.pod, one.policy, one.report, one.wish))
    made.sort(key=lambda decision: decision.pod.ref)
    problems = [*snapshot.problems, *measurements.problems, *_capabilities_missing(snapshot, config)]
    if scope is None:
        problems += decisions.missing()
        problems += (_matches_nothing(policy) for policy in config.policies if policy.name not in matched)
    made, left_behind = decisions.with_surges_ended(made, everything=scope is None)
    return Plan(snapshot.taken_at, tuple(made), (*problems, *left_behind), snapshot.workloads, measurements.measured_at)


def _left_alone(pod: Pod, policy: Policy, snapshot: ClusterSnapshot) -> Hold | None:
    """Why a settled pod is not sized now, whatever it uses."""
    return (
        unexplained(pod, policy)
        or crash_loop(pod, policy, snapshot.taken_at)
        or unsizable(pod, policy)
        or away(pod, snapshot.nodes.get(pod.node or ""))
    )


def _wish(
    pod: Pod,
    report: PhaseReport,
    policy: Policy,
    rivals: Rivals,
    snapshot: ClusterSnapshot,
    measurements: Measurements,
    config: Config,
) -> Wish | None:
    """What is still wanted for a pod whose resize waits, where it may be moved for it."""
    if (due_at := deadline(pod, report, policy, config)) is None:
        return None
    base = Candidate(wanted.before(pod, report.phase), policy, rivals.claims(pod))
    return Wish(due_at, measured(base, snapshot, measurements, config))


def _named(policy: Policy) -> str:
    return f"{policy.name} ({policy.source})" if policy.source else policy.name


def _matches_nothing(policy: Policy) -> Problem:
    return Problem(
        f"policy {_named(policy)}", Trouble.NOTHING_SELECTED, "its selector matches no pod; check spec.selector"
    )


def _capabilities_missing(snapshot: ClusterSnapshot, config: Config) -> list[Problem]:
    """What policies that migrate would need and the controller may not do, or cannot see now."""
    migrating = [one.fallback.migration for one in config.policies if one.moves]
    needed = {
        Capability.MIGRATE: ("pods are never evicted", bool(migrating)),
        Capability.SURGE: (
            "no Deployment gets one replica more",
            any(one.strategy is Strategy.SURGE for one in migrating),
        ),
    }
    return [
        Problem(
            f"rbac/{capability}",
            Trouble.CAPABILITY_MISSING,
            f"not granted, or cannot be read now; until then {then}. kubectl apply -k rbac/{capability}; a running "
            "controller notices within 20 minutes",
        )
        for capability, (then, wanted) in needed.items()
        if wanted and capability not in snapshot.capabilities
    ]
