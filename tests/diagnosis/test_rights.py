"""What `doctor` asks for is what the folders of rbac/ grant."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from autoscaler.diagnosis.rights import ROLES, Right, Role

RBAC = Path(__file__).parents[2] / "rbac"


def granted(folder: Path) -> set[Right]:
    found = set()
    for path in folder.glob("*role.yaml"):
        document = yaml.safe_load(path.read_text())
        for rule in document["rules"]:
            for group in rule["apiGroups"]:
                for kind in rule["resources"]:
                    resource, _, subresource = kind.partition("/")
                    (name,) = rule.get("resourceNames", [""])
                    namespaced = document["kind"] == "Role"
                    found |= {Right(group, resource, verb, subresource, name, namespaced) for verb in rule["verbs"]}
    return found


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.folder)
def test_each_role_is_asked_for_in_full(role: Role) -> None:
    assert set(role.rights) == granted(RBAC.parent / role.folder)


def test_no_role_is_forgotten() -> None:
    assert {role.folder for role in ROLES} == {f"rbac/{path.name}" for path in RBAC.iterdir()}
