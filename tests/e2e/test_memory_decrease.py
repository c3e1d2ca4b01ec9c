"""A memory limit that is to shrink, while the page cache fills what would be left."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from autoscaler.core.units import parse_memory
from tests.e2e.cli import Controller, plan
from tests.e2e.test_main_job import container, eventually, stateful_set
from tests.rig.rig import Rig
from tests.rig.usage import Usage

pytestmark = pytest.mark.rig

MIB = 1 << 20
POLICY = """\
apiVersion: bridge-autoscaler.dev/v1alpha1
kind: BridgePolicy
metadata: {{name: cache}}
spec:
  selector: {{namespaces: [{namespace}]}}
  mode: Resize
  recommender:
    name: percentile
    parameters: {{memory: {{target: p90, margin: 30%, halfLife: 10s}}, minHistory: 20s}}
  metrics: {{lookback: 2m, step: 5s, rateWindow: 10s}}
  stability: {{cooldown: {{increase: 1s, decrease: 1s}}, maxStep: {{increase: 400%, decrease: 90%}}}}
  containers: [{{name: "*", controlledResources: [memory]}}]
"""


def test_page_cache_holds_a_decrease_until_it_is_gone(rig: Rig, tmp_path: Path) -> None:
    namespace = rig.namespace("cache")
    policies = tmp_path / "policy.yaml"
    policies.write_text(POLICY.format(namespace=namespace))
    rig.apply(yaml.safe_dump(stateful_set(namespace, "reader", [container("app", "100m", "512Mi")], [])))
    used = (namespace, "reader", "app")
    rig.agent.usage[used] = Usage(memory=100 * MIB, cache=300 * MIB)
    eventually("the plan names page cache", lambda: "PageCacheAboveTarget" in told(rig, policies))
    (item,) = plan(rig, policies)["items"]
    assert item["action"] == "None"
    assert item["prediction"]["outcome"] == "Error"
    assert item["detail"].endswith("in use 400Mi with page cache")

    with Controller(rig, policies, tmp_path / "run.log", "--interval=3s", "--metrics-address=127.0.0.1:0") as running:
        eventually("three turns", lambda: sum(line["event"] == "turn" for line in running.lines()) >= 3)
        before = rig.pod(namespace, "reader-0")
        assert before["metadata"]["generation"] == 1
        rig.agent.usage[used] = Usage(memory=100 * MIB)
        eventually("the limit is lowered", lambda: limit_in_force(rig, namespace) < 200 * MIB)

    after = rig.pod(namespace, "reader-0")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert limit_in_force(rig, namespace) >= 110 * MIB
    assert {line["outcome"] for line in running.lines() if line["event"] == "resize"} == {"Accepted"}


def told(rig: Rig, policies: Path) -> set[str]:
    return {item["reason"] for item in plan(rig, policies)["items"]}


def limit_in_force(rig: Rig, namespace: str) -> int:
    status = rig.pod(namespace, "reader-0")["status"]["containerStatuses"][0]
    return parse_memory(status["resources"]["limits"]["memory"])
