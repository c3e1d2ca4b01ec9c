"""What `doctor` says to do about a Prometheus that cannot be asked: never what only fits another fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.cli.checks_prometheus import PrometheusChecks
from autoscaler.cli.checkup import Checkup, Known
from autoscaler.diagnosis.findings import Check, Finding, Status
from autoscaler.settings import load_settings
from tests.adapters.prometheus.sockets import response, writing


async def found(url: str) -> Finding:
    known = Known(load_settings({"prometheus_url": url}, None))
    checkup = Checkup(known, PrometheusChecks(known).steps(), lambda check: None)
    (finding,) = [one async for one in checkup.findings() if one.check is Check.PROMETHEUS]
    assert finding.status is Status.ERROR
    return finding


async def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    monkeypatch.setenv("BRIDGE_AUTOSCALER_PROMETHEUS_BEARER_TOKEN_FILE", str(file))
    finding = await found("http://127.0.0.1:1")
    assert finding.detail.endswith(f"auth.bearer.tokenFile: {file} cannot be read: No such file or directory")
    assert finding.remedy == "correct what it names (docs/settings.md)"


@pytest.mark.parametrize(
    ("status", "body", "remedy"),
    [
        (401, b"no", "set prometheus.auth"),
        (403, b"no", "set prometheus.auth"),
        (429, b"slow down; run this", "see the log of that server, and whether it is overloaded"),
        (500, b"boom; run this", "see the log of that server, and whether it is overloaded"),
        (
            404,
            b"no",
            "check --prometheus-url: another server, or a path that is too much, or missing, such as /prometheus",
        ),
        (400, b"Client sent an HTTP request to an HTTPS server.", "write https:// in --prometheus-url"),
        (200, b"<html>", "check --prometheus-url"),
    ],
)
async def test_an_answer_that_is_none(status: int, body: bytes, remedy: str) -> None:
    with writing(lambda send: send(response(body, status=b"%d Word" % status))) as server:
        assert (await found(server.url)).remedy == remedy
