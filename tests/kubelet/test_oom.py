"""A bridge is killed for lack of memory, then ends again and again: what a real kubelet shows, and what is done.

What it showed is kept in tests/captures/g-*; what is done is told in docs/operations.md.
"""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from tests.kubelet.cluster import Json, Refusal, eventually, status
from tests.kubelet.figures import Figures
from tests.kubelet.observing import measured
from tests.kubelet.pods import Bridge, sizes
from tests.kubelet.stage import Stage

CPU, HAS, WANTED = "300m", "64Mi", "128Mi"
BYTES = {HAS: 64 << 20, WANTED: 128 << 20}
TOO_MUCH_MIB = 100
_FIXED_IN = 37  # the pod's own cgroup follows a resize in a back-off: kubernetes#138760


def test_nothing_is_taken_from_a_bridge_that_was_killed_and_a_crash_loop_is_left_alone(
    stage: Stage, figures: Figures
) -> None:
    """Story g."""
    bridge = stage.bridge("sim", sizes(CPU, HAS), node=stage.node)
    uses = f'container_memory_working_set_bytes{{namespace="{stage.namespace}", container="app"}} > 0'
    eventually("Prometheus sees it", lambda: stage.prometheus.query(uses), 60)
    _policy(stage)

    # killed on the way to what it wants, too fast for any sample to show it
    with pytest.raises(Refusal):
        bridge.load(memory_mib=TOO_MUCH_MIB)
    app = eventually("it runs again", lambda: _running(bridge, 1), 60)
    killed = app["lastState"]["terminated"]
    assert (killed["reason"], killed["exitCode"]) == ("OOMKilled", 137)
    # what counts kills belongs to the container that is gone: it may be 1 there, if it was looked at in between
    ooms = f'container_oom_events_total{{namespace="{stage.namespace}", container="app", name!="{_id(killed)}"}}'
    assert {value for _, value in eventually("its successor has samples", lambda: stage.prometheus.query(ooms))} == {0}
    ((_, seen),) = stage.prometheus.query(f"max(max_over_time({uses.removesuffix(' > 0')}[5m]))")

    # by what Prometheus knows it needs less than it has
    controller = stage.controller("--interval=3s")
    eventually("it has decided", lambda: controller.tally() == {"Recovering": 1}, 90)
    said = eventually("a plan finds so, too", lambda: _recovering(stage, bridge), 60)
    assert "restarted after OOMKilled (exit code 137)" in said["detail"]
    assert "recovering" in json.dumps(said)

    # now it ends by itself, and the kubelet waits before it starts it again
    _crash(stage, bridge, 1)
    eventually("the kubelet waits", lambda: _waits(bridge), 60)
    eventually("it is left alone", lambda: controller.tally() == {"CrashLoop": 1}, 30)
    assert stage.plan(bridge.name)["reason"] == "CrashLoop"
    eventually("it runs again", lambda: _running(bridge, 2), 60)
    assert not controller.lines("resize")
    assert status(bridge.pod())["resources"]["limits"]["memory"] == HAS

    # a resize ends the back-off of 20 s, which counts for a container with these resources alone
    _crash(stage, bridge, 2)
    stage.cluster.resize(bridge.pod(), {"app": sizes(CPU, WANTED)})
    app = eventually("it runs again", lambda: _running(bridge, 3), 90)
    assert app["resources"]["limits"]["memory"] == WANTED
    back_off_s = (_moment(app["state"]["running"]) - _moment(app["lastState"]["terminated"], "finishedAt")).seconds
    assert back_off_s < 15
    cgroup = stage.house.lookouts[stage.node].cgroup(bridge.pod())
    assert int(cgroup["container"]["memory.max"]) == BYTES[WANTED]
    if _minor(stage) >= _FIXED_IN:
        assert int(cgroup["pod"]["memory.max"]) == BYTES[WANTED]
    assert not controller.lines("resize")
    figures.note("oom", f"at most {seen / 2**20:.0f}Mi sampled of a container killed at {HAS}; back-off {back_off_s} s")


def _recovering(stage: Stage, bridge: Bridge) -> Json | None:
    """What `plan` says, once it knows of samples: each process finds out for itself how often a container is scraped,
    from the first of them."""
    said = stage.plan(bridge.name)
    assert said["reason"] in ("Recovering", "NoData"), said
    return said if said["reason"] == "Recovering" else None


def _policy(stage: Stage) -> None:
    stage.policy(
        mode="Resize",
        recommender={
            "name": "percentile",
            "parameters": {
                "cpu": {"target": "p50", "margin": "10%", "halfLife": "10s"},
                "memory": {"target": "p50", "margin": "10%", "halfLife": "10s"},
                "minHistory": "5s",
            },
        },
        containers=[{"name": "*", "maxAllowed": {"cpu": CPU, "memory": HAS}}],
        metrics=measured("1m"),
        stability={"cooldown": {"decrease": "1s"}, "maxStep": {"decrease": "90%"}},
    )


def _crash(stage: Stage, bridge: Bridge, restarts: int) -> None:
    """Have it end by itself, once it answers; it has ended when this returns."""
    eventually("it answers", lambda: status(bridge.pod())["ready"], 90)
    stage.cluster.ask(bridge.pod(), "POST", "crash?code=3")
    eventually("it has ended", lambda: "running" not in status(bridge.pod())["state"], 30, 0.1)
    assert status(bridge.pod())["restartCount"] == restarts


def _running(bridge: Bridge, restarts: int) -> Json | None:
    """The container's status if it runs after so many restarts."""
    found = status(bridge.pod())
    return found if found["restartCount"] == restarts and "running" in found["state"] else None


def _waits(bridge: Bridge) -> bool:
    return bool(status(bridge.pod())["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff")


def _moment(state: Json, field: str = "startedAt") -> datetime:
    return datetime.fromisoformat(state[field])


def _id(state: Json) -> str:
    return str(state["containerID"]).rpartition("/")[2]


def _minor(stage: Stage) -> int:
    version: str = stage.cluster.node(stage.node)["status"]["nodeInfo"]["kubeletVersion"]
    return int(version.split(".")[1])
