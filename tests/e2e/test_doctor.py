"""`doctor` against a real API server and a real Prometheus, as each of the rig's users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autoscaler.cli.findings import json_schema
from tests.e2e.cli import command, run
from tests.rig.rig import Rig, eventually

Findings = list[dict[str, Any]]

POLICY = """\
apiVersion: bridge-autoscaler.dev/v1alpha1
kind: BridgePolicy
metadata: {{name: {name}}}
spec:
  selector: {{namespaces: [{namespace}]}}
  mode: Resize
"""
WORKLOAD = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: sim, namespace: {namespace}}}
spec:
  serviceName: sim
  replicas: 2
  selector: {{matchLabels: {{app: sim}}}}
  template:
    metadata: {{labels: {{app: sim}}}}
    spec:
      containers:
      - name: app
        image: sim
        resources: {{requests: {{cpu: 100m, memory: 64Mi}}, limits: {{cpu: 200m, memory: 128Mi}}}}
"""


@pytest.fixture(scope="module")
def namespace(rig: Rig) -> Iterator[str]:
    name = rig.namespace("doctor")
    rig.apply(WORKLOAD.format(namespace=name))
    eventually("both run", lambda: all(_runs(rig, name, f"sim-{n}") for n in range(2)))
    eventually("they are scraped", lambda: _scraped(rig, name), 30)
    yield name
    rig.kubectl("delete", "namespace", name, "--wait=false")


def _runs(rig: Rig, namespace: str, name: str) -> bool:
    found = rig.kubectl("get", "pod", "-n", namespace, "-o", "name", "--field-selector=status.phase=Running")
    return f"pod/{name}" in found.split()


def _scraped(rig: Rig, namespace: str) -> bool:
    return (
        len(
            rig.prometheus.query(
                f'rate(container_cpu_usage_seconds_total{{namespace="{namespace}",container!=""}}[10s])'
            )
        )
        == 2
    )


@pytest.fixture
def policies(namespace: str, tmp_path: Path) -> Path:
    path = tmp_path / "policies"
    path.mkdir()
    (path / "sim.yaml").write_text(POLICY.format(name="sim", namespace=namespace))
    return path


def doctor(rig: Rig, policies: Path, *arguments: str, status: int = 0, prometheus_url: str | None = None) -> Findings:
    line = command(rig, "doctor", f"--policies={policies}", "-o", "json", *arguments, prometheus_url=prometheus_url)
    done = run(*line)
    assert done.returncode == status, done.stdout + done.stderr
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(json_schema()).validate(document)
    assert not document["interrupted"]
    found: Findings = document["findings"]
    return found


def statuses(findings: Findings, check: str) -> dict[str, str]:
    return {finding["subject"]: finding["status"] for finding in findings if finding["check"] == check}


def of(findings: Findings, check: str, status: str) -> Findings:
    return [finding for finding in findings if finding["check"] == check and finding["status"] == status]


def test_all_is_well_and_nothing_is_written(rig: Rig, policies: Path, namespace: str) -> None:
    before = rig.pod(namespace, "sim-0")
    seen = len(rig.audit())
    found = doctor(rig, policies, "--strict")
    assert {finding["status"] for finding in found} <= {"Ok", "Note", "Unknown"}
    assert of(found, "resize", "Ok")[0]["detail"] == f"dry run of {namespace}/sim-0's present size: accepted"
    assert rig.pod(namespace, "sim-0") == before
    writes = [
        record["requestURI"]
        for record in rig.audit()[seen:]
        if record["user"]["username"].endswith(":bridge-autoscaler")
        and record["verb"] not in ("get", "list", "watch")
        and "/selfsubject" not in record["requestURI"]
    ]
    assert writes
    assert all("dryRun=All" in uri for uri in writes)


def test_a_user_without_roles_is_told_which_to_apply(rig: Rig, policies: Path) -> None:
    found = doctor(rig, policies, f"--kubeconfig={rig.nobody_kubeconfig}", status=1)
    assert statuses(found, "permissions") == {
        "rbac/base": "Error",
        "rbac/leader": "Error",
        "rbac/events": "Warning",
        "rbac/autoscalers": "Warning",
        "rbac/migrate": "Note",
        "rbac/surge": "Note",
    }
    for finding in found:
        if finding["check"] == "permissions":
            assert f"kubectl apply -k {finding['subject']}" in finding["remedy"]
    assert statuses(found, "api-server") == {"": "Ok"}
    (base,) = of(found, "permissions", "Error")[:1]
    assert base["detail"].startswith("nobody may not get, list and watch pods; list and watch nodes, deployments,")
    assert of(found, "pods", "Error")
    assert of(found, "resize", "Skipped")[0]["detail"] == "the check pods did not succeed"


def test_policies_that_ask_for_moves_need_the_roles_for_them(rig: Rig, policies: Path) -> None:
    path = policies / "sim.yaml"
    path.write_text(path.read_text().replace("mode: Resize", "mode: ResizeOrMigrate\n  fallback: {action: Migrate}"))
    found = doctor(rig, policies, f"--kubeconfig={rig.nobody_kubeconfig}", status=1)
    assert statuses(found, "permissions")["rbac/migrate"] == "Error"
    assert statuses(found, "permissions")["rbac/surge"] == "Note"


def test_an_api_server_that_is_not_there_skips_what_needs_it(rig: Rig, policies: Path, tmp_path: Path) -> None:
    path = tmp_path / "nowhere.kubeconfig"
    path.write_text(rig.kubeconfig.read_text().replace(rig.control_plane.url, "https://127.0.0.1:1"))
    found = doctor(rig, policies, f"--kubeconfig={path}", status=1)
    assert statuses(found, "credentials") == {"": "Ok"}
    assert of(found, "api-server", "Error")[0]["detail"].endswith(
        "https://127.0.0.1:1 cannot be reached (Connection refused)"
    )
    assert "check the server in kubeconfig" in of(found, "api-server", "Error")[0]["remedy"]
    assert statuses(found, "policies") == {"": "Ok"}
    for check in ("permissions", "pods", "resize", "nodes"):
        assert of(found, check, "Skipped")[0]["detail"] == "the check api-server did not succeed"


def test_a_kubeconfig_that_is_none(rig: Rig, policies: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("clusters: [")
    found = doctor(rig, policies, f"--kubeconfig={tmp_path / 'broken'}", status=1)
    assert of(found, "credentials", "Error")
    assert of(found, "api-server", "Skipped")
    assert statuses(found, "policies") == {"": "Ok"}


def test_policies_two_of_which_select_the_same_pods(rig: Rig, policies: Path, namespace: str) -> None:
    (policies / "more.yaml").write_text(POLICY.format(name="more", namespace=namespace))
    found = doctor(rig, policies, status=1)
    (twice,) = of(found, "pods", "Error")
    assert twice["detail"].startswith("2 pods left alone, as two policies select them: ")
    assert f"{namespace}/sim-0 (more and sim)" in twice["detail"]
    assert of(found, "resize", "Skipped")


def test_a_policy_that_selects_nothing_is_a_warning(rig: Rig, policies: Path) -> None:
    (policies / "other.yaml").write_text(POLICY.format(name="other", namespace="nowhere"))
    found = doctor(rig, policies)
    assert statuses(found, "pods") == {"other": "Warning", "sim": "Ok"}
    doctor(rig, policies, "--strict", status=1)


def test_every_fault_of_a_policy_is_a_finding(rig: Rig, policies: Path) -> None:
    path = policies / "sim.yaml"
    path.write_text(path.read_text() + "  colour: red\n  metrics: {step: 7s}\n")
    found = doctor(rig, policies, status=1)
    faults = [finding["detail"] + finding["remedy"] for finding in of(found, "policies", "Error")]
    assert any("sim.yaml:7: spec.colour: unknown key" in fault for fault in faults), faults
    assert of(found, "permissions", "Ok")
    assert of(found, "pods", "Skipped")[0]["detail"] == "the check policies did not succeed"
