"""What stands behind the ports when commands are tested: a cluster, metrics and a clock that do as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from autoscaler.adapters.prometheus.traffic import Traffic
from autoscaler.cli.wiring import Parts
from autoscaler.core.actions import Evict, Move, Outcome, OutcomeKind, Resize
from autoscaler.core.history import ContainerRef, Gap, History, Measurements, MemoryInUse, advance
from autoscaler.core.model import Capability, ClusterSnapshot, Node, Pod, PodRef, Problem, Workload
from autoscaler.core.plan import Drain, Gate
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Samples
from autoscaler.core.units import Bytes
from autoscaler.plugins import discover
from autoscaler.policystore import PolicyStore
from autoscaler.ports import Unavailable, Wake, WakeKind
from autoscaler.settings import Settings, load_settings
from tests.cli.plans import POD, TAKEN_AT, amounts

NODE = Node("node-a", amounts("8", "32Gi"))


@dataclass
class FakeCluster:
    pods: tuple[Pod, ...] = (POD,)
    outcome: Outcome = Outcome(OutcomeKind.ACCEPTED)
    unavailable: str = ""
    nodes: tuple[Node, ...] = (NODE,)
    workloads: tuple[Workload, ...] = ()
    capabilities: frozenset[Capability] = frozenset()
    performed: list[Resize] = field(default_factory=list)
    moved: list[Move] = field(default_factory=list)
    observing: Callable[[], None] = lambda: None
    performing: Callable[[], None] = lambda: None

    async def observe(self) -> ClusterSnapshot:
        self.observing()
        if self.unavailable:
            raise Unavailable(self.unavailable)
        pods = {pod.ref: pod for pod in self.pods}
        return ClusterSnapshot(
            TAKEN_AT,
            pods,
            {node.name: node for node in self.nodes},
            server_minor=37,
            workloads={workload.ref: workload for workload in self.workloads},
            capabilities=self.capabilities,
        )

    async def move(self, move: Move) -> Outcome:
        self.moved.append(move)
        if isinstance(move, Evict) and self.outcome.kind is OutcomeKind.ACCEPTED:
            self.pods = tuple(pod for pod in self.pods if pod.ref != move.pod)
        return self.outcome

    async def perform(self, action: Resize) -> Outcome:
        self.performing()
        await asyncio.sleep(0.05)
        self.performed.append(action)
        return self.outcome


@dataclass
class FakeMetrics:
    """Every container has used the same for a day; or nothing can be said of any."""

    cpu: float = 1.5
    memory: float = float(2 << 30)
    problem: Problem | None = None
    wanted: Mapping[ContainerRef, Policy] = field(default_factory=dict)
    measured: bool = False
    busy_since: float | None = None

    def follow(self, wanted: Mapping[ContainerRef, Policy]) -> None:
        self.wanted = wanted

    def latest(self) -> Measurements:
        if not self.measured:
            return Measurements(default=Gap(Reason.METRICS_UNAVAILABLE, "not measured yet"))
        if self.problem is not None:
            gap = Gap(Reason.METRICS_UNAVAILABLE, self.problem.detail)
            return Measurements(None, {}, gap, (self.problem,))
        in_use = MemoryInUse(TAKEN_AT, dict.fromkeys(self.wanted, Bytes(int(self.memory))))
        return Measurements(
            TAKEN_AT, {ref: self._history(policy) for ref, policy in self.wanted.items()}, in_use=in_use
        )

    async def measure_once(self, progress: Callable[[int, int, int], None] | None = None) -> Measurements:
        self.measured = True
        if progress is not None:
            progress(1, 1, 1)
        return self.latest()

    async def run(self) -> None:
        self.measured = True
        await asyncio.Event().wait()

    def _history(self, policy: Policy) -> History:
        now, step = int(TAKEN_AT.timestamp()), policy.grid.step
        ends = range(now - 86400, now + 1, step)
        samples = Samples.of(ends, [self.cpu] * len(ends), [self.memory] * len(ends))
        history = advance(None, samples, policy.recommender, policy.grid, sample_s=step)
        assert history is not None
        return history


@dataclass
class FakeSessions:
    """Finds out what it is told to, two looks after a pod is followed."""

    open: bool = True
    followed: list[tuple[dict[PodRef, Drain], bool]] = field(default_factory=list)
    looks: int = 0
    running: bool = False

    def follow(self, drains: Mapping[PodRef, Drain], *, telling: bool) -> None:
        self.followed.append((dict(drains), telling))

    def latest(self) -> Mapping[PodRef, Gate]:
        drains = self.followed[-1][0] if self.followed and self.looks >= 2 else {}
        return {ref: Gate(drain.uid, self.open, "no sessions", TAKEN_AT) for ref, drain in drains.items()}

    async def look_once(self) -> None:
        self.looks += 1

    async def run(self) -> None:
        self.running = True
        await asyncio.Event().wait()


class FakeClock:
    """Ticks without waiting, until it is stopped or has ticked often enough."""

    def __init__(self, ticks: int = 3) -> None:
        self._left = ticks
        self._stopped = False
        self.ticked = 0

    def tick(self) -> None:
        self.ticked += 1

    def stop(self) -> None:
        self._stopped = True

    async def until(self, moment: datetime) -> None:
        await asyncio.Event().wait()

    async def wait(self, until: datetime | None) -> Wake:
        await asyncio.sleep(0.01)
        self._left -= 1
        return Wake(WakeKind.STOP if self._stopped or self._left < 0 else WakeKind.TICK)


@dataclass
class FakeLeadership:
    """Leads or does not; `run` plays the changes, one every other turn."""

    leads: bool = True
    changes: list[bool] = field(default_factory=list)
    changed: Callable[[bool, str], None] = lambda leading, detail: None
    released: bool = False

    def leading(self) -> bool:
        return self.leads

    async def run(self) -> None:
        for leads in self.changes:
            await asyncio.sleep(0.02)
            self.leads = leads
            self.changed(leads, "told to")
        await asyncio.Event().wait()


@dataclass
class FakeWiring:
    """Real settings and policies; the rest is fake."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
    metrics: FakeMetrics = field(default_factory=FakeMetrics)
    sessions: FakeSessions = field(default_factory=FakeSessions)
    clock: FakeClock = field(default_factory=FakeClock)
    leadership: FakeLeadership = field(default_factory=FakeLeadership)
    traffic: Traffic = field(default_factory=Traffic)
    failure: Exception | None = None
    opened: list[dict[str, bool]] = field(default_factory=list)
    flags: dict[str, Any] = field(default_factory=dict)

    def settings(self, flags: Mapping[str, Any]) -> Settings:
        self.flags = dict(flags)
        values = dict(flags)
        return load_settings(values, values.pop("config", None))

    @asynccontextmanager
    async def open(self, settings: Settings, *, watching: bool, acting: bool) -> AsyncIterator[Parts]:
        self.opened.append({"watching": watching, "acting": acting})
        if self.failure is not None:
            raise self.failure
        catalog = discover()
        policies = PolicyStore(settings.policies, catalog)
        policies.load()
        parts = Parts(settings, catalog, policies, self.cluster, self.metrics, self.sessions, self.clock)
        yield replace(parts, traffic=self.traffic)

    @asynccontextmanager
    async def electing(
        self, settings: Settings, changed: Callable[[bool, str], None], failed: Callable[[str], None]
    ) -> AsyncIterator[FakeLeadership]:
        self.leadership.changed = changed
        changed(self.leadership.leads, "told to")
        yield self.leadership
        self.leadership.released = True
