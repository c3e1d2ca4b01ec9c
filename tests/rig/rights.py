"""Which rights a rig's controller has used, kept for a look back on all rigs of a run: each process has its own."""

from __future__ import annotations

import json
import os
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from tests.rig.control_plane import CONTROLLER
from tests.rig.rig import Rig

FOLDER = "RIG_RIGHTS"  # not one of the product's, which refuses those of its prefix that it does not know
"""The variable that names the folder to keep them in; without it they are not kept."""


class Right(NamedTuple):
    """One verb on one resource, as RBAC sees it."""

    group: str
    resource: str
    verb: str


def used(rig: Rig) -> set[Right]:
    """What the controller's identity has been allowed to do, by the API server's audit log."""
    return {
        Right(of.get("apiGroup", ""), "/".join(filter(None, (of["resource"], of.get("subresource")))), record["verb"])
        for record in rig.audit()
        if record["user"]["username"] == CONTROLLER
        and (of := record.get("objectRef")) is not None
        and record["responseStatus"]["code"] != 403
    }


def keep(rig: Rig) -> None:
    """Add what a rig has used to the folder."""
    if folder := os.environ.get(FOLDER):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{uuid4()}.json").write_text(json.dumps(sorted(used(rig))))


def kept() -> AbstractSet[Right] | None:
    """What all rigs have used; None if it was not to be kept."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    return {Right(*right) for file in Path(folder).glob("*.json") for right in json.loads(file.read_text())}
