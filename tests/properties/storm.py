"""A small simulated cluster to which a history happens, and a controller that is killed and started again in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import ParamSpec, Protocol, TypeVar

import numpy as np

from autoscaler.core import kubelet
from autoscaler.core.actions import AskKind, ContainerResize, Move, Outcome, OutcomeKind, Resize
from autoscaler.core.history import ContainerRef, History, Measurements
from autoscaler.core.model import ClusterSnapshot, ContainerKind, Node, Pod, PodRef, Resource, ResourceList, Resources
from autoscaler.core.policy import Budgets, ByDirection, Config, Fallback, Mode, Policy, Selector, Stability
from autoscaler.core.recommender import Samples, Target
from autoscaler.core.units import Bytes, Millicores
from autoscaler.loop import Loop
from autoscaler.ports import Turn, Unavailable, Wake
from autoscaler.simulator.clock import VirtualClock
from autoscaler.simulator.cluster import SimulatedCluster
from autoscaler.simulator.traces import Demand, Series
from tests.build import Fixed
from tests.properties import events
from tests.properties.events import Event, Kind
from tests.simulator.builders import both, container, pod, sizes

START = datetime(2026, 3, 2, 8, tzinfo=UTC)
TICK = timedelta(seconds=30)
QUIET = timedelta(seconds=200)  # what is waited for after the last event
POLICY = Policy(
    "bridges",
    Fixed(),
    Selector(frozenset({"sim"})),
    Mode.RESIZE,
    stability=Stability(
        ByDirection(0.05, 0.10),
        ByDirection(1.0, 0.5),
        ByDirection(timedelta(seconds=10), timedelta(seconds=50)),
        timedelta(seconds=90),
    ),
    fallback=Fallback(
        after=timedelta(seconds=40),
        infeasible_after=timedelta(seconds=20),
        error_after=timedelta(minutes=2),
        retry_after=timedelta(minutes=2),
    ),
)
CONFIG = Config((POLICY,), budgets=Budgets(max_disruptions_per_namespace=1))
_WINDOWS = {Kind.REFUSE, Kind.CONFLICT, Kind.LOSE, Kind.THROTTLE, Kind.BLIND, Kind.STALE, Kind.ALLOCATABLE}
_MIB = 1 << 20
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


def amounts(cpu: int, memory: int) -> ResourceList:
    """From millicores and MiB."""
    return ResourceList(Millicores(cpu), Bytes(memory * _MIB))


def moment(event: Event) -> datetime:
    return START + timedelta(seconds=event.at)


class Storm(SimulatedCluster):
    """The simulated cluster, with the events of a history happening to it as time goes by."""

    def __init__(self, history: events.History) -> None:
        super().__init__(START)
        self.history = history
        self._neighbours: list[PodRef] = []
        self._arrived = 0
        self._pending = list(reversed(history.events))
        odd = 0 if history.calm else history.seed // 2 % 3
        self.add_node(Node("n1", amounts(6000, 10 * 1024)))
        self.add_node(Node("n2", amounts(5000, 8 * 1024)), static_cpu=odd == 1, swap=odd == 2)
        for each in _bridges():
            self.add_pod(each, {c.name: self._demand(each.name) for c in each.containers})

    def pods(self) -> Iterable[Pod]:
        """The pods that the policy selects."""
        return [pod for pod in self.state.pods.values() if pod.namespace == "sim"]

    def pod(self, ref: PodRef) -> Pod | None:
        return self.state.pods.get(ref)

    def too_small(self, pod: Pod) -> bool:
        """Whether the pod's node can allocate less than the pod has."""
        has, room = kubelet.footprint(pod, kubelet.allocated), self.state.nodes[pod.node or ""].allocatable
        return any((has.get(resource) or 0) > (room.get(resource) or 0) for resource in Resource)

    def _demand(self, name: str) -> Demand:
        """CPU that never matters, and memory as the history has it."""
        minutes = int((events.LASTS_S + QUIET.total_seconds()) // 60) + 60
        memory = [100.0 * _MIB] * minutes
        for event in self.history.events:
            if event.kind is Kind.USAGE and event.who == name:
                since = event.at // 60
                memory[since:] = [float(event.memory * _MIB)] * (minutes - since)
        return Demand(Series.of([0.1]), Series.of(memory, starts_at=START))

    @property
    def next_event_at(self) -> datetime:
        own = super().next_event_at
        return min(own, moment(self._pending[-1])) if self._pending else own

    def advance(self, until: datetime) -> frozenset[PodRef]:
        changed: frozenset[PodRef] = frozenset()
        while self._pending and moment(self._pending[-1]) <= until:
            event = self._pending.pop()
            changed |= super().advance(moment(event))
            self._happen(event)
        return changed | super().advance(until)

    def _happen(self, event: Event) -> None:
        ref = PodRef("sim", event.who)
        match event.kind:
            case Kind.ARRIVE:
                self._arrive(event)
            case Kind.LEAVE if self._neighbours:
                self.delete_pod(self._neighbours.pop(event.number % len(self._neighbours)))
            case Kind.ALLOCATABLE:
                kubelets, node = self.kubelets, Node(event.who, amounts(event.cpu, event.memory))
                self.add_node(node, static_cpu=node.name in kubelets.static_cpu, swap=node.name in kubelets.swap)
            case Kind.SILENT:
                self.silence(event.who, self.now + timedelta(seconds=event.seconds))
            case Kind.USER if ref in self.state.pods:
                self._kubectl(ref, amounts(event.cpu, event.memory))
            case Kind.DELETE if ref in self.state.pods and not self.state.pods[ref].deleting:
                self.scheduler.preferred = self.state.pods[ref].node  # it comes back to its own node if that will do
                self.delete_pod(ref)

    def _arrive(self, event: Event) -> None:
        self._arrived += 1
        made = pod(f"x{self._arrived}", container(Resources(amounts(event.cpu, event.memory))), node=event.who)
        neighbour = replace(made, namespace="others")
        if self.scheduler.has_room(self.state.nodes[event.who], neighbour):
            self.add_pod(neighbour, {"app": Demand(Series.of([0.1]), Series.of([1.0]))})
            self._neighbours.append(neighbour.ref)

    def _kubectl(self, ref: PodRef, wanted: ResourceList) -> None:
        app = next(c for c in self.state.pods[ref].containers if c.name == "app")
        limits = ResourceList()
        if app.spec.limits != limits:
            times = 1 if app.spec.limits == app.spec.requests else 2
            limits = ResourceList(Millicores((wanted.cpu or 0) * times), Bytes((wanted.memory or 0) * times))
        self.resize(ref, (ContainerResize("app", ContainerKind.CONTAINER, Resources(wanted, limits)),), "kubectl")


def _bridges() -> Iterable[Pod]:
    memory = frozenset({Resource.MEMORY})
    restarting = container(sizes("500m", "512Mi", "1", "1Gi"), restart_on=memory)
    return (
        pod("a", container(both("500m", "512Mi"), restart_on=memory), workload="StatefulSet/a"),
        pod("b", restarting, container(both("100m", "256Mi"), "side"), workload="StatefulSet/b"),
        pod("c", container(both("1", "1Gi")), node="n2", workload="StatefulSet/c"),
        pod("d", container(sizes("1", "1Gi")), node="n2", workload="StatefulSet/d"),
    )


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

    def turn(self, turn: Turn, snapshot: ClusterSnapshot) -> None: ...


@dataclass(repr=False)  # asyncio prints a task with its result
class Run:
    """One history, lived through. `forgets`: a controller that was killed has lost its memory; else it begins anew with
    it, as if only the turn had been broken off."""

    history: events.History
    forgets: bool
    witness: Witness
    asked: list[Asked] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    sent: int = 0
    measured: dict[datetime, Measurements] = field(default_factory=dict)  # by tick

    def __post_init__(self) -> None:
        self.storm = Storm(self.history)
        self.troubles = Troubles(self.storm)

    async def live(self) -> Run:
        """To the end, with as many controllers as it takes."""
        ends_at = START + timedelta(seconds=events.LASTS_S) + QUIET
        clock = _Clock(self, ends_at)
        asyncio.get_running_loop().set_default_executor(_InPlace())
        loop = None
        while True:
            if loop is None or self.forgets:
                life = _Life(self)
                loop = Loop(life, life, clock, life, lambda: CONFIG)
            life.dead = False
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
        self._run.witness.state(self._run.storm, self._run.troubles)
        return wake


class _Life:
    """The ports of one life of the controller, but the clock. After its death every call raises `Killed`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.dead = False
        self._seen: ClusterSnapshot | None = None

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
        self._seen = await self._run.storm.observe()
        self._run.witness.seen(self._seen, self._run.troubles.deaths)
        return self._seen

    async def move(self, move: Move) -> Outcome:
        return await self._run.storm.move(move)

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
        if turn.plan is not None and self._seen is not None:
            self._run.witness.turn(turn, self._seen)
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
    targets = {name: Target(0.5, 512.0 * _MIB) for name in events.PODS}
    for event in storm.history.events:
        if event.kind is Kind.TARGET and moment(event) <= at:
            targets[event.who] = Target(event.cpu / 1000, float(event.memory * _MIB))
    newest = int(at.timestamp()) - 30
    end_at = np.arange(newest - 14 * 60, newest + 1, 60, dtype=np.int64)
    histories: dict[ContainerRef, History] = {}
    for bridge in storm.pods():
        for one in bridge.containers:
            ref = ContainerRef(*bridge.ref, one.name)
            if (record := storm.usage_of(ref)) is not None:
                _, memory = record.at(end_at)
                samples = Samples(end_at, np.full(len(end_at), 0.1, np.float32), memory.astype(np.float32))
                histories[ref] = History(targets[bridge.name], samples, 0, int(end_at[0]), newest)
    return run.measured.setdefault(at, Measurements(at, histories))
