"""Several clusters behind one endpoint: against a real Prometheus 3."""

from dataclasses import replace
from datetime import UTC, datetime

import promql_parser
import pytest

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.layout import ANY
from autoscaler.adapters.prometheus.source import PrometheusMetrics
from autoscaler.adapters.sessions.query import asked
from autoscaler.core.history import ContainerRef, Gap
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid
from tests.adapters.prometheus.written import GIB, POLICY, Everything, assert_uses, gauge, history, measure, usage
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


async def test_drain_gates_and_signals_of_policies_are_of_one_cluster(prometheus: PrometheusServer) -> None:
    """Without sessions in the other cluster, and with a greater number there."""
    container = ContainerRef("gates", "sim-0", "app")
    pod = {"namespace": "gates", "pod": "sim-0"}
    prometheus.write(usage(container, 0.5, GIB, cluster="eu"))
    prometheus.write(
        [gauge("cluster_sessions", {**pod, "cluster": name}, value) for name, value in (("eu", 3), ("us", 9))]
    )
    query = 'max by (namespace, pod) (cluster_sessions{pod=~"$pod",$cluster})'
    policy = Policy("p", Everything({"own": 1}), grid=Grid(60, 600), signals={"own": query})
    metrics = PrometheusMetrics(Access(prometheus.url), now=lambda: datetime.now(UTC))
    assert isinstance(metrics.cluster, Gap)
    metrics.follow({container: policy})
    measured = await metrics.measure_once()
    metrics.close()
    assert set(history(measured, container).state.signal("own").tolist()) == {3}
    assert not isinstance(metrics.cluster, Gap)
    for cluster, expected in ((metrics.cluster, [3]), (('cluster="us"',), [9]), ((), [9])):
        promql = asked(query, "gates", ["sim-0"], cluster)
        promql_parser.parse(promql)
        assert [value for _, value in prometheus.query(promql)] == expected


async def test_of_several_clusters_none_is_known_until_one_is_named(prometheus: PrometheusServer) -> None:
    container = ContainerRef("gates-several", "sim-0", "app")
    prometheus.write(usage(container, 0.5, GIB, cluster="eu") + usage(container, 4, 8 * GIB, cluster="us"))
    for layout, expected in ((ANY, Reason.CLUSTER_AMBIGUOUS), (replace(ANY, cluster=('cluster="eu"',)), None)):
        metrics = PrometheusMetrics(Access(prometheus.url), layout, now=lambda: datetime.now(UTC))
        metrics.follow({container: POLICY})
        await metrics.measure_once()
        found = metrics.cluster
        metrics.close()
        assert (found.reason if isinstance(found, Gap) else None) == expected
        assert isinstance(found, Gap) or found[0] == 'cluster="eu"'
