"""Several clusters behind one endpoint: against a real Prometheus 3."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.layout import ANY
from autoscaler.adapters.prometheus.source import PrometheusMetrics
from autoscaler.core.history import ContainerRef, Gap
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid
from tests.adapters.prometheus.written import GIB, POLICY, assert_uses, measure, usage
from tests.rig.prometheus_server import PrometheusServer

pytestmark = pytest.mark.rig

EU = replace(ANY, matchers=('cluster="eu"',), cluster_labels=())


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
