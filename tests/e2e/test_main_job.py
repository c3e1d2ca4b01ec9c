"""The main job: usage rises and falls, `plan` shows what follows, and `run` does exactly that.

Everything is real but the kubelet: API server, scheduler, StatefulSet controller, Prometheus scraping what the pods
use. The controller runs as its own service account under the shipped role.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.core.units import parse_cpu, parse_memory
from tests.e2e.cli import Controller, command, plan, run
from tests.rig.control_plane import CONTROLLER
from tests.rig.rig import Rig
from tests.rig.usage import Usage

pytestmark = pytest.mark.rig

GUARANTEED, RATIO, SIDECAR = "twin", "viewer", "studio"
MIB = 1 << 20

POLICY = """\
apiVersion: bridge-autoscaler.dev/v1alpha1
kind: BridgePolicy
metadata: {{name: main-job}}
spec:
  selector: {{namespaces: [{namespace}]}}
  mode: Resize
  recommender:
    name: percentile
    parameters:
      cpu: {{target: p90, margin: 30%, halfLife: 10s}}
      memory: {{target: p90, margin: 30%, halfLife: 10s}}
      minHistory: 20s
  metrics: {{lookback: 2m, step: 5s, rateWindow: 10s}}
  stability: {{cooldown: {{increase: 1s, decrease: 1s}}, maxStep: {{increase: 400%, decrease: 90%}}}}
"""


def container(name: str, cpu: str, memory: str, factor: int = 1, **more: str) -> dict[str, Any]:
    """A container whose limits are `factor` times its requests."""
    limits = {"cpu": f"{parse_cpu(cpu) * factor}m", "memory": f"{parse_memory(memory) * factor}"}
    return {
        "name": name,
        "image": "bridge",
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": limits},
        **more,
    }


def stateful_set(
    namespace: str, name: str, containers: list[dict[str, Any]], sidecars: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": containers, "initContainers": sidecars},
            },
        },
    }


def eventually(what: str, met: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until it is met."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.5)


class Bridges:
    """The three StatefulSets, and what their containers use."""

    def __init__(self, rig: Rig, namespace: str) -> None:
        self.rig, self.namespace = rig, namespace
        sidecar = container("recorder", "100m", "128Mi", restartPolicy="Always")
        for name, containers, sidecars in (
            (GUARANTEED, [container("app", "500m", "512Mi")], []),
            (RATIO, [container("app", "500m", "512Mi", factor=2)], []),
            (SIDECAR, [container("app", "500m", "512Mi"), container("encoder", "250m", "256Mi")], [sidecar]),
        ):
            rig.apply(yaml.safe_dump(stateful_set(namespace, name, containers, sidecars)))
        eventually("all pods run", lambda: all(self.running(name) for name in (GUARANTEED, RATIO, SIDECAR)))

    def running(self, name: str) -> bool:
        found = self.rig.kubectl(
            "get", "pods", f"-n={self.namespace}", f"-l=app={name}", "-o=jsonpath={.items[*].status.phase}"
        )
        return found == "Running"

    def pod(self, name: str) -> dict[str, Any]:
        return self.rig.pod(self.namespace, f"{name}-0")

    def use(self, name: str, container: str, cpu: float, memory_mib: float) -> None:
        self.rig.agent.usage[(self.namespace, name, container)] = Usage(cpu=cpu, memory=memory_mib * MIB)

    def use_all(self, factor: float) -> None:
        """Every container uses its share of what it started with."""
        self.use(GUARANTEED, "app", 0.5 * factor, 512 * factor)
        self.use(RATIO, "app", 0.5 * factor, 512 * factor)
        self.use(SIDECAR, "app", 0.5 * factor, 512 * factor)
        self.use(SIDECAR, "encoder", 0.25 * factor, 256 * factor)
        self.use(SIDECAR, "recorder", 0.1 * factor, 128 * factor)


def sizes(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """`resources` of each container and sidecar."""
    spec = pod["spec"]
    return {c["name"]: c["resources"] for c in [*spec["containers"], *spec.get("initContainers", [])]}


def proposed(item: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What a plan's item proposes, in the shape of `resources`."""
    return {
        c["name"]: {
            "requests": {r: c[r]["request"]["proposed"] for r in ("cpu", "memory")},
            "limits": {r: c[r]["limit"]["proposed"] for r in ("cpu", "memory")},
        }
        for c in item["containers"]
    }


def by_value(resources: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {side: (parse_cpu(amounts["cpu"]), parse_memory(amounts["memory"])) for side, amounts in resources.items()}


def applied(bridges: Bridges, name: str) -> bool:
    """Whether the kubelet has done what the spec says."""
    pod = bridges.pod(name)
    statuses = [*pod["status"]["containerStatuses"], *pod["status"].get("initContainerStatuses", [])]
    wanted = sizes(pod)
    return (
        pod["status"].get("observedGeneration") == pod["metadata"]["generation"]
        and all(by_value(status["resources"]) == by_value(wanted[status["name"]]) for status in statuses)
        and not [c for c in pod["status"]["conditions"] if c["type"].startswith("PodResize")]
    )


def test_usage_rises_and_falls_and_the_pods_follow_in_place(rig: Rig, tmp_path: Path) -> None:
    began_at = datetime.now(UTC)  # of the same machine as the API server's
    namespace = rig.namespace("main-job")
    policies = tmp_path / "policy.yaml"
    policies.write_text(POLICY.format(namespace=namespace))
    bridges = Bridges(rig, namespace)
    names = (GUARANTEED, RATIO, SIDECAR)
    before = {name: bridges.pod(name) for name in names}

    bridges.use_all(0.95)
    eventually(
        "the plan knows enough to propose more",
        lambda: [i["action"] for i in plan(rig, policies)["items"]] == ["Resize"] * 3,
    )
    time.sleep(15)  # until the rates have settled, so that the plan and the turn after it see the same
    items = {item["pod"]: item for item in plan(rig, policies, "--server-dry-run")["items"]}
    assert {i["qosClass"] for i in items.values()} == {"Guaranteed", "Burstable"}
    assert {i["prediction"]["outcome"] for i in items.values()} == {"InPlace"}
    assert {i["reason"] for i in items.values()} <= {"Increase", "Decrease", "Rebalance"}
    assert {name: sizes(bridges.pod(name)) for name in names} == {
        n: sizes(before[n]) for n in names
    }  # a plan writes nothing

    once = run(*command(rig, "run", "--once", f"--policies={policies}"))
    assert once.returncode == 0, once.stderr
    for name in names:
        now = sizes(bridges.pod(name))
        shown = proposed(items[f"{name}-0"])
        assert {c: by_value(r) for c, r in now.items()} == {c: by_value(r) for c, r in shown.items()}
        assert items[f"{name}-0"]["reason"] in told(rig, bridges.pod(name))

    with Controller(
        rig, policies, tmp_path / "run.log", "--interval=3s", "--metrics-address=127.0.0.1:0"
    ) as controller:
        bridges.use_all(1.2)
        eventually("all have grown", lambda: all(grown(bridges, name) and applied(bridges, name) for name in names))
        bridges.use_all(0.2)
        eventually("all have shrunk", lambda: all(shrunk(bridges, name) and applied(bridges, name) for name in names))
        assert controller.stop() == 0
        turns = [line for line in controller.lines() if line["event"] == "turn"]
        assert turns
        resizes = [line for line in controller.lines() if line["event"] == "resize"]
        assert {line["outcome"] for line in resizes} == {"Accepted"}

    for name in names:
        pod, old = bridges.pod(name), before[name]
        statuses = [*pod["status"]["containerStatuses"], *pod["status"].get("initContainerStatuses", [])]
        assert pod["metadata"]["uid"] == old["metadata"]["uid"]
        assert {status["restartCount"] for status in statuses} == {0}
        assert pod["status"]["qosClass"] == old["status"]["qosClass"]
        managers = [f["manager"] for f in pod["metadata"]["managedFields"] if f.get("subresource") == "resize"]
        assert managers == ["bridge-autoscaler"]
        assert "Increase" in told(rig, pod)
    leases = {("create", "leases", ""), ("update", "leases", "")}
    asked = {("create", "selfsubjectaccessreviews", "")}  # a question, which the API has as a creation
    assert written(rig, began_at) == {("patch", "pods", "resize"), ("create", "events", ""), *leases, *asked}


def grown(bridges: Bridges, name: str) -> bool:
    return parse_cpu(sizes(bridges.pod(name))["app"]["requests"]["cpu"]) >= 750


def shrunk(bridges: Bridges, name: str) -> bool:
    """CPU follows at once; memory stays above 1.1 x the greatest working set of the last 15 minutes."""
    app = sizes(bridges.pod(name))["app"]["requests"]
    return parse_cpu(app["cpu"]) <= 200 and parse_memory(app["memory"]) == 676 * MIB


def told(rig: Rig, pod: dict[str, Any]) -> set[str]:
    """Reasons of the events that the controller has put on a pod."""
    meta = pod["metadata"]
    listed = json.loads(rig.kubectl("get", "events.events.k8s.io", f"-n={meta['namespace']}", "-o=json"))["items"]
    return {
        event["reason"]
        for event in listed
        if event["reportingController"] == "bridge-autoscaler" and event["regarding"].get("uid") == meta["uid"]
    }


def written(rig: Rig, since: datetime) -> set[tuple[str, str, str]]:
    """Every kind of write that the controller's identity has made since then, from the API server's audit log."""
    return {
        (record["verb"], record["objectRef"]["resource"], record["objectRef"].get("subresource", ""))
        for record in rig.audit()
        if record["user"]["username"] == CONTROLLER
        and datetime.fromisoformat(record["requestReceivedTimestamp"]) >= since
        and record["verb"] not in ("get", "list", "watch")
        and record["responseStatus"]["code"] < 400
    }
