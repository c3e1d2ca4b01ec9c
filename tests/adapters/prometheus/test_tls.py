"""Certificates: whom is trusted, what is shown, what changes while the program runs, and what is said when it fails."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from autoscaler.adapters.prometheus.access import Access, Basic, OAuth2, Secret, Tls
from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.session import PrometheusApi
from tests.adapters.prometheus.guards import TokenServer, context, guarded, store, token_server
from tests.adapters.prometheus.test_access import let_in, of_token, turned_away
from tests.rig.prometheus_server import PrometheusServer


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(ca: trustme.CA, tmp_path: Path) -> Path:
    file = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(file))
    return file


def server(ca: trustme.CA, name: str = "localhost", *, clients: bool = False) -> ssl.SSLContext:
    return context(ca, ca.issue_cert(name), clients=clients)


async def test_an_authority_of_ones_own(prometheus: PrometheusServer, ca: trustme.CA, trusted: Path) -> None:
    async with guarded(prometheus.url, tls=server(ca)) as guard:
        await let_in(Access(guard.url, tls=Tls(trusted)))
        error = await turned_away(Access(guard.url))
    assert (error.status, error.error_type, error.passing) == (None, "tls", False)
    assert error.text.startswith("shows a certificate of an authority that is not known (")
    assert error.text.endswith("); name it in prometheus.tls.caFile")


async def test_another_authority(prometheus: PrometheusServer, trusted: Path) -> None:
    async with guarded(prometheus.url, tls=server(trustme.CA())) as guard:
        error = await turned_away(Access(guard.url, tls=Tls(trusted)))
    assert error.text.startswith(f"shows a certificate that prometheus.tls.caFile ({trusted}) does not vouch for (")


async def test_an_authority_that_changes(prometheus: PrometheusServer, ca: trustme.CA, trusted: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(trusted))
    async with guarded(prometheus.url, tls=server(ca)) as guard:
        api = PrometheusApi(Access(guard.url, tls=Tls(trusted)))
        with pytest.raises(MetricsError):
            await asyncio.to_thread(api.server_time)
        ca.cert_pem.write_to_path(str(trusted))
        await asyncio.to_thread(api.server_time)
        api.close()


async def test_the_name_in_the_certificate(prometheus: PrometheusServer, ca: trustme.CA, trusted: Path) -> None:
    async with guarded(prometheus.url, tls=server(ca, "prometheus.monitoring.svc")) as guard:
        error = await turned_away(Access(guard.url, tls=Tls(trusted)))
        assert "is not valid for 'localhost'); set prometheus.tls.serverName to one of its names, or" in error.text
        await let_in(Access(guard.url, tls=Tls(trusted, server_name="prometheus.monitoring.svc")))
        error = await turned_away(Access(guard.url, tls=Tls(trusted, server_name="other")))
        assert "is not valid for 'other'" in error.text
        by_number = guard.url.replace("localhost", "127.0.0.1")
        assert "127.0.0.1" in (await turned_away(Access(by_number, tls=Tls(trusted)))).text


async def test_a_certificate_that_has_expired(prometheus: PrometheusServer, ca: trustme.CA, trusted: Path) -> None:
    expired = ca.issue_cert("localhost", not_after=datetime.now(UTC) - timedelta(hours=1))
    async with guarded(prometheus.url, tls=context(ca, expired)) as guard:
        error = await turned_away(Access(guard.url, tls=Tls(trusted)))
    assert "whose time is not now (certificate has expired)" in error.text


async def test_https_where_plain_http_is_spoken(prometheus: PrometheusServer, trusted: Path) -> None:
    error = await turned_away(Access(prometheus.url.replace("http:", "https:"), tls=Tls(trusted)))
    assert error.text.startswith("does not speak TLS (")
    assert error.text.endswith("); write http:// in --prometheus-url")


async def test_plain_http_where_https_is_spoken(ca: trustme.CA) -> None:
    async with guarded("http://127.0.0.1:1", tls=server(ca)) as guard:
        error = await turned_away(Access(guard.url.replace("https:", "http:")))
    assert "check --prometheus-url, http or https" in error.text


@pytest.fixture
def mine(ca: trustme.CA, trusted: Path, tmp_path: Path) -> Tls:
    """A certificate for the client `first`."""
    tls = Tls(trusted, tmp_path / "client.pem", tmp_path / "client-key.pem")
    renew(tls, ca, "first")
    return tls


def renew(tls: Tls, ca: trustme.CA, name: str) -> None:
    assert tls.cert_file is not None
    assert tls.key_file is not None
    store(ca.issue_cert("client", common_name=name), tls.cert_file, tls.key_file)


async def test_a_client_shows_its_newest_certificate(prometheus: PrometheusServer, ca: trustme.CA, mine: Tls) -> None:
    async with guarded(prometheus.url, tls=server(ca, clients=True)) as guard:
        api = PrometheusApi(Access(guard.url, tls=mine))
        await asyncio.to_thread(api.server_time)
        await asyncio.to_thread(api.server_time)
        renew(mine, ca, "second")
        await asyncio.to_thread(api.server_time)
        api.close()
    assert [one.client for one in guard.asked] == ["first", "first", "second"]


async def test_half_of_a_new_pair_is_waited_for(prometheus: PrometheusServer, ca: trustme.CA, mine: Tls) -> None:
    assert mine.key_file is not None
    async with guarded(prometheus.url, tls=server(ca, clients=True)) as guard:
        api = PrometheusApi(Access(guard.url, tls=mine))
        await asyncio.to_thread(api.server_time)
        key = mine.key_file.read_bytes()
        renew(mine, ca, "second")
        new_key = mine.key_file.read_bytes()
        mine.key_file.write_bytes(key)
        await asyncio.to_thread(api.server_time)
        mine.key_file.write_bytes(new_key)
        await asyncio.to_thread(api.server_time)
        api.close()
    assert [one.client for one in guard.asked] == ["first", "first", "second"]


@pytest.fixture(scope="module")
def strict(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus that lets in clients with a certificate of the authority only, by its own means."""
    folder = tmp_path_factory.mktemp("strict")
    store(ca.issue_cert("localhost"), folder / "cert.pem", folder / "key.pem")
    own = ca.issue_cert("client")
    store(own, folder / "own.pem", folder / "own-key.pem")
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    tls = {"cert_file": "cert.pem", "key_file": "key.pem", "client_ca_file": "ca.pem"}
    tls["client_auth_type"] = "RequireAndVerifyClientCert"
    (folder / "web.yml").write_text(json.dumps({"tls_server_config": tls}))
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    context.load_cert_chain(folder / "own.pem", folder / "own-key.pem")
    server = PrometheusServer(folder, arguments=[f"--web.config.file={folder / 'web.yml'}"], tls=context)
    yield server
    server.stop()


async def test_a_client_that_is_not_let_in_hears_what_to_set(
    strict: PrometheusServer, ca: trustme.CA, mine: Tls
) -> None:
    error = await turned_away(Access(strict.url, tls=Tls(mine.ca_file)))
    # its alert may arrive, or be lost with the connection
    assert re.search(r"wants a client certificate( \(.*alert.*\))?; set prometheus.tls.certFile and", error.text)
    api = PrometheusApi(Access(strict.url, tls=mine))
    await asyncio.to_thread(api.server_time)
    renew(mine, trustme.CA(), "stranger")
    with pytest.raises(MetricsError) as caught:
        await asyncio.to_thread(api.server_time)
    assert "does not accept the client certificate" in caught.value.text
    assert f"; check prometheus.tls.certFile ({mine.cert_file})" in caught.value.text
    renew(mine, ca, "third")
    await asyncio.to_thread(api.server_time)
    api.close()
    error = await turned_away(Access(strict.url.replace("https:", "http:")))
    assert error.text == "speaks https (HTTP 400); write https:// in --prometheus-url"


async def test_a_client_that_is_shut_out_without_a_word(
    prometheus: PrometheusServer, ca: trustme.CA, trusted: Path
) -> None:
    async with guarded(prometheus.url, tls=server(ca, clients=True)) as guard:
        error = await turned_away(Access(guard.url, tls=Tls(trusted)))
    assert error.text.endswith("; set prometheus.tls.certFile and prometheus.tls.keyFile, or see its log")
    assert error.passing


async def test_nginx_has_words_of_its_own_for_it() -> None:
    page = "<html><head><title>400 No required SSL certificate was sent</title></head></html>"
    async with guarded("http://127.0.0.1:1", lambda _: web.Response(status=400, text=page)) as guard:
        error = await turned_away(Access(guard.url))
    assert error.text.startswith("wants a client certificate (HTTP 400); set prometheus.tls.certFile")


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("ca", "prometheus.tls.caFile: {ca} holds no certificates in PEM form"),
        ("cert", "prometheus.tls.certFile: {cert} and prometheus.tls.keyFile: {key} are not a certificate and its key"),
        ("key", "prometheus.tls.certFile: {cert} and prometheus.tls.keyFile: {key} are not a certificate and its key"),
        ("no ca", "prometheus.tls.caFile: {ca} cannot be read: No such file or directory"),
        ("no cert", "prometheus.tls.certFile: {cert} cannot be read: No such file or directory"),
        ("no key", "prometheus.tls.keyFile: {key} cannot be read: No such file or directory"),
        ("locked key", "in PEM form, without a pass phrase"),
    ],
)
def test_files_that_cannot_be_used_are_named(mine: Tls, broken: str, words: str) -> None:
    files = {"ca": mine.ca_file, "cert": mine.cert_file, "key": mine.key_file}
    file = files[broken.split()[-1]]
    assert file is not None
    if broken.startswith("no "):
        file.unlink()
    elif broken == "locked key":
        key = serialization.load_pem_private_key(file.read_bytes(), None)
        locked = serialization.BestAvailableEncryption(b"hunter2")
        kind = serialization.PrivateFormat.TraditionalOpenSSL
        file.write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, locked))
    else:
        file.write_text("no certificate")
    with pytest.raises(MetricsError) as caught:
        PrometheusApi(Access("https://127.0.0.1:1", tls=mine)).check()
    assert caught.value.text.startswith("is not asked: ")
    assert words.format(**files) in caught.value.text


async def test_the_authority_counts_for_the_token_server_too(
    prometheus: PrometheusServer, ca: trustme.CA, trusted: Path, tmp_path: Path
) -> None:
    other = trustme.CA()
    theirs = tmp_path / "other.pem"
    other.cert_pem.write_to_path(str(theirs))
    async with token_server(TokenServer(), server(ca)) as near, token_server(TokenServer(), server(other)) as far:
        for one, ca_file in ((near, None), (far, theirs)):
            async with guarded(prometheus.url, of_token(one), server(ca)) as guard:
                auth = OAuth2(one.url, one.client, Secret("CLIENT_SECRET", value=one.secret), ca_file=ca_file)
                await let_in(Access(guard.url, auth, tls=Tls(trusted)))
        secret = Secret("CLIENT_SECRET", value=far.secret)
        error = await turned_away(Access("https://localhost:1", OAuth2(far.url, far.client, secret)))
        assert error.text.endswith("); name it in prometheus.auth.oauth2.caFile")
        access = Access("https://localhost:1", OAuth2(far.url, far.client, secret), tls=Tls(trusted))
        assert f"that prometheus.tls.caFile ({trusted}) does not vouch for" in (await turned_away(access)).text
        by_number = far.url.replace("localhost", "127.0.0.1")
        access = Access("https://localhost:1", OAuth2(by_number, far.client, secret, ca_file=theirs))
        assert (await turned_away(access)).text.endswith("); correct prometheus.auth.oauth2.tokenUrl")


async def test_a_server_that_hangs_in_the_handshake(trusted: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"https://localhost:{silent.getsockname()[1]}"
        access = Access(url, Basic(Secret("u", value="u"), Secret("p", value="p")), timeout_s=1, tls=Tls(trusted))
        error = await turned_away(access)
    assert error.error_type in ("hang", "connection")
