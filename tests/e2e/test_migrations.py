"""Pods that are moved, and pods that are not, by the real controller, scheduler and disruption controller."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
import yaml

from tests.e2e.cli import command, run
from tests.e2e.moving import AFTER_S, Json, Stage, Staged, cpu_of, reasons, serving, uid_of, volume_in
from tests.e2e.story import Story
from tests.rig.rig import eventually

pytestmark = pytest.mark.rig

OWN = {"patch pods/resize", "create pods/eviction", "create events"}
"""All that a controller without surges ever writes, besides its Lease."""


def checked(item: Json, name: str) -> Json:
    """One precondition, as a plan shows it."""
    found: Json = next(one for one in item["migration"]["checks"] if one["name"] == name)
    return found


def test_deferred_fitted_drained_evicted_and_at_its_size_on_another_node(staged: Staged) -> None:
    stage = staged("sim")
    story = Story(stage)
    story.run()
    print(story.told())

    assert "by Evict: not possible: ReplacementTooSmall" in story.foreseen
    assert f"may land on {story.full}, with no room for the rest; there is room on {story.other}" in story.foreseen
    assert "Draining: 3 sessions" in story.draining
    assert story.evicted_before_the_end == []
    assert story.bridge.told[-1] | {"drain": True, "uid": uid_of(story.before)} == story.bridge.told[-1]

    before, after = story.before, story.after
    assert uid_of(before) != uid_of(after)
    assert [pod["spec"]["nodeName"] for pod in (before, after)] == [story.full, story.other]
    assert [cpu_of(pod) for pod in (before, after)] == ["2", "2"]
    for pod in (before, after):
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    writes = stage.writes()
    assert {one.what for one in writes} == OWN
    assert [one.manager or one.what for one in writes if one.what != "create events"] == [
        "bridge-autoscaler",
        "bridge-autoscaler-fit",
        "bridge-autoscaler-rest",
        "create pods/eviction",
        "bridge-autoscaler",
    ]


def test_nothing_is_evicted_while_a_budget_forbids_it_and_what_it_forbids_costs_nobody_else_a_move(
    staged: Staged,
) -> None:
    """MIG-02: a budget that never allows it, two budgets for a pod, and one of the whole namespace."""
    stage = staged("budgets")
    homes = {app: stage.new_namespace() for app in ("free", "never", "two", "whole")}
    stage.place(*(stage.workload(app, namespace=home) for app, home in homes.items()))
    stage.apply(
        stage.budget("none", "never", namespace=homes["never"], minAvailable=1),
        stage.budget("one", "two", namespace=homes["two"], maxUnavailable=1),
        stage.budget("other", "two", namespace=homes["two"], maxUnavailable=1),
        stage.budget("everybody", None, namespace=homes["whole"], minAvailable="100%"),
    )
    others = {app: stage.node(f"{app}-other", app=app) for app in homes}
    stage.policy(namespaces=homes.values())
    with stage.controller("controller", "--budgets=maxDisruptionsCluster=1") as controller:

        def landed(app: str) -> Callable[[], bool]:
            return stage.landed(others[app], app, homes[app])

        eventually("the one without a budget is moved", landed("free"), 60)
        blocked = {"EvictionBlocked": 3, "AtTarget": 1}
        eventually("the others are held", lambda: reasons(controller) == blocked, 30)
        plan = stage.planned()
        words = {app: checked(plan[f"{app}-0"], "disruption budget")["detail"] for app in ("never", "two", "whole")}
        assert words == {
            "never": "none needs 1 healthy of 1, and has 1",
            "two": "2 budgets match the pod, and the Eviction API accepts one: one and other",
            "whole": "everybody needs 1 healthy of 1, and has 1",
        }
        assert {plan[f"{app}-0"]["migration"]["blockedBy"] for app in words} == {"EvictionBlocked"}
        assert [name for app in words for name in stage.evicted(homes[app])] == []
        for name, app in (("none", "never"), ("other", "two"), ("everybody", "whole")):
            stage.rig.kubectl("delete", "poddisruptionbudget", name, f"--namespace={homes[app]}")
        for app in words:
            eventually(f"{app} is moved", landed(app), 30)
    assert [len(stage.evicted(home)) for home in homes.values()] == [1, 1, 1, 1]


def test_pods_that_can_land_nowhere_stay_until_they_can_and_some_are_never_moved(staged: Staged) -> None:
    """MIG-01; a volume that is tied to its zone, a node that is too small, one that is closed. DaemonSets, Jobs, bare
    pods and static ones."""
    stage = staged("nowhere")
    zone = "topology.kubernetes.io/zone"
    device = {key: {"cpu": "1", "memory": "32Mi", "nvidia.com/gpu": "1"} for key in ("requests", "limits")}
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    static = stage.workload("static", "Pod", nodeName="nowhere-static-full")
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "a-file-on-the-node"}
    stage.apply(*volume_in(stage, zone, "here"))
    stage.place(stage.workload("zoned", volumes=[volume]), labels={zone: "here"})
    stage.place(stage.workload("gpu", resources=device), extended={"nvidia.com/gpu": "1"})
    stage.place(
        stage.workload("room"),
        stage.workload("closed"),
        stage.workload("daemon", "DaemonSet"),
        stage.workload("job", "Job"),
        stage.workload("bare", "Pod"),
        static,
    )
    others = {"zoned": stage.node("zoned-elsewhere", app="zoned", labels={zone: "there"})}
    stage.node("gpu-without", app="gpu")
    stage.node("room-small", "500m", app="room")
    others["closed"] = stage.node("closed-other", app="closed")
    stage.rig.kubectl("cordon", others["closed"])
    others["bare"], others["job"] = stage.node("bare-other", app="bare"), stage.node("job-other", app="job")
    stage.policy()
    uids = {pod["metadata"]["labels"]["app"]: uid_of(pod) for pod in stage.pods()}
    with stage.controller() as controller:
        wanted = {"NeedsNewNode": 1, "NoLandingNode": 3, "NotReplaceable": 3, "StaticPod": 1}
        eventually("they are held", lambda: reasons(controller) == wanted, 60)
        plan = {name.split("-")[0]: item for name, item in stage.planned().items()}
        cuts = {app: checked(plan[app], "landing")["detail"] for app in ("zoned", "gpu", "room", "closed")}
        for app, word in (("zoned", "VolumeAffinity"), ("gpu", "nvidia.com/gpu"), ("room", "Cpu")):
            assert re.fullmatch(rf"of \d+ other nodes: .*, {word} 1", cuts[app]), cuts
        assert re.fullmatch(r"of \d+ other nodes: .*Unschedulable .*\d+.*", cuts["closed"]), cuts
        kinds = {app: checked(plan[app], "controller")["detail"] for app in ("daemon", "job", "bare")}
        assert [kinds["daemon"], kinds["job"]] == ["DaemonSet/daemon", "Job/job"]
        assert kinds["bare"] == "no controller would make another one"
        assert {uid_of(pod) for pod in stage.pods()} == set(uids.values())

        stage.rig.kubectl("uncordon", others["closed"])
        landing = {
            "zoned": stage.node("zoned-new", app="zoned", labels={zone: "here"}),
            "gpu": stage.node("gpu-new", app="gpu", extended={"nvidia.com/gpu": "1"}),
            "room": stage.node("room-new", app="room"),
            "closed": others["closed"],
        }
        for app, node in landing.items():
            eventually(f"{app} is moved", stage.landed(node, app), 30)
        eventually("the rest is held", lambda: reasons(controller)["NotReplaceable"] == 3)
    after = {pod["metadata"]["labels"]["app"]: uid_of(pod) for pod in stage.pods()}
    assert {app for app, uid in after.items() if uids[app] != uid} == landing.keys()
    assert sorted(stage.evicted()) == sorted(f"{app}-0" for app in landing)
    stage.rig.kubectl("delete", "persistentvolume", stage.namespace, "--wait=false")


def test_a_controller_killed_right_after_the_eviction_is_followed_by_one_that_resizes_and_evicts_nothing(
    staged: Staged,
) -> None:
    """MIG-03: also when somebody else drains the node, the next pod is back at its size within a turn."""
    stage = staged("killed")
    stage.place(stage.workload())
    other = stage.node("other")
    stage.policy()
    old = uid_of(stage.pod())
    with stage.controller("first") as first, stage.rig.control_plane.hold("kube-scheduler"):
        eventually("it is evicted", stage.evicted, 60)
        first.signal(signal.SIGKILL)
        eventually("there is a new one", lambda: [uid_of(pod) for pod in stage.pods("sim")] not in ([], [old]))
        assert "nodeName" not in stage.pod()["spec"]
    eventually("it has landed", lambda: stage.ready("sim"))
    assert (stage.pod()["spec"]["nodeName"], cpu_of(stage.pod())) == (other, "1")
    with stage.controller("second") as second:
        eventually("it has its size", stage.landed(other), 60)
        third = stage.node("third")
        stage.rig.kubectl("drain", other, "--pod-selector=app=sim")
        eventually("it has its size again", stage.landed(third), 30)
        eventually("it rests", lambda: reasons(second) == {"AtTarget": 1})
    drifting = {"container": "app", "resource": "cpu", "template": "1", "live": "2"}
    assert stage.planned()["sim-0"]["drift"] == [drifting | {"side": side} for side in ("request", "limit")]
    assert stage.evicted() == ["sim-0"]
    *_, resized_at = (one.at for one in stage.writes() if one.what == "patch pods/resize")
    started_at = datetime.fromisoformat(stage.pod()["status"]["startTime"])
    assert resized_at - started_at < timedelta(
        seconds=3
    )  # of which a turn is one, and the rounding of the start another


def test_a_pod_that_comes_back_to_the_full_node_is_not_evicted_again_before_its_minimum_age(staged: Staged) -> None:
    stage = staged("loop")
    stage.place(stage.workload())
    full, other = "loop-sim-full", stage.node("other")
    least = timedelta(seconds=8)

    def back() -> bool:
        on = [one["spec"]["nodeName"] for one in stage.ready("sim")]
        if on == [other]:
            # the scheduler went on before it had seen the cordon, which is another watch than that of pods
            stage.rig.kubectl("delete", "pod", "sim-0", f"--namespace={stage.namespace}")
        return on == [full]

    eventually("it is old enough", lambda: age(stage.pod()) >= least, 20)
    stage.policy(landing="Some", minPodAge="8s")
    with stage.controller() as controller:
        with stage.rig.control_plane.hold("kube-scheduler"):
            eventually("it is evicted", stage.evicted, 60)
            stage.rig.kubectl("uncordon", full)
            stage.rig.kubectl("cordon", other)
            eventually("the next pod is waited for", lambda: reasons(controller) == {"Replacing": 1})
        eventually("it is back on the full node", back, 60)
        stage.rig.kubectl("cordon", full)
        stage.rig.kubectl("uncordon", other)
        eventually("it is held", lambda: reasons(controller) == {"PodTooYoung": 1}, 30)
        assert len(stage.evicted()) == 1
        eventually("it is moved in the end", stage.landed(other), 30)
    first, second = (one.at for one in stage.writes() if one.what == "create pods/eviction")
    assert second - first > least - timedelta(seconds=1)  # a pod's age counts from a whole second


def age(pod: Json) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(pod["metadata"]["creationTimestamp"])


def test_sessions_open_and_close_the_gate_and_have_the_last_word_only_as_long_as_the_policy_says(
    staged: Staged,
) -> None:
    stage = staged("sessions")
    apps = ("stubborn", "forced", "flapping", "silent", "counted")
    stage.uses("counted-0", memory=31 << 20)
    stage.place(*map(stage.workload, apps))
    others = {app: stage.node(f"{app}-other", app=app) for app in apps}
    flaps = count()
    sessions: dict[str, Callable[[], int]] = {
        "stubborn": lambda: 2,
        "forced": lambda: 1,
        "flapping": lambda: next(flaps) % 2,
    }
    bridges = {app: stage.bridges.serve(stage.pod(app), live) for app, live in sessions.items()}
    long = stage.bridges.drain(maxWait="1h")
    drains = {
        "stubborn": stage.bridges.drain(maxWait="4s"),
        "forced": stage.bridges.drain(maxWait="4s", thenForce=True),
        "flapping": long,
        "silent": long,  # nobody answers for it
        "counted": {"query": QUERY},
    }
    for app, drain in drains.items():
        stage.policy(app, app=app, drain=drain)
    before = {app: uid_of(stage.pod(app)) for app in apps}
    with stage.controller("controller", "--budgets=maxDisruptionsPerNamespace=5") as controller:
        eventually("whoever may be is moved by force", stage.landed(others["forced"], "forced"), 60)
        eventually("one move is called off", lambda: bridges["stubborn"].drains[-2:] == [True, False], 30)
        eventually("and what was asked is given up", lambda: cpu_of(stage.pod("stubborn")) == "1")
        assert reasons(controller)["GateUnknown"] == 1
        assert stage.evicted() == ["forced-0"]
        assert checked(stage.planned()["counted-0"], "sessions")["detail"].startswith("1 session;")
        stage.uses("counted-0", memory=10 << 20)  # from now on it takes a minute
        seen = bridges["flapping"].asked
        eventually("a gate that flaps was looked at often enough", lambda: bridges["flapping"].asked >= seen + 2, 30)
        quiet = checked(stage.planned()["counted-0"], "sessions")["detail"]
        assert quiet.startswith("no sessions for 0 s of 60 s;")  # a plan does not wait for the minute
        assert stage.evicted() == ["forced-0"]
        bridges["flapping"].sessions = lambda: 0
        for app in ("flapping", "counted"):
            eventually(f"{app} is moved once its sessions have ended", stage.landed(others[app], app), 90)
    after = {app: uid_of(stage.pod(app)) for app in apps}
    assert {app for app in apps if before[app] == after[app]} == {"stubborn", "silent"}
    assert sorted(stage.evicted()) == ["counted-0", "flapping-0", "forced-0"]
    assert bridges["forced"].drains[-1] is True
    told = [line for line in controller.lines() if line["event"] == "drain" and line["pod"] == "forced-0"]
    assert [(line["telling"], line["answered"]) for line in told] == [(True, True)]
    (evicted,) = (one for one in stage.writes() if (one.what, one.name) == ("create pods/eviction", "forced-0"))
    assert evicted.at - datetime.fromisoformat(told[0]["timestamp"]) > timedelta(seconds=3)  # the answer took a moment
    asks = [one.manager for one in stage.writes() if one.name == "stubborn-0"]
    assert asks == ["bridge-autoscaler", "bridge-autoscaler-revert"]


QUERY = 'sum by (namespace, pod) (container_memory_working_set_bytes{pod=~"$pod", container="app"} > bool 30e6)'
"""What stands for a bridge's own metric here: one session as long as it uses much memory."""


BRIDGES = 50


def test_fifty_that_are_due_at_once_go_two_at_a_time(staged: Staged) -> None:
    """MIG-05: and whoever owns them is never written to."""
    stage = staged("fifty")
    names = [f"sim-{number}" for number in range(BRIDGES)]
    full = [stage.node(f"full-{number}", "2") for number in range(BRIDGES // 10)]
    bridges = [stage.workload(name, cpu="100m", nodeSelector={"story": "fifty"}) for name in names]
    stage.apply(*(stage.neighbour(node, "1") for node in full), *bridges)
    eventually("all serve", lambda: len(stage.ready()) == BRIDGES, 90)
    other = stage.node("other", "80")
    stage.rig.kubectl("cordon", *full)
    stage.rig.agent.ready_after_s[stage.namespace] = 0.5
    stage.policy(cpu="1100m")  # more than a full node has left for the last of its ten
    budgets = f"--budgets=maxInFlightPerNode={BRIDGES},maxDisruptionsPerNamespace=2"
    with serving(stage) as counts:
        with stage.controller("controller", budgets):

            def moved() -> bool:
                return [pod["spec"]["nodeName"] for pod in stage.ready()] == [other] * BRIDGES

            eventually("all are moved", moved, 240)
        fewest = min(counts()[BRIDGES - 1 :])  # the first events are those that were there
    assert fewest == BRIDGES - 2
    assert sorted(stage.evicted()) == sorted(f"{name}-0" for name in names)
    assert {one.what for one in stage.writes()} <= OWN
    assert len({one.name for one in stage.writes() if one.what == "patch pods/resize"}) == BRIDGES


def test_without_the_role_nothing_is_ever_evicted_and_the_plan_says_so(staged: Staged) -> None:
    stage = staged("unpermitted")
    stage.place(stage.workload())
    stage.node("other")
    stage.policy()
    account = only(stage, "base", "events", "autoscalers")
    before = uid_of(stage.pod())
    with stage.controller("controller", f"--kubeconfig={account}") as controller:
        eventually("it is held", lambda: reasons(controller) == {"MigrationNotPermitted": 1}, 60)
        line = command(stage.rig, "plan", f"--policies={stage.policies}", "--output=json", f"--kubeconfig={account}")
        done = run(*line)
        assert done.returncode == 1
        assert "Error: rbac/migrate: CapabilityMissing: not granted" in done.stderr
        (item,) = json.loads(done.stdout)["items"]
        assert item["migration"]["blockedBy"] == "MigrationNotPermitted"
        assert checked(item, "permission")["detail"] == "rbac/migrate is not granted, or its objects cannot be read now"
        time.sleep(AFTER_S)
        problems = [line for line in controller.lines() if line["event"] == "problem"]
        assert [line["reason"] for line in problems if line["source"] == "rbac/migrate"] == ["CapabilityMissing"]
    assert uid_of(stage.pod()) == before
    tried = [one for one in stage.rig.audit() if (one.get("objectRef") or {}).get("namespace") == stage.namespace]
    assert not [one for one in tried if one["objectRef"].get("subresource") == "eviction"]


def only(stage: Stage, *roles: str) -> Path:
    """A kubeconfig of a service account that has nothing but what these folders of rbac/ grant."""
    rig, there = stage.rig, f"--namespace={stage.namespace}"
    rig.kubectl("create", "serviceaccount", "limited", there)
    for role in roles:
        granted = f"--clusterrole=bridge-autoscaler-{role}"
        name = f"{stage.namespace}-{role}"
        rig.kubectl("create", "clusterrolebinding", name, granted, f"--serviceaccount={stage.namespace}:limited")
    config = yaml.safe_load(rig.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": rig.kubectl("create", "token", "limited", there).strip()}
    path = stage.folder / "limited.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
