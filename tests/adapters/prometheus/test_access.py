"""Each way to say who asks, before the real Prometheus: who is let in, who is not and hears why; what is renewed."""

from __future__ import annotations

import asyncio
import os
import re
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from autoscaler.adapters.prometheus.access import Access, Auth, Basic, Bearer, OAuth2, Secret, Tls
from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.session import PrometheusApi
from tests.adapters.prometheus.guards import Asked, Check, TokenServer, guarded, only, token_server
from tests.adapters.prometheus.servers import refusal
from tests.rig.prometheus_server import PrometheusServer

PASSWORD = "pässword-of-ann:x"
TOKEN = "eyJ.token-of-a-pod.abc"
ANN = Secret("prometheus.auth.basic.username", value="ann")


async def asked(api: PrometheusApi) -> float:
    return await asyncio.to_thread(api.server_time)


async def let_in(access: Access) -> None:
    api = PrometheusApi(access)
    assert abs(await asked(api) - time.time()) < 60
    api.close()


async def turned_away(access: Access) -> MetricsError:
    api = PrometheusApi(access)
    with pytest.raises(MetricsError) as caught:
        await asked(api)
    api.close()
    return caught.value


def basic(password: Secret) -> Basic:
    return Basic(ANN, password)


def pair(password: str) -> str:
    return "Basic " + b64encode(f"ann:{password}".encode()).decode()


async def test_nobody_in_particular(prometheus: PrometheusServer) -> None:
    async with guarded(prometheus.url) as guard:
        await let_in(Access(guard.url))
    assert "Authorization" not in guard.asked[0].headers


async def test_who_says_nothing_hears_what_to_set(prometheus: PrometheusServer) -> None:
    async with guarded(prometheus.url, only(lambda: pair(PASSWORD))) as guard:
        error = await turned_away(Access(guard.url))
    assert error.status == 401
    assert error.text == "refuses access (HTTP 401): it wants credentials; set prometheus.auth"


async def test_a_user_name_and_a_password(prometheus: PrometheusServer, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    async with guarded(prometheus.url, only(lambda: pair(PASSWORD))) as guard:
        await let_in(Access(guard.url, basic(Secret("PASSWORD", value=PASSWORD))))
        await let_in(Access(guard.url, basic(Secret("passwordFile", file))))
        error = await turned_away(Access(guard.url, basic(Secret("PASSWORD", value="wrong-one"))))
    assert error.text == (
        "refuses access (HTTP 401): it does not accept prometheus.auth.basic (from prometheus.auth.basic.username and "
        "PASSWORD)"
    )


async def test_a_token(prometheus: PrometheusServer) -> None:
    async with guarded(prometheus.url, only(lambda: f"Bearer {TOKEN}")) as guard:
        await let_in(Access(guard.url, Bearer(Secret("TOKEN", value=TOKEN))))
        error = await turned_away(Access(guard.url, Bearer(Secret("TOKEN", value="another-token"))))
        assert error.text == "refuses access (HTTP 401): it does not accept prometheus.auth.bearer (from TOKEN)"
        assert len(guard.asked) == 2  # what has not changed is not sent again


def rotate(file: Path, text: str) -> None:
    """As the kubelet does it for a projected token: another file takes the name."""
    new = file.with_suffix(".new")
    new.write_text(text + "\n")
    new.replace(file)


@pytest.mark.parametrize("kind", ["basic", "bearer"])
async def test_a_file_that_changes_is_read_again(prometheus: PrometheusServer, tmp_path: Path, kind: str) -> None:
    file, now = tmp_path / "secret", {"valid": "first-secret"}
    rotate(file, now["valid"])
    secret = Secret("the setting", file)
    auth: Auth = basic(secret) if kind == "basic" else Bearer(secret)
    expected = pair if kind == "basic" else "Bearer {}".format

    async with guarded(prometheus.url, only(lambda: expected(now["valid"]))) as guard:
        api = PrometheusApi(Access(guard.url, auth))
        await asked(api)
        now["valid"] = "second-secret"
        with pytest.raises(MetricsError):
            await asked(api)
        rotate(file, now["valid"])
        await asked(api)
        api.close()
    assert len(guard.asked) == 3


async def test_a_token_that_changes_while_it_is_sent_is_sent_again(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    rotate(file, "first-secret")
    answer = only(lambda: "Bearer second-secret")

    def check(request: Asked) -> web.StreamResponse | None:
        rotate(file, "second-secret")
        return answer(request)

    async with guarded(prometheus.url, check) as guard:
        await let_in(Access(guard.url, Bearer(Secret("tokenFile", file))))
    assert [one.headers["Authorization"] for one in guard.asked] == ["Bearer first-secret", "Bearer second-secret"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"to\nken", "holds a line break or another character that cannot stand in a header"),
        ("tökén".encode(), "cannot stand in a header"),
        (b"x" * 70_000, "is larger than 64 KiB"),
        (b"Bearer token", "holds a space; write the token alone, without Bearer"),
    ],
)
async def test_a_file_that_holds_no_token_is_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    access = Access("http://127.0.0.1:1", Bearer(Secret("prometheus.auth.bearer.tokenFile", file)))
    error = await turned_away(access)
    assert (error.status, error.error_type, error.passing) == (None, "credentials", False)
    assert error.text.startswith(f"is not asked: prometheus.auth.bearer.tokenFile: {file} ")
    assert words in error.text
    with pytest.raises(MetricsError) as caught:
        PrometheusApi(access).check()
    assert caught.value.text == error.text


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    secret, words = Secret("the setting", pipe), "is not a regular file, and can be read once only"
    for access in (
        Access("http://p", Bearer(secret)),
        Access("http://p", basic(secret)),
        Access("http://p", headers=(("X-Key", secret),)),
        Access("http://p", OAuth2("http://t", "client", secret)),
        Access("https://p", tls=Tls(pipe)),
        Access("https://p", tls=Tls(cert_file=pipe, key_file=pipe)),
    ):
        with pytest.raises(MetricsError, match=f"{pipe} {words}"):
            PrometheusApi(access).check()


@pytest.mark.parametrize(
    ("user", "password", "words"),
    [
        (b"ann:x", b"password", "user holds ':', which ends it (RFC 7617)"),
        (b"ann\nx", b"password", "user holds a line break or another control character"),
        (b"ann", "password".encode("utf-16-le"), "password holds a line break or another control character"),
        (b"ann", b"pass\r\nword", "password holds a line break or another control character"),
    ],
)
def test_what_cannot_stand_in_a_pair_is_named(tmp_path: Path, user: bytes, password: bytes, words: str) -> None:
    for name, content in (("user", user), ("password", password)):
        (tmp_path / name).write_bytes(content)
    auth = Basic(Secret("usernameFile", tmp_path / "user"), Secret("passwordFile", tmp_path / "password"))
    with pytest.raises(MetricsError, match=re.escape(words)):
        PrometheusApi(Access("http://p", auth)).check()


async def test_the_mark_that_windows_writes_is_no_part_of_a_secret(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\r\n", "utf-8-sig")
    async with guarded(prometheus.url, only(lambda: pair(PASSWORD))) as guard:
        await let_in(Access(guard.url, basic(Secret("passwordFile", tmp_path / "password"))))


async def test_headers_and_the_tenant_arrive_as_they_are(prometheus: PrometheusServer, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("key: with|colon\n")
    headers = (("X-Forwarded", Secret("HEADERS", value="http://a:1|b, c")), ("X-Api-Key", Secret("headerFiles", file)))
    async with guarded(prometheus.url) as guard:
        await let_in(Access(guard.url, tenant="sim|staging", headers=headers))
    sent = guard.asked[0].headers
    assert sent["X-Scope-OrgID"] == "sim|staging"
    assert (sent["X-Forwarded"], sent["X-Api-Key"]) == ("http://a:1|b, c", "key: with|colon")


@pytest.mark.parametrize(
    "respond", [lambda: web.Response(status=401, text="no org id"), lambda: refusal(401, "x", "no org id")]
)
async def test_prm_09_without_a_tenant_the_setting_is_named(
    prometheus: PrometheusServer, respond: Callable[[], web.Response]
) -> None:
    """One that is given is sent as it is, and whether the server is there is asked for by a query like any other."""

    def check(request: Asked) -> web.StreamResponse | None:
        return None if request.headers.get("X-Scope-OrgID") == "a|b" else respond()

    async with guarded(prometheus.url, check) as guard:
        error = await turned_away(Access(guard.url))
        assert error.text == (
            "refuses access (HTTP 401): no org id: it serves several tenants; set prometheus.tenant to the one to "
            "ask for"
        )
        await let_in(Access(guard.url, tenant="a|b"))


async def test_who_is_known_and_may_not_ask(prometheus: PrometheusServer) -> None:
    async with guarded(prometheus.url, lambda asked: web.Response(status=403, text="RBAC: access denied")) as guard:
        bearer = Bearer(Secret("prometheus.auth.bearer.tokenFile", value=TOKEN))
        error = await turned_away(Access(guard.url, bearer, tenant="sim"))
    assert error.text == (
        "refuses access (HTTP 403): whom prometheus.auth.bearer (from prometheus.auth.bearer.tokenFile) stands for may "
        "not query, or not for prometheus.tenant"
    )


def oauth2(server: TokenServer, secret: str | None = None, **more: object) -> OAuth2:
    value = Secret("CLIENT_SECRET", value=secret or server.secret)
    return replace(OAuth2(server.url, server.client, value), **more)  # type: ignore[arg-type]


def of_token(server: TokenServer) -> Check:
    return only(lambda: server.authorization)


@pytest.mark.parametrize("in_body", [False, True])
async def test_a_token_of_a_token_server_is_asked_for_once(prometheus: PrometheusServer, in_body: bool) -> None:
    async with token_server(TokenServer(in_body=in_body)) as server, guarded(prometheus.url, of_token(server)) as guard:
        auth = oauth2(server, scopes=("query", "read"), parameters=(("audience", "https://p:1"),))
        api = PrometheusApi(Access(guard.url, auth))
        await asyncio.gather(*(asked(api) for _ in range(8)))
        api.close()
    assert len(server.given) == 1
    assert server.forms[-1]["scope"] == "query read"
    assert server.forms[-1]["audience"] == "https://p:1"
    assert len(guard.asked) == 8


@pytest.mark.parametrize("lasts_s", [1, "1", 1.0])
async def test_a_token_is_renewed_before_it_expires(prometheus: PrometheusServer, lasts_s: object) -> None:
    async with (
        token_server(TokenServer(lasts_s=lasts_s)) as server,
        guarded(prometheus.url, of_token(server)) as guard,
    ):
        api = PrometheusApi(Access(guard.url, oauth2(server)))
        await asked(api)
        await asyncio.sleep(0.9)  # its last fifth has begun
        await asked(api)
        api.close()
    assert len(server.given) == 2
    assert len(guard.asked) == 2


async def test_a_token_that_is_not_accepted_any_more_is_renewed_at_once(prometheus: PrometheusServer) -> None:
    async with token_server(TokenServer()) as server, guarded(prometheus.url, of_token(server)) as guard:
        api = PrometheusApi(Access(guard.url, oauth2(server)))
        await asked(api)
        server.given.append("revoked")
        await asked(api)
        api.close()
    assert len(server.given) == 3
    assert [one.headers["Authorization"] for one in guard.asked] == [
        "Bearer token-0-of-the-server",
        "Bearer token-0-of-the-server",
        "Bearer token-2-of-the-server",
    ]


async def test_a_token_server_that_does_not_know_the_client(prometheus: PrometheusServer) -> None:
    async with token_server(TokenServer()) as server, guarded(prometheus.url, of_token(server)) as guard:
        error = await turned_away(Access(guard.url, oauth2(server, "wrong-secret")))
    assert error.text == (
        f"is not asked: prometheus.auth.oauth2 ({server.url}): the token server refuses (HTTP 401): invalid_client is "
        "wrong; check clientId and the client secret"
    )
    assert "wrong-secret" not in error.text
    assert (error.status, error.error_type) == (None, "credentials")
    assert not guard.asked


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: web.Response(text="<html>Log in"), "sent no token (HTTP 200); check tokenUrl"),
        (lambda: web.json_response([1]), "sent no token (HTTP 200); check tokenUrl"),
        (lambda: web.json_response({"access_token": ""}), "the token is empty"),
        (lambda: web.json_response({"access_token": "a", "token_type": "mac"}), "gives no bearer tokens"),
        (lambda: web.json_response({"access_token": "a\nb"}), "characters that cannot stand in a header"),
        (lambda: web.Response(status=302, headers={"Location": "https://sso"}), "refuses (HTTP 302); check tokenUrl"),
        (lambda: web.Response(status=404, text="no"), "refuses (HTTP 404); check tokenUrl"),
        (lambda: web.json_response({"error": "invalid_scope"}, status=400), "refuses (HTTP 400): invalid_scope;"),
    ],
)
async def test_a_token_server_that_gives_no_token(answer: Callable[[], web.Response], words: str) -> None:
    async with guarded("http://127.0.0.1:1", lambda asked: answer()) as server:
        auth = OAuth2(f"{server.url}/token", "client", Secret("CLIENT_SECRET", value="secret-of-client"))
        error = await turned_away(Access("http://127.0.0.1:1", auth))
    assert words in error.text
    assert f"{server.url}/token" in error.text


async def test_a_token_server_that_is_not_there() -> None:
    auth = OAuth2("http://127.0.0.1:1/token", "client", Secret("CLIENT_SECRET", value="secret-of-client"))
    error = await turned_away(Access("http://127.0.0.1:1", auth))
    assert error.text.startswith(
        "is not asked: prometheus.auth.oauth2 (http://127.0.0.1:1/token): the token server cannot be reached"
    )
    assert "check prometheus.auth.oauth2.tokenUrl" in error.text


@pytest.mark.parametrize("cut", [65, 75, 485, 495])
@pytest.mark.parametrize(
    "respond", [lambda text: web.Response(status=500, text=text), lambda text: refusal(400, "x", text)]
)
async def test_not_even_half_a_secret_that_a_server_repeats_is_shown(
    cut: int, respond: Callable[[str], web.Response]
) -> None:
    async with guarded("http://127.0.0.1:1", lambda asked: respond("x" * cut + TOKEN + "y" * 100)) as guard:
        error = await turned_away(Access(guard.url, Bearer(Secret("TOKEN", value=TOKEN))))
    assert TOKEN[:3] not in error.text
