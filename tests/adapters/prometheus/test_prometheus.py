"""Against a real Prometheus 3: what it answers to the queries, and what comes of it."""

import random
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta

import numpy as np
import pytest

from autoscaler.adapters.prometheus import ranges
from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.batch import Batch, Member
from autoscaler.adapters.prometheus.layout import CPU, IN_USE, MEMORY, Layout
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.adapters.prometheus.session import PrometheusApi
from autoscaler.core.history import ContainerRef, Gap, History
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid, Samples, Situation, Target, WindowRecommender
from tests.adapters.prometheus.written import history, measure, told
from tests.rig.prometheus_server import STALE, PrometheusServer

pytestmark = pytest.mark.rig

SCRAPE_S = 15
Points = list[tuple[float, float]]


class Window(WindowRecommender):
    name = "window"
    Parameters = dict

    def recommend(self, state: Samples, situation: Situation) -> Target:
        return Target(None, None)


def scrapes(seconds: int) -> list[int]:
    """Scrape times of the past, a little off the minute."""
    newest = int(time.time()) // SCRAPE_S * SCRAPE_S - 2
    return list(range(newest - seconds, newest + 1, SCRAPE_S))


def cpu_series(labels: Mapping[str, str], cores: float, at: list[int]) -> tuple[dict[str, str], Points]:
    return {"__name__": CPU, **labels}, [(t, cores * (t - at[0])) for t in at]


def memory_series(labels: Mapping[str, str], used: list[float], at: list[int]) -> tuple[dict[str, str], Points]:
    return {"__name__": MEMORY, **labels}, list(zip(at, used, strict=True))


def labels_of(container: ContainerRef, **more: str) -> dict[str, str]:
    return {**container._asdict(), **more}


async def test_usage_is_measured_once_however_often_it_is_exported(prometheus: PrometheusServer) -> None:
    namespace = "once"
    app, lone = ContainerRef(namespace, "a.b-0", "app"), ContainerRef(namespace, "other", "app")
    at = scrapes(1800)
    used = [1000.0 + i for i in range(len(at))]
    series = []
    for job in ("kubelet", "cadvisor"):
        for replica in ("0", "1"):
            more = labels_of(app, job=job, replica=replica)
            series += [cpu_series({**more, "cpu": "cpu00"}, 0.3, at), cpu_series({**more, "cpu": "cpu01"}, 0.2, at)]
            series.append(memory_series(more, used, at))
    for container in ("", "POD"):
        more = labels_of(app._replace(container=container), job="cadvisor")
        series += [cpu_series(more, 8, at), memory_series(more, [9e9] * len(at), at)]
    # the dot in the pod's name is no wildcard
    series.append(memory_series(labels_of(app._replace(pod="axb-0"), job="cadvisor"), [9e9] * len(at), at))
    prometheus.write(series)
    policy = Policy("p", Window({}), grid=Grid(60, 1200), rate_window=timedelta(minutes=2))
    measured = await measure(prometheus.url, {app: policy, lone: policy})
    assert told(measured) == ["AmbiguousSource"]  # a note
    assert measured.of(lone) == Gap(Reason.NO_DATA, "no samples in Prometheus")
    found = history(measured, app)
    assert len(found.state) == 20
    np.testing.assert_allclose(found.state.cpu, 0.5, rtol=1e-5)
    expected = [max(u for t, u in zip(at, used, strict=True) if t <= end) for end in found.state.end_at.tolist()]
    assert found.state.memory.tolist() == expected
    assert time.time() - 2 * SCRAPE_S - 120 < found.newest_at <= time.time() - 2 * SCRAPE_S


async def test_a_container_that_comes_back_goes_on(prometheus: PrometheusServer) -> None:
    container = ContainerRef("back", "bridge-0", "app")
    at = scrapes(1800)
    half = len(at) // 2
    series = [memory_series(labels_of(container, id="old"), [2e9] * half, at[:half])]
    series[0][1].append((at[half], STALE))
    series.append(memory_series(labels_of(container, id="new"), [1e9] * (len(at) - half), at[half:]))
    prometheus.write(series)
    policy = Policy("p", Window({}), grid=Grid(60, 1200))
    found = history(await measure(prometheus.url, {container: policy}), container)
    assert found.state.memory[0] == np.float32(2e9)
    assert found.state.memory[-1] == np.float32(1e9)
    assert np.isnan(found.state.cpu).all()


def folded(
    api: PrometheusApi, container: ContainerRef, before: History | None, after: int | None, end: int, grid: Grid
) -> History | None:
    """What the source does in one cycle, at an instant of the past."""
    batch = Batch({container: Member(before, Window({}))}, grid, 300, ranges.spans(after, end, grid), Layout())
    batch.open()
    for chunk in batch.chunks(ranges.MOST_POINTS):
        batch.fill(chunk, api.range(batch.query(chunk), chunk.span).result)
    return batch.fold()[container]


def test_restart_is_live(prometheus: PrometheusServer) -> None:
    """Minute by minute, and at once in blocks: the same state."""
    container = ContainerRef("restart", "bridge-0", "app")
    at = scrapes(4 * 3600)
    usage = random.Random(7)
    counter = np.cumsum([usage.random() * SCRAPE_S for _ in at]).tolist()
    cpu = ({"__name__": CPU, **labels_of(container)}, list(zip(at, counter, strict=True)))
    prometheus.write([cpu, memory_series(labels_of(container), [usage.random() * 1e9 for _ in at], at)])
    grid = Grid(60, 60 * 4321, fine=1200)
    assert grid.block == 300
    end = int(time.time()) // 60 * 60 - 180
    api = PrometheusApi(Access(prometheus.url))
    live, after = None, None
    for until in range(end - 3600, end + 1, 60):
        live, after = folded(api, container, live, after, until, grid), until
    restarted = folded(api, container, None, None, end, grid)
    api.close()
    assert live is not None
    assert restarted is not None
    assert len(live.state) > 40
    for one, other in ((live.state, restarted.state), (live.open, restarted.open), (live.recent, restarted.recent)):
        np.testing.assert_array_equal(one.end_at, other.end_at)
        np.testing.assert_array_equal(one.memory, other.memory)
        np.testing.assert_array_equal(one.cpu, other.cpu)


def test_refusals_are_those_that_are_expected(prometheus: PrometheusServer) -> None:
    api = PrometheusApi(Access(prometheus.url))
    with pytest.raises(MetricsError) as caught:
        api.range("vector(1)", Span(0, 60 * 11_001, 60))
    assert (caught.value.status, caught.value.error_type, caught.value.too_much) == (400, "bad_data", True)
    assert len(api.range("vector(1)", Span(0, 60 * 10_999, 60)).result[0].values) == ranges.MOST_STEPS
    with pytest.raises(MetricsError, match="parse error") as caught:
        api.instant("rate(")
    assert not caught.value.too_much
    assert not caught.value.passing
    with pytest.raises(MetricsError, match="another server, or a path"):
        PrometheusApi(Access(f"{prometheus.url}/elsewhere")).server_time()
    assert abs(api.server_time() - time.time()) < 5
    api.close()


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus that loads few samples for a query."""
    arguments = ["--query.max-samples=1000"]
    server = PrometheusServer(tmp_path_factory.mktemp("narrow"), out_of_order="100y", arguments=arguments)
    yield server
    server.stop()


async def test_ranges_that_are_too_much_are_halved(narrow: PrometheusServer) -> None:
    containers = [ContainerRef("narrow", f"bridge-{i}", "app") for i in range(10)]
    at = scrapes(3 * 3600)
    narrow.write(cpu_series(labels_of(container), 0.5, at) for container in containers)
    narrow.write(memory_series(labels_of(container), [1e9] * len(at), at) for container in containers)
    policy = Policy("p", Window({}), grid=Grid(60, 2 * 3600))
    measured = await measure(narrow.url, dict.fromkeys(containers, policy))
    assert told(measured) == []
    for container in containers:
        found = history(measured, container)
        assert len(found.state) == 120
        np.testing.assert_allclose(found.state.cpu, 0.5, rtol=1e-5)


async def test_the_same_names_with_unusual_characters(prometheus: PrometheusServer) -> None:
    container = ContainerRef("un$usual|.*", 'p"o\\d-{0}', "app")
    at = scrapes(900)
    prometheus.write([memory_series(labels_of(container, **{"odd": 'quo"te'}), [1e9] * len(at), at)])
    policy = Policy("p", Window({}), grid=Grid(60, 600))
    assert history(await measure(prometheus.url, {container: policy}), container).newest_at > time.time() - 300


async def test_memory_in_use_is_the_greatest_of_the_newest_samples_of_every_container(
    prometheus: PrometheusServer,
) -> None:
    """Twice exported, one sample of long ago, a container that is not sized; the pod's own cgroup is none of them."""
    app = ContainerRef("cache", "bridge-0", "app")
    at = scrapes(600)
    used = [9e9] * (len(at) - 6) + [1e9, 1e9, 1e9, 1e9, 3e9, 2e9]
    exported = (labels_of(app, job="a"), labels_of(app, job="b"), labels_of(app._replace(container=""), job="a"))
    series = [({"__name__": IN_USE, **labels}, list(zip(at, used, strict=True))) for labels in exported]
    proxy = app._replace(container="proxy")
    series.append(({"__name__": IN_USE, **labels_of(proxy)}, [(at[-1], 5e6)]))
    ended = app._replace(container="ended")
    series.append(({"__name__": IN_USE, **labels_of(ended)}, [(at[0], 5e6)]))
    prometheus.write([*series, memory_series(labels_of(app), [1e9] * len(at), at)])
    measured = await measure(prometheus.url, {app: Policy("p", Window({}), grid=Grid(60, 600))})
    assert measured.in_use.of == {app: 3_000_000_000, proxy: 5_000_000}
