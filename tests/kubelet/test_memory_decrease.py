"""A memory limit that was to shrink, while usage rose above what it was to become: the kubelet does nothing of it."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.kubelet.cluster import Json, condition, eventually
from tests.kubelet.figures import Figures
from tests.kubelet.observing import measured
from tests.kubelet.pods import Bridge, sizes
from tests.kubelet.stage import Stage, in_force
from tests.kubelet.waiting import asks_since

MIB = 1 << 20
BEFORE, AFTER = "256Mi", "64Mi"
HELD_MIB = 110  # above what the limit is to become, below what it is
ERROR_AFTER = timedelta(seconds=60)
POLICY: dict[str, Any] = {
    "mode": "Resize",
    "recommender": {
        "name": "percentile",
        "parameters": {"memory": {"target": "p90", "margin": "30%", "halfLife": "10s"}, "minHistory": "5s"},
    },
    "containers": [{"name": "*", "controlledResources": ["memory"], "minAllowed": {"memory": AFTER}}],
    "metrics": measured(),
    # a second ask has no place in the story
    "stability": {"cooldown": {"increase": "10m", "decrease": "10m"}, "maxStep": {"decrease": "90%"}},
    "fallback": {"errorAfter": f"{int(ERROR_AFTER.total_seconds())}s"},
}


@pytest.mark.timeout(600)
def test_a_decrease_below_usage_waits_until_usage_has_fallen_or_is_given_up(stage: Stage, figures: Figures) -> None:
    """Story d. The product asks only for limits above what it knows to be in use (ADR 0009), so the way here is that
    it does not know: usage rises while nothing is scraped."""
    lookout, prometheus = stage.house.lookouts[stage.node], stage.prometheus
    falls = stage.bridge("sim", sizes("400m", BEFORE), node=stage.node, replicas=2)
    stays = Bridge(stage.cluster, stage.namespace, "sim-1")
    stage.policy(**POLICY)
    seen = f'container_memory_usage_bytes{{namespace="{stage.namespace}",container="app"}} offset 15s'
    eventually("both have been scraped for a while", lambda: len(prometheus.query(seen)) == 2, 180)
    with prometheus.blind():
        for bridge in (falls, stays):
            bridge.load(memory_mib=HELD_MIB)
        eventually("the kubelet knows", lambda: all(used(one) > HELD_MIB * MIB for one in (falls, stays)), 60)
        controller = stage.controller("--interval=3s")
        eventually("both are asked for", lambda: len(controller.lines("resize")) == 2, 60)
    assert {line["reason"] for line in controller.lines("resize")} == {"Decrease"}

    # the kubelet tries, and says so
    eventually("the kubelet has refused both", lambda: all(error(one.pod()) for one in (falls, stays)), 60)
    refused_at = datetime.now(UTC)
    asked = {bridge.name: asks_since(bridge.pod()) for bridge in (falls, stays)}
    for bridge in (falls, stays):
        pod = bridge.pod()
        assert error(pod)["message"].startswith("cannot decrease memory limits: [attempting to set pod memory limit")
        assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == AFTER
        assert pod["status"]["containerStatuses"][0]["allocatedResources"]["memory"] == AFTER
        assert in_force(pod)["limits"]["memory"] == BEFORE
        cgroup = lookout.cgroup(pod)
        assert {cgroup[of]["memory.max"] for of in ("container", "pod")} == {str(256 * MIB)}
    falls.load(memory_mib=0)
    freed_at = time.monotonic()

    # the controller waits, until a deadline that counts from when the kubelet began
    said = stage.plan(stays.name)
    assert (said["reason"], said["action"]) == ("ResizeError", "None")
    due_at = datetime.fromisoformat(said["dueAt"])
    assert due_at == datetime.fromisoformat(error(stays.pod())["lastTransitionTime"]) + ERROR_AFTER

    # usage has fallen: the kubelet does it, nobody asks again
    eventually("the limit is lowered", lambda: limit(stage, falls) == 64 * MIB, 60)
    took_s = time.monotonic() - freed_at
    eventually("it is over", lambda: settled(falls.pod()), 30)
    assert asks_since(falls.pod()) == asked[falls.name]

    # usage stays: it is given up
    left_s = max(0.0, (due_at - datetime.now(UTC)).total_seconds())
    eventually("it is given up", lambda: asks_since(stays.pod()) != asked[stays.name], left_s + 30)
    ((given_up_by, given_up_at),) = asks_since(stays.pod())
    assert given_up_by == "bridge-autoscaler-revert"
    assert timedelta(seconds=-1) <= given_up_at - due_at <= timedelta(seconds=3)  # both are dated to the second
    assert stays.pod()["spec"]["containers"][0]["resources"] == sizes("400m", BEFORE)
    eventually("it is over", lambda: settled(stays.pod()), 60)
    assert limit(stage, stays) == 256 * MIB
    assert {reason for reason, _ in stage.cluster.events(stays.pod())} >= {"ResizeError", "Revert"}
    assert [line["reason"] for line in controller.lines("resize")] == ["Decrease", "Decrease", "Revert"]
    for bridge in (falls, stays):
        bridge.untouched()
    shown_s = (refused_at - asked[stays.name][0][1]).total_seconds()
    figures.note(
        "memory decrease",
        f"two pods in Error {shown_s:.0f} s after they were asked; done {took_s:.1f} s after usage had fallen",
    )


def used(bridge: Bridge) -> int:
    """Bytes that cAdvisor of the bridge's node says it uses, which is what the kubelet compares."""
    node = bridge.first["spec"]["nodeName"]
    text = bridge.cluster.fetch("GET", f"/api/v1/nodes/{node}/proxy/metrics/cadvisor")
    labels = f'container="app".*namespace="{bridge.namespace}",pod="{bridge.name}"'
    found = re.search(rf"^container_memory_usage_bytes{{{labels}}} (\S+)", text, re.MULTILINE)
    return int(float(found[1])) if found else 0


def error(pod: Json) -> Json:
    """The condition of a resize that the kubelet cannot apply; empty if there is none."""
    found = condition(pod, "PodResizeInProgress")
    return found if found.get("reason") == "Error" else {}


def settled(pod: Json) -> bool:
    """Whether what is asked for is in force."""
    same = in_force(pod) == pod["spec"]["containers"][0]["resources"]
    return same and not condition(pod, "PodResizeInProgress")


def limit(stage: Stage, bridge: Bridge) -> int:
    """Bytes in memory.max of its container."""
    return int(stage.house.lookouts[stage.node].cgroup(bridge.pod())["container"]["memory.max"])
