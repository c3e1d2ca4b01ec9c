"""Deployments that get one replica more for a move: begun, waited for, finished, undone; read from the Deployment."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.core.actions import Evict, Scale, ScaleKind
from autoscaler.core.model import Ask, Autoscaler, Capability, Pod, PodRef, QoSClass, WorkloadRef
from autoscaler.core.plan import Decision
from autoscaler.core.policy import Budgets, Strategy
from autoscaler.core.reasons import Reason
from autoscaler.core.scheduling import DisruptionBudget, Scheduling, Storage, VolumeClaim
from tests.build import NOW, container, node, sizes
from tests.core.migrations import (
    HAS,
    WANTED,
    WEB,
    Scene,
    ago,
    drained,
    filler,
    gate,
    moving,
    newcomer,
    overdue,
    stateful_set,
    surged,
    surging,
    web,
)

SURGES = WEB.but(policies=(moving(strategy=Strategy.SURGE),))
OLD, NEW = "web-1-old", "web-1-new"
OLD_ENOUGH = 1800  # seconds, by the policy's default
REF = WorkloadRef("bridge", "Deployment/web")


def going(*more: Any, scaled: Ask | None = None, **changes: Any) -> Scene:
    """A surge that began 20 s ago, with its old pod and these."""
    pods = changes.pop("pods", (surging(), filler()))
    return SURGES.but(pods=(*pods, *more), workloads=web(2, scaled or surged()), **changes)


def scaled(decision: Decision) -> tuple[int, ScaleKind]:
    assert isinstance(decision.move, Scale)
    assert (decision.move.workload, decision.move.uid) == (REF, "uid-Deployment/web")
    return decision.move.replicas, decision.move.kind


def test_a_surge_begins_with_one_replica_more() -> None:
    decision = SURGES.decision(OLD)
    assert decision.reason is Reason.SURGE
    assert scaled(decision) == (2, ScaleKind.SURGE)


def test_it_begins_under_a_budget_that_the_second_pod_will_satisfy() -> None:
    strict = DisruptionBudget("bridge", "pdb", replace(moving().selector.labels), 0, 1, 1, 1)
    assert SURGES.but(budgets=(strict,)).decision(OLD).reason is Reason.SURGE
    never = replace(strict, desired=2)
    assert SURGES.but(budgets=(never,)).decision(OLD).reason is Reason.EVICTION_BLOCKED
    waits = going(newcomer(), budgets=(strict,)).decision(OLD)
    assert waits.reason is Reason.EVICTION_BLOCKED
    assert going(newcomer(), budgets=(replace(strict, allowed=1),)).decision(OLD).reason is Reason.MIGRATE


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        (
            SURGES.but(pods=(surging(workload="StatefulSet/sim", owner="ReplicaSet/web-1"), filler())),
            "StatefulSet/sim is not known",
        ),
        (
            SURGES.but(
                autoscalers=(Autoscaler("HorizontalPodAutoscaler", "bridge", "web", "Deployment/web"),),
            ),
            "HorizontalPodAutoscaler web sets the number of replicas",
        ),
        (
            SURGES.but(capabilities=frozenset({Capability.MIGRATE, Capability.SURGE})),
            "rbac/autoscalers is missing",
        ),
        (
            SURGES.but(
                pods=(surging(scheduling=Scheduling(claims=("disk",))), filler()),
                storage=Storage(
                    {("bridge", "disk"): VolumeClaim("bridge", "disk", None, "late", frozenset({"ReadWriteOnce"}))}
                ),
            ),
            "",
        ),
    ],
)
def test_a_surge_that_would_get_in_the_way_is_not_begun(scene: Scene, words: str) -> None:
    decision = scene.decision(OLD)
    assert decision.move is None
    assert decision.detail.startswith(words)


def test_without_the_right_to_scale_nothing_begins() -> None:
    decision = SURGES.but(capabilities=frozenset({Capability.MIGRATE, Capability.AUTOSCALERS})).decision(OLD)
    assert (decision.reason, decision.move) == (Reason.MIGRATION_NOT_PERMITTED, None)


@pytest.mark.parametrize(
    "more",
    [
        (),
        (newcomer(ready=False),),
        (newcomer(node=None, phase="Pending", ready=False, unscheduled="0/2 nodes are available"),),
        (newcomer(size=HAS),),
    ],
)
def test_the_old_pod_waits_for_the_new_one_to_be_ready_at_its_size(more: tuple[Any, ...]) -> None:
    decision = going(*more).decision(OLD)
    assert (decision.reason, decision.move) == (Reason.SURGING, None)
    assert decision.due_at == NOW + timedelta(seconds=5)
    assert decision.migration is not None
    assert decision.migration.blocked is not None
    assert decision.migration.blocked.due_at == ago(20) + timedelta(minutes=5)


def test_whatever_is_in_the_way_of_a_surge_ends_it_in_the_end() -> None:
    must_stay = surging(annotations={"karpenter.sh/do-not-disrupt": "true"})
    pods = (must_stay, newcomer(ready=False, created=301), filler())
    assert going(pods=pods).decision(OLD).move is None
    late = going(pods=pods, scaled=surged(301)).decision(OLD)
    assert (late.reason, scaled(late)) == (Reason.SURGE_FAILED, (1, ScaleKind.BACK))
    changing = tuple(replace(one, settled=False) for one in web(2, surged(OLD_ENOUGH)))
    assert going(newcomer(created=OLD_ENOUGH)).but(workloads=changing).decision(OLD).reason is Reason.SURGE_FAILED


def test_the_first_act_of_the_new_pod_is_to_take_the_size_of_the_old_one() -> None:
    decision = going(newcomer(size=HAS)).decision(NEW)
    assert (decision.reason, decision.detail) == (Reason.INCREASE, f"takes the place of {OLD}")
    assert decision.action is not None
    assert decision.proposals[0].proposed == WANTED
    ready = going(newcomer()).decision(NEW)
    assert (ready.reason, ready.action) == (Reason.SURGING, None)


def test_a_new_pod_that_cannot_have_the_size_is_not_asked_for_it() -> None:
    full = going(newcomer(size=HAS), filler("node-b")).decision(NEW)
    assert (full.reason, full.action) == (Reason.SURGING, None)
    burstable = newcomer(size=sizes("1", "1Gi", "2", "2Gi"), qos_class=QoSClass.BURSTABLE)
    assert going(burstable).decision(NEW).reason is Reason.QOS_WOULD_CHANGE


def test_the_old_pod_is_evicted_once_the_new_one_is_ready() -> None:
    decision = going(newcomer()).decision(OLD)
    assert decision.reason is Reason.MIGRATE
    assert decision.move == Evict(PodRef("bridge", OLD), f"uid-{OLD}", "7", ("node-b",))


def test_sessions_are_waited_for_only_when_they_have_somewhere_to_go() -> None:
    drains = moving(strategy=Strategy.SURGE, drain=drained())
    before = SURGES.but(policies=(drains,)).decision(OLD)
    assert before.reason is Reason.SURGE
    assert before.drain is not None
    assert not before.drain.telling
    during = going(newcomer(), policies=(drains,), gates=gate(surging(), is_open=False)).decision(OLD)
    assert during.reason is Reason.DRAINING
    assert during.drain is not None
    assert during.drain.telling


def test_the_replica_goes_as_soon_as_the_old_pod_does() -> None:
    leaving = surging(deleting=True, disrupted=True)
    third = newcomer("web-1-third", size=HAS, created=1, node=None, phase="Pending", ready=False)
    for pods in ((leaving, newcomer()), (leaving, newcomer(), third), (newcomer(), third)):
        plan = going(pods=(*pods, filler())).plan()
        ends = [one for one in plan.moving if one.reason is Reason.SURGE_BACK]
        assert [scaled(one) for one in ends] == [(1, ScaleKind.BACK)]
        assert not ends[0].pod.deleting


def grown(**changes: Any) -> Pod:
    """The old pod, resized where it is after all."""
    return surging(conditions=(), containers=(container(WANTED),), **changes)


def test_the_replica_goes_when_the_move_is_not_needed_any_more() -> None:
    (end,) = going(newcomer(ready=False), pods=(grown(), filler())).plan().moving
    assert (end.reason, scaled(end)) == (Reason.SURGE_BACK, (1, ScaleKind.BACK))


def test_of_ready_pods_none_is_left_to_the_choice_of_the_replica_set() -> None:
    """It might remove the one that was just moved: the newest is evicted first, and its successor goes."""
    moved, third = newcomer(created=OLD_ENOUGH + 9), newcomer("web-1-third", created=OLD_ENOUGH)
    ends = going(pods=(moved, third, filler()), scaled=surged(OLD_ENOUGH + 9))
    (end,) = ends.plan().moving
    assert (end.reason, end.move) == (Reason.SURGE_BACK, Evict(third.ref, third.uid, "7"))
    young = newcomer("web-1-third", created=60)
    assert ends.but(pods=(moved, young, filler())).plan().moving == []  # nothing is evicted twice in a short time
    leaving = replace(third, deleting=True, disrupted=True)
    (then,) = going(pods=(newcomer(), leaving, filler())).plan().moving
    assert scaled(then) == (1, ScaleKind.BACK)


def test_no_replica_goes_while_another_pod_might() -> None:
    """An older pod that is not ready would be the first to go."""
    sick = grown(ready=False)
    plan = going(newcomer(), pods=(sick, filler())).plan()
    assert plan.moving == []
    assert Reason.SURGING in {decision.reason for decision in plan.decisions}


def test_the_sessions_of_a_ready_pod_that_is_to_go_are_waited_for() -> None:
    drains = moving(strategy=Strategy.SURGE, drain=drained())
    new = newcomer(created=OLD_ENOUGH)
    began = surged(OLD_ENOUGH)
    shut = gate(newcomer(), is_open=False)
    waits = going(new, pods=(grown(), filler()), scaled=began, policies=(drains,), gates=shut)
    assert waits.plan().moving == []
    (drain,) = (decision.drain for decision in waits.plan().decisions if decision.drain is not None)
    assert (drain.pod, drain.telling) == (newcomer().ref, True)
    assert len(waits.but(gates=gate(newcomer(), is_open=True)).plan().moving) == 1


def test_a_surge_that_failed_waits_for_the_sessions_of_its_new_pod() -> None:
    """It is ready, and cannot have the size: users may be on it by now."""
    drains = moving(strategy=Strategy.SURGE, drain=drained())
    small = newcomer(size=HAS, created=OLD_ENOUGH)
    full = (surging(), filler(), filler("node-b"))
    late = going(small, pods=full, scaled=surged(OLD_ENOUGH), policies=(drains,), gates=gate(small, is_open=False))
    waits = late.decision(OLD)
    assert (waits.reason, waits.move) == (Reason.DRAINING, None)
    assert waits.drain is not None
    assert (waits.drain.pod, waits.drain.telling) == (small.ref, True)
    ends = late.but(gates=gate(small, is_open=True)).decision(OLD)
    assert (ends.reason, ends.move) == (Reason.SURGE_FAILED, Evict(small.ref, small.uid, "7"))


@pytest.mark.parametrize(
    ("reason", "new", "changes"),
    [
        (Reason.NOT_SAFE_TO_EVICT, newcomer(annotations={"karpenter.sh/do-not-disrupt": "true"}), {}),
        (Reason.MIGRATION_NOT_PERMITTED, newcomer(), {"capabilities": frozenset({Capability.SURGE})}),
        (
            Reason.EVICTION_BLOCKED,
            newcomer(),
            {"budgets": (DisruptionBudget("bridge", "pdb", replace(moving().selector.labels), 0, 2, 2, 2),)},
        ),
    ],
)
def test_a_new_pod_that_nobody_needs_is_evicted_only_if_any_other_would_be(
    reason: Reason, new: Pod, changes: dict[str, Any]
) -> None:
    plan = going(new, pods=(grown(), filler()), **changes).plan()
    assert plan.moving == []
    assert reason in {decision.reason for decision in plan.decisions}


def test_a_surge_ends_when_its_pod_is_left_to_somebody_else_meanwhile() -> None:
    other = Autoscaler("VerticalPodAutoscaler", "bridge", "web", "Deployment/web", mode="Auto")
    (end,) = going(newcomer(ready=False), autoscalers=(other,)).plan().moving
    assert (end.reason, scaled(end)) == (Reason.SURGE_BACK, (1, ScaleKind.BACK))


def test_a_surge_that_waits_for_its_end_keeps_no_pod_from_its_own_size() -> None:
    small = surging("web-1-first", conditions=(), asks=(), containers=(container(HAS),))
    sick = grown(ready=False)
    plan = going(newcomer(), pods=(small, sick, filler(cpu="1"))).plan()
    (action,) = (one.action for one in plan.decisions if one.pod.ref == small.ref)
    assert (plan.moving, action is None) == ([], False)


def test_a_new_pod_is_known_though_another_api_server_made_it_whose_clock_is_late() -> None:
    assert going(newcomer(created=21)).decision(OLD).reason is Reason.MIGRATE


def test_a_new_pod_that_is_never_ready_ends_the_surge_and_the_next_one_waits() -> None:
    pending = newcomer(node=None, phase="Pending", ready=False, unscheduled="0/2 nodes are available", created=301)
    late = going(pending, scaled=surged(301)).decision(OLD)
    assert (late.reason, scaled(late)) == (Reason.SURGE_FAILED, (1, ScaleKind.BACK))
    assert "0/2 nodes are available" in late.detail
    rests = SURGES.but(workloads=web(1, surged(60, ScaleKind.BACK))).decision(OLD)
    assert (rests.reason, rests.move) == (Reason.SURGE_FAILED, None)
    assert rests.due_at == ago(60) + timedelta(minutes=10)
    assert SURGES.but(workloads=web(1, surged(601, ScaleKind.BACK))).decision(OLD).reason is Reason.SURGE


def test_after_a_surge_that_went_well_the_new_pod_is_young_and_nothing_has_failed() -> None:
    young = surging(created_at=ago(200))
    decision = SURGES.but(pods=(young, filler()), workloads=web(1, surged(60, ScaleKind.BACK))).decision(OLD)
    assert decision.reason is Reason.POD_TOO_YOUNG


def test_a_number_that_somebody_else_has_set_since_is_theirs() -> None:
    plan = SURGES.but(pods=(surging(), newcomer(), filler()), workloads=web(2, Ask("kubectl", ago(5)))).plan()
    assert not [one for one in plan.moving if one.reason is Reason.SURGE_BACK]


def test_of_two_that_are_overdue_one_is_moved() -> None:
    second = surging("web-1-older", asks=(Ask("bridge-autoscaler", ago(50)),))
    scene = SURGES.but(
        pods=(surging(), second, newcomer(), filler()),
        workloads=web(3, surged()),
    )
    reasons = {one.pod.name: (one.reason, one.move is not None) for one in scene.plan().decisions}
    assert reasons[OLD] == (Reason.MIGRATE, True)
    assert reasons["web-1-older"] == (Reason.SURGING, False)


def test_a_surge_without_a_policy_for_its_pods_is_a_problem() -> None:
    nobody = replace(moving(), selector=replace(moving().selector, namespaces=frozenset({"elsewhere"})))
    problems = going(newcomer(), policies=(nobody,)).plan().problems
    assert ("SurgeLeftBehind", True) in {(p.reason, "scale it back to 1" in p.detail) for p in problems}


def test_surges_of_one_plan_count_in_its_budgets() -> None:
    others = [
        (
            surging(f"{name}-1-old", workload=f"Deployment/{name}", owner=f"ReplicaSet/{name}-1"),
            *(replace(one, ref=one.ref._replace(object=one.ref.object.replace("web", name))) for one in web()),
        )
        for name in ("vr", "xr")
    ]
    scene = SURGES.but(
        pods=(surging(), *(pod for pod, _, _ in others), filler(cpu="10")),
        nodes=(node(), node("node-b", "64", "256Gi")),
        workloads=(*web(), *(one for _, *both in others for one in both)),
        config={"budgets": Budgets(max_disruptions_per_namespace=2)},
    )
    plan = scene.plan()
    assert len(plan.moving) == 2
    assert [one.reason for one in plan.decisions if one.move is None] == [Reason.DISRUPTION_BUDGET]


def test_a_surge_counts_in_the_budgets_of_others() -> None:
    everything = going(newcomer(), pods=(surging(), overdue(), filler(cpu="12")))
    scene = everything.but(
        workloads=(*everything.workloads, stateful_set(WANTED)),
        policies=(moving(strategy=Strategy.SURGE),),
        config={"budgets": Budgets(max_disruptions_cluster=1)},
    )
    assert scene.decision("sim-0").move is None


def test_a_new_pod_that_was_ready_is_not_given_up_for_a_moment_in_which_it_is_not() -> None:
    def flaps(seconds: float) -> Decision:
        new = newcomer(ready=False, created=OLD_ENOUGH, ready_changed_at=ago(seconds))
        return going(new, scaled=surged(OLD_ENOUGH)).decision(OLD)

    assert (flaps(10).reason, flaps(10).move) == (Reason.SURGING, None)
    assert flaps(300).reason is Reason.SURGE_FAILED


def test_a_surge_whose_new_pod_is_not_recognised_is_ended_with_the_youngest() -> None:
    """The API servers' clocks are a minute apart."""
    early = newcomer(created=OLD_ENOUGH + 60)
    decision = going(early, pods=(surging(), filler()), scaled=surged(OLD_ENOUGH)).decision(OLD)
    assert (decision.reason, decision.move) == (Reason.SURGE_FAILED, Evict(early.ref, early.uid, "7"))
