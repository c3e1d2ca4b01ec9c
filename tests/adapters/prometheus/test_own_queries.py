"""A query for a signal that is refused costs that signal, and nothing else: policies' own, and those built in."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from aiohttp import web

from autoscaler.adapters.prometheus import layout
from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.queries import TOO_MANY
from autoscaler.adapters.prometheus.ranges import MOST_POINTS
from autoscaler.adapters.prometheus.source import PrometheusMetrics
from autoscaler.core.history import ContainerRef, Gap, History, Measurements
from autoscaler.core.policy import Policy
from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid, Signal
from tests.adapters.prometheus.servers import FakePrometheus, refusal, result, serve
from tests.adapters.prometheus.watched import watched
from tests.adapters.prometheus.written import Everything, gauge, history, measure, told, usage
from tests.rig.prometheus_server import PrometheusServer

SIM = ContainerRef("sim", "sim-0", "app")


class Frames(Everything):
    """Reads two signals of its policy's own."""

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({"frameTime", "players"})


class Pressed(Everything):
    """Reads two signals that come built in."""

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({Signal.THROTTLED, Signal.CPU_PRESSURE})


OWN = {"frameTime": 'frame_seconds{pod=~"$pod"}', "players": 'max by (namespace, pod) (players{pod=~"$pod"})'}
POLICY = Policy("bridges", Frames({}), grid=Grid(60, 3600), signals=OWN)


async def measured(answer: Callable[[], web.Response], grid: Grid = POLICY.grid) -> tuple[Measurements, FakePrometheus]:
    """What comes of it where the query for frameTime is answered so."""
    server = FakePrometheus(1_795_759_217, {SIM: (lambda at: 0.5, lambda at: 1e9)})

    def intercept(path: str, form: Mapping[str, str]) -> web.StreamResponse | None:
        if not path.endswith("query_range"):
            return None
        if "players" in form["query"]:
            return result("matrix", [{"metric": SIM._asdict(), "values": [[int(form["end"]), "7"]]}])
        return answer() if "frame_seconds" in form["query"] else None

    server.intercept = intercept
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url, timeout_s=5), now=lambda: server.clock)
        metrics.follow({SIM: replace(POLICY, grid=grid)})
        found = await metrics.measure_once()
        metrics.close()
    return found, server


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: refusal(400, "bad_data", "parse error: unexpected end"), "(HTTP 400): parse error: unexpected end"),
        (lambda: refusal(422, "execution", "found duplicate series"), "(HTTP 422): found duplicate series"),
        (lambda: refusal(422, "execution", "too many samples"), "too many samples"),
        (lambda: result("string", [1, "no"]), "is not Prometheus'"),
    ],
)
async def test_the_signal_is_missing_and_everything_else_goes_on(
    answer: Callable[[], web.Response], words: str
) -> None:
    found, _ = await measured(answer)
    state = history(found, SIM).state
    np.testing.assert_allclose(state.cpu, 0.5)
    np.testing.assert_allclose(state.memory, 1e9)
    assert np.isnan(state.signal("frameTime")).all()
    assert np.nanmax(state.signal("players")) == 7
    (problem,) = found.problems
    assert (problem.source, problem.reason) == ("Prometheus", "SignalUnavailable")
    assert problem.detail.startswith("metrics.signals.frameTime of policy bridges is missing: http://127.0.0.1:")
    assert words in problem.detail


async def test_a_query_at_fault_is_asked_once_a_batch() -> None:
    _, server = await measured(lambda: refusal(400, "bad_data", "parse error"), Grid())
    asked = [form for form in server.ranges if "frame_seconds" in form["query"]]
    assert len(asked) < len([form for form in server.ranges if "players" in form["query"]])


async def test_a_server_in_trouble_is_no_fault_of_the_query() -> None:
    """It is asked again next time, so that no part of a back-fill is lost for good."""
    found, _ = await measured(lambda: refusal(429, "unavailable", "slow down"))
    lost = found.of(SIM)
    assert isinstance(lost, Gap)
    assert lost.reason is Reason.METRICS_UNAVAILABLE
    assert [problem.reason for problem in found.problems] == [Reason.METRICS_UNAVAILABLE]


PRESSURE = f"rate({layout.CPU_PRESSURE}"


async def refused(word: str, answer: Callable[[], web.Response]) -> tuple[Measurements, Measurements]:
    """What comes of it where every range query with that word is answered so; and a minute later of a server that
    answers everything."""
    server = FakePrometheus(1_795_759_217, {SIM: (lambda at: 0.5, lambda at: 1e9)})
    server.intercept = lambda path, form: answer() if path.endswith("query_range") and word in form["query"] else None
    policy = replace(POLICY, recommender=Pressed({}), signals={})
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url, timeout_s=5), now=lambda: server.clock)
        metrics.follow({SIM: policy})
        during = await metrics.measure_once()
        server.intercept, server.now = None, server.now + 60
        after = await metrics.measure_once()
        metrics.close()
    return during, after


@pytest.mark.parametrize(
    "answer",
    [
        lambda: refusal(422, "execution", "found duplicate series for the match group"),
        lambda: refusal(400, "bad_data", "parse error: unknown function"),
        lambda: refusal(422, "execution", "query processing would load too many samples into memory"),
    ],
)
async def test_so_it_is_with_signals_that_come_built_in(answer: Callable[[], web.Response]) -> None:
    """Nor is it said that nodes do not count pressure: nobody knows. It comes back by itself."""
    during, after = await refused(PRESSURE, answer)
    state = history(during, SIM).state
    np.testing.assert_allclose(state.cpu, 0.5)
    np.testing.assert_allclose(state.memory, 1e9)
    assert np.isnan(state.signal(Signal.CPU_PRESSURE)).all()
    assert np.isfinite(state.signal(Signal.THROTTLED)).all()
    (problem,) = during.problems
    assert problem.reason is Trouble.SIGNAL_UNAVAILABLE
    assert problem.detail.startswith("the signal cpuPressure of policy bridges is missing: http://127.0.0.1:")
    assert after.problems == ()
    assert np.isfinite(history(after, SIM).state.signal(Signal.CPU_PRESSURE)[-1])


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (PRESSURE, lambda: refusal(503, "unavailable", "starting")),
        (PRESSURE, lambda: web.Response(text="<html>Log in</html>", content_type="text/html")),
        (layout.MEMORY, lambda: refusal(422, "execution", "found duplicate series")),
        (layout.CPU, lambda: refusal(400, "bad_data", "parse error")),
    ],
)
async def test_trouble_of_the_server_and_usage_itself_cost_the_batch(
    word: str, answer: Callable[[], web.Response]
) -> None:
    during, after = await refused(word, answer)
    lost = during.of(SIM)
    assert isinstance(lost, Gap)
    assert lost.reason is Reason.METRICS_UNAVAILABLE
    assert np.isfinite(history(after, SIM).state.signal(Signal.CPU_PRESSURE)).all()


@pytest.mark.parametrize(("others", "refused"), [(99_990, False), (100_001, True)])
async def test_a_query_that_finds_more_than_may_be_answered_costs_its_signal_and_says_the_number(
    others: int, refused: bool
) -> None:
    """The server is told how many; here it is one that does as it is told."""
    server, asked = FakePrometheus(1_795_759_217, {SIM: (lambda at: 0.5, lambda at: 1e9)}), 0

    def intercept(path: str, form: Mapping[str, str]) -> web.StreamResponse | None:
        nonlocal asked
        if "frame_seconds" not in form["query"]:
            return None
        asked += 1
        bound = re.search(r"<= (\d+)\)", form["query"])
        assert bound is not None, "asked without a bound"
        assert int(bound[1]) * (1 + (int(form["end"]) - int(form["start"])) // int(form["step"])) <= MOST_POINTS
        number = {"metric": {TOO_MANY: "series"}, "values": [[int(form["end"]), f"{others}"]]}
        return result("matrix", [number] if others > int(bound[1]) else [])

    server.intercept = intercept
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url, timeout_s=5), now=lambda: server.clock)
        metrics.follow({SIM: POLICY})
        found = await metrics.measure_once()
        metrics.close()
    assert isinstance(found.of(SIM), History)
    assert told(found) == (["SignalUnavailable"] if refused else [])
    if refused:
        detail = found.problems[0].detail
        assert "metrics.signals.frameTime of policy bridges is missing" in detail
        assert "finds 100,001 series, and 100,000 samples are read at once at most" in detail
        assert asked < 20


async def test_each_query_is_bounded_until_it_was_answered_itself() -> None:
    """Not the signal of its name: another policy's may find any number."""
    other = ContainerRef("sim", "sim-1", "app")
    usage_of = (lambda at: 0.5, lambda at: 1e9)
    server = FakePrometheus(1_795_759_217, {SIM: usage_of, other: usage_of})

    def intercept(path: str, form: Mapping[str, str]) -> web.StreamResponse | None:
        if not path.endswith("query_range") or "frame_seconds" not in form["query"]:
            return None
        return result("matrix", [{"metric": SIM._asdict(), "values": [[int(form["end"]), "7"]]}])

    server.intercept = intercept
    grid = Grid(60, 600)
    second = replace(POLICY, name="second", grid=grid, signals={"frameTime": "many_frame_seconds", "players": "1"})
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url, timeout_s=5), now=lambda: server.clock)
        for wanted in ({SIM: replace(POLICY, grid=grid)}, {other: second}):
            metrics.follow(wanted)
            await metrics.measure_once()
            server.now += 60
        asked = [form["query"] for form in server.ranges if "frame_seconds" in form["query"]]
        assert len(asked) == 2
        assert all(f"<= {MOST_POINTS // 10}" in query for query in asked)
        await metrics.measure_once()
        metrics.close()
    assert [form["query"] for form in server.ranges].count("many_frame_seconds") == 1  # it is known by now


async def test_a_query_whose_series_are_of_no_pod_is_told_so_and_not_how_many_they_are() -> None:
    total = {"metric": {}, "values": [[1_795_759_140, "42"]]}
    found, _ = await measured(lambda: result("matrix", [total]), Grid(60, 600))
    (problem,) = found.problems
    assert problem.reason is Trouble.SIGNAL_UNAVAILABLE
    assert problem.detail.endswith(
        "finds series without the label pod; let the query keep it, as sum by (namespace, pod) (…) does"
    )
    assert isinstance(found.of(SIM), History)


async def test_a_real_server_answers_no_more_than_it_is_told(prometheus: PrometheusServer) -> None:
    sim = SIM._replace(namespace="own-many")
    prometheus.write(usage(sim, 0.5, 2.0**30))
    prometheus.write(
        gauge("frame_seconds", {"namespace": sim.namespace, "pod": sim.pod, "le": f"{i}"}, float(i)) for i in range(400)
    )
    async with watched(prometheus.url) as proxy:
        metrics = PrometheusMetrics(Access(proxy.url), now=lambda: datetime.now(UTC))
        metrics.follow({sim: replace(POLICY, grid=Grid(1, 600))})
        found = await metrics.measure_once()
        metrics.close()
    # 400 series and 600 instants are asked for in parts; the greatest of the series counts
    assert max(one.samples for one in proxy.exchanges) <= MOST_POINTS
    assert set(history(found, sim).state.signal("frameTime").tolist()) == {399}
    assert told(found) == []


async def test_prometheus_itself_refuses_one(prometheus: PrometheusServer) -> None:
    """Two series for one match: an error that depends on the data, which no check of the grammar can foresee."""
    sim = SIM._replace(namespace="own-fails")
    prometheus.write(usage(sim, 0.5, 2.0**30))
    prometheus.write(usage(sim, 0.5, 2.0**30, job="b"))
    memory = 'container_memory_working_set_bytes{namespace=~"$namespace",pod=~"$pod"}'
    signals = OWN | {"frameTime": f"{memory} / on (pod) {memory}"}
    found = await measure(prometheus.url, {sim: replace(POLICY, grid=Grid(60, 600), signals=signals)})
    assert isinstance(found.of(sim), History)
    assert told(found) == ["SignalUnavailable", "AmbiguousSource"]
    assert "duplicate series" in found.problems[0].detail
