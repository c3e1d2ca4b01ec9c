"""Others who set sizes, on a real API server: a HorizontalPodAutoscaler, a VerticalPodAutoscaler, a person."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cli import Controller, plan
from tests.rig.rig import Rig, eventually
from tests.rig.usage import Usage

pytestmark = pytest.mark.rig

POLICY = """\
apiVersion: bridge-autoscaler.dev/v1alpha1
kind: BridgePolicy
metadata: {{name: others}}
spec:
  selector: {{namespaces: [{namespace}]}}
  mode: Resize
  recommender: {{name: percentile, parameters: {{minHistory: 10s}}}}
  metrics: {{lookback: 2m, step: 5s, rateWindow: 10s}}
"""
STATEFUL_SET = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: sim, namespace: {namespace}}}
spec:
  serviceName: sim
  selector: {{matchLabels: {{app: sim}}}}
  template:
    metadata: {{labels: {{app: sim}}}}
    spec:
      containers:
      - name: app
        image: bridge
        resources: {{requests: {{cpu: 500m, memory: 512Mi}}, limits: {{cpu: "1", memory: 1Gi}}}}
"""
# As much of the VerticalPodAutoscaler's own definition as is read.
VPA_DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: verticalpodautoscalers.autoscaling.k8s.io
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes/kubernetes/pull/63797"}
spec:
  group: autoscaling.k8s.io
  scope: Namespaced
  names: {kind: VerticalPodAutoscaler, plural: verticalpodautoscalers, singular: verticalpodautoscaler}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def made(rig: Rig) -> str:
    """A StatefulSet with one running pod, in a namespace of its own."""
    namespace = rig.namespace("others")
    rig.apply(STATEFUL_SET.format(namespace=namespace))
    eventually("the pod runs", lambda: phase(rig, namespace) == "Running", 60)
    return namespace


def phase(rig: Rig, namespace: str) -> str:
    return rig.kubectl("get", "pods", f"-n={namespace}", "-o=jsonpath={.items[*].status.phase}")


@pytest.fixture
def namespace(rig: Rig) -> str:
    return made(rig)


@pytest.fixture
def policies(tmp_path: Path, namespace: str) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(namespace=namespace))
    return path


@pytest.fixture
def vpa_api(rig: Rig) -> Iterator[None]:
    """The API of VerticalPodAutoscalers, for as long as the test runs."""
    rig.apply(VPA_DEFINITION)
    name = "crd/verticalpodautoscalers.autoscaling.k8s.io"
    rig.kubectl("wait", "--for=condition=Established", name, "--timeout=60s")
    yield
    rig.kubectl("delete", name, "--timeout=60s")


def item(rig: Rig, policies: Path) -> dict[str, Any]:
    """The plan for the only pod."""

    def whole() -> dict[str, Any] | None:
        document = plan(rig, policies)
        # which goes away with the first scrape of those who own pods; anything else is wrong
        assert {problem["reason"] for problem in document["problems"]} <= {"HistoryLimitedToLivePods"}
        return None if document["problems"] else document

    (found,) = eventually("everything that is read has been scraped", whole, 30)["items"]
    return dict(found)


def changing(found: dict[str, Any]) -> set[str]:
    """The resources of which another request is proposed."""
    (app,) = found["containers"]
    return {r for r in ("cpu", "memory") if app[r]["request"]["proposed"] != app[r]["request"]["spec"]}


def test_what_a_horizontal_one_scales_on_is_left_alone(rig: Rig, namespace: str, policies: Path) -> None:
    """ACC-10."""
    rig.agent.usage[(namespace, "sim", "app")] = Usage(cpu=0.9, memory=900 << 20)
    eventually("both are to change", lambda: changing(item(rig, policies)) == {"cpu", "memory"}, 120)
    rig.kubectl("autoscale", "statefulset", "sim", f"-n={namespace}", "--cpu-percent=80", "--min=1", "--max=2")
    found = item(rig, policies)
    assert (found["action"], changing(found)) == ("Resize", {"memory"})
    (app,) = found["containers"]
    words = f"(HorizontalPodAutoscaler {namespace}/sim scales on its utilisation)"
    assert [line for line in app["because"] if line.startswith("cpu: hpa keeps 500m") and line.endswith(words)]


def vertical(namespace: str) -> dict[str, Any]:
    """A VerticalPodAutoscaler for the StatefulSet."""
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "sim", "namespace": namespace},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "sim"}},
    }


@pytest.mark.usefixtures("vpa_api")
def test_a_vertical_one_holds_the_pod_unless_it_is_off(rig: Rig, namespace: str, policies: Path) -> None:
    vpa = vertical(namespace)
    rig.apply(yaml.safe_dump(vpa))
    found = item(rig, policies)
    assert (found["action"], found["reason"]) == ("None", "OtherAutoscaler")
    assert found["detail"] == f"VerticalPodAutoscaler {namespace}/sim with updateMode Auto targets StatefulSet/sim"
    vpa["spec"]["updatePolicy"] = {"updateMode": "Off"}
    rig.apply(yaml.safe_dump(vpa))
    assert item(rig, policies)["reason"] != "OtherAutoscaler"


@pytest.mark.usefixtures("vpa_api")
def test_a_vertical_one_is_seen_when_it_appears(rig: Rig, namespace: str, policies: Path, tmp_path: Path) -> None:
    with Controller(rig, policies, tmp_path / "run.log", "--interval=1s", "--metrics-address=127.0.0.1:0") as running:
        eventually("a turn about the pod", lambda: bool(reasons(running)), 60)
        rig.apply(yaml.safe_dump(vertical(namespace)))
        eventually("it is seen by the watch", lambda: "OtherAutoscaler" in reasons(running), 30)


def reasons(running: Controller) -> dict[str, int]:
    """The reasons of the newest turn."""
    turns = [line for line in running.lines() if line["event"] == "turn"]
    return dict(turns[-1].get("reasons", {})) if turns else {}


def test_a_pod_that_a_person_resized_is_left_to_them(rig: Rig, namespace: str, policies: Path) -> None:
    size = {"resources": {"requests": {"cpu": "600m"}}}
    body = json.dumps({"spec": {"containers": [{"name": "app", **size}]}})
    rig.kubectl("patch", "pod", "sim-0", f"-n={namespace}", "--subresource=resize", f"--patch={body}")
    found = item(rig, policies)
    assert (found["action"], found["reason"]) == ("None", "OtherWriter")
    assert found["detail"].startswith("kubectl-patch asked for a size at ")
    assert found["dueAt"] is not None
