"""Log lines and metrics of turns."""

from __future__ import annotations

import io
import json
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry

from autoscaler.adapters.telemetry import logs
from autoscaler.adapters.telemetry.journal import Journals, LogJournal, MetricsJournal
from autoscaler.core.actions import Outcome, OutcomeKind
from autoscaler.core.model import Problem
from autoscaler.core.reasons import Reason
from autoscaler.ports import Done, Turn, Wake, WakeKind
from tests.cli.plans import PLAN, POD, RESIZED, TAKEN_AT

TICK = Wake(WakeKind.TICK)
CHANGED = Wake(WakeKind.CHANGED, frozenset({POD.ref}))
SECOND = timedelta(seconds=1)
DONE = Done(RESIZED, Outcome(OutcomeKind.ACCEPTED), timedelta(seconds=0.25))
TURN = Turn(7, TICK, SECOND, PLAN, (DONE,))


class Log:
    """Lines that were logged."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def log() -> Iterator[Log]:
    root = logging.getLogger()
    kept = root.handlers[:], root.level
    log = Log()
    logs.configure("json", log.stream)
    yield log
    root.handlers[:] = kept[0]
    root.setLevel(kept[1])
    structlog.reset_defaults()


def test_a_turn_is_one_line_and_an_action_another(log: Log) -> None:
    LogJournal(logs.logger()).record(replace(TURN, plan=replace(PLAN, problems=())))
    resize, turn = log.lines()
    assert (turn["event"], turn["turn"], turn["wake"], turn["took_s"]) == ("turn", 7, "tick", 1.0)
    assert turn["measurement_age_s"] is None
    assert turn["sentence"] == "1 of 4 pods resized; 1 AtTarget, 1 NoData, 1 RecommendOnly"
    assert turn["reasons"] == {"AtTarget": 1, "Increase": 1, "NoData": 1, "RecommendOnly": 1}
    assert (resize["event"], resize["namespace"], resize["pod"]) == ("resize", "sim", "bridge-0")
    assert (resize["outcome"], resize["reason"], resize["level"]) == ("Accepted", "Increase", "info")
    assert resize["changes"] == {"bridge": {"requests.cpu": "1500m", "limits.cpu": "3"}}
    assert "cpu: p95 of 3.2d of samples = 1300m" in resize["because"]["bridge"]


def test_a_turn_tells_how_old_the_measurement_was_that_it_stands_on(log: Log) -> None:
    LogJournal(logs.logger()).record(replace(TURN, plan=replace(PLAN, measured_at=TAKEN_AT - 7 * SECOND)))
    assert log.lines()[-1]["measurement_age_s"] == 7.0


def test_an_action_that_fails_is_a_warning_with_the_answer(log: Log) -> None:
    refused = replace(DONE, outcome=Outcome(OutcomeKind.REFUSED, "exceeded quota", "ResourceQuota"))
    LogJournal(logs.logger()).record(replace(TURN, done=(refused,)))
    line = log.lines()[0]
    assert (line["level"], line["answer"], line["cause"]) == ("warning", "exceeded quota", "ResourceQuota")
    assert log.lines()[-1]["sentence"].startswith("0 of 4 pods resized; 1 Refused")


def test_a_turn_that_could_not_observe_says_why(log: Log) -> None:
    LogJournal(logs.logger()).record(Turn(1, TICK, SECOND, unavailable="the watch is down"))
    (line,) = log.lines()
    assert (line["level"], line["sentence"]) == ("warning", "nothing is done: the watch is down")


def test_a_problem_is_told_when_it_appears_and_when_it_comes_back(log: Log) -> None:
    journal = LogJournal(logs.logger())
    other = Problem("prometheus", Reason.METRICS_UNAVAILABLE, "down")

    def told(turn: Turn) -> list[str]:
        before = len(log.lines())
        journal.record(turn)
        return [line["reason"] for line in log.lines()[before:] if line["event"] == "problem"]

    both = replace(TURN, plan=replace(PLAN, problems=(*PLAN.problems, other)))
    assert told(TURN) == ["NothingSelected"]
    assert told(TURN) == []
    assert told(both) == ["MetricsUnavailable"]
    assert told(replace(TURN, wake=CHANGED, plan=replace(PLAN, problems=()))) == []
    assert told(both) == []
    assert told(TURN) == []
    assert told(both) == ["MetricsUnavailable"]


def test_lines_of_libraries_take_the_same_form(log: Log) -> None:
    logging.getLogger("aiohttp").warning("slow %s", "answer")
    logging.getLogger("aiohttp").info("chatter")
    (line,) = log.lines()
    assert (line["event"], line["logger"], line["level"]) == ("slow answer", "aiohttp", "warning")


def test_console_lines_are_for_people() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    kept = root.handlers[:], root.level
    logs.configure("console", stream)
    try:
        logs.logger().info("turn", pods=3)
    finally:
        root.handlers[:] = kept[0]
        root.setLevel(kept[1])
        structlog.reset_defaults()
    assert "turn" in stream.getvalue()
    assert "pods=3" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    found = registry.get_sample_value(f"bridge_autoscaler_{name}", labels)
    assert found is not None, name
    return found


def test_series_of_closed_sets_start_at_zero_and_ages_as_unknown() -> None:
    registry = CollectorRegistry()
    MetricsJournal(registry)
    assert {value(registry, "decisions_total", reason=reason.value) for reason in Reason} == {0}
    assert {value(registry, "actions_total", outcome=kind.value) for kind in OutcomeKind} == {0}
    assert value(registry, "turns_total", wake="tick") == 0
    assert math.isnan(value(registry, "measurement_age_seconds"))


def test_turns_are_counted() -> None:
    registry = CollectorRegistry()
    journal = Journals(MetricsJournal(registry))
    journal.record(replace(TURN, plan=replace(PLAN, measured_at=TAKEN_AT - timedelta(seconds=42))))
    journal.record(replace(TURN, wake=CHANGED))
    journal.record(Turn(3, TICK, SECOND, unavailable="down"))
    assert value(registry, "turns_total", wake="tick") == 2
    assert value(registry, "turns_unavailable_total") == 1
    assert value(registry, "turn_duration_seconds_count") == 3
    assert value(registry, "decisions_total", reason="NoData") == 2
    assert value(registry, "actions_total", outcome="Accepted") == 2
    assert value(registry, "action_duration_seconds_sum") == 0.5
    assert value(registry, "measurement_age_seconds") == 42
    assert value(registry, "pods", policy="sim-bridges") == 4
    assert value(registry, "problems") == 0  # a note is none


def test_a_policy_that_is_gone_has_no_pods_any_more() -> None:
    registry = CollectorRegistry()
    journal = MetricsJournal(registry)
    journal.record(TURN)
    journal.record(replace(TURN, wake=CHANGED, plan=replace(PLAN, decisions=())))
    assert value(registry, "pods", policy="sim-bridges") == 4
    journal.record(replace(TURN, plan=replace(PLAN, decisions=())))
    assert registry.get_sample_value("bridge_autoscaler_pods", {"policy": "sim-bridges"}) is None


@pytest.mark.parametrize("leading", [True, False])
def test_the_gauge_says_whether_this_replica_acts(leading: bool) -> None:
    registry = CollectorRegistry()
    MetricsJournal(registry, lambda: leading)
    assert registry.get_sample_value("bridge_autoscaler_leader") == leading
