"""How `doctor` prints what it finds, and what it does where there is no cluster at all."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autoscaler import cli
from autoscaler.cli.findings import document, json_schema, line, render_json, summary
from autoscaler.diagnosis.findings import Check, Finding, Status, failed, skipped
from tests.cli.conftest import write_policy
from tests.e2e.cli import environment

Out = pytest.CaptureFixture[str]

FOUND = (
    Finding(Check.CREDENTIALS, Status.OK, "kubeconfig /home/me/.kube/config"),
    Finding(
        Check.PERMISSIONS,
        Status.ERROR,
        "me may not patch pods/resize: nothing is sized",
        "kubectl apply -k rbac/base",
        "rbac/base",
    ),
    failed(
        Check.PROMETHEUS,
        "http://prometheus.monitoring.svc:9090 answered with an HTML page (HTTP 200): not Prometheus, or a login page; "
        "check --prometheus-url",
    ),
    skipped(Check.METRICS, "the check prometheus did not succeed"),
    Finding(Check.CGROUPS, Status.UNKNOWN, "not known of node-a: Prometheus has no kubelet_cgroup_version of it"),
    Finding(Check.NODES, Status.NOTE, "declared features on resizing: InPlacePodX (1 of 7)"),
    Finding(Check.PODS, Status.WARNING, "selects no pod\x1b[2J\nat all", "compare its selector", "sim"),
)

TEXT = """\
ok       credentials  kubeconfig /home/me/.kube/config
ERROR    permissions  rbac/base: me may not patch pods/resize: nothing is sized
                      → kubectl apply -k rbac/base
ERROR    prometheus   http://prometheus.monitoring.svc:9090 answered with an
                      HTML page (HTTP 200): not Prometheus, or a login page
                      → check --prometheus-url
skipped  metrics      because the check prometheus did not succeed
unknown  cgroups      not known of node-a: Prometheus has no
                      kubelet_cgroup_version of it
note     nodes        declared features on resizing: InPlacePodX (1 of 7)
warning  pods         sim: selects no pod\N{REPLACEMENT CHARACTER}[2J at all
                      → compare its selector
"""


def test_the_text_at_80_columns() -> None:
    text = "".join(f"{line(finding)}\n" for finding in FOUND)
    assert text == TEXT
    assert max(map(len, text.splitlines())) <= 80
    assert summary(FOUND) == "1 ok, 1 note, 1 unknown, 1 skipped, 1 warning, 2 errors"


def test_flags_are_not_broken_in_two() -> None:
    text = line(Finding(Check.PODS, Status.ERROR, "x " * 26 + "--prometheus-url"))
    assert "--prometheus-url" in text


@pytest.mark.parametrize("width", [1, 60, 200])
def test_other_widths(width: int) -> None:
    for finding in FOUND:
        assert max(map(len, line(finding, width=width).splitlines())) <= max(width, 42)


def test_the_word_alone_is_coloured() -> None:
    assert line(FOUND[0], color=True) == "\x1b[32mok\x1b[0m       credentials  kubeconfig /home/me/.kube/config"
    assert line(FOUND[1], color=True).startswith("\x1b[31mERROR\x1b[0m    permissions")
    assert "\x1b" not in line(FOUND[5], color=True)


def test_the_document_is_what_its_schema_says() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    found = json.loads(render_json(document(FOUND, datetime(2026, 11, 29, 12, tzinfo=UTC), interrupted=False)))
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(found)
    assert (found["kind"], found["schemaVersion"]) == ("Doctor", "bridge-autoscaler.dev/doctor/v1")
    assert (found["takenAt"], found["interrupted"]) == ("2026-11-29T12:00:00Z", False)
    assert found["findings"][1] == {
        "check": "permissions",
        "subject": "rbac/base",
        "status": "Error",
        "detail": "me may not patch pods/resize: nothing is sized",
        "remedy": "kubectl apply -k rbac/base",
    }
    assert not validator.is_valid({**found, "kind": "Nurse"})
    assert not validator.is_valid({**found, "schemaVersion": "v0"})


def test_words_of_the_schema_stay() -> None:
    """What scripts look for. More may come."""
    definitions = json_schema()["$defs"]
    assert {"Ok", "Note", "Unknown", "Skipped", "Warning", "Error"} <= set(definitions["Status"]["enum"])
    checks = "credentials api-server policies permissions pods resize nodes prometheus clocks labels clusters scrapes "
    checks += "metrics signals sessions cgroups"
    assert set(checks.split()) <= set(definitions["Check"]["enum"])


def examined(capsys: Out, *arguments: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    status = cli.main(["doctor", "-o", "json", *arguments])
    out = capsys.readouterr()
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(out.out)["findings"]:
        found.setdefault(finding["check"], []).append(finding)
    return status, found


def test_without_anything_each_check_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    status, found = examined(capsys)
    assert status == 1
    assert {check: one["status"] for check, (one, *_) in found.items()} == {
        **{check.value: "Skipped" for check in Check},
        "credentials": "Error",
        "policies": "Error",
        "prometheus": "Error",
    }
    assert found["credentials"][0]["remedy"] == "pass --kubeconfig FILE"
    assert found["policies"][0]["remedy"] == "name a file or a folder"
    assert found["prometheus"][0]["remedy"] == "write it like http://prometheus:9090"
    for check, (one, *_) in found.items():
        assert one["status"] != "Skipped" or one["detail"].startswith("the check "), check


def test_every_fault_of_policies_is_named(tmp_path: Path, capsys: Out) -> None:
    first, second = write_policy(tmp_path, "one"), write_policy(tmp_path, "two")
    first.write_text(first.read_text() + "  colour: red\n")
    second.write_text("kind: [")
    _, found = examined(capsys, f"--policies={tmp_path}", "--kubeconfig=/nowhere")
    faults = [one["detail"] for one in found["policies"]]
    assert len(faults) == 2
    assert any(f"{first}:8: spec.colour" in fault for fault in faults), faults
    assert any(f"{second}:1" in fault for fault in faults)


def test_what_in_a_policy_has_no_effect_is_a_warning(tmp_path: Path, capsys: Out) -> None:
    path = write_policy(tmp_path, "one")
    path.write_text(path.read_text() + "  fallback: {minPodAge: 1h}\n")
    _, found = examined(capsys, f"--policies={tmp_path}", "--kubeconfig=/nowhere")
    assert [one["status"] for one in found["policies"]] == ["Ok", "Warning"]
    assert "spec.fallback.minPodAge: has no effect" in found["policies"][1]["detail"]


def test_bad_settings_are_refused_as_everywhere(capsys: Out) -> None:
    assert cli.main(["doctor", "--prometheus-url", "nonsense"]) == 1
    out = capsys.readouterr()
    assert out.out == ""
    assert "--prometheus-url" in out.err


def test_help_says_which_exit_status_means_what(capsys: Out) -> None:
    assert cli.main(["doctor", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Examples: bridge-autoscaler doctor " in text
    assert "Warnings (it works, but for less than it could) count only with --strict" in text


def test_the_schema_needs_nothing_else(capsys: Out) -> None:
    assert cli.main(["doctor", "--schema"]) == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)], ids=["plain", "NO_COLOR"])
def test_colours_on_a_terminal_unless_told_otherwise(variables: dict[str, str], coloured: bool) -> None:
    ours, theirs = pty.openpty()
    more = {name: value for name, value in environment().items() if name != "NO_COLOR"}
    try:
        command = [sys.executable, "-m", "autoscaler", "doctor", "--kubeconfig=/nowhere"]
        with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env={**more, **variables}) as running:
            running.wait(60)
        os.close(theirs)
        text = os.read(ours, 1 << 16)
    finally:
        os.close(ours)
    assert (b"\x1b[31mERROR" in text) is coloured
    assert (b"\x1b" in text) is coloured


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig of a server that accepts connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        path = tmp_path / "silent.kubeconfig"
        path.write_text(
            "current-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\n"
            f"clusters: [{{name: x, cluster: {{server: 'http://127.0.0.1:{server.getsockname()[1]}'}}}}]\n"
        )
        yield path


@pytest.mark.parametrize("output", ["text", "json"])
def test_an_interrupt_prints_what_was_found(silent: Path, output: str) -> None:
    command = [sys.executable, "-m", "autoscaler", "doctor", f"--kubeconfig={silent}", "-o", output]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(), **pipes) as running:  # type: ignore[call-overload]
        assert running.stderr is not None
        assert running.stderr.readline() == "waiting for api-server, 10 s at most …\n"
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=10)
    assert running.returncode == 130
    assert "Traceback" not in err
    if output == "text":
        assert out.startswith("ok       credentials  kubeconfig")
        assert "skipped  api-server   because it was interrupted\n" in out
        return
    found = json.loads(out)
    jsonschema.Draft202012Validator(json_schema()).validate(found)
    assert found["interrupted"]
    assert [one["check"] for one in found["findings"]] == list(Check)
    assert {one["detail"] for one in found["findings"][1:]} == {"it was interrupted"}


@pytest.mark.slow
def test_a_server_that_never_answers_is_given_up(silent: Path, capsys: Out) -> None:
    began_at = time.monotonic()
    status, found = examined(capsys, f"--kubeconfig={silent}")
    assert status == 1
    assert time.monotonic() - began_at < 12
    assert "did not answer within 8 s" in found["api-server"][0]["detail"]
    assert found["permissions"][0]["status"] == "Skipped"
