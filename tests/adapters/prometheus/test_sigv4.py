"""Requests signed for AWS, verified by another implementation than the one that signs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
from aiohttp import web
from requests_aws4auth import AWS4Auth

from autoscaler.adapters.prometheus.access import Access, SigV4
from tests.adapters.prometheus.guards import Asked, guarded
from tests.adapters.prometheus.test_access import let_in, turned_away
from tests.rig.prometheus_server import PrometheusServer

KEY, SECRET, SESSION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session-token-of-a-role"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing of this machine's; a file with the profile `monitoring`."""
    file = tmp_path / "credentials"
    file.write_text(
        f"[monitoring]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\naws_session_token = {SESSION}\n"
    )
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return file


def verified(asked: Asked) -> web.StreamResponse | None:
    """Sign the request as it arrived, with what the server knows, and compare."""
    sent = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=(?P<key>\w+)/(?P<day>\d{8})/eu-central-1/aps/aws4_request, "
        r"SignedHeaders=(?P<names>[a-z0-9;-]+), Signature=(?P<signature>[0-9a-f]{64})",
        asked.headers.get("Authorization", ""),
    )
    if sent is None or sent["key"] != KEY:
        return web.Response(status=403, text="MissingAuthenticationToken")
    names = sent["names"].split(";")
    at = datetime.strptime(asked.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert {"host", "x-amz-date"} <= set(names)
    assert abs((datetime.now(UTC) - at).total_seconds()) < 60
    headers = {name: asked.headers[name] for name in names}
    again = requests.Request(asked.method, asked.url, headers, data=asked.body).prepare()
    AWS4Auth(KEY, SECRET, "eu-central-1", "aps", date=sent["day"], include_hdrs=set(names))(again)
    if again.headers["Authorization"].partition("Signature=")[2] != sent["signature"]:
        return web.Response(status=403, text="SignatureDoesNotMatch")
    return None


async def test_the_keys_of_the_environment(prometheus: PrometheusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    async with guarded(prometheus.url, verified) as guard:
        await let_in(Access(guard.url, SigV4("eu-central-1", "aps"), tenant="sim|staging"))
        assert "x-scope-orgid" in guard.asked[0].headers["Authorization"]
        error = await turned_away(Access(f"{guard.url}/workspaces/ws-1", SigV4("eu-central-1", "aps")))
        assert error.status == 404  # of Prometheus: the signature was accepted


async def test_a_profile_with_a_session_token(prometheus: PrometheusServer) -> None:
    async with guarded(prometheus.url, verified) as guard:
        await let_in(Access(guard.url, SigV4("eu-central-1", "aps", "monitoring")))
    assert guard.asked[0].headers["X-Amz-Security-Token"] == SESSION


async def test_a_wrong_key(prometheus: PrometheusServer, aws: Path) -> None:
    aws.write_text(aws.read_text().replace(SECRET, SECRET.lower()))
    async with guarded(prometheus.url, verified) as guard:
        error = await turned_away(Access(guard.url, SigV4("eu-central-1", "aps", "monitoring")))
    assert error.text == (
        "refuses access (HTTP 403): whom prometheus.auth.sigv4 (region eu-central-1, service aps) stands for may not "
        "query"
    )


async def test_without_keys_the_remedy_is_named() -> None:
    error = await turned_away(Access("http://127.0.0.1:1", SigV4("eu-central-1", "aps")))
    assert (error.status, error.error_type) == (None, "credentials")
    assert error.text == (
        "is not asked: prometheus.auth.sigv4: no AWS credentials are found; give the pod a role, or set "
        "prometheus.auth.sigv4.profile"
    )
    error = await turned_away(Access("http://127.0.0.1:1", SigV4("eu-central-1", "aps", "nobody")))
    assert "ProfileNotFound" in error.text
    assert "nobody" in error.text
