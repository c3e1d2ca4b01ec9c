"""What a story begins with: a namespace of its own, bridges, their users, full nodes, a policy and the controller."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autoscaler.core.units import parse_cpu
from tests.e2e.cli import environment
from tests.kubelet import pods
from tests.kubelet.cluster import Cluster, Json, condition
from tests.kubelet.controller import Controller, command
from tests.kubelet.pods import Bridge, Lookout, Users
from tests.rig.prometheus_server import PrometheusServer

_FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class House:
    """What all stories share. `kubeconfig`: the controller's."""

    cluster: Cluster
    prometheus: PrometheusServer
    lookouts: Mapping[str, Lookout]
    kubeconfig: Path


class Stage:
    """`close` takes away what the story has made, and returns when its pods are gone."""

    def __init__(self, house: House, folder: Path, story: str) -> None:
        self.house, self.cluster, self.folder = house, house.cluster, folder
        self.namespace = self.cluster.namespace(story)
        self.policies = folder / "policies"
        self.policies.mkdir(parents=True)
        self._controllers: list[Controller] = []

    def close(self) -> None:
        """Stop the controllers, then delete the namespace."""
        for controller in self._controllers:
            controller.stop()
        self.cluster.delete_namespace(self.namespace)

    @property
    def node(self) -> str:
        """The first node."""
        return self.cluster.ground.nodes[0]

    @property
    def prometheus(self) -> PrometheusServer:
        return self.house.prometheus

    def bridge(self, name: str, resources: Json, *, node: str | None = None, **more: Any) -> Bridge:
        """A bridge NAME-0 that is ready. `more`: as for `pods.bridge`."""
        self.cluster.create(pods.bridge(self.cluster, self.namespace, name, resources, node=node, **more))
        return Bridge(self.cluster, self.namespace, f"{name}-0")

    def users(self, node: str | None = None, name: str = "users") -> Users:
        """Users, who are not connected yet."""
        return Users(self.cluster, self.namespace, node, name)

    def free_cpu(self, node: str) -> int:
        """Millicores of a node's allocatable that no pod requests."""
        allocatable = parse_cpu(self.cluster.node(node)["status"]["allocatable"]["cpu"])
        listed = self.cluster.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node}")["items"]
        running = [pod for pod in listed if pod["status"]["phase"] not in _FINISHED]
        return allocatable - sum(_requested_cpu(pod) for pod in running)

    def fill(self, node: str, *, leaving: str, name: str = "neighbour") -> str:
        """Somebody else's pod, that leaves so much CPU of the node; its name."""
        cpu = self.free_cpu(node) - parse_cpu(leaving)
        assert cpu > 0, f"{node} has {cpu + parse_cpu(leaving)}m free, not more than the {leaving} to be left"
        self.cluster.create(pods.filler(self.cluster, self.namespace, name, node, f"{cpu}m"))
        self.cluster.ready(self.namespace, name)
        return name

    def remove(self, pod: str) -> None:
        """Delete a pod, without waiting."""
        self.cluster.kubectl("delete", "pod", pod, f"-n={self.namespace}", "--grace-period=1", "--wait=false")

    def policy(self, **spec: Any) -> None:
        """The policy of the story, for the pods of its namespace with the label of bridges; it may be written anew."""
        document = {
            "apiVersion": "bridge-autoscaler.dev/v1alpha1",
            "kind": "BridgePolicy",
            "metadata": {"name": "story"},
            "spec": {"selector": {"namespaces": [self.namespace], "matchLabels": dict(pods.COMPONENT)}, **spec},
        }
        written = self.policies / "policy.yaml.new"
        written.write_text(yaml.safe_dump(document, sort_keys=False))
        written.rename(self.policies / "policy.yaml")

    def controller(self, *arguments: str) -> Controller:
        """The controller, started; the log of one that was started before goes on."""
        started = Controller(
            self.house.kubeconfig,
            self.prometheus.url,
            self.policies,
            self.folder / "controller.log",
            f"--namespace={self.namespace}",
            *arguments,
        )
        self._controllers.append(started)
        return started

    def plan(self, pod: str) -> Json:
        """What `plan` says of a pod, in another process."""
        line = command("plan", self.house.kubeconfig, self.prometheus.url, self.policies)
        done = subprocess.run(
            [*line, f"--namespace={self.namespace}", "--output=json"],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment(),
        )
        assert done.returncode in (0, 2), done.stderr
        items: list[Json] = json.loads(done.stdout)["items"]
        return next(item for item in items if item["pod"] == pod)


def _requested_cpu(pod: Json) -> int:
    """As the scheduler counts it, for pods without init containers: the largest of spec, allocated and in force."""
    statuses = {one["name"]: one for one in pod["status"].get("containerStatuses", [])}
    total = 0
    for container in pod["spec"]["containers"]:
        status = statuses.get(container["name"], {})
        asked, in_force = container.get("resources", {}), status.get("resources", {})
        places = (asked.get("requests", {}), status.get("allocatedResources", {}), in_force.get("requests", {}))
        total += max(parse_cpu(place.get("cpu", "0")) for place in places)
    return total


def pending(pod: Json) -> Json:
    """The condition of a resize that the kubelet has not done; empty if there is none."""
    return condition(pod, "PodResizePending")


def in_force(pod: Json, container: str = "app") -> Json:
    """The resources that the kubelet says are in force."""
    statuses = pod["status"]["containerStatuses"]
    resources: Json = next(one["resources"] for one in statuses if one["name"] == container)
    return resources
