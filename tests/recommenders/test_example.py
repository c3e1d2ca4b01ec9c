"""The plug-in of docs/recommenders.md: as long as promised, installed by pip, found and used."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTED = (ROOT / "docs" / "recommenders.md").read_text().partition("# Writing a recommender")[2]

USE = """
import json, sys
from datetime import UTC, datetime
from pathlib import Path
from autoscaler.core.model import Resources
from autoscaler.core.recommender import Samples, Situation
from autoscaler.plugins import discover
from autoscaler.policystore import read_policies
catalog = discover()
(policy,) = read_policies([Path(sys.argv[1])], catalog).policies
now = datetime(2026, 1, 1, tzinfo=UTC)
end = int(now.timestamp())
past = Samples.of([end - 10800, end - 600, end - 300], [9.0, 1.0, 2.0], [9e9, float("nan"), 1e9])
chosen = policy.recommender
state = chosen.fold(chosen.start(), past, 300)
opened = Samples.of([end], [0.5], [1e8])
target = chosen.recommend(state, Situation(now, opened, opened, Resources(), 60, 300))
print(json.dumps({"broken": dict(catalog.broken), "cpu": target.cpu, "memory": target.memory}))
"""


def block(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENTED, re.DOTALL | re.MULTILINE)
    return str(found[-1])  # the example comes last


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the documented package installed in it."""
    source = tmp_path_factory.mktemp("source")
    (source / "pyproject.toml").write_text(block("toml"))
    (source / "bridge_peak.py").write_text(block("python"))
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(folder), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{ROOT}"}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)


def test_it_takes_no_more_than_forty_lines() -> None:
    assert len((block("toml") + block("python")).splitlines()) <= 40


def test_it_is_found_by_its_entry_point_and_used(installed: Path, tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "apiVersion: bridge-autoscaler.dev/v1alpha1\nkind: BridgePolicy\nmetadata: {name: a}\n"
        f"spec:\n  selector: {{namespaces: [sim]}}\n  {block('yaml')}"
    )
    done = run(installed, "-c", USE, str(policy))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"broken": {}, "cpu": pytest.approx(2.4), "memory": pytest.approx(1.2e9)}


def test_its_parameters_are_checked_like_any_other(installed: Path, tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "apiVersion: bridge-autoscaler.dev/v1alpha1\nkind: BridgePolicy\nmetadata: {name: a}\n"
        "spec:\n  selector: {namespaces: [sim]}\n  recommender: {name: peak, parameters: {windows: 2h}}\n"
    )
    done = run(installed, "-c", USE, str(policy))
    assert "p.yaml:6: spec.recommender.parameters.windows: unknown key (did you mean window?)" in done.stderr
