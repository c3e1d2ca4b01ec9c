"""The lines of `-o patch` that move a pod, run by bash and kubectl against a real API server."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.cli.document import document
from autoscaler.cli.rendering.patch import render_patch
from autoscaler.core.actions import Evict, Scale, ScaleKind
from autoscaler.core.model import PodRef, Workload, WorkloadRef
from autoscaler.core.plan import Decision, Plan
from autoscaler.core.reasons import Reason
from tests.cli.plans import MIGRATING, POD, TAKEN_AT, surge
from tests.rig.rig import Rig, eventually

pytestmark = pytest.mark.rig


def run(rig: Rig, decision: Decision, *workloads: Workload) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(rig.kubectl_path).parent), "/usr/bin", "/bin"])
    return subprocess.run(
        ["bash", "-eu"],
        input=render_patch(document(Plan(TAKEN_AT, (decision,), workloads={one.ref: one for one in workloads}))),
        env={"PATH": path, "HOME": str(rig.folder), "KUBECONFIG": str(rig.admin_kubeconfig)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def deployment(rig: Rig, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rig.kubectl("get", "deployment", "sim", "-n", namespace, "-o", "json"))
    return found


def test_an_eviction_is_for_one_pod_in_one_version(rig: Rig) -> None:
    namespace = rig.namespace("patch")
    container = {"name": "app", "image": "bridge"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sim-0", "namespace": namespace}}
    rig.apply(yaml.safe_dump({**pod, "spec": {"containers": [container]}}))
    eventually("the bridge runs", lambda: rig.pod(namespace, "sim-0")["status"]["phase"] == "Running")

    def evicting(uid: str = "", version: str = "") -> Decision:
        there = rig.pod(namespace, "sim-0")["metadata"]
        move = Evict(PodRef(namespace, "sim-0"), uid or there["uid"], version or there["resourceVersion"])
        return replace(MIGRATING, pod=replace(POD, namespace=namespace, name="sim-0"), move=move)

    for stale in (evicting(uid="another"), evicting(version="1")):
        refused = run(rig, stale)
        assert refused.returncode == 1
        assert "Conflict" in refused.stderr
    assert "deletionTimestamp" not in rig.pod(namespace, "sim-0")["metadata"]
    done = run(rig, evicting())
    assert (done.returncode, done.stderr) == (0, "")
    eventually(
        "the bridge goes",
        lambda: (
            '"sim-0"' not in rig.kubectl("get", "pods", "-n", namespace, "-o", "json")
            or "deletionTimestamp" in rig.pod(namespace, "sim-0")["metadata"]
        ),
    )


def test_a_deployment_is_scaled_in_one_version(rig: Rig) -> None:
    namespace = rig.namespace("patch")
    rig.kubectl("create", "deployment", "sim", "--image=bridge", "-n", namespace)
    eventually("it is ready", lambda: deployment(rig, namespace)["status"].get("availableReplicas") == 1)

    def surging(version: str) -> Decision:
        ref = WorkloadRef(namespace, "Deployment/sim")
        scale = Scale(ref, "uid", version, 2, ScaleKind.SURGE, PodRef(namespace, "sim-x"))
        return replace(surge(), pod=replace(POD, namespace=namespace, name="sim-x"), move=scale)

    assert run(rig, surging("1")).returncode == 1
    assert deployment(rig, namespace)["spec"]["replicas"] == 1
    done = run(rig, surging(deployment(rig, namespace)["metadata"]["resourceVersion"]))
    assert (done.returncode, done.stderr) == (0, "")
    assert deployment(rig, namespace)["spec"]["replicas"] == 2


def test_the_end_of_a_surge_leaves_the_pods_that_were_not_new(rig: Rig) -> None:
    namespace = rig.namespace("patch")
    rig.kubectl("create", "deployment", "sim", "--image=bridge", "-n", namespace)
    eventually("it is ready", lambda: deployment(rig, namespace)["status"].get("availableReplicas") == 1)
    old = names(rig, namespace)
    rig.kubectl("scale", "deployment/sim", "--replicas=2", "-n", namespace)
    eventually("both are ready", lambda: deployment(rig, namespace)["status"].get("availableReplicas") == 2)
    (newest,) = names(rig, namespace) - old
    rig.agent.ready_after_s[namespace] = 60  # by hand the two lines are some time apart
    there = rig.pod(namespace, newest)["metadata"]
    decision = replace(
        surge(),
        pod=replace(POD, namespace=namespace, name=next(iter(old)), workload="Deployment/sim"),
        reason=Reason.SURGE_BACK,
        move=Evict(PodRef(namespace, newest), there["uid"], there["resourceVersion"]),
    )
    world = Workload(WorkloadRef(namespace, "Deployment/sim"), "uid", replicas=2)
    done = run(rig, decision, world)
    assert (done.returncode, done.stderr) == (0, "")
    assert deployment(rig, namespace)["spec"]["replicas"] == 1
    eventually("the old one is left", lambda: names(rig, namespace) == old, 60)
    assert run(rig, decision, world).returncode == 1  # neither line does anything twice
    assert deployment(rig, namespace)["spec"]["replicas"] == 1


def names(rig: Rig, namespace: str) -> set[str]:
    found = rig.kubectl("get", "pods", "-n", namespace, "-o=jsonpath={.items[*].metadata.name}")
    return set(found.split())
