"""Migrations as log lines and as /metrics shows them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry, generate_latest

from autoscaler.adapters.telemetry import logs
from autoscaler.adapters.telemetry.journal import LogJournal, MetricsJournal, summary
from autoscaler.adapters.telemetry.migrations import MOVES, Migrations
from autoscaler.core.actions import Outcome, OutcomeKind, ScaleKind
from autoscaler.core.model import PodRef
from autoscaler.core.plan import Decision, Plan
from autoscaler.core.reasons import Reason
from autoscaler.ports import Done, Turn, Wake, WakeKind
from tests.cli.plans import (
    DEFERRED,
    HELD,
    MIGRATING,
    OVERDUE,
    RESIZED,
    SETTLED,
    SOON,
    STUCK,
    TAKEN_AT,
    YOUNG,
    drain,
    surge,
)

TICK = Wake(WakeKind.TICK)
ACCEPTED = Outcome(OutcomeKind.ACCEPTED)
BLOCKED = Outcome(
    OutcomeKind.BLOCKED, "Cannot evict pod as it would violate the pod's disruption budget.", "DisruptionBudget"
)


def done(decision: Decision, outcome: Outcome = ACCEPTED) -> Done:
    return Done(decision, outcome, timedelta(seconds=0.25), move=decision.move is not None)


def turn(*decisions: Decision, acted: tuple[Done, ...] = (), wake: Wake = TICK) -> Turn:
    return Turn(7, wake, timedelta(seconds=1), Plan(TAKEN_AT, decisions), acted)


def named(decision: Decision, name: str) -> Decision:
    return replace(decision, pod=replace(decision.pod, name=name, uid=f"uid-{name}"))


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    kept = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure("json", stream)
    yield stream
    root.handlers[:] = kept[0]
    root.setLevel(kept[1])
    structlog.reset_defaults()


def logged(stream: io.StringIO, one: Turn) -> list[dict[str, Any]]:
    LogJournal(logs.logger()).record(one)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_move_is_a_line_with_what_proved_it(stream: io.StringIO) -> None:
    line, last = logged(stream, turn(MIGRATING, acted=(done(MIGRATING),)))
    assert {key: line[key] for key in line if key not in ("timestamp", "detail")} == {
        "event": "migrate",
        "level": "info",
        "namespace": "sim",
        "pod": "bridge-0",
        "uid": "11111111-aaaa",
        "node": "node-a",
        "policy": "sim-bridges",
        "move": "Evict",
        "replicas": None,
        "landing": ["node-b", "node-c"],
        "checks": {
            "mode": "ok: ResizeOrMigrate, strategy Evict",
            "landing": "ok: 2 of 4 nodes have room for 1500m cpu, 4Gi memory",
        },
        "outcome": "Accepted",
        "answer": "",
        "cause": "",
        "reason": "Migrate",
        "took_s": 0.25,
    }
    assert last["sentence"] == "0 of 1 pods resized, 1 migrated"


def test_a_scaled_deployment_is_a_line_with_its_replicas(stream: io.StringIO) -> None:
    line = logged(stream, turn(surge(), acted=(done(surge()),)))[0]
    assert (line["event"], line["move"], line["replicas"]) == ("migrate", "Surge", 2)
    assert line["landing"] == ["node-b", "node-c"]


def test_a_blocked_move_is_a_warning_with_the_answer(stream: io.StringIO) -> None:
    line, last = logged(stream, turn(MIGRATING, acted=(done(MIGRATING, BLOCKED),)))
    assert (line["level"], line["outcome"], line["cause"]) == ("warning", "Blocked", "DisruptionBudget")
    assert line["answer"] == BLOCKED.detail
    assert last["sentence"] == "0 of 1 pods resized; 1 Blocked"


def test_the_sentence_of_a_turn_tells_resizes_from_moves() -> None:
    back = surge(ScaleKind.BACK, 1)
    acted = (done(RESIZED), done(MIGRATING), done(MIGRATING), done(surge()), done(back))
    decisions = (RESIZED, MIGRATING, MIGRATING, surge(), back, STUCK)
    assert summary(turn(*decisions, acted=acted)) == (
        "1 of 6 pods resized, 2 migrated, 1 surged, 1 scaled back; 1 NoLandingNode"
    )
    assert summary(replace(turn(*decisions), leading=False)) == (
        "standing by, the leader is left to resize 1 of 6 pods and to move 4; 1 NoLandingNode"
    )


def shown(journal: Migrations) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(journal)
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {
        name.removeprefix("bridge_autoscaler_"): float(value) for name, value in (line.rsplit(" ", 1) for line in lines)
    }


def waiting(journal: Migrations) -> dict[str, float]:
    return {name: value for name, value in shown(journal).items() if name.startswith("migrations_waiting")}


def test_what_can_be_counted_is_there_from_the_start_at_zero() -> None:
    found = shown(Migrations())
    assert {f'moves_total{{kind="{move}",outcome="{kind}"}}' for move in MOVES for kind in OutcomeKind} <= found.keys()
    assert {f'replacements{{state="{state}"}}' for state in ("replacing", "unscheduled", "not_ready")} <= found.keys()
    assert found["draining_pods"] == 0
    assert set(found.values()) == {0.0}


def test_moves_are_counted_by_kind_and_outcome_and_not_among_resizes() -> None:
    journal, registry = Migrations(), CollectorRegistry()
    resizes = MetricsJournal(registry)
    acted = (done(RESIZED), done(MIGRATING), done(MIGRATING, BLOCKED), done(surge()), done(surge(ScaleKind.BACK, 1)))
    for one in (journal, resizes):
        one.record(turn(acted=acted))
        one.record(turn(acted=acted[:2]))
    found = shown(journal)
    assert {name: value for name, value in found.items() if value} == {
        'moves_total{kind="Evict",outcome="Accepted"}': 2,
        'moves_total{kind="Evict",outcome="Blocked"}': 1,
        'moves_total{kind="Surge",outcome="Accepted"}': 1,
        'moves_total{kind="SurgeBack",outcome="Accepted"}': 1,
    }
    assert registry.get_sample_value("bridge_autoscaler_actions_total", {"outcome": "Accepted"}) == 2
    assert registry.get_sample_value("bridge_autoscaler_actions_total", {"outcome": "Blocked"}) == 0


def test_a_pod_past_its_deadline_waits_for_the_first_thing_that_is_wanting() -> None:
    young = replace(STUCK, migration=replace(OVERDUE, checks=(YOUNG,)))
    asked = replace(STUCK, reason=Reason.EVICTION_BLOCKED, migration=replace(SOON, due_at=TAKEN_AT))
    journal = Migrations()
    journal.record(
        turn(
            named(STUCK, "a"), named(STUCK, "b"), named(young, "c"), named(asked, "d"), named(DEFERRED, "early"),
            named(MIGRATING, "moving"), named(HELD, "other"),
        )
    )  # fmt: skip
    assert waiting(journal) == {
        'migrations_waiting{reason="NoLandingNode"}': 2,
        'migrations_waiting{reason="PodTooYoung"}': 1,
        'migrations_waiting{reason="EvictionBlocked"}': 1,
    }


def test_replacements_are_counted_by_state() -> None:
    reasons = (Reason.REPLACING, Reason.REPLACING, Reason.REPLACEMENT_UNSCHEDULED, Reason.REPLACEMENT_NOT_READY)
    journal = Migrations()
    journal.record(turn(*(named(replace(HELD, reason=reason), f"pod-{n}") for n, reason in enumerate(reasons))))
    found = {name: value for name, value in shown(journal).items() if name.startswith("replacements")}
    assert found == {
        'replacements{state="replacing"}': 2,
        'replacements{state="unscheduled"}': 1,
        'replacements{state="not_ready"}': 1,
    }


def test_only_a_pod_that_should_take_no_new_sessions_is_draining() -> None:
    journal = Migrations()
    journal.record(turn(replace(DEFERRED, drain=drain(telling=False))))
    assert shown(journal)["draining_pods"] == 0
    journal.record(turn(replace(STUCK, drain=drain(telling=True))))
    assert shown(journal)["draining_pods"] == 1


def test_a_turn_about_some_pods_leaves_the_others_and_forgets_those_that_have_gone() -> None:
    def changed(*names: str) -> Wake:
        return Wake(WakeKind.CHANGED, frozenset(PodRef("sim", name) for name in names))

    journal = Migrations()
    journal.record(turn(named(STUCK, "a"), named(STUCK, "b"), named(STUCK, "c")))
    journal.record(turn(named(SETTLED, "a"), wake=changed("a", "b")))
    assert list(waiting(journal).values()) == [1]
    journal.record(Turn(8, TICK, timedelta(0), unavailable="the watch is down"))
    assert list(waiting(journal).values()) == [1]
    journal.record(turn(named(SETTLED, "a")))
    assert waiting(journal) == {}
