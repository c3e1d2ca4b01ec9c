"""The node agent answers as the recorded kubelet did: the same words, sizes and conditions in the same situation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rig.rig import Rig, eventually
from tests.rig.usage import Usage

CAPTURES = Path(__file__).parents[1] / "captures"
NODE = "captured"


def captured(name: str) -> dict[str, Any]:
    pod: dict[str, Any] = json.loads((CAPTURES / f"{name}.json").read_text())
    return pod


def essence(pod: dict[str, Any]) -> dict[str, Any]:
    """What a controller may read from a status: sizes, life of the containers, conditions, without instants and ids."""
    status = pod["status"]
    conditions = {
        c["type"]: {key: c.get(key, "") for key in ("status", "reason", "message")}
        | ({"observedGeneration": c["observedGeneration"]} if c["type"].startswith("PodResize") else {})
        for c in status["conditions"]
    }
    containers = {
        c["name"]: {key: c[key] for key in ("ready", "started", "restartCount", "allocatedResources", "resources")}
        | {"state": list(c["state"]), "last": c["lastState"].get("terminated", {}).get("reason")}
        for c in status["containerStatuses"]
    }
    return {"phase": status["phase"], "qos": status["qosClass"], "conditions": conditions, "containers": containers}


def amounts(cpu: str, memory: str) -> dict[str, Any]:
    return {side: {"cpu": cpu, "memory": memory} for side in ("requests", "limits")}


@pytest.fixture
def node(rig: Rig) -> Iterator[str]:
    """A node of the size of the recorded one."""
    rig.agent.add_node(NODE, cpu="1900m", memory="1203728Ki")
    yield NODE
    rig.agent.remove_node(NODE)


class Pods:
    """Pods with one container `app` in a fresh namespace, all on one node."""

    def __init__(self, rig: Rig, node: str) -> None:
        self.rig, self.node, self.namespace = rig, node, rig.namespace("agent")

    def create(self, name: str, cpu: str, memory: str, **container: Any) -> None:
        app = {"name": "app", "image": "bridge", "resources": amounts(cpu, memory), **container}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"nodeName": self.node, "containers": [app]},
        }
        self.rig.apply(yaml.safe_dump(pod))
        eventually(f"{name} runs", lambda: self.get(name)["status"]["phase"] == "Running")

    def get(self, name: str) -> dict[str, Any]:
        return self.rig.pod(self.namespace, name)

    def resize(self, name: str, cpu: str, memory: str) -> dict[str, Any]:
        patch = {"spec": {"containers": [{"name": "app", "resources": amounts(cpu, memory)}]}}
        answer: dict[str, Any] = json.loads(
            self.rig.kubectl(
                *("patch", "pod", name, f"--namespace={self.namespace}", "--subresource=resize"),
                *(f"--patch={json.dumps(patch)}", "--output=json"),
            )
        )
        return answer

    def becomes(self, name: str, capture: str) -> None:
        """The pod comes to look like the recorded one."""
        wanted = essence(captured(capture))

        def same() -> bool:
            return essence(self.get(name)) == wanted

        try:
            eventually(f"like {capture}", same)
        except AssertionError:
            assert essence(self.get(name)) == wanted
            raise


@pytest.fixture
def pods(rig: Rig, node: str) -> Pods:
    return Pods(rig, node)


def test_a_resize_with_room_is_applied_without_a_restart(pods: Pods) -> None:
    pods.create("a", "100m", "64Mi")
    answer = pods.resize("a", "300m", "128Mi")
    assert essence(answer) == essence(captured("a-patch-response"))
    pods.becomes("a", "a-pod")
    pod = pods.get("a")
    assert pod["status"]["observedGeneration"] == pod["metadata"]["generation"] == 2


def test_a_resize_without_room_waits_and_is_applied_when_the_neighbour_has_gone(pods: Pods) -> None:
    pods.create("neighbour", "1400m", "64Mi")
    pods.create("b", "200m", "64Mi")
    pods.resize("b", "1200m", "64Mi")
    pods.becomes("b", "b-deferred-pod")
    pods.rig.kubectl("delete", "pod", "neighbour", f"--namespace={pods.namespace}")
    pods.becomes("b", "b-pod")


def test_a_memory_decrease_below_usage_says_error_until_the_usage_has_fallen(pods: Pods) -> None:
    used = Usage(cpu=0.01, memory=60 * 2**20, cache=71094272 - 60 * 2**20)  # what the record says, part of it cache
    pods.rig.agent.usage[pods.namespace, "d", "app"] = used
    pods.create("d", "100m", "256Mi")
    pods.resize("d", "100m", "64Mi")
    pods.becomes("d", "d-error-pod")
    pods.rig.agent.usage[pods.namespace, "d", "app"] = Usage(cpu=0.01, memory=10 * 2**20)
    pods.becomes("d", "d-pod")


def test_a_static_cpu_manager_refuses_a_guaranteed_pod(rig: Rig) -> None:
    rig.agent.add_node("static", cpu="1900m", memory="1203728Ki", static_cpu_manager=True)
    try:
        pods = Pods(rig, "static")
        pods.create("e", "1", "64Mi")
        pods.resize("e", "500m", "64Mi")
        pods.becomes("e", "e-infeasible-cpu")
    finally:
        rig.agent.remove_node("static")


def test_resize_policy_restarts_the_container_for_memory_and_not_for_cpu(pods: Pods) -> None:
    policy = [
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
    ]
    pods.create("f", "100m", "64Mi", resizePolicy=policy)
    pods.resize("f", "200m", "64Mi")

    def cpu_in_force() -> bool:
        return bool(pods.get("f")["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"] == "200m")

    eventually("the CPU is in force", cpu_in_force)
    assert pods.get("f")["status"]["containerStatuses"][0]["restartCount"] == 0
    pods.resize("f", "200m", "128Mi")
    pods.becomes("f", "f-pod")


def test_a_pod_becomes_ready_when_it_is_said_to(pods: Pods) -> None:
    pods.rig.agent.ready_after_s[pods.namespace] = 0.5
    pods.create("slow", "100m", "64Mi")

    def ready() -> bool:
        status = pods.get("slow")["status"]
        conditions = {c["type"]: c["status"] for c in status["conditions"]}
        assert (conditions["Ready"] == "True") is status["containerStatuses"][0]["ready"]
        return bool(conditions["Ready"] == "True")

    assert not ready()
    eventually("it is ready", ready)
