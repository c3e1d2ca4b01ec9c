"""The ways in which shops label usage, times the signals that are read: against a real Prometheus 3.

Everywhere the pod `sim-0` of the case's namespace uses half a core and one GiB.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoscaler.adapters.prometheus import layout
from autoscaler.adapters.prometheus.layout import CPU, IN_USE, MEMORY
from autoscaler.core.history import ContainerRef, Gap, Measurements
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Signal
from autoscaler.settings_layout import LayoutSection
from tests.adapters.prometheus.written import (
    GIB,
    POLICY,
    SIGNALS_POLICY,
    assert_uses,
    counted,
    gauge,
    history,
    measure,
    series,
    usage,
)
from tests.rig.prometheus_server import PrometheusServer, Series

pytestmark = pytest.mark.rig

RESOURCE = (CPU, MEMORY)  # what the kubelet's /metrics/resource has
UID = "pod2e0f52f4-d289-4140-9c9b-3e944ccf78c2"


@dataclass(frozen=True)
class Case:
    """A way to label usage. `gap`: the reason why it is not acted on, with words that are said."""

    write: Callable[[ContainerRef], list[Series]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    in_use: bool = True
    notes: tuple[str, ...] = ()
    gap: Reason | None = None
    words: tuple[str, ...] = ()


def as_a_kubelet(c: ContainerRef) -> list[Series]:
    """A pod's own cgroup, its pause container in both spellings, the container, and what is above all of them."""
    slices = f"/kubepods/{UID}"
    return [
        *series({"id": "/"}, 9, 90 * GIB),
        *series({**c._replace(container="")._asdict(), "id": slices, "image": ""}, 0.7, 2 * GIB),
        *series({**c._replace(container="")._asdict(), "id": f"{slices}/1", "image": "pause", "name": "1"}, 0.1, 1e6),
        *series({**c._replace(container="POD")._asdict(), "id": f"{slices}/1", "name": "1"}, 8, 9 * GIB),
        *usage(c, 0.5, GIB, id=f"{slices}/2", image="app", name="2"),
        *usage(c._replace(container="envoy"), 0.1, GIB / 2, id=f"{slices}/3", image="envoy", name="3"),
    ]


def nested(c: ContainerRef) -> list[Series]:
    parts = ((0.5, GIB, ""), (0.3, 0.6 * GIB, "/init.scope"), (0.2, 0.4 * GIB, "/workload"))
    return [one for cores, memory, part in parts for one in usage(c, cores, memory, id=f"/kubepods/{UID}/2{part}")]


def twice(c: ContainerRef) -> list[Series]:
    """A Prometheus pair, a second apart."""
    return [
        one
        for shift, replica in enumerate("ab")
        for one in series({**c._asdict(), "prometheus_replica": replica}, 0.5, GIB, shift=shift)
    ]


def two_endpoints(c: ContainerRef) -> list[Series]:
    """Of a kubelet that is scraped by two jobs; only one of them has memory with page cache."""
    cadvisor = {**c._asdict(), "job": "cadvisor", "id": "/kubepods/2", "cpu": "total"}
    return series(cadvisor, 0.5, GIB) + series({**c._asdict(), "job": "resource"}, 0.5, GIB, metrics=RESOURCE)


def disagreeing(c: ContainerRef) -> list[Series]:
    kubelet = usage(c, 0.5, GIB, job="kubelet", metrics_path="/metrics/cadvisor", node="a")
    return kubelet + usage(c, 0.5, 2 * GIB, job="docker", instance="x", node="a")


def exported(c: ContainerRef) -> list[Series]:
    """Scraped without honorLabels: the exporter's own pod is in the plain labels, on every row."""
    exporter = {"namespace": c.namespace, "pod": "cadvisor-x", "container": "cadvisor", "job": "cadvisor"}
    names = ("exported_namespace", "exported_pod", "exported_container")
    pod = {**exporter, **dict(zip(names[:2], c, strict=False))}
    return series({**exporter, **dict(zip(names, c, strict=True))}, 0.5, GIB) + series(pod, 3, 4 * GIB)


CASES = {
    "kubelet": Case(as_a_kubelet),
    "labels of cgroups dropped": Case(lambda c: usage(c, 0.5, GIB)),
    "nested cgroups": Case(nested),
    "one row a CPU": Case(
        lambda c: usage(c, 0.3, GIB, cpu="cpu00") + series({**c._asdict(), "cpu": "cpu01"}, 0.2, 0)[:1]
    ),
    "replicas": Case(twice, notes=("DuplicateSeries",)),
    "replicas, by a label of the shop's": Case(
        lambda c: usage(c, 0.5, GIB, __replica__="0") + usage(c, 0.5, GIB, __replica__="1"), notes=("DuplicateSeries",)
    ),
    "two jobs": Case(two_endpoints, notes=("AmbiguousSource",)),
    "resource endpoint alone": Case(lambda c: series(c._asdict(), 0.5, GIB, metrics=RESOURCE), in_use=False),
    "exported": Case(exported, notes=("ExportedLabels",)),
    "exported namespace": Case(
        lambda c: series(
            {"exported_namespace": c.namespace, "namespace": "kube-system", "pod": c.pod, "container": c.container},
            0.5,
            GIB,
        ),
        notes=("ExportedLabels",),
    ),
    "before Kubernetes 1.16": Case(
        lambda c: series({"namespace": c.namespace, "pod_name": c.pod, "container_name": c.container}, 0.5, GIB)
    ),
    "a cAdvisor of its own": Case(
        lambda c: series(
            {
                "container_label_io_kubernetes_pod_namespace": c.namespace,
                "container_label_io_kubernetes_pod_name": c.pod,
                "container_label_io_kubernetes_container_name": c.container,
            },
            0.5,
            GIB,
        )
    ),
    "own names": Case(
        lambda c: series(
            {"ns": c.namespace, "k8s_pod": c.pod, "c": c.container}, 0.5, GIB, metrics=("a:c", "a:m", "a:u")
        ),
        {
            "metrics": {"cpu": "a:c", "memory": "a:m", "inUse": "a:u", "gpuMemory": "a:gpu"},
            "labels": {"namespace": "ns", "pod": "k8s_pod", "container": "c"},
        },
    ),
    "one of two clusters": Case(
        lambda c: usage(c, 0.5, GIB, cluster="eu") + usage(c, 4, 9 * GIB, cluster="us"),
        {"clusterMatcher": 'cluster="eu"'},
    ),
    "two clusters": Case(
        lambda c: usage(c, 0.5, GIB, cluster="eu") + usage(c, 4, 9 * GIB, cluster="us"),
        gap=Reason.CLUSTER_AMBIGUOUS,
        words=('cluster="eu"', 'cluster="us"', "prometheus.layout.clusterMatcher"),
    ),
    "two clusters by a label of the shop's": Case(
        lambda c: usage(c, 0.5, GIB, fleet="eu") + usage(c, 4, 9 * GIB, fleet="us"),
        {"clusterLabel": "fleet"},
        gap=Reason.CLUSTER_AMBIGUOUS,
        words=('fleet="eu"', 'fleet="us"'),
    ),
    "two tenants of Mimir": Case(
        lambda c: usage(c, 0.5, GIB, __tenant_id__="a") + usage(c, 4, 9 * GIB, __tenant_id__="b"),
        {"preset": "mimir"},
        gap=Reason.CLUSTER_AMBIGUOUS,
    ),
    "two jobs that disagree": Case(
        disagreeing,
        notes=("AmbiguousSource",),
        gap=Reason.AMBIGUOUS_SOURCE,
        words=('job="docker" says 2048 MiB', 'job="kubelet" says 1024 MiB', "matchers: 'job=\"docker\"'"),
    ),
    "one of two jobs": Case(disagreeing, {"matchers": 'job="kubelet"'}),
    "kube-prometheus-stack": Case(disagreeing, {"preset": "kube-prometheus-stack"}),
    "thanos": Case(twice, {"preset": "thanos"}, notes=("DuplicateSeries",)),
    "victoriametrics": Case(lambda c: usage(c, 0.5, GIB), {"preset": "victoriametrics"}),
    "amazon-managed-prometheus": Case(lambda c: usage(c, 0.5, GIB), {"preset": "amazon-managed-prometheus"}),
    "google-managed-prometheus": Case(
        lambda c: usage(c, 0.5, GIB, project_id="p", location="eu", cluster="a"),
        {"preset": "google-managed-prometheus"},
    ),
    "two locations of Google's": Case(
        lambda c: (
            usage(c, 0.5, GIB, project_id="p", location="eu", cluster="a")
            + usage(c, 4, 9 * GIB, project_id="p", location="us", cluster="a")
        ),
        {"preset": "google-managed-prometheus"},
        gap=Reason.CLUSTER_AMBIGUOUS,
        words=('location="eu"', 'location="us"'),
    ),
    "copies that disagree about CPU": Case(
        lambda c: usage(c, 0.5, GIB, region="eu") + usage(c, 4, GIB, region="us"),
        notes=("DuplicateSeries",),
        gap=Reason.DUPLICATE_SERIES,
        words=('region="eu" says 0.', 'region="us" says '),  # by rates up to now, and the samples end a moment ago
    ),
}
KUBELET = Path(__file__).with_name("kubelet-cadvisor.txt")
"""What a kubelet 1.36 exports of these three metrics with one pod on its node."""
PER_SECOND = {
    layout.THROTTLED_PERIODS: 2.5,
    layout.PERIODS: 10,
    layout.CPU_PRESSURE: 0.1,
    layout.MEMORY_PRESSURE: 0.05,
}
SIGNALS = {
    Signal.THROTTLED: 0.25,
    Signal.CPU_PRESSURE: 0.1,
    Signal.MEMORY_PRESSURE: 0.05,
    Signal.MEMORY_PEAK: 1.5 * GIB,
    Signal.MEMORY_LIMIT: 4 * GIB,
}
OF_GPUS = {Signal.GPU_MEMORY: 2 * GIB, Signal.GPU_MEMORY_FILLED: 0.5, Signal.GPU_UTILISATION: 0.25}
ALL = ("cpu", "memory", "in use", *SIGNALS, *OF_GPUS)
WORDS = {"ExportedLabels", "DuplicateSeries", "AmbiguousSource"}
OF_CLUSTERS = ("cluster", "fleet", "project_id", "location", "__tenant_id__")


def with_signals(written: list[Series]) -> list[Series]:
    """The same, with what a kubelet says of pressure, throttling and peaks; more of whatever uses too much."""
    found = list(written)
    for labels, values in written:
        if labels["__name__"] in (IN_USE, "a:u"):
            plain = {name: value for name, value in labels.items() if name != "__name__"}
            more = 3 if values[0][1] > GIB else 1
            found += [
                counted(metric, plain, rate * (1 if metric == layout.PERIODS else more))
                for metric, rate in PER_SECOND.items()
            ]
            found.append(gauge(layout.MEMORY_PEAK, plain, 1.5 * GIB * more))
            found.append(gauge(layout.MEMORY_LIMIT, plain, 4 * GIB * more))
    return found


def of_gpus(container: ContainerRef, written: list[Series], memory: str) -> list[Series]:
    """What dcgm-exporter says, in each cluster: with honorLabels where they are told apart by the usual label."""
    clusters = dict.fromkeys(
        tuple((name, labels[name]) for name in OF_CLUSTERS if name in labels) for labels, _ in written
    )
    found = []
    for number, cluster in enumerate(clusters):
        names = container._asdict()
        if "cluster" not in dict(cluster):
            names = {"pod": "dcgm-x", **{f"exported_{name}": value for name, value in names.items()}}
        labels = {**names, **dict(cluster), "UUID": f"GPU-{number}"}
        more = 1 + number
        found += [
            gauge(memory, labels, 2048 * more),
            gauge(layout.GPU_MEMORY_FREE, labels, 2048),
            gauge(layout.GPU_ENGINE, labels, 0.25 * more),
        ]
    return found


@pytest.fixture(scope="module")
def measured(prometheus: PrometheusServer) -> dict[str, Measurements]:
    """What has been measured of the cases so far."""
    return {}


@pytest.mark.parametrize("signal", ALL)
@pytest.mark.parametrize("name", CASES)
async def test_the_right_numbers_in_every_layout(
    prometheus: PrometheusServer, measured: dict[str, Measurements], name: str, signal: str
) -> None:
    case, container = CASES[name], ContainerRef(f"layout-{list(CASES).index(name)}", "sim-0", "app")
    if name not in measured:
        written, read = case.write(container), LayoutSection.model_validate(case.settings).layout()
        prometheus.write(with_signals(written) + of_gpus(container, written, read.gpu_memory))
        measured[name] = await measure(prometheus.url, {container: SIGNALS_POLICY}, read)
    found = measured[name]
    reasons = {str(problem.reason) for problem in found.problems}
    assert reasons & WORDS == set(case.notes)
    if case.gap is not None:
        gap = found.of(container)
        assert isinstance(gap, Gap)
        assert gap.reason is case.gap
        assert all(word in gap.detail for word in case.words), gap.detail
        return
    state = history(found, container).state
    assert len(state) == 10
    if signal == "cpu":
        np.testing.assert_allclose(state.cpu, 0.5, rtol=1e-5)
    elif signal == "memory":
        assert set(state.memory.tolist()) == {GIB}
    elif signal == "in use":
        assert found.in_use.of.get(container) == (GIB if case.in_use else None)
    elif signal in OF_GPUS:
        np.testing.assert_allclose(state.signal(signal), OF_GPUS[Signal(signal)], rtol=1e-4)
    elif case.in_use:
        np.testing.assert_allclose(state.signal(signal), SIGNALS[Signal(signal)], rtol=1e-4)
        assert not {"ThrottlingNotApplicable", "PsiUnsupported", "PeakUnsupported"} & reasons
    else:
        assert np.isnan(state.signal(signal)).all()
        assert {"ThrottlingNotApplicable", "PsiUnsupported", "PeakUnsupported"} <= reasons


def test_each_preset_and_each_way_to_label_has_a_row() -> None:
    assert set(layout.PRESETS) == {case.settings["preset"] for case in CASES.values() if "preset" in case.settings}
    found = {
        variant
        for case in CASES.values()
        for variant in layout.VARIANTS
        for labels, _ in case.write(ContainerRef("n", "p", "c"))
        if set(variant.names) <= set(labels) and not set(variant.without) & set(labels)
    }
    assert found == set(layout.VARIANTS)


async def test_a_real_kubelets_export(prometheus: PrometheusServer) -> None:
    """Counters grow by half a core in the container, and by two in everything around it; gauges keep their values."""
    found = dict.fromkeys((CPU, MEMORY, IN_USE), 0)
    for line in KUBELET.read_text().splitlines():
        name, _, rest = line.partition("{")
        text, _, values = rest.partition("} ")
        labels = {**dict(re.findall(r'(\w+)="([^"]*)"', text)), "job": "export"}
        labels = {label: value.replace("default", "export") for label, value in labels.items() if value}
        cores = 0.5 if "container" in labels else 2
        cpu, memory, _ = series(labels, cores, float(values.split()[0]))
        prometheus.write([({**labels, "__name__": name}, (cpu if name == CPU else memory)[1])])
        found[name] += 1
    assert min(found.values()) > 5
    app = ContainerRef("export", "a", "app")
    measured = await measure(prometheus.url, {app: POLICY})
    np.testing.assert_allclose(history(measured, app).state.cpu, 0.5, rtol=1e-5)
    assert set(history(measured, app).state.memory.tolist()) == {7278592}
    assert measured.in_use.of == {app: 8249344}


async def test_an_exporter_is_not_taken_for_what_it_exports(prometheus: PrometheusServer) -> None:
    """Its own pod is followed as well, and a kubelet says what that uses."""
    sim, exporter = ContainerRef("exporter", "sim-0", "app"), ContainerRef("exporter", "cadvisor-x", "cadvisor")
    prometheus.write(usage(sim, 0.5, GIB) + usage(exporter, 0.1, GIB / 4))
    names = {f"exported_{name}": value for name, value in sim._asdict().items()}
    prometheus.write(usage(exporter, 3, 9 * GIB, **names))
    measured = await measure(prometheus.url, {sim: POLICY, exporter: POLICY})
    assert_uses(measured, sim, 0.5, GIB)
    assert_uses(measured, exporter, 0.1, GIB / 4)


async def test_a_source_that_has_changed_lately_is_told_and_another_address_of_it_is_not(
    prometheus: PrometheusServer,
) -> None:
    """Two hours ago there was another job, another job as well, another instance of the same job, or nothing."""
    names = ("renamed", "joined", "restarted", "young", "endpoint")
    of = {name: ContainerRef("moved", name, "app") for name in names}

    def scraped(name: str, ago: tuple[int, int], **by: str) -> list[Series]:
        return series({**of[name]._asdict(), **by}, 0.5, GIB, ago=ago)

    past, lately, always = (9000, 600), (585, 0), (9000, 0)
    prometheus.write(
        [
            *scraped("renamed", past, job="a") + scraped("renamed", lately, job="b"),
            *scraped("joined", always, job="a") + scraped("joined", lately, job="b"),
            *scraped("restarted", past, job="a", instance="1") + scraped("restarted", lately, job="a", instance="2"),
            *scraped("young", lately, job="b"),
            *scraped("endpoint", past, job="a", metrics_path="/metrics/resource"),
            *scraped("endpoint", lately, job="a", metrics_path="/metrics/cadvisor"),
        ]
    )
    measured = await measure(prometheus.url, dict.fromkeys(of.values(), POLICY))
    assert dict(measured.moved) == {
        of[name]: f"its series are of {source} now, and were of another 2 h ago"
        for name, source in (("renamed", 'job="b"'), ("endpoint", 'job="a" and metrics_path="/metrics/cadvisor"'))
    }
