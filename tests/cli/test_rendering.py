"""Renderings by value: what a person, a reviewer and bash get to see."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.cli.document import Amounts, document
from autoscaler.cli.output import print_errors
from autoscaler.cli.rendering.markdown import render_markdown
from autoscaler.cli.rendering.patch import render_patch
from autoscaler.cli.rendering.table import render_explanation, render_table
from autoscaler.cli.rendering.words import cell, summary
from autoscaler.core.actions import Outcome, OutcomeKind
from autoscaler.core.model import Problem, Resource
from autoscaler.core.plan import PredictedOutcome, Prediction
from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason
from tests.cli.plans import HELD, PLAN, POD, RESIZED

ANSWERS = {
    POD.ref: Outcome(
        OutcomeKind.REFUSED, "exceeded quota: sim, requested: cpu=500m, used: 10, limited: 10", "ResourceQuota"
    )
}

TABLE = """\
sim/bridge-0  StatefulSet/bridge, on node-a, policy sim-bridges
  Resize: Increase: cpu of bridge
  Predicted  InPlace: node-a has 2300m of cpu to spare
  Server     Refused (ResourceQuota): exceeded quota: sim, requested: cpu=500m,
             used: 10, limited: 10
  QoS        Burstable unchanged
  container        resource  request           limit
  proxy (sidecar)  cpu       100m unchanged    100m unchanged
                   memory    64Mi unchanged    64Mi unchanged
  bridge           cpu       1 → 1500m (+50%)  2 → 3 (+50%)
                   memory    4Gi unchanged     unset
    bridge  cpu: p95 of 3.2d of samples = 1300m
    bridge  cpu: margin 15%: 1300m -> 1495m
    bridge  cpu: round up to 10m: 1495m -> 1500m
    bridge  memory: peak of 3.2d of samples = 5Gi
    bridge  memory: maxAllowed caps 5Gi at 4Gi (upper bound of the policy)

sim/bridge-2  StatefulSet/bridge, on node-a, policy sim-bridges
  NoData: container bridge: no samples in Prometheus
  QoS        Burstable unchanged
  container        resource  request         limit
  proxy (sidecar)  cpu       100m unchanged  100m unchanged
                   memory    64Mi unchanged  64Mi unchanged
  bridge           cpu       1 unchanged     2 unchanged
                   memory    4Gi unchanged   unset

Note       policies/b.yaml: NothingSelected: policy b selects no pod
1 to resize, 1 held, 1 note
"""


def test_the_table_at_80_columns() -> None:
    plan = replace(PLAN, decisions=(RESIZED, HELD))
    assert render_table(document(plan, answers=ANSWERS)) == TABLE


@pytest.mark.parametrize("width", [40, 80, 100, 130, 200])
def test_no_line_of_the_table_is_wider_than_the_terminal(width: int) -> None:
    text = render_table(document(PLAN, answers=ANSWERS), width=width)
    assert max(map(len, text.splitlines())) <= width


def test_a_wide_table_has_the_steps_beside_the_sizes() -> None:
    line = next(line for line in render_table(document(PLAN), width=150).splitlines() if "1500m (+50%)" in line)
    assert "p95 of 3.2d of samples = 1300m" in line


def test_color_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in render_table(document(PLAN))
    assert "\x1b[32m" in render_table(document(PLAN), color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in render_table(document(PLAN), color=True)


@pytest.mark.parametrize(
    ("spec", "actual", "proposed", "text"),
    [
        (None, None, None, "unset"),
        ("1", "1", "1", "1 unchanged"),
        ("1", None, "1", "1 unchanged"),
        ("1", "1", "1500m", "1 → 1500m (+50%)"),
        ("1", "1", "1004m", "1 → 1004m (+0.4%)"),
        ("4", "4", "1", "4 → 1 (-75%)"),
        ("2", "1", "2", "1, asked 2"),
        ("2", "1", "3", "1 → 3 (+200%), asked 2"),
    ],
)
def test_cells(spec: str | None, actual: str | None, proposed: str | None, text: str) -> None:
    assert cell(Amounts(spec, actual, proposed), Resource.CPU) == text


def test_the_summary() -> None:
    assert summary(document(PLAN)) == "1 to resize, 1 proposed only, 1 held, 1 at target, 1 note"
    assert summary(document(replace(PLAN, decisions=(), problems=()))) == "no pod is selected"


def test_the_explanation_has_every_step_and_what_the_reason_means() -> None:
    resized, _, held, _ = document(PLAN).items
    text = render_explanation(resized)
    assert "    3. cpu: round up to 10m: 1495m -> 1500m" in text
    assert "    2. memory: maxAllowed caps 5Gi at 4Gi (upper bound of the policy)" in text
    text = " ".join(render_explanation(held).split())
    assert f"Meaning {Reason.NO_DATA.meaning}" in text


def test_the_patch_lines_run_in_bash_as_they_are(tmp_path: Path) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    kubectl.chmod(0o755)
    script = render_patch(document(PLAN))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-eu"], input=script, capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    words = ["patch", "pod", "bridge-0", "-n", "sim", "--subresource", "resize", "--type", "strategic", "-p"]
    assert lines[:10] == words
    assert json.loads(lines[10]) == {
        "metadata": {"uid": "11111111-aaaa"},
        "spec": {
            "containers": [{"name": "bridge", "resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": "3"}}}]
        },
    }
    assert lines[11:14] == ["patch", "pod", "bridge-1"]  # only recommended, and ready to be done by hand
    assert len(lines) == 22


def test_no_text_from_outside_becomes_a_command() -> None:
    nasty = "why\nrm -rf /\r\n: ;"
    decision = replace(RESIZED, prediction=Prediction(PredictedOutcome.UNKNOWN, nasty))
    plan = replace(PLAN, decisions=(decision,), problems=(Problem("somewhere", Trouble.UNREADABLE, nasty),))
    lines = render_patch(document(plan)).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["#", "#", "kubectl"]


def test_a_sidecar_is_patched_as_an_init_container() -> None:
    sidecar = replace(RESIZED.proposals[0], proposed=RESIZED.proposals[1].proposed)
    text = render_patch(document(replace(PLAN, decisions=(replace(RESIZED, proposals=(sidecar,)),))))
    assert '"spec":{"initContainers":[{"name":"proxy"' in text


def test_what_cannot_be_done_is_not_among_the_patches() -> None:
    refused = replace(RESIZED, reason=Reason.EXCEEDS_NODE, action=None)
    assert "kubectl" not in render_patch(document(replace(PLAN, decisions=(refused,))))


def test_markdown_keeps_text_from_outside_in_its_cell() -> None:
    nasty = replace(HELD, detail="a | b <script>\n# heading")
    text = render_markdown(document(replace(PLAN, decisions=(nasty,))))
    assert "- NoData: a \\| b \\<script\\> \\# heading" in text
    assert "| sim/bridge-2 | bridge | cpu | 1 unchanged | 2 unchanged | Burstable unchanged | None | NoData |" in text


def test_what_others_write_does_not_command_the_terminal() -> None:
    loud = replace(HELD, detail="0/3 nodes\x1b[2J\x07 are\r\navailable")
    plan = document(replace(PLAN, decisions=(loud,)))
    for text in (render_table(plan), render_markdown(plan), render_explanation(plan.items[0])):
        assert not any(letter in text for letter in "\x1b\x07\r")
        assert "are available" in " ".join(text.split())


def test_nor_what_servers_say_on_stderr_or_beside_commands(capsys: pytest.CaptureFixture[str]) -> None:
    loud = Problem("Prometheus", Trouble.UNREADABLE, "down\x1b[2J\x07\nfor ever")
    plan = document(replace(PLAN, problems=(loud,)))
    assert print_errors(plan)
    for text in (capsys.readouterr().err, render_patch(plan)):
        assert not any(letter in text for letter in "\x1b\x07")
        assert "[2J\N{REPLACEMENT CHARACTER} for ever\n" in text
