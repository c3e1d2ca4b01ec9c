"""Recorded scenarios of finding the right series (SER-…), against a real Prometheus 3."""

import math
from dataclasses import replace

import numpy as np
import pytest

from autoscaler.core.decide import decide
from autoscaler.core.history import ContainerRef, Measurements
from autoscaler.core.model import Pod, Problem
from autoscaler.core.plan import Plan
from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason
from tests.adapters.prometheus.written import (
    GIB,
    POLICY,
    Everything,
    assert_uses,
    gauge,
    history,
    measure,
    series,
    told,
    usage,
)
from tests.build import config, container, fixed, pod, policy, snapshot
from tests.rig.prometheus_server import PrometheusServer

pytestmark = pytest.mark.rig


def planned(measured: Measurements, *pods: Pod) -> Plan:
    """What would be done now by a policy that wants 900m."""
    assert measured.measured_at is not None
    shot = replace(snapshot(*pods), taken_at=measured.measured_at)
    return decide(shot, measured, config(policy(fixed("900m"))))


async def test_ser_01_usage_alone_is_enough(prometheus: PrometheusServer) -> None:
    """Owners come from the API server: nothing of kube-state-metrics is needed, and one note says what it would add."""
    wanted = {ContainerRef("ser-01", f"sim-{i}", "app"): POLICY for i in range(2)}
    prometheus.write(one for each in wanted for one in usage(each, 0.5, GIB))
    measured = await measure(prometheus.url, wanted)
    pods = [replace(pod(name=each.pod, namespace=each.namespace), workload="StatefulSet/sim") for each in wanted]
    plan = planned(measured, *pods)
    assert [decision.reason for decision in plan.decisions] == [Reason.INCREASE] * 2
    detail = "kube_pod_owner is missing: histories are limited to the names of pods that live"
    assert plan.problems == (Problem("Prometheus", Trouble.HISTORY_LIMITED_TO_LIVE_PODS, detail),)


async def test_ser_02_what_kube_state_metrics_says_is_of_its_pods_and_not_its_own(prometheus: PrometheusServer) -> None:
    """It is scraped without honouring labels. A policy's own query reads it, with and without grouping."""
    sim, exporter = ContainerRef("ser-02", "sim-0", "app"), ContainerRef("ser-02-monitoring", "ksm-0", "ksm")
    cluster = {"cluster": "ser-02"}
    prometheus.write(usage(sim, 0.5, GIB, **cluster) + usage(exporter, 0.5, GIB, **cluster))
    own = {**exporter._asdict(), "exported_namespace": sim.namespace, "exported_pod": sim.pod, **cluster}
    prometheus.write([gauge("kube_pod_owner", {**own, "owner_name": "sim"}, 1)])
    rows = 'kube_pod_owner{exported_pod=~"$pod",$cluster}'
    signals = {"raw": rows, "grouped": f"sum by (exported_namespace, exported_pod) ({rows})"}
    policy = replace(POLICY, recommender=Everything(dict.fromkeys(signals, 1)), signals=signals)
    measured = await measure(prometheus.url, {sim: policy, exporter: policy})
    for name in signals:
        assert set(history(measured, sim).state.signal(name).tolist()) == {1}
        assert np.isnan(history(measured, exporter).state.signal(name)).all()
    assert Trouble.HISTORY_LIMITED_TO_LIVE_PODS not in [problem.reason for problem in measured.problems]


async def test_ser_05_a_container_that_came_back_is_counted_once(prometheus: PrometheusServer) -> None:
    """The cgroups of before and after an OOM kill are both exported for four minutes, at one GiB each."""
    app = ContainerRef("ser-05", "sim-0", "app")
    before = series({**app._asdict(), "id": "/kubepods/1", "name": "1"}, 0.5, GIB, ago=(1200, 360))
    after = series({**app._asdict(), "id": "/kubepods/2", "name": "2"}, 0.5, GIB, ago=(600, 0))
    prometheus.write(before + after)
    measured = await measure(prometheus.url, {app: POLICY})
    found = history(measured, app).state
    assert set(found.memory.tolist()) == {GIB}
    assert measured.in_use.of[app] == GIB
    assert 0.4 < found.cpu.min() <= found.cpu.max() < 0.5 + 1e-5  # low where both rates see half a window, never high


async def test_ser_06_cgroups_of_pods_and_pause_containers_are_left_out(prometheus: PrometheusServer) -> None:
    app = ContainerRef("ser-06", "sim-0", "app")
    envoy = app._replace(container="envoy")
    prometheus.write(
        [
            *usage(app._replace(container=""), 0.7, 2 * GIB),
            *usage(app._replace(container="POD"), 0.01, 2.0**20),
            *usage(app, 0.5, 1.5 * GIB),
            *usage(envoy, 0.2, 0.5 * GIB),
        ]
    )
    measured = await measure(prometheus.url, {app: POLICY, envoy: POLICY})
    assert_uses(measured, app, 0.5, 1.5 * GIB)
    assert_uses(measured, envoy, 0.2, 0.5 * GIB)
    assert sum(measured.in_use.of.values()) == 2 * GIB


async def test_ser_07_labels_that_are_dropped_are_not_missed(prometheus: PrometheusServer) -> None:
    bare, full = ContainerRef("ser-07", "sim-0", "app"), ContainerRef("ser-07", "sim-1", "app")
    cgroup = {"image": "app", "id": "/kubepods/pod1/2", "name": "2"}
    prometheus.write(usage(bare, 0.5, GIB) + usage(full, 0.5, GIB, **cgroup))
    measured = await measure(prometheus.url, {bare: POLICY, full: POLICY})
    assert_uses(measured, bare, 0.5, GIB)
    assert_uses(measured, full, 0.5, GIB)


async def test_ser_08_a_pair_counts_as_one(prometheus: PrometheusServer) -> None:
    """So do its samples: as many as one copy gives."""
    app = ContainerRef("ser-08", "sim-0", "app")
    alone = app._replace(pod="sim-1")
    pair = [({**app._asdict(), "prometheus_replica": name}, shift) for name, shift in (("a", 0), ("b", 1))]
    prometheus.write([one for labels, shift in pair for one in series(labels, 0.5, GIB, shift=shift)])
    prometheus.write(usage(alone, 0.5, GIB))
    measured = await measure(prometheus.url, {app: POLICY, alone: POLICY})
    assert_uses(measured, app, 0.5, GIB)
    assert history(measured, app).state.end_at.tolist() == history(measured, alone).state.end_at.tolist()
    assert told(measured) == ["DuplicateSeries"]  # a note


async def test_ser_10_a_pod_that_moved_has_one_timeline(prometheus: PrometheusServer) -> None:
    """The old node's series is answered for five minutes more. What is the new pod's own can be told."""
    app = ContainerRef("ser-10", "sim-0", "app")
    old = series({**app._asdict(), "node": "node-a", "id": "/kubepods/pod1/1"}, 0.4, GIB, ago=(1200, 300))
    new = series({**app._asdict(), "node": "node-b", "id": "/kubepods/pod2/2"}, 0.5, GIB, ago=(600, 0))
    prometheus.write(old + new)
    found = history(await measure(prometheus.url, {app: POLICY}), app).state
    known = found.cpu[np.isfinite(found.cpu)]
    assert known.max() < 0.5 + 1e-5
    assert found.memory.max() == GIB
    assert np.diff(found.end_at).tolist() == [60] * (len(found) - 1)
    np.testing.assert_allclose(known[-4:], 0.5, rtol=1e-5)
    assert math.isclose(float(known[0]), 0.4, rel_tol=1e-5)


async def test_ser_11_owners_of_any_kind_and_none(prometheus: PrometheusServer) -> None:
    wanted = {ContainerRef("ser-11", name, "app"): POLICY for name in ("bare", "owned")}
    prometheus.write(one for each in wanted for one in usage(each, 0.5, GIB))
    measured = await measure(prometheus.url, wanted)
    pods = (
        replace(pod(container(), name="bare", namespace="ser-11"), workload=None, owner=None),
        replace(pod(container(), name="owned", namespace="ser-11"), workload="SimBridge/a", owner="SimBridge/a"),
    )
    plan = planned(measured, *pods)
    assert [(one.pod.name, one.reason) for one in plan.decisions] == [
        ("bare", Reason.INCREASE),
        ("owned", Reason.INCREASE),
    ]
