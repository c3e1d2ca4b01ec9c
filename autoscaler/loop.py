"""The one loop: observe, decide, act, record. The real cluster, the simulator and the dry run all run it.

What differs is behind the ports. The loop reads no clock but the monotonic one, to tell how long things took.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import UnionType
from typing import Any

from autoscaler.core.actions import AskKind, Evict, OutcomeKind, Scale
from autoscaler.core.decide import decide, select
from autoscaler.core.history import Measurements
from autoscaler.core.model import ClusterSnapshot, Pod, PodRef
from autoscaler.core.notes import Notes, learn, learn_moves, learn_wishes, noted_of
from autoscaler.core.plan import Decision, Drain, Gate, Plan
from autoscaler.core.policy import Config
from autoscaler.core.resize import Phase, phase_of
from autoscaler.ports import (
    Clock,
    Cluster,
    Done,
    Journal,
    Leadership,
    Metrics,
    Sessions,
    Turn,
    Unavailable,
    Wake,
    WakeKind,
)

_IN_FLIGHT = 8
_PASSING = frozenset({OutcomeKind.CONFLICT, OutcomeKind.SUPERSEDED, OutcomeKind.THROTTLED, OutcomeKind.UNKNOWN})
"""Troubles after which a pod is looked at again before the next tick, since a deadline may be due."""
_AGAIN, _AGAIN_AT_MOST = timedelta(seconds=5), timedelta(seconds=30)
_AT_LEAST = timedelta(seconds=1)  # a server that says 0 would be asked without pause


class Alone:
    """`ports.Leadership` of the only one there is."""

    def leading(self) -> bool:
        return True


ALONE = Alone()


class NobodyThere:
    """`ports.Sessions` where nothing is known of any: a policy that waits for them waits."""

    def follow(self, drains: Mapping[PodRef, Drain], *, telling: bool) -> None:
        """There is nobody to ask or tell."""

    def latest(self) -> Mapping[PodRef, Gate]:
        return {}


NOBODY_THERE = NobodyThere()

Aside = Callable[..., Awaitable[Any]]
"""Calls a function with its arguments where it may take its time, as `asyncio.to_thread` does."""


class Loop:
    """Runs turns until told to stop. Standing by, without `leadership`, it does everything but act.

    `config` is asked at the start of each turn, so that a reloaded policy takes effect there and nowhere else.
    `aside`: how to do what may take long; where no other task has to be kept going, it can be done at once.
    `busy_since` is the monotonic time at which the running turn began or last got an action done (None between turns):
    what never ends shows there, and many slow answers of the API server do not.
    """

    def __init__(
        self,
        cluster: Cluster,
        metrics: Metrics,
        clock: Clock,
        journal: Journal,
        config: Callable[[], Config],
        leadership: Leadership = ALONE,
        sessions: Sessions = NOBODY_THERE,
        aside: Aside = asyncio.to_thread,
    ) -> None:
        self._aside = aside
        self._cluster = cluster
        self._metrics = metrics
        self._clock = clock
        self._journal = journal
        self._config = config
        self._leadership = leadership
        self._sessions = sessions
        self._stopping = asyncio.Event()
        self._turns = 0
        self._due: dict[PodRef, datetime] = {}  # a cache: a full turn derives it again
        self._drains: dict[PodRef, Drain] = {}  # pods whose sessions matter now: a cache like the deadlines
        self._blind = False  # the last turn could not observe
        self._troubles: dict[PodRef, tuple[int, datetime]] = {}  # in a row, and when the last one was
        self._deciding: frozenset[PodRef] = frozenset()  # those that are due and the running turn decides about
        # asks begun since the running turn began: it and what is given up beside it may both see that one is due
        self._begun: set[tuple[str, int]] = set()
        self._later: dict[PodRef, datetime] = {}  # deadlines that came up beside the running turn
        self._known: Config | None = None
        self._notes = Notes()
        self.busy_since: float | None = None

    def stop(self) -> None:
        """End after the actions in hand. Those that have not begun are not begun."""
        self._stopping.set()

    async def run(self) -> None:
        """Turn after turn, until the clock says stop."""
        wake = Wake(WakeKind.TICK)
        while wake.kind is not WakeKind.STOP and not self._stopping.is_set():
            # the turn itself is not kept: a plan about 5,000 pods takes tens of MiB
            until = self._next_deadline(await self._keeping_deadlines(wake))
            if not self._stopping.is_set():
                wake = await self._clock.wait(until)

    def _next_deadline(self, turn: Turn) -> datetime | None:
        """The earliest deadline of all pods, of which the turn may have decided only some.

        After a turn that could not observe they stand: what is overdue is tried again, at the clock's own pace, and so
        done as soon as the cluster is seen again.
        """
        if turn.plan is None:
            return min(self._due.values(), default=None)
        if turn.wake.kind is WakeKind.TICK:
            there = {decision.pod.ref for decision in turn.plan.decisions}
            self._troubles = {ref: trouble for ref, trouble in self._troubles.items() if ref in there}
        for ref in [ref for ref, due_at in self._due.items() if _looked_at(turn, turn.plan, ref, due_at)]:
            del self._due[ref]  # also of a pod that has gone, of which there is no decision
        for decision in turn.plan.decisions:
            if decision.due_at is not None:
                self._due[decision.pod.ref] = decision.due_at
        for done in turn.done:
            if (wait := self._wait(done, turn.plan.taken_at)) is not None:
                self._due[done.decision.pod.ref] = turn.plan.taken_at + wait
            refused = self._notes.refused_move(noted_of(done.decision), turn.plan.taken_at) if done.move else None
            if refused is not None:
                self._due[done.decision.pod.ref] = refused.until
        self._due.update(self._later)
        return min(self._due.values(), default=None)

    def _wait(self, done: Done, now: datetime) -> timedelta | None:
        """How long a pod is left after an action that may still be done; None where nothing has to be made up for."""
        ref, outcome = done.decision.pod.ref, done.outcome
        count, last_at = self._troubles.pop(ref, (0, now))
        if outcome.kind not in _PASSING:
            return None if outcome.retry_after_s is None else max(timedelta(seconds=outcome.retry_after_s), _AT_LEAST)
        if outcome.kind is OutcomeKind.UNKNOWN and not outcome.cause:
            return _AGAIN  # nobody answered, so nobody is burdened
        # a server that answers with the same trouble each time is asked less and less often
        count = count + 1 if now - last_at <= 2 * _AGAIN_AT_MOST else 1
        self._troubles[ref] = count, now
        wait = min(_AGAIN * 2 ** min(count - 1, 8), _AGAIN_AT_MOST)
        asked_s = outcome.retry_after_s
        return wait if asked_s is None else max(timedelta(seconds=asked_s), _AT_LEAST, wait if count > 1 else _AT_LEAST)

    async def _keeping_deadlines(self, wake: Wake) -> Turn:
        """One turn. What falls due while it lasts is given up beside it."""
        if not self._due:
            return await self.turn(wake)
        self._deciding = frozenset()
        over = asyncio.Event()
        keeping = asyncio.create_task(self._keep_deadlines(over))
        try:
            return await self.turn(wake)
        finally:
            over.set()
            await keeping

    async def _keep_deadlines(self, over: asyncio.Event) -> None:
        ended = asyncio.create_task(over.wait())
        left: set[PodRef] = set()
        while due := [(at, ref) for ref, at in self._due.items() if ref not in left]:
            at, first = min(due)
            waiting = asyncio.create_task(self._clock.until(at))
            await asyncio.wait((waiting, ended), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if over.is_set():
                break
            left |= {first, *await self._give_up()}
        await ended

    async def _give_up(self) -> frozenset[PodRef]:
        """Perform the reverts that are due, beside a turn that lasts; the pods that were looked at.

        Reverts alone: they need no room and no budget that the turn may be granting to others at this moment, and no
        recommender.
        """
        started, config = time.monotonic(), self._known
        try:
            snapshot = await self._cluster.observe()
        except Unavailable:
            return frozenset(self._due)
        due = frozenset(ref for ref, at in self._due.items() if at <= snapshot.taken_at)
        unfinished = frozenset(
            ref
            for ref in due - self._deciding
            if (pod := snapshot.pods.get(ref)) is not None and phase_of(pod).phase is not Phase.SETTLED
        )
        if config is None or not unfinished:
            return due
        plan: Plan = await self._aside(
            decide, snapshot, Measurements(), config, unfinished, notes=self._notes, gates=self._sessions.latest()
        )
        reverts = tuple(d for d in plan.decisions if d.action is not None and d.action.kind is AskKind.REVERT)
        plan = replace(plan, decisions=reverts)
        done = await self._act(plan, beside=True)
        if done:
            self._learn(snapshot, config, done)
            self._record(Turn(self._turns + 1, Wake(WakeKind.DEADLINE, due), _since(started), plan, done))
        for one in done:
            self._due.pop(one.decision.pod.ref, None)
            if (wait := self._wait(one, snapshot.taken_at)) is not None:
                self._later[one.decision.pod.ref] = snapshot.taken_at + wait
        return due

    def _record(self, turn: Turn) -> None:
        self._turns = turn.number
        self._journal.record(turn)

    async def turn(self, wake: Wake) -> Turn:
        """One turn: decide about everything on a tick, about the pods that are due on a deadline, or that changed.

        A change of pods that no policy selects is no turn: it is neither counted nor recorded. Nor is a deadline that
        finds the cluster still out of sight.
        """
        started = self.busy_since = time.monotonic()
        self._begun.clear()
        self._later.clear()
        try:
            turn = await self._turn(wake, started)
        finally:
            self.busy_since = None
        still_blind = turn.plan is None and self._blind and wake.kind is WakeKind.DEADLINE
        self._blind = turn.plan is None
        # other people's pods change all the time, and a cluster that is away needs no line a second
        if not still_blind and (wake.kind is not WakeKind.CHANGED or turn.plan is None or turn.plan.decisions):
            self._record(turn)
        return turn

    async def _turn(self, wake: Wake, started: float) -> Turn:
        # in a thread: many policies take long to read, and a plug-in's constructor may do anything
        config: Config = await self._aside(self._config)
        self._known = config
        leading = self._leadership.leading()
        try:
            snapshot = await self._cluster.observe()
        except Unavailable as error:
            return Turn(self._turns + 1, wake, _since(started), unavailable=str(error), leading=leading)
        if wake.kind is WakeKind.TICK:
            self._metrics.follow(select(snapshot, config))
        scope = self._scope(wake, snapshot)
        self._deciding = scope or frozenset()
        plan = await self._decide(snapshot, config, scope)
        done = await self._act(plan)
        self._learn(snapshot, config, done)
        moved = await self._move(plan, config)
        self._notes = learn_wishes(self._notes, plan)
        self._follow_sessions(wake, plan)
        done += moved
        return Turn(self._turns + 1, wake, _since(started), plan, done, leading=leading or bool(done))

    async def _move(self, plan: Plan, config: Config) -> tuple[Done, ...]:
        """Move pods, one after the other, each only if the newest state still says so: what the last move did counts in
        the budgets of the next, and room may have gone since the plan was made."""
        done: list[Done] = []
        for planned in plan.moving:
            if (moved := await self._move_one(planned.pod, config, Evict | Scale)) is None:
                continue
            done.append(moved)
            if moved.outcome.kind is OutcomeKind.ACCEPTED and isinstance(moved.decision.move, Evict):
                # what ends a surge follows at once: while the successor starts, it is the one that goes
                ended = await self._move_one(planned.pod, config, Scale)
                done += [ended] if ended is not None else []
        return tuple(done)

    async def _move_one(self, pod: Pod, config: Config, kinds: type | UnionType) -> Done | None:
        """The step of moving a pod that is due by the newest state, if it is of one of these kinds; None if not."""
        if not self._may_act():
            return None
        started = time.monotonic()
        try:
            snapshot = await self._cluster.observe()
        except Unavailable:
            return None
        plan = await self._decide(snapshot, config, frozenset({pod.ref}))
        decision = next((one for one in plan.moving if one.pod.uid == pod.uid), None)
        if decision is None or decision.move is None or not isinstance(decision.move, kinds) or not self._may_act():
            return None
        outcome = await self._cluster.move(decision.move)
        self.busy_since = time.monotonic()
        policies = {policy.name: policy for policy in config.policies}
        self._notes = learn_moves(self._notes, [(decision, outcome)], policies, snapshot.taken_at)
        return Done(decision, outcome, _since(started), move=True)

    def _may_act(self) -> bool:
        return not self._stopping.is_set() and self._leadership.leading()

    def _follow_sessions(self, wake: Wake, plan: Plan) -> None:
        if wake.kind is WakeKind.TICK:
            self._drains.clear()
        for ref in (*wake.pods, *(decision.pod.ref for decision in plan.decisions)):
            self._drains.pop(ref, None)
        # the pod that a decision is about is not always the one whose sessions matter
        self._drains |= {one.drain.pod: one.drain for one in plan.decisions if one.drain is not None}
        self._sessions.follow(dict(self._drains), telling=self._leadership.leading())

    def _scope(self, wake: Wake, snapshot: ClusterSnapshot) -> frozenset[PodRef] | None:
        """The pods that a turn decides about; None: all."""
        match wake.kind:
            case WakeKind.CHANGED:
                return wake.pods
            case WakeKind.DEADLINE:
                return frozenset(ref for ref, due_at in self._due.items() if due_at <= snapshot.taken_at)
            case _:
                return None

    async def _decide(self, snapshot: ClusterSnapshot, config: Config, scope: frozenset[PodRef] | None) -> Plan:
        # in a thread: a recommender that never returns must not keep /healthz from saying so
        plan: Plan = await self._aside(
            decide,
            snapshot,
            self._metrics.latest(),
            config,
            scope,
            tick=time.monotonic,
            notes=self._notes,
            gates=self._sessions.latest(),
        )
        return plan

    def _learn(self, snapshot: ClusterSnapshot, config: Config, done: tuple[Done, ...]) -> None:
        policies = {policy.name: policy for policy in config.policies}
        outcomes = [(one.decision, one.outcome) for one in done]
        self._notes = learn(self._notes, snapshot.pods.values(), outcomes, policies, snapshot.taken_at)

    async def _act(self, plan: Plan, *, beside: bool = False) -> tuple[Done, ...]:
        slots = asyncio.Semaphore(_IN_FLIGHT)

        async def act(decision: Decision) -> Done | None:
            async with slots:
                if decision.action is None or not self._may_act():
                    return None
                ask = decision.action.uid, decision.action.generation
                if ask in self._begun:
                    return None
                self._begun.add(ask)
                started = time.monotonic()
                outcome = await self._cluster.perform(decision.action)
                if not beside:
                    self.busy_since = time.monotonic()
                return Done(decision, outcome, _since(started))

        async with asyncio.TaskGroup() as tasks:
            acting = [tasks.create_task(act(decision)) for decision in plan.acting]
        return tuple(done for task in acting if (done := task.result()) is not None)


def _looked_at(turn: Turn, plan: Plan, ref: PodRef, due_at: datetime) -> bool:
    """Whether a turn looked at a pod with this deadline, as far as it was there."""
    match turn.wake.kind:
        case WakeKind.CHANGED:
            return ref in turn.wake.pods
        case WakeKind.DEADLINE:
            return due_at <= plan.taken_at
        case _:
            return True


def _since(started: float) -> timedelta:
    return timedelta(seconds=time.monotonic() - started)
