"""What asking Prometheus costs, and what fails, is counted and shown as metrics."""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.retries import retried
from autoscaler.adapters.prometheus.session import PrometheusApi
from autoscaler.adapters.prometheus.source import PrometheusMetrics
from autoscaler.adapters.prometheus.traffic import Failure, Traffic, failure_of
from autoscaler.adapters.telemetry.traffic import TrafficMetrics
from autoscaler.core.history import ContainerRef, Gap, Measurements
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from tests.adapters.prometheus.servers import FakePrometheus, refusal, result, serve
from tests.adapters.prometheus.written import POLICY, history

SIM = ContainerRef("sim", "sim-0", "app")
NOW = 1_795_759_217


@pytest.mark.parametrize(
    ("status", "error_type", "text", "kind"),
    [
        (None, "hang", "did not answer", Failure.TIMEOUT),
        (503, "timeout", "query timed out", Failure.TIMEOUT),
        (None, "connection", "refused", Failure.CONNECTION),
        (None, "broken_off", "half a body", Failure.CONNECTION),
        (400, "tls", "speaks https", Failure.CONNECTION),
        (401, "not_json", "no org id", Failure.CREDENTIALS),
        (302, "empty", "login page", Failure.CREDENTIALS),
        (422, "execution", "would load too many samples", Failure.TOO_MUCH),
        (400, "bad_data", "exceeded maximum resolution of 11,000 points", Failure.TOO_MUCH),
        (200, "too_large", "16 MiB", Failure.TOO_MUCH),
        (422, "execution", "found duplicate series", Failure.QUERY),
        (400, "bad_data", "parse error", Failure.QUERY),
        (429, "too_many_requests", "slow down", Failure.SERVER),
        (502, "html", "bad gateway", Failure.SERVER),
        (503, "canceled", "query was canceled", Failure.SERVER),
        (200, "html", "hello", Failure.NOT_PROMETHEUS),
        (404, "not_json", "not found", Failure.NOT_PROMETHEUS),
    ],
)
def test_a_failure_is_of_one_kind(status: int | None, error_type: str, text: str, kind: Failure) -> None:
    assert failure_of(MetricsError(status, error_type, text)) is kind


def exposed(traffic: Traffic) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(TrafficMetrics(traffic))
    lines = generate_latest(registry).decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line[0] != "#")
    return {name.removeprefix("bridge_autoscaler_prometheus_"): float(value) for name, value in values.items()}


async def test_what_is_asked_and_answered_is_counted_and_each_try_counts() -> None:
    requests: list[str] = []
    vector = [{"metric": {"copy": value}, "value": [NOW, value]} for value in ("1", "2")]

    async def handler(request: web.Request) -> web.StreamResponse:
        requests.append(request.path)
        return refusal(503, "canceled", "again") if len(requests) == 2 else result("vector", vector)

    traffic = Traffic()
    async with serve(handler) as url:
        # a controller has two clients of one Prometheus
        first, second = (PrometheusApi(Access(url), traffic) for _ in range(2))
        await asyncio.to_thread(first.instant, "up")
        await asyncio.to_thread(retried, second.instant, "up")
    counts = traffic.counts()
    assert (counts.queries, counts.samples, counts.failures[Failure.SERVER]) == (3, 4, 1)
    assert counts.words == "Prometheus: 3 queries, 4 samples in the answers"
    assert exposed(traffic) == {
        "queries_total": 3,
        "samples_total": 4,
        **{f'failures_total{{kind="{kind}"}}': kind is Failure.SERVER for kind in Failure},
        'dropped_samples_total{reason="NonFiniteSamples"}': 0,
        'dropped_samples_total{reason="SentinelSamples"}': 0,
        'ignored_series_total{reason="UnknownPod"}': 0,
    }


async def test_prm_11_samples_that_are_no_numbers_are_counted() -> None:
    """Of 1, NaN, 2, +Inf and NaN, 1 and 2 are used."""
    at = range(NOW // 60 * 60 - 300, NOW // 60 * 60, 60)
    values = [list(pair) for pair in zip(at, ("1", "NaN", "2", "+Inf", "NaN"), strict=True)]

    def intercept(path: str, form: Mapping[str, str]) -> web.Response | None:
        return result("matrix", [{"metric": SIM._asdict(), "values": values}]) if asks_cpu(path, form) else None

    server = FakePrometheus(NOW, {SIM: (lambda at: 0, lambda at: 1e9)}, intercept)
    found, traffic = await measured(server, {SIM: POLICY})
    cpu = history(found, SIM).state.cpu
    assert cpu[np.isfinite(cpu)].tolist() == [1, 2]
    assert traffic.counts().not_finite == 3
    assert exposed(traffic)['dropped_samples_total{reason="NonFiniteSamples"}'] == 3


async def test_between_the_instants_that_were_asked_for_nothing_counts_and_of_copies_the_greatest() -> None:
    """As of a server that takes no notice of `step`, or of `by`."""
    at = range(NOW // 60 * 60 - 300, NOW // 60 * 60, 60)
    values = [[stamp + aside, value] for stamp in at for aside, value in ((0, "2"), (15, "3"), (45, "4"))]
    copies = [[stamp, str(n)] for n, stamp in enumerate(at)]

    def intercept(path: str, form: Mapping[str, str]) -> web.Response | None:
        both = {"first": values, "second": copies}
        series = [{"metric": SIM._asdict() | {"id": name}, "values": found} for name, found in both.items()]
        return result("matrix", series) if asks_cpu(path, form) else None

    found, _ = await measured(FakePrometheus(NOW, {SIM: (lambda at: 0, lambda at: 1e9)}, intercept), {SIM: POLICY})
    cpu = history(found, SIM).state.cpu
    assert cpu[np.isfinite(cpu)].tolist() == [2, 2, 2, 3, 4]


async def test_series_of_pods_that_are_not_followed_are_counted() -> None:
    """Of a pod's other containers they are not."""
    usage = (lambda at: 0.5, lambda at: 1e9)
    others = [SIM._replace(container="envoy"), SIM._replace(pod="gone"), SIM._replace(namespace="other")]
    found, traffic = await measured(FakePrometheus(NOW, dict.fromkeys([SIM, *others], usage)), {SIM: POLICY})
    assert set(found.histories) == {SIM}
    assert traffic.counts().unknown_pods == 2 * 2  # of CPU and of memory
    assert exposed(traffic)['ignored_series_total{reason="UnknownPod"}'] == 4


async def test_prm_12_a_query_that_is_never_answered_is_given_up_and_costs_no_one_else() -> None:
    """Everything else goes on meanwhile: other pods are measured, and whoever renews a lease gets to do so."""
    stuck = SIM._replace(pod="stuck")
    usage = (lambda at: 0.5, lambda at: 1e9)

    async def never() -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    def intercept(path: str, form: Mapping[str, str]) -> Awaitable[web.StreamResponse] | None:
        return never() if "[600s]" in form["query"] and asks_cpu(path, form) else None

    server = FakePrometheus(NOW, {SIM: usage, stuck: usage}, intercept)
    wanted = {SIM: POLICY, stuck: replace(POLICY, rate_window=timedelta(minutes=10))}
    renewed: list[float] = []

    async def renew() -> None:
        while True:
            renewed.append(time.monotonic())
            await asyncio.sleep(0.02)

    renewing = asyncio.create_task(renew())
    found, traffic = await measured(server, wanted, timeout_s=0.5)
    renewing.cancel()
    assert max(np.diff(renewed)) < 0.4  # less than the time that a query may take
    np.testing.assert_allclose(history(found, SIM).state.cpu, 0.5)
    lost = found.of(stuck)
    assert isinstance(lost, Gap)
    assert lost.reason is Reason.METRICS_UNAVAILABLE
    assert "did not answer within 0.5 s" in lost.detail
    assert traffic.counts().failures[Failure.TIMEOUT] >= 1
    assert exposed(traffic)['failures_total{kind="timeout"}'] >= 1


def asks_cpu(path: str, form: Mapping[str, str]) -> bool:
    return path.endswith("query_range") and "rate(" in form["query"]


async def measured(
    server: FakePrometheus, wanted: Mapping[ContainerRef, Policy], *, timeout_s: float = 5
) -> tuple[Measurements, Traffic]:
    traffic = Traffic()
    async with serve(server.handle) as url:
        access = Access(url, timeout_s=timeout_s)
        metrics = PrometheusMetrics(access, now=lambda: server.clock, traffic=traffic)
        metrics.follow(wanted)
        found = await metrics.measure_once()
        metrics.close()
    return found, traffic
