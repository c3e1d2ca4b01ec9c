"""What a kubelet knows of one pod that it runs, and the status that it writes from it. No I/O."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from autoscaler.adapters.kubernetes.wire import decode_pod
from autoscaler.core.kubelet import Answer, actual, allocated, footprint, restarts
from autoscaler.core.model import Container, ContainerKind, Pod, QoSClass, Resource, ResourceList, Resources
from autoscaler.core.resize import IN_PROGRESS, PENDING
from tests.rig.usage import Meter

Json = dict[str, Any]


@dataclass
class Running:
    """One container: what the node has set aside for it, what is in force, and its life so far."""

    spec: Json
    kind: ContainerKind
    allocated: Resources
    actual: Resources
    meter: Meter
    id: str
    started_at: float
    restarts: int = 0
    last_terminated: Json | None = None

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def ended(self) -> bool:
        """A plain init container has done its work before the pod runs."""
        return self.kind is ContainerKind.INIT

    def restart(self, now: float) -> None:
        """End the container and start it anew, with a cgroup of its own."""
        self.last_terminated = _terminated(self, now)
        self.id, self.started_at, self.meter = secrets.token_hex(32), now, Meter(now)
        self.restarts += 1


@dataclass(frozen=True)
class PendingResize:
    """A resize that was not accepted: the answer, the generation it is about, and when it was first and last given."""

    answer: Answer
    generation: int
    since: float
    tried_at: float


@dataclass(frozen=True)
class ProgressingResize:
    """A resize that is being applied; `error` is why it could not be so far."""

    generation: int
    since: float
    tried_at: float
    error: str | None = None


class PodRecord:
    """A pod on a node, from the kubelet's side: it decides by this, not by the status that the API server has."""

    def __init__(self, raw: Json, ip: str) -> None:
        self.raw = raw
        self.pod = _decoded(raw)
        self.started_at = time.time()
        self.ready_at: float | None = self.started_at  # None: not yet
        self.pending: PendingResize | None = None
        self.progressing: ProgressingResize | None = None
        self.decided_generation = self.pod.generation
        self.written: Json | None = None
        self._ip = ip
        specs = {c["name"]: c for c in [*raw["spec"].get("initContainers", []), *raw["spec"]["containers"]]}
        self.containers = {
            c.name: Running(
                specs[c.name],
                c.kind,
                c.spec,
                c.spec,
                Meter(self.started_at),
                secrets.token_hex(32),
                self.started_at,
            )
            for c in self.pod.containers
        }

    @property
    def node(self) -> str:
        return str(self.raw["spec"]["nodeName"])

    def update(self, raw: Json) -> None:
        """Take note of a newer version of the pod."""
        self.raw, self.pod = raw, _decoded(raw)

    def view(self) -> Pod:
        """The pod as the kubelet sees it: the newest spec, its own allocated and actual resources."""
        return replace(self.pod, containers=tuple(self._view(c) for c in self.pod.containers))

    def _view(self, container: Container) -> Container:
        mine = self.containers[container.name]
        return replace(container, allocated=mine.allocated.requests, actual=mine.actual, running=not mine.ended)

    def target(self) -> Pod:
        """The same with the allocated resources as its spec: what actuation works towards."""
        seen = self.view()
        return replace(
            seen, containers=tuple(replace(c, spec=self.containers[c.name].allocated) for c in seen.containers)
        )

    def allocate(self) -> bool:
        """Set aside what the newest spec asks for. True if that differs from before."""
        changed = False
        for container in self.pod.containers:
            mine = self.containers[container.name]
            changed |= mine.allocated != container.spec
            mine.allocated = container.spec
        return changed

    def actuate(self, now: float) -> None:
        """Put the allocated resources in force, with the restarts that resizePolicy asks for."""
        for name in restarts(self.view(), self.target()):
            self.containers[name].restart(now)
        for container in self.containers.values():
            container.actual = container.allocated

    def status_patch(self) -> Json:
        """The strategic merge patch for `pods/status`; the uid in it makes sure that it is still this pod."""
        ready = self.ready_at is not None
        statuses = [(c.kind, _container_status(c, ready)) for c in self.containers.values()]
        plain = [status for kind, status in statuses if kind is ContainerKind.CONTAINER]
        init = [status for kind, status in statuses if kind is not ContainerKind.CONTAINER]
        status: Json = {
            "phase": "Running",
            "observedGeneration": self.decided_generation,
            "startTime": timestamp(self.started_at),
            "hostIP": "127.0.0.1",
            "hostIPs": [{"ip": "127.0.0.1"}],
            "podIP": self._ip,
            "podIPs": [{"ip": self._ip}],
            "conditions": self._conditions(),
            "containerStatuses": plain,
        }
        if init:
            status["initContainerStatuses"] = init
        seen = self.view()
        if self.pod.qos_class is not QoSClass.BEST_EFFORT:
            granted, in_force = footprint(seen, allocated), footprint(seen, actual)
            status["allocatedResources"] = _quantities(granted, {})
            # of memory there is nothing in force by which a request could be told
            status["resources"] = {"requests": _quantities(granted.with_amount(Resource.CPU, in_force.cpu), {})}
        return {"metadata": {"uid": self.pod.uid}, "status": status}

    def _conditions(self) -> list[Json]:
        conditions: list[Json] = [
            _condition(kind, self.decided_generation, self.started_at)
            for kind in ("PodReadyToStartContainers", "Initialized", "PodScheduled")
        ]
        ready = {} if self.ready_at is not None else {"status": "False"}
        conditions += [
            _condition(kind, self.decided_generation, self.ready_at or self.started_at) | ready
            for kind in ("Ready", "ContainersReady")
        ]
        absent = {"$patch": "delete"}
        pending, progressing = self.pending, self.progressing
        if pending is not None:
            words = {"reason": str(pending.answer.verdict), "message": pending.answer.message}
            conditions.append(_condition(PENDING, pending.generation, pending.since, pending.tried_at) | words)
        else:
            conditions.append({"type": PENDING} | absent)
        if progressing is not None:
            words = {} if progressing.error is None else {"reason": "Error", "message": progressing.error}
            # an earlier reason does not go away by being left out of a merge
            words = words or {"reason": "", "message": ""}
            condition = _condition(IN_PROGRESS, progressing.generation, progressing.since, progressing.tried_at)
            conditions.append(condition | words)
        else:
            conditions.append({"type": IN_PROGRESS} | absent)
        return conditions


def _decoded(raw: Json) -> Pod:
    pod = decode_pod(json.dumps(raw).encode())
    assert pod.value is not None, pod.problem
    return pod.value


def _condition(kind: str, generation: int, since: float, tried_at: float | None = None) -> Json:
    return {
        "type": kind,
        "status": "True",
        "observedGeneration": generation,
        "lastProbeTime": None if tried_at is None else timestamp(tried_at),
        "lastTransitionTime": timestamp(since),
    }


def _container_status(container: Running, ready: bool) -> Json:
    spec = container.spec.get("resources", {})
    running = {"running": {"startedAt": timestamp(container.started_at)}}
    ended = {"terminated": _terminated(container, container.started_at)}
    return {
        "name": container.name,
        "image": container.spec["image"],
        "imageID": container.spec["image"],
        "containerID": f"containerd://{container.id}",
        "ready": ready or container.ended,
        "started": not container.ended,
        "restartCount": container.restarts,
        "state": ended if container.ended else running,
        "lastState": {} if container.last_terminated is None else {"terminated": container.last_terminated},
        "allocatedResources": _quantities(container.allocated.requests, spec.get("requests", {})),
        "resources": {
            "requests": _quantities(container.actual.requests, spec.get("requests", {})),
            "limits": _quantities(container.actual.limits, spec.get("limits", {})),
        },
    }


def _terminated(container: Running, at: float) -> Json:
    return {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": timestamp(container.started_at),
        "finishedAt": timestamp(at),
        "containerID": f"containerd://{container.id}",
    }


def _quantities(amounts: ResourceList, spec: Json) -> Json:
    others = {key: value for key, value in spec.items() if key not in set(Resource)}
    return others | {str(r): r.quantity(amount) for r in Resource if (amount := amounts.get(r)) is not None}


def timestamp(unix: float) -> str:
    """RFC 3339 in whole seconds, as the API has it."""
    return datetime.fromtimestamp(int(unix), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
