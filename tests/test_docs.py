"""The documents say what is so: their commands run, their policies load, their links lead somewhere.

A ```console block holds commands (`$ …`) and, below each, what it prints; `...` stands for any lines. A block marked
```console rig needs a cluster and a Prometheus. A ```sh block is for reading: it changes a machine or a cluster.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic.alias_generators import to_camel

from autoscaler.cli.access import access_of
from autoscaler.core.bounds import amount_of, bound
from autoscaler.core.model import Resource, Resources
from autoscaler.core.policy import ContainerPolicy, Stability
from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import EMPTY, Samples, Situation, Target
from autoscaler.core.trail import sentence
from autoscaler.plugins import discover
from autoscaler.recommenders.percentile import Percentile, PercentileParameters
from autoscaler.settings import BudgetsSection, Settings, flag_of, load_settings, variable_of
from autoscaler.settings_prometheus import VARIABLES
from tests import operations_page, parameters_page, reasons_page
from tests.rig.rig import Rig

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block and where it begins."""

    document: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def _blocks(kind: str) -> list[Block]:
    found = []
    for document in DOCUMENTS:
        text = document.read_text()
        found += [Block(document, text.count("\n", 0, m.start()) + 1, *m.groups()) for m in _FENCE.finditer(text)]
    return [block for block in found if block.kind == kind]


def _policies() -> list[Block]:
    return [block for block in _blocks("yaml") if "kind: BridgePolicy" in block.text]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder to run commands in, with the policies that a clone has."""
    shutil.copytree(ROOT / "policies", tmp_path / "policies")
    return tmp_path


@pytest.mark.parametrize("block", _blocks("console"), ids=str)
def test_commands_run(block: Block, clone: Path) -> None:
    _run(block, clone, {})


@pytest.mark.rig
@pytest.mark.parametrize("block", _blocks("console rig"), ids=str)
def test_commands_run_against_a_cluster(block: Block, rig: Rig, clone: Path) -> None:
    where = {
        "BRIDGE_AUTOSCALER_KUBECONFIG": str(rig.kubeconfig),
        "BRIDGE_AUTOSCALER_PROMETHEUS_URL": rig.prometheus_url,
    }
    _run(block, clone, where)


def _run(block: Block, folder: Path, environment: dict[str, str]) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env={"PATH": path, "HOME": str(folder), "COLUMNS": "120", **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{block}: {command}\n{done.stderr}"
        if expected.strip():
            lines = [".*" if line.strip() == "..." else re.escape(line) for line in expected.rstrip().splitlines()]
            assert re.fullmatch("\n".join(lines), done.stdout.rstrip(), re.DOTALL), f"{block}: {command}\n{done.stdout}"


@pytest.mark.parametrize("block", _policies(), ids=str)
def test_policies_are_valid(block: Block, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(block.text)
    _run(block._replace(text="$ bridge-autoscaler policy validate policy.yaml\n"), tmp_path, {})


PROMETHEUS_DEFAULTS = {"timeout": "`20s`", "backfillSamples": "`100000000`", "service": "`aps`"}


def test_every_setting_is_documented_and_the_example_loads(tmp_path: Path) -> None:
    page, prometheus, budgets = re.split("^## .*$", (ROOT / "docs" / "settings.md").read_text(), flags=re.MULTILINE)
    rows = [line.split(" | ")[:4] for line in page.splitlines() if line.startswith("| `")]
    defaults = {"interval": "`60s`", "metricsAddress": "`127.0.0.1:8080`", "leaderElect": "`true`"}
    defaults["budgets"] = "[below](#budgets)"
    assert rows == [
        ["| `prometheus`", "–", "–", "[below](#prometheus)"]
        if key == "prometheus"
        else [f"| `{key}`", f"`{flag_of(field)}`", f"`{variable_of(field)}`", defaults.get(key, "none")]
        for field, key in ((field, to_camel(field)) for field in Settings.model_fields)
    ]
    assert [line.split(" | ")[:3] for line in prometheus.splitlines() if line.startswith("| `")] == [
        [f"| `{'.'.join(path)}`", f"`{variable}`", PROMETHEUS_DEFAULTS.get(path[-1], "none")]
        for path, variable in VARIABLES.items()
        if path[0] != "layout"  # whose table is in docs/metrics.md
    ]
    assert [line.split(" | ")[:2] for line in budgets.splitlines() if line.startswith("| `")] == [
        [f"| `{key}`", "none" if value is None else f"`{value}`"]
        for key, value in BudgetsSection().model_dump(by_alias=True).items()
    ]
    written = Settings(interval="60s", metrics_address="127.0.0.1:8080")
    assert written == Settings()
    examples = [block.text for block in _blocks("yaml") if "kind: BridgeConfig" in block.text]
    for text in examples:
        (tmp_path / "settings.yaml").write_text(text)
        loaded = load_settings(config=tmp_path / "settings.yaml")
        access_of(loaded.prometheus)
        assert loaded.policies == ((tmp_path / "policies",) if "policies:" in text else ())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    prose = _FENCE.sub("", document.read_text())
    for target in (match["target"] for match in _LINK.finditer(prose)):
        if not target.startswith(("https://", "http://", "#")):
            assert (document.parent / target.partition("#")[0]).exists(), f"{document.name}: {target}"


def test_every_reason_is_documented() -> None:
    assert reasons_page.PAGE.read_text() == reasons_page.page(), "run: python -m tests.reasons_page"


def test_whatever_keeps_a_pod_as_it_is_has_a_way_to_check_and_a_remedy() -> None:
    words = [word for section in reasons_page.SECTIONS for word in reasons_page.words_of(section)]
    assert sorted(words) == sorted([*Reason, *Trouble])
    acting = reasons_page.words_of(reasons_page.ACTING)
    assert [word for word in words if not word.remedy] == acting
    assert all(section.check for section in reasons_page.SECTIONS)


def test_every_parameter_of_a_recommender_is_documented() -> None:
    text = parameters_page.PAGE.read_text()
    assert text == parameters_page.page(text), "run: python -m tests.parameters_page"
    assert parameters_page.names(text) == set(discover().usable)


def test_every_phase_and_reason_has_a_place_in_the_operations_page() -> None:
    text = operations_page.PAGE.read_text()
    assert text == operations_page.page(text), "run: python -m tests.operations_page"
    table = text.partition("## What is done about a reason")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([A-Z]\w+)`", table)) - {"Hold"} == {reason.value for reason in Reason}


def test_code_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for name in re.findall(r"`((?:core|adapters|simulator|recommenders|cli)/[a-z_./]*|loop\.py|ports\.py)", text):
        assert (ROOT / "autoscaler" / name).exists(), name


def test_latencies_are_the_sums_of_their_settings() -> None:
    text = (ROOT / "docs" / "latency.md").read_text()
    look_s = 15
    for name, scrape_s, step, interval_s in (("as shipped", 30, "1m", 60), ("brisk", 15, "15s", 10)):
        step_s = {"1m": 60, "15s": 15}[step]
        least, most = 2 * scrape_s, 2 * scrape_s + look_s + step_s + interval_s
        typical = math.ceil((least + most) / 2)
        row = f"| {name} | {scrape_s} s | {step} | {interval_s}s | {least} s | {typical} s | {most} s |"
        assert row in text, row


@pytest.mark.parametrize(
    ("target", "half_life", "said"),
    [
        ("p95", "24h", "after 1h50m"),
        ("p90", "24h", "after 3h40m"),
        ("p95", "6h", "after 30m"),
        ("p95", "1h", "after 5m at most"),
    ],
)
def test_a_rise_of_cpu_counts_when_the_page_on_latency_says(target: str, half_life: str, said: str) -> None:
    assert f"| `{target}` | `{half_life}` | {said} |" in (ROOT / "docs" / "latency.md").read_text()
    percentile = Percentile(PercentileParameters.model_validate({"cpu": {"target": target, "halfLife": half_life}}))
    block_s, blocks = 300, 14 * 288
    end_at = [block_s * (number + 1) for number in range(blocks)]
    state = percentile.fold(percentile.start(), Samples.of(end_at, [0.2] * blocks, [1e9] * blocks), block_s)
    for number in range(1, 288):
        at = end_at[-1] + number * block_s
        state = percentile.fold(state, Samples.of([at], [0.5], [1e9]), block_s)
        situation = Situation(datetime.fromtimestamp(at, UTC), EMPTY, EMPTY, Resources(), block_s, block_s)
        found = percentile.recommend(state, situation)
        assert isinstance(found, Target)
        if (found.cpu or 0) > 0.5:
            break
    hours, minutes = divmod(number * block_s // 60, 60)
    assert said.split()[1] == (f"{hours}h" if hours else "") + f"{minutes}m"


def test_the_value_that_the_architecture_follows_has_these_numbers() -> None:
    text = " ".join((ROOT / "docs" / "architecture.md").read_text().split())
    minutes = 12 * 60
    usage = Samples.of([60 * (i + 1) for i in range(minutes)], [0.83] * minutes, [2e9] * minutes)
    percentile = Percentile(PercentileParameters())
    state = percentile.fold(percentile.start(), usage, 60)
    now = datetime.fromtimestamp(60 * minutes, UTC)
    target = percentile.recommend(state, Situation(now, usage, EMPTY, Resources(), 60, 60))
    assert isinstance(target, Target)
    wanted = amount_of(Resource.CPU, target.cpu or 0)
    assert wanted is not None
    value, steps = bound(Resource.CPU, wanted, 500, ContainerPolicy(), Stability(), 0)
    for step in (*target.trail, *steps):
        if step.resource is Resource.CPU:
            assert sentence(step) in text
    assert f"both become {value}m" in text
