"""Load rises and falls, and a bridge on a real kubelet follows it, with its users connected all the while."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from autoscaler.core.reasons import Reason
from autoscaler.core.units import parse_cpu, parse_memory
from tests.kubelet import latency
from tests.kubelet.cluster import Json, eventually
from tests.kubelet.figures import Figures
from tests.kubelet.latency import Course, Patch
from tests.kubelet.observing import measured
from tests.kubelet.pods import Bridge, Lookout, Users, sizes
from tests.kubelet.stage import Stage, in_force
from tests.kubelet.waiting import heartbeats, uncut

SMALL = sizes("350m", "64Mi")
EACH = 100  # sessions of each protocol
HEARTBEAT_MS = 10_000  # a bridge on an emulated CPU takes some 2 ms for one
CALM_S = 20
HIGH: dict[str, Any] = {"cpu": 0.25, "memory_mib": 40}
LOW: dict[str, Any] = {"cpu": 0, "memory_mib": 0}
"""What the bridge uses besides its sessions: below its limits, for load beyond them is throttled, or killed."""

POLICY: dict[str, Any] = {
    "mode": "Resize",
    "recommender": {
        "name": "percentile",
        "parameters": {
            "cpu": {"target": "p90", "margin": "50%", "halfLife": "5s"},
            "memory": {"target": "p90", "margin": "50%", "halfLife": "5s"},
            "minHistory": "10s",
        },
    },
    "containers": [{"name": "*", "minAllowed": SMALL["requests"]}],
    "metrics": measured("1m"),
    "stability": {
        "cooldown": {"increase": "1s", "decrease": "1s"},
        "maxStep": {"increase": "400%", "decrease": "90%"},
        "minChange": {"increase": "10%", "decrease": "10%"},
    },
}


@pytest.mark.whole_cluster  # a Guaranteed bridge cannot be resized on a static node
@pytest.mark.timeout(600)
def test_a_bridge_grows_and_shrinks_while_its_users_stay_connected(stage: Stage, figures: Figures) -> None:
    node = latency.ordinary_node(stage)
    bridge = stage.bridge("sim", SMALL, node=node)
    lookout = stage.house.lookouts[node]
    users = stage.users(node)
    users.connect(bridge, websocket=EACH, grpc=EACH, every_ms=HEARTBEAT_MS)
    stage.policy(**POLICY)
    controller = stage.controller("--interval=3s")
    connected_at = time.monotonic()
    eventually("the bridge has the size that it needs", lambda: controller.tally() == {Reason.AT_TARGET: 1}, 120)
    time.sleep(max(0.0, connected_at + CALM_S - time.monotonic()))
    figures.note("in place", f"calm: {seen_by(users, CALM_S)}")

    up = latency.run(bridge, lookout, stage.prometheus, controller, **HIGH, quiet_s=15, within_s=180)
    figures.note("in place", f"load rises: {seen_by(users, time.time() - up.began_at)}")
    for line in (*latency.table([up], "memory"), *latency.table([up], "cpu"), *latency.told([up])):
        figures.note("in place", line)
    as_asked(up, lookout, bridge)
    grown = in_force(bridge.pod())
    assert exceeds(grown, SMALL)
    shown(stage, bridge, HIGH)

    down = latency.run(bridge, lookout, stage.prometheus, controller, **LOW, quiet_s=15, within_s=180)
    figures.note("in place", f"load falls: {seen_by(users, time.time() - down.began_at)}")
    as_asked(down, lookout, bridge)
    assert exceeds(grown, in_force(bridge.pod()))
    shown(stage, bridge, LOW)

    bridge.untouched()
    assert bridge.pod()["status"]["qosClass"] == bridge.first["status"]["qosClass"] == "Guaranteed"


def seen_by(users: Users, last_s: float) -> str:
    """What the users have seen of late, in words; of all the time, no session was cut and nothing lost."""
    uncut(users.report(), EACH)
    return heartbeats(users.report(last_s))


def exceeds(one: Json, other: Json) -> bool:
    """Whether the limits of both resources are higher."""
    mine, others = one["limits"], other["limits"]
    more_memory = parse_memory(mine["memory"]) > parse_memory(others["memory"])
    return more_memory and parse_cpu(mine["cpu"]) > parse_cpu(others["cpu"])


def shown(stage: Stage, bridge: Bridge, load: dict[str, Any]) -> None:
    """Prometheus has it all: the usage, by the kubelet, and the load and the sessions, by the bridge itself."""
    labels = f'namespace="{stage.namespace}",pod="{bridge.name}"'
    compared = ">=" if load is HIGH else "<"
    for query in (
        f'rate(container_cpu_usage_seconds_total{{{labels},container="app"}}[30s]) {compared} {HIGH["cpu"]}',
        f'container_memory_working_set_bytes{{{labels},container="app"}} {compared} {HIGH["memory_mib"] * latency.MIB}',
        f"bridge_demand_cores{{{labels}}} == {load['cpu']}",
        f"bridge_held_memory_bytes{{{labels}}} == {load['memory_mib'] * latency.MIB}",
        f"sum by (pod) (bridge_sessions{{{labels}}}) == {2 * EACH}",
        f"sum by (pod) (bridge_lost_messages_total{{{labels}}}) == 0",
        f"rate(bridge_frame_seconds_count{{{labels}}}[30s]) > 0",
    ):
        eventually(f"Prometheus shows {query}", lambda query=query: stage.prometheus.query(query), 60)  # type: ignore[misc]


def as_asked(course: Course, lookout: Lookout, bridge: Bridge) -> None:
    """The cgroups of the container and the pod took on the limits that the controller asked for, one after the other,
    and no others. Raises AssertionError."""
    limits = [values(patch) for patch in course.patches]
    weights = {weight for patch in course.patches for weight in weights_of(patch)}
    cgroup = lookout.cgroup(bridge.pod())
    for of in ("container", "pod"):
        changed = [one for one in course.changes if one.of == of]
        for file in ("cpu.max", "memory.max"):
            asked = [one[file] for one in limits if file in one]
            assert asked, f"no new {file} was asked for"
            assert [one.value for one in changed if one.file == file] == asked, (of, course)
            assert cgroup[of][file] == asked[-1]
        assert {one.value for one in changed if one.file == "cpu.weight"} <= weights, (of, course)
        assert cgroup[of]["cpu.weight"] in weights, (of, course)


def values(patch: Patch) -> dict[str, str]:
    """What a resize of the one container makes of cpu.max and memory.max, its own and its pod's."""
    (asked,) = patch.line["changes"].values()
    found = {}
    if "limits.cpu" in asked:
        found["cpu.max"] = f"{parse_cpu(asked['limits.cpu']) * 100} 100000"
    if "limits.memory" in asked:
        found["memory.max"] = str(parse_memory(asked["limits.memory"]))
    return found


def weights_of(patch: Patch) -> set[str]:
    """What it may make of cpu.weight. Two conversions of shares are in use: a linear one, by the kubelet for pods, and
    by newer runtimes one that makes 100 of 1024 (runc's ConvertCPUSharesToCgroupV2Value)."""
    (asked,) = patch.line["changes"].values()
    if "requests.cpu" not in asked:
        return set()
    shares = max(2, parse_cpu(asked["requests.cpu"]) * 1024 // 1000)
    doublings = math.log2(shares)
    newer = math.ceil(10 ** ((doublings**2 + 125 * doublings) / 612 - 7 / 34))
    return {str(1 + (shares - 2) * 9999 // 262142), str(newer)}
