"""A node whose CPU manager is static: its kubelet never resizes the CPU of a Guaranteed pod, and nothing says so before
it is asked."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from autoscaler.core.units import parse_cpu
from tests.kubelet.cluster import Json, eventually
from tests.kubelet.controller import Controller
from tests.kubelet.figures import Figures
from tests.kubelet.observing import measured
from tests.kubelet.pods import Bridge, bridge, sizes
from tests.kubelet.stage import Stage, in_force, pending
from tests.kubelet.waiting import asks_since

MIB = 1 << 20
BUSY = 0.35  # cores, of which the policy makes twice as much
TURNS = 4  # in a row that are looked at where nothing is to happen
WORDS = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'


def policy(stage: Stage, **fallback: Any) -> None:
    stage.policy(
        mode="Resize",
        recommender={
            "name": "percentile",
            "parameters": {
                "cpu": {"target": "p90", "margin": "100%", "halfLife": "10s"},
                "memory": {"target": "p90", "margin": "30%", "halfLife": "10s"},
                "minHistory": "5s",
            },
        },
        containers=[{"name": "*", "minAllowed": {"cpu": "400m", "memory": "96Mi"}}],
        metrics=measured(),
        stability={"cooldown": {"increase": "1s"}, "maxStep": {"increase": "400%"}},
        fallback={"infeasibleAfter": "5s", "retryAfter": "1s", **fallback},
    )


@pytest.mark.whole_cluster  # whichever node is static
@pytest.mark.timeout(600)
def test_a_static_cpu_manager_is_learnt_from_one_answer(stage: Stage, figures: Figures) -> None:
    """Story e."""
    node = stage.cluster.ground.static_node
    if node is None or node not in stage.cluster.ground.nodes:
        pytest.skip("needs a node with a static CPU manager: name it in E2E_STATIC_NODE and E2E_NODES")
    burstable = sizes("400m", "96Mi", cpu_limit="800m", memory_limit="192Mi")
    stage.cluster.create(
        bridge(stage.cluster, stage.namespace, "twin", sizes("400m", "96Mi"), node=node, replicas=2),
        bridge(stage.cluster, stage.namespace, "viewer", burstable, node=node),
    )
    first, second, viewer = (Bridge(stage.cluster, stage.namespace, name) for name in ("twin-0", "twin-1", "viewer-0"))
    assert [one.first["status"]["qosClass"] for one in (first, viewer)] == ["Guaranteed", "Burstable"]
    policy(stage, action="Hold")
    controller = stage.controller("--interval=3s")
    first.load(cpu=BUSY)

    # the first ask is answered, and that is all
    eventually("it is infeasible", lambda: pending(first.pod()).get("reason") == "Infeasible", 180)
    assert pending(first.pod())["message"] == WORDS
    asked = asks_since(first.pod())
    told_at = datetime.fromisoformat(pending(first.pod())["lastTransitionTime"])
    figures.note("static CPU manager", f"Infeasible {(told_at - asked[0][1]).total_seconds():.0f} s after the ask")
    eventually("it is kept", lambda: "DeadlinePassed" in controller.tally(), 30)
    assert in_force(first.pod()) == sizes("400m", "96Mi")

    # another controller reads it from the pod, and knows it of every Guaranteed pod of the node
    controller.kill()
    controller = stage.controller("--interval=3s")
    for one in (second, viewer):
        one.load(cpu=BUSY)
    eventually("the Burstable one grows", lambda: cpu(in_force(viewer.pod())) > 400, 180)
    eventually("the other one is held", lambda: "StaticManager" in controller.tally(), 180)
    after(controller, TURNS)
    assert asks_since(first.pod()) == asked
    assert asks_since(second.pod()) == []
    said = stage.plan(first.name)
    assert (said["reason"], said["action"]) == ("DeadlinePassed", "None")
    assert WORDS in said["detail"]
    told = [words for reason, words in stage.cluster.events(second.pod()) if reason == "StaticManager"]
    assert [words.startswith(WORDS) for words in told] == [True]

    # given up where the policy says so, and not asked for again
    policy(stage, action="Revert")
    eventually(
        "it is given up", lambda: [who for who, _ in asks_since(first.pod())] == ["bridge-autoscaler-revert"], 30
    )
    assert first.pod()["spec"]["containers"][0]["resources"] == sizes("400m", "96Mi")
    eventually("both are held", lambda: controller.tally().get("StaticManager") == 2, 60)
    after(controller, TURNS)
    assert [line["pod"] for line in controller.lines("resize") if line["pod"] != viewer.name] == [first.name] * 2

    # memory is another matter, also while CPU is wanted
    first.load(memory_mib=70)
    eventually("memory grows", lambda: memory(stage, first) > 96 * MIB, 180)
    assert cpu(in_force(first.pod())) == 400
    assert not pending(first.pod())
    for one in (first, second, viewer):
        one.untouched()


def cpu(resources: Json) -> int:
    return parse_cpu(resources["requests"]["cpu"])


def memory(stage: Stage, bridge: Bridge) -> int:
    """Bytes in memory.max of its container."""
    pod = bridge.pod()
    return int(stage.house.lookouts[pod["spec"]["nodeName"]].cgroup(pod)["container"]["memory.max"])


def after(controller: Controller, count: int) -> None:
    """Return after so many more turns."""
    before = len(controller.turns())
    eventually(f"{count} more turns", lambda: len(controller.turns()) >= before + count, 60)
