"""Pods that move, in virtual time: evicted, blocked by a budget, one more for a while, and nowhere to go."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType

import pytest

from autoscaler.core.actions import Evict, Move, OutcomeKind, Scale, ScaleKind
from autoscaler.core.history import ContainerRef
from autoscaler.core.labels import LabelSelector
from autoscaler.core.model import Ask, Capability, Node, Pod, PodRef, Workload, WorkloadRef
from autoscaler.core.plan import Drain, Gate
from autoscaler.core.policy import DrainPolicy
from autoscaler.core.scheduling import DisruptionBudget, Scheduling, Taint, Toleration
from autoscaler.simulator.cluster import SimulatedCluster
from tests.simulator.builders import START, after, ask, both, cluster, container, demand, get, node, pod
from tests.simulator.sessions import ScriptedSessions, Told

SET = WorkloadRef("sim", "StatefulSet/a")
DEPLOYMENT = WorkloadRef("sim", "Deployment/web")
LABELS = MappingProxyType({"app": "bridge"})
SELECTED = LabelSelector((("app", "bridge"),))


def bridge(name: str = "a-0", cpu: str = "1", workload: str = "StatefulSet/a", **changes: object) -> Pod:
    return replace(pod(name, container(both(cpu, "256Mi")), workload=workload), labels=LABELS, **changes)  # type: ignore[arg-type]


def surging(*nodes: Node) -> SimulatedCluster:
    """A Deployment of one replica on n1, for an hour; its template asks for 1 core."""
    sim = cluster(nodes=nodes or (node("n1"), node("n2")))
    sim.add_workload(Workload(DEPLOYMENT, "web"), bridge("template", workload="Deployment/web"), {"app": demand(0.3)})
    old = bridge("web-abc-old", workload="Deployment/web")
    sim.add_pod(old, {"app": demand()}, since=START - timedelta(hours=1))
    after(sim, 1)
    return sim


def at_second(second: int) -> datetime:
    return START + timedelta(seconds=second)


async def evict(sim: SimulatedCluster, name: str, **changes: str) -> Move:
    found = await get(sim, name)
    return replace(Evict(found.ref, found.uid, found.resource_version), **changes)  # type: ignore[arg-type]


async def scale(sim: SimulatedCluster, replicas: int, kind: ScaleKind) -> Move:
    found = (await sim.observe()).workloads[DEPLOYMENT]
    return Scale(DEPLOYMENT, found.uid, found.resource_version, replicas, kind, PodRef("sim", "web-abc-old"))


async def names(sim: SimulatedCluster) -> list[str]:
    return sorted(found.name for found in (await sim.observe()).pods.values() if not found.deleting)


async def test_an_evicted_pod_comes_back_under_its_name_at_its_templates_size_on_the_node_with_most_room() -> None:
    sim = cluster(bridge(cpu="2"), nodes=(node("n1"), node("n2", cpu="3"), node("n3", cpu="8")))
    sim.add_workload(Workload(SET, "a", revision="r1"), bridge(cpu="500m"), {"app": demand()})

    assert (await sim.move(await evict(sim, "a-0"))).kind is OutcomeKind.ACCEPTED
    leaving = await get(sim, "a-0")
    after(sim, 2.7)
    placed = await get(sim, "a-0")
    after(sim, 4)
    started = await get(sim, "a-0")
    after(sim, 5)
    ready = await get(sim, "a-0")

    assert (leaving.deleting, leaving.disrupted, leaving.uid) == (True, True, "a-0#1")
    assert (placed.uid, placed.phase, placed.node, placed.ready, placed.ip) == ("a-0#2", "Pending", "n3", False, "")
    assert placed.created_at == START + timedelta(seconds=2)  # to the second, as the API has it
    assert (started.phase, started.ready, started.ip) == ("Running", False, "127.0.0.1")
    assert (ready.ready, ready.disrupted, ready.owner) == (True, False, "StatefulSet/a")
    assert ready.containers[0].actual == both("500m", "256Mi")
    assert ready.labels == {"app": "bridge", "controller-revision-hash": "r1"}
    workload = (await sim.observe()).workloads[SET]
    assert (workload.replicas, workload.template) == (1, {"app": both("500m", "256Mi")})


async def test_a_pod_that_has_changed_or_gone_is_not_evicted() -> None:
    sim = cluster(bridge())
    stale = await evict(sim, "a-0")
    ask(sim, "a-0", both("2", None))

    assert (await sim.move(stale)).kind is OutcomeKind.SUPERSEDED
    assert (await sim.move(await evict(sim, "a-0", uid="a-0#0"))).kind is OutcomeKind.GONE
    assert not (await get(sim, "a-0")).deleting


async def test_without_the_permission_nothing_moves_and_no_budget_is_seen() -> None:
    sim = surging()
    sim.add_budget(DisruptionBudget("sim", "b", SELECTED, desired=1))
    sim.capabilities = frozenset()
    eviction = await evict(sim, "web-abc-old")

    assert (await sim.move(eviction)).kind is OutcomeKind.FORBIDDEN
    assert (await sim.move(await scale(sim, 2, ScaleKind.SURGE))).kind is OutcomeKind.FORBIDDEN
    assert (await sim.observe()).disruption_budgets == ()
    sim.capabilities = frozenset({Capability.MIGRATE})
    assert len((await sim.observe()).disruption_budgets) == 1


async def test_a_budget_blocks_in_the_apis_words_until_there_is_a_second_pod() -> None:
    sim = surging()
    sim.add_budget(DisruptionBudget("sim", "b", SELECTED, desired=1))

    blocked = await sim.move(await evict(sim, "web-abc-old"))
    sim.scale(DEPLOYMENT, 2, "kubectl")
    after(sim, 60)
    (seen,) = (await sim.observe()).disruption_budgets
    allowed = await sim.move(await evict(sim, "web-abc-old"))
    (charged,) = (await sim.observe()).disruption_budgets

    assert blocked.kind is OutcomeKind.BLOCKED
    assert blocked.detail == "The disruption budget b needs 1 healthy pods and has 1 currently"
    assert (seen.allowed, seen.healthy, seen.desired, seen.expected) == (1, 2, 1, 2)
    assert allowed.kind is OutcomeKind.ACCEPTED
    assert (charged.allowed, charged.healthy) == (0, 1)


async def test_two_budgets_are_refused_and_a_stale_one_asks_to_wait() -> None:
    sim = cluster(bridge())
    sim.add_budget(replace(DisruptionBudget("sim", "b", SELECTED), current=False))
    stale = await sim.move(await evict(sim, "a-0"))
    sim.add_budget(DisruptionBudget("sim", "c", LabelSelector()))
    two = await sim.move(await evict(sim, "a-0"))
    sim.remove_budget("sim", "b")

    assert (stale.kind, stale.retry_after_s) == (OutcomeKind.BLOCKED, 10)
    assert (two.kind, two.cause) == (OutcomeKind.REFUSED, "SeveralBudgets")
    assert (await sim.move(await evict(sim, "a-0"))).kind is OutcomeKind.ACCEPTED


@pytest.mark.parametrize(("always_allow", "kind"), [(True, OutcomeKind.ACCEPTED), (False, OutcomeKind.BLOCKED)])
async def test_an_unready_pod_is_evicted_if_its_budget_is_met_or_does_not_care(
    always_allow: bool, kind: OutcomeKind
) -> None:
    sim = cluster(replace(bridge(), ready=False))
    sim.add_budget(DisruptionBudget("sim", "b", SELECTED, desired=1, always_allow=always_allow))
    assert (await sim.move(await evict(sim, "a-0"))).kind is kind


async def test_a_surge_leaves_the_new_pod_and_takes_the_third() -> None:
    sim = surging()
    before = (await sim.observe()).workloads[DEPLOYMENT]
    up = await scale(sim, 2, ScaleKind.SURGE)
    assert (await sim.move(up)).kind is OutcomeKind.ACCEPTED
    assert (await sim.move(up)).kind is OutcomeKind.SUPERSEDED
    during = (await sim.observe()).workloads
    after(sim, 10)
    new = await get(sim, "web-abc-1")
    await sim.move(await evict(sim, "web-abc-old"))
    after(sim, 0)
    three = await names(sim)
    await sim.move(await scale(sim, 1, ScaleKind.BACK))
    after(sim, 30)
    snapshot = await sim.observe()

    assert (during[DEPLOYMENT].replicas, during[DEPLOYMENT].scaled) == (
        2,
        Ask("bridge-autoscaler-surge", at_second(1)),
    )
    assert during[DEPLOYMENT].resource_version != before.resource_version
    assert during[WorkloadRef("sim", "ReplicaSet/web-abc")].replicas == 2
    assert (new.ready, new.node, new.owner, new.workload) == (True, "n2", "ReplicaSet/web-abc", "Deployment/web")
    assert three == ["web-abc-1", "web-abc-2"]
    assert await names(sim) == ["web-abc-1"]
    assert len(snapshot.pods) == 1
    scaled = snapshot.workloads[DEPLOYMENT].scaled
    assert (snapshot.workloads[DEPLOYMENT].replicas, scaled) == (1, Ask("bridge-autoscaler-surge-back", at_second(11)))
    usage = sim.usage_of(ContainerRef("sim", "web-abc-1", "app"))
    assert usage is not None
    assert usage.spans[-1].running


async def test_a_surge_that_is_called_off_takes_what_has_no_node_then_what_is_not_ready_then_the_newest() -> None:
    sim = surging(node("n1", cpu="3"), node("n2", cpu="1"))
    sim.scale(DEPLOYMENT, 3, "kubectl")
    after(sim, 20)  # one on n2, one more on n1
    sim.ready_after(DEPLOYMENT, None)
    sim.scale(DEPLOYMENT, 4, "kubectl")
    after(sim, 20)  # never ready
    sim.scale(DEPLOYMENT, 5, "kubectl")
    after(sim, 20)  # nowhere to go
    assert (await get(sim, "web-abc-4")).unscheduled == "0/2 nodes are available: 2 Insufficient cpu."

    left = []
    for replicas in (4, 3, 2, 1):
        sim.scale(DEPLOYMENT, replicas, "kubectl")
        after(sim, 10)
        left.append(await names(sim))

    assert left == [
        ["web-abc-1", "web-abc-2", "web-abc-3", "web-abc-old"],
        ["web-abc-1", "web-abc-2", "web-abc-old"],
        # of two on one node one goes first, the newer
        ["web-abc-2", "web-abc-old"],
        ["web-abc-old"],
    ]


async def test_of_ready_pods_those_that_share_a_node_go_first_then_those_that_became_ready_last() -> None:
    sim = surging()
    sim.scheduler.preferred = "n1"
    sim.scale(DEPLOYMENT, 2, "kubectl")
    after(sim, 60)  # beside the old one
    sim.scheduler.preferred = "n2"
    sim.scale(DEPLOYMENT, 3, "kubectl")
    after(sim, 60)
    sim.scale(DEPLOYMENT, 2, "kubectl")
    after(sim, 10)
    shared = await names(sim)

    sim.scale(DEPLOYMENT, 1, "kubectl")
    after(sim, 10)
    sim.ready_after(DEPLOYMENT, timedelta(seconds=90))
    sim.scale(DEPLOYMENT, 2, "kubectl")
    after(sim, 60)
    sim.ready_after(DEPLOYMENT, timedelta(seconds=1))
    sim.add_node(node("n3"))
    sim.scheduler.preferred = "n3"
    sim.scale(DEPLOYMENT, 3, "kubectl")
    after(sim, 40)
    ready = {found.name: found.ready for found in (await sim.observe()).pods.values()}
    sim.scale(DEPLOYMENT, 2, "kubectl")
    after(sim, 10)

    assert shared == ["web-abc-2", "web-abc-old"]
    assert ready == {"web-abc-old": True, "web-abc-3": True, "web-abc-4": True}
    assert await names(sim) == ["web-abc-4", "web-abc-old"]


async def test_who_scaled_last_is_known_only_if_it_was_through_the_subresource() -> None:
    sim = surging()
    sim.scale(DEPLOYMENT, 1, "kubectl")  # changes nothing
    unchanged = (await sim.observe()).workloads[DEPLOYMENT]
    sim.scale(DEPLOYMENT, 2, "kubectl")
    by_subresource = (await sim.observe()).workloads[DEPLOYMENT]
    sim.scale(DEPLOYMENT, 3, None)
    otherwise = (await sim.observe()).workloads[DEPLOYMENT]

    assert unchanged.scaled is None
    assert by_subresource.scaled == Ask("kubectl", at_second(1))
    assert (otherwise.replicas, otherwise.scaled) == (3, None)


async def test_a_statefulset_is_scaled_from_its_end() -> None:
    sim = cluster(bridge("a-0"), nodes=(node("n1"), node("n2")))
    sim.scale(SET, 3, "kubectl")
    after(sim, 20)
    more = await names(sim)
    sim.scale(SET, 1, "kubectl")
    after(sim, 20)

    assert more == ["a-0", "a-1", "a-2"]
    assert await names(sim) == ["a-0"]


async def test_nothing_fits_until_a_node_does() -> None:
    sim = cluster(bridge(cpu="2"), nodes=(node("n1"), node("n2", cpu="8"), node("n3")))
    sim.cordon("n1")
    sim.taint("n2", Taint("gpu"))
    sim.remove_node("n3")
    sim.delete_pod(PodRef("sim", "a-0"))
    after(sim, 600)
    pending = await get(sim, "a-0")
    sim.uncordon("n1")
    after(sim, 1)

    assert (pending.phase, pending.node, pending.ready) == ("Pending", None, False)
    assert pending.unscheduled == (
        "0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
    )
    assert ((await get(sim, "a-0")).node, (await get(sim, "a-0")).unscheduled) == ("n1", None)


async def test_selectors_tolerations_and_places_are_looked_at() -> None:
    wants = Scheduling(node_selector=(("zone", "x"),), tolerations=(Toleration("gpu", "Exists"),))
    zone = MappingProxyType({"zone": "x"})
    full = replace(node("n3"), labels=zone, pods=0)
    tainted = replace(node("n2"), labels=zone, taints=(Taint("gpu"),))
    sim = cluster(bridge(scheduling=wants), nodes=(node("n1", cpu="64"), tainted, full))
    sim.delete_pod(PodRef("sim", "a-0"))
    after(sim, 4)
    placed = await get(sim, "a-0")
    sim.taint("n2", Taint("other", effect="NoExecute"))
    sim.delete_pod(PodRef("sim", "a-0"))
    after(sim, 4)

    assert placed.node == "n2"
    assert (await get(sim, "a-0")).unscheduled == (
        "0/3 nodes are available: 1 Too many pods, 1 node(s) didn't match Pod's node affinity/selector,"
        " 1 node(s) had untolerated taint(s)."
    )


async def test_a_preferred_node_is_returned_to_however_little_room_it_has() -> None:
    sim = cluster(bridge(), nodes=(node("n1", cpu="1"), node("n2", cpu="64")))
    sim.scheduler.preferred = "n1"
    await sim.move(await evict(sim, "a-0"))
    after(sim, 4)

    assert (await get(sim, "a-0")).node == "n1"


async def test_the_pods_of_a_node_that_is_gone_are_collected_and_made_again_elsewhere() -> None:
    sim = cluster(bridge(), nodes=(node("n1"), node("n2")))
    sim.remove_node("n1")
    ask(sim, "a-0", both("2", None))
    after(sim, 59)
    orphaned = await get(sim, "a-0")
    after(sim, 11)
    again = await get(sim, "a-0")

    assert (orphaned.uid, orphaned.node, orphaned.observed_generation) == ("a-0#1", "n1", 1)
    assert (again.uid, again.node, again.ready) == ("a-0#2", "n2", True)


async def test_a_pending_pod_is_gone_the_moment_it_is_evicted() -> None:
    sim = surging(node("n1", cpu="1"))
    sim.add_budget(DisruptionBudget("sim", "b", SELECTED, desired=5))
    sim.scale(DEPLOYMENT, 2, "kubectl")
    after(sim, 1)

    assert (await sim.move(await evict(sim, "web-abc-1"))).kind is OutcomeKind.ACCEPTED
    assert await names(sim) == ["web-abc-old"]
    after(sim, 1)
    assert await names(sim) == ["web-abc-2", "web-abc-old"]


async def test_sessions_follow_their_script_and_pods_are_told_once() -> None:
    sim = cluster(bridge())
    ref = PodRef("sim", "a-0")
    minute = timedelta(minutes=1)
    sessions = ScriptedSessions(sim, {ref: [(START, 2), (START + minute, None), (START + 2 * minute, 0)]})
    drain = Drain(ref, "a-0#1", "127.0.0.1", DrainPolicy(query="sessions"), True, START)
    heard = []
    for _ in range(3):
        sessions.follow({ref: drain}, telling=True)
        heard.append(sessions.latest()[ref])
        after(sim, 60)
    sessions.follow({}, telling=True)

    assert heard == [
        Gate("a-0#1", False, "2 sessions", START, told_at=START),
        Gate("a-0#1", False, "2 sessions", START, told_at=START),
        Gate("a-0#1", True, "no sessions", START + 2 * minute, told_at=START),
    ]
    assert sessions.told == [Told(START, "a-0#1", True), Told(START + 3 * minute, "a-0#1", False)]
    assert sessions.latest() == {}
