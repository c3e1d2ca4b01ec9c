"""The real controller: its process, as a service account of its own under the roles that are shipped."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from autoscaler.ports import WakeKind
from tests.e2e.cli import Running
from tests.kubelet.cluster import Cluster, Json

ROOT = Path(__file__).parents[2]
_ACCOUNT = "bridge-autoscaler"
_TOKEN_FOR = "2h"


def grant(cluster: Cluster, folder: Path) -> Path:
    """Make the service account, bind every role of rbac/ to it, and return a kubeconfig of that account.

    Under names of this run's own, so that an installation in the cluster stays as it is. `revoke` undoes it.
    """
    namespace = cluster.namespace("controller")
    overlay = folder / "rbac"
    overlay.mkdir(parents=True)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _ACCOUNT, "namespace": _ACCOUNT}}
    (overlay / "account.yaml").write_text(yaml.safe_dump(account))
    roles = [os.path.relpath(one.parent, overlay) for one in sorted((ROOT / "rbac").glob("*/kustomization.yaml"))]
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": namespace,
        "namePrefix": f"{namespace}-",
        "resources": ["account.yaml", *roles],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    cluster.kubectl("apply", "--validate=strict", "-k", overlay)
    name = f"{namespace}-{_ACCOUNT}"
    token = cluster.kubectl("create", "token", name, f"-n={namespace}", f"--duration={_TOKEN_FOR}").strip()
    config: Json = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o=json"))
    config["users"] = [{"name": config["contexts"][0]["context"]["user"], "user": {"token": token}}]
    kubeconfig = folder / "controller.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    kubeconfig.chmod(0o600)
    return kubeconfig


def revoke(cluster: Cluster, folder: Path) -> None:
    """Take away what `grant` made."""
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-k", folder / "rbac")


def command(verb: str, kubeconfig: Path, prometheus_url: str, policies: Path) -> list[str]:
    """A command line of `bridge-autoscaler` as that account."""
    return [
        *(sys.executable, "-m", "autoscaler", verb),
        f"--kubeconfig={kubeconfig}",
        f"--prometheus-url={prometheus_url}",
        f"--policies={policies}",
    ]


class Controller(Running):
    """The controller under those roles."""

    ends_within_s = 20.0

    def __init__(self, kubeconfig: Path, prometheus_url: str, policies: Path, log: Path, *arguments: str) -> None:
        line = [
            *command("run", kubeconfig, prometheus_url, policies),
            "--log-format=json",
            "--leader-elect=false",
            "--metrics-address=127.0.0.1:0",
            *arguments,
        ]
        super().__init__(line, log, append=True)

    def reasons(self, pod: str) -> list[str]:
        """The reasons that were told of a pod, NAMESPACE/NAME, oldest first."""
        return [line["reason"] for line in self.lines() if line.get("pod") == pod and "reason" in line]

    def turns(self) -> list[dict[str, Any]]:
        """The turns so far in which all pods were decided."""
        return [line for line in self.lines("turn") if line["wake"] == WakeKind.TICK]

    def tally(self) -> dict[str, int]:
        """The reasons of the last of them, with the number of pods of each."""
        full = self.turns()
        reasons: dict[str, int] = full[-1]["reasons"] if full else {}
        return reasons
