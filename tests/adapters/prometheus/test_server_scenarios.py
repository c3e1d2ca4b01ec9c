"""Recorded scenarios of Prometheus as a server (PRM-…), against a small one that answers as it is told."""

import asyncio
import math
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from aiohttp import web

from autoscaler.adapters.prometheus import ranges
from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.adapters.prometheus.source import PrometheusMetrics
from autoscaler.adapters.prometheus.traffic import Failure, Traffic
from autoscaler.core.history import ContainerRef, History, Measurements
from autoscaler.core.policy import Policy
from autoscaler.core.recommender import Grid
from autoscaler.recommenders.parameters import parse_duration
from tests.adapters.prometheus.servers import SCRAPE_S, FakePrometheus, refusal, result, serve
from tests.adapters.prometheus.written import POLICY

NOW = 1_795_759_217
SIM = ContainerRef("sim", "sim-0", "app")


async def measured(server: FakePrometheus, wanted: Mapping[ContainerRef, Policy]) -> tuple[Measurements, Traffic]:
    traffic = Traffic()
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url, timeout_s=5), now=lambda: server.clock, traffic=traffic)
        metrics.follow(wanted)
        found = await metrics.measure_once()
        metrics.close()
    return found, traffic


def usage(at: int) -> float:
    return 0.5


async def test_prm_03_2000_pods_and_two_weeks_are_asked_for_in_moderation() -> None:
    """Two queries at a time, none of too many samples, less where a server says so, and again a moment later."""
    pods = [ContainerRef("sim", f"sim-{i}", "app") for i in range(2000)]
    server = FakePrometheus(NOW, dict.fromkeys(pods, (usage, usage)))
    under_way = most = refused = 0
    asked: list[float] = []
    answers = [
        refusal(503, "unavailable", "busy"),
        refusal(422, "execution", "query processing would load too many samples into memory in query execution"),
    ]

    async def answer(form: Mapping[str, str]) -> web.Response:
        nonlocal under_way, most, refused
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.002)
        under_way -= 1
        steps = (int(form["end"]) - int(form["start"])) // int(form["step"]) + 1
        named = re.search(r'pod=~"([^"]+)"', form["query"])
        assert named is not None
        points = steps * (named[1].count("|") + 1)
        assert points <= ranges.MOST_POINTS
        if answers:
            refused = points
            return answers.pop(0)
        asked.append(points)
        return result("matrix", [])

    server.intercept = lambda path, form: answer(form) if path.endswith("query_range") else None
    _, traffic = await measured(server, dict.fromkeys(pods, replace(POLICY, grid=Grid())))
    counts = traffic.counts()
    assert most == 2
    end = ranges.newest_instant(NOW, SCRAPE_S, 60)
    instants = sum(map(len, ranges.spans(None, end, Grid())))
    assert sum(asked) == 2 * 2000 * instants  # CPU and memory, each instant once
    assert sum(points > refused // 2 for points in asked) <= 2  # what was under way by then, or was tried again
    assert counts.queries >= len(asked) + 2
    assert counts.failures[Failure.SERVER] == counts.failures[Failure.TOO_MUCH] == 1


@pytest.mark.parametrize(("text", "seconds"), [("1h", 3600), ("90m", 5400), ("36h", 129600), ("13d", 1123200)])
async def test_prm_04_a_look_back_is_asked_for_to_the_second(text: str, seconds: int) -> None:
    grid = Grid(60, int(parse_duration(text).total_seconds()))
    server = FakePrometheus(NOW, {SIM: (usage, usage)})
    server.intercept = lambda path, form: result("matrix", []) if path.endswith("query_range") else None
    await measured(server, {SIM: replace(POLICY, grid=grid)})
    for word in ("rate(", "max_over_time("):
        forms = [form for form in server.ranges if word in form["query"]]
        first = min(forms, key=lambda form: int(form["start"]))
        newest = max(int(form["end"]) for form in forms)
        whole = int(first["start"]) - int(first["step"])
        assert 0 <= (newest - seconds) - whole < grid.block  # a block that is begun is read whole, never less
        assert all(re.search(r"\[\d+s\]", form["query"]) for form in forms)
        assert not any(re.search(r"\[[^\]]*[dhm]\]|\[0", form["query"]) for form in forms)


def test_prm_05_two_weeks_in_steps_of_30_s_are_asked_for_in_parts_that_meet() -> None:
    pieces = ranges.chunks(Span(NOW // 30 * 30, NOW // 30 * 30 + 30 * 40_319, 30), 1)
    assert len(pieces) >= math.ceil(40_320 / 11_000)
    assert max(map(len, pieces)) <= 11_000
    instants = [at for piece in pieces for at in range(piece.first, piece.last + 1, piece.step)]
    assert instants == list(range(NOW // 30 * 30, NOW // 30 * 30 + 30 * 40_319 + 1, 30))


async def test_prm_10_nothing_but_queries_is_asked() -> None:
    """No list of labels, no metadata, nothing of Prometheus' own series: other servers have none of it."""
    server = FakePrometheus(NOW, {SIM: (usage, usage)})
    found, traffic = await measured(server, {SIM: POLICY})
    assert isinstance(found.of(SIM), History)
    assert found.problems == ()
    assert {path for path, _ in server.requests} == {"/api/v1/query", "/api/v1/query_range"}
    assert not [form for _, form in server.requests if "prometheus_" in form["query"]]
    assert sum(traffic.counts().failures.values()) == 0
