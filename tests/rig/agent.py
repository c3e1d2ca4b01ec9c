"""Plays the kubelets of the rig's nodes, through the API alone.

Registers nodes, sets bound pods Running, admits or refuses each new generation by the rules of
`autoscaler.core.kubelet`, applies what it admitted a moment later, tries deferred resizes again when something changes
on their node, and finishes deletions. Runs in a thread of its own, so that a test may block.

Faster than a real kubelet where only waiting would be lost: a memory decrease that cannot be applied says Error at
once (12 to 14 s there) and is tried again each second (10 to 15 s there). Pods never end by themselves.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
import traceback
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar

from autoscaler.core.kubelet import Verdict, admit, allocated_on, counted, memory_decrease_error, retry_order
from autoscaler.core.model import Node, Resource, ResourceList
from autoscaler.core.units import Bytes, parse_cpu, parse_memory
from tests.rig.api import STRATEGIC_MERGE, Api, ApiError
from tests.rig.exporter import Exporter
from tests.rig.pod_record import Json, PendingResize, PodRecord, ProgressingResize, timestamp
from tests.rig.usage import Usage

T = TypeVar("T")

FEATURES = ("InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers")
ACTUATION_S = 0.2  # measured on a real kubelet: 0.5 to 1.9 s
_ERROR_RETRY_S = 1.0
_FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class _Kubelet:
    """A node and the settings of its kubelet that no API shows."""

    node: Node
    static: frozenset[Resource]


class Agent:
    """The kubelets. `usage` says what containers consume, by (namespace, name of pod or owner, container).

    `ready_after_s`: how long pods of a namespace take to be Ready from when they are started on; infinity for ever.
    """

    def __init__(self, url: str, certificate: bytes, token: str) -> None:
        self.usage: dict[tuple[str, str, str], Usage] = {}
        self.ready_after_s: dict[str, float] = {}
        self.failure: str | None = None
        self._kubelets: dict[str, _Kubelet] = {}
        self._records: dict[str, PodRecord] = {}
        self._addresses = count(2)
        self._tasks: set[asyncio.Task[None]] = set()
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="node agent", daemon=True)
        self._thread.start()
        self._call(self._open(url, certificate, token))

    def add_node(
        self,
        name: str,
        *,
        cpu: str = "4",
        memory: str = "8Gi",
        pods: int = 110,
        labels: Mapping[str, str] | None = None,
        features: Sequence[str] = FEATURES,
        static_cpu_manager: bool = False,
        extended: Mapping[str, str] | None = None,
    ) -> None:
        """Register a Ready node with so much allocatable. Returns when pods can be placed on it."""
        allocatable = ResourceList(parse_cpu(cpu), parse_memory(memory))
        static = frozenset({Resource.CPU}) if static_cpu_manager else frozenset[Resource]()
        node = Node(name, allocatable, declared_features=frozenset(features))
        more = {"pods": str(pods)} | dict(extended or {})
        self._call(self._register(_Kubelet(node, static), more, dict(labels or {})))

    def remove_node(self, name: str) -> None:
        """Take a node away with all that runs on it."""
        self._call(self._unregister(name))

    def scrape_configs(self) -> list[Json]:
        """Scrape configurations for a Prometheus: job `kubelet` (cAdvisor) and job `kube-state-metrics`."""
        return self._exporter.scrape_configs()

    def stop(self) -> None:
        """Stop. Raises AssertionError if the agent has failed on the way: what the tests saw is then worth nothing."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._runner.close()
        if self.failure is not None:
            raise AssertionError(f"the node agent failed:\n{self.failure}")

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _open(self, url: str, certificate: bytes, token: str) -> None:
        self._api = Api(url, certificate, token)
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._exporter = Exporter(self._records, self.usage)
        await self._exporter.open()
        self._start(self._watch())
        self._start(self._work())

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._exporter.close()
        await self._api.close()
        await asyncio.sleep(0.1)  # closed TLS connections say good-bye

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = "".join(traceback.format_exception(error))
            print(f"the node agent failed:\n{self.failure}", file=sys.stderr)

    async def _register(self, kubelet: _Kubelet, more: Json, labels: Json) -> None:
        node, now = kubelet.node, timestamp(time.time())
        own = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": node.name}
        await self._api.call(
            "POST",
            "/api/v1/nodes",
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name, "labels": own | labels}},
        )
        amounts = {str(r): r.quantity(node.allocatable.get(r) or 0) for r in Resource} | more
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played by the node agent"}
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [ready | {"lastHeartbeatTime": now, "lastTransitionTime": now}],
            "declaredFeatures": sorted(node.declared_features),
            "nodeInfo": {"operatingSystem": "linux", "architecture": "amd64", "kubeletVersion": "v1.37.2"}
            | dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"), "")
            | dict.fromkeys(("containerRuntimeVersion", "kubeProxyVersion"), ""),
        }
        path = f"/api/v1/nodes/{node.name}"
        await self._api.call("PATCH", f"{path}/status", {"status": status}, content_type=STRATEGIC_MERGE)
        self._kubelets[node.name] = kubelet
        bound = await self._api.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node.name}")
        for pod in bound["items"]:
            self._events.put_nowait(("ADDED", pod))
        while "taints" in (await self._api.call("GET", path))["spec"]:  # not-ready, until the node controller looks
            await asyncio.sleep(0.05)

    async def _unregister(self, name: str) -> None:
        del self._kubelets[name]
        await self._api.call("DELETE", f"/api/v1/nodes/{name}")
        for record in [r for r in self._records.values() if r.node == name]:
            self._records.pop(record.pod.uid, None)  # the watch may have told of its end already
            await self._delete(record.raw)

    async def _watch(self) -> None:
        async with aclosing(self._api.follow("/api/v1/pods")) as events:
            async for event in events:
                self._events.put_nowait(event)

    async def _work(self) -> None:
        """Everything that changes a record happens here, one after the other."""
        while True:
            kind, item = await self._events.get()
            if kind == "LISTED":
                await self._relisted(item["items"])
            elif kind == "DELETED":
                await self._gone(item["metadata"]["uid"])
            elif kind == "ACTUATE":
                await self._actuate(item)
            elif kind == "READY":
                await self._ready(item)
            else:
                await self._seen(item)

    async def _relisted(self, pods: list[Json]) -> None:
        for uid in self._records.keys() - {pod["metadata"]["uid"] for pod in pods}:
            await self._gone(uid)
        for pod in pods:
            await self._seen(pod)

    async def _gone(self, uid: str) -> None:
        record = self._records.pop(uid, None)
        if record is not None:
            await self._retry(record.node)

    async def _seen(self, raw: Json) -> None:
        uid, node = raw["metadata"]["uid"], raw["spec"].get("nodeName")
        if node not in self._kubelets:
            return
        if "deletionTimestamp" in raw["metadata"]:
            await self._delete(raw)
            return
        if raw.get("status", {}).get("phase") in _FINISHED:
            await self._gone(uid)
            return
        record = self._records.get(uid)
        if record is None:
            number = next(self._addresses)  # an address of the loopback interface, on which a test may serve
            record = self._records[uid] = PodRecord(
                raw, f"127.{64 + number // 65536}.{number // 256 % 256}.{number % 256}"
            )
            if delay_s := self.ready_after_s.get(record.pod.namespace):
                record.ready_at = None
                if delay_s != math.inf:
                    self._loop.call_later(delay_s, self._events.put_nowait, ("READY", uid))
            await self._write(record)
            await self._retry(node)
            return
        record.update(raw)
        if record.pod.generation > record.decided_generation:
            less = self._decide(record)
            await self._write(record)
            if less:
                await self._retry(node)

    async def _ready(self, uid: str) -> None:
        record = self._records.get(uid)
        if record is not None:
            record.ready_at = time.time()
            await self._write(record)

    async def _retry(self, node: str) -> None:
        """Room appeared on the node: try its deferred resizes again, until none of them leaves more of it."""
        less = True
        while less and node in self._kubelets:
            less = False
            waiting = [
                (record.view(), datetime.fromtimestamp(record.pending.since, UTC))
                for record in self._records.values()
                if record.node == node and record.pending and record.pending.answer.verdict is Verdict.DEFERRED
            ]
            for pod in retry_order(waiting):
                record = self._records[pod.uid]
                less |= self._decide(record)
                await self._write(record)

    def _decide(self, record: PodRecord) -> bool:
        """Admit or refuse the newest spec. True if the pod takes less of the node than before."""
        kubelet, now, generation = self._kubelets[record.node], time.time(), record.pod.generation
        others = allocated_on(r.view() for r in self._records.values() if r.node == record.node and r is not record)
        answer = admit(record.view(), kubelet.node, others, kubelet.static)
        record.decided_generation = generation
        before = record.pending
        if answer.verdict is not Verdict.ACCEPTED:
            same = before is not None and before.answer.verdict is answer.verdict
            record.pending = PendingResize(answer, generation, before.since if before and same else now, now)
            return False
        record.pending = None
        had = counted(record.view())
        if not record.allocate():
            return False
        record.progressing = ProgressingResize(generation, now, now)
        self._actuate_later(record, ACTUATION_S)
        return _less(counted(record.view()), had)

    def _actuate_later(self, record: PodRecord, delay_s: float) -> None:
        self._loop.call_later(delay_s, self._events.put_nowait, ("ACTUATE", record.pod.uid))

    async def _actuate(self, uid: str) -> None:
        record = self._records.get(uid)
        if record is None or record.progressing is None:
            return
        now = time.time()
        usage = {c.name: Bytes(int(c.meter.memory_usage)) for c in self._exporter.read(record, now) if not c.ended}
        error, had = memory_decrease_error(record.target(), usage), counted(record.view())
        if error is None:
            record.actuate(now)
            record.progressing = None
        else:
            since = record.progressing.since if record.progressing.error else now
            record.progressing = replace(record.progressing, error=error, since=since, tried_at=now)
            self._actuate_later(record, _ERROR_RETRY_S)
        await self._write(record)
        if _less(counted(record.view()), had):
            await self._retry(record.node)

    async def _write(self, record: PodRecord) -> None:
        patch = record.status_patch()
        if patch == record.written:
            return
        record.written = patch
        path = f"/api/v1/namespaces/{record.pod.namespace}/pods/{record.pod.name}/status?fieldManager=kubelet"
        await self._tolerating_absence("PATCH", path, patch, STRATEGIC_MERGE)

    async def _delete(self, raw: Json) -> None:
        meta = raw["metadata"]
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        await self._tolerating_absence("DELETE", path, body, "application/json")

    async def _tolerating_absence(self, method: str, path: str, body: Json, content_type: str) -> None:
        try:
            await self._api.call(method, path, body, content_type=content_type)
        except ApiError as error:
            # 404 and 409: gone, or another pod of that name; 422 is how a patch learns of the other uid
            if error.status not in (404, 409) and "metadata.uid" not in str(error):
                raise


def _less(one: ResourceList, other: ResourceList) -> bool:
    return any((one.get(resource) or 0) < (other.get(resource) or 0) for resource in Resource)
