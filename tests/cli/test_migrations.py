"""What a person sees of a migration before it happens, in every rendering."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from autoscaler import cli
from autoscaler.cli.document import Item, MigrationPart, document, json_schema
from autoscaler.cli.rendering.data import render_json, render_yaml
from autoscaler.cli.rendering.markdown import render_markdown
from autoscaler.cli.rendering.patch import render_patch
from autoscaler.cli.rendering.table import render_explanation, render_table
from autoscaler.cli.rendering.words import countdown, migration, summary, verdict
from autoscaler.core.actions import Evict, Outcome, OutcomeKind, ScaleKind
from autoscaler.core.model import Ask, Capability, Condition, PodRef, QoSClass, Workload, WorkloadRef
from autoscaler.core.plan import Check, Decision, MigrationReport, Plan, Proposal
from autoscaler.core.policy import Strategy
from autoscaler.core.reasons import Reason
from tests.build import both, container, node
from tests.cli.conftest import write_policy
from tests.cli.fakes import FakeCluster, FakeMetrics, FakeWiring
from tests.cli.plans import (
    DEFERRED,
    LANDS,
    MIGRATING,
    MODE,
    NOWHERE,
    OVERDUE,
    POD,
    RESIZED,
    SOON,
    STUCK,
    TAKEN_AT,
    YOUNG,
    after,
    surge,
)

CONNECTED = Check("sessions", Reason.DRAINING, False, "3 sessions; called off at 12:05", after(300))
UNREADY = Check("new pod", Reason.SURGING, False, "bridge-9 is not ready", after(300))


def plan(*decisions: Decision) -> Plan:
    return Plan(TAKEN_AT, decisions)


def item(decision: Decision) -> Item:
    (found,) = document(plan(decision)).items
    return found


def part(report: MigrationReport) -> MigrationPart:
    found = item(replace(DEFERRED, migration=report)).migration
    assert found is not None
    return found


def as_json(decision: Decision) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render_json(document(plan(decision))))
    jsonschema.Draft202012Validator(json_schema()).validate(found)
    assert yaml.safe_load(render_yaml(document(plan(decision)))) == found
    (one,) = found["items"]
    assert isinstance(one, dict)
    return one


def test_the_document_has_the_deadline_with_its_countdown_and_every_check() -> None:
    found = as_json(STUCK)
    assert (found["action"], found["move"]) == ("None", None)
    assert found["migration"] == {
        "strategy": "Evict",
        "dueAt": "2026-11-29T11:56:00Z",
        "inSeconds": -240,
        "blockedBy": "NoLandingNode",
        "landing": [],
        "checks": [
            {
                "name": "mode",
                "holds": True,
                "reason": "MigrationNotEnabled",
                "detail": "ResizeOrMigrate, strategy Evict",
                "dueAt": None,
                "inSeconds": None,
            },
            {
                "name": "landing",
                "holds": False,
                "reason": "NoLandingNode",
                "detail": "of 4 nodes 2 cpu, 1 taints, 1 its own",
                "dueAt": None,
                "inSeconds": None,
            },
            {
                "name": "age",
                "holds": False,
                "reason": "PodTooYoung",
                "detail": "sim/bridge-1 is 12 min old, minPodAge is 30 min",
                "dueAt": "2026-11-29T12:18:00Z",
                "inSeconds": 1080,
            },
        ],
    }
    found = as_json(DEFERRED)
    assert (found["migration"]["inSeconds"], found["migration"]["blockedBy"]) == (12, None)
    assert found["migration"]["landing"] == ["node-b", "node-c"]
    assert as_json(RESIZED)["migration"] is None


def test_a_countdown_ends_when_the_deadline_has_come_and_not_before() -> None:
    def left(seconds: float) -> int:
        return part(replace(SOON, due_at=TAKEN_AT + timedelta(seconds=seconds))).in_seconds

    assert [left(0.2), left(0), left(-0.2), left(-1.2)] == [1, 0, 0, -1]


@pytest.mark.parametrize(
    ("decision", "action", "move"),
    [
        (MIGRATING, "Migrate", {"object": "Pod/bridge-0", "uid": "11111111-aaaa", "resourceVersion": "7"}),
        (surge(), "Surge", {"object": "Deployment/world", "uid": "55555555-eeee", "resourceVersion": "41"}),
        (surge(ScaleKind.BACK, 1), "SurgeBack", {"object": "Deployment/world", "resourceVersion": "41"}),
    ],
)
def test_a_step_that_is_due_is_a_change(decision: Decision, action: str, move: Mapping[str, str]) -> None:
    found = as_json(decision)
    assert (found["action"], item(decision).changes) == (action, True)
    assert move.items() <= found["move"].items()
    assert found["move"]["replicas"] == {"Migrate": None, "Surge": 2, "SurgeBack": 1}[action]


def test_what_only_waits_is_no_change() -> None:
    assert not item(DEFERRED).changes
    assert not item(STUCK).changes


TABLE = """\
sim/bridge-0  StatefulSet/bridge, on node-a, policy sim-bridges
  ResizeDeferred: OutOfcpu for 18 s
  Predicted  Deferred: node-a lacks 300m of cpu
  Migration  in 12 s by Evict: to node-b or node-c
  QoS        Burstable unchanged
"""
EXPLANATION = """\
sim/bridge-0  StatefulSet/bridge, on node-a, policy sim-bridges
  NoLandingNode: of 4 nodes 2 cpu, 1 taints, 1 its own
  Predicted  Deferred: node-a lacks 300m of cpu
  Migration  due 4 min ago by Evict: not possible: landing fails
  QoS        Burstable unchanged
  Checks     ok     mode: ResizeOrMigrate, strategy Evict
             FAILS  landing: NoLandingNode: of 4 nodes 2 cpu, 1 taints, 1 its
                    own
             FAILS  age: PodTooYoung: sim/bridge-1 is 12 min old, minPodAge is
                    30 min (due in 18 min)
  Meaning    No other node would take the pod at its new size; the detail says
             what rules them out.
"""


def test_the_table_says_when_how_and_where_to() -> None:
    assert render_table(document(plan(DEFERRED))).startswith(TABLE)
    assert "Migration" not in render_table(document(plan(RESIZED)))


def test_the_explanation_has_a_line_for_every_check() -> None:
    assert render_explanation(item(STUCK)).startswith(EXPLANATION)
    assert "Checks" not in render_explanation(item(RESIZED))


def test_the_remedy_of_what_will_be_in_the_way_is_told_before_the_deadline() -> None:
    early = replace(DEFERRED, migration=replace(SOON, checks=(MODE, NOWHERE, YOUNG)))
    text = " ".join(render_explanation(item(early)).split())
    assert f"Remedy landing: {Reason.NO_LANDING_NODE.remedy}" in text
    assert Reason.POD_TOO_YOUNG.remedy not in text
    assert "Remedy landing" not in render_explanation(item(STUCK))  # it is the remedy of the reason itself
    assert " ".join(render_explanation(item(STUCK)).split()).count(Reason.NO_LANDING_NODE.remedy) == 1


@pytest.mark.parametrize("width", [40, 80, 130])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    texts = [render_table(document(plan(DEFERRED, STUCK)), width=width), render_explanation(item(STUCK), width=width)]
    assert max(len(line) for text in texts for line in text.splitlines()) <= width


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (SOON, "in 12 s by Evict: to node-b or node-c"),
        (replace(SOON, due_at=TAKEN_AT, landing=("b",)), "now by Evict: to b"),
        (
            replace(SOON, strategy=Strategy.SURGE, landing=("b", "c", "d", "e", "f")),
            "in 12 s by Surge: to b, c, d or 2 more",
        ),
        (OVERDUE, "due 4 min ago by Evict: not possible: NoLandingNode: of 4 nodes 2 cpu, 1 taints, 1 its own"),
        (
            replace(SOON, checks=(MODE, LANDS, YOUNG)),
            "in 12 s by Evict: waits: PodTooYoung: sim/bridge-1 is 12 min old, minPodAge is 30 min "
            "(due in 18 min); then to node-b or node-c",
        ),
        (
            replace(SOON, strategy=Strategy.NONE, checks=(replace(MODE, name="strategy", holds=False),)),
            "in 12 s, strategy None: nothing is moved; there is room on node-b or node-c",
        ),
        (
            replace(SOON, strategy=Strategy.NONE, checks=(NOWHERE, replace(MODE, holds=False)), landing=()),
            "in 12 s, strategy None: nothing is moved; NoLandingNode: of 4 nodes 2 cpu, 1 taints, 1 its own",
        ),
        (
            replace(OVERDUE, checks=(MODE, CONNECTED), landing=("node-b",)),
            "due 4 min ago by Evict: waits: Draining: 3 sessions; called off at 12:05 (due in 5 min); then to node-b",
        ),
        (
            replace(SOON, strategy=Strategy.SURGE, due_at=TAKEN_AT, checks=(MODE, UNREADY), landing=("node-b",)),
            "due now by Surge: waits for the new pod: bridge-9 is not ready",
        ),
    ],
)
def test_one_line_of_a_migration(report: MigrationReport, text: str) -> None:
    assert migration(item(replace(DEFERRED, migration=report))) == text


def test_the_reason_for_which_a_pod_is_held_is_not_said_twice() -> None:
    report = replace(OVERDUE, landing=("node-b",))
    assert migration(item(replace(STUCK, migration=report))) == (
        "due 4 min ago by Evict: not possible: landing fails; there is room on node-b"
    )
    now = replace(STUCK, migration=replace(report, due_at=TAKEN_AT))
    assert migration(item(now)) == "due now by Evict: not possible: landing fails; there is room on node-b"
    draining = replace(STUCK, reason=Reason.DRAINING, migration=replace(report, checks=(CONNECTED,)))
    assert migration(item(draining)) == "due 4 min ago by Evict: waits: Draining: 3 sessions; then to node-b"
    surging = replace(STUCK, reason=Reason.SURGING, migration=replace(report, checks=(UNREADY,)))
    assert migration(item(surging)) == "due 4 min ago by Evict: waits for the new pod"
    assert migration(item(RESIZED)) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (1, "in 1 s"),
        (119, "in 119 s"),
        (120, "in 2 min"),
        (185, "in 3 min 5 s"),
        (1085, "in 18 min"),
        (7200, "in 2 h"),
        (9000, "in 2 h 30 min"),
        (-45, "45 s ago"),
        (-3700, "61 min ago"),
    ],
)
def test_countdowns(seconds: int, text: str) -> None:
    assert countdown(seconds) == text


def test_the_summary_counts_moves_of_their_own() -> None:
    decisions = [RESIZED, MIGRATING, surge(), surge(ScaleKind.BACK, 1), STUCK]
    named = [replace(one, pod=replace(one.pod, name=f"pod-{n}")) for n, one in enumerate(decisions)]
    assert summary(document(plan(*named))) == "1 to resize, 2 to migrate, 1 to scale back, 1 held"


def test_a_move_that_is_its_own_reason_is_named_once() -> None:
    assert verdict(item(MIGRATING)) == "Migrate: OutOfcpu for 30 s"
    assert verdict(item(RESIZED)) == "Resize: Increase: cpu of bridge"


def test_markdown_has_the_line_and_the_checks() -> None:
    text = render_markdown(document(plan(STUCK)))
    assert "- Migration: due 4 min ago by Evict: not possible: landing fails\n" in text
    assert "  - ok: mode: ResizeOrMigrate, strategy Evict\n  - FAILS: landing: NoLandingNode: " in text
    assert "Migration" not in render_markdown(document(plan(RESIZED)))


def kubectl(tmp_path: Path, script: str) -> list[str]:
    """What kubectl would be told, word by word, and its standard input."""
    fake = tmp_path / "kubectl"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n[ "$1" = create ] && cat\nexit 0\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-eu"], input=script, capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_an_eviction_runs_in_bash_as_it_is(tmp_path: Path) -> None:
    script = render_patch(document(plan(MIGRATING)))
    assert script.startswith("# sim/bridge-0: Migrate; OutOfcpu for 30 s; now by Evict: to node-b or node-c\n")
    *words, body = kubectl(tmp_path, script)
    assert words == ["create", "--raw", "/api/v1/namespaces/sim/pods/bridge-0/eviction", "-f", "-"]
    assert json.loads(body) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "bridge-0", "namespace": "sim"},
        "deleteOptions": {"preconditions": {"uid": "11111111-aaaa", "resourceVersion": "7"}},
    }


@pytest.mark.parametrize(("kind", "replicas"), [(ScaleKind.SURGE, 2), (ScaleKind.BACK, 1)])
def test_a_step_of_a_surge_runs_in_bash_as_it_is(tmp_path: Path, kind: ScaleKind, replicas: int) -> None:
    words = kubectl(tmp_path, render_patch(document(plan(surge(kind, replicas)))))
    assert words == ["scale", "deployment/world", "-n", "sim", f"--replicas={replicas}", "--resource-version=41"]


@pytest.mark.parametrize("reason", [Reason.SURGE_BACK, Reason.SURGE_FAILED])
def test_the_end_of_a_surge_evicts_its_newest_pod_and_scales_at_once(tmp_path: Path, reason: Reason) -> None:
    newest = Evict(PodRef("sim", "world-y"), "77777777-gggg", "9")
    end = replace(surge(), reason=reason, move=newest)
    world = Workload(WorkloadRef("sim", "Deployment/world"), "55555555-eeee", replicas=3)
    script = render_patch(document(Plan(TAKEN_AT, (end,), workloads={world.ref: world})))
    create, scale = script.splitlines()[1:]
    *words, body = kubectl(tmp_path, create)
    assert words == ["create", "--raw", "/api/v1/namespaces/sim/pods/world-y/eviction", "-f", "-"]
    assert json.loads(body)["metadata"]["name"] == "world-y"
    words = kubectl(tmp_path, scale)
    assert words == ["scale", "deployment/world", "-n", "sim", "--replicas=2", "--current-replicas=3"]
    unknown = render_patch(document(plan(end)))
    assert unknown.splitlines()[2] == "# then, at once: scale Deployment/world back by one"


def test_what_only_waits_has_no_line_for_bash() -> None:
    assert render_patch(document(plan(DEFERRED, STUCK))) == ""


def test_a_move_that_is_only_recommended_is_a_comment() -> None:
    settled = tuple(Proposal(one.container, one.container.spec) for one in MIGRATING.proposals)
    decision = replace(MIGRATING, reason=Reason.RECOMMEND_ONLY, detail="Evict", move=None, proposals=settled)
    text = render_patch(document(plan(decision)))
    assert text == "# sim/bridge-0: RecommendOnly; Evict; now by Evict: to node-b or node-c\n"


def test_no_text_from_outside_becomes_a_command() -> None:
    nasty = replace(LANDS, detail="why\nrm -rf /\r\n: ;")
    decision = replace(MIGRATING, detail="x\nrm -rf /", migration=replace(SOON, checks=(replace(nasty, holds=False),)))
    lines = render_patch(document(plan(decision))).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["#", "kubectl"]


HAS = both("2", "4Gi")
APP = container(both("4", "4Gi"), name="bridge", allocated=HAS.requests, actual=HAS)
BUSY = FakeMetrics(cpu=3.45, memory=3.4 * 2**30)  # for which 4 cores are wanted
FULL = Condition("PodResizePending", "True", "Deferred", "Node didn't have enough resource: cpu", 2)
STATEFUL = Workload(WorkloadRef("sim", "StatefulSet/bridge"), "66666666-ffff", template={"bridge": APP.spec})


def cluster(waited_s: int, **changes: Any) -> FakeCluster:
    """A pod of 4 cores, of which it has 2; node-a is full, and node-b is free."""
    stuck = replace(
        POD,
        owner="StatefulSet/bridge",
        containers=(APP,),
        qos_class=QoSClass.GUARANTEED,
        generation=2,
        observed_generation=2,
        conditions=(FULL,),
        asks=(Ask("bridge-autoscaler", after(-waited_s)),),
        created_at=after(-86400),
        ready=True,
    )
    nodes = (node("node-a", cpu="2"), node("node-b"))
    made = FakeCluster((stuck,), nodes=nodes, workloads=(STATEFUL,), capabilities=frozenset(Capability))
    return replace(made, **changes)


def command(tmp_path: Path, there: FakeCluster, *arguments: str, mode: str = "ResizeOrMigrate") -> int:
    path = write_policy(tmp_path, mode=mode)
    return cli.main([*arguments, f"--policies={path}"], FakeWiring(cluster=there, metrics=BUSY))


def test_plan_counts_down_to_a_move(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, cluster(18), "plan", "--detailed-exitcode") == 0
    assert "  Migration  in 12 s by Evict: to node-b\n" in capsys.readouterr().out


def test_plan_announces_a_move_that_is_due(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, cluster(30), "plan", "--detailed-exitcode") == 2
    out = capsys.readouterr().out
    assert "  Migration  now by Evict: to node-b\n" in out
    assert out.endswith("\n1 to migrate\n")
    assert command(tmp_path, cluster(30), "plan", "-o", "patch") == 0
    assert "/api/v1/namespaces/sim/pods/bridge-0/eviction" in capsys.readouterr().out


def test_without_the_role_plan_says_so_and_nothing_would_be_evicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(tmp_path, cluster(30, capabilities=frozenset()), "plan")
    out = capsys.readouterr().out
    assert "  MigrationNotPermitted: rbac/migrate" in out
    assert "1 held" in out
    command(tmp_path, cluster(30, capabilities=frozenset()), "explain", "sim/bridge-0")
    assert "FAILS  permission: MigrationNotPermitted: rbac/migrate" in capsys.readouterr().out


def test_the_server_is_asked_about_a_move(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = Outcome(OutcomeKind.BLOCKED, "The disruption budget sim needs 1 healthy pods", "DisruptionBudget")
    there = cluster(30, outcome=blocked)
    assert command(tmp_path, there, "plan", "--server-dry-run") == 0
    assert "Server     Blocked (DisruptionBudget): The disruption budget sim needs" in capsys.readouterr().out
    assert [move.pod for move in there.moved] == [POD.ref]
    assert there.performed == []


def test_a_policy_that_recommends_shows_the_move_and_asks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_policy(tmp_path, mode="Recommend\n  fallback: {action: Migrate}")
    there = cluster(30)
    assert (
        cli.main(["plan", "--server-dry-run", f"--policies={tmp_path}"], FakeWiring(cluster=there, metrics=BUSY)) == 0
    )
    out = capsys.readouterr().out
    assert "  Migration  now by Evict: to node-b\n" in out
    assert out.endswith("\n1 proposed only\n")
    assert (there.moved, there.performed) == ([], [])
