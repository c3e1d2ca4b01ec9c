"""Gates that ask Prometheus: a small one that answers as a test wants, and the real one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from autoscaler.adapters.sessions.query import NOT_SAID
from autoscaler.core.history import Gap
from autoscaler.core.model import PodRef
from autoscaler.core.policy import DrainPolicy
from autoscaler.core.reasons import Reason
from tests.adapters.prometheus.servers import FakePrometheus, refusal, result, serve
from tests.adapters.sessions.bridges import BRIDGE, NOW, Watched, drain, endpoint_of, watched
from tests.rig.prometheus_server import PrometheusServer

QUERY = 'sum by (namespace, pod) (bridge_sessions{pod=~"$pod"})'
HOW = DrainPolicy(query=QUERY)

Answer = Callable[[str], web.StreamResponse]


def vector(*series: tuple[Mapping[str, str], str]) -> web.Response:
    return result("vector", [{"metric": labels, "value": [NOW.timestamp(), value]} for labels, value in series])


def of(*values: str, **labels: str) -> web.Response:
    """Several values: of a query that leaves another label."""
    one = {"namespace": "sim", "pod": "bridge-0", **labels}
    return vector(*(({**one, "user": str(n)} if n else one, value) for n, value in enumerate(values)))


@asynccontextmanager
async def asking(answer: Answer, queries: list[str] | None = None, **more: Any) -> AsyncIterator[Watched]:
    kept = [] if queries is None else queries

    def intercept(path: str, form: Mapping[str, str]) -> web.StreamResponse:
        kept.append(form["query"])
        return answer(form["query"])

    fake = FakePrometheus(NOW.timestamp(), intercept=intercept)
    async with serve(fake.handle) as url, watched(url, **more) as seen:
        yield seen


AT_FIRST = (False, "no sessions for 0 s of 60 s")
OPENS = 13
"""Looks, 5 s apart."""


async def test_no_sessions_for_a_minute_open_a_gate() -> None:
    async with asking(lambda query: of("0")) as seen:
        seen.follow(drain(HOW))
        found = await seen.looks(OPENS + 1)
        assert found[0] == AT_FIRST
        assert found[4] == (False, "no sessions for 20 s of 60 s")
        assert found[11:] == [(False, "no sessions for 55 s of 60 s"), (True, "no sessions"), (True, "no sessions")]
        assert len(seen.changed) == 2  # when nobody was there at first, and when it opened
        gate = seen.sessions.latest()[BRIDGE]
        assert (gate.uid, gate.measured_at, gate.known) == ("u-1", NOW, True)


async def test_what_an_exporter_says_of_a_pod_is_not_its_own() -> None:
    """Scraped without honouring labels: the plain ones are the exporter's."""

    def exported(query: str) -> web.Response:
        own = {"namespace": "sim", "pod": "exporter-0", "exported_namespace": "sim"}
        return vector(({**own, "exported_pod": "bridge-0"}, "3"), ({**own, "exported_pod": "bridge-1"}, "4"))

    async with asking(exported) as seen:
        seen.follow(drain(HOW))
        assert await seen.looks(1) == [(False, "3 sessions")]


async def test_a_number_that_flaps_from_scrape_to_scrape_keeps_a_gate_closed_however_often_a_sample_is_read() -> None:
    scraped = [value for value in ("0", "1") for _ in range(6)] * 5  # each 30 s, looked at every 5 s
    values = iter([*scraped, *["0"] * OPENS])
    async with asking(lambda query: of(next(values))) as seen:
        seen.follow(drain(HOW))
        found = await seen.looks(len(scraped))
        assert {is_open for is_open, _ in found} == {False}
        assert {detail for _, detail in found[:6]} == {
            f"no sessions for {quiet} s of 60 s" for quiet in range(0, 30, 5)
        }
        assert await seen.looks() == [AT_FIRST]
        assert [is_open for is_open, _ in await seen.looks(OPENS - 1)] == [False] * (OPENS - 2) + [True]


@pytest.mark.parametrize("apart_s", [0, 3600])
async def test_looks_that_are_close_together_or_far_apart_say_little_about_a_minute(apart_s: float) -> None:
    async with asking(lambda query: of("0")) as seen:
        seen.follow(drain(HOW))
        assert await seen.looks() == [AT_FIRST]
        found = await seen.looks(6, apart_s=apart_s)
        assert [is_open for is_open, _ in found] == [False] * 5 + [apart_s > 0]
        assert found[0][1] == f"no sessions for {10 if apart_s else 0} s of 60 s"


@pytest.mark.parametrize("change", ["uid", "query"])
async def test_the_minute_begins_anew_for_another_pod_or_query(change: str) -> None:
    async with asking(lambda query: of("0")) as seen:
        seen.follow(drain(HOW))
        assert (await seen.looks(OPENS))[-1][0]
        seen.follow(drain(HOW, telling=True))
        assert (await seen.looks())[0][0]
        other = DrainPolicy(query=QUERY.replace("sum", "max")) if change == "query" else HOW
        seen.follow(drain(other, uid="u-2" if change == "uid" else "u-1"))
        assert await seen.looks() == [AT_FIRST]


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (of("3"), "3 sessions"),
        (of("0", "2", "1"), "2 sessions"),
        (of("0", "NaN"), "not known: {} says nan, which is no number of sessions"),
        (of("-1"), "not known: {} says -1, which is no number of sessions"),
        (of("+Inf"), "not known: {} says inf, which is no number of sessions"),
        (of("0", namespace="staging"), "not known: the query has no series for this pod in {}"),
        (of("0", pod="bridge-00"), "not known: the query has no series for this pod in {}"),
        (vector(), "not known: the query has no series for this pod in {}"),
        (result("scalar", [NOW.timestamp(), "0"]), None),
        (
            vector(({"pod": "bridge-0"}, "0")),
            "not known: the query has no series for this pod in {}; its series have no label namespace: "
            "write by (namespace, pod)",
        ),
        (
            result(
                "vector",
                [{"metric": {"namespace": "sim", "pod": "bridge-0"}, "value": [0, "0"]}],
                warnings=["store b is unreachable"],
            ),
            "not known: {} left data out: store b is unreachable",
        ),
        (
            refusal(400, "bad_data", 'invalid parameter "query": 1:5: parse error'),
            'not known: {} refused a query (HTTP 400): invalid parameter "query": 1:5: parse error '
            '(query: sum by (namespace, pod) (bridge_sessions{pod=~"(?:bridge-0)"}))',
        ),
        (web.Response(text="<html>login</html>", content_type="text/html"), None),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"}), None),
    ],
)
async def test_everything_else_keeps_a_gate_closed(answer: web.Response, detail: str | None) -> None:
    status, body, headers = answer.status, answer.body, answer.headers
    assert not isinstance(body, str)
    async with asking(lambda query: web.Response(status=status, body=body, headers=headers)) as seen:
        seen.follow(drain(HOW))
        found = await seen.looks(OPENS + 1)
        assert not any(is_open for is_open, _ in found)
        assert seen.sessions.latest()[BRIDGE].known is (detail is not None and not detail.startswith("not known"))
        if detail is not None:
            assert found[0][1] == detail.replace("{}", seen.url)
        assert len(found[0][1]) <= 320


async def test_a_series_without_namespace_counts_where_the_query_names_one() -> None:
    how = DrainPolicy(query='sum by (pod) (bridge_sessions{namespace=~"$namespace", pod=~"$pod"})')
    queries: list[str] = []
    async with asking(lambda query: vector(({"pod": "bridge-0"}, "0")), queries) as seen:
        seen.follow(drain(how))
        assert (await seen.looks(OPENS))[-1] == (True, "no sessions")
    assert queries[0] == 'sum by (pod) (bridge_sessions{namespace=~"(?:sim)", pod=~"(?:bridge-0)"})'


async def test_pods_are_asked_for_together_by_query_and_namespace() -> None:
    queries: list[str] = []

    def answer(query: str) -> web.Response:
        return vector(
            ({"namespace": "sim", "pod": "a.0"}, "0"),
            ({"namespace": "sim", "pod": "b"}, "1"),
            ({"namespace": "staging", "pod": "b"}, "2"),
        )

    async with asking(answer, queries) as seen:
        pods = [PodRef("sim", "b"), PodRef("sim", "a.0"), PodRef("staging", "b")]
        seen.follow(*(drain(HOW, ref) for ref in pods))
        await seen.sessions.look_once()
        assert [seen.sessions.latest()[ref].detail for ref in pods] == [
            "1 session",
            "no sessions for 0 s of 60 s",
            "2 sessions",
        ]
    assert sorted(queries) == [QUERY.replace("$pod", "(?:a[.]0|b)"), QUERY.replace("$pod", "(?:b)")]


async def test_very_many_pods_are_asked_for_in_parts() -> None:
    queries: list[str] = []
    async with asking(lambda query: vector(), queries) as seen:
        seen.follow(*(drain(HOW, PodRef("sim", f"b-{i}")) for i in range(600)))
        await seen.sessions.look_once()
        assert len(seen.sessions.latest()) == 600
    assert [query.count("|") + 1 for query in sorted(queries, key=len, reverse=True)] == [250, 250, 100]


async def test_a_prometheus_that_is_away_closes_what_was_open() -> None:
    up = True
    async with asking(lambda query: of("0") if up else refusal(503, "unavailable", "starting")) as seen:
        seen.follow(drain(HOW))
        assert (await seen.looks(OPENS))[-1][0]
        up = False
        ((is_open, detail),) = await seen.looks()
        assert not is_open
        assert detail.startswith(f"not known: {seen.url} refused a query (HTTP 503): starting")
        assert not seen.sessions.latest()[BRIDGE].known
        up = True
        assert await seen.looks() == [AT_FIRST]
        assert (await seen.looks(OPENS - 1))[-1][0]


async def test_a_prometheus_that_never_answers_keeps_no_other_gate_from_opening() -> None:
    over = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        await over.wait()
        return web.Response()

    async def none(request: web.Request) -> web.StreamResponse:
        return web.Response(text="0")

    async with (
        serve(hang) as url,
        serve(none) as pod_url,
        watched(url, query_timeout_s=0.6, interval_s=0.2) as seen,
    ):
        other = PodRef("sim", "bridge-1")
        how = DrainPolicy(endpoint=endpoint_of(pod_url))
        running = asyncio.create_task(seen.sessions.run())
        seen.follow(drain(HOW), drain(how, other))
        began = time.monotonic()
        while other not in seen.sessions.latest():
            await asyncio.sleep(0.01)
        assert time.monotonic() - began < 0.4
        while not seen.sessions.latest()[other].open:
            await asyncio.sleep(0.01)
        assert seen.sessions.latest()[BRIDGE].detail.startswith(f"not known: {url} did not answer within 0.6 s")
        over.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_real_prometheus_says_who_has_sessions(prometheus: PrometheusServer) -> None:
    now = time.time()
    live = {"drain-idle.0": 0.0, "drain-busy": 2.0, "drain-ended": float("nan")}
    prometheus.write(
        ({"__name__": "bridge_sessions", "namespace": "drains", "pod": pod, "protocol": kind}, [(now, value)])
        for pod, value in live.items()
        for kind in ("websocket", "grpc")
    )
    prometheus.write([({"__name__": "bridge_sessions", "namespace": "elsewhere", "pod": "drain-gone"}, [(now, 0.0)])])
    refs = [PodRef("drains", name) for name in (*live, "drain-gone", "drain-idle-0")]
    async with watched(prometheus.url) as seen:
        seen.follow(*(drain(HOW, ref) for ref in refs))
        for _ in range(OPENS):
            await seen.sessions.look_once()
            seen.waited_s[0] += 5
        gates = seen.sessions.latest()
        assert {ref.name: gates[ref].open for ref in refs} == {
            "drain-idle.0": True,
            "drain-busy": False,
            "drain-ended": False,
            "drain-gone": False,
            "drain-idle-0": False,
        }
        assert gates[refs[1]].detail == "4 sessions"
        seen.follow(drain(DrainPolicy(query='sum by (bridge_sessions{pod=~"$pod"})'), refs[0]))
        await seen.sessions.look_once()
        assert "parse error" in seen.sessions.latest()[refs[0]].detail


IN_CLUSTER = 'sum by (namespace, pod) (bridge_sessions{pod=~"$pod",$cluster})'


async def test_the_cluster_is_part_of_what_is_asked() -> None:
    asked = list[str]()
    for which in ((), ('cluster="eu"', 'site=~"a|"')):
        async with asking(lambda query: of("0"), asked, of_cluster=lambda which=which: which) as seen:
            seen.follow(drain(DrainPolicy(query=IN_CLUSTER)))
            assert await seen.looks() == [AT_FIRST]
    assert asked == [
        'sum by (namespace, pod) (bridge_sessions{pod=~"(?:bridge-0)",cluster=~".*"})',
        'sum by (namespace, pod) (bridge_sessions{pod=~"(?:bridge-0)",cluster="eu",site=~"a|"})',
    ]


async def test_where_settings_choose_a_cluster_a_query_that_says_none_closes_its_gate() -> None:
    """The pod of another cluster that has the name may have no sessions. One that names the same labels is asked."""
    chosen = ('cluster="eu"', 'site!=""')
    literal = 'sum by (namespace, pod) (bridge_sessions{cluster="eu", site != "", pod=~"$pod"})'
    partly = literal.replace('cluster="eu", ', 'my_cluster="eu", ')
    for query, closed in ((QUERY, True), (partly, True), (literal, False), (IN_CLUSTER, False)):
        asked = list[str]()
        async with asking(lambda query: of("0"), asked, of_cluster=lambda: chosen, chosen=chosen) as seen:
            seen.follow(drain(DrainPolicy(query=query)))
            (found,) = await seen.looks()
            if closed:
                assert found == (False, f"not known: {seen.url}: {NOT_SAID}")
                assert not seen.sessions.latest()[BRIDGE].known
            else:
                assert found == AT_FIRST
            assert bool(asked) is not closed


@pytest.mark.parametrize("query", [QUERY, IN_CLUSTER])
async def test_gates_are_closed_as_long_as_there_are_several_clusters(query: str) -> None:
    """The pod of another cluster that has the name may have no sessions."""
    which: list[tuple[str, ...] | Gap] = [('cluster="eu"',)]
    asked = list[str]()
    async with asking(lambda query: of("0"), asked, of_cluster=lambda: which[0]) as seen:
        seen.follow(drain(DrainPolicy(query=query)))
        assert (await seen.looks(OPENS))[-1][0]
        which[0] = Gap(Reason.CLUSTER_AMBIGUOUS, "eu and us; say which")
        asked.clear()
        assert await seen.looks() == [(False, f"not known: {seen.url}: eu and us; say which")]
        assert not seen.sessions.latest()[BRIDGE].known
        assert asked == []
        which[0] = ('cluster="eu"',)
        assert await seen.looks() == [AT_FIRST]


async def test_a_cluster_that_is_not_known_yet_closes_gates_that_name_it() -> None:
    unknown = Gap(Reason.NO_DATA, "nothing found yet")
    for query, expected in ((QUERY, AT_FIRST[1]), (IN_CLUSTER, "nothing found yet")):
        async with asking(lambda query: of("0"), of_cluster=lambda: unknown) as seen:
            seen.follow(drain(DrainPolicy(query=query)))
            ((is_open, detail),) = await seen.looks()
            assert not is_open
            assert expected in detail
