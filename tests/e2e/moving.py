"""A stage for stories of moves: nodes of its own, workloads, policies, and the real controller's process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.e2e.bridges import Bridges
from tests.e2e.cli import Controller, plan
from tests.rig.control_plane import CONTROLLER
from tests.rig.rig import Rig, eventually
from tests.rig.usage import Usage

Json = dict[str, Any]

AFTER_S = 3
WRITES = ("create", "update", "patch", "delete", "deletecollection")


class Write(NamedTuple):
    """What the controller had the API server store: `patch pods/resize`, and where."""

    at: datetime
    what: str
    name: str
    manager: str
    uri: str


class Stage:
    """Nodes that only this story's pods are on, and everything that is on them."""

    def __init__(self, rig: Rig, folder: Path, story: str) -> None:
        self.rig, self.folder, self.story = rig, folder, story
        self.namespace = rig.namespace(story)
        self.policies = folder / "policies"
        self.policies.mkdir()
        self.bridges = Bridges()
        self._nodes: list[str] = []

    # what there is

    def node(self, name: str, cpu: str = "4", *, labels: Mapping[str, str] | None = None, **more: Any) -> str:
        """A node for this story's pods; its full name."""
        full = f"{self.story}-{name}"
        self.rig.agent.add_node(full, cpu=cpu, labels={"only-for": self.story, **(labels or {})}, **more)
        self._nodes.append(full)
        return full

    def neighbour(self, node: str, cpu: str) -> None:
        """Somebody else's pod that takes so much of a node."""
        container = {"name": "app", "image": "other", "resources": size(cpu, None)}
        self._apply("v1", "Pod", f"neighbour-on-{node}", {"nodeName": node, "containers": [container]}, "default")

    def workload(
        self,
        kind: str = "StatefulSet",
        name: str = "sim",
        cpu: str = "1",
        *,
        namespace: str | None = None,
        replicas: int = 1,
        limit: str | None = "",
        container: Json | None = None,
        **pod: Any,
    ) -> None:
        """A StatefulSet or Deployment whose pods take `cpu` each. `limit`: of CPU, as the request unless given."""
        app = {"name": "app", "image": "bridge", "resources": size(cpu, cpu if limit == "" else limit)}
        spec: Json = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [app | (container or {})], "nodeSelector": {"only-for": self.story}, **pod},
            },
        }
        if kind == "StatefulSet":
            spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        namespace = namespace or self.namespace
        self._apply("apps/v1", kind, name, spec, namespace)
        eventually(f"{name} runs", lambda: len(self.ready(name, namespace)) == replicas, 30)

    def budget(self, name: str, *, app: str | None = "sim", namespace: str | None = None, **spec: Any) -> None:
        """A PodDisruptionBudget, of all pods of the namespace if `app` is None; returns once it is counted."""
        selector = {} if app is None else {"matchLabels": {"app": app}}
        namespace = namespace or self.namespace
        self._apply("policy/v1", "PodDisruptionBudget", name, {"selector": selector, **spec}, namespace)

        def counted() -> bool:
            found = self.get("poddisruptionbudget", name, namespace)
            return bool(found.get("status", {}).get("observedGeneration"))

        eventually(f"budget {name} is counted", counted)

    def policy(
        self,
        *,
        name: str = "",
        namespace: str | None = None,
        app: str | None = None,
        cpu: str = "2",
        least: str = "",
        stability: Json | None = None,
        **fallback: Any,
    ) -> None:
        """A policy that wants pods to have `cpu`; with `least` what they use, from there up to `cpu`."""
        namespace = namespace or self.namespace
        bounds = {"minAllowed": {"cpu": least or cpu}, "maxAllowed": {"cpu": cpu}}
        selector: Json = {"namespaces": [namespace]} | ({"matchLabels": {"app": app}} if app else {})
        quick = {"halfLife": "5s"}
        document = {
            "apiVersion": "bridge-autoscaler.dev/v1alpha1",
            "kind": "BridgePolicy",
            "metadata": {"name": name or namespace},
            "spec": {
                "selector": selector,
                "mode": "ResizeOrMigrate",
                "recommender": {
                    "name": "percentile",
                    "parameters": {"minHistory": "2s", "cpu": quick, "memory": quick},
                },
                "containers": [{"name": "*", "controlledResources": ["cpu"], **bounds}],
                "metrics": {"lookback": "1m", "step": "1s", "rateWindow": "4s"},
                "stability": {"cooldown": {"increase": "1s", "decrease": "1s"}, **(stability or {})},
                "fallback": {"after": f"{AFTER_S}s", "fit": False, "minPodAge": "1s", **fallback},
            },
        }
        (self.policies / f"{name or namespace}.yaml").write_text(json.dumps(document))  # which is YAML, without aliases

    def controller(self, name: str = "controller", *arguments: str) -> Controller:
        """The process, with a turn each second; alone unless it is told otherwise."""
        return Controller(
            self.rig,
            self.policies,
            self.folder / f"{name}.log",
            *("--interval=1s", "--metrics-address=127.0.0.1:0", "--leader-elect=false"),
            *arguments,
        )

    def uses(self, name: str, cpu: float, namespace: str | None = None) -> None:
        """From now on the pod (or every pod of that owner) uses so many cores."""
        self.rig.agent.usage[namespace or self.namespace, name, "app"] = Usage(cpu=cpu, memory=20 << 20)

    # what is seen

    def get(self, kind: str, name: str, namespace: str | None = None) -> Json:
        found: Json = json.loads(
            self.rig.kubectl("get", kind, name, f"--namespace={namespace or self.namespace}", "--output=json")
        )
        return found

    def pods(self, app: str | None = None, namespace: str | None = None) -> list[Json]:
        """The pods of a namespace, or of one workload, by name."""
        chosen = [f"--selector=app={app}"] if app else []
        command = ("get", "pods", f"--namespace={namespace or self.namespace}", "--output=json", *chosen)
        items: list[Json] = json.loads(self.rig.kubectl(*command))["items"]
        return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

    def ready(self, app: str | None = None, namespace: str | None = None) -> list[Json]:
        """Those that serve."""
        return [pod for pod in self.pods(app, namespace) if is_ready(pod)]

    def pod(self, app: str = "sim", namespace: str | None = None) -> Json:
        """The one pod of a workload."""
        (pod,) = self.pods(app, namespace)
        return pod

    def explained(self, pod: str = "sim-0", namespace: str | None = None) -> Json:
        """What `plan` says about a pod, in another process."""
        document = plan(self.rig, self.policies, f"--namespace={namespace or self.namespace}")
        (item,) = (item for item in document["items"] if item["pod"] == pod)
        found: Json = item
        return found

    def writes(self, namespace: str | None = None) -> list[Write]:
        """What the controller wrote in a namespace, oldest first."""
        return written(self.rig, lambda of: of.get("namespace") == (namespace or self.namespace))

    def evicted(self, namespace: str | None = None) -> list[str]:
        """Pods that were evicted, oldest first."""
        return [one.name for one in self.writes(namespace) if one.what == "create pods/eviction"]

    def moved(self, before: Json, to: str | None = None) -> Callable[[], bool]:
        """Whether a pod of the same name serves on another node."""
        meta, node = before["metadata"], before["spec"]["nodeName"]

        def probe() -> bool:
            pods = self.pods(None, meta["namespace"])
            found = next((pod for pod in pods if pod["metadata"]["name"] == meta["name"]), None)
            if found is None or found["metadata"]["uid"] == meta["uid"] or not is_ready(found):
                return False
            where = found["spec"]["nodeName"]
            return bool(where != node if to is None else where == to)

        return probe

    def close(self) -> None:
        """Take everything away that this story has made."""
        self.bridges.close()
        for node in self._nodes:
            self.rig.kubectl("delete", "pod", f"neighbour-on-{node}", "--ignore-not-found", "--wait=false")
        self.rig.kubectl("delete", "namespace", self.namespace, "--wait=false")
        for node in self._nodes:
            self.rig.agent.remove_node(node)

    def _apply(self, version: str, kind: str, name: str, spec: Json, namespace: str) -> None:
        meta = {"name": name, "namespace": namespace}
        self.rig.apply(yaml.safe_dump({"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}))


def size(cpu: str, limit: str | None) -> Json:
    """Resources with so much CPU, and little memory."""
    requests = {"cpu": cpu, "memory": "32Mi"}
    return {"requests": requests, "limits": {"memory": "32Mi"} | ({"cpu": limit} if limit else {})}


def is_ready(pod: Json) -> bool:
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def cpu_of(pod: Json) -> str:
    """What the pod asks for."""
    found: str = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return found


def in_force(pod: Json) -> str:
    """What the pod has."""
    found: str = pod["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"]
    return found


def written(rig: Rig, where: Callable[[Json], bool]) -> list[Write]:
    """What the API server stored for the controller's service account; what was only tried with dryRun is left out."""
    found: list[Write] = []
    for record in rig.audit():
        of, uri = record.get("objectRef") or {}, record["requestURI"]
        if record["user"]["username"] != CONTROLLER or record["verb"] not in WRITES or not where(of):
            continue
        query = parse_qs(urlsplit(uri).query)
        if record["responseStatus"]["code"] not in (200, 201) or "dryRun" in query:
            continue
        what = f"{record['verb']} {'/'.join(filter(None, (of['resource'], of.get('subresource'))))}"
        at = datetime.fromisoformat(record["requestReceivedTimestamp"])
        found.append(Write(at, what, of.get("name", ""), query.get("fieldManager", [""])[0], uri))
    return sorted(found)
