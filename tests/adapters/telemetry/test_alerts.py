"""The alert rules and the table of metrics in docs/operations.md name what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry, generate_latest

from autoscaler.adapters.telemetry.journal import MetricsJournal
from autoscaler.adapters.telemetry.migrations import MOVES, Migrations
from autoscaler.adapters.telemetry.unfinished import UnfinishedResizes
from autoscaler.core.actions import OutcomeKind
from autoscaler.core.reasons import Reason

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
VALUES = {
    "reason": set(map(str, Reason)),
    "outcome": set(map(str, OutcomeKind)),
    "kind": set(MOVES),
    "state": {"replacing", "unscheduled", "not_ready"},
}


def rules() -> list[dict[str, Any]]:
    (block,) = re.findall(r"^```yaml\n(groups:.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (group,) = yaml.safe_load(block)["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_every_metric_that_the_page_names_exists() -> None:
    registry = CollectorRegistry()
    MetricsJournal(registry)
    registry.register(UnfinishedResizes())
    registry.register(Migrations())
    text = generate_latest(registry).decode()
    for name in set(re.findall(r"bridge_autoscaler_\w+", PAGE)):
        kind = "counter" if name.endswith("_total") else "gauge"
        assert f"# TYPE {name} {kind}\n" in text, name


def test_every_label_value_of_a_rule_can_occur() -> None:
    matchers = [found for rule in rules() for found in re.findall(r'(\w+)!?=~?"([^"]+)"', rule["expr"])]
    assert {label for label, _ in matchers} == {"reason", "state", "outcome"}
    for label, value in matchers:
        assert set(value.split("|")) <= VALUES[label]


def test_what_to_do_is_said_of_every_alert_about_migrations() -> None:
    names = [rule["alert"] for rule in rules() if re.search("moves|migrations|replacements|draining", rule["expr"])]
    said = PAGE.partition("What to do:")[2]
    assert names
    assert all(f"**{name}**" in said for name in names)
