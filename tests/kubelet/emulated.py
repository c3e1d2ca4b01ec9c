"""Two emulated nodes and the rig's control plane, as one cluster."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import yaml

from tests.kubelet.cluster import eventually
from tests.machine import network
from tests.machine.machine import Machine, network_of
from tests.machine.root import disk
from tests.rig.build import binary
from tests.rig.control_plane import ControlPlane

NODES = ("vm-a", "vm-b")
STATIC = "vm-b"
_NODE_GRACE = "40s"
_HOUSEKEEPING = "--housekeeping-interval=2s"  # how often cAdvisor looks; by default each 10 s and less often yet
_BOOT_S = 180


class Emulated:
    """Starts it, in the network namespace of `tests.machine.network`, and returns when both nodes are ready.

    Of the second node the CPU manager is static, which is of no effect but on Guaranteed pods.
    """

    def __init__(self, folder: Path) -> None:
        network.prepare()
        made = disk()
        with ExitStack() as started:
            (folder / "control-plane").mkdir(parents=True)
            self.control_plane = ControlPlane(folder / "control-plane", node_grace=_NODE_GRACE)
            started.callback(self.control_plane.stop)
            self.machines: list[Machine] = []
            for index, name in enumerate(NODES):
                static = ["--cpu-manager-policy=static"] if name == STATIC else []
                config = self._kubeconfig(index)
                machine = Machine(folder / name, made, name, index, config, _HOUSEKEEPING, *static)
                started.callback(machine.stop)
                self.machines.append(machine)
            for machine in self.machines:
                eventually(f"{machine.name} is ready", partial(self._ready, machine), _BOOT_S)
            self._started = started.pop_all()

    @property
    def kubeconfig(self) -> Path:
        """Of somebody who may do everything."""
        return self.control_plane.kubeconfig("admin")

    def close(self) -> None:
        """Stop everything, etcd last."""
        self._started.close()

    def _kubeconfig(self, index: int) -> str:
        """For the kubelet of a machine, to whom this host's loopback is an address of its network."""
        config = yaml.safe_load(self.control_plane.kubeconfig("kubelet").read_text())
        server = config["clusters"][0]["cluster"]
        server["server"] = server["server"].replace("127.0.0.1", f"{network_of(index)}.2")
        server["tls-server-name"] = "kubernetes"
        return yaml.safe_dump(config)

    def _ready(self, machine: Machine) -> bool:
        said = machine.console.read_text(errors="replace") if machine.console.exists() else ""
        assert machine.alive(), f"{machine.name} ended: {said[-2000:]}"
        listed = subprocess.run(
            [binary("kubectl"), f"--kubeconfig={self.control_plane.kubeconfig('admin')}", "get", "nodes", "-o=json"],
            capture_output=True,
            text=True,
            check=True,
        )
        nodes = {node["metadata"]["name"]: node for node in json.loads(listed.stdout)["items"]}
        conditions = nodes.get(machine.name, {}).get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
