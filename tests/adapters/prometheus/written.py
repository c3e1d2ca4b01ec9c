"""Usage written into a real Prometheus, and what is measured of it."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.layout import ANY, CPU, IN_USE, MEMORY, Layout
from autoscaler.adapters.prometheus.source import PrometheusMetrics
from autoscaler.core.history import ContainerRef, History, Measurements
from autoscaler.core.policy import Policy
from autoscaler.core.problems import Trouble
from autoscaler.core.recommender import Grid, Samples, Signal, Situation, Target, WindowRecommender
from tests.rig.prometheus_server import Series

SCRAPE_S = 15
GIB = 2.0**30
AGO_S = 1200
METRICS = (CPU, MEMORY, IN_USE)


class Window(WindowRecommender):
    name = "window"
    Parameters = dict

    def recommend(self, state: Samples, situation: Situation) -> Target:
        return Target(None, None)


POLICY = Policy("p", Window({}), grid=Grid(60, 600))


class Everything(Window):
    """Reads every signal, and those of a policy's own that its parameters name."""

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({*Signal, *self.params})


SIGNALS_POLICY = Policy("p", Everything({}), grid=Grid(60, 600))


def series(
    labels: Mapping[str, str],
    cores: float,
    memory: float,
    *,
    metrics: tuple[str, ...] = METRICS,
    ago: tuple[int, int] = (AGO_S, 0),
    shift: float = 0,
) -> list[Series]:
    """The signals of one cgroup, from so many seconds ago until so many seconds ago; `metrics` in the order CPU,
    memory, memory in use. `shift`: scraped so much later."""
    newest = int(time.time()) // SCRAPE_S * SCRAPE_S - 2
    at = range(newest - ago[0], newest - ago[1] + 1, SCRAPE_S)
    values = [[cores * (t - at[0]) for t in at], [memory] * len(at), [memory] * len(at)]
    return [
        ({"__name__": metric, **labels}, [(t + shift, value) for t, value in zip(at, of_metric, strict=True)])
        for metric, of_metric in zip(metrics, values, strict=False)
    ]


def usage(container: ContainerRef, cores: float, memory: float, **labels: str) -> list[Series]:
    """Twenty minutes of all three signals up to now."""
    return series({**container._asdict(), **labels}, cores, memory)


def counted(metric: str, labels: Mapping[str, str], rate: float, ago_s: int = AGO_S, start: float = 1) -> Series:
    """A counter that grows by so much a second, from `start` on."""
    newest = int(time.time()) // SCRAPE_S * SCRAPE_S - 2
    at = range(newest - ago_s, newest + 1, SCRAPE_S)
    return {"__name__": metric, **labels}, [(t, start + rate * (t - at[0])) for t in at]


def gauge(metric: str, labels: Mapping[str, str], value: float, ago_s: int = AGO_S) -> Series:
    """A gauge that stays as it is."""
    return counted(metric, labels, 0, ago_s, value)


async def measure(url: str, wanted: Mapping[ContainerRef, Policy], layout: Layout = ANY) -> Measurements:
    metrics = PrometheusMetrics(Access(url), layout, now=lambda: datetime.now(UTC))
    metrics.follow(wanted)
    measured = await metrics.measure_once()
    metrics.close()
    return measured


def told(measured: Measurements) -> list[str]:
    """The problems, less the note that kube-state-metrics is not there: most tests write usage alone."""
    reasons = [problem.reason for problem in measured.problems]
    return [reason for reason in reasons if reason is not Trouble.HISTORY_LIMITED_TO_LIVE_PODS]


def history(measured: Measurements, container: ContainerRef) -> History:
    found = measured.of(container)
    assert isinstance(found, History), found
    return found


def assert_uses(measured: Measurements, container: ContainerRef, cores: float, memory: float) -> None:
    found = history(measured, container)
    np.testing.assert_allclose(found.state.cpu, cores, rtol=1e-5)
    np.testing.assert_allclose(found.state.memory, memory, rtol=1e-5)
    assert measured.in_use.of[container] == memory
