from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.adapters.kubernetes.lease import LEASE

ROOT = Path(__file__).parents[3]

Rule = tuple[str, str, str]

READS = ("list", "watch")
GRANTED: dict[str, set[Rule]] = {
    "base": {
        *(("", "pods", verb) for verb in ("get", *READS)),
        *(("", "nodes", verb) for verb in READS),
        *(("apps", kind, verb) for kind in ("deployments", "replicasets", "statefulsets") for verb in READS),
        *(("batch", "jobs", verb) for verb in READS),
        ("", "pods/resize", "patch"),
    },
    "autoscalers": {
        *(("autoscaling", "horizontalpodautoscalers", verb) for verb in READS),
        *(("autoscaling.k8s.io", "verticalpodautoscalers", verb) for verb in READS),
    },
    "events": {("events.k8s.io", "events", "create")},
    "migrate": {
        ("", "pods/eviction", "create"),
        *(("policy", "poddisruptionbudgets", verb) for verb in READS),
        *(("", kind, verb) for kind in ("persistentvolumeclaims", "persistentvolumes") for verb in READS),
        *(("storage.k8s.io", kind, verb) for kind in ("csinodes", "storageclasses") for verb in READS),
    },
    "surge": {("apps", "deployments/scale", "patch")},
    "leader": {("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")},
}


def role_and_binding(capability: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the whole cluster, or of the controller's namespace."""
    texts = [path.read_text() for path in (ROOT / "rbac" / capability).glob("*role*.yaml")]
    role, binding = sorted(map(yaml.safe_load, texts), key=lambda found: len(found["kind"]))
    assert binding["kind"] == f"{role['kind']}Binding"
    assert {d["metadata"].get("namespace") for d in (role, binding) if d["kind"].startswith("Role")} <= {
        "bridge-autoscaler"
    }
    return role, binding


@pytest.mark.parametrize("capability", GRANTED)
def test_a_role_grants_what_the_adapter_uses_and_nothing_more(capability: str) -> None:
    role, _ = role_and_binding(capability)
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
    role, binding = role_and_binding(capability)
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == f"bridge-autoscaler-{capability}"
    assert [(s["kind"], s["namespace"], s["name"]) for s in binding["subjects"]] == [
        ("ServiceAccount", "bridge-autoscaler", "bridge-autoscaler")
    ]


def test_only_the_leaders_lease_can_be_read_and_changed() -> None:
    role, _ = role_and_binding("leader")
    names = {verb: rule.get("resourceNames") for rule in role["rules"] for verb in rule["verbs"]}
    assert names == {"get": [LEASE], "update": [LEASE], "create": None}


def test_the_manifests_install_every_capability_but_those_that_evict() -> None:
    kustomization = yaml.safe_load((ROOT / "manifests" / "kustomization.yaml").read_text())
    installed = {Path(one).name for one in kustomization["resources"] if one.startswith("../rbac/")}
    assert installed == set(GRANTED) - {"migrate", "surge"}
    assert {path.name for path in (ROOT / "rbac").iterdir()} == set(GRANTED)
