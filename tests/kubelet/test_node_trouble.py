"""A kubelet that is started again, and a node that is away for a minute, in the middle of resizes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from autoscaler.core.units import parse_cpu
from tests.kubelet.cluster import Refusal, condition, eventually
from tests.kubelet.figures import Figures
from tests.kubelet.observing import measured
from tests.kubelet.pods import Lookout, sizes
from tests.kubelet.stage import Stage, pending
from tests.kubelet.waiting import (
    FITTED,
    RESOURCES,
    ROOM,
    TEMPLATE,
    WANTED,
    asks_since,
    busy,
    has,
    heartbeats,
    policy,
    requested,
    uncut,
)

pytestmark = pytest.mark.timeout(600)  # a node that is away is not noticed soon

SESSIONS = 10  # of each protocol
AFTER = timedelta(seconds=75)  # longer than a node's grace period
_LONGEST_GRACE_S = 120


def test_a_kubelet_that_is_started_again_finishes_what_it_was_asked_for(stage: Stage, figures: Figures) -> None:
    """Story h, first half."""
    bridge = stage.bridge("sim", RESOURCES, node=stage.node)
    users = stage.users(stage.node)
    users.connect(bridge, websocket=SESSIONS, grpc=SESSIONS)
    neighbour = stage.fill(stage.node, leaving=ROOM)
    lookout = stage.house.lookouts[stage.node]
    policy(stage, mode="Resize", after="10m", fit=False)
    busy(stage, bridge)
    controller = stage.controller("--interval=3s")

    # while a resize is deferred
    eventually("it is deferred", lambda: pending(bridge.pod()).get("reason") == "Deferred", 90)
    asked, said = asks_since(bridge.pod()), stage.plan(bridge.name)
    took_s = _start_again(stage, lookout)
    eventually("it is deferred again", lambda: pending(bridge.pod()).get("reason") == "Deferred", 60)
    turns = len(controller.lines("turn"))
    eventually("it was decided about", lambda: len(controller.lines("turn")) > turns + 1, 30)
    assert asks_since(bridge.pod()) == asked
    again = stage.plan(bridge.name)
    assert (again["reason"], again["dueAt"]) == (said["reason"], said["dueAt"]) == ("ResizeDeferred", said["dueAt"])
    stage.remove(neighbour)
    eventually("it is resized", lambda: has(lookout, bridge.pod(), WANTED), 240)
    assert [line["reason"] for line in controller.lines("resize")] == ["Increase"]
    assert asks_since(bridge.pod()) == asked

    # and while one is applied
    resources = {side: {**sized, "cpu": FITTED} for side, sized in RESOURCES.items()}
    stage.cluster.resize(bridge.pod(), {"app": resources})
    _start_again(stage, lookout)
    eventually("it is resized again", lambda: has(lookout, bridge.pod(), FITTED), 60)
    eventually("that is told", lambda: not condition(bridge.pod(), "PodResizeInProgress"), 30)
    assert [line["reason"] for line in controller.lines("resize")] == ["Increase"]
    bridge.untouched()
    report = users.report()
    uncut(report, SESSIONS)
    figures.note("kubelet restart", f"another kubelet after {took_s:.1f} s; {heartbeats(report)}")


def test_a_node_that_is_away_for_a_minute_is_left_alone(stage: Stage, figures: Figures) -> None:
    """Story h, second half: one bridge is asked to grow while nobody knows yet, and waits for the node; the deadline of
    another, whose resize was deferred before, passes meanwhile."""
    bridge = stage.bridge("sim", RESOURCES, node=stage.node)
    large = stage.bridge("large", RESOURCES, node=stage.node)
    users = stage.users(stage.node)
    for one in (bridge, large):
        users.connect(one, websocket=SESSIONS, grpc=SESSIONS)
    lookout = stage.house.lookouts[stage.node]
    _policy(stage)
    large.load(cpu=0.2)
    for one in (bridge, large):
        busy(stage, one)
    more = f"{parse_cpu(TEMPLATE) + stage.free_cpu(stage.node) + 100}m"
    stage.cluster.resize(large.pod(), {"app": sizes(more, "64Mi", memory_limit="128Mi")})
    eventually("it is deferred", lambda: pending(large.pod()).get("reason") == "Deferred", 30)
    ((_, large_asked_at),) = asks_since(large.pod())

    with _away(stage, lookout):
        stopped_at = time.monotonic()
        controller = stage.controller("--interval=3s")
        eventually("it is asked to grow", lambda: requested(bridge.pod()) == WANTED, 60)
        asked = asks_since(bridge.pod())
        said = stage.plan(bridge.name)
        assert said["reason"] in ("ResizeProposed", "KubeletSilent", "NodeNotReady")
        eventually("the node is not ready", lambda: not _ready(stage), _LONGEST_GRACE_S)
        noticed_s = time.monotonic() - stopped_at
        passed_in_s = (large_asked_at + AFTER - datetime.now(UTC)).total_seconds()
        assert passed_in_s > 0, f"the node was not noticed before the deadline, but after {noticed_s:.0f} s"
        time.sleep(passed_in_s + 4)
        assert controller.tally() == {"NodeNotReady": 2}
        for one in (bridge, large):
            assert condition(one.pod(), "Ready")["status"] == "False"
            assert "deletionTimestamp" not in one.pod()["metadata"]
        assert asks_since(bridge.pod()) == asked
        assert parse_cpu(requested(large.pod())) == parse_cpu(more)
        assert [line["reason"] for line in controller.lines("resize")] == ["Increase"]
        assert not controller.lines("migrate")
        uncut(users.report(), 2 * SESSIONS)
        away_s = time.monotonic() - stopped_at

    # back, and everything goes on
    eventually("it is resized", lambda: has(lookout, bridge.pod(), WANTED), 60)
    eventually("the other is past its deadline", lambda: "NoLandingNode" in controller.tally(), 60)
    assert [(line["pod"], line["reason"]) for line in controller.lines("resize")] == [(bridge.name, "Increase")]
    assert not controller.lines("migrate")
    for one in (bridge, large):
        one.untouched()
    report = users.report()
    uncut(report, 2 * SESSIONS)
    figures.note("node away", f"not ready after {noticed_s:.0f} s, away for {away_s:.0f} s; {heartbeats(report)}")


def _policy(stage: Stage) -> None:
    """With everything that would let a pod be moved at its deadline; asks of others are followed like our own."""
    stage.policy(
        mode="ResizeOrMigrate",
        recommender={
            "name": "percentile",
            # what was used before the node was away counts after it
            "parameters": {"cpu": {"target": "max", "margin": "900%", "halfLife": "2m"}, "minHistory": "5s"},
        },
        containers=[{"name": "*", "controlledResources": ["cpu"], "maxAllowed": {"cpu": WANTED}}],
        metrics=measured("5m"),
        stability={"cooldown": {"increase": "1s"}, "maxStep": {"increase": "900%"}, "otherWriterHold": "1s"},
        fallback={"after": f"{int(AFTER.total_seconds())}s", "fit": False, "minPodAge": "1s"},
    )


def _start_again(stage: Stage, lookout: Lookout) -> float:
    """End the node's kubelet: its service manager starts another. Seconds until that answers."""
    before, began_at = lookout.kubelet()["pid"], time.monotonic()
    lookout.signal_kubelet("TERM")
    eventually("there is another kubelet", lambda: _another(lookout, before), 60)
    healthz = f"/api/v1/nodes/{lookout.node}/proxy/healthz"
    eventually("it answers", lambda: _answers(stage, healthz), 60)
    return time.monotonic() - began_at


@contextmanager
def _away(stage: Stage, lookout: Lookout) -> Iterator[None]:
    """The kubelet stands still, and goes on at the end, whatever happens; then the node is ready again. What runs in
    pods does not notice, the lookout included."""
    lookout.signal_kubelet("STOP")
    try:
        yield
    finally:
        eventually("the kubelet goes on", lambda: _goes_on(lookout), 60, 2)
        eventually("the node is ready", lambda: _ready(stage), 90)


def _goes_on(lookout: Lookout) -> bool:
    try:
        lookout.signal_kubelet("CONT")
    except Refusal:
        return False
    return True


def _ready(stage: Stage) -> bool:
    return bool(condition(stage.cluster.node(stage.node), "Ready").get("status") == "True")


def _another(lookout: Lookout, before: int) -> bool:
    try:
        return bool(lookout.kubelet()["pid"] != before)
    except Refusal:  # there is none for a moment
        return False


def _answers(stage: Stage, path: str) -> bool:
    try:
        return stage.cluster.fetch("GET", path) == "ok"
    except Refusal:
        return False
