"""What asking Prometheus costs, as metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from autoscaler.adapters.prometheus.traffic import Traffic

_PREFIX = "bridge_autoscaler_prometheus"


class TrafficMetrics(Collector):
    """The collector of what `traffic` has counted. Series of closed sets exist from the start, at zero."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        counts = self._traffic.counts()
        yield CounterMetricFamily(f"{_PREFIX}_queries", "Queries sent to Prometheus.", value=counts.queries)
        yield CounterMetricFamily(f"{_PREFIX}_samples", "Samples in Prometheus' answers.", value=counts.samples)
        failures = CounterMetricFamily(f"{_PREFIX}_failures", "Queries without an answer, by kind.", labels=["kind"])
        for kind, count in counts.failures.items():
            failures.add_metric([kind], count)
        yield failures
        dropped = CounterMetricFamily(
            f"{_PREFIX}_dropped_samples", "Samples in answers that are left out.", labels=["reason"]
        )
        dropped.add_metric(["NonFiniteSamples"], counts.not_finite)
        dropped.add_metric(["SentinelSamples"], counts.blank)
        yield dropped
        ignored = CounterMetricFamily(
            f"{_PREFIX}_ignored_series", "Series in answers that are left out.", labels=["reason"]
        )
        ignored.add_metric(["UnknownPod"], counts.unknown_pods)
        yield ignored
