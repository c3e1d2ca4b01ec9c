"""What runs in the cluster: bridges, their users, and a lookout on each node. All are one program, tests/bridge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.kubelet.cluster import PORT, Cluster, Json, container_id

GRPC_PORT = 9090
COMPONENT = {"app.kubernetes.io/component": "bridge"}
SOON = 1  # grace period in seconds


def sizes(cpu: str, memory: str, *, cpu_limit: str | None = None, memory_limit: str | None = None) -> Json:
    """`resources` of a container; a limit is what is requested unless given."""
    return {
        "requests": {"cpu": cpu, "memory": memory},
        "limits": {"cpu": cpu_limit or cpu, "memory": memory_limit or memory},
    }


def pod_spec(cluster: Cluster, resources: Json, *, node: str | None, arguments: Sequence[str], **app: Any) -> Json:
    """The spec of a pod that runs the program with these arguments in its container `app`."""
    container = {
        "name": "app",
        "image": cluster.ground.image,
        "imagePullPolicy": "IfNotPresent",
        "args": list(arguments),
        "resources": resources,
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": PORT}, "periodSeconds": 1, "timeoutSeconds": 10},
        **app,
    }
    spec: Json = {
        "containers": [container],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": SOON,
        "enableServiceLinks": False,
    }
    if node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return spec


def bridge(
    cluster: Cluster,
    namespace: str,
    name: str,
    resources: Json,
    *,
    node: str | None = None,
    replicas: int = 1,
    template: Mapping[str, Any] | None = None,
    **app: Any,
) -> Json:
    """A StatefulSet of bridges, whose pods are NAME-0 and up. `template`: more of the pod's spec; `app`: more of its
    container."""
    spec = pod_spec(cluster, resources, node=node, arguments=["serve"], **app) | dict(template or {})
    labels = {"app": name, **COMPONENT}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def filler(cluster: Cluster, namespace: str, name: str, node: str, cpu: str) -> Json:
    """Somebody else's pod, which requests so much of a node and uses nothing."""
    spec = pod_spec(cluster, {"requests": {"cpu": cpu}}, node=node, arguments=["sessions"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


class Bridge:
    """A bridge that runs."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name
        self.first = cluster.ready(namespace, name)

    def pod(self) -> Json:
        """As the API server has it now."""
        return self.cluster.pod(self.namespace, self.name)

    def load(self, *, cpu: float | None = None, memory_mib: int | None = None) -> None:
        """From now on it wants so many cores and holds so much memory; None: as before."""
        wanted = {key: value for key, value in (("cpu", cpu), ("memory_mib", memory_mib)) if value is not None}
        self.cluster.ask(self.first, "POST", "load", wanted)

    def drain(self) -> Json:
        """What it was last told by the drain gate's notice, and how often."""
        told: Json = self.cluster.ask(self.first, "GET", "drain")
        return told

    def untouched(self) -> None:
        """Raises AssertionError unless it is the same pod with the same container as at first, never restarted."""
        now = self.pod()
        assert now["metadata"]["uid"] == self.first["metadata"]["uid"]
        assert container_id(now) == container_id(self.first)
        assert now["status"]["containerStatuses"][0]["restartCount"] == 0


class Users:
    """Sessions with bridges, held by a pod. They never connect again by themselves."""

    def __init__(self, cluster: Cluster, namespace: str, node: str | None, name: str = "users") -> None:
        self.cluster = cluster
        spec = pod_spec(cluster, {"requests": {"cpu": "50m", "memory": "64Mi"}}, node=node, arguments=["sessions"])
        meta = {"name": name, "namespace": namespace, "labels": {"app": name}}
        cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        self._pod = cluster.ready(namespace, name)

    def connect(self, bridge: Bridge, *, websocket: int, grpc: int, every_ms: int = 2000) -> None:
        """Open so many sessions, each with a heartbeat of its own."""
        target = {"target": bridge.pod()["status"]["podIP"], "http_port": PORT, "grpc_port": GRPC_PORT}
        asked = {"websocket": websocket, "grpc": grpc, "every_ms": every_ms}
        self.cluster.ask(self._pod, "POST", "open", target | asked)

    def leave(self, count: int | None = None) -> None:
        """So many sessions end, orderly; by default all."""
        self.cluster.ask(self._pod, "POST", "close", {} if count is None else {"count": count})

    def report(self, last_s: float | None = None) -> Json:
        """What they have seen; heartbeats of the last seconds only, if said so."""
        found: Json = self.cluster.ask(self._pod, "GET", "report" if last_s is None else f"report?last={last_s:g}")
        return found


class Lookout:
    """Sees the cgroups of a node, and may send signals to its kubelet."""

    def __init__(self, cluster: Cluster, namespace: str, node: str) -> None:
        self.cluster, self.node = cluster, node
        mount = {"name": "cgroups", "mountPath": "/host/sys/fs/cgroup", "readOnly": True}
        app: Json = {"securityContext": {"privileged": True}, "volumeMounts": [mount]}
        requests = {"requests": {"cpu": "10m", "memory": "16Mi"}}
        spec = pod_spec(cluster, requests, node=node, arguments=["lookout", "--root=/host"], **app)
        spec |= {"hostPID": True, "volumes": [{"name": "cgroups", "hostPath": {"path": "/sys/fs/cgroup"}}]}
        meta = {"name": f"lookout-{node}", "namespace": namespace}
        cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        self._pod = cluster.ready(namespace, meta["name"])

    def cgroup(self, pod: Json, container: str = "app") -> Json:
        """Files of a container's cgroup and of its pod's, by `container` and `pod`, then by name."""
        found: Json = self.cluster.ask(self._pod, "GET", f"cgroup?container={container_id(pod, container)}")
        return found

    def watch(self, pod: Json) -> None:
        """Note from now on, to some 10 ms, when limits of a pod's container `app` change."""
        self.cluster.ask(self._pod, "POST", f"watch?container={container_id(pod)}")

    def changes(self, pod: Json) -> list[Json]:
        """What has changed since: `ago_s`, `of` (container or pod), `file`, `was`, `is`."""
        found: list[Json] = self.cluster.ask(self._pod, "GET", f"watch?container={container_id(pod)}")
        return found

    def signal_kubelet(self, signal: str) -> None:
        """TERM, KILL, STOP or CONT."""
        self.cluster.ask(self._pod, "POST", f"kubelet?signal={signal}")

    def kubelet(self) -> Json:
        """`pid` and `age_s` of the kubelet's process."""
        found: Json = self.cluster.ask(self._pod, "GET", "kubelet")
        return found
