"""A cluster that somebody else runs: kind, minikube, a cloud."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.kubelet.cluster import Ground
from tests.machine.root import BRIDGE_IMAGE
from tests.rig.build import binary

_MOST_NODES = 2


def ground_of(kubeconfig: Path) -> Ground:
    """What there is. E2E_NODES may name the nodes, with commas; else the first two that are ready and take pods.

    E2E_IMAGE: the test bridge's image, which the nodes must be able to get; `python -m tests.kubelet --image FILE`
    writes it as an archive. E2E_STATIC_NODE: a node whose CPU manager has the policy static. E2E_REACHES_PODS=yes: this
    machine can connect to pods. Raises AssertionError.
    """
    listed = subprocess.run(
        [binary("kubectl"), f"--kubeconfig={kubeconfig}", "get", "nodes", "-o=json"], capture_output=True, text=True
    )
    assert listed.returncode == 0, f"E2E_KUBECONFIG={kubeconfig}: {listed.stderr.strip()}"
    usable = [
        node["metadata"]["name"]
        for node in json.loads(listed.stdout)["items"]
        if not node["spec"].get("unschedulable")
        and not any(taint["effect"] != "PreferNoSchedule" for taint in node["spec"].get("taints", []))
        and any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
    ]
    names = [name for name in os.environ.get("E2E_NODES", "").split(",") if name] or usable[:_MOST_NODES]
    assert names, f"E2E_KUBECONFIG={kubeconfig}: no node is ready and takes pods"
    unusable = sorted(set(names) - set(usable))
    assert not unusable, f"E2E_NODES: {', '.join(unusable)} is not ready or takes no pods; usable: {', '.join(usable)}"
    static = os.environ.get("E2E_STATIC_NODE") or None
    reaches = os.environ.get("E2E_REACHES_PODS") == "yes"
    return Ground(kubeconfig, os.environ.get("E2E_IMAGE") or BRIDGE_IMAGE, names, static, reaches)
