"""A cluster with real kubelets, as its stories see it: any cluster of which there is a kubeconfig.

Everything goes through `kubectl proxy`, which knows how to authenticate: the API, the pods (pods/proxy) and, for
Prometheus, the kubelets (nodes/proxy).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from tests.rig.build import binary
from tests.rig.process import Process, free_ports

Json = dict[str, Any]
T = TypeVar("T")

PORT = 8080  # of everything in the test bridge's image
STRATEGIC_MERGE = "application/strategic-merge-patch+json"


class Refusal(Exception):
    """What was asked over HTTP was not done: the status, and what was said."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status} {said}")
        self.status, self.said = status, said

    @property
    def document(self) -> Json:
        """What was said, where it was JSON: of the API server, a metav1.Status."""
        decoded = json.loads(self.said)
        assert isinstance(decoded, dict)
        return decoded


@dataclass(frozen=True)
class Ground:
    """What is particular to a cluster. `nodes`: those that stories use, one at least; `static_node`: one of them whose
    CPU manager is static; `reaches_pods`: whether the machine that the tests run on can connect to pods."""

    kubeconfig: Path
    image: str
    nodes: Sequence[str]
    static_node: str | None
    reaches_pods: bool


def eventually(what: str, probe: Callable[[], T | None], within_s: float = 60, every_s: float = 0.25) -> T:
    """Ask again and again until the answer is neither None nor false; that answer. Raises AssertionError."""
    give_up_at = time.monotonic() + within_s
    while not (answer := probe()):
        assert time.monotonic() < give_up_at, f"not within {within_s:g} s: {what}"
        time.sleep(every_s)
    return answer


class Cluster:
    """`close` takes away all that was made through it."""

    def __init__(self, folder: Path, ground: Ground) -> None:
        self.folder, self.ground = folder, ground
        self._numbers = count(1)
        self._kubectl = binary("kubectl")
        self._namespaces: list[str] = []
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        with ExitStack() as started:
            line = [f"--kubeconfig={ground.kubeconfig}", "proxy", f"--port={port}", "--reject-paths=^$"]
            proxy = Process("kubectl proxy", [self._kubectl, *line], folder / "kubectl-proxy.log")
            started.callback(proxy.stop)
            proxy.wait_ready(f"{self.url}/readyz")
            started.callback(self._delete_namespaces)
            self._started = started.pop_all()

    def close(self) -> None:
        """Delete the namespaces, and wait until they are gone."""
        self._started.close()

    def kubectl(self, *arguments: str | Path, stdin: str | None = None, timeout_s: float = 120) -> str:
        """Run kubectl. Returns its stdout; raises AssertionError with its stderr."""
        done = subprocess.run(
            [str(self._kubectl), f"--kubeconfig={self.ground.kubeconfig}", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, "HOME": str(self.folder)},  # its discovery cache belongs to this cluster
        )
        if done.returncode:
            raise AssertionError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def call(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """A request to the API server; the decoded answer. Raises `Refusal`."""
        answer = self.fetch(method, path, body, content_type)
        return json.loads(answer) if answer else None

    def fetch(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> str:
        """The same; the answer as text."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": content_type}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                raise Refusal(error.code, error.read().decode(errors="replace")) from None
        except OSError as error:
            raise Refusal(0, str(error)) from None

    def create(self, *manifests: Json) -> None:
        """Create objects, in namespaces of their own choice, validated strictly."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        self.kubectl("create", "--validate=strict", "-f", "-", stdin=text)

    def namespace(self, prefix: str) -> str:
        """A fresh namespace, deleted at the end."""
        # privileged: for the pods that look at a node; of no effect where the cluster does not enforce it
        name = f"e2e-{prefix}-{os.getpid()}-{next(self._numbers)}"
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        self._namespaces.append(name)
        return name

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace before the end, for its pods to make room: they are gone when this returns."""
        self._namespaces.remove(name)
        self.kubectl("delete", "pods", "--all", f"-n={name}", "--grace-period=1", "--wait=false")
        self.kubectl("delete", "namespace", name, "--wait=false")
        eventually(f"the pods of {name} are gone", lambda: not self.pods(name), 120)

    def pods(self, namespace: str, labels: Mapping[str, str] | None = None) -> list[Json]:
        """The pods of a namespace."""
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        items: list[Json] = self.call("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"]
        return items

    def pod(self, namespace: str, name: str) -> Json:
        """A pod. Raises `Refusal`."""
        found: Json = self.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        return found

    def ready(self, namespace: str, name: str, within_s: float = 120) -> Json:
        """The pod once it is ready."""

        def probe() -> Json | None:
            try:
                found = self.pod(namespace, name)
            except Refusal as refusal:
                if refusal.status == 404:
                    return None
                raise
            return found if condition(found, "Ready").get("status") == "True" else None

        return eventually(f"{namespace}/{name} is ready", probe, within_s)

    def resize(self, pod: Json, resources: Mapping[str, Json]) -> Json:
        """Ask for `resources` by container, as admin. Returns the pod; raises `Refusal`."""
        containers = [{"name": name, "resources": sizes} for name, sizes in resources.items()]
        asked: Json = self.call(
            "PATCH", f"{path_of(pod)}/resize", {"spec": {"containers": containers}}, STRATEGIC_MERGE
        )
        return asked

    def ask(self, pod: Json, method: str, path: str, body: object = None) -> Any:
        """Ask what runs in a pod, over HTTP. Raises `Refusal`."""
        meta = pod["metadata"]
        return self.call(
            method, f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:{PORT}/proxy/{path}", body
        )

    def node(self, name: str) -> Json:
        """A node."""
        found: Json = self.call("GET", f"/api/v1/nodes/{name}")
        return found

    def events(self, pod: Json) -> list[tuple[str, str]]:
        """Reason and message of what was told of a pod."""
        meta = pod["metadata"]
        field = f"involvedObject.uid={meta['uid']}"
        items = self.call("GET", f"/api/v1/namespaces/{meta['namespace']}/events?fieldSelector={field}")["items"]
        return [(event["reason"], event["message"]) for event in items]

    def _delete_namespaces(self) -> None:
        if self._namespaces:
            self.kubectl("delete", "namespace", *self._namespaces, "--wait=false")


def path_of(pod: Json) -> str:
    """A pod's path in the API."""
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def condition(pod: Json, kind: str) -> Json:
    """A condition of a pod; empty when it has none of that kind."""
    conditions: list[Json] = pod["status"].get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


def status(pod: Json, container: str = "app") -> Json:
    """The status of one of its containers; empty before there is one."""
    statuses: list[Json] = pod["status"].get("containerStatuses", [])
    return next((one for one in statuses if one["name"] == container), {})


def container_id(pod: Json, container: str = "app") -> str:
    """The id by which the container runtime knows it."""
    found = re.search(r"[0-9a-f]{64}$", status(pod, container)["containerID"])
    assert found is not None, status(pod, container)
    return found[0]
