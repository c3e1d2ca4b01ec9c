"""What the roles under rbac/ grant is what the controller uses, no more and no less.

Read off the API server's audit log after the whole rig suite; conftest.py runs this file last.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.rig.control_plane import CONTROLLER
from tests.rig.rig import ROOT, Rig

pytestmark = pytest.mark.last

_ALL = ("rig", "not kubelet")  # with which all tests on the rig are run


class Right(NamedTuple):
    """One verb on one resource, as RBAC sees it."""

    group: str
    resource: str
    verb: str


def granted(folder: Path) -> Iterator[Right]:
    """What a capability's role grants."""
    for path in sorted(folder.glob("*role.yaml")):
        for rule in yaml.safe_load(path.read_text())["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield from (Right(group, resource, verb) for verb in rule["verbs"])


def used(rig: Rig) -> set[Right]:
    """What the controller's identity has been allowed to do."""
    return {
        Right(of.get("apiGroup", ""), "/".join(filter(None, (of["resource"], of.get("subresource")))), record["verb"])
        for record in rig.audit()
        if record["user"]["username"] == CONTROLLER
        and (of := record.get("objectRef")) is not None
        and record["responseStatus"]["code"] != 403
    }


def test_what_is_granted_is_what_is_used(rig: Rig, request: pytest.FixtureRequest) -> None:
    config = request.config
    if config.args != config.getini("testpaths") or config.option.keyword or config.option.markexpr not in _ALL:
        pytest.skip("only after all tests on the rig: make test")
    every = {right for folder in (ROOT / "rbac").iterdir() for right in granted(folder)}
    # the server grants these to everyone who has logged in
    own = {right for right in used(rig) if right.group not in ("authorization.k8s.io", "authentication.k8s.io")}
    assert own == every


def test_each_capability_is_a_folder_of_its_own() -> None:
    seen: dict[Right, str] = {}
    for folder in sorted((ROOT / "rbac").iterdir()):
        assert (folder / "kustomization.yaml").is_file()
        for right in granted(folder):
            assert right not in seen, f"{right} is granted by {seen[right]} and {folder.name}"
            seen[right] = folder.name
            assert "*" not in right
            assert right.resource != "pods" or right.verb in ("get", "list", "watch")
