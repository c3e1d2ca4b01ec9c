"""The whole life of a resize on a real API server, by a controller that is killed in the middle of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from autoscaler.core.actions import AskKind
from tests.e2e.cli import Controller
from tests.rig.control_plane import CONTROLLER
from tests.rig.rig import Rig, eventually
from tests.rig.usage import Usage

pytestmark = pytest.mark.rig

NODE = "deadlines"
AFTER_S = 20
POLICY = """\
apiVersion: bridge-autoscaler.dev/v1alpha1
kind: BridgePolicy
metadata: {{name: deadlines}}
spec:
  selector: {{namespaces: [{namespace}]}}
  mode: Resize
  recommender: {{name: percentile, parameters: {{minHistory: 20s, cpu: {{halfLife: 10s}}, memory: {{halfLife: 10s}}}}}}
  containers:
  - {{name: "*", controlledResources: [cpu], minAllowed: {{cpu: "2"}}, maxAllowed: {{cpu: "2"}}}}
  metrics: {{lookback: 2m, step: 5s, rateWindow: 10s}}
  stability: {{cooldown: {{increase: 1s, decrease: 1s}}}}
  fallback: {{after: {after_s}s, infeasibleAfter: 3s}}
"""


def manifest(namespace: str, name: str, cpu: str) -> str:
    size = {"cpu": cpu, "memory": "64Mi"}
    container = {"name": "app", "image": "bridge", "resources": {"requests": size, "limits": size}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "nodeSelector": {"only-for": NODE}},
    }
    return yaml.safe_dump(pod)


class Stage:
    """A bridge of one core that wants two."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig, self.folder = rig, folder
        self.namespace = rig.namespace(NODE)
        self.policies = folder / "policy.yaml"
        self.policies.write_text(POLICY.format(namespace=self.namespace, after_s=AFTER_S))

    def runs(self, cpu: str = "1") -> None:
        self.rig.apply(manifest(self.namespace, "sim-0", cpu))
        self.rig.agent.usage[self.namespace, "sim-0", "app"] = Usage(cpu=0.3, memory=10 << 20)
        eventually("the bridge runs", lambda: self.pod()["status"]["phase"] == "Running")

    def pod(self) -> dict[str, Any]:
        return self.rig.pod(self.namespace, "sim-0")

    def controller(self, name: str) -> Controller:
        """With a tick of half a minute: nothing that is due waits for it."""
        log = self.folder / f"{name}.log"
        return Controller(
            self.rig, self.policies, log, "--interval=30s", "--metrics-address=127.0.0.1:0", "--leader-elect=false"
        )

    def asked(self) -> list[tuple[datetime, str]]:
        """The stored resizes of the bridge: when they arrived, and under which field manager."""
        found: list[tuple[datetime, str]] = []
        for record in self.rig.audit():
            target = record.get("objectRef", {})
            if (target.get("namespace"), target.get("subresource")) != (self.namespace, "resize"):
                continue
            if record["user"]["username"] == CONTROLLER and record["responseStatus"]["code"] == 200:
                (manager,) = parse_qs(urlsplit(record["requestURI"]).query)["fieldManager"]
                found.append((datetime.fromisoformat(record["requestReceivedTimestamp"]), manager))
        return sorted(found)

    def kinds(self) -> list[str]:
        return [manager for _, manager in self.asked()]


@pytest.fixture
def stage(rig: Rig, tmp_path: Path) -> Iterator[Stage]:
    yield Stage(rig, tmp_path)
    rig.agent.remove_node(NODE)


def test_deferred_fitted_deferred_again_and_given_up_to_the_second_by_another_process(stage: Stage) -> None:
    stage.rig.agent.add_node(NODE, cpu="3", labels={"only-for": NODE})
    stage.rig.apply(manifest(stage.rig.namespace("neighbour"), "neighbour", "1500m"))
    stage.runs()
    with stage.controller("first") as first:
        wanted = [str(AskKind.TARGET), str(AskKind.FIT), str(AskKind.REST)]
        eventually("it is fitted, and asks for all again", lambda: stage.kinds() == wanted, 120)
        first.signal(signal.SIGKILL)
    with stage.controller("second"):
        eventually("it is given up", lambda: stage.kinds()[-1] == AskKind.REVERT, AFTER_S + 20)
    target, fit, again, revert = (at for at, _ in stage.asked())
    # asks are dated to the second, and count from there
    for moment, due_at in (
        (fit, target.replace(microsecond=0) + timedelta(seconds=AFTER_S / 2)),
        (revert, again.replace(microsecond=0) + timedelta(seconds=AFTER_S)),
    ):
        assert timedelta(seconds=-1) < moment - due_at < timedelta(seconds=1)
    assert stage.pod()["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1500m"


def test_a_static_cpu_manager_is_learned_from_one_refusal(stage: Stage) -> None:
    """RSZ-04: Infeasible, given up, and not asked for again; only a new controller may ask once more."""
    stage.rig.agent.add_node(NODE, cpu="4", labels={"only-for": NODE}, static_cpu_manager=True)
    stage.runs()
    with stage.controller("first") as first:
        wanted = [str(AskKind.TARGET), str(AskKind.REVERT)]
        eventually("it is given up", lambda: stage.kinds() == wanted, 120)

        def reasons() -> dict[str, int]:
            turns = [line for line in first.lines() if line["event"] == "turn"]
            return dict(turns[-1]["reasons"]) if turns else {}

        eventually("it is held", lambda: reasons() == {"StaticManager": 1}, 60)
        assert stage.kinds() == wanted
    assert stage.pod()["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"
