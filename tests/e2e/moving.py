"""A stage for stories of moves: nodes of its own, workloads, policies, and the real controller's process."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.e2e.bridges import Bridges
from tests.e2e.cli import Controller, plan
from tests.rig.control_plane import CONTROLLER
from tests.rig.rig import Rig, eventually
from tests.rig.usage import Usage

Json = dict[str, Any]

AFTER_S = 3
_WRITES = ("create", "update", "patch", "delete", "deletecollection")


class Write(NamedTuple):
    """What the controller had the API server store: `patch pods/resize`, of what, under which field manager."""

    at: datetime
    what: str
    name: str
    manager: str


class Stage:
    """Nodes that only this story's pods are on, and everything that is on them. `close` takes all of it away."""

    def __init__(self, rig: Rig, folder: Path, story: str) -> None:
        self.rig, self.folder, self.story = rig, folder, story
        self.policies = folder / "policies"
        self.policies.mkdir()
        self.bridges = Bridges()
        self._nodes: list[str] = []
        self._namespaces: list[str] = []
        self.namespace = self.new_namespace()

    def close(self) -> None:
        """Everything goes, pods first: none is to be scheduled anew."""
        self.bridges.close()
        self.rig.kubectl("delete", "namespace", *self._namespaces, "--wait=false")
        for node in self._nodes:
            self.rig.agent.remove_node(node)

    # what there is

    def new_namespace(self) -> str:
        self._namespaces.append(self.rig.namespace(self.story))
        return self._namespaces[-1]

    def node(
        self, name: str, cpu: str = "4", *, app: str = "sim", labels: Mapping[str, str] | None = None, **more: Any
    ) -> str:
        """A node for the pods of that app; its full name."""
        full = f"{self.story}-{name}"
        self.rig.agent.add_node(full, cpu=cpu, labels=self._where(app) | dict(labels or {}), **more)
        self._nodes.append(full)
        return full

    def _where(self, app: str) -> dict[str, str]:
        return {"story": self.story, "for": app}

    def made(self, version: str, kind: str, name: str, spec: Json, namespace: str | None = None) -> Json:
        """A manifest."""
        meta = {"name": name, "namespace": namespace or self.namespace, "labels": {"app": name}}
        return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}

    def neighbour(self, node: str, cpu: str) -> Json:
        """Somebody else's pod that takes so much of a node."""
        container = {"name": "app", "image": "other", "resources": size(cpu, None)}
        made = self.made("v1", "Pod", f"on-{node}", {"nodeName": node, "containers": [container]}, "default")
        del made["metadata"]["labels"]
        return made

    def workload(
        self,
        name: str = "sim",
        kind: str = "StatefulSet",
        cpu: str = "1",
        *,
        namespace: str | None = None,
        replicas: int = 1,
        limit: str | None = "",
        resources: Json | None = None,
        **pod: Any,
    ) -> Json:
        """A workload whose pods have `cpu` each. `limit`: of CPU, as the request unless given; None for none."""
        app = {"name": "app", "image": "bridge", "resources": resources or size(cpu, cpu if limit == "" else limit)}
        template = {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [app], "nodeSelector": self._where(name), **pod},
        }
        selector = {"matchLabels": {"app": name}}
        match kind:
            case "StatefulSet":
                spec: Json = {"selector": selector, "template": template, "replicas": replicas, "serviceName": name}
            case "Deployment":
                spec = {"selector": selector, "template": template, "replicas": replicas}
            case "DaemonSet":
                spec = {"selector": selector, "template": template}
            case "Job":
                template["spec"]["restartPolicy"] = "Never"
                spec = {"template": template}
            case _:
                spec = template["spec"]
        version = {"Job": "batch/v1", "Pod": "v1"}.get(kind, "apps/v1")
        return self.made(version, kind, name, spec, namespace)

    def place(self, *workloads: Json, cpu: str = "2", neighbour: str = "1", **node: Any) -> None:
        """Each workload on a node of its own that is full then: with so much CPU, beside a neighbour. No pod may be put
        there any more, so that whoever leaves lands elsewhere."""
        full = {one["metadata"]["name"]: f"{one['metadata']['name']}-full" for one in workloads}
        names = [self.node(name, cpu, app=app, **node) for app, name in full.items()]
        self.apply(*(self.neighbour(name, neighbour) for name in names), *workloads)
        for one in workloads:
            meta, replicas = one["metadata"], one["spec"].get("replicas", 1)
            serving = (meta["name"], meta["namespace"])
            eventually(f"{meta['name']} serves", lambda s=serving, n=replicas: len(self.ready(*s)) == n, 30)  # type: ignore[misc]
        self.rig.kubectl("cordon", *names)

    def budget(self, name: str, app: str | None = "sim", *, namespace: str | None = None, **spec: Any) -> Json:
        """A PodDisruptionBudget, of all pods of the namespace if `app` is None."""
        selector = {} if app is None else {"matchLabels": {"app": app}}
        return self.made("policy/v1", "PodDisruptionBudget", name, {"selector": selector, **spec}, namespace)

    def apply(self, *manifests: Json) -> None:
        self.rig.apply("\n---\n".join(json.dumps(one) for one in manifests))

    def policy(
        self,
        name: str = "sim",
        *,
        namespaces: Iterable[str] | None = None,
        app: str | None = None,
        cpu: str = "2",
        least: str = "",
        mode: str = "ResizeOrMigrate",
        **fallback: Any,
    ) -> None:
        """A policy that wants pods to have `cpu`; with `least` what they use, from there up to `cpu`."""
        selector: Json = {"namespaces": [*(namespaces or [self.namespace])]}
        selector |= {"matchLabels": {"app": app}} if app else {}
        quick = {"halfLife": "5s"}
        bounds = {"minAllowed": {"cpu": least or cpu}, "maxAllowed": {"cpu": cpu}}
        spec = {
            "selector": selector,
            "mode": mode,
            "recommender": {"name": "percentile", "parameters": {"minHistory": "2s", "cpu": quick, "memory": quick}},
            "containers": [{"name": "*", "controlledResources": ["cpu"], **bounds}],
            "metrics": {"lookback": "1m", "step": "1s", "rateWindow": "4s"},
            "stability": {"cooldown": {"increase": "1s", "decrease": "1s"}, "maxStep": {"increase": "1000%"}},
            "fallback": {"after": f"{AFTER_S}s", "fit": False, "minPodAge": "1s", **fallback},
        }
        document = {"apiVersion": "bridge-autoscaler.dev/v1alpha1", "kind": "BridgePolicy"}
        document |= {"metadata": {"name": name}, "spec": spec}  # type: ignore[dict-item]
        (self.policies / f"{name}.yaml").write_text(json.dumps(document))  # which is YAML

    def controller(self, name: str = "controller", *arguments: str) -> Controller:
        """The process, with a turn each second; alone unless it is told otherwise."""
        own = ("--interval=1s", "--metrics-address=127.0.0.1:0", "--leader-elect=false")
        return Controller(self.rig, self.policies, self.folder / f"{name}.log", *own, *arguments)

    def uses(self, name: str, cpu: float = 0.1, memory: int = 20 << 20) -> None:
        """From now on the pod uses so many cores and bytes."""
        self.rig.agent.usage[self.namespace, name, "app"] = Usage(cpu=cpu, memory=memory)

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

    def planned(self, *arguments: str) -> dict[str, Json]:
        """What `plan` says, in another process, by the name of each pod."""
        items: list[Json] = plan(self.rig, self.policies, *arguments)["items"]
        return {item["pod"]: item for item in items}

    def writes(self, namespace: str | None = None) -> list[Write]:
        """What the controller wrote in a namespace, oldest first."""
        return written(self.rig, lambda of: of.get("namespace") == (namespace or self.namespace))

    def evicted(self, namespace: str | None = None) -> list[str]:
        """Pods that were evicted, oldest first."""
        return [one.name for one in self.writes(namespace) if one.what == "create pods/eviction"]

    def landed(self, node: str, app: str = "sim", namespace: str | None = None, cpu: str = "2") -> Callable[[], bool]:
        """Whether the workload's one pod serves on that node and has its size."""

        def probe() -> bool:
            pods = self.pods(app, namespace)
            return (
                [p["spec"].get("nodeName") for p in pods] == [node] and is_ready(pods[0]) and in_force(pods[0]) == cpu
            )

        return probe


Staged = Callable[[str], Stage]
"""Makes a stage for a story, by its name."""


def size(cpu: str, limit: str | None) -> Json:
    """Resources with so much CPU, and little memory."""
    return {
        "requests": {"cpu": cpu, "memory": "32Mi"},
        "limits": {"memory": "32Mi"} | ({"cpu": limit} if limit else {}),
    }


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


def uid_of(pod: Json) -> str:
    found: str = pod["metadata"]["uid"]
    return found


def reasons(controller: Controller) -> Counter[str]:
    """How many pods the newest full turn held, or acted on, for each reason."""
    turns = [line for line in controller.lines() if line["event"] == "turn" and line["wake"] == "tick"]
    return Counter(turns[-1].get("reasons", {}) if turns else {})


def written(rig: Rig, where: Callable[[Json], bool]) -> list[Write]:
    """What the API server stored for the controller's service account; what was only tried with dryRun is left out."""
    found: list[Write] = []
    for record in rig.audit():
        of = record.get("objectRef") or {}
        if record["user"]["username"] != CONTROLLER or record["verb"] not in _WRITES or not where(of):
            continue
        query = parse_qs(urlsplit(record["requestURI"]).query)
        if record["responseStatus"]["code"] not in (200, 201) or "dryRun" in query:
            continue
        what = f"{record['verb']} {'/'.join(filter(None, (of['resource'], of.get('subresource'))))}"
        at = datetime.fromisoformat(record["requestReceivedTimestamp"])
        found.append(Write(at, what, of.get("name", ""), query.get("fieldManager", [""])[0]))
    return sorted(found)


def volume_in(stage: Stage, key: str, zone: str) -> list[Json]:
    """A volume named as the namespace that is in one zone, by the key of its label, and its claim `data`."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [zone]}]}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = stage.made(
        "v1",
        "PersistentVolume",
        stage.namespace,
        {
            **common,
            "capacity": {"storage": "1Gi"},
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    )
    del volume["metadata"]["namespace"]
    wanted = {**common, "volumeName": stage.namespace, "resources": {"requests": {"storage": "1Gi"}}}
    return [volume, stage.made("v1", "PersistentVolumeClaim", "data", wanted)]


@contextmanager
def serving(stage: Stage) -> Iterator[Callable[[], list[int]]]:
    """How many of the story's pods have served after each change of one of them, in the order of the API server. What
    was there at first comes one by one."""
    watch = ("get", "pods", "--watch", "--output-watch-events", "--output=json", f"--namespace={stage.namespace}")
    log = stage.folder / "watch.json"
    with log.open("w") as out:
        line = [str(stage.rig.kubectl_path), f"--kubeconfig={stage.rig.admin_kubeconfig}", *watch]
        process = subprocess.Popen(line, stdout=out, stderr=subprocess.DEVNULL, env={"HOME": str(stage.folder)})

    def counts() -> list[int]:
        now, found = set[str](), list[int]()
        for event in _events(log.read_text()):
            pod = event["object"]
            now.discard(uid_of(pod))
            if event["type"] != "DELETED" and is_ready(pod):
                now.add(uid_of(pod))
            found.append(len(now))
        return found

    try:
        eventually("the watch has begun", lambda: log.stat().st_size > 0)
        yield counts
    finally:
        process.terminate()
        process.wait()


def _events(text: str) -> Iterator[Json]:
    """The JSON documents of a stream, the last of which may be incomplete."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            event, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            return
        yield event
        while at < len(text) and text[at].isspace():
            at += 1
