"""A bridge that cannot grow where it is: moved to another node, when its budget and its users allow it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from tests.kubelet.cluster import PORT, Json, Refusal, condition, eventually
from tests.kubelet.controller import Controller
from tests.kubelet.figures import Figures
from tests.kubelet.pods import Bridge
from tests.kubelet.stage import Stage, pending
from tests.kubelet.waiting import (
    FITTED,
    PATIENCE_S,
    RESOURCES,
    ROOM,
    WANTED,
    asks_since,
    busy,
    has,
    heartbeats,
    policy,
    uncut,
)

SESSIONS = 10  # of each protocol
AFTER_S = 20
BUDGET = "always-one"
_TWO_LOOKS_S = 11  # the gate is looked at every 5 s, and twice


@pytest.mark.whole_cluster  # from one node to the other
@pytest.mark.timeout(600)
def test_a_bridge_that_cannot_grow_is_moved_once_its_budget_allows_it_and_its_users_have_left(
    stage: Stage, figures: Figures
) -> None:
    """Stories b (second half) and i."""
    if len(stage.cluster.ground.nodes) < 2:
        pytest.skip("there is one node, and none to move to: name two in E2E_NODES")
    here, there = stage.cluster.ground.nodes[:2]
    bridge = placed(stage, here, there)
    users = stage.users(here)
    stage.fill(here, leaving=ROOM)
    users.connect(bridge, websocket=SESSIONS, grpc=SESSIONS)
    stage.cluster.create(budget(stage))
    drain = drained_by(stage)
    policy(
        stage,
        mode="ResizeOrMigrate",
        after=f"{AFTER_S}s",
        landing="Some",
        minPodAge="1s",
        drain=drain,
    )
    busy(stage, bridge)
    controller = stage.controller("--interval=3s")

    # no room for all, so it gets what there is; its budget does not mind
    eventually("it is fitted", lambda: has(stage.house.lookouts[here], bridge.pod(), FITTED), PATIENCE_S)
    eventually("it asks for the rest", lambda: pending(bridge.pod()).get("reason") == "Deferred", PATIENCE_S)
    assert [line["reason"] for line in controller.lines("resize")] == ["Increase", "Fit", "Increase"]
    *_, (_, asked_at) = asks_since(bridge.pod())
    said = stage.plan(bridge.name)["migration"]
    assert (datetime.fromisoformat(said["dueAt"]) - asked_at).total_seconds() == AFTER_S
    assert (said["landing"], said["blockedBy"]) == ([there], "EvictionBlocked")

    # story i: the budget keeps it where it is, and says so by its name
    eventually("it is held by its budget", lambda: now(controller) == "EvictionBlocked", PATIENCE_S)
    said = stage.plan(bridge.name)
    assert said["reason"] == "EvictionBlocked"
    assert said["detail"].startswith(f"{BUDGET} needs 1 healthy of 1, and has 1; Node didn't have enough resource: cpu")
    assert not any(line["telling"] for line in controller.lines("drain"))
    stage.cluster.kubectl("delete", "poddisruptionbudget", BUDGET, f"-n={stage.namespace}")

    # its users keep the gate closed, to the last
    eventually("its users are waited for", lambda: now(controller) == "Draining", PATIENCE_S)
    if "notify" in drain:
        assert eventually("it is told to drain", lambda: told(bridge), PATIENCE_S) == {
            "drain": True,
            "namespace": stage.namespace,
            "pod": bridge.name,
            "uid": bridge.first["metadata"]["uid"],
            "by": "bridge-autoscaler",
        }
        with pytest.raises(Refusal, match=r"503 .*draining"):
            stage.cluster.ask(bridge.first, "GET", "session")
    time.sleep(_TWO_LOOKS_S)
    detail = eventually("its users are counted", lambda: sessions(stage, bridge), PATIENCE_S)
    assert detail.startswith(f"{2 * SESSIONS} sessions")
    report = users.report()
    uncut(report, SESSIONS)
    users.leave(2 * SESSIONS - 1)
    time.sleep(_TWO_LOOKS_S)
    alone = users.report()
    assert sum(alone["open"].values()) == 1
    assert (alone["closed_by_us"], alone["closed_by_server"]) == (2 * SESSIONS - 1, 0)
    bridge.untouched()
    assert controller.lines("migrate") == []
    left_at = datetime.now(UTC)
    users.leave()

    # evicted, and at its size on the other node
    (moved,) = eventually("it is evicted", lambda: accepted(controller.lines("migrate")), PATIENCE_S)
    assert (moved["move"], moved["landing"]) == ("Evict", [there])
    eventually("there is another", lambda: another(stage, bridge), PATIENCE_S)
    new = Bridge(stage.cluster, stage.namespace, bridge.name)
    assert new.pod()["spec"]["nodeName"] == there
    eventually("it has its size", lambda: has(stage.house.lookouts[there], new.pod(), WANTED), PATIENCE_S)
    new.untouched()
    resizes = [line for line in accepted(controller.lines("resize")) if line["uid"] == new.first["metadata"]["uid"]]
    assert [(line["reason"], line["changes"]["app"]["requests.cpu"]) for line in resizes] == [("Increase", WANTED)]
    ended = users.report()
    assert [ended[key] for key in ("closed_by_server", "failed", "lost", "reconnects")] == [0, 0, 0, 0]
    users.connect(new, websocket=1, grpc=1)
    figures.note("migration", timings(left_at, moved, new, resizes[0]))
    figures.note("migration", f"while it waited: {heartbeats(report)}")


def placed(stage: Stage, here: str, there: str) -> Bridge:
    """A bridge that may be on both nodes, and is on the first: there was no room on the second, and now there is."""
    crowd = stage.fill(there, leaving="100m", name="crowd")
    both = {"key": "kubernetes.io/hostname", "operator": "In", "values": [here, there]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [both]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    bridge = stage.bridge("sim", RESOURCES, template={"affinity": affinity})
    assert bridge.first["spec"]["nodeName"] == here
    stage.remove(crowd)
    return bridge


def budget(stage: Stage) -> Json:
    """A PodDisruptionBudget that never lets the one bridge go."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": BUDGET, "namespace": stage.namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "sim"}}},
    }


def drained_by(stage: Stage) -> Json:
    """How its sessions are counted: by the bridge itself, where the controller can ask it."""
    if stage.cluster.ground.reaches_pods:
        return {
            "endpoint": {"port": PORT, "path": "/sessions"},
            "notify": {"port": PORT, "path": "/drain"},
            "maxWait": "1h",
        }
    return {"query": 'sum by (namespace, pod) (bridge_sessions{pod=~"$pod"})', "maxWait": "1h"}


def now(controller: Controller) -> str:
    """What the newest full turn held the one bridge for, or did with it."""
    turns = [line for line in controller.lines("turn") if line["wake"] == "tick"]
    return next(iter(turns[-1].get("reasons", {})), "") if turns else ""


def told(bridge: Bridge) -> Json | None:
    """The notice by which it takes no new sessions, once it has come."""
    heard = bridge.drain()
    last: Json = heard["last"]
    return last if heard["draining"] else None


def accepted(lines: list[Json]) -> list[Json]:
    """Those that the API server did as it was asked: it refuses what was decided on an older version of the pod."""
    return [line for line in lines if line["outcome"] == "Accepted"]


def sessions(stage: Stage, bridge: Bridge) -> str:
    """What the plan says of its sessions, where that keeps it from being moved."""
    found = stage.plan(bridge.name)
    (check,) = (one for one in found["migration"]["checks"] if one["name"] == "sessions")
    return str(check["detail"]) if found["reason"] == "Draining" else ""


def another(stage: Stage, bridge: Bridge) -> bool:
    """Whether the pod of that name is another one by now."""
    found = stage.cluster.pods(stage.namespace, {"app": "sim"})
    return [pod["metadata"]["uid"] for pod in found] not in ([], [bridge.first["metadata"]["uid"]])


def timings(left_at: datetime, moved: Json, new: Bridge, resized: Json) -> str:
    """How long each step took, by the log; and when the new pod was ready, which is known to the second."""
    evicted_at, asked_at = (datetime.fromisoformat(line["timestamp"]) for line in (moved, resized))
    ready_at = datetime.fromisoformat(condition(new.first, "Ready")["lastTransitionTime"])
    steps = {
        "evicted {} after the last user had left": evicted_at - left_at,
        "the new pod resized {} later": asked_at - evicted_at,
        "and ready {} after the eviction": ready_at - evicted_at,
    }
    return ", ".join(words.format(f"{took.total_seconds():.1f} s") for words, took in steps.items())
