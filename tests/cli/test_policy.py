"""`policy validate` and `policy schema`: exit status, and what goes to stdout and stderr."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autoscaler.cli.policy import policy

GOOD = """apiVersion: bridge-autoscaler.dev/v1alpha1
kind: BridgePolicy
metadata: {name: bridges}
spec:
  selector: {namespaces: [sim]}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(policy, arguments)


def test_valid_files_are_named_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD + "  metrics: {rateWindow: 2m}\n")
    result = run("validate", str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, "")
    warning, valid = result.stderr.splitlines()
    assert warning.startswith(f"warning: {tmp_path}/a.yaml:6: spec.metrics.rateWindow: 2m is shorter than")
    assert valid == f"{tmp_path}/a.yaml: valid: bridges (Recommend)"


def test_every_fault_is_a_line_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD + "  mode: resize\n")
    (tmp_path / "b.yaml").write_text("kind: Pod\n")
    result = run("validate", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [
        f"error: {tmp_path}/a.yaml:6: spec.mode: 'resize' is not allowed (did you mean Resize?); "
        "allowed: Off, Recommend, Resize, ResizeOrMigrate",
        f"error: {tmp_path}/b.yaml:1: kind: found 'Pod'; expected BridgePolicy",
    ]


def test_a_folder_without_policies(tmp_path: Path) -> None:
    result = run("validate", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr == f"error: {tmp_path}: this folder has no *.yaml or *.yml file; put a BridgePolicy there\n"


def test_the_list_of_commands_says_what_each_does_in_full() -> None:
    commands = run("--help").stdout.partition("Commands:")[2]
    assert "schema    Print the JSON Schema of a policy." in commands
    assert "..." not in commands


def test_schema_prints_the_document_alone() -> None:
    result = run("schema")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_what_a_plugin_prints_is_not_part_of_the_document(tmp_path: Path) -> None:
    """A package of its own, found as pip would have left it."""
    info = tmp_path / "noisy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: noisy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bridge_autoscaler.recommenders]\nnoisy = noisy:Noisy\n")
    (tmp_path / "noisy.py").write_text("print('noise')\n")
    line = [sys.executable, "-m", "autoscaler", "policy", "schema"]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert "BridgePolicy" in json.dumps(json.loads(done.stdout))
    assert "noise\n" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_may_be_closed(closed: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    line = f"{shlex.quote(sys.executable)} -m autoscaler policy validate {shlex.quote(str(tmp_path))} {closed}"
    assert subprocess.run(["sh", "-c", line]).returncode == 0
