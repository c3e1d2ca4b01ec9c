"""Plans that the tests of the command line render."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from autoscaler.core.actions import ContainerResize, Evict, Resize, Scale, ScaleKind
from autoscaler.core.model import (
    Container,
    ContainerKind,
    Pod,
    PodRef,
    Problem,
    QoSClass,
    Resource,
    ResourceList,
    Resources,
    WorkloadRef,
)
from autoscaler.core.plan import Check, Decision, Drain, MigrationReport, Plan, PredictedOutcome, Prediction, Proposal
from autoscaler.core.policy import DrainPolicy, Strategy
from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Step
from autoscaler.core.units import parse_cpu, parse_memory

TAKEN_AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def amounts(cpu: str | None, memory: str | None) -> ResourceList:
    return ResourceList(parse_cpu(cpu) if cpu else None, parse_memory(memory) if memory else None)


def container(name: str, requests: ResourceList, limits: ResourceList, kind: ContainerKind) -> Container:
    spec = Resources(requests, limits)
    return Container(name, kind, spec, requests, spec, running=True)


BRIDGE = container("bridge", amounts("1", "4Gi"), amounts("2", None), ContainerKind.CONTAINER)
PROXY = container("proxy", amounts("100m", "64Mi"), amounts("100m", "64Mi"), ContainerKind.SIDECAR)
POD = Pod(
    "sim",
    "bridge-0",
    "11111111-aaaa",
    resource_version="7",
    workload="StatefulSet/bridge",
    node="node-a",
    qos_class=QoSClass.BURSTABLE,
    containers=(PROXY, BRIDGE),
)
GROWN = Resources(amounts("1500m", "4Gi"), amounts("3", None))
TRAIL = (
    Step(Resource.CPU, "p95", None, 1300, "of 3.2d of samples"),
    Step(Resource.CPU, "margin", 1300, 1495, "margin 15%"),
    Step(Resource.CPU, "round", 1495, 1500, "up to 10m"),
    Step(Resource.MEMORY, "peak", None, 5 << 30, "of 3.2d of samples"),
    Step(Resource.MEMORY, "maxAllowed", 5 << 30, 4 << 30, "upper bound of the policy", cap=True),
)
GROW = Resize(
    POD.ref,
    POD.uid,
    1,
    (ContainerResize("bridge", ContainerKind.CONTAINER, Resources(amounts("1500m", None), amounts("3", None))),),
)
RESIZED = Decision(
    POD,
    "sim-bridges",
    Reason.INCREASE,
    "cpu of bridge",
    (Proposal(PROXY, PROXY.spec), Proposal(BRIDGE, GROWN, TRAIL)),
    GROW,
    Prediction(PredictedOutcome.IN_PLACE, "node-a has 2300m of cpu to spare"),
)
RECOMMENDED = replace(
    RESIZED,
    pod=replace(POD, name="bridge-1", uid="22222222-bbbb"),
    reason=Reason.RECOMMEND_ONLY,
    detail="Increase\nrm -rf /",
    action=None,
)
HELD = replace(
    RESIZED,
    pod=replace(POD, name="bridge-2", uid="33333333-cccc"),
    reason=Reason.NO_DATA,
    detail="container bridge: no samples in Prometheus",
    proposals=(Proposal(PROXY, PROXY.spec), Proposal(BRIDGE, BRIDGE.spec)),
    action=None,
    prediction=Prediction(PredictedOutcome.UNKNOWN),
)
SETTLED = replace(HELD, pod=replace(POD, name="bridge-3", uid="44444444-dddd"), reason=Reason.AT_TARGET, detail="")
PLAN = Plan(
    TAKEN_AT,
    (SETTLED, HELD, RECOMMENDED, RESIZED),
    (Problem("policies/b.yaml", Trouble.NOTHING_SELECTED, "policy b selects no pod"),),
)


def after(seconds: float) -> datetime:
    return TAKEN_AT + timedelta(seconds=seconds)


MODE = Check("mode", Reason.MIGRATION_NOT_ENABLED, True, "ResizeOrMigrate, strategy Evict")
LANDS = Check("landing", Reason.NO_LANDING_NODE, True, "2 of 4 nodes have room for 1500m cpu, 4Gi memory")
NOWHERE = replace(LANDS, holds=False, detail="of 4 nodes 2 cpu, 1 taints, 1 its own")
YOUNG = Check("age", Reason.POD_TOO_YOUNG, False, "sim/bridge-1 is 12 min old, minPodAge is 30 min", after(1080))
SOON = MigrationReport(Strategy.EVICT, after(12), (MODE, LANDS), ("node-b", "node-c"))
OVERDUE = MigrationReport(Strategy.EVICT, after(-240), (MODE, NOWHERE, YOUNG))
DEFERRED = replace(
    RESIZED,
    reason=Reason.RESIZE_DEFERRED,
    detail="OutOfcpu for 18 s",
    action=None,
    prediction=Prediction(PredictedOutcome.DEFERRED, "node-a lacks 300m of cpu"),
    due_at=after(12),
    migration=SOON,
)
STUCK = replace(DEFERRED, reason=Reason.NO_LANDING_NODE, detail=NOWHERE.detail, due_at=None, migration=OVERDUE)
MIGRATING = replace(
    DEFERRED,
    reason=Reason.MIGRATE,
    detail="OutOfcpu for 30 s",
    due_at=None,
    migration=replace(SOON, due_at=TAKEN_AT),
    move=Evict(POD.ref, POD.uid, "7", SOON.landing),
)


def surge(kind: ScaleKind = ScaleKind.SURGE, replicas: int = 2) -> Decision:
    """A step of a surge, which scales a Deployment."""
    scale = Scale(
        WorkloadRef("sim", "Deployment/world"), "55555555-eeee", "41", replicas, kind, PodRef("sim", "world-x")
    )
    return replace(
        MIGRATING,
        pod=replace(POD, name="world-x", workload="Deployment/world"),
        reason=Reason.SURGE if kind is ScaleKind.SURGE else Reason.SURGE_BACK,
        migration=replace(SOON, strategy=Strategy.SURGE, due_at=TAKEN_AT),
        move=scale,
    )


def drain(*, telling: bool) -> Drain:
    return Drain(POD.ref, POD.uid, "10.0.0.7", DrainPolicy(query="sessions"), telling, after(12))
