"""From a step of load to the limits that follow: how long each part of the way takes.

Times are unix seconds of this machine, whose clock the controller has too. A sample carries its node's time: what the
two clocks differ by moves from one of the first two parts to the other. What is asked for again and again (Prometheus,
the pod) is known to some 0.2 s, a cgroup to some 20 ms.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from tests.kubelet.cluster import Json, condition
from tests.kubelet.controller import Controller
from tests.kubelet.pods import Bridge, Lookout
from tests.kubelet.stage import Stage, in_force
from tests.rig.prometheus_server import PrometheusServer

MIB = 1 << 20
FILES = {"cpu": ("cpu.max", "cpu.weight"), "memory": ("memory.max",)}
_EVERY_S = 0.1
_UNFINISHED = ("PodResizeInProgress", "PodResizePending")

PARTS = {
    "sample": "the load changes, until the kubelet has a sample that shows it",
    "scrape": "until that is in Prometheus",
    "query": "until the controller asks for an instant that shows it",
    "wait": "until the next turn begins",
    "decide": "until the patch is sent",
    "patch": "until the API server has answered",
    "kubelet": "until the first cgroup file has changed",
    "cgroup": "until the last one of container and pod has",
}
"""The parts in their order, each beginning where the one before ends."""


class Patch(NamedTuple):
    """A resize that was accepted: its log line, and when its usage was measured, its turn began and it was sent."""

    line: dict[str, Any]
    measured_at: float
    turn_at: float
    sent_at: float
    answered_at: float

    def asks(self, resource: str) -> bool:
        """Whether it changes the limit of a resource."""
        return any(f"limits.{resource}" in changed for changed in self.line["changes"].values())


class Change(NamedTuple):
    """A cgroup file changed. `of`: container or pod."""

    at: float
    of: str
    file: str
    value: str


@dataclass(frozen=True)
class Course:
    """What happened after a step of load. By resource, `stepped_at`: when it had changed, and `seen`: when the first
    sample that shows it was taken, and when that was in Prometheus. `in_progress_at`, `in_force_at`: when the pod's
    status first said so of the first patch (None: it was not seen to)."""

    stepped_at: dict[str, float]
    seen: dict[str, tuple[float, float]]
    patches: Sequence[Patch]
    changes: Sequence[Change]
    in_progress_at: float | None
    in_force_at: float | None

    @property
    def began_at(self) -> float:
        """When the load began to change."""
        return min(self.stepped_at.values())

    def parts(self, resource: str) -> dict[str, float]:
        """Seconds of each of `PARTS`, up to the first new limit of a resource. Raises AssertionError if there is none,
        or no sample was seen to show the load."""
        number, patch = next((at, one) for at, one in enumerate(self.patches) if one.asks(resource))
        until = self.patches[number + 1].sent_at if number + 1 < len(self.patches) else float("inf")
        changed = [one.at for one in self.changes if one.file in FILES[resource] and patch.sent_at <= one.at < until]
        assert changed, f"no cgroup file of {resource} changed: {self.changes}"
        assert resource in self.seen, f"no sample showed the {resource}"
        sampled_at, scraped_at = self.seen[resource]
        moments = (
            *(self.stepped_at[resource], sampled_at, scraped_at, patch.measured_at, patch.turn_at),
            *(patch.sent_at, patch.answered_at, min(changed), max(changed)),
        )
        return {part: moments[at + 1] - moments[at] for at, part in enumerate(PARTS)}

    def whole_s(self, resource: str) -> float:
        """Seconds until the limit has the value that it keeps."""
        return max(one.at for one in self.changes if one.file in FILES[resource]) - self.stepped_at[resource]


def ordinary_node(stage: Stage) -> str:
    """A node on which a Guaranteed pod can be resized: its CPU manager is not static, as far as is known."""
    ground = stage.cluster.ground
    found = next((node for node in ground.nodes if node != ground.static_node), None)
    if found is None:
        pytest.skip("the only node has a static CPU manager; name another one in E2E_NODES")
    return found


def run(
    bridge: Bridge,
    lookout: Lookout,
    prometheus: PrometheusServer,
    controller: Controller,
    *,
    cpu: float | None,
    memory_mib: int | None,
    quiet_s: float,
    within_s: float,
) -> Course:
    """Change the load, and wait until each resource of it has been resized and for `quiet_s` nothing more. A step of
    memory must be larger than what the bridge uses besides, some 20 MiB. Raises AssertionError if it lasts longer than
    `within_s`."""
    pod = bridge.pod()
    lookout.watch(pod)
    stepped_at = _step(bridge, cpu, memory_mib)
    began_at = busy_at = min(stepped_at.values())
    give_up_at = began_at + within_s
    queries = _queries(bridge, began_at, cpu, memory_mib)
    seen: dict[str, tuple[float, float]] = {}
    in_progress_at = in_force_at = None
    before, patches = in_force(pod), list[Patch]()
    while time.time() < busy_at + quiet_s or not all(any(one.asks(what) for one in patches) for what in stepped_at):
        time.sleep(_EVERY_S)
        for resource in queries.keys() - seen.keys():
            if found := prometheus.query(queries[resource]):
                seen[resource] = min(value for _, value in found), time.time()
        known, patches = len(patches), [one for one in _patches(controller.lines()) if one.sent_at >= began_at]
        pod, now = bridge.pod(), time.time()
        if in_progress_at is None and condition(pod, "PodResizeInProgress"):
            in_progress_at = now
        if in_force_at is None and in_force(pod) != before:
            in_force_at = now
        if len(patches) > known or any(condition(pod, kind) for kind in _UNFINISHED):
            busy_at = now
        assert now < give_up_at, f"not over within {within_s:g} s: {patches}, {controller.lines()[-1]}"
    return Course(stepped_at, seen, patches, changes(lookout, pod), in_progress_at, in_force_at)


def _step(bridge: Bridge, cpu: float | None, memory_mib: int | None) -> dict[str, float]:
    """Change the load; when each resource had changed. To touch memory takes a while, and CPU."""
    stepped_at = {}
    if memory_mib is not None:
        bridge.load(memory_mib=memory_mib)
        stepped_at["memory"] = time.time()
    if cpu is not None:
        stepped_at["cpu"] = time.time()
        bridge.load(cpu=cpu)
    return stepped_at


def changes(lookout: Lookout, pod: Json) -> list[Change]:
    """What has changed since it is watched."""
    asked_at = time.time()
    found = lookout.changes(pod)
    now = (asked_at + time.time()) / 2
    return [Change(now - one["ago_s"], one["of"], one["file"], one["is"]) for one in found]


def _queries(bridge: Bridge, since: float, cpu: float | None, memory_mib: int | None) -> dict[str, str]:
    """For each resource that changes, a query for the time of its newest sample, if that shows the change."""
    labels = f'namespace="{bridge.namespace}",pod="{bridge.name}",container="app"'
    queries = {}
    if cpu is not None:
        queries["cpu"] = f"timestamp(container_cpu_usage_seconds_total{{{labels}}}) > {since!r}"
    if memory_mib is not None:
        series = f"container_memory_working_set_bytes{{{labels}}}"
        queries["memory"] = f"timestamp({series}) and ({series} > {memory_mib * MIB})"
    return queries


def _patches(lines: Iterable[dict[str, Any]]) -> list[Patch]:
    """The resizes of a log that were accepted. The line of a turn follows those of its resizes."""
    found: list[Patch] = []
    waiting: list[dict[str, Any]] = []
    for line in lines:
        if line["event"] == "resize" and line["outcome"] == "Accepted":
            waiting.append(line)
        elif line["event"] == "turn":
            ended_at = _moment(line)
            turn_at = ended_at - line["took_s"]
            for one in waiting:
                answered_at = _moment(one)
                measured_at = turn_at - line["measurement_age_s"]
                found.append(Patch(one, measured_at, turn_at, answered_at - one["took_s"], answered_at))
            waiting = []
    return found


def _moment(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()


def table(courses: Sequence[Course], resource: str) -> list[str]:
    """A line for each part, for all up to the first new limit, and for all up to the last: the median, and from the
    least to the most, in seconds."""
    parts = [course.parts(resource) for course in courses]
    rows = {name: [one[name] for one in parts] for name in PARTS}
    rows["first limit"] = [sum(one.values()) for one in parts]
    rows["last limit"] = [course.whole_s(resource) for course in courses]
    return [f"{resource}, {name}: {spread(values)}" for name, values in rows.items()]


def told(courses: Sequence[Course]) -> list[str]:
    """The same of what a pod's status says of the first patch, counted from the API server's answer."""
    taken_up = [one.in_progress_at - one.patches[0].answered_at for one in courses if one.in_progress_at is not None]
    done = [one.in_force_at - one.patches[0].answered_at for one in courses if one.in_force_at is not None]
    found = {"PodResizeInProgress": taken_up, "in force": done}
    return [f"status, {name}: {spread(values)}" for name, values in found.items() if values]


def spread(values: Sequence[float]) -> str:
    """`median 1.2 s (0.9 to 1.8 s)`; one value alone as it is."""
    if len(values) == 1:
        return f"{values[0]:.2f} s"
    return f"{statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"
