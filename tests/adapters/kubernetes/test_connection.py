from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.credentials import Credentials, InCluster, Kubeconfig, find_credentials
from autoscaler.adapters.kubernetes.errors import BadConfiguration, KubernetesError, Unauthorized, Unreachable
from autoscaler.adapters.kubernetes.servertime import ServerTime
from autoscaler.ports import Unavailable
from tests.adapters.kubernetes.api_server import PODS, ApiServer, hang, lose
from tests.adapters.kubernetes.conftest import write_kubeconfig


@asynccontextmanager
async def opened(credentials: Credentials) -> AsyncIterator[Connection]:
    connection = await Connection.open(credentials)
    try:
        yield connection
    finally:
        await connection.close()


class Ticks:
    """A monotonic clock that tests move."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.crt")),
        ],
        check=True,
        capture_output=True,
    )
    return folder


@pytest_asyncio.fixture
async def secure(certificate: Path) -> AsyncIterator[ApiServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "ca.crt", certificate / "key.pem")
    server = ApiServer()
    await server.start(context)
    yield server
    await server.stop()


async def test_in_cluster_the_token_is_stripped_and_read_again_when_it_rotates(
    secure: ApiServer, certificate: Path, tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_bytes((certificate / "ca.crt").read_bytes())
    token = tmp_path / "token"
    token.write_text("first\n")
    secure.token = "first"
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(secure.port)}
    credentials = find_credentials(environ=environ, service_account=tmp_path)
    ticks = Ticks()
    connection = await Connection.open(credentials, ticks)
    try:
        assert (await connection.request("GET", PODS)).status == 200

        token.write_text("second\n")  # both are valid for a while: nothing forces a new look but the time
        ticks.now_s += 61
        secure.token = "second"
        before = len(secure.seen)
        assert (await connection.request("GET", PODS)).status == 200
        assert len(secure.seen) == before + 1

        token.write_text("third")  # the old one is refused at once: the 401 forces it
        secure.token = "third"
        assert (await connection.request("GET", PODS)).status == 200
        assert len(secure.seen) == before + 3

        secure.token = "unknown"
        with pytest.raises(Unauthorized, match="renew") as raised:
            await connection.request("GET", PODS)
        assert "third" not in str(raised.value)
        assert len(secure.seen) == before + 5  # tried again once, not for ever
    finally:
        await connection.close()


@pytest.mark.parametrize("missing", ["token", "ca.crt", "host"])
async def test_in_cluster_what_is_missing_is_named(missing: str, tmp_path: Path) -> None:
    for name in ("token", "ca.crt"):
        if name != missing:
            (tmp_path / name).write_text("x")
    environ = {} if missing == "host" else {"KUBERNETES_SERVICE_HOST": "::1"}
    with pytest.raises(BadConfiguration, match="KUBERNETES_SERVICE_HOST" if missing == "host" else missing):
        await InCluster(environ, tmp_path).read()


def test_in_cluster_the_namespace_is_the_pods_own(tmp_path: Path) -> None:
    account = InCluster({}, tmp_path)
    with pytest.raises(BadConfiguration, match=r"namespace: cannot be read .*--lease-namespace"):
        account.namespace()
    (tmp_path / "namespace").write_text("\n")
    with pytest.raises(BadConfiguration, match="is empty; pass --lease-namespace"):
        account.namespace()
    (tmp_path / "namespace").write_text("control\n")
    assert account.namespace() == "control"


async def test_in_cluster_addresses_may_be_ipv6(tmp_path: Path) -> None:
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")
    assert (await InCluster({"KUBERNETES_SERVICE_HOST": "::1"}, tmp_path).read()).host == "https://[::1]:443"


async def test_a_kubeconfigs_token_file_is_read_again_on_401(api: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    api.token = "first"
    async with opened(Kubeconfig((write_kubeconfig(tmp_path, api.url, "tokenFile: token"),))) as connection:
        assert (await connection.request("GET", PODS)).status == 200
        (tmp_path / "token").write_text("second\n")
        api.token = "second"
        assert (await connection.request("GET", PODS)).status == 200


async def test_many_requests_that_meet_a_401_read_the_credentials_once(api: ApiServer, tmp_path: Path) -> None:
    counter = tmp_path / "calls"
    plugin = tmp_path / "login"
    status = '{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": \\"ExecCredential\\", '
    plugin.write_text(
        f'#!/bin/sh\necho x >> {counter}\necho "{status}\\"status\\": {{\\"token\\": \\"$(wc -l < {counter})\\"}}}}"\n'
    )
    plugin.chmod(0o700)
    user = f"exec: {{apiVersion: client.authentication.k8s.io/v1, command: {plugin}}}"
    async with opened(Kubeconfig((write_kubeconfig(tmp_path, api.url, user),))) as connection:
        api.token = "2"
        answers = await asyncio.gather(*(connection.request("GET", PODS) for _ in range(5)))
    assert {answer.status for answer in answers} == {200}
    assert counter.read_text().count("x") == 2


async def test_an_untrusted_certificate_is_a_message_about_certificates(secure: ApiServer, tmp_path: Path) -> None:
    async with opened(Kubeconfig((write_kubeconfig(tmp_path, secure.url),))) as connection:
        with pytest.raises(Unreachable, match=r"TLS failed .*certificate.*certificate-authority"):
            await connection.request("GET", PODS)


async def test_plain_http_on_a_tls_port_is_a_message_too(api: ApiServer, tmp_path: Path) -> None:
    url = api.url.replace("http:", "https:")
    async with opened(Kubeconfig((write_kubeconfig(tmp_path, url),))) as connection:
        with pytest.raises(Unreachable, match="TLS failed"):
            await connection.request("GET", PODS)


async def test_a_refused_connection_names_server_and_kubeconfig(tmp_path: Path) -> None:
    with socket.socket() as held:  # bound but not listening: refuses
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        async with opened(Kubeconfig((write_kubeconfig(tmp_path, url),))) as connection:
            with pytest.raises(Unreachable) as raised:
                await connection.request("GET", PODS)
            assert str(raised.value).startswith(f"{url} cannot be reached (Connection refused); check the server in ")
            assert "kubeconfig" in str(raised.value)
            with pytest.raises(Unavailable):
                connection.now()


async def test_a_slow_and_a_lost_answer_are_told_apart(api: ApiServer, connection: Connection) -> None:
    api.next_answers[f"LIST {PODS}"].append(hang)
    with pytest.raises(Unreachable, match=r"did not answer within 0\.1 s"):
        await connection.request("GET", PODS, within_s=0.1)
    api.next_answers[f"PATCH {PODS}"].append(lose)
    with pytest.raises(Unreachable, match="broke off"):
        await connection.request("PATCH", PODS, body={"x": 1})


async def test_now_is_the_servers_time(connection: Connection) -> None:
    await connection.request("GET", PODS)
    assert connection.now().tzinfo is UTC
    assert abs(connection.now() - datetime.now(UTC)) < timedelta(seconds=2)


def test_each_answer_narrows_the_servers_time_down() -> None:
    time = ServerTime()
    assert not time.known
    time.note("nonsense", 0, 0)
    assert not time.known
    time.note("Sun, 29 Nov 2026 10:00:00 GMT", sent_at=100.0, received_at=100.0)
    at = datetime(2026, 11, 29, 10, tzinfo=UTC)
    assert time.at(100.0) == at + timedelta(milliseconds=500)
    # a second that begins between 100.8 and 100.9 on our clock: now it is known to 0.1 s
    time.note("Sun, 29 Nov 2026 10:00:00 GMT", sent_at=100.8, received_at=100.8)
    time.note("Sun, 29 Nov 2026 10:00:01 GMT", sent_at=100.9, received_at=100.9)
    assert abs(time.at(100.85) - (at + timedelta(seconds=1))) <= timedelta(milliseconds=50)


def test_a_server_whose_clock_was_set_is_believed() -> None:
    time = ServerTime()
    time.note("Sun, 29 Nov 2026 10:00:00 GMT", sent_at=100, received_at=100)
    time.note("Sun, 29 Nov 2026 12:00:00 GMT", sent_at=101, received_at=101)
    assert abs(time.at(101) - datetime(2026, 11, 29, 12, tzinfo=UTC)) <= timedelta(seconds=1)


SECRET = "do-not-show-this"
GOOD = f"""
current-context: here
contexts: [{{name: here, context: {{cluster: c, user: u}}}}, {{name: there, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:1"}}}}]
users: [{{name: u, user: {{token: {SECRET}}}}}]
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("current-context: here", "current-context: gone"), ["'gone'", "here, there", "--context"]),
        (GOOD.replace("current-context: here", ""), ["current-context is not set", "here, there"]),
        (GOOD.replace("cluster: c,", "cluster: lost,"), ["contexts[here].context.cluster", "'lost'", "known: c"]),
        (GOOD.replace("user: u}", "user: lost}"), ["contexts[here].context.user", "'lost'", "known: u"]),
        (GOOD.replace('"http://127.0.0.1:1"', "nowhere"), ["clusters[c].cluster.server", "'nowhere'"]),
        (GOOD.replace("name: c, cluster: {", "name: c, typo: {"), ["clusters[c].cluster must be a mapping"]),
        (GOOD.replace("name: u, user:", "name: u, typo:"), ["users[u].user must be a mapping"]),
        (GOOD.replace("name: u, user:", "nam: u, user:"), ["users must be a list of entries with a name"]),
        (GOOD.replace(f"token: {SECRET}", f"exec: {{secret: {SECRET}}}"), ["context 'here'", "check its cluster"]),
        (GOOD.replace("{token:", "{{token:"), ["line 5", "is not YAML"]),
        ("", ["must be a mapping"]),
        ("just text", ["must be a mapping"]),
        ("\x00", ["YAML"]),
    ],
)
async def test_a_bad_kubeconfig_is_one_message_without_its_secrets(
    text: str, words: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(BadConfiguration) as raised:
        await Kubeconfig((path,)).read()
    for word in [str(path), *words]:
        assert word in str(raised.value)
    assert SECRET not in str(raised.value) + caplog.text


async def test_certificates_that_are_none_name_their_keys(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("not a certificate")
    path = write_kubeconfig(tmp_path, "https://127.0.0.1:1", **{"certificate-authority": "ca"})
    with pytest.raises(BadConfiguration, match="certificate-authority"):
        await Connection.open(Kubeconfig((path,)))


async def test_a_context_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(GOOD)
    assert (await Kubeconfig((path,), "there").read()).host == "http://127.0.0.1:1"
    with pytest.raises(BadConfiguration, match="'nowhere'"):
        await Kubeconfig((path,), "nowhere").read()


async def test_the_first_of_several_kubeconfigs_wins(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("current-context: here\n")
    two.write_text(GOOD.replace("current-context: here", "current-context: gone"))
    found = find_credentials(environ={"KUBECONFIG": f"{one}:{two}:{tmp_path / 'absent'}"})
    assert (await found.read()).host == "http://127.0.0.1:1"


async def test_where_credentials_are_looked_for(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="--kubeconfig FILE"):
        find_credentials(environ={"HOME": str(tmp_path)})
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(GOOD)
    home = {"HOME": str(tmp_path)}
    assert ".kube/config" in find_credentials(environ=home).source
    pod = home | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert "service account" in find_credentials(environ=pod).source
    assert ".kube/config" in find_credentials(context="here", environ=pod).source
    missing = find_credentials(str(tmp_path / "absent"), environ=pod)
    with pytest.raises(KubernetesError, match="absent"):
        await missing.read()


def test_reading_objects_needs_no_client_library() -> None:
    code = "import sys, autoscaler.adapters.kubernetes.wire; sys.exit('kubernetes_asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
