"""What `doctor` says of the signals that recommenders declare, against a real Prometheus."""

from __future__ import annotations

from datetime import UTC, datetime
from types import MappingProxyType

import pytest

from autoscaler.adapters.prometheus import layout
from autoscaler.cli.checks_prometheus import PrometheusChecks
from autoscaler.cli.checkup import Checkup, Known
from autoscaler.core.history import ContainerRef
from autoscaler.core.policy import Policy
from autoscaler.core.recommender import Signal
from autoscaler.diagnosis.findings import Check, Finding, Status
from autoscaler.diagnosis.selection import Selection
from autoscaler.settings import load_settings
from tests.adapters.prometheus.written import GIB, SIGNALS_POLICY, Everything, counted, gauge, usage
from tests.build import config, pod
from tests.rig.prometheus_server import PrometheusServer

pytestmark = pytest.mark.rig


async def found(url: str, policy: Policy, *containers: ContainerRef) -> dict[str, Finding]:
    pods = tuple(pod(name=one.pod, namespace=one.namespace) for one in containers)
    started = MappingProxyType(dict.fromkeys(containers, datetime(2026, 1, 1, tzinfo=UTC)))
    known = Known(load_settings({"prometheus_url": url}, None))
    known.config, known.selection = config(policy), Selection({policy.name: pods}, {}, started)
    checkup = Checkup(known, PrometheusChecks(known).steps(), lambda check: None)
    return {one.subject: one async for one in checkup.findings() if one.check is Check.SIGNALS}


async def test_declared_signals_are_counted_by_container(prometheus: PrometheusServer) -> None:
    first, second = (ContainerRef("doctor-signals", f"sim-{n}", "app") for n in range(2))
    cluster = {"cluster": "doctor-signals"}
    for sim in (first, second):
        prometheus.write(usage(sim, 0.5, GIB, **cluster))
    exported = dict(zip(layout.EXPORTED, second, strict=True))
    prometheus.write(
        [
            counted(layout.PERIODS, {**first._asdict(), **cluster}, 10),
            counted(layout.THROTTLED_PERIODS, {**first._asdict(), **cluster}, 2),
            gauge(layout.GPU_MEMORY, {"UUID": "GPU-9", **exported, **cluster}, 1024),
            *(gauge(layout.MEMORY_PEAK, {**sim._asdict(), **cluster}, GIB) for sim in (first, second)),
        ]
    )
    findings = await found(prometheus.url, SIGNALS_POLICY, first, second)
    assert {*findings} == {f"p/{signal}" for signal in Signal}
    assert findings["p/memoryPeak"].status is Status.OK
    assert findings["p/memoryPeak"].detail == "2 of 2 containers"
    assert findings["p/throttled"].status is Status.NOTE
    assert findings["p/throttled"].detail == "1 of 2 containers; missing of doctor-signals/sim-1"
    assert findings["p/gpuMemory"].detail == "1 of 2 containers; missing of doctor-signals/sim-0"
    assert findings["p/cpuPressure"].detail.startswith("0 of 2 containers; ")


async def test_queries_of_a_policys_own_are_asked_once_each(prometheus: PrometheusServer) -> None:
    sim = ContainerRef("doctor-own", "sim-0", "app")
    prometheus.write(usage(sim, 0.5, GIB))
    prometheus.write([gauge("doctor_frames", {"namespace": "doctor-own", "pod": "sim-0"}, 5)])
    own = {"whole": 'doctor_frames{pod=~"$pod"}', "lacks": 'doctor_none{pod=~"$pod"}', "refused": 'up + {pod=~"$pod"'}
    findings = await found(prometheus.url, Policy("p", Everything({"whole": 1}), signals=own), sim)
    assert findings["p/whole"].status is Status.OK
    assert (findings["p/lacks"].status, findings["p/lacks"].detail[:14]) == (Status.WARNING, "0 of 1 contain")
    assert findings["p/refused"].status is Status.ERROR
    assert "refused a query (HTTP 400)" in findings["p/refused"].detail
