"""Answers of an API server that does not do what it was asked, or does not say whether it did."""

from __future__ import annotations

from typing import Any

import pytest

from tests.adapters.kubernetes.api_server import Handler, always, hang, lose
from tests.adapters.kubernetes.objects import Json


def status(code: int, message: str, *causes: Json, **details: Any) -> Handler:
    more = {"causes": list(causes)} if causes else {}
    body = {"kind": "Status", "message": message, "code": code, "details": {"name": "bridge-0", **more, **details}}
    return always(code, body)


LOST = pytest.mark.parametrize(
    "failure",
    [lose, hang, always(500, "oops"), status(504, "timed out"), always(200, "<html>"), always(201, {})],
    ids=["lost", "hung", "500", "504", "html", "empty"],
)
