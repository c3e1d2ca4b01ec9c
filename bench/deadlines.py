"""How late deadlines are acted on while 5,000 pods are watched and full turns go on: `python -m bench.deadlines`.

A local server plays the API server, with 300 deferred resizes among its pods whose deadlines pass in 30 seconds, ten in
each. The controller is a process of its own, with a full turn every 1.7 seconds, so that turns begin at all moments
between deadlines, and two hours of samples of 10,000 containers. Prints by how much requests leave after their due
moments, the time from a patch's answer to the next decision about its pod, and the memory of the controller.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

from autoscaler.adapters.clock import RealClock
from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.credentials import Kubeconfig
from autoscaler.cli.wiring import relax_garbage_collection
from autoscaler.core.actions import AskKind, Move, Outcome, OutcomeKind, Resize
from autoscaler.core.history import ContainerRef, History, Measurements, MemoryInUse, advance
from autoscaler.core.model import ClusterSnapshot, PodRef
from autoscaler.core.policy import ContainerPolicy, Fallback, Mode, Policy, Selector
from autoscaler.core.recommender import Grid, Samples
from autoscaler.loop import Loop
from autoscaler.ports import Turn
from autoscaler.recommenders.percentile import Percentile, PercentileParameters
from tests.adapters.kubernetes.api_server import NODES, PODS, ApiServer, answer
from tests.adapters.kubernetes.conftest import write_kubeconfig
from tests.build import amounts, config

Json = dict[str, Any]

_PODS, _NODES, _DEFERRED, _SECONDS = 5_000, 250, 300, 30
_STARTS_S, _AFTER, _INTERVAL = 20, timedelta(minutes=1), timedelta(seconds=1.7)
_APP, _PROXY, _WANTED = ("1", "2Gi"), ("100m", "128Mi"), ("4", "2Gi")


# the API server


def _resources(size: tuple[str, str]) -> Json:
    amounts = {"cpu": size[0], "memory": size[1]}
    return {"requests": amounts, "limits": amounts}


def _pod(index: int, due_at: datetime | None, version: int, generation: int = 1) -> Json:
    """A settled pod, or, with a deadline, one whose app waits for three cores more."""
    name = f"sim-{index}"
    sizes = {"app": _APP, "proxy": _PROXY}
    spec = sizes | ({"app": _WANTED} if due_at is not None else {})
    started = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    status: Json = {
        "phase": "Running",
        "qosClass": "Guaranteed",
        "observedGeneration": generation,
        "containerStatuses": [
            {
                "name": one,
                "state": started,
                "restartCount": 0,
                "allocatedResources": _resources(size)["requests"],
                "resources": _resources(size),
            }
            for one, size in sizes.items()
        ],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    metadata: Json = {
        "name": name,
        "namespace": "sim",
        "uid": f"uid-{index}",
        "resourceVersion": str(version),
        "generation": generation,
        "labels": {"app": "bridge", "index": str(index)},
    }
    if due_at is not None:
        asked = (due_at - _AFTER).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata["managedFields"] = [{"manager": str(AskKind.TARGET), "subresource": "resize", "time": asked}]
        words = "Node didn't have enough resource: cpu, requested: 4100, used: 20900, capacity: 23000"
        pending = {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": words}
        status["conditions"].append({**pending, "observedGeneration": generation})
    containers = [{"name": one, "image": "x", "resources": _resources(size)} for one, size in spec.items()]
    return {
        "metadata": metadata,
        "spec": {"nodeName": f"node-{index % _NODES}", "containers": containers},
        "status": status,
    }


def _node(index: int) -> Json:
    return {
        "metadata": {"name": f"node-{index}", "resourceVersion": "1", "labels": {"kubernetes.io/os": "linux"}},
        "status": {
            "allocatable": {"cpu": "23", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


class _Server(ApiServer):
    """Answers a patch by storing what was asked for, and tells the watch."""

    def __init__(self) -> None:
        super().__init__()
        first = int(time.time()) + _STARTS_S
        every = _PODS // _DEFERRED
        due = {index * every: datetime.fromtimestamp(first + index % _SECONDS, UTC) for index in range(_DEFERRED)}
        self.objects[PODS] = [_pod(index, due.get(index), index + 1) for index in range(_PODS)]
        self.objects[NODES] = [_node(index) for index in range(_NODES)]
        self.version = _PODS + 1
        self.due = {f"sim-{index}": at for index, at in due.items()}
        self.late: dict[str, float] = {}

    async def _any(self, request: web.Request) -> web.StreamResponse:
        if request.method != "PATCH":
            return await super()._any(request)
        await request.read()
        name = request.path.split("/")[-2]
        self.late[name] = time.time() - self.due[name].timestamp()
        self.version += 1
        stored = _pod(int(name.removeprefix("sim-")), None, self.version, generation=2)
        self.send(PODS, "MODIFIED", stored)
        return answer(200, stored)


# the controller


class _Metrics:
    """A history of two hours for each container, of its own, as it would be after having been measured."""

    def __init__(self, cluster: ClusterSnapshot, policy: Policy) -> None:
        rng, newest = np.random.default_rng(0), int(time.time()) // 60 * 60
        end_at = np.arange(newest - 7200 + 60, newest + 1, 60)
        self._histories: dict[ContainerRef, History] = {}
        for ref in cluster.pods:
            for name, cores, size in (("app", 0.8, 1.5 * 2**30), ("proxy", 0.05, 90.0 * 2**20)):
                noise = rng.uniform(0.9, 1.0, len(end_at))
                samples = Samples.of(end_at.tolist(), (cores * noise).tolist(), (size * noise).tolist())
                made = advance(None, samples, policy.recommender, policy.grid, sample_s=policy.grid.step)
                assert made is not None
                self._histories[ContainerRef(*ref, name)] = made

    def follow(self, wanted: Mapping[ContainerRef, Policy]) -> None:
        """They are all known."""

    def latest(self) -> Measurements:
        return Measurements(datetime.now(UTC), self._histories, in_use=MemoryInUse())


class _Timed:
    """The cluster, noting when requests leave; and the journal, noting when a pod is decided about again."""

    def __init__(self, cluster: KubernetesCluster, connection: Connection) -> None:
        self._cluster, self._connection = cluster, connection
        self._answered: dict[PodRef, float] = {}
        self.late: list[float] = []
        self.again: list[float] = []
        self.turns: list[float] = []
        self.all_again = asyncio.Event()

    async def observe(self) -> ClusterSnapshot:
        return await self._cluster.observe()

    async def move(self, move: Move) -> Outcome:
        return await self._cluster.move(move)

    async def perform(self, action: Resize) -> Outcome:
        ask, now = (await self._cluster.observe()).pods[action.pod].newest_ask, self._connection.now()
        outcome = await self._cluster.perform(action)
        if outcome.kind is OutcomeKind.ACCEPTED and ask is not None:
            self.late.append((now - ask.at - _AFTER).total_seconds())
            self._answered[action.pod] = time.monotonic()
        return outcome

    def record(self, turn: Turn) -> None:
        now = time.monotonic()
        if turn.plan is None:
            return
        if len(turn.plan.decisions) == _PODS:
            self.turns.append(turn.took.total_seconds())
        acted = {done.decision.pod.ref for done in turn.done}
        for decision in turn.plan.decisions:
            if (answered := self._answered.get(decision.pod.ref)) is not None and decision.pod.ref not in acted:
                self.again.append(now - answered)
                del self._answered[decision.pod.ref]
        if len(self.again) == _DEFERRED:
            self.all_again.set()


async def _controller(kubeconfig: str) -> None:
    relax_garbage_collection()
    connection = await Connection.open(Kubeconfig((Path(kubeconfig),)))
    clock = RealClock(_INTERVAL, connection.now)
    cluster = KubernetesCluster(connection, changed=clock.changed)
    await cluster.start()
    pinned = tuple(
        ContainerPolicy(name, min_allowed=amounts(*size), max_allowed=amounts(*size))
        for name, size in (("app", _APP), ("proxy", _PROXY))
    )
    policy = Policy(
        "bridges",
        Percentile(PercentileParameters()),
        Selector(frozenset({"sim"})),
        Mode.RESIZE,
        pinned,
        fallback=Fallback(after=_AFTER, fit=False),
        grid=Grid(lookback=86400),
    )
    metrics = _Metrics(await cluster.observe(), policy)
    timed = _Timed(cluster, connection)
    settings = config(policy)
    loop = Loop(timed, metrics, clock, timed, lambda: settings)
    running = asyncio.create_task(loop.run())
    with suppress(TimeoutError):
        async with asyncio.timeout(_STARTS_S + _SECONDS + 20):
            await timed.all_again.wait()
    clock.stop()
    await running
    figures = {"late": timed.late, "again": timed.again, "turns": timed.turns, "memory_mib": _resident_mib()}
    print(json.dumps(figures))
    await cluster.close()
    await connection.close()


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def _p(values: list[float], percent: float) -> str:
    return f"{np.percentile(values, percent) * 1000:.0f} ms"


async def _main() -> None:
    server = _Server()
    await server.start()
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = write_kubeconfig(Path(folder), server.url)
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.deadlines", str(kubeconfig)),
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"MALLOC_ARENA_MAX": "1"},  # as in the image
        )
        out, _ = await child.communicate()
    await server.stop()
    figures = json.loads(out)
    late = figures["late"]
    print(f"{len(late)} of {_DEFERRED} deadlines with {_PODS} pods; {len(figures['turns'])} full turns,")
    print(f"  each {statistics.median(figures['turns']):.2f} s (median)")
    percentiles = f"p50 {_p(late, 50)}, p99 {_p(late, 99)}, most {_p(late, 100)}"
    print(f"request leaves after it is due: {percentiles} (goal: p99 <= 200 ms)")
    arrived = list(server.late.values())
    print(f"  and arrives, by the server's clock: p50 {_p(arrived, 50)}, p99 {_p(arrived, 99)}")
    print(f"from an answer to the next decision: p50 {_p(figures['again'], 50)}, p99 {_p(figures['again'], 99)}")
    print(f"memory of the controller: {figures['memory_mib']:.0f} MiB (goal: <= 250)")


if __name__ == "__main__":
    asyncio.run(_controller(sys.argv[1]) if len(sys.argv) > 1 else _main())
