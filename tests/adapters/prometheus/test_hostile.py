"""Servers that mean harm, or are as broken: always an error within the timeout, never a secret, never a number."""

from __future__ import annotations

import gzip
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from autoscaler.adapters.prometheus.access import Access, Basic, Bearer, OAuth2, Secret, Tls
from autoscaler.adapters.prometheus.answers import MetricsError, weight
from autoscaler.adapters.prometheus.copies import said
from autoscaler.adapters.prometheus.ranges import MOST_POINTS, Span
from autoscaler.adapters.prometheus.retries import retried
from autoscaler.adapters.prometheus.session import PrometheusApi
from tests.adapters.prometheus.guards import context
from tests.adapters.prometheus.sockets import Sockets, Write, response, writing

TOKEN = "Tok-en/of&a<pod>"
TIMEOUT_S = 0.3
LONG_S = 20 * TIMEOUT_S


def matrix(series: str, **more: str) -> bytes:
    rest = "".join(f',"{key}":{value}' for key, value in more.items())
    return f'{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}{rest}}}'.encode()


def values(pairs: str) -> bytes:
    return matrix(f'{{"metric":{{"pod":"a"}},"values":[{pairs}]}}')


GOOD = values('[60,"1"]')
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def asked(url: str, timeout_s: Any = 5.0, **access: Any) -> MetricsError | None:
    """The failure of a query for a range, None where it is answered."""
    api = PrometheusApi(Access(url, timeout_s=timeout_s, **access))
    try:
        api.range("up", Span(0, 60, 60))
    except MetricsError as error:
        return error
    finally:
        api.close()
    return None


def failure(body: bytes, *headers: bytes, status: bytes = b"200 OK", **access: Any) -> MetricsError:
    with writing(lambda send: send(response(body, *headers, status=status))) as server:
        error = asked(server.url, **access)
    assert error is not None
    return error


def trickling(first: bytes, more: bytes, pause_s: float = 0.02) -> Write:
    def write(send: Callable[[bytes], None]) -> None:
        send(first)
        ends = time.monotonic() + LONG_S
        while time.monotonic() < ends:
            send(more)
            time.sleep(pause_s)

    return write


TRICKLES = {
    "status line": trickling(b"HTTP/1.1 200 ", b"O"),
    "headers": trickling(b"HTTP/1.1 200 OK\r\nX: ", b"y"),
    "100 Continue": trickling(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a flood of 100 Continue": trickling(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0),
    "sizes of chunks": trickling(CHUNKED, b"0"),
    "trailers": trickling(CHUNKED + b"1\r\n{\r\n0\r\n", b"X: y\r\n"),
    "empty blocks of gzip": trickling(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"")[:10], b"\0\0\0\xff\xff"
    ),
}


@pytest.mark.parametrize("what", TRICKLES)
def test_an_answer_ends_in_time_whatever_arrives(what: str) -> None:
    with writing(TRICKLES[what]) as server:
        began_s = time.monotonic()
        error = asked(server.url, TIMEOUT_S)
        lasted_s = time.monotonic() - began_s
    assert error is not None
    assert (error.error_type, error.text) == ("hang", f"did not answer within {TIMEOUT_S:g} s (query: up)")
    assert lasted_s < LONG_S / 2


def test_an_answer_ends_in_time_over_tls(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with writing(TRICKLES["headers"], context(ca, ca.issue_cert("localhost"))) as server:
        error = asked(server.url, TIMEOUT_S, tls=Tls(tmp_path / "ca.pem"))
    assert error is not None
    assert error.error_type == "hang"


def test_a_token_ends_in_time() -> None:
    for write in (TRICKLES["headers"], trickling(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b" ")):
        with writing(write) as server:
            began_s = time.monotonic()
            error = asked("http://127.0.0.1:1", TIMEOUT_S, auth=client(server.url))
            assert time.monotonic() - began_s < LONG_S / 2
        assert error is not None
        assert "the token server did not answer within 0.3 s" in error.text


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80",  # HTTP/2: the port of gRPC
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 99 Never\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_is_named(answer: bytes) -> None:
    with writing(lambda send: send(answer)) as server:
        error = asked(server.url)
    assert error is not None
    assert error.text.startswith("does not speak HTTP/1.1 (")
    assert error.text.endswith("; check --prometheus-url: it may be the port of gRPC")


def test_headers_that_cannot_be_read_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.WARNING, "urllib3")  # as the client of Kubernetes does
    answer = response(GOOD).replace(b"\r\n", f"\r\nno colon {TOKEN}\r\n".encode(), 1)
    with writing(lambda send: send(answer)) as server:
        assert asked(server.url, auth=Bearer(Secret("TOKEN", value=TOKEN))) is None
    assert not caplog.records


def test_no_cookie_is_kept() -> None:
    with writing(lambda send: send(response(GOOD, b"Set-Cookie: a=b; Path=/"))) as server:
        api = PrometheusApi(Access(server.url))
        for _ in range(2):
            api.range("up", Span(0, 60, 60))
        api.close()
    assert not [header for header, _ in server.asked if b"cookie" in header.lower()]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_nothing_is_sent_to_where_a_redirect_points(status: int) -> None:
    with writing(lambda send: send(response(GOOD))) as other:
        to = b"Location: " + other.url.encode()
        error = failure(b"", to, status=b"%d Go" % status, auth=Bearer(Secret("TOKEN", value=TOKEN)), tenant="sim")
    assert "redirects to http://127.0.0.1" in error.text
    assert not other.asked


@pytest.mark.parametrize(
    "body",
    [
        matrix(",".join(['{"metric":{}}'] * 400_000)),
        values(",".join(['[0,"1"]'] * 1_000_000)),
        matrix("", warnings='["' + '","'.join("a" * 2_000_000) + '"]'),
    ],
    ids=["series", "samples", "warnings"],
)
def test_what_would_fill_the_memory_is_not_read(body: bytes) -> None:
    """A few bytes of each would be hundreds in memory: 16 MiB of empty series more than 700 MiB."""
    error = failure(body)
    assert (error.error_type, error.too_much) == ("too_large", True)


def test_as_much_as_is_planned_is_read() -> None:
    labels = ",".join(f'"{name}":"{"x" * 40}"' for name in ("cluster", "namespace", "pod", "container"))
    one = f'{{"metric":{{{labels}}},"values":[' + ",".join(['[1795759200,"123456789012"]'] * 50) + "]}"
    assert 3 * weight(matrix(",".join([one] * (MOST_POINTS // 50)))) < 128 << 20


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (values('[60,"1"],[0,"2"]'), "samples that are not in order of time"),
        (values('[60,"1"],[60,"2"]'), "samples that are not in order of time"),
        (values('["NaN","1"]'), "samples that are not in order of time"),
        (values('[0,"1"],["+Inf","1"]'), "samples that are not in order of time"),
        (
            matrix('{"metric":{"a":"b"},"values":[]},{"metric":{"a":"b"},"values":[]}'),
            "two series with the same labels",
        ),
        (GOOD.replace(b"matrix", b"vector"), "a result of type vector in place of a matrix"),
        (GOOD.replace(b"matrix", TOKEN.encode()), "a result of no type that is known in place of a matrix"),
    ],
)
def test_what_prometheus_never_says_is_no_answer(body: bytes, words: str) -> None:
    assert failure(body).text == f"sent an answer that is not Prometheus': {words} (query: up)"


def missing(body: bytes, **access: Any) -> tuple[str, ...]:
    with writing(lambda send: send(response(body))) as server:
        api = PrometheusApi(Access(server.url, **access))
        try:
            return api.range("up", Span(0, 60, 60)).missing
        finally:
            api.close()


def test_an_answer_that_says_itself_that_it_is_partial() -> None:
    """VictoriaMetrics' cluster does, and warns of nothing."""
    assert missing(matrix("", isPartial="true")) == ("it says that its answer is partial (isPartial)",)
    assert missing(matrix("", isPartial="false")) == ()


def test_warnings_are_shown_without_secrets_and_not_without_end() -> None:
    text = f'"store refused {TOKEN}; delete it\\n\\u001b[31m"'
    found = missing(matrix("", warnings=f"[{','.join([text] * 50)}]"), auth=Bearer(Secret("TOKEN", value=TOKEN)))
    assert found == ("store refused (hidden), delete it �[31m",) * 20


def test_what_to_do_is_never_a_servers_to_say() -> None:
    for error in (
        failure(b'{"status":"error","errorType":"x","error":"bad; run this\\u001b]0;x\\u0007"}', status=b"400 No"),
        failure(b"bad; run this \x1b[31m", status=b"500 No"),
        failure(b"", status=b"503 bad; run \x1b[31m" + b"x" * 3000),
    ):
        assert "; " not in error.text
        assert error.text.isprintable()
        assert len(error.text) < 200


SPELT = [
    "Tok-en%2Fof%26a%3Cpod%3E",
    "Tok-en/of&amp;a&lt;pod&gt;",
    "TOK-EN/OF&A<POD>",
    "tok-en/of\\u0026a\\u003cpod\\u003e",
]


@pytest.mark.parametrize("spelt", [TOKEN, *SPELT])
@pytest.mark.parametrize("auth", [Bearer, lambda secret: Basic(Secret("USERNAME", value="ann"), secret)])
def test_however_a_secret_is_spelt_it_is_not_shown(spelt: str, auth: Callable[[Secret], Bearer | Basic]) -> None:
    error = failure(f"no: {spelt}!".encode(), status=b"500 No", auth=auth(Secret("SECRET", value=TOKEN)))
    assert error.text == "fails with HTTP 500: no: (hidden)! (query: up)"


def test_no_part_of_a_header_is_shown() -> None:
    headers = (
        ("X-Api-Key", Secret("X", value="Token abcdefgh-1")),
        ("Cookie", Secret("C", value="id=ijklmnop-2; a=b")),
    )
    error = failure(b"abcdefgh-1 ijklmnop-2", status=b"500 No", headers=headers)
    assert error.text == "fails with HTTP 500: (hidden) (hidden) (query: up)"


def test_a_redirect_to_a_name_made_of_a_secret() -> None:
    error = failure(
        b"", b"Location: https://Tok-en-1.example/", status=b"302 Go", auth=Bearer(Secret("T", value="Tok-en-1"))
    )
    assert "redirects to https://(hidden).example" in error.text


def client(url: str) -> OAuth2:
    return OAuth2(f"{url}/token?key=of-the-address", "client", Secret("CLIENT_SECRET", value="secret-of-client"))


@pytest.fixture
def prometheus_as_it_should_be() -> Iterator[Sockets]:
    with writing(lambda send: send(response(GOOD))) as server:
        yield server


@pytest.mark.parametrize("lasts", ["-5", "0", '"NaN"', "null", "1e308", '"3600"'])
def test_how_long_a_token_lasts_may_be_nonsense(prometheus_as_it_should_be: Sockets, lasts: str) -> None:
    token = f'{{"access_token":"of-the-server","expires_in":{lasts}}}'.encode()
    with writing(lambda send: send(response(token))) as tokens:
        api = PrometheusApi(Access(prometheus_as_it_should_be.url, client(tokens.url)))
        for _ in range(3):
            api.range("up", Span(0, 60, 60))
        api.close()
    assert len(tokens.asked) == 1


def test_what_a_token_server_says_and_its_address_are_shown_without_secrets() -> None:
    words = b'{"error":"no","error_description":"secret-of-client is wrong; run this \\u001b[31m"}'
    with writing(lambda send: send(response(words, status=b"400 No"))) as tokens:
        error = asked("http://127.0.0.1:1", auth=client(tokens.url))
    assert error is not None
    assert error.text == (
        f"is not asked: prometheus.auth.oauth2 ({tokens.url}/token): the token server refuses (HTTP 400): no (hidden) "
        "is wrong, run this �[31m; check clientId and the client secret"
    )


@pytest.mark.parametrize(
    ("says", "least_s", "most_s"),
    [
        ("2", 2, 2),
        ("9" * 400, 1e8, 1e10),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 1e9, 1e12),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0, 0),
        *(
            (text, 0, 0)
            for text in ("", "-5", "1.5", "soon", "Fri, 99 Dec", "Fri, 31 Dec 9999 23:59:59 -0000", "\u0663")
        ),
    ],
)
def test_when_to_ask_again_may_be_nonsense(says: str, least_s: float, most_s: float) -> None:
    header = b"Retry-After: " + says.encode()
    for body in (b"busy", b'{"status":"error","errorType":"unavailable","error":"busy"}'):
        assert least_s <= failure(body, header, status=b"503 Busy").pause_s <= most_s


@pytest.mark.parametrize(("wanted_s", "times"), [(1, 2), (3600, 1)])
def test_a_server_is_asked_again_when_it_wants_to_be_or_in_another_cycle(wanted_s: int, times: int) -> None:
    asked_s: list[float] = []

    def write(send: Callable[[bytes], None]) -> None:
        asked_s.append(time.monotonic())
        busy = response(b"busy", b"Retry-After: %d" % wanted_s, status=b"429 Busy")
        send(busy if len(asked_s) == 1 else response(GOOD))

    with writing(write) as server:
        api = PrometheusApi(Access(server.url))
        began_s = time.monotonic()
        if times == 1:
            with pytest.raises(MetricsError, match="HTTP 429"):
                retried(api.range, "up", Span(0, 60, 60))
        else:
            retried(api.range, "up", Span(0, 60, 60))
            assert asked_s[1] - asked_s[0] >= wanted_s
        api.close()
    assert len(asked_s) == times
    assert time.monotonic() - began_s < 3


def test_names_of_a_server_are_shown_short_and_harmless() -> None:
    """They end in plans, logs and events."""
    assert (
        said("clus\x1bter", "eu; run\x07\nthis")
        == 'clus\N{REPLACEMENT CHARACTER}ter="eu, run\N{REPLACEMENT CHARACTER} this"'
    )
    assert len(said("x" * 1000, "y" * 100_000)) < 300
