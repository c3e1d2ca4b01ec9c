"""Moving a pod whose resize has waited past its deadline: every precondition, and the step that is due. Pure.

Every precondition is looked at in each turn, also before the deadline, so that a plan shows beforehand what will come
of it. Nothing is evicted unless all of them hold at once, and the API server's PodDisruptionBudgets agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from autoscaler.core import preconditions, surge
from autoscaler.core.actions import Evict, Move
from autoscaler.core.budgets import Ledger, named
from autoscaler.core.guards import Hold
from autoscaler.core.landing import Landings, Proof
from autoscaler.core.model import Capability, ClusterSnapshot, Pod, PodRef, Resources, Workload
from autoscaler.core.notes import Notes
from autoscaler.core.plan import Check, Drain, Gate, MigrationReport
from autoscaler.core.policy import Landing, Mode, Policy, Strategy
from autoscaler.core.reasons import Reason
from autoscaler.core.siblings import Siblings
from autoscaler.core.successors import Successors
from autoscaler.core.surge import Surges
from autoscaler.core.wanted import WANTED

MEASURED_AHEAD = timedelta(minutes=1)
"""How long before its deadline a pod's sessions begin to be asked for, so that they are known when it comes."""

_LAST_TRY = "last try"
_LOOKS_AGAIN = timedelta(seconds=5)
_SESSIONS = frozenset({Reason.DRAINING, Reason.GATE_UNKNOWN})


@dataclass(frozen=True, slots=True)
class Course:
    """What comes of moving a pod. Before the deadline there is only the report.

    Of `move`, `hold` and `gives_up` one is set after it. `gives_up`: the sessions did not end in time, or the size is
    not wanted any more, and the move is called off.
    """

    report: MigrationReport
    reason: Reason = Reason.MIGRATE
    detail: str = ""
    move: Move | None = None
    hold: Hold | None = None
    gives_up: bool = False
    drain: Drain | None = None


class Ending(NamedTuple):
    """The next step towards as many replicas as before a surge, or the hold as long as it must not be taken."""

    words: str
    move: Move | None = None
    hold: Hold | None = None
    drain: Drain | None = None


class Migrations:
    """The moves of one turn."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        siblings: Siblings,
        surges: Surges,
        ledger: Ledger,
        successors: Successors,
        gates: Mapping[PodRef, Gate],
        notes: Notes,
    ) -> None:
        self._snapshot = snapshot
        self._siblings = siblings
        self._surges = surges
        self._ledger = ledger
        self._successors = successors
        self._gates = gates
        self._notes = notes
        self._now = snapshot.taken_at

    def consider(
        self,
        pod: Pod,
        policy: Policy,
        due_at: datetime,
        target: Mapping[str, Resources],
        words: str,
        wanted: Check | None = None,
    ) -> Course:
        """How a pod stands that is to be moved from `due_at` on, to be of size `target` (by container name). `words`:
        why. `wanted`: whether it still needs more than it has, where it has asked for it."""
        how = policy.fallback.migration
        owner, topmost = preconditions.owner_of(pod, self._snapshot)
        surging = self._surges.of(pod) if how.strategy is Strategy.SURGE else None
        landing: tuple[str, ...] = ()
        if surging is not None and (leaving := self._surges.leaving(surging)) is not None and leaving.ref != pod.ref:
            other = Check(surge.NEW_POD, Reason.SURGING, False, f"{leaving.name} is moved first")
            checks = [preconditions.mode(policy), other]
        else:
            checks, landing = self._checks(pod, policy, target, owner, topmost, surging)
        if wanted is not None:
            checks.insert(0, wanted)
        if how.strategy is Strategy.NONE:  # before the sessions, which nobody waits for then
            checks.append(Check("strategy", Reason.MIGRATION_NOT_ENABLED, False, "strategy None: nothing is moved"))
        if how.drain is not None and (how.strategy is not Strategy.SURGE or surging is not None):
            off_at = self._notes.called_off_at(pod, policy.fallback.retry_after, self._now)
            heard = self._gates.get(pod.ref)
            checks.append(preconditions.gate(pod, how.drain, heard, due_at, self._now, called_off_at=off_at))
        report = MigrationReport(how.strategy, due_at, tuple(checks), landing)
        drain = self._drain(pod, policy, report, surging)
        if self._now < due_at:
            return Course(report, drain=drain)
        return self._due(pod, policy, target, report, topmost, surging, drain, words)

    def _due(
        self,
        pod: Pod,
        policy: Policy,
        target: Mapping[str, Resources],
        report: MigrationReport,
        topmost: Workload | None,
        surging: Workload | None,
        drain: Drain | None,
        words: str,
    ) -> Course:
        blocked, how = report.blocked, policy.fallback.migration
        if blocked is not None:
            detail = f"{blocked.detail}; {words}" if blocked.detail else words
            if blocked.name == WANTED and blocked.reason is Reason.AT_TARGET:
                return Course(report, detail=f"called off: {detail}", gives_up=True)
            if surging is not None and policy.mode is Mode.RESIZE_OR_MIGRATE and blocked.reason not in _SESSIONS:
                return self._surging(pod, report, blocked, surging, policy, detail)
            late = blocked.due_at is not None and self._now >= blocked.due_at
            if blocked.reason in _SESSIONS and late:
                return Course(report, detail=f"called off: {detail}", gives_up=True)
            return Course(report, hold=Hold(blocked.reason, detail, blocked.due_at), drain=drain)
        where = named(report.landing)
        if policy.mode is Mode.RECOMMEND:
            return Course(report, hold=Hold(Reason.RECOMMEND_ONLY, f"{how.strategy} to {where}; {words}"), drain=drain)
        self._ledger.disrupt(pod)
        if surging is None:
            self._landings.promise(pod, target)
        if how.strategy is Strategy.SURGE and surging is None and topmost is not None:
            return Course(report, Reason.SURGE, f"to {where}; {words}", surge.begin(topmost, pod), drain=drain)
        evict = Evict(pod.ref, pod.uid, pod.resource_version, report.landing)
        return Course(report, Reason.MIGRATE, f"to {where}; {words}", evict, drain=drain)

    def _surging(
        self, pod: Pod, report: MigrationReport, blocked: Check, surging: Workload, policy: Policy, detail: str
    ) -> Course:
        """A surge that cannot go on yet: waited for, and ended when that takes too long, whatever is in its way."""
        failed_at = self._surges.began_at(surging) + policy.fallback.migration.ready_within
        if blocked.name == surge.NEW_POD and blocked.due_at is not None:
            failed_at = blocked.due_at
        if self._now < failed_at:
            # readiness wakes nobody by itself: most pods that become ready are nobody's concern
            soon = min(blocked.due_at or failed_at, failed_at, self._now + _LOOKS_AGAIN)
            return Course(report, hold=Hold(blocked.reason, detail, soon))
        ending = self.ending(surging, pod, policy)
        if ending.hold is not None:
            hold = ending.hold._replace(detail=f"{detail}; {ending.hold.detail}")
            return Course(report, hold=hold, drain=ending.drain)
        return Course(report, Reason.SURGE_FAILED, detail, ending.move)

    def ending(self, workload: Workload, pod: Pod, policy: Policy) -> Ending:
        """How a surge that is over, or has failed, comes to as many replicas as before. `pod`: which shows it."""
        move, how = self._surges.end(workload, pod), policy.fallback.migration.drain
        words = f"{workload.ref.object} needs {workload.replicas - 1} replicas again"
        if move is None:
            words += ": which pod its ReplicaSet would remove is not known while one of the others is not ready"
            return Ending(words, hold=Hold(Reason.SURGING, words))
        if not isinstance(move, Evict):
            may = preconditions.permitted(self._snapshot, Capability.SURGE)
            return Ending(words, move) if may.holds else Ending(words, hold=Hold(may.reason, f"{words}; {may.detail}"))
        newest, drain = self._snapshot.pods[move.pod], None
        words += f": {newest.name} is evicted, so that its successor can go, and no other pod"
        checks = [
            preconditions.permission(self._snapshot, Strategy.SURGE),  # in vain if the scale cannot follow
            preconditions.evictable(newest),
            preconditions.budget(newest, self._snapshot),
            preconditions.old_enough((newest,), policy, self._now),
            *self._last_try(pod.uid),
            *self._last_try(workload.uid),
        ]
        if how is not None and all(check.holds for check in checks):
            began_at, heard = self._surges.began_at(workload), self._gates.get(newest.ref)
            # nothing else can be done than to wait for its sessions, or to end them
            checks.append(preconditions.gate(newest, how, heard, began_at, self._now, calls_off=False))
            drain = Drain(newest.ref, newest.uid, newest.ip, how, telling=True, due_at=began_at)
        blocked = next((check for check in checks if not check.holds), None)
        if blocked is None:
            return Ending(words, move)
        hold = Hold(blocked.reason, f"{words}; {newest.name}: {blocked.detail}", blocked.due_at)
        return Ending(words, hold=hold, drain=drain)

    @cached_property
    def _landings(self) -> Landings:
        """What is free on nodes, less what is spoken for: counted if a pod is to be moved at all."""
        landings = Landings(self._snapshot, self._notes.static)
        for pod, target in self._successors.remembered():
            landings.promise(pod, target)
        return landings

    def _checks(
        self,
        pod: Pod,
        policy: Policy,
        target: Mapping[str, Resources],
        owner: Workload | None,
        topmost: Workload | None,
        surging: Workload | None,
    ) -> tuple[list[Check], tuple[str, ...]]:
        how, snapshot = policy.fallback.migration, self._snapshot
        surges = how.strategy is Strategy.SURGE
        checks = [
            preconditions.mode(policy),
            preconditions.permission(snapshot, how.strategy),
            preconditions.replaceable(pod),
            preconditions.evictable(pod),
            preconditions.ready(pod, snapshot.nodes.get(pod.node or "")),
        ]
        new: list[Pod] = []
        if surging is not None:
            new = self._surges.newcomers(surging)
            # before the workload, which is changing until its ReplicaSet has followed
            checks.append(self._surges.ready(pod, surging, how.ready_within))
            checks.append(preconditions.settled(pod, owner, topmost))
            checks.append(surge.possible(pod, topmost, snapshot))
            landing = tuple(one.node for one in new if one.node is not None)
        else:
            checks.append(preconditions.settled(pod, owner, topmost))
            created = {} if owner is None else owner.template
            proof = self._landings.prove(pod, created, target, stays=surges)
            landing = proof.nodes
            checks.append(_landing(pod, proof, snapshot, every=how.landing is Landing.EVERY and not surges))
            checks.append(_size(policy, owner, proof, preconditions.smaller(created, target)))
            if surges:
                checks.append(surge.possible(pod, topmost, snapshot))
        others = [one for one in self._siblings.beside(pod) if one not in new]
        checks.append(preconditions.budget(pod, snapshot, ready=surging is not None or not surges))
        checks.append(preconditions.old_enough((pod, *others), policy, self._now))
        checks.append(self._siblings_available(others, topmost))
        if surges and surging is None:  # after the age, which is what keeps the new pod of a surge that went well
            until = None if topmost is None else self._notes.surged(topmost, self._now)
            checks.append(surge.rested(topmost, policy.fallback.retry_after, until, self._now))
        checks.append(self._ledger.check_move(pod))
        if surging is None:
            checks.append(self._on_their_way())
        return [*checks, *self._last_try(pod.uid)], landing

    def _on_their_way(self) -> Check:
        """Whether it is known how much room the successors of other pods will need."""
        unknown = self._successors.unknown
        words = f"a pod of {unknown} is being replaced, and how large it will be is not known yet" if unknown else ""
        return Check("other moves", Reason.DISRUPTION_BUDGET, not unknown, words)

    def _last_try(self, uid: str) -> Iterator[Check]:
        if (refusal := self._notes.refused_move(uid, self._now)) is not None:
            yield Check(_LAST_TRY, refusal.reason, False, refusal.detail, refusal.until)

    def _siblings_available(self, others: list[Pod], topmost: Workload | None) -> Check:
        down = [one.name for one in others if preconditions.unavailable(one)]
        missing = 0 if topmost is None else self._siblings.missing(topmost)
        words = [f"{named(down)} not available"] if down else []
        words += [f"{missing} of {topmost.replicas} pods missing"] if missing and topmost is not None else []
        return Check("siblings", Reason.SIBLING_UNAVAILABLE, not words, ", ".join(words))

    def _drain(self, pod: Pod, policy: Policy, report: MigrationReport, surging: Workload | None) -> Drain | None:
        how = policy.fallback.migration
        if how.drain is None or self._now < report.due_at - MEASURED_AHEAD:
            return None
        # a try that failed is made again soon, and is no reason to let new sessions in meanwhile
        waits = any(not one.holds and one.name not in (_LAST_TRY, "sessions") for one in report.checks)
        telling = (
            policy.mode is Mode.RESIZE_OR_MIGRATE
            and self._now >= report.due_at
            and (how.strategy is not Strategy.SURGE or surging is not None)
            and not waits
        )
        return Drain(pod.ref, pod.uid, pod.ip, how.drain, telling, report.due_at)


def _landing(pod: Pod, proof: Proof, snapshot: ClusterSnapshot, *, every: bool) -> Check:
    if proof.nodes and proof.astray and every:  # a surge that goes astray is undone, and nobody was evicted
        words = f"{named(proof.nodes)} has room, but the pod may be placed on {named(proof.astray)} and not start there"
        return Check("landing", Reason.NO_LANDING_NODE, False, words)
    if proof.nodes:
        return Check("landing", Reason.NO_LANDING_NODE, True, f"{named(proof.nodes)} has room")
    reason = Reason.NEEDS_NEW_NODE if proof.roomless else Reason.NO_LANDING_NODE
    others = len(snapshot.nodes) - (pod.node in snapshot.nodes)
    counts = sorted(proof.cuts.items(), key=lambda one: (-one[1], one[0]))
    cuts = ", ".join(f"{word} {count}" if n else f"{word} rules out {count}" for n, (word, count) in enumerate(counts))
    words = f"of {others} other nodes: {cuts}" if others else "there is no other node"
    return Check("landing", reason, False, words)


def _size(policy: Policy, owner: Workload | None, proof: Proof, short: str) -> Check:
    """Whether the next pod will have the size that this one needs."""
    how = policy.fallback.migration

    def check(holds: bool, words: str) -> Check:
        return Check("size", Reason.REPLACEMENT_TOO_SMALL, holds, words)

    if not short:
        return check(True, "the template has it")
    words = f"the next pod is created with {short}"
    if how.strategy is Strategy.SURGE:
        return check(True, f"{words}, and resized before this one goes")
    if owner is not None and owner.ref.kind != "StatefulSet":
        return check(False, f"{words}, and under another name, of which no usage is known: use strategy Surge")
    if how.landing is Landing.EVERY and proof.too_small:
        return check(False, f"{words}, and may land on {named(proof.too_small)}, with no room for the rest")
    return check(True, f"{words}, and resized as its first act")
