from __future__ import annotations

from pathlib import Path

import yaml

BASE = Path(__file__).parents[3] / "rbac" / "base"


def test_the_base_role_grants_what_the_adapter_uses_and_nothing_more() -> None:
    role = yaml.safe_load((BASE / "clusterrole.yaml").read_text())
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {
        *(("", "pods", verb) for verb in ("get", "list", "watch")),
        *(("", "nodes", verb) for verb in ("list", "watch")),
        *(("apps", "replicasets", verb) for verb in ("list", "watch")),
        *(("batch", "jobs", verb) for verb in ("list", "watch")),
        ("", "pods/resize", "patch"),
    }
