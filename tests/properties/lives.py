"""A controller that lives through a history, is killed in it and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ParamSpec, Protocol, TypeVar

import numpy as np

from autoscaler.core.actions import AskKind, ContainerResize, Evict, Move, Outcome, OutcomeKind, Resize
from autoscaler.core.history import ContainerRef, History, Measurements
from autoscaler.core.model import ClusterSnapshot, Pod, Resource
from autoscaler.core.policy import Policy
from autoscaler.core.recommender import Samples, Target
from autoscaler.loop import Loop
from autoscaler.ports import Turn, Unavailable, Wake
from autoscaler.simulator.clock import VirtualClock
from tests.properties import events
from tests.properties.events import Event, Kind
from tests.properties.storm import MIB, QUIET, START, Storm, config_of, moment, workload_of

TICK = timedelta(seconds=30)
_WINDOWS = {Kind.REFUSE, Kind.CONFLICT, Kind.LOSE, Kind.THROTTLE, Kind.BLIND, Kind.STALE, Kind.ALLOCATABLE}
P = ParamSpec("P")
T = TypeVar("T")


class Killed(Exception):
    """The controller is dead; nothing of it does anything any more."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A patch that was stored: when, of which incarnation of a pod, and what."""

    at: datetime
    uid: str
    kind: AskKind
    containers: tuple[ContainerResize, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """A move that was done: when, of which incarnation, and to how many replicas (None: it was evicted)."""

    at: datetime
    uid: str
    replicas: int | None


class Troubles:
    """Which troubles of a history are on, and how many calls are left to a controller that is going to be killed."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self.windows = [(moment(e), moment(e) + _lasts(e), e.kind) for e in storm.history.events if e.kind in _WINDOWS]
        self._kills = [event for event in storm.history.events if event.kind is Kind.KILL]
        self._calls = 0
        self.deaths = 0
        self.down_for = timedelta(0)

    def on(self, kind: Kind) -> bool:
        """Whether a trouble of this kind is on."""
        return any(kind is k and since <= self._storm.now < until for since, until, k in self.windows)

    def call(self) -> None:
        """A call across a port: raises `Killed` when it is the controller's last."""
        if not self._kills or self._storm.now < moment(self._kills[0]):
            return
        due = [event for event in self._kills if moment(event) <= self._storm.now]
        self._calls += 1
        if self._calls < due[0].number:
            return
        self._kills, self._calls = [event for event in self._kills if event not in due], 0
        self.deaths += 1
        self.down_for = _lasts(due[0])
        self.windows.append((self._storm.now, self._storm.now + self.down_for, Kind.KILL))
        raise Killed


def _lasts(event: Event) -> timedelta:
    return timedelta(seconds=event.seconds)


class Witness(Protocol):
    """Looks at everything that happens, and raises `AssertionError` when it must not."""

    def state(self, storm: Storm, troubles: Troubles) -> None: ...

    def seen(self, snapshot: ClusterSnapshot, deaths: int) -> None: ...

    def stored(self, pod: Pod, action: Resize, deaths: int) -> None: ...

    def moved(self, storm: Storm, snapshot: ClusterSnapshot, move: Move, outcome: Outcome) -> None: ...

    def turn(self, turn: Turn, snapshot: ClusterSnapshot) -> None: ...


@dataclass(repr=False)  # asyncio prints a task with its result
class Run:
    """One history, lived through. `forgets`: a controller that was killed has lost its memory; else it begins anew with
    it, as if only the turn had been broken off."""

    history: events.History
    forgets: bool
    witness: Witness
    asked: list[Asked] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    sent: int = 0
    seen: ClusterSnapshot | None = None  # by the turn that is running, when it began
    measured: dict[datetime, Measurements] = field(default_factory=dict)  # by tick

    def __post_init__(self) -> None:
        self.storm = Storm(self.history)
        self.troubles = Troubles(self.storm)
        self.config = config_of(self.history)

    async def live(self) -> Run:
        """To the end, with as many controllers as it takes."""
        ends_at = START + timedelta(seconds=events.LASTS_S) + QUIET
        clock = _Clock(self, ends_at)
        asyncio.get_running_loop().set_default_executor(_InPlace())
        loop = None
        while True:
            if loop is None or self.forgets:
                life = _Life(self)
                loop = Loop(life, life, clock, life, lambda: self.config, sessions=self.storm.sessions)
            life.dead, self.seen = False, None
            try:
                await loop.run()
            except* Killed:
                self.storm.advance(min(self.storm.now + self.troubles.down_for, ends_at))
            else:
                return self


class _InPlace(ThreadPoolExecutor):
    """Decides in the event loop's own thread: changing threads 200,000 times would take most of the time."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done


class _Clock(VirtualClock):
    def __init__(self, run: Run, ends_at: datetime) -> None:
        super().__init__(run.storm, TICK, ends_at)
        self._run = run

    async def wait(self, until: datetime | None) -> Wake:
        wake = await super().wait(until)
        self._run.seen = None
        self._run.witness.state(self._run.storm, self._run.troubles)
        return wake


class _Life:
    """The ports of one life of the controller, but the clock. After its death every call raises `Killed`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.dead = False

    def _call(self) -> None:
        if self.dead:
            raise Killed
        try:
            self._run.troubles.call()
        except Killed:
            self.dead = True
            raise

    async def observe(self) -> ClusterSnapshot:
        self._call()
        if self._run.troubles.on(Kind.BLIND):
            raise Unavailable("watch cache is too old")
        seen = await self._run.storm.observe()
        self._run.seen = self._run.seen or seen
        self._run.witness.seen(seen, self._run.troubles.deaths)
        return seen

    async def move(self, move: Move) -> Outcome:
        self._call()
        outcome = await self._moved(move)
        self._call()
        return outcome

    async def _moved(self, move: Move) -> Outcome:
        run, troubles = self._run, self._run.troubles
        run.sent += 1
        if troubles.on(Kind.CONFLICT):
            return Outcome(OutcomeKind.CONFLICT, "written in between")
        if troubles.on(Kind.THROTTLE):
            return Outcome(OutcomeKind.THROTTLED, "too many requests", retry_after_s=1)
        if troubles.on(Kind.REFUSE):
            return Outcome(OutcomeKind.REFUSED, "admission webhook w denied the request", "AdmissionWebhook")
        lost = troubles.on(Kind.LOSE)
        if lost and run.sent % 2:
            return Outcome(OutcomeKind.UNKNOWN, "no answer")
        before = await run.storm.observe()
        outcome = await run.storm.move(move)
        run.witness.moved(run.storm, before, move, outcome)
        if outcome.kind is OutcomeKind.ACCEPTED:
            run.moved.append(Moved(run.storm.now, move.uid, None if isinstance(move, Evict) else move.replicas))
        return Outcome(OutcomeKind.UNKNOWN, "no answer") if lost else outcome

    async def perform(self, action: Resize) -> Outcome:
        self._call()
        outcome = await self._performed(action)
        self._call()
        return outcome

    async def _performed(self, action: Resize) -> Outcome:
        run, troubles = self._run, self._run.troubles
        if (pod := run.storm.pod(action.pod)) is None:
            return Outcome(OutcomeKind.GONE)
        run.sent += 1
        if troubles.on(Kind.CONFLICT):
            return Outcome(OutcomeKind.CONFLICT, "written in between")
        if troubles.on(Kind.THROTTLE):
            return Outcome(OutcomeKind.THROTTLED, "too many requests", retry_after_s=1)
        if troubles.on(Kind.REFUSE) and _grows(pod, action):
            return Outcome(OutcomeKind.REFUSED, "maximum cpu usage per Container is 1", "LimitRange")
        lost = troubles.on(Kind.LOSE)
        if lost and run.sent % 2:
            return Outcome(OutcomeKind.UNKNOWN, "no answer")
        outcome = await run.storm.perform(action)
        if outcome.kind is OutcomeKind.ACCEPTED:
            run.witness.stored(pod, action, troubles.deaths)
            run.asked.append(Asked(run.storm.now, action.uid, action.kind, action.containers))
        return Outcome(OutcomeKind.UNKNOWN, "no answer") if lost else outcome

    def follow(self, wanted: Mapping[ContainerRef, Policy]) -> None:
        self._call()

    def latest(self) -> Measurements:
        self._call()
        return _measured(self._run)

    def record(self, turn: Turn) -> None:
        self._run.turns.append(turn)
        if turn.plan is not None and self._run.seen is not None:
            self._run.witness.turn(turn, self._run.seen)
        self._call()


def _grows(pod: Pod, action: Resize) -> bool:
    has = {c.name: c.spec.requests for c in pod.containers}
    return any(
        (change.change.requests.get(resource) or 0) > (has[change.name].get(resource) or 0)
        for change in action.containers
        for resource in Resource
    )


def _measured(run: Run) -> Measurements:
    """What was measured at the newest tick: a controller that looks at other moments, too, sees nothing else."""
    storm = run.storm
    at = min(
        [storm.now] + [since for since, _, kind in run.troubles.windows if kind is Kind.STALE and run.troubles.on(kind)]
    )
    at -= (at - START) % TICK
    if (known := run.measured.get(at)) is not None:
        return known
    targets = {name: Target(0.5, 512.0 * MIB) for name in events.PODS}
    for event in storm.history.events:
        if event.kind is Kind.TARGET and moment(event) <= at:
            targets[event.who] = Target(event.cpu / 1000, float(event.memory * MIB))
    newest = int(at.timestamp()) - 30
    end_at = np.arange(newest - 14 * 60, newest + 1, 60, dtype=np.int64)
    histories: dict[ContainerRef, History] = {}
    for bridge in storm.pods():
        for one in bridge.containers:
            ref = ContainerRef(*bridge.ref, one.name)
            if (record := storm.usage_of(ref)) is not None:
                _, memory = record.at(end_at)
                samples = Samples(end_at, np.full(len(end_at), 0.1, np.float32), memory.astype(np.float32))
                # a node that can never give what two containers want together is remembered, and nowhere to be read
                alone = storm.history.moving and one.name != "app"
                target = Target(0.1, 256.0 * MIB) if alone else targets[workload_of(bridge)]
                histories[ref] = History(target, samples, 0, int(end_at[0]), newest)
    return run.measured.setdefault(at, Measurements(at, histories))
