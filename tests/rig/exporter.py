"""Exports the usage of the agent's pods as a kubelet's cAdvisor and kube-state-metrics do. Text format over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from aiohttp import web

from autoscaler.core.model import ContainerKind, Resource
from tests.rig.pod_record import Json, PodRecord, Running
from tests.rig.usage import Usage

_IDLE = Usage()
_PAUSE_IMAGE, _PAUSE_MEMORY = "pause:3.10", 880640
_CPU_PERIOD_US = 100_000

Sample = tuple[str, Mapping[str, str], float]


class Exporter:
    """An HTTP server with `/metrics/cadvisor` and `/metrics` (kube-state-metrics) on a loopback port."""

    def __init__(self, records: Mapping[str, PodRecord], usage: Mapping[tuple[str, str, str], Usage]) -> None:
        self._records = records
        self._usage = usage
        self._runner: web.AppRunner | None = None

    async def open(self) -> None:
        """Start to serve."""
        application = web.Application()
        application.router.add_get("/metrics/cadvisor", self._cadvisor)
        application.router.add_get("/metrics", self._kube_state_metrics)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()

    async def close(self) -> None:
        """Stop to serve."""
        if self._runner is not None:
            await self._runner.cleanup()

    def scrape_configs(self) -> list[Json]:
        """What a Prometheus needs to scrape both."""
        assert self._runner is not None
        host, port = self._runner.addresses[0][:2]
        targets = [{"targets": [f"{host}:{port}"]}]
        return [
            {
                "job_name": "kubelet",
                "metrics_path": "/metrics/cadvisor",
                "honor_labels": True,
                "static_configs": targets,
            },
            {"job_name": "kube-state-metrics", "honor_labels": True, "static_configs": targets},
        ]

    def read(self, record: PodRecord, now: float) -> list[Running]:
        """The pod's containers with their meters brought up to date."""
        owners = [o["name"] for o in record.raw["metadata"].get("ownerReferences", []) if o.get("controller")]
        for container in record.containers.values():
            keys = [(record.pod.namespace, name, container.name) for name in (record.pod.name, *owners)]
            usage = next((self._usage[key] for key in keys if key in self._usage), _IDLE)
            if not container.ended:
                container.meter.read(usage, container.actual, now)
        return list(record.containers.values())

    async def _cadvisor(self, _: web.Request) -> web.Response:
        now = time.time()
        samples = [s for record in list(self._records.values()) for s in _cadvisor(record, self.read(record, now))]
        return web.Response(text=_text(samples, int(now * 1000)))

    async def _kube_state_metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=_text(s for record in list(self._records.values()) for s in _states(record)))


def _text(samples: Iterable[Sample], at_ms: int | None = None) -> str:
    """The text format. Like cAdvisor, usage lines carry their own timestamp and `container_spec_*` do not."""
    lines: list[str] = []
    for name, group in groupby(sorted(samples, key=lambda s: s[0]), key=lambda s: s[0]):
        lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
        stamp = "" if at_ms is None or name.startswith("container_spec_") else f" {at_ms}"
        for _, labels, value in group:
            inner = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
            lines.append(f"{name}{{{inner}}} {value!r}{stamp}")
    return "\n".join([*lines, ""])


def _cadvisor(record: PodRecord, containers: list[Running]) -> Iterator[Sample]:
    live = [container for container in containers if not container.ended]
    # `node` is not cAdvisor's: the usual relabeling adds it, and here one target stands for all nodes
    pod = {"namespace": record.pod.namespace, "pod": record.pod.name, "node": record.node}
    group = f"/kubepods/pod{record.pod.uid}"
    for container in live:
        labels = pod | {
            "container": container.name,
            "id": f"{group}/{container.id}",
            "image": container.spec["image"],
            "name": container.id,
        }
        yield from _container(container, labels)
    whole = pod | {"container": "", "id": group, "image": "", "name": ""}
    yield "container_cpu_usage_seconds_total", whole | {"cpu": "total"}, sum(c.meter.cpu_seconds for c in live)
    yield "container_memory_working_set_bytes", whole, sum(c.meter.working_set for c in live) + _PAUSE_MEMORY
    yield "container_memory_usage_bytes", whole, sum(c.meter.memory_usage for c in live) + _PAUSE_MEMORY
    pause = pod | {"container": "", "id": f"{group}/pause", "image": _PAUSE_IMAGE, "name": "pause"}
    yield "container_cpu_usage_seconds_total", pause | {"cpu": "total"}, 0.02
    yield "container_memory_working_set_bytes", pause, _PAUSE_MEMORY
    yield "container_memory_usage_bytes", pause, _PAUSE_MEMORY


def _container(container: Running, labels: Mapping[str, str]) -> Iterator[Sample]:
    meter, actual = container.meter, container.actual
    yield "container_cpu_usage_seconds_total", {**labels, "cpu": "total"}, meter.cpu_seconds
    yield "container_memory_working_set_bytes", labels, meter.working_set
    yield "container_memory_usage_bytes", labels, meter.memory_usage
    yield "container_start_time_seconds", labels, container.started_at
    yield "container_spec_cpu_period", labels, _CPU_PERIOD_US
    yield "container_spec_cpu_shares", labels, max(2, (actual.requests.cpu or 0) * 1024 // 1000)
    yield "container_spec_memory_limit_bytes", labels, actual.limits.memory or 0
    if actual.limits.cpu is not None:
        yield "container_spec_cpu_quota", labels, actual.limits.cpu * _CPU_PERIOD_US // 1000
        yield "container_cpu_cfs_periods_total", labels, int(meter.periods)
        yield "container_cpu_cfs_throttled_periods_total", labels, int(meter.throttled_periods)
        yield "container_cpu_cfs_throttled_seconds_total", labels, meter.throttled_seconds


def _states(record: PodRecord) -> Iterator[Sample]:
    pod = {"namespace": record.pod.namespace, "pod": record.pod.name, "uid": record.pod.uid}
    owners = record.raw["metadata"].get("ownerReferences", [])
    if not owners:
        yield "kube_pod_owner", pod | {"owner_kind": "", "owner_name": "", "owner_is_controller": ""}, 1
    for owner in owners:
        words = {
            "owner_kind": owner["kind"],
            "owner_name": owner["name"],
            "owner_is_controller": str(bool(owner.get("controller"))).lower(),
        }
        yield "kube_pod_owner", pod | words, 1
    for container in record.pod.containers:
        init = "" if container.kind is ContainerKind.CONTAINER else "init_"
        labels = pod | {"container": container.name}
        restarts = record.containers[container.name].restarts
        yield f"kube_pod_{init}container_status_restarts_total", labels, restarts
        for side, amounts in (("requests", container.spec.requests), ("limits", container.spec.limits)):
            for resource, unit, scale in ((Resource.CPU, "core", 1000), (Resource.MEMORY, "byte", 1)):
                if (amount := amounts.get(resource)) is not None:
                    words = {"node": record.node, "resource": str(resource), "unit": unit}
                    yield f"kube_pod_{init}container_resource_{side}", labels | words, amount / scale
