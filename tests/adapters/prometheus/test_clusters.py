"""Several clusters behind one endpoint: against a real Prometheus 3."""

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.layout import ANY, CPU, IN_USE, MEMORY, Layout
from autoscaler.adapters.prometheus.source import PrometheusMetrics
from autoscaler.core.history import ContainerRef, Gap, History, Measurements
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid, Samples, Situation, Target, WindowRecommender
from tests.rig.prometheus_server import PrometheusServer, Series

pytestmark = pytest.mark.rig

SCRAPE_S = 15
GIB = 2.0**30


class Window(WindowRecommender):
    name = "window"
    Parameters = dict

    def recommend(self, state: Samples, situation: Situation) -> Target:
        return Target(None, None)


POLICY = Policy("p", Window({}), grid=Grid(60, 600))
EU = replace(ANY, matchers=('cluster="eu"',), cluster_labels=())


def usage(container: ContainerRef, cores: float, memory: float, **labels: str) -> list[Series]:
    """Twenty minutes of all three signals up to now."""
    newest = int(time.time()) // SCRAPE_S * SCRAPE_S - 2
    at = range(newest - 1200, newest + 1, SCRAPE_S)
    whose = {**container._asdict(), **labels}
    return [
        ({"__name__": CPU, **whose}, [(t, cores * (t - at[0])) for t in at]),
        ({"__name__": MEMORY, **whose}, [(t, memory) for t in at]),
        ({"__name__": IN_USE, **whose}, [(t, memory) for t in at]),
    ]


async def measure(url: str, wanted: Mapping[ContainerRef, Policy], layout: Layout = ANY) -> Measurements:
    metrics = PrometheusMetrics(Access(url), layout, now=lambda: datetime.now(UTC))
    metrics.follow(wanted)
    measured = await metrics.measure_once()
    metrics.close()
    return measured


def assert_uses(measured: Measurements, container: ContainerRef, cores: float, memory: float) -> None:
    found = measured.of(container)
    assert isinstance(found, History), found
    np.testing.assert_allclose(found.state.cpu[-5:], cores, rtol=1e-5)
    np.testing.assert_allclose(found.state.memory[-5:], memory, rtol=1e-5)
    assert measured.in_use.of[container] == memory


async def test_ser_09_two_clusters_hold_until_one_is_named(prometheus: PrometheusServer) -> None:
    container = ContainerRef("ser-09", "sim-0", "app")
    prometheus.write(usage(container, 0.5, GIB, cluster="eu") + usage(container, 4, 8 * GIB, cluster="us"))
    held = await measure(prometheus.url, {container: POLICY})
    found = held.of(container)
    assert isinstance(found, Gap)
    assert found.reason is Reason.CLUSTER_AMBIGUOUS
    for word in ('cluster="eu"', 'cluster="us"', "prometheus.layout.clusterMatcher"):
        assert word in found.detail
    assert held.in_use.of == {}
    assert_uses(await measure(prometheus.url, {container: POLICY}, EU), container, 0.5, GIB)


async def test_the_one_cluster_that_pods_are_in_is_found_out(prometheus: PrometheusServer) -> None:
    """Another one has the namespace as well, and other pods in it."""
    container = ContainerRef("one-cluster", "sim-0", "app")
    other = container._replace(pod="sim-1")
    prometheus.write(usage(container, 0.5, GIB, k8s_cluster="eu") + usage(other, 4, 8 * GIB, k8s_cluster="us"))
    assert_uses(await measure(prometheus.url, {container: POLICY}), container, 0.5, GIB)


async def test_what_another_cluster_brings_later_is_not_added(prometheus: PrometheusServer) -> None:
    container = ContainerRef("later", "sim-0", "app")
    prometheus.write(usage(container, 0.5, GIB))
    metrics = PrometheusMetrics(Access(prometheus.url), now=lambda: datetime.now(UTC))
    metrics.follow({container: POLICY})
    await metrics.measure_once()
    prometheus.write(usage(container, 4, 8 * GIB, cluster="us"))
    metrics.follow({container: replace(POLICY, grid=Grid(60, 660))})  # measured anew
    measured = await metrics.measure_once()
    metrics.close()
    assert_uses(measured, container, 0.5, GIB)
