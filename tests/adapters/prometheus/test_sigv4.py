"""Requests signed for AWS, verified by another implementation than the one that signs."""

from __future__ import annotations

import logging
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
from aiohttp import web
from requests_aws4auth import AWS4Auth

from autoscaler.adapters.prometheus.access import Access, SigV4
from tests.adapters.prometheus.guards import Asked, guarded
from tests.adapters.prometheus.sockets import response, writing
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


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("/nonexistent/program", "FileNotFoundError: [Errno 2] No such file or directory: '/nonexistent/program'"),
        ("/bin/false", "CredentialRetrievalError"),
        (f"/bin/echo {SECRET}", "JSONDecodeError: Expecting value"),
        ("/bin/echo '[1]'", "AttributeError"),
        ("/bin/echo 'never closed", "ValueError: No closing quotation"),
    ],
)
async def test_a_program_that_gives_no_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, program: str, words: str
) -> None:
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
    error = await turned_away(Access("http://127.0.0.1:1", SigV4("eu-central-1", "aps")))
    assert error.text.startswith(f"is not asked: prometheus.auth.sigv4: {words}")
    assert SECRET not in error.text
    assert not caplog.records


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A pod that has a role by its token."""
    file = tmp_path / "identity"
    file.write_text("token-of-the-pod")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(file))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/metrics")
    return file


async def test_a_token_of_a_pod_that_is_not_there(identity: Path, caplog: pytest.LogCaptureFixture) -> None:
    """botocore would log it with a traceback."""
    caplog.set_level(logging.INFO)
    identity.unlink()
    error = await turned_away(Access("http://127.0.0.1:1", SigV4("eu-central-1", "aps")))
    assert f"FileNotFoundError: [Errno 2] No such file or directory: '{identity}'" in error.text
    assert not caplog.records


async def test_a_role_that_may_not_be_taken(identity: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>No; run this</Message></Error></ErrorResponse>"
    with writing(lambda send: send(response(refusal, status=b"403 No"))) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        error = await turned_away(Access("http://127.0.0.1:1", SigV4("eu-central-1", "aps")))
    assert "ClientError: An error occurred (AccessDenied)" in error.text
    assert "No, run this" in error.text


async def test_a_server_of_roles_that_hangs(identity: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's own patience is a minute, and that several times."""
    with writing(lambda send: time.sleep(2)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        began_s = time.monotonic()
        error = await turned_away(Access("http://127.0.0.1:1", SigV4("eu-central-1", "aps"), timeout_s=0.2))
        assert time.monotonic() - began_s < 1.5
    assert "ReadTimeoutError" in error.text


@pytest.mark.parametrize("words", ["Signature expired: 20261130T070000Z is now earlier than", "RequestTimeTooSkewed"])
async def test_clocks_that_differ_are_named(prometheus: PrometheusServer, words: str) -> None:
    async with guarded(prometheus.url, lambda asked: web.Response(status=403, text=words)) as guard:
        error = await turned_away(Access(guard.url, SigV4("eu-central-1", "aps", "monitoring")))
    assert error.text == (
        "refuses access (HTTP 403): its clock and this one differ by more than signatures allow; set both by NTP"
    )
