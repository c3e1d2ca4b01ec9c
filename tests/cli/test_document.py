"""The document of `plan -o json`: its keys, its order, and that it is what its schema says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema

from autoscaler.cli.document import SCHEMA_VERSION, document, json_schema
from autoscaler.cli.rendering.data import render_json, render_yaml
from autoscaler.core.actions import Outcome, OutcomeKind
from autoscaler.core.model import Resource, Resources
from autoscaler.core.plan import Proposal
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Step
from autoscaler.core.trail import sentence
from tests.cli.plans import BRIDGE, PLAN, POD, PROXY, RESIZED, amounts


def as_json() -> dict[str, Any]:
    answers = {POD.ref: Outcome(OutcomeKind.ACCEPTED)}
    found: dict[str, Any] = json.loads(render_json(document(PLAN, answers=answers)))
    return found


def test_the_document_is_what_its_schema_says() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(as_json())


def test_the_schema_refuses_other_reasons_and_other_versions() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    wrong = as_json()
    wrong["items"][0]["reason"] = "BecauseISaySo"
    assert not validator.is_valid(wrong)
    assert not validator.is_valid({**as_json(), "schemaVersion": "v0"})
    assert validator.is_valid({**as_json(), "more": "keys may come"})


def test_the_schema_lists_every_reason() -> None:
    assert set(json_schema()["$defs"]["Reason"]["enum"]) == {reason.value for reason in Reason}


def test_the_contract() -> None:
    found = as_json()
    assert (found["schemaVersion"], found["takenAt"]) == (SCHEMA_VERSION, "2026-11-29T12:00:00Z")
    item = found["items"][0]
    contract = {
        "namespace": "sim",
        "pod": "bridge-0",
        "uid": "11111111-aaaa",
        "workload": "StatefulSet/bridge",
        "node": "node-a",
        "policy": "sim-bridges",
        "qosClass": "Burstable",
        "action": "Resize",
        "reason": "Increase",
        "detail": "cpu of bridge",
        "prediction": {"outcome": "InPlace", "detail": "node-a has 2300m of cpu to spare"},
    }
    assert {key: item[key] for key in contract} == contract
    sidecar, bridge = item["containers"]
    assert (sidecar["name"], sidecar["kind"]) == ("proxy", "Sidecar")
    assert bridge["kind"] == "Container"
    assert bridge["cpu"] == {
        "request": {"spec": "1", "actual": "1", "proposed": "1500m"},
        "limit": {"spec": "2", "actual": "2", "proposed": "3"},
    }
    assert bridge["memory"]["limit"] == {"spec": None, "actual": None, "proposed": None}
    assert bridge["because"] == [
        "cpu: p95 of 3.2d of samples = 1300m",
        "cpu: margin 15%: 1300m -> 1495m",
        "cpu: round up to 10m: 1495m -> 1500m",
        "memory: peak of 3.2d of samples = 5Gi",
        "memory: maxAllowed caps 5Gi at 4Gi (upper bound of the policy)",
    ]
    (problem,) = found["problems"]
    assert problem.keys() == {"source", "reason", "detail"}


def test_what_the_kubelet_does_not_report_is_null_not_the_spec() -> None:
    silent = replace(BRIDGE, actual=None)
    decision = replace(
        RESIZED, pod=replace(POD, containers=(PROXY, silent)), proposals=(Proposal(silent, silent.spec),)
    )
    (item,) = document(replace(PLAN, decisions=(decision,))).items
    assert item.containers[0].cpu.request.actual is None
    assert item.containers[0].cpu.request.spec == "1"


def test_pods_come_in_order_and_the_text_is_the_same_each_time() -> None:
    backwards = replace(PLAN, decisions=PLAN.decisions[::-1])
    assert [item["pod"] for item in as_json()["items"]] == ["bridge-0", "bridge-1", "bridge-2", "bridge-3"]
    for render in (render_json, render_yaml):
        assert render(document(PLAN)) == render(document(backwards))


def test_the_qos_class_afterwards_is_worked_out_from_the_proposals() -> None:
    equal = Resources(amounts("1", "4Gi"), amounts("1", "4Gi"))
    bridge = replace(BRIDGE, spec=Resources(amounts("1", "4Gi"), amounts("2", "4Gi")))
    decision = replace(
        RESIZED,
        pod=replace(POD, containers=(PROXY, bridge)),
        proposals=(Proposal(PROXY, PROXY.spec), Proposal(bridge, equal)),
    )
    (item,) = document(replace(PLAN, decisions=(decision,))).items
    assert (item.qos_class, item.qos_class_after) == ("Burstable", "Guaranteed")


def test_sentences() -> None:
    def of(name: str, before: int | None, after: int | None, because: str, cap: bool = False) -> str:
        return sentence(Step(Resource.CPU, name, before, after, because, cap))

    assert of("usage", None, None, "12 of 30 minutes") == "cpu: usage 12 of 30 minutes"
    assert of("minAllowed", 50, 100, "lower bound", cap=True) == "cpu: minAllowed raises 50m to 100m (lower bound)"
    assert of("cooldown", 900, 500, "10 s left", cap=True) == "cpu: cooldown keeps 500m instead of 900m (10 s left)"
    assert of("maxStep", 45, 70, "-30%", cap=True) == "cpu: maxStep stops at 70m on the way to 45m (-30%)"
    assert of("oom", 500, 500, "no kill seen") == "cpu: oom no kill seen: stays 500m"
    step = Step(Resource.MEMORY, "round", 88519386, 98 << 20, "up to 1Mi")
    assert sentence(step) == "memory: round up to 1Mi: 84.4Mi -> 98Mi"
