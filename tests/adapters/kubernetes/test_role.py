from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]

Rule = tuple[str, str, str]

READS = ("list", "watch")
GRANTED: dict[str, set[Rule]] = {
    "base": {
        *(("", "pods", verb) for verb in ("get", *READS)),
        *(("", "nodes", verb) for verb in READS),
        *(("apps", "replicasets", verb) for verb in READS),
        *(("batch", "jobs", verb) for verb in READS),
        ("", "pods/resize", "patch"),
    },
    "autoscalers": {
        *(("autoscaling", "horizontalpodautoscalers", verb) for verb in READS),
        *(("autoscaling.k8s.io", "verticalpodautoscalers", verb) for verb in READS),
    },
    "events": {("events.k8s.io", "events", "create")},
}


@pytest.mark.parametrize("capability", GRANTED)
def test_a_role_grants_what_the_adapter_uses_and_nothing_more(capability: str) -> None:
    role = yaml.safe_load((ROOT / "rbac" / capability / "clusterrole.yaml").read_text())
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == GRANTED[capability]


@pytest.mark.parametrize("capability", GRANTED)
def test_a_role_is_bound_to_the_controllers_service_account(capability: str) -> None:
    folder = ROOT / "rbac" / capability
    role = yaml.safe_load((folder / "clusterrole.yaml").read_text())
    binding = yaml.safe_load((folder / "clusterrolebinding.yaml").read_text())
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == f"bridge-autoscaler-{capability}"
    assert [(s["kind"], s["namespace"], s["name"]) for s in binding["subjects"]] == [
        ("ServiceAccount", "bridge-autoscaler", "bridge-autoscaler")
    ]


def test_the_manifests_install_every_capability() -> None:
    kustomization = yaml.safe_load((ROOT / "manifests" / "kustomization.yaml").read_text())
    assert {f"../rbac/{capability}" for capability in GRANTED} <= set(kustomization["resources"])
