"""Objects as an API server writes them, as small as tests allow, and the captures of a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autoscaler.adapters.kubernetes.wire import decode_pod
from autoscaler.core.model import Pod

Json = dict[str, Any]
_CAPTURES = Path(__file__).parents[2] / "captures"


def capture(name: str) -> Json:
    """An answer of a real API server of 1.37.2 with a real kubelet."""
    document: Json = json.loads((_CAPTURES / f"{name}.json").read_text())
    return document


def raw(item: Json) -> bytes:
    return json.dumps(item).encode()


def decoded(item: Json) -> Pod:
    """The pod that an object decodes to."""
    one = decode_pod(raw(item))
    assert one.value is not None, one.problem
    return one.value


def resources(cpu: str = "1", memory: str = "1Gi", factor: int = 1) -> Json:
    """Requests, and limits `factor` times as large."""
    return {
        "requests": {"cpu": cpu, "memory": memory},
        "limits": {"cpu": str(int(cpu) * factor), "memory": f"{int(memory[:-2]) * factor}Gi"},
    }


def pod(name: str = "bridge-0", *, version: int = 1, generation: int = 1, uid: str = "", **size: Any) -> Json:
    """A running Guaranteed pod of the namespace `sim` with one container `app`."""
    return {
        "metadata": {
            "name": name,
            "namespace": "sim",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "generation": generation,
            "labels": {"app": "bridge"},
        },
        "spec": {"nodeName": "node-a", "containers": [{"name": "app", "resources": resources(**size)}]},
        "status": {
            "phase": "Running",
            "qosClass": "Guaranteed",
            "observedGeneration": generation,
            "containerStatuses": [
                {
                    "name": "app",
                    "state": {"running": {"startedAt": "2026-11-29T10:00:00Z"}},
                    "restartCount": 0,
                    "allocatedResources": resources(**size)["requests"],
                    "resources": resources(**size),
                }
            ],
        },
    }


def node(name: str = "node-a", *, version: int = 1, cpu: str = "4") -> Json:
    return {
        "metadata": {"name": name, "resourceVersion": str(version), "labels": {"kubernetes.io/os": "linux"}},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-29T10:00:00Z"}],
        },
    }


def owned(name: str, owner: str | None, *, version: int = 1) -> Json:
    """The metadata of an object of the namespace `sim`, with a controller ("Kind/name")."""
    kind, _, above = (owner or "").partition("/")
    references = [{"kind": kind, "name": above, "controller": True, "uid": "u"}] if owner else []
    return {
        "metadata": {
            "name": name,
            "namespace": "sim",
            "resourceVersion": str(version),
            "ownerReferences": references,
        }
    }


def metadata(name: str, *, namespace: str = "sim", version: int = 1, **more: Any) -> Json:
    """The metadata of any object, of the first generation; without a namespace it belongs to the cluster."""
    where = {"namespace": namespace} if namespace else {}
    return {"name": name, **where, "uid": f"uid-{name}", "resourceVersion": str(version), "generation": 1, **more}


def workload(name: str = "bridge", replicas: int = 2, *, version: int = 1, **metadata_: Any) -> Json:
    """A Deployment, ReplicaSet or StatefulSet of the namespace `sim` whose pods are all there, of its one template."""
    return {
        "metadata": metadata(name, version=version, **metadata_),
        "spec": {
            "replicas": replicas,
            "template": {
                "metadata": {"labels": {"app": "bridge"}},
                "spec": {"containers": [{"name": "app", "resources": resources()}]},
            },
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        },
        "status": {
            "observedGeneration": 1,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "currentRevision": "bridge-1",
            "updateRevision": "bridge-1",
        },
    }


_ODD: tuple[Any, ...] = (None, True, -7, 1.5, 10**30, "", "odd", [], ["odd"], [None], {}, {"odd": None})


def broken(value: Any) -> Iterator[Any]:
    """The object with each of its values in turn replaced by each of some odd ones."""
    if isinstance(value, dict):
        for key, one in value.items():
            for odd in (*_ODD, *broken(one)):
                yield value | {key: odd}
    elif isinstance(value, list):
        for index, one in enumerate(value):
            for odd in (*_ODD, *broken(one)):
                yield [*value[:index], odd, *value[index + 1 :]]
