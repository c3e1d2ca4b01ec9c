"""Commands and the users' sessions: who looks, who tells, and what comes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autoscaler import cli
from autoscaler.core.actions import AskKind, Evict
from autoscaler.core.model import Ask, Capability, Condition, Node, Resources, Workload, WorkloadRef
from autoscaler.core.plan import Drain
from autoscaler.core.policy import DrainPolicy, PodEndpoint
from autoscaler.core.resize import PENDING
from tests.cli.fakes import FakeClock, FakeCluster, FakeMetrics, FakeSessions, FakeWiring
from tests.cli.plans import BRIDGE, POD, PROXY, TAKEN_AT, amounts

WANTED = Resources(amounts("2", "4Gi"), amounts("4", None))
ASKED_AT = TAKEN_AT - timedelta(minutes=1)
WAITING = replace(
    POD,
    ip="10.0.0.7",
    owner=POD.workload,
    generation=2,
    observed_generation=2,
    created_at=TAKEN_AT - timedelta(days=1),
    ready=True,
    containers=(PROXY, replace(BRIDGE, spec=WANTED)),
    conditions=(Condition(PENDING, "True", "Deferred", "Node didn't have enough resource: cpu", 2),),
    asks=(Ask(AskKind.TARGET, ASKED_AT),),
)
FULL, EMPTY = (Node(name, amounts(cpu, "32Gi"), pods=110) for name, cpu in (("node-a", "1500m"), ("node-b", "8")))
OWNER = Workload(WorkloadRef("sim", "StatefulSet/bridge"), "w-1", "1", template={"bridge": WANTED, "proxy": PROXY.spec})
POLICY = """\
apiVersion: bridge-autoscaler.dev/v1alpha1
kind: BridgePolicy
metadata: {name: bridges}
spec:
  selector: {namespaces: [sim]}
  mode: ResizeOrMigrate
  fallback: {fit: false, drain: {endpoint: {port: 8080, path: /sessions}, notify: {port: 8080, path: /drain}}}
"""
HOW = DrainPolicy(endpoint=PodEndpoint(8080, "/sessions"), notify=PodEndpoint(8080, "/drain"))
DRAIN = Drain(POD.ref, POD.uid, "10.0.0.7", HOW, True, ASKED_AT + timedelta(seconds=30))


@pytest.fixture
def moving(policies: Path) -> Path:
    (policies / "bridges.yaml").write_text(POLICY)
    return policies


def wiring(*, idle: bool = True, **more: Any) -> FakeWiring:
    cluster = FakeCluster(
        (WAITING,), nodes=(FULL, EMPTY), workloads=(OWNER,), capabilities=frozenset({Capability.MIGRATE})
    )
    return FakeWiring(cluster, FakeMetrics(cpu=1.7, measured=True), FakeSessions(idle), **more)


@pytest.mark.parametrize(("idle", "reason"), [(True, "Migrate"), (False, "Draining")])
def test_a_plan_looks_at_sessions_and_tells_nobody(
    moving: Path, idle: bool, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = wiring(idle=idle)
    assert cli.main(["plan", f"--policies={moving}", "--output=json"], parts) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert item["reason"] == reason
    assert parts.sessions.followed == [({POD.ref: DRAIN}, False)]
    assert parts.sessions.looks == 2  # a gate opens at the second
    assert not parts.sessions.running
    assert parts.cluster.moved == []


def test_a_plan_in_which_nobody_is_moved_looks_at_nobody(policies: Path) -> None:
    parts = FakeWiring()
    assert cli.main(["plan", f"--policies={policies}", "--output=json"], parts) == 0
    assert parts.sessions.looks == 0


@pytest.mark.parametrize(("idle", "moved"), [(True, [POD.ref]), (False, [])])
def test_once_looks_before_its_turn_and_tells(moving: Path, idle: bool, moved: list[object]) -> None:
    parts = wiring(idle=idle)
    assert cli.main(["run", f"--policies={moving}", "--once"], parts) == 0
    assert parts.sessions.followed[0] == ({POD.ref: DRAIN}, True)
    assert parts.sessions.looks == 2
    assert [move.pod for move in parts.cluster.moved if isinstance(move, Evict)] == moved


@pytest.mark.parametrize("leads", [True, False])
def test_the_controller_looks_all_the_time_and_tells_while_it_leads(moving: Path, leads: bool) -> None:
    parts = wiring(idle=False, clock=FakeClock(ticks=1))
    parts.leadership.leads = leads
    assert cli.main(["run", f"--policies={moving}", "--metrics-address=127.0.0.1:0"], parts) == 0
    assert parts.sessions.running
    assert parts.sessions.followed == [({POD.ref: DRAIN}, leads)] * 2
