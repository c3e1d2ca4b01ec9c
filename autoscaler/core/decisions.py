"""One decision about one pod: the hold, the patch or the move that comes of everything that is known. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from autoscaler.core import decreases, kubelet, quality, wanted
from autoscaler.core.actions import AskKind, Resize
from autoscaler.core.budgets import Ledger
from autoscaler.core.consult import Candidate
from autoscaler.core.doubted import Doubted
from autoscaler.core.guards import Hold, away
from autoscaler.core.history import ContainerRef, Gap, Measurements
from autoscaler.core.ladder import Rung, climb, revert, unless_refused
from autoscaler.core.migration import Course, Migrations
from autoscaler.core.model import RESOURCES, ClusterSnapshot, Node, Pod, PodRef, Problem, Resource, Resources, Workload
from autoscaler.core.notes import Notes
from autoscaler.core.pairing import qos_class
from autoscaler.core.plan import (
    Check,
    Decision,
    Gate,
    MigrationReport,
    PredictedOutcome,
    Prediction,
    Proposal,
    resize_of,
)
from autoscaler.core.policy import Config, FallbackAction, Mode, Policy, Strategy
from autoscaler.core.preconditions import alive, smaller
from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Step, Target
from autoscaler.core.resize import PhaseReport
from autoscaler.core.rooms import Rooms
from autoscaler.core.siblings import Siblings
from autoscaler.core.sizing import Sized, size, unchanged
from autoscaler.core.successors import Successors
from autoscaler.core.surge import Surges, surges


def held(pod: Pod, policy: Policy | None, hold: Hold, proposals: tuple[Proposal, ...] | None = None) -> Decision:
    """The decision to do nothing."""
    return Decision(
        pod,
        None if policy is None else policy.name,
        hold.reason,
        hold.detail,
        unchanged(pod) if proposals is None else proposals,
        due_at=hold.due_at,
    )


def measured(candidate: Candidate, snapshot: ClusterSnapshot, measurements: Measurements, config: Config) -> Candidate:
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


class Wish(NamedTuple):
    """What the recommender of a pod that waits would say had it not asked, and from when on the pod is to be moved."""

    due_at: datetime
    candidate: Candidate


class Decisions:
    """The decisions of one turn, which share what is free, what is allowed, and what was learned."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        measurements: Measurements,
        config: Config,
        notes: Notes,
        gates: Mapping[PodRef, Gate],
    ) -> None:
        self._snapshot = snapshot
        self._config = config
        self._notes = notes
        self._now = snapshot.taken_at
        self._rooms = Rooms(snapshot)
        siblings = Siblings(snapshot)
        self._doubted = Doubted(snapshot, measurements, config, siblings)
        self.surges = Surges(snapshot, config, siblings)
        self._ledger = Ledger(snapshot, self._rooms, siblings, self.surges, config)
        successors = Successors(snapshot, config, siblings, notes)
        self._migrations = Migrations(snapshot, siblings, self.surges, self._ledger, successors, gates, notes)

    def of_unfinished(self, pod: Pod, policy: Policy, report: PhaseReport, wish: Wish | None) -> Decision:
        """A pod whose resize is not over: wait, the patch that the ladder calls for, or the move that is due. `wish`:
        where it may be moved."""
        node = self._snapshot.nodes.get(pod.node or "")
        if wish is None:
            rung = climb(pod, report, policy, node, self._rooms, self._config, self._notes, self._now)
            return self._on_rung(pod, policy, rung)
        due_at, (check, wants) = wish.due_at, self._still_wanted(pod, wish.candidate)
        # the new pod of a surge takes the size that was asked for
        asked = {container.name: container.spec for container in pod.containers}
        target = asked if surges(policy) else wanted.larger(pod, wants)
        waited = f"{report.detail or report.phase} for {int((self._now - due_at).total_seconds())} s past its deadline"
        course = self._migrations.consider(pod, policy, due_at, target, waited, check)
        if self._now >= due_at and not course.gives_up:
            if course.hold is None:
                return _moved(pod, policy, course)
            rung = course.hold
        elif course.gives_up:
            given_up = revert(pod, report.phase, node, course.detail)
            rung = Hold(Reason.DEADLINE_PASSED, course.detail) if given_up is None else given_up
            if isinstance(rung, Rung):
                rung = unless_refused(pod, report, rung, self._notes, self._now)
        else:
            rung = climb(pod, report, policy, node, self._rooms, self._config, self._notes, self._now)
        return replace(self._on_rung(pod, policy, rung), migration=course.report, drain=course.drain)

    def _still_wanted(self, pod: Pod, wish: Candidate) -> tuple[Check, Mapping[str, Resources]]:
        if wish.hold is not None:
            return Check(wanted.WANTED, wish.hold.reason, False, wish.hold.detail, wish.hold.due_at), {}
        return wanted.still(pod, wish.pod, wish.policy, wish.targets, self._sized(wish))

    def _sized(self, candidate: Candidate, fixed: Collection[Resource] = ()) -> Sized:
        """`fixed`: resources that are left as they are."""
        oldest_s = quality.oldest(candidate.policy.grid, self._config.max_sample_age)
        known = decreases.Known(candidate.in_use, oldest_s, self._now, self._snapshot.server_minor)
        return size(
            candidate.pod,
            candidate.policy,
            {name: _without(target, fixed) for name, target in candidate.targets.items()},
            candidate.histories,
            self._config,
            known,
            candidate.claims,
            self._doubted.of(candidate),
        )

    def _on_rung(self, pod: Pod, policy: Policy, rung: Hold | Rung) -> Decision:
        if (hold := away(pod, self._snapshot.nodes.get(pod.node or ""))) is not None:
            rung = hold._replace(detail=f"{hold.detail}; {rung.detail}", due_at=rung.due_at)
        if isinstance(rung, Hold):
            return held(pod, policy, rung)
        if policy.mode is Mode.RECOMMEND:
            return held(pod, policy, Hold(Reason.RECOMMEND_ONLY, f"{rung.reason}: {rung.detail}"), rung.proposals)
        action = resize_of(pod, rung.proposals, rung.kind)
        self._rooms.grant(pod, {p.container.name: p.proposed for p in rung.proposals})
        prediction = Prediction(PredictedOutcome.IN_PLACE)
        return Decision(pod, policy.name, rung.reason, rung.detail, rung.proposals, action, prediction, rung.due_at)

    def of_candidate(self, candidate: Candidate) -> Decision:
        """A settled pod, whose recommender has answered."""
        pod, policy, now = candidate.pod, candidate.policy, self._now
        snapshot, notes, rooms = self._snapshot, self._notes, self._rooms
        if candidate.hold is not None:
            return held(pod, policy, candidate.hold)
        sized = self._sized(candidate)
        if sized.hold is not None:
            return replace(held(pod, policy, sized.hold, sized.proposals), prediction=sized.prediction)
        node, proposed = snapshot.nodes.get(pod.node or ""), sized.resources
        static = notes.static.get(pod.node or "", frozenset())
        prediction, later = kubelet.predict(pod, proposed, node, rooms.others(pod), static), ""
        if (words := kubelet.refused_by_static_manager(pod, proposed, static)) is not None:
            rest = self._sized(candidate, static)
            if rest.hold is None:  # what the manager has no say in does not wait for what it will never allow
                sized, proposed, later = rest, rest.resources, f"; {words}"
                prediction = kubelet.predict(pod, proposed, node, rooms.others(pod), static)
        hold = _not_asked(pod, policy, node, prediction, proposed, notes, now)
        if hold is not None:
            decision = replace(held(pod, policy, hold, sized.proposals), prediction=prediction)
            beyond = prediction.outcome is PredictedOutcome.INFEASIBLE and kubelet.grows(pod, proposed)
            return self._beyond_its_node(decision, policy, sized) if beyond else decision
        kind = _kind(pod, policy, now)
        # what restarts containers is one change, for one restart
        if policy.mode is not Mode.RECOMMEND and prediction.outcome is not PredictedOutcome.RESTART:
            first = decreases.first_step(pod, sized.proposals, snapshot.server_minor)
            if first is not None:
                sized, kind, later = replace(sized, proposals=first), AskKind.FIRST, f"{later}; increases follow"
                prediction = kubelet.predict(pod, sized.resources, node, rooms.others(pod), static)
        reason, detail = _direction(sized), _summary(sized) + later
        action: Resize | None = resize_of(pod, sized.proposals, kind)
        if policy.mode is Mode.RECOMMEND:
            reason, action = Reason.RECOMMEND_ONLY, None
        elif (hold := self._ledger.spend(pod, sized.resources, prediction)) is not None:
            return replace(held(pod, policy, hold, sized.proposals), prediction=prediction)
        decision = Decision(pod, policy.name, reason, detail, sized.proposals, action, prediction)
        return replace(decision, migration=self._foreseen(decision, policy, sized))

    def _foreseen(self, decision: Decision, policy: Policy, sized: Sized) -> MigrationReport | None:
        """How the pod would be moved if the resize that is asked for now is deferred for too long, as is predicted."""
        if decision.prediction.outcome is not PredictedOutcome.DEFERRED:
            return None
        if policy.fallback.action is not FallbackAction.MIGRATE:
            return None
        due_at = self._now + policy.fallback.after
        return self._migrations.consider(decision.pod, policy, due_at, sized.resources, "").report

    def _beyond_its_node(self, decision: Decision, policy: Policy, sized: Sized) -> Decision:
        """A pod that is wanted larger than its node can ever make it, so that it was never asked for: moved once it has
        been wanted for as long as an Infeasible resize is waited for. Since when is a cache: without it the wait begins
        anew."""
        pod, fallback = decision.pod, policy.fallback
        if fallback.action is not FallbackAction.MIGRATE or fallback.migration.strategy is Strategy.SURGE:
            return decision
        due_at = self._due_since(self._notes.beyond.get(pod.uid, self._now), policy)
        course = self._migrations.consider(pod, policy, due_at, sized.resources, decision.detail)
        if self._now < due_at:
            return replace(decision, due_at=due_at, migration=course.report, drain=course.drain)
        if course.gives_up:
            return replace(decision, detail=course.detail, migration=course.report)
        moved = _moved(pod, policy, course)
        return replace(moved, proposals=sized.proposals, prediction=decision.prediction)

    def _due_since(self, wanted_since: datetime, policy: Policy) -> datetime:
        """When a pod is to be moved that is wanted too large for its node. A move that was called off because of its
        sessions is due again, `retryAfter` later."""
        fallback, drain = policy.fallback, policy.fallback.migration.drain
        due_at = wanted_since + fallback.infeasible_after
        # what is told waits from the notice on, and what was called off is in the notes
        if drain is None or drain.then_force or drain.notify is not None:
            return due_at
        turn = fallback.infeasible_after + drain.max_wait + fallback.retry_after
        return due_at + (self._now - wanted_since) // turn * turn

    def of_newcomer(self, pod: Pod, policy: Policy, leaving: Pod) -> Decision:
        """The new pod of a surge: its first act is to take the size of the pod whose place it takes."""
        wanted = {container.name: container.spec for container in leaving.containers}
        has = {container.name: container.spec for container in pod.containers}
        words = f"takes the place of {leaving.name}"
        if not smaller(has, wanted):
            return held(pod, policy, Hold(Reason.SURGING, words))
        proposed = {name: spec for name, spec in wanted.items() if name in has}
        if (found := qos_class(pod, proposed)) is not pod.qos_class:
            return held(pod, policy, Hold(Reason.QOS_WOULD_CHANGE, f"{words}, with whose size it would be {found}"))
        node = self._snapshot.nodes.get(pod.node or "")
        static = self._notes.static.get(pod.node or "", frozenset())
        prediction = kubelet.predict(pod, proposed, node, self._rooms.others(pod), static)
        proposals = tuple(
            Proposal(c, proposed.get(c.name, c.spec), _steps(c.spec, proposed.get(c.name, c.spec), words))
            for c in pod.containers
        )
        if (refusal := self._notes.refusal(pod, proposed, self._now)) is not None:
            hold = Hold(Reason.SURGING, f"{words}, and its size was refused: {refusal.detail}")
            return replace(held(pod, policy, hold, proposals), prediction=prediction)
        if prediction.outcome not in (PredictedOutcome.IN_PLACE, PredictedOutcome.RESTART):
            hold = Hold(Reason.SURGING, f"{words}, and cannot have its size: {prediction.detail}")
            return replace(held(pod, policy, hold, proposals), prediction=prediction)
        self._rooms.grant(pod, proposed)
        action = resize_of(pod, proposals)
        return Decision(pod, policy.name, Reason.INCREASE, words, proposals, action, prediction)

    def missing(self) -> Iterator[Problem]:
        """Workloads that may be moved and whose controllers have not made all of their pods: of one that is not there,
        there is no decision."""
        for workload, count in self._ledger.missing():
            words = (
                f"{count} of {workload.replicas} pods missing; nothing of it is moved until its controller made them"
            )
            yield Problem(f"{workload.ref.object} in {workload.ref.namespace}", Trouble.PODS_MISSING, words)

    def with_surges_ended(self, made: list[Decision], *, everything: bool) -> tuple[list[Decision], list[Problem]]:
        """The decisions, one of them with the end of each surge that nobody needs any more. `everything`: the decisions
        are about all pods, so that a surge of which none belongs to a pod was left behind by a policy."""
        problems: list[Problem] = []
        for workload in self.surges.going:
            # a pod that is left to somebody else meanwhile is not moved any more, whatever its resize waits for
            if (leaving := self.surges.leaving(workload)) is not None and not any(
                one.pod.ref == leaving.ref and one.migration is None for one in made
            ):
                continue
            mine = [
                index
                for index, one in enumerate(made)
                if (one.pod.namespace, one.pod.workload) == workload.ref and self._may_move(one.pod)
            ]
            if not mine and everything:
                words = "has one replica more for a move, and no policy that moves its pods: scale it back to "
                where = f"{workload.ref.object} in {workload.ref.namespace}"
                problems.append(Problem(where, Trouble.SURGE_LEFT_BEHIND, f"{words}{workload.replicas - 1}"))
            if mine:
                index = next((i for i in mine if alive(made[i].pod)), mine[0])
                made[index] = self._with_end(made[index], workload)
        return made, problems

    def _may_move(self, pod: Pod) -> bool:
        return [policy.mode for policy in self._config.policies_of(pod)] == [Mode.RESIZE_OR_MIGRATE]

    def _with_end(self, decision: Decision, workload: Workload) -> Decision:
        (policy,) = self._config.policies_of(decision.pod)
        ending = self._migrations.ending(workload, decision.pod, policy)
        if ending.hold is not None and decision.action is not None:
            return replace(decision, drain=ending.drain)  # what the pod itself needs does not wait for it
        ends = replace(decision, action=None, proposals=unchanged(decision.pod), drain=ending.drain)
        if ending.hold is not None:
            reason, detail, due_at = ending.hold
            soon = min((at for at in (due_at, decision.due_at) if at is not None), default=None)
            return replace(ends, reason=reason, detail=detail, due_at=soon)
        return replace(ends, reason=Reason.SURGE_BACK, detail=ending.words, due_at=None, move=ending.move)


def _without(target: Target, resources: Collection[Resource]) -> Target:
    if not resources:
        return target
    cpu = None if Resource.CPU in resources else target.cpu
    return replace(target, cpu=cpu, memory=None if Resource.MEMORY in resources else target.memory)


def _moved(pod: Pod, policy: Policy, course: Course) -> Decision:
    """A pod that is overdue: the move, or the hold."""
    if course.hold is not None:
        return replace(held(pod, policy, course.hold), migration=course.report, drain=course.drain)
    return replace(
        held(pod, policy, Hold(course.reason, course.detail)),
        migration=course.report,
        move=course.move,
        drain=course.drain,
    )


def _steps(old: Resources, new: Resources, because: str) -> tuple[Step, ...]:
    return tuple(
        Step(resource, "surge", old.requests.get(resource), new.requests.get(resource), because)
        for resource in RESOURCES
        if old.requests.get(resource) != new.requests.get(resource)
    )


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
