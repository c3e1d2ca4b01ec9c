"""A pod that has waited past its deadline on a full node, and a cluster in which nothing keeps it from being moved.

What a test changes is what keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from autoscaler.core.actions import AskKind, ScaleKind
from autoscaler.core.decide import decide
from autoscaler.core.model import (
    Ask,
    Autoscaler,
    Capability,
    ClusterSnapshot,
    Condition,
    Node,
    Pod,
    PodRef,
    Resources,
    Workload,
    WorkloadRef,
)
from autoscaler.core.notes import Notes
from autoscaler.core.plan import Decision, Gate, Plan
from autoscaler.core.policy import (
    Config,
    DrainPolicy,
    Fallback,
    FallbackAction,
    Migration,
    Mode,
    PodEndpoint,
    Policy,
    Selector,
)
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import PENDING
from autoscaler.core.scheduling import DisruptionBudget, Storage
from tests.build import NOW, both, config, container, fixed, history, measurements, node, one, pod, policy, snapshot

AFTER = timedelta(seconds=40)
HAS, WANTED = both("2", "4Gi"), both("4", "8Gi")
DAY = timedelta(days=1)
ENDPOINT = PodEndpoint(8080, "/sessions")


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def overdue(name: str = "sim-0", *, waited: float = 60, reason: str = "Deferred", **changes: Any) -> Pod:
    """A pod that has 2 cores and asked for 4, `waited` seconds ago."""
    app = container(WANTED, allocated=HAS.requests, actual=HAS)
    made = pod(
        app,
        name=name,
        generation=2,
        observed_generation=2,
        conditions=(Condition(PENDING, "True", reason, "Node didn't have enough resource: cpu", 2),),
        asks=(Ask(AskKind.TARGET, ago(waited)),),
        owner="StatefulSet/sim",
        created_at=NOW - DAY,
        labels={"app": "sim"},
        ip="10.0.0.7",
    )
    return replace(made, **changes)


def surging(name: str = "web-1-old", **changes: Any) -> Pod:
    """The same of a Deployment."""
    return overdue(name, **{"workload": "Deployment/web", "owner": "ReplicaSet/web-1", **changes})


def filler(on: str = "node-a", cpu: str = "14", memory: str = "1Gi") -> Pod:
    """Somebody else's pod."""
    name = f"filler-{on}"
    return replace(pod(container(both(cpu, memory)), name=name, node=on), namespace="others", workload=None)


def stateful_set(template: Resources = WANTED, **changes: Any) -> Workload:
    return workload("StatefulSet/sim", template, **changes)


def workload(object_: str, template: Resources = WANTED, **changes: Any) -> Workload:
    made = Workload(
        WorkloadRef("bridge", object_), f"uid-{object_}", "9", template={"app": template}, labels={"app": "sim"}
    )
    return replace(made, **changes)


def web(replicas: int = 1, scaled: Ask | None = None, template: Resources = HAS) -> tuple[Workload, Workload]:
    """A Deployment and its ReplicaSet."""
    return (
        workload("Deployment/web", template, replicas=replicas, scaled=scaled),
        workload("ReplicaSet/web-1", template, replicas=replicas, owned=True),
    )


def surged(seconds: float = 20, kind: ScaleKind = ScaleKind.SURGE) -> Ask:
    return Ask(kind, ago(seconds))


def newcomer(name: str = "web-1-new", size: Resources = WANTED, created: float = 15, **changes: Any) -> Pod:
    """The new pod of a surge, ready."""
    made = surging(name, conditions=(), asks=(), generation=1, observed_generation=1, created_at=ago(created))
    return replace(replace(made, node="node-b", containers=(container(size),)), **changes)


def moving(mode: Mode = Mode.RESIZE_OR_MIGRATE, drain: DrainPolicy | None = None, **how: Any) -> Policy:
    """A policy that moves pods, 40 s after they have asked."""
    fallback = Fallback(AFTER, AFTER, fit=False, action=FallbackAction.MIGRATE, migration=Migration(drain=drain, **how))
    return policy(fixed("4", "8Gi"), selector=Selector(frozenset({"bridge"})), mode=mode, fallback=fallback)


def drained(**changes: Any) -> DrainPolicy:
    return DrainPolicy(**{"endpoint": ENDPOINT, "notify": PodEndpoint(8080, "/drain"), **changes})


def gate(
    pod: Pod,
    *,
    is_open: bool,
    age: float = 3,
    detail: str = "3 sessions",
    told: float | None = None,
    known: bool = True,
) -> dict[PodRef, Gate]:
    """What was heard of a pod's sessions `age` seconds ago; it was told to take no new ones `told` seconds ago."""
    told_at = None if told is None else ago(told)
    return {pod.ref: Gate(pod.uid, is_open, "no sessions" if is_open else detail, ago(age), known, told_at)}


@dataclass(frozen=True)
class Scene:
    """A cluster and what is decided in it."""

    pods: tuple[Pod, ...] = field(default_factory=lambda: (overdue(), filler()))
    nodes: tuple[Node, ...] = field(default_factory=lambda: (node(), node("node-b")))
    workloads: tuple[Workload, ...] = field(default_factory=lambda: (stateful_set(),))
    budgets: tuple[DisruptionBudget, ...] = ()
    storage: Storage = Storage()
    autoscalers: tuple[Autoscaler, ...] = ()
    capabilities: frozenset[Capability] = frozenset(Capability)
    gates: Mapping[PodRef, Gate] = field(default_factory=dict)
    notes: Notes = field(default_factory=Notes)
    policies: tuple[Policy, ...] = field(default_factory=lambda: (moving(),))
    config: Mapping[str, Any] = field(default_factory=dict)

    def snapshot(self, at: datetime = NOW) -> ClusterSnapshot:
        return replace(
            snapshot(*self.pods, nodes=self.nodes, at=at),
            workloads={each.ref: each for each in self.workloads},
            disruption_budgets=self.budgets,
            storage=self.storage,
            autoscalers=self.autoscalers,
            capabilities=self.capabilities,
        )

    def settings(self) -> Config:
        return config(*self.policies, **self.config)

    def plan(self, at: datetime = NOW, scope: Iterable[PodRef] | None = None) -> Plan:
        return decide(
            self.snapshot(at),
            measurements(self.pods, history(age_s=60 - int((at - NOW).total_seconds()))),
            self.settings(),
            None if scope is None else frozenset(scope),
            notes=self.notes,
            gates=self.gates,
        )

    def decision(self, name: str = "sim-0", at: datetime = NOW) -> Decision:
        return one(self.plan(at), name)

    def but(self, **changes: Any) -> Scene:
        return replace(self, **changes)


SCENE = Scene()
WEB = Scene(
    pods=(surging(), filler()),
    workloads=web(),
)

SHOWN_IN_TESTS_OF_MIGRATIONS = frozenset(
    {
        *(Reason.MIGRATE, Reason.MIGRATION_NOT_ENABLED, Reason.MIGRATION_NOT_PERMITTED, Reason.NOT_REPLACEABLE),
        *(Reason.NOT_SAFE_TO_EVICT, Reason.WORKLOAD_CHANGING, Reason.NO_LANDING_NODE, Reason.NEEDS_NEW_NODE),
        *(Reason.REPLACEMENT_TOO_SMALL, Reason.EVICTION_BLOCKED, Reason.EVICTION_REFUSED, Reason.POD_TOO_YOUNG),
        *(Reason.SIBLING_UNAVAILABLE, Reason.DRAINING, Reason.GATE_UNKNOWN, Reason.THROTTLED),
        *(Reason.SURGE, Reason.SURGE_BACK, Reason.SURGING, Reason.SURGE_REFUSED, Reason.SURGE_FAILED),
        *(Reason.REPLACING, Reason.REPLACEMENT_UNSCHEDULED, Reason.REPLACEMENT_NOT_READY),
    }
)
"""Reasons that test_migration.py, test_surge.py and test_replacing.py show."""
