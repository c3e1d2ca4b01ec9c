"""What the roles under rbac/ grant is what the controller uses, no more and no less.

Read off the audit logs of all rigs, once all tests have run: `make test` runs what is marked `last` by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.rig.rights import FOLDER, Right, kept

ROOT = Path(__file__).parents[1]


def granted(folder: Path) -> Iterator[Right]:
    """What a capability's role grants."""
    for path in sorted(folder.glob("*role.yaml")):
        for rule in yaml.safe_load(path.read_text())["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield from (Right(group, resource, verb) for verb in rule["verbs"])


@pytest.mark.last
def test_what_is_granted_is_what_is_used() -> None:
    used = kept()
    if used is None:
        pytest.skip(f"only after all tests on the rig, which keep what they use in {FOLDER}: make test")
    every = {right for folder in (ROOT / "rbac").iterdir() for right in granted(folder)}
    # the server grants these to everyone who has logged in
    own = {right for right in used if right.group not in ("authorization.k8s.io", "authentication.k8s.io")}
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
