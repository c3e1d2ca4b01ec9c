"""Gates that ask the pod itself, over real connections: what opens them, and all that keeps them closed."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web

from autoscaler.core.model import PodRef
from autoscaler.core.policy import DrainPolicy, PodEndpoint
from tests.adapters.prometheus.servers import serve
from tests.adapters.sessions.bridges import BRIDGE, NOW, bridge, drain, endpoint_of, text, watched

NONE = (True, "no sessions")
ONCE = (False, "no sessions, if the next look agrees")


@pytest.mark.parametrize(
    "answer",
    [
        text("0"),
        text(" 0.0\n"),
        text('{"sessions": 0}'),
        text('{"sessions": 0, "since": "noon"}', content_type="application/json"),
        text("", status=204),
    ],
)
async def test_no_sessions_twice_in_a_row_open_a_gate(answer: Callable[[], web.StreamResponse]) -> None:
    async with bridge() as one, watched() as seen:
        one.answer = answer
        seen.follow(drain(one.policy()))
        assert seen.sessions.latest() == {}
        assert await seen.looks(3) == [ONCE, NONE, NONE]
        gate = seen.sessions.latest()[BRIDGE]
        assert (gate.uid, gate.measured_at, gate.known) == ("u-1", NOW, True)
        assert one.requests == ["GET /sessions"] * 3
        assert all("Authorization" not in headers and "Cookie" not in headers for headers in one.headers)


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (text("3"), "3 sessions"),
        (text("1"), "1 session"),
        (text("0.5"), "0.5 sessions"),
        (text('{"sessions": 12345678}'), "12345678 sessions"),
    ],
)
async def test_live_sessions_keep_a_gate_closed(answer: Callable[[], web.StreamResponse], detail: str) -> None:
    async with bridge() as one, watched() as seen:
        one.answer = answer
        seen.follow(drain(one.policy()))
        assert await seen.looks(2) == [(False, detail)] * 2
        assert seen.sessions.latest()[BRIDGE].known


UNREADABLE = 'expected 3 or {"sessions": 3}'


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (text("-1"), "{} says -1, which is no number of sessions"),
        (text("1e999"), None),
        (text("NaN"), f"{{}} answered 'NaN'; {UNREADABLE}"),
        (text(""), f"{{}} answered ''; {UNREADABLE}"),
        (text("none"), f"{{}} answered 'none'; {UNREADABLE}"),
        (text("true"), f"{{}} answered 'true'; {UNREADABLE}"),
        (text("null"), f"{{}} answered 'null'; {UNREADABLE}"),
        (text('"0"'), f"{{}} answered '\"0\"'; {UNREADABLE}"),
        (text("[0]"), f"{{}} answered '[0]'; {UNREADABLE}"),
        (text("0 sessions"), f"{{}} answered '0 sessions'; {UNREADABLE}"),
        (text('{"sessions": null}'), f"{{}} answered '{{\"sessions\": null}}'; {UNREADABLE}"),
        (text('{"count": 0}'), f"{{}} answered '{{\"count\": 0}}'; {UNREADABLE}"),
        (text("[" * 4000), None),
        (lambda: web.Response(body=b"\xff\x1b[31m0"), f"{{}} answered '\ufffd\\x1b[31m0'; {UNREADABLE}"),
        (text("<html>0</html>", content_type="text/html"), f"{{}} answered '<html>0</html>'; {UNREADABLE}"),
        (text("0" + " " * 4096), "{} answered with more than 4 KiB"),
        (text(" " * 10_000_000), "{} answered with more than 4 KiB"),
        (text("0", status=500), "{} answered HTTP 500"),
        (text("0", status=202), "{} answered HTTP 202"),
        (text("0", status=404), "{} answered HTTP 404"),
        (text("0", status=302, headers={"Location": "/elsewhere"}), "{} answered HTTP 302"),
    ],
)
async def test_what_is_no_number_keeps_a_gate_closed(
    answer: Callable[[], web.StreamResponse], detail: str | None
) -> None:
    async with bridge() as one, watched() as seen:
        one.answer = answer
        seen.follow(drain(one.policy()))
        found = await seen.looks(2)
        assert [is_open for is_open, _ in found] == [False, False]
        assert not seen.sessions.latest()[BRIDGE].known
        if detail is not None:
            url = f"http://127.0.0.1:{one.port}/sessions"
            assert found[0][1] == "not known: " + detail.replace("{}", url, 1)
        assert len(found[0][1]) < 200
        assert one.requests == ["GET /sessions"] * 2  # no redirect was followed


async def test_an_answer_that_is_compressed_is_not_unpacked() -> None:
    def packed() -> web.StreamResponse:
        response = web.Response(text="0" + " " * 3000)
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async with bridge() as one, watched() as seen:
        one.answer = packed
        seen.follow(drain(one.policy()))
        ((is_open, detail),) = await seen.looks()
        assert not is_open
        assert UNREADABLE in detail
        assert one.headers[0]["Accept-Encoding"] == "identity"


async def test_a_pod_that_never_answers_is_not_waited_for() -> None:
    async with bridge() as one, watched(pod_timeout_s=0.2) as seen:
        one.answer = lambda: None
        seen.follow(drain(one.policy()))
        assert await seen.looks() == [
            (False, f"not known: http://127.0.0.1:{one.port}/sessions did not answer within 0.2 s")
        ]


@contextmanager
def raw(answer: bytes, *, then_close: bool = True) -> Iterator[int]:
    """A server below HTTP: it sends this to each connection, whatever was asked."""
    kept = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        await writer.drain()
        if then_close:
            writer.close()
        else:
            kept.append(writer)

    listening = socket.create_server(("127.0.0.1", 0))
    starting = asyncio.create_task(asyncio.start_server(handle, sock=listening))
    try:
        yield listening.getsockname()[1]
    finally:
        starting.result().close()
        for writer in kept:
            writer.close()


@pytest.mark.parametrize(
    ("answer", "then_close", "words"),
    [
        (b"", True, "cannot be reached: it closed the connection"),
        (b"SSH-2.0-OpenSSH\r\n", True, "gave no answer in HTTP: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0", True, "gave no answer in HTTP: ClientPayloadError"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0", False, "did not answer within 0.3 s"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n0", False, "gave no answer in HTTP: "),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 5000, False, "answered with more than 4 KiB"),
    ],
)
async def test_broken_and_unfinished_answers_keep_a_gate_closed(answer: bytes, then_close: bool, words: str) -> None:
    with raw(answer, then_close=then_close) as port:
        async with watched(pod_timeout_s=0.3) as seen:
            seen.follow(drain(DrainPolicy(endpoint=PodEndpoint(port))))
            ((is_open, detail),) = await seen.looks()
            assert not is_open
            assert detail.startswith(f"not known: http://127.0.0.1:{port}/ {words}")


async def test_a_pod_where_nothing_listens_keeps_its_gate_closed() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        port = taken.getsockname()[1]
        async with watched() as seen:
            seen.follow(drain(DrainPolicy(endpoint=PodEndpoint(port))))
            assert await seen.looks() == [
                (False, f"not known: http://127.0.0.1:{port}/ cannot be reached: Connection refused")
            ]


@pytest.mark.parametrize(
    ("ip", "detail"), [("", "the pod has no IP address"), ("localhost", "the pod's address is no IP")]
)
async def test_only_ip_addresses_are_asked(ip: str, detail: str) -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy(), ip=ip))
        assert await seen.looks() == [(False, f"not known: {detail}")]
        assert one.requests == []


async def test_an_ipv6_address_is_put_in_brackets() -> None:
    async with watched() as seen:
        seen.follow(drain(DrainPolicy(endpoint=PodEndpoint(9, "/sessions?live")), ip="::1"))
        ((_, detail),) = await seen.looks()
        assert detail.startswith("not known: http://[::1]:9/sessions?live cannot be reached: ")


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bridge() as one, watched() as seen:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        seen.follow(drain(one.policy()))
        assert await seen.looks() == [ONCE]


async def test_a_gate_that_flaps_stays_closed() -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy()))
        for between in (text("1"), text("", status=503), text("oops")):
            one.answer = text("0")
            assert await seen.looks() == [ONCE]
            one.answer = between
            assert (await seen.looks())[0][0] is False
        one.answer = text("0")
        assert await seen.looks(2) == [ONCE, NONE]
        one.answer = text("2")
        assert await seen.looks() == [(False, "2 sessions")]


@pytest.mark.parametrize("change", ["uid", "path", "ip"])
async def test_what_was_known_of_another_pod_or_gate_does_not_count(change: str) -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy()))
        assert await seen.looks(2) == [ONCE, NONE]
        other = one.policy(endpoint=PodEndpoint(one.port, "/other")) if change == "path" else one.policy()
        ip = "127.0.0.2" if change == "ip" else "127.0.0.1"
        seen.follow(drain(other, uid="u-2" if change == "uid" else "u-1", ip=ip))
        assert seen.sessions.latest() == {}
        assert (await seen.looks())[0][0] is False


async def test_a_pod_that_is_followed_on_keeps_what_is_known_of_it() -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy()))
        await seen.looks(2)
        seen.follow(drain(one.policy(), telling=True, due_in_s=0))
        assert seen.sessions.latest()[BRIDGE].open
        seen.follow()
        assert seen.sessions.latest() == {}


async def test_a_pod_that_is_left_during_a_look_is_not_published() -> None:
    async with bridge() as one, watched(pod_timeout_s=0.5) as seen:
        one.answer = lambda: None
        seen.follow(drain(one.policy()))
        looking = asyncio.create_task(seen.sessions.look_once())
        await one.asked.wait()
        seen.follow()
        await looking
        assert seen.sessions.latest() == {}
        assert seen.changed == []


async def test_the_loop_hears_of_changes_and_not_of_numbers() -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy()))
        heard = []
        for body in ("5", "4", "0", "0", "0", "x", "y", "3"):
            one.answer = text(body)
            await seen.looks()
            heard.append(len(seen.changed))
        assert heard == [1, 1, 2, 3, 3, 4, 4, 5]
        assert set(seen.changed) == {BRIDGE}


async def test_many_pods_are_asked_at_the_same_time_but_not_all() -> None:
    at_once = most = 0

    async def slowly(request: web.Request) -> web.StreamResponse:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.05)
        at_once -= 1
        return web.Response(text="0")

    async with serve(slowly) as url, watched() as seen:
        how = DrainPolicy(endpoint=endpoint_of(url))
        seen.follow(*(drain(how, PodRef("sim", f"bridge-{i}")) for i in range(40)))
        await seen.sessions.look_once()
        assert len(seen.sessions.latest()) == 40
        assert 8 <= most <= 16


async def test_a_running_look_looks_at_new_pods_at_once_and_again_every_interval() -> None:
    async with bridge() as one, watched(interval_s=0.4) as seen:
        running = asyncio.create_task(seen.sessions.run())
        await asyncio.sleep(0.05)
        began = time.monotonic()
        seen.follow(drain(one.policy()))
        while BRIDGE not in seen.sessions.latest():
            await asyncio.sleep(0.01)
        assert time.monotonic() - began < 0.3
        assert not seen.sessions.latest()[BRIDGE].open
        for _ in range(5):  # more turns of the loop do not make more looks
            seen.follow(drain(one.policy()))
            await asyncio.sleep(0.01)
        assert len(one.requests) == 1
        while not seen.sessions.latest()[BRIDGE].open:
            await asyncio.sleep(0.01)
        assert time.monotonic() - began >= 0.2
        assert len(one.requests) == 2
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert one.told == []
