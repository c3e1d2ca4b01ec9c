"""The alert rules and the table of metrics in docs/operations.md name what there is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from autoscaler.adapters.prometheus.traffic import Traffic
from autoscaler.adapters.telemetry.journal import MetricsJournal
from autoscaler.adapters.telemetry.migrations import MOVES, Migrations
from autoscaler.adapters.telemetry.traffic import TrafficMetrics
from autoscaler.adapters.telemetry.unfinished import UnfinishedResizes
from autoscaler.core.actions import OutcomeKind
from autoscaler.core.reasons import Reason
from tests.rig.build import binary

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
    registry.register(TrafficMetrics(Traffic()))
    text = generate_latest(registry).decode()
    for name in set(re.findall(r"bridge_autoscaler_\w+", PAGE)):
        kind = "counter" if name.endswith("_total") else "gauge"
        assert f"# TYPE {name} {kind}\n" in text, name


def test_every_label_value_of_a_rule_can_occur() -> None:
    matchers = [found for rule in rules() for found in re.findall(r'(\w+)!?=~?"([^"]+)"', rule["expr"])]
    assert {label for label, _ in matchers} == {"reason", "state", "outcome"}
    for label, value in matchers:
        assert set(value.split("|")) <= VALUES[label]


@pytest.mark.rig
@pytest.mark.parametrize(
    ("alert", "series", "label"),
    [
        (
            "BridgeAutoscalerPrometheusFails",
            'bridge_autoscaler_prometheus_failures_total{kind="timeout"}',
            {"kind": "timeout"},
        ),
        (
            "BridgeAutoscalerNoUsage",
            'bridge_autoscaler_decisions_total{reason="StaleData"}',
            {"reason": "StaleData"},
        ),
    ],
)
def test_prm_13_three_turns_without_usage_make_an_alert_and_one_does_not(
    tmp_path: Path, alert: str, series: str, label: dict[str, str]
) -> None:
    """As Prometheus itself evaluates the rules: turns are a minute apart."""
    rule = next(rule for rule in rules() if rule["alert"] == alert)
    shown = {key: text.replace(f"{{{{ $labels.{next(iter(label))} }}}}", next(iter(label.values())))
             for key, text in rule["annotations"].items()}  # fmt: skip
    cases = [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": values}],
            "alert_rule_test": [
                {"eval_time": at, "alertname": alert, "exp_alerts": fires}
                for at, fires in (("12m", []), (last, [{"exp_labels": label, "exp_annotations": shown}] if bad else []))
            ],
        }
        for values, last, bad in (("0x10 1 2 3 4", "14m", True), ("0x10 1x10", "15m", False))
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]}))
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": cases}))
    done = subprocess.run(
        [binary("promtool"), "test", "rules", tmp_path / "test.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_to_do_is_said_of_every_alert_about_migrations_and_prometheus() -> None:
    about = "moves|migrations|replacements|draining|prometheus|NoData"
    names = [rule["alert"] for rule in rules() if re.search(about, rule["expr"])]
    said = PAGE.partition("What to do:")[2]
    assert names
    assert all(f"**{name}**" in said for name in names)
