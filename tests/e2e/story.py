"""The whole story of one move, told as it happens. `python -m tests.e2e.story` prints it, for docs/migration.md."""

from __future__ import annotations

import json
import re
import tempfile
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.e2e.cli import command, run
from tests.e2e.moving import Json, Stage, in_force, reasons
from tests.rig.rig import Rig, eventually

SESSIONS = 3
_WIDTH = 119
_WHO = {"kube-controller-manager": "StatefulSet", "kube-scheduler": "scheduler", "kubelet": "kubelet"}


class Line(NamedTuple):
    """What was seen of one part of the cluster."""

    at: datetime
    who: str
    text: str


class Story:
    """A bridge of one replica on a full node comes to need more than the node has, and users are connected to it.

    `run` plays it from beginning to end. `before` and `after`: the pod that was moved, and the one in its place.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.sessions = SESSIONS
        self._lines: list[Line] = []

    def run(self) -> None:
        """Play it. Raises AssertionError where it takes another course."""
        stage = self.stage
        self._set()
        with stage.controller() as controller:
            eventually("it has its size", lambda: "AtTarget" in reasons(controller), 60)
            self._note("bridge", f"{SESSIONS} sessions; its usage rises from 0.6 to 6 cores, of which it may have 2")
            stage.uses("sim-0", 6)
            self._note("kubelet", eventually("it is deferred", self._pending, 60))
            eventually("it is fitted", lambda: in_force(stage.pod()) == "1500m", 30)
            self._note("kubelet", "1500m are in force, without a restart")
            self.foreseen = self._explained()
            eventually("the deadline has passed", lambda: "ReplacementTooSmall" in reasons(controller), 30)
            self.too_small = self._explained()
            self.before = stage.pod()
            stage.rig.kubectl("cordon", self.full)
            self._note("person", f"kubectl cordon {self.full}")
            eventually("the bridge is told to drain", lambda: self.bridge.drains[-1:] == [True], 30)
            self._note("bridge", f"was told by POST /drain: {json.dumps(self.bridge.told[-1])}")
            self.draining = self._explained()
            self.evicted_before_the_end = stage.evicted()
            self.sessions = 0
            self._note("bridge", "the last user has gone")
            eventually("it is moved", stage.landed(self.other), 60)
            self._note("kubelet", "2 CPU are in force in the new sim-0, without a restart")
            eventually("it rests", lambda: "AtTarget" in reasons(controller), 30)
            self.after = stage.pod()
        self._tell_of_actions(controller.lines())
        self._tell_of_others()

    def _set(self) -> None:
        stage = self.stage
        self.full, self.other = stage.node("a"), stage.node("b")
        stage.rig.kubectl("cordon", self.other)  # for the bridge to begin on the full one
        stage.uses("sim-0", 0.6)
        crowd = stage.neighbour(self.full, "2500m"), stage.neighbour(self.other, "1")
        stage.apply(*crowd, stage.workload(limit=None))
        eventually("it serves", lambda: stage.ready("sim"))
        stage.rig.kubectl("uncordon", self.other)
        self.bridge = stage.bridges.serve(stage.pod(), lambda: self.sessions)
        drain = stage.bridges.drain(maxWait="5m")
        stage.policy(least="1", cpu="2", after="6s", fit=True, drain=drain)
        self._note("cluster", f"sim-0 runs on {self.full} with 1 CPU; free are 500m there, and 3 on {self.other}")

    def told(self) -> str:
        """The story, a line for each thing that happened: seconds, who, what."""
        lines = sorted(self._lines)
        began_at, shown = lines[0].at, list[str]()
        for at, who, text in lines:
            head = f"{(at - began_at).total_seconds():5.1f} s  {who:<11}  "
            shown += textwrap.wrap(head + text, _WIDTH, subsequent_indent=" " * len(head), break_on_hyphens=False)
        return "\n".join(shown)

    def _note(self, who: str, text: str) -> None:
        self._lines.append(Line(datetime.now(UTC), who, text))

    def _pending(self) -> str:
        """What the kubelet says about a resize that it has not done."""
        conditions: list[Json] = self.stage.pod()["status"]["conditions"]
        return next((f"{c['reason']}: {c['message']}" for c in conditions if c["type"] == "PodResizePending"), "")

    def _explained(self) -> str:
        """What `explain` says, of which the reason and the move enter the story."""
        stage = self.stage
        done = run(*command(stage.rig, "explain", f"{stage.namespace}/sim-0", f"--policies={stage.policies}"))
        assert done.returncode == 0, done.stderr
        words = " ".join(done.stdout.split())
        found = re.search(r"policy sim (.*?) QoS ", words)
        assert found is not None, done.stdout
        self._note("explain", found[1].replace(" Migration ", ". Migration "))
        return words

    def _tell_of_actions(self, log: list[Json]) -> None:
        for line in log:
            if line["event"] == "resize":
                text = f"resize: {line['reason']}, {_changes(line)}, predicted {line['predicted']}: {line['outcome']}"
            elif line["event"] == "migrate":
                text = f"migrate: {line['move']}, {line['detail']}: {line['outcome']}. Checks: "
                text += "; ".join(f"{name} {words}" for name, words in line["checks"].items())
            else:
                continue
            self._lines.append(Line(datetime.fromisoformat(line["timestamp"]), "controller", text))

    def _tell_of_others(self) -> None:
        """What the API server's audit log has of the end of the old pod and the beginning of the new one."""
        said = {
            ("delete", ""): "stops the old sim-0",
            ("create", ""): "makes a new sim-0 from its template, with 1 CPU",
            ("create", "binding"): f"puts it on {self.other}",
        }
        (evicted_at,) = [one.at for one in self.stage.writes() if one.what == "create pods/eviction"]
        for record in self.stage.rig.audit():
            if record["responseStatus"]["code"] >= 400:
                continue
            of, at = record.get("objectRef") or {}, datetime.fromisoformat(record["stageTimestamp"])
            text = said.get((record["verb"], of.get("subresource", "")))
            mine = (of.get("resource"), of.get("namespace")) == ("pods", self.stage.namespace)
            if text and mine and at > evicted_at and (who := _WHO.get(record["user"]["username"])):
                self._lines.append(Line(at, who, text))


def _changes(line: Json) -> str:
    return ", ".join(
        f"{container} {name} = {amount}"
        for container, all_of in line["changes"].items()
        for name, amount in all_of.items()
    )


def main() -> None:
    """Play it on a rig of its own and print it."""
    with tempfile.TemporaryDirectory() as folder, Rig(Path(folder) / "rig") as rig:
        rig.install_role()
        stage = Stage(rig, Path(folder), "sim")
        try:
            story = Story(stage)
            story.run()
        finally:
            stage.close()
        print(story.told())


if __name__ == "__main__":
    main()
