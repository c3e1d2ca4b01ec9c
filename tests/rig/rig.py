"""Everything together: control plane, node agent, and a Prometheus that scrapes what the agent exports."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from tests.rig.agent import Agent
from tests.rig.build import binary
from tests.rig.control_plane import ControlPlane
from tests.rig.prometheus_server import PrometheusServer

T = TypeVar("T")

ROOT = Path(__file__).parents[2]


def eventually(what: str, probe: Callable[[], T | None], within_s: float = 15) -> T:
    """Ask again and again until the answer is neither None nor false; that answer. Raises AssertionError."""
    give_up_at = time.monotonic() + within_s
    while not (answer := probe()):
        assert time.monotonic() < give_up_at, f"not within {within_s:g} s: {what}"
        time.sleep(0.05)
    return answer


class Rig:
    """A small cluster in a folder of its own. Use it as a context manager: it stops all that it started."""

    def __init__(self, folder: Path, *, scrape_interval: str = "1s", out_of_order: str = "30m") -> None:
        self.folder = folder
        self.kubectl_path = binary("kubectl")
        self._numbers = count(1)
        with ExitStack() as started:
            self.control_plane = ControlPlane(_made(folder / "control-plane"))
            started.callback(self.control_plane.stop)
            self.agent = Agent(
                self.control_plane.url, self.control_plane.certificate, self.control_plane.token("kubelet")
            )
            started.callback(self.agent.stop)
            self.prometheus = PrometheusServer(
                _made(folder / "prometheus"),
                self.agent.scrape_configs(),
                scrape_interval=scrape_interval,
                out_of_order=out_of_order,
            )
            started.callback(self.prometheus.stop)
            self._started = started.pop_all()

    @property
    def kubeconfig(self) -> Path:
        """The controller's: its service account, with what `rbac/` grants."""
        return self.control_plane.kubeconfig("controller")

    @property
    def admin_kubeconfig(self) -> Path:
        return self.control_plane.kubeconfig("admin")

    @property
    def nobody_kubeconfig(self) -> Path:
        """A user without any permission."""
        return self.control_plane.kubeconfig("nobody")

    @property
    def prometheus_url(self) -> str:
        return self.prometheus.url

    def audit(self) -> list[dict[str, Any]]:
        """The API server's audit records so far (audit.k8s.io/v1), oldest first."""
        return self.control_plane.audit()

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl, as admin unless told otherwise. Returns its stdout; raises AssertionError with its stderr."""
        done = subprocess.run(
            [self.kubectl_path, f"--kubeconfig={kubeconfig or self.admin_kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={"HOME": str(self.folder)},  # its discovery cache belongs to this cluster
        )
        if done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, manifest: str) -> None:
        """`kubectl apply` a YAML text, with strict validation."""
        self.kubectl("apply", "--validate=strict", "-f", "-", stdin=manifest)

    def pod(self, namespace: str, name: str) -> dict[str, Any]:
        """A pod as the API server has it."""
        command = ("get", "pod", name, f"--namespace={namespace}", "--show-managed-fields", "--output=json")
        pod: dict[str, Any] = json.loads(self.kubectl(*command))
        return pod

    def namespace(self, prefix: str = "test") -> str:
        """A fresh namespace."""
        name = f"{prefix}-{next(self._numbers)}"
        self.kubectl("create", "namespace", name)
        return name

    def install_role(self) -> None:
        """Give the controller's service account what the folders of `rbac/` grant, all of them."""
        self.kubectl("create", "namespace", "bridge-autoscaler")
        for kustomization in sorted((ROOT / "rbac").glob("*/kustomization.yaml")):
            self.kubectl("apply", "--validate=strict", "-k", str(kustomization.parent))

    def stop(self) -> None:
        """Stop everything, last started first."""
        self._started.close()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
