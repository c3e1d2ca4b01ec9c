"""Signals of recommenders, against a real Prometheus 3: recorded scenarios (SER-…, PRM-…), and what they cost."""

import math
import time

import numpy as np
import promql_parser
import pytest

from autoscaler.adapters.prometheus import layout
from autoscaler.adapters.prometheus.layout import EXPORTED, KUBELET, Layout
from autoscaler.adapters.prometheus.signals import asked, gpus_attributed, gpus_unattributed, readings
from autoscaler.core.history import ContainerRef, Measurements
from autoscaler.core.model import PodRef
from autoscaler.core.policy import Policy
from autoscaler.core.recommender import Grid, Signal
from tests.adapters.prometheus.written import (
    AGO_S,
    GIB,
    POLICY,
    SIGNALS_POLICY,
    Everything,
    counted,
    gauge,
    history,
    measure,
    usage,
)
from tests.rig.prometheus_server import PrometheusServer, Series

pytestmark = pytest.mark.rig

OWN = 'max by (namespace, pod) (frame_seconds{namespace=~"$namespace",pod=~"$pod"})'


def reasons(measured: Measurements) -> dict[str, str]:
    return {problem.reason: problem.detail for problem in measured.problems}


def dcgm(metric: str, value: float, gpu: str, part: str = "", **labels: str) -> Series:
    """A row of dcgm-exporter, scraped without honorLabels."""
    own = {"namespace": "gpu", "pod": "dcgm-x", "container": "exporter"}
    parts = {"GPU_I_ID": part, "GPU_I_PROFILE": "1g.10gb"} if part else {}
    return gauge(metric, {"UUID": gpu, "Hostname": "a", **own, **parts, **labels}, value)


def of(container: ContainerRef) -> dict[str, str]:
    return dict(zip(EXPORTED, container, strict=True))


async def test_ser_03_gpus_are_their_users_and_not_the_exporters(prometheus: PrometheusServer) -> None:
    sim = ContainerRef("ser-03", "sim-0", "app")
    cluster = {"cluster": "ser-03"}
    prometheus.write(usage(sim, 0.5, GIB, **cluster))
    prometheus.write(
        [
            dcgm(layout.GPU_UTILISATION, 71, "GPU-1", **of(sim), **cluster),
            dcgm(layout.GPU_UTILISATION, 40, "GPU-2", pod="", **cluster),
        ]
    )
    measured = await measure(prometheus.url, {sim: SIGNALS_POLICY})
    np.testing.assert_allclose(history(measured, sim).state.signal(Signal.GPU_UTILISATION), 0.71, rtol=1e-5)
    assert np.isnan(history(measured, sim).state.signal(Signal.GPU_MEMORY)).all()
    assert reasons(measured)["GpuUnattributed"].startswith("1 GPUs, or parts of one, are of no pod")


@pytest.mark.parametrize("engine", [True, False])
async def test_ser_04_parts_of_a_gpu_are_told_apart(prometheus: PrometheusServer, engine: bool) -> None:
    space = f"ser-04-{'engine' if engine else 'none'}"
    sims = [ContainerRef(space, f"sim-{index}", "app") for index in range(2)]
    for part, (sim, share) in enumerate(zip(sims, (0.62, 0.05), strict=True), 1):
        labels = {**of(sim), "cluster": space}
        prometheus.write(usage(sim, 0.5, GIB, cluster=space))
        prometheus.write(
            [
                dcgm(layout.GPU_UTILISATION, 0, "GPU-3", str(part), **labels),
                dcgm(layout.GPU_MEMORY, 1024 * part, "GPU-3", str(part), **labels),
                dcgm(layout.GPU_MEMORY_FREE, 1024 * (4 - part), "GPU-3", str(part), **labels),
                *([dcgm(layout.GPU_ENGINE, share, "GPU-3", str(part), **labels)] if engine else []),
            ]
        )
    measured = await measure(prometheus.url, dict.fromkeys(sims, SIGNALS_POLICY))
    for part, (sim, share) in enumerate(zip(sims, (0.62, 0.05), strict=True), 1):
        state = history(measured, sim).state
        expected = share if engine else math.nan
        np.testing.assert_allclose(state.signal(Signal.GPU_UTILISATION), [expected] * len(state), rtol=1e-5)
        np.testing.assert_array_equal(state.signal(Signal.GPU_MEMORY), [part * GIB] * len(state))
        np.testing.assert_allclose(state.signal(Signal.GPU_MEMORY_FILLED), [part / 4] * len(state), rtol=1e-5)
    assert ("GpuUtilizationUnknown" in reasons(measured)) == (not engine)


async def test_devices_add_up_copies_do_not_and_blanks_are_dropped(prometheus: PrometheusServer) -> None:
    """Labels honoured, two devices, two replicas of Prometheus, and one device that says that it has no number."""
    sim, blank = ContainerRef("gpus", "sim-0", "app"), ContainerRef("gpus", "sim-1", "app")
    cluster = {"cluster": "gpus"}
    prometheus.write(usage(sim, 0.5, GIB, **cluster) + usage(blank, 0.5, GIB, **cluster))
    for replica in "ab":
        labels = {**sim._asdict(), **cluster, "replica": replica}
        prometheus.write(gauge(layout.GPU_MEMORY, {"UUID": gpu, **labels}, 2048) for gpu in ("GPU-4", "GPU-5"))
    prometheus.write(
        gauge(metric, {"UUID": "GPU-6", **blank._asdict(), **cluster}, 2147483632)
        for metric in (layout.GPU_MEMORY, layout.GPU_ENGINE, layout.GPU_UTILISATION)
    )
    measured = await measure(prometheus.url, {sim: SIGNALS_POLICY, blank: SIGNALS_POLICY})
    assert set(history(measured, sim).state.signal(Signal.GPU_MEMORY).tolist()) == {4 * GIB}
    for name in (Signal.GPU_MEMORY, Signal.GPU_UTILISATION):
        assert np.isnan(history(measured, blank).state.signal(name)).all()


async def test_prm_07_a_short_peak_is_seen(prometheus: PrometheusServer) -> None:
    """One scrape of 2 GiB among those of 700 MiB, and a step of five minutes."""
    sim = ContainerRef("prm-07", "sim-0", "app")
    prometheus.write(usage(sim, 0.5, GIB)[:1])
    now = int(time.time())
    at = range(now - now % 60 - AGO_S, now, 60)
    values = [(t, 2 * GIB if t == at[-12] else 700 * 2.0**20) for t in at]
    prometheus.write([({"__name__": layout.MEMORY, **sim._asdict()}, values)])
    five = Policy("p", Everything({}), grid=Grid(300, 1200))
    assert history(await measure(prometheus.url, {sim: five}), sim).state.memory.max() == 2 * GIB


async def test_prm_08_pressure_that_is_not_counted_is_not_none(prometheus: PrometheusServer) -> None:
    """Zeros everywhere on one node; on the other one somebody waits for a CPU, and nobody for memory."""
    a, b = ContainerRef("prm-08", "on-a", "app"), ContainerRef("prm-08", "on-b", "app")
    for sim, cpu in ((a, 0.2), (b, 0.0)):
        labels = {**sim._asdict(), "node": sim.pod}
        prometheus.write(usage(sim, 0.5, GIB, node=sim.pod))
        prometheus.write(
            [
                counted(layout.CPU_PRESSURE, labels, cpu, start=1 if cpu else 0),
                counted(layout.MEMORY_PRESSURE, labels, 0, start=0),
            ]
        )
    measured = await measure(prometheus.url, {a: SIGNALS_POLICY, b: SIGNALS_POLICY})
    counts, counts_none = history(measured, a).state, history(measured, b).state
    np.testing.assert_allclose(counts.signal(Signal.CPU_PRESSURE), 0.2, rtol=1e-4)
    np.testing.assert_array_equal(counts.signal(Signal.MEMORY_PRESSURE), 0)
    for name in (Signal.CPU_PRESSURE, Signal.MEMORY_PRESSURE):
        assert np.isnan(counts_none.signal(name)).all()
    assert "prm-08/on-b/app" in reasons(measured)["PsiUnsupported"]
    assert "on-a" not in reasons(measured)["PsiUnsupported"]


async def test_a_policys_own_signal(prometheus: PrometheusServer) -> None:
    """By pod, for each of its containers; negative numbers are numbers."""
    app = ContainerRef("own", "sim-0", "app")
    envoy, other = app._replace(container="envoy"), app._replace(pod="sim-1")
    prometheus.write(one for each in (app, envoy, other) for one in usage(each, 0.5, GIB))
    prometheus.write([gauge("frame_seconds", {"namespace": "own", "pod": "sim-0"}, -0.0167)])
    policy = Policy("p", Everything({"frameTime": 1}), grid=Grid(60, 600), signals={"frameTime": OWN, "unread": "up"})
    measured = await measure(prometheus.url, dict.fromkeys((app, envoy, other), policy))
    for container in (app, envoy):
        np.testing.assert_allclose(history(measured, container).state.signal("frameTime"), -0.0167, rtol=1e-5)
    assert np.isnan(history(measured, other).state.signal("frameTime")).all()
    assert "unread" not in history(measured, app).state.signals


async def test_what_is_not_declared_is_not_asked_for(prometheus: PrometheusServer) -> None:
    sim = ContainerRef("undeclared", "sim-0", "app")
    prometheus.write(usage(sim, 0.5, GIB))
    measured = await measure(prometheus.url, {sim: POLICY})
    assert history(measured, sim).state.signals == {}
    assert measured.problems == ()


def test_a_query_names_what_servers_can_read() -> None:
    few = asked('x{pod=~"$pod",container=~"$container"}', {PodRef("n", "a.b-0"), PodRef("m", "c")}, {"app"})
    assert few == 'x{pod=~"(?:a[.]b-0|c)",container=~"(?:app)"}'
    many = asked('x{pod=~"$pod"} / y{pod=~"$pod"}', {PodRef("n", f"{i:050}") for i in range(200)}, {"app"})
    assert many == 'x{pod=~".+"} / y{pod=~".+"}'


@pytest.mark.parametrize("names", [KUBELET, EXPORTED])
def test_every_query_is_promql_and_answered(prometheus: PrometheusServer, names: layout.Names) -> None:
    one = Layout(variants=layout.VARIANTS[:1], gpu=names, cluster=('cluster="eu"',), matchers=('job="kubelet"',))
    asked_for = readings(one, {PodRef("n", "a.b-0")}, {"app"}, 300, frozenset(Signal), {"own": OWN})
    assert {reading.name for reading in asked_for} == {"cpu", "memory", *Signal, "own"}
    for query in (*(reading.query(60) for reading in asked_for), gpus_attributed(one), gpus_unattributed(one)):
        promql_parser.parse(query)
        prometheus.query(query)


@pytest.mark.parametrize("letters", [10, 63, 200])
def test_no_query_is_longer_than_any_server_reads(letters: int) -> None:
    for count in (30, 59, 190, 249):
        pods = {PodRef("sim", f"{i:0{letters}}") for i in range(count)}
        one = Layout(variants=layout.VARIANTS[:1])
        for reading in readings(one, pods, {"app"}, 300, frozenset(Signal), {"own": OWN}):
            assert len(reading.query(60)) <= 16 << 10
