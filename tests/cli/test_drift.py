"""What a person sees of a live pod whose size is not its template's, in every rendering."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autoscaler import cli
from autoscaler.cli.document import Item, document, json_schema
from autoscaler.cli.rendering.data import render_json
from autoscaler.cli.rendering.markdown import render_markdown
from autoscaler.cli.rendering.patch import render_patch
from autoscaler.cli.rendering.table import render_explanation, render_table
from autoscaler.cli.rendering.words import drift, summary
from autoscaler.core.model import Resources, Workload, WorkloadRef
from autoscaler.core.plan import Plan
from tests.build import both, sizes
from tests.cli.conftest import write_policy
from tests.cli.fakes import FakeCluster, FakeWiring
from tests.cli.plans import BRIDGE, HELD, POD, PROXY, TAKEN_AT, amounts

OWNED = replace(POD, owner="StatefulSet/bridge")


def stateful_set(**template: Resources) -> Workload:
    return Workload(WorkloadRef("sim", "StatefulSet/bridge"), "66666666-ffff", template=template)


def plan(above: Workload, **changes: Any) -> Plan:
    """A pod that is held, with what its owner would make now."""
    return Plan(TAKEN_AT, (replace(HELD, pod=replace(OWNED, **changes)),), workloads={above.ref: above})


def item(above: Workload, **changes: Any) -> Item:
    (found,) = document(plan(above, **changes)).items
    return found


SMALLER = stateful_set(bridge=sizes("500m", "3Gi", "2"), proxy=PROXY.spec)
TABLE = """\
sim/bridge-0  StatefulSet/bridge, on node-a, policy sim-bridges
  NoData: container bridge: no samples in Prometheus
  QoS        Burstable unchanged
  Drift      bridge cpu request template 500m, live 1; bridge memory request
             template 3Gi, live 4Gi
  container        resource  request         limit
  proxy (sidecar)  cpu       100m unchanged  100m unchanged
                   memory    64Mi unchanged  64Mi unchanged
  bridge           cpu       1 unchanged     2 unchanged
                   memory    4Gi unchanged   unset

1 held
"""


def test_the_table_has_a_line_at_80_columns() -> None:
    assert render_table(document(plan(SMALLER))) == TABLE


def test_the_document_names_each_amount_and_is_what_its_schema_says() -> None:
    found = json.loads(render_json(document(plan(SMALLER))))
    jsonschema.Draft202012Validator(json_schema()).validate(found)
    assert found["items"][0]["drift"] == [
        {"container": "bridge", "resource": "cpu", "side": "request", "template": "500m", "live": "1"},
        {"container": "bridge", "resource": "memory", "side": "request", "template": "3Gi", "live": "4Gi"},
    ]


@pytest.mark.parametrize(
    "changes",
    [{"owner": None}, {"owner": "ReplicaSet/bridge"}, {"namespace": "other"}],
    ids=["no owner", "another owner", "another namespace"],
)
def test_where_the_template_is_not_known_nothing_is_said(changes: dict[str, Any]) -> None:
    assert item(SMALLER, **changes).drift == []
    for text in (render_table, render_markdown):
        assert "Drift" not in text(document(plan(SMALLER, **changes)))


def test_where_the_template_has_the_size_there_is_no_line() -> None:
    same = stateful_set(bridge=BRIDGE.spec, proxy=PROXY.spec)
    assert item(same).drift == []
    assert "Drift" not in render_table(document(plan(same)))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (both("2", "4Gi"), "bridge cpu template 2, live 3"),
        (both("2", "3Gi"), "bridge cpu template 2, live 3; bridge memory template 3Gi, live 4Gi"),
        (sizes("2", "4Gi", "3", "4Gi"), "bridge cpu request template 2, live 3"),
        (sizes("3", "4Gi", "4", "4Gi"), "bridge cpu limit template 4, live 3"),
        (sizes("2", "4Gi", "4", "4Gi"), "bridge cpu request template 2, live 3; bridge cpu limit template 4, live 3"),
    ],
)
def test_the_side_is_named_where_request_and_limit_differ_in_it(template: Resources, words: str) -> None:
    three = both("3", "4Gi")
    bridge = replace(BRIDGE, spec=three, allocated=three.requests, actual=three)
    assert drift(item(stateful_set(bridge=template), containers=(bridge,))) == words


def test_an_amount_that_the_pod_has_not_is_unset() -> None:
    owner = stateful_set(bridge=replace(BRIDGE.spec, limits=amounts("2", "8Gi")))
    assert drift(item(owner)) == "bridge memory limit template 8Gi, live unset"
    assert item(owner).drift[0].live is None


def test_the_explanation_and_the_review_comment_have_it_too() -> None:
    words = "bridge cpu request template 500m, live 1; bridge memory request template 3Gi, live 4Gi"
    assert f"Drift {words}" in " ".join(render_explanation(item(SMALLER)).split())
    assert f"- Drift: {words}\n" in render_markdown(document(plan(SMALLER)))


def test_it_is_no_change_and_counts_nowhere() -> None:
    assert not item(SMALLER).changes
    assert summary(document(plan(SMALLER))) == "1 held"
    assert render_patch(document(plan(SMALLER))) == ""


def test_mig_03_plan_and_explain_say_it_of_a_pod_that_was_resized_in_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = both("3", "4Gi")
    app = replace(BRIDGE, name="app", spec=live, allocated=live.requests, actual=live)
    there = FakeCluster((replace(OWNED, containers=(app,)),), workloads=(stateful_set(app=both("2", "4Gi")),))
    policies = f"--policies={write_policy(tmp_path)}"
    for command in (["plan"], ["explain", "sim/bridge-0"]):
        assert cli.main([*command, policies], FakeWiring(cluster=there)) == 0
        assert "  Drift      app cpu template 2, live 3\n" in capsys.readouterr().out
