"""Signals of recommenders, against a real Prometheus 3: recorded scenarios (SER-…, PRM-…), and what they cost."""

import math
import random
import time
from collections.abc import Iterator

import numpy as np
import promql_parser
import pytest

from autoscaler.adapters.prometheus import layout, ranges
from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.batch import Batch, Member
from autoscaler.adapters.prometheus.layout import EXPORTED, KUBELET, Layout
from autoscaler.adapters.prometheus.session import PrometheusApi
from autoscaler.adapters.prometheus.signals import asked, gpu_blanks, gpus_attributed, gpus_unattributed, readings
from autoscaler.core.decide import decide
from autoscaler.core.history import ContainerRef, History, Measurements
from autoscaler.core.model import PodRef, ResourceList
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid, Samples, Signal, Situation, Target
from autoscaler.core.units import Bytes, Millicores
from tests.adapters.prometheus.written import (
    AGO_S,
    GIB,
    POLICY,
    SCRAPE_S,
    SIGNALS_POLICY,
    Everything,
    counted,
    gauge,
    history,
    measure,
    told,
    usage,
)
from tests.build import config, pod, policy, snapshot
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
    assert "are DCGM's numbers for none" in reasons(measured)["SentinelSamples"]


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


@pytest.mark.parametrize("label", ["node", "instance"])
async def test_prm_08_pressure_that_is_not_counted_is_not_none(prometheus: PrometheusServer, label: str) -> None:
    """Zeros everywhere on one node; on the other one somebody waits for a CPU, and nobody for memory: there a container
    of zeros has no pressure. Where nothing tells nodes apart, zeros of a container tell nothing."""
    namespace = f"prm-08-{label}"
    a, idle, b, lone = (ContainerRef(namespace, pod, "app") for pod in ("on-a", "idle-on-a", "on-b", "lone"))
    for sim, cpu, on in ((a, 0.2, {label: "a"}), (idle, 0.0, {label: "a"}), (b, 0.0, {label: "b"}), (lone, 0.0, {})):
        labels = {**sim._asdict(), **on, "cluster": namespace}
        prometheus.write(usage(sim, 0.5, GIB, cluster=namespace, **on))
        prometheus.write(
            [
                counted(layout.CPU_PRESSURE, labels, cpu, start=1 if cpu else 0),
                counted(layout.MEMORY_PRESSURE, labels, 0, start=0),
            ]
        )
    measured = await measure(prometheus.url, dict.fromkeys((a, idle, b, lone), SIGNALS_POLICY))
    np.testing.assert_allclose(history(measured, a).state.signal(Signal.CPU_PRESSURE), 0.2, rtol=1e-4)
    np.testing.assert_array_equal(history(measured, a).state.signal(Signal.MEMORY_PRESSURE), 0)
    for name in (Signal.CPU_PRESSURE, Signal.MEMORY_PRESSURE):
        np.testing.assert_array_equal(history(measured, idle).state.signal(name), 0)
        for uncounted in (b, lone):
            assert np.isnan(history(measured, uncounted).state.signal(name)).all()
    note = reasons(measured)["PsiUnsupported"]
    assert f"{namespace}/on-b/app" in note
    assert f"{namespace}/lone/app" in note
    assert "on-a" not in note


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
    assert told(measured) == []


def test_a_query_names_what_servers_can_read() -> None:
    few = asked('x{pod=~"$pod",container=~"$container"}', {PodRef("n", "a.b-0"), PodRef("m", "c")}, {"app"})
    assert few == 'x{pod=~"(?:a[.]b-0|c)",container=~"(?:app)"}'
    many = asked('x{pod=~"$pod"} / y{pod=~"$pod"}', {PodRef("n", f"{i:050}") for i in range(200)}, {"app"})
    assert many == 'x{pod=~".+"} / y{pod=~".+"}'


class BySignals(Everything):
    """More CPU where it is short, and the memory of the GPU besides its own peak."""

    def recommend(self, state: Samples, situation: Situation) -> Target:
        seen = {name: float(np.nanmax(state.signal(name))) for name in self.signals}
        short = seen[Signal.THROTTLED] + seen[Signal.CPU_PRESSURE] + seen[Signal.MEMORY_PRESSURE]
        gpu = seen[Signal.GPU_MEMORY] * seen[Signal.GPU_MEMORY_FILLED] * seen[Signal.GPU_UTILISATION]
        return Target(0.5 + short + seen["frameTime"], seen[Signal.MEMORY_PEAK] + gpu)


async def test_a_recommender_that_reads_everything(prometheus: PrometheusServer) -> None:
    sim = ContainerRef("every", "sim-0", "app")
    labels = {**sim._asdict(), "cluster": "every"}
    gpu = {**labels, "UUID": "GPU-7"}
    prometheus.write(usage(sim, 0.5, GIB, cluster="every"))
    prometheus.write(
        [
            counted(layout.PERIODS, labels, 10),
            counted(layout.THROTTLED_PERIODS, labels, 2.5),
            counted(layout.CPU_PRESSURE, labels, 0.1),
            counted(layout.MEMORY_PRESSURE, labels, 0.05),
            gauge(layout.MEMORY_PEAK, labels, 1.5 * GIB),
            gauge(layout.MEMORY_LIMIT, labels, 4 * GIB),
            gauge(layout.GPU_MEMORY, gpu, 2048),
            gauge(layout.GPU_MEMORY_FREE, gpu, 2048),
            gauge(layout.GPU_ENGINE, gpu, 0.5),
            gauge("frame_seconds", {"namespace": "every", "pod": "sim-0"}, 0.1),
        ]
    )
    made = Policy("p", BySignals({"frameTime": 1}), grid=Grid(60, 600), signals={"frameTime": OWN})
    measured = await measure(prometheus.url, {sim: made})
    assert measured.measured_at is not None
    shot = snapshot(pod(name="sim-0", namespace="every"), at=measured.measured_at)
    plan = decide(shot, measured, config(policy(made.recommender)))
    (decision,) = plan.decisions
    assert decision.reason is Reason.INCREASE
    (proposal,) = decision.proposals
    assert proposal.proposed.requests == ResourceList(Millicores(1000), Bytes(int(2 * GIB)))


def test_a_back_fill_reads_what_live_measuring_does(prometheus: PrometheusServer) -> None:
    """Two hours of numbers by chance, minute by minute, and at once in blocks: the same state."""
    sim, chance = ContainerRef("fill", "sim-0", "app"), random.Random(11)
    labels, gpu = sim._asdict(), {**sim._asdict(), "UUID": "GPU-8"}
    newest = int(time.time()) // SCRAPE_S * SCRAPE_S - 2
    at = range(newest - 7500, newest + 1, SCRAPE_S)
    for metric, most, whose in (
        *((layout.CPU, 3.0, labels), (layout.THROTTLED_PERIODS, 10.0, labels), (layout.PERIODS, 90.0, labels)),
        *((metric, 9.0, labels) for metric in (layout.CPU_PRESSURE, layout.MEMORY_PRESSURE)),
    ):
        prometheus.write([({"__name__": metric, **whose}, list(accumulated(at, chance, most)))])
    for metric, most, whose in (
        *((metric, 2 * GIB, labels) for metric in (layout.MEMORY, layout.MEMORY_PEAK, layout.MEMORY_LIMIT)),
        *((metric, 4096.0, gpu) for metric in (layout.GPU_MEMORY, layout.GPU_MEMORY_FREE)),
        *((metric, 1.0, gpu) for metric in (layout.GPU_ENGINE, layout.GPU_UTILISATION)),
        ("frame_seconds", 1.0, {"namespace": "fill", "pod": "sim-0"}),
    ):
        values = [(t, 2147483632.0 if whose is gpu and chance.random() < 0.2 else chance.random() * most) for t in at]
        prometheus.write([({"__name__": metric, **whose}, values)])
    api, grid = PrometheusApi(Access(prometheus.url)), Grid(60, 60 * 4321, fine=1200)
    end = (newest - 60) // 300 * 300 + 60
    start = end - 6000
    recommender = Everything({"frameTime": 1})

    def folded(before: History | None, after: int, until: int) -> History | None:
        spans = ranges.spans(after, until, grid)
        one = Layout(variants=layout.VARIANTS[:1])
        own = {"frameTime": OWN}
        batch = Batch({sim: Member(before, recommender)}, grid, 300, spans, one, recommender.signals, own)
        batch.open()
        for chunk in batch.chunks(ranges.MOST_POINTS):
            batch.fill(chunk, api.range(batch.query(chunk), chunk.span).result)
        return batch.fold()[sim]

    live = None
    for minute in range(start, end, 60):
        live = folded(live, minute, minute + 60)
    restarted = folded(None, start, end)
    api.close()
    assert live is not None
    assert restarted is not None
    assert {*live.state.signals} == {*Signal, "frameTime"}
    whole = live.state.after(start + 299)
    np.testing.assert_array_equal(whole.end_at, restarted.state.after(start + 299).end_at)
    for name, values in whole.signals.items():
        assert np.isfinite(values).any(), name
        np.testing.assert_array_equal(values, restarted.state.after(start + 299).signal(name), err_msg=name)


def accumulated(at: range, chance: random.Random, most: float) -> Iterator[tuple[float, float]]:
    total = 1.0
    for t in at:
        total += chance.random() * most
        yield t, total


@pytest.mark.parametrize("names", [KUBELET, EXPORTED])
def test_every_query_is_promql_and_answered(prometheus: PrometheusServer, names: layout.Names) -> None:
    one = Layout(variants=layout.VARIANTS[:1], gpu=names, cluster=('cluster="eu"',), matchers=('job="kubelet"',))
    asked_for = readings(one, {PodRef("n", "a.b-0")}, {"app"}, 300, frozenset(Signal), {"own": OWN})
    assert {reading.name for reading in asked_for} == {"cpu", "memory", *Signal, "own"}
    of_any = (gpus_attributed(one, {"sim"}), gpus_unattributed(one), gpu_blanks(one, 600, 15))
    for query in (*(reading.query(60) for reading in asked_for), *of_any):
        promql_parser.parse(query)
        prometheus.query(query)


@pytest.mark.parametrize("letters", [10, 63, 200])
def test_no_query_is_longer_than_any_server_reads(letters: int) -> None:
    for count in (30, 59, 190, 249):
        pods = {PodRef("sim", f"{i:0{letters}}") for i in range(count)}
        one = Layout(variants=layout.VARIANTS[:1])
        for reading in readings(one, pods, {"app"}, 300, frozenset(Signal), {"own": OWN}):
            assert len(reading.query(60)) <= 16 << 10
