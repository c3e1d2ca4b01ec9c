"""A full node: the real kubelet defers a resize, its deadline outlives the controller, and a neighbour leaves."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest

from tests.kubelet.cluster import eventually
from tests.kubelet.figures import Figures
from tests.kubelet.stage import Stage, in_force, pending
from tests.kubelet.waiting import (
    PATIENCE_S,
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

AFTER = timedelta(seconds=25)
SESSIONS = 20  # of each protocol


@pytest.mark.timeout(600)
def test_a_deadline_outlives_the_controller_and_a_neighbour_that_leaves_in_time_ends_the_wait(
    stage: Stage, figures: Figures
) -> None:
    """Stories b (first half) and c."""
    bridge = stage.bridge("sim", RESOURCES, node=stage.node)
    users = stage.users(stage.node)
    users.connect(bridge, websocket=SESSIONS, grpc=SESSIONS)
    neighbour = stage.fill(stage.node, leaving=ROOM)
    lookout = stage.house.lookouts[stage.node]
    lookout.watch(bridge.pod())
    policy(stage, mode="Resize", after=f"{int(AFTER.total_seconds())}s", fit=False, retryAfter="3s")
    busy(stage, bridge)
    first = stage.controller("--interval=3s")

    # deferred, and the time that is left is shown
    eventually("it is deferred", lambda: pending(bridge.pod()).get("reason") == "Deferred", PATIENCE_S)
    before = bridge.pod()
    assert "Node didn't have enough resource: cpu, requested: 600" in pending(before)["message"]
    (asked,) = asks_since(before)
    due_at = asked[1] + AFTER
    said = stage.plan(bridge.name)
    assert (said["reason"], said["action"]) == ("ResizeDeferred", "None")
    assert datetime.fromisoformat(said["dueAt"]) == due_at
    assert f"deadline {due_at.isoformat(timespec='seconds')}" in said["detail"]

    # another controller keeps the same deadline, and does not ask again
    first.kill()
    second = stage.controller("--interval=3s")
    eventually("it has begun", lambda: len(second.lines("start")) == 2, 30)
    eventually("it has looked", lambda: second.lines()[-1]["event"] == "turn", 30)
    after = bridge.pod()
    assert datetime.now(due_at.tzinfo) < due_at, "the second controller was too slow for this story"
    assert asks_since(after) == [asked]
    assert pending(after)["lastTransitionTime"] == pending(before)["lastTransitionTime"]
    said = stage.plan(bridge.name)
    assert (said["reason"], datetime.fromisoformat(said["dueAt"])) == ("ResizeDeferred", due_at)
    eventually("it is given up", lambda: requested(bridge.pod()) == TEMPLATE, AFTER.total_seconds() + 10)
    *_, (given_up_by, given_up_at) = asks_since(bridge.pod())
    assert given_up_by == "bridge-autoscaler-revert"
    # the API server's time is known to half a second, and it writes down whole ones
    assert timedelta(seconds=-1) <= given_up_at - due_at <= timedelta(seconds=3)
    assert [line["reason"] for line in second.lines("resize")] == ["Increase", "Revert"]

    # asked for again, and a neighbour leaves in time
    policy(stage, mode="Resize", after="5m", fit=False, retryAfter="3s")
    eventually("it is deferred again", lambda: pending(bridge.pod()).get("reason") == "Deferred", PATIENCE_S)
    assert in_force(bridge.pod())["requests"]["cpu"] == TEMPLATE
    left_at = time.monotonic()
    stage.remove(neighbour)
    eventually("it is resized", lambda: has(lookout, bridge.pod(), WANTED), PATIENCE_S)
    took_s = time.monotonic() - left_at
    assert stage.plan(bridge.name)["reason"] == "AtTarget"
    assert [line["reason"] for line in second.lines("resize")] == ["Increase", "Revert", "Increase"]
    bridge.untouched()
    report = users.report()
    uncut(report, SESSIONS)
    figures.note("deferred", f"in force {took_s:.1f} s after the neighbour was told to go; {heartbeats(report)}")
