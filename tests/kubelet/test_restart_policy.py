"""A bridge whose memory can only be changed by a restart of its container: that counts as a disruption."""

from __future__ import annotations

import time
from typing import Any

import pytest

from autoscaler.core.units import parse_cpu, parse_memory
from tests.kubelet.cluster import condition, container_id, eventually, status
from tests.kubelet.figures import Figures
from tests.kubelet.observing import measured
from tests.kubelet.pods import Bridge, sizes
from tests.kubelet.stage import Stage, in_force

CPU, MEMORY, MEMORY_LIMIT = "400m", "96Mi", "192Mi"
SIZE = sizes(CPU, MEMORY, memory_limit=MEMORY_LIMIT)  # Burstable: a static CPU manager lets it be resized
NO_DISRUPTIONS = "--budgets=maxDisruptionsPerWorkload=0"
SESSIONS = 5  # of each protocol
POLICY: dict[str, Any] = {
    "mode": "Resize",
    "recommender": {
        "name": "percentile",
        "parameters": {
            "cpu": {"target": "p90", "margin": "100%", "halfLife": "10s"},
            "memory": {"target": "p90", "margin": "30%", "halfLife": "10s"},
            "minHistory": "5s",
        },
    },
    "containers": [{"name": "*", "minAllowed": {"cpu": CPU, "memory": MEMORY}}],
    "metrics": measured(),
    # what a restart frees is not taken back within the story: that would be another restart
    "stability": {"cooldown": {"increase": "1s", "decrease": "10m"}, "maxStep": {"increase": "400%"}},
}
RESIZE_POLICY = [
    {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    {"resourceName": "memory", "restartPolicy": "RestartContainer"},
]


@pytest.mark.timeout(600)
def test_a_resize_that_restarts_the_container_is_counted_as_a_disruption(stage: Stage, figures: Figures) -> None:
    """Story f."""
    lookout = stage.house.lookouts[stage.node]
    made = stage.bridge("sim", SIZE, node=stage.node, replicas=2, resizePolicy=RESIZE_POLICY)
    bridges = {"sim-0": made, "sim-1": Bridge(stage.cluster, stage.namespace, "sim-1")}
    users = stage.users(stage.node)
    for bridge in bridges.values():
        users.connect(bridge, websocket=SESSIONS, grpc=SESSIONS)
        bridge.load(memory_mib=72)
    stage.policy(**POLICY)

    # without a budget for it, it is held
    none = stage.controller("--interval=3s", NO_DISRUPTIONS)
    eventually("both are held", lambda: none.tally() == {"DisruptionBudget": 2}, 180)
    assert stage.plan(made.name)["prediction"] == {"outcome": "Restart", "detail": "resizePolicy restarts app"}
    assert none.stop() == 0
    assert not none.lines("resize")
    assert [bridge.pod()["metadata"]["generation"] for bridge in bridges.values()] == [1, 1]

    # with a budget of one, one of them restarts, and the other waits for it
    controller = stage.controller("--interval=3s")
    line = eventually("one is asked for", lambda: controller.lines("resize"), 60)[0]
    asked_at = time.monotonic()
    assert (line["reason"], line["predicted"]) == ("Increase", "Restart")
    bridge = bridges.pop(line["pod"])
    (other,) = bridges.values()
    eventually("it has restarted", lambda: restarts(bridge) == 1, 60)
    eventually("it serves again", lambda: condition(bridge.pod(), "Ready").get("status") == "True", 60)
    took_s = time.monotonic() - asked_at
    said = stage.plan(other.name)
    assert (said["reason"], said["action"], said["prediction"]["outcome"]) == ("DisruptionBudget", "None", "Restart")
    assert f"{bridge.namespace}/{bridge.name} of at most 1" in said["detail"]
    pod = bridge.pod()
    assert pod["metadata"]["uid"] == bridge.first["metadata"]["uid"]
    assert container_id(pod) != container_id(bridge.first)
    assert pod["spec"]["containers"][0]["resources"] == in_force(pod)
    assert int(lookout.cgroup(pod)["container"]["memory.max"]) > parse_memory(MEMORY_LIMIT)
    assert ("Killing", "Container app resize requires restart") in stage.cluster.events(pod)
    report = users.report()
    assert report["open"] == {"websocket": SESSIONS, "grpc": SESSIONS}  # those of the other one

    # CPU alone restarts nothing, keeps the sessions, and needs no budget
    assert controller.stop() == 0
    controller = stage.controller("--interval=3s", NO_DISRUPTIONS)
    users.connect(bridge, websocket=SESSIONS, grpc=SESSIONS)
    before = users.report()
    bridge.load(cpu=0.35)
    eventually("CPU grows", lambda: parse_cpu(in_force(bridge.pod())["requests"]["cpu"]) > parse_cpu(CPU), 180)
    line = [one for one in controller.lines("resize") if one["pod"] == bridge.name][-1]
    assert (line["reason"], line["predicted"]) == ("Increase", "InPlace")
    assert set(line["changes"]["app"]) == {"requests.cpu", "limits.cpu"}
    assert restarts(bridge) == 1
    assert container_id(bridge.pod()) == container_id(pod)
    turns = len(controller.turns())
    eventually("it rests", lambda: len(controller.turns()) >= turns + 3, 30)
    assert "CrashLoop" not in controller.tally()  # the restart by the resize is not held against it
    after = users.report()
    assert after["open"] == {"websocket": 2 * SESSIONS, "grpc": 2 * SESSIONS}
    assert [after[key] for key in ("closed_by_server", "failed", "lost")] == [
        before[key] for key in ("closed_by_server", "failed", "lost")
    ]
    figures.note("restart policy", f"ready {took_s:.1f} s after the resize that restarts the container was asked for")


def restarts(bridge: Bridge) -> int:
    """Of its container."""
    found: int = status(bridge.pod())["restartCount"]
    return found
