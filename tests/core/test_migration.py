"""When a pod is moved, and each thing that keeps it where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.core.actions import Evict, Outcome, OutcomeKind
from autoscaler.core.decide import decide
from autoscaler.core.labels import LabelSelector
from autoscaler.core.model import Capability, Pod, PodRef, Resource
from autoscaler.core.notes import Notes, learn, learn_moves, learn_wishes
from autoscaler.core.plan import Decision, Gate
from autoscaler.core.policy import Budgets, Landing, Mode, Strategy
from autoscaler.core.reasons import Reason
from autoscaler.core.scheduling import DisruptionBudget
from tests.build import NOW, both, container, fixed, measurements, node, one, pod
from tests.core.migrations import (
    AFTER,
    HAS,
    SCENE,
    WANTED,
    Scene,
    ago,
    drained,
    filler,
    gate,
    moving,
    overdue,
    stateful_set,
    surging,
    web,
    workload,
)

MATCHES = LabelSelector((("app", "sim"),))
DRAINED = SCENE.but(policies=(moving(drain=drained()),))


def blocked(scene: Scene, name: str = "sim-0") -> tuple[Reason, str]:
    """What keeps a pod that is overdue, which the report says as well."""
    decision = scene.decision(name)
    assert decision.move is None
    assert decision.migration is not None
    check = decision.migration.blocked
    assert check is not None
    assert decision.reason is check.reason
    assert decision.detail.startswith(check.detail)
    return decision.reason, check.detail


def budget(name: str = "pdb", **changes: Any) -> DisruptionBudget:
    return replace(DisruptionBudget("bridge", name, MATCHES, 0, 1, 1, 1), **changes)


def sibling(name: str = "sim-1", **changes: Any) -> Pod:
    made = pod(container(WANTED), name=name, owner="StatefulSet/sim", created_at=ago(86_400), labels={"app": "sim"})
    return replace(made, node="node-b", **changes)


def test_an_overdue_pod_is_evicted_when_nothing_keeps_it() -> None:
    decision = SCENE.decision()
    assert (decision.reason, decision.action) == (Reason.MIGRATE, None)
    assert decision.move == Evict(overdue().ref, "uid-sim-0", "7", ("node-b",))
    assert decision.migration is not None
    assert decision.migration.blocked is None
    assert decision.migration.due_at == ago(60) + AFTER
    assert {check.name for check in decision.migration.checks} >= {
        *("mode", "permission", "controller", "annotations", "workload", "landing", "size", "disruption budget"),
        *("age", "siblings", "budgets"),
    }


def test_before_the_deadline_everything_is_shown_and_nothing_is_done() -> None:
    young = overdue(waited=10, created_at=ago(100))
    decision = SCENE.but(pods=(young, filler())).decision()
    assert (decision.reason, decision.move, decision.action) == (Reason.RESIZE_DEFERRED, None, None)
    assert decision.due_at == ago(10) + AFTER
    report = decision.migration
    assert report is not None
    assert report.due_at == ago(10) + AFTER
    assert report.landing == ("node-b",)
    assert report.blocked is not None
    assert (report.blocked.reason, report.blocked.due_at) == (
        Reason.POD_TOO_YOUNG,
        ago(100) + timedelta(minutes=30),
    )


SIDES = {
    Reason.MIGRATION_NOT_ENABLED: [
        (SCENE.but(policies=(moving(Mode.RESIZE),)), "the policy has mode Resize"),
        (SCENE.but(policies=(moving(strategy=Strategy.NONE),)), "strategy None: nothing is moved"),
    ],
    Reason.MIGRATION_NOT_PERMITTED: [
        (SCENE.but(capabilities=frozenset()), "rbac/migrate is not granted, or its objects cannot be read now"),
    ],
    Reason.NOT_REPLACEABLE: [
        (SCENE.but(pods=(overdue(owner=None, workload=None), filler())), "no controller would make another one"),
        *(
            (SCENE.but(pods=(overdue(owner=owner, workload=owner), filler())), owner)
            for owner in ("DaemonSet/sim", "Job/sim", "SimBridge/sim")
        ),
    ],
    Reason.NOT_SAFE_TO_EVICT: [
        (
            SCENE.but(
                pods=(overdue(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}), filler())
            ),
            "cluster-autoscaler.kubernetes.io/safe-to-evict: false",
        ),
    ],
    Reason.WORKLOAD_CHANGING: [
        (SCENE.but(workloads=()), "StatefulSet/sim is not known"),
        (SCENE.but(workloads=(stateful_set(settled=False),)), "StatefulSet/sim is being rolled out"),
        (
            SCENE.but(workloads=(stateful_set(revision="sim-2"),)),
            "the next pod of StatefulSet/sim will be of revision sim-2",
        ),
    ],
    Reason.NO_LANDING_NODE: [
        (SCENE.but(nodes=(node(),)), "there is no other node"),
        (SCENE.but(nodes=(node(), node("node-b", ready=False))), "of 1 other nodes: Ready rules out 1"),
        (
            SCENE.but(nodes=(node(), node("node-b"), node("node-c", ready=False))),
            "node-b has room, but the pod may be placed on node-c and not start there",
        ),
    ],
    Reason.NEEDS_NEW_NODE: [
        (SCENE.but(pods=(overdue(), filler(), filler("node-b"))), "of 1 other nodes: Cpu rules out 1"),
    ],
    Reason.REPLACEMENT_TOO_SMALL: [
        (
            SCENE.but(workloads=(stateful_set(HAS),)),
            "the next pod is created with app cpu 2 of 4, app memory 4Gi of 8Gi, and may land on node-a, with no room "
            "for the rest",
        ),
    ],
    Reason.EVICTION_BLOCKED: [
        (SCENE.but(budgets=(budget(),)), "pdb needs 1 healthy of 1, and has 1"),
        (SCENE.but(budgets=(budget(selector=LabelSelector()),)), "pdb needs 1 healthy of 1, and has 1"),
        (
            SCENE.but(budgets=(budget("b", allowed=1), budget("a", allowed=1))),
            "2 budgets match the pod, and the Eviction API accepts one: a and b",
        ),
        (
            SCENE.but(budgets=(budget(allowed=1, current=False),)),
            "pdb is still being processed by its controller",
        ),
    ],
    Reason.POD_TOO_YOUNG: [
        (SCENE.but(pods=(overdue(created_at=ago(60)), filler())), "sim-0 was created at 2026-11-29T11:59:00+00:00"),
        (SCENE.but(pods=(overdue(created_at=None), filler())), "sim-0: its age is not known"),
        (
            SCENE.but(pods=(overdue(), filler(), sibling(created_at=ago(60)))),
            "sim-1 was created at 2026-11-29T11:59:00+00:00",
        ),
    ],
    Reason.SIBLING_UNAVAILABLE: [
        (SCENE.but(pods=(overdue(), filler(), sibling(ready=False))), "sim-1 not available"),
        (SCENE.but(workloads=(stateful_set(replicas=3),)), "2 of 3 pods missing"),
    ],
    Reason.DISRUPTION_BUDGET: [
        (SCENE.but(config={"budgets": Budgets(max_disruptions_cluster=0)}), "the cluster: none of at most 0"),
        (
            SCENE.but(config={"budgets": Budgets(max_disruptions_per_namespace=0)}),
            "namespace bridge: none of at most 0",
        ),
    ],
    Reason.GATE_UNKNOWN: [
        (DRAINED.but(gates=gate(overdue(), is_open=True, age=31)), "its sessions are not known any more"),
        (DRAINED.but(gates=gate(overdue(), is_open=False, detail="HTTP 503", known=False)), "HTTP 503"),
    ],
    Reason.DRAINING: [
        (DRAINED, "its sessions are being asked for"),
        (
            DRAINED.but(gates=gate(replace(overdue(), uid="before"), is_open=True)),
            "its sessions are being asked for",
        ),
        (
            DRAINED.but(gates=gate(overdue(), is_open=False)),
            "3 sessions; called off once maxWait has passed since it was told to take no new ones",
        ),
        (
            DRAINED.but(gates=gate(overdue(), is_open=False, told=5)),
            "3 sessions; called off at 2026-11-29T12:59:55+00:00",
        ),
        (
            SCENE.but(policies=(moving(drain=drained(then_force=True, notify=None)),)),
            "its sessions are being asked for; evicted all the same at 2026-11-29T12:59:40+00:00",
        ),
    ],
}
CASES = [
    pytest.param(reason, scene, words, id=f"{reason}-{number}")
    for reason, scenes in SIDES.items()
    for number, (scene, words) in enumerate(scenes)
]


@pytest.mark.parametrize(("reason", "scene", "words"), CASES)
def test_each_precondition_keeps_the_pod_by_itself(reason: Reason, scene: Scene, words: str) -> None:
    found, detail = blocked(scene)
    assert found is reason
    assert detail.startswith(words)


def test_a_deferred_resize_goes_on_waiting_where_the_pod_cannot_be_moved() -> None:
    decision = SCENE.but(nodes=(node(),)).decision()
    assert (decision.action, decision.move) == (None, None)


def test_an_infeasible_resize_moves_its_pod_as_well() -> None:
    assert SCENE.but(pods=(overdue(reason="Infeasible"), filler())).decision().reason is Reason.MIGRATE


def test_a_smaller_template_is_enough_where_every_landing_has_room_for_more() -> None:
    scene = SCENE.but(workloads=(stateful_set(HAS),), nodes=(node(unschedulable=True), node("node-b")))
    decision = scene.decision()
    assert decision.reason is Reason.MIGRATE
    assert decision.migration is not None
    words = {check.name: check.detail for check in decision.migration.checks}
    assert words["size"].endswith("and resized as its first act")


def test_a_policy_may_take_the_chance_that_the_next_pod_lands_on_the_full_node_again() -> None:
    scene = SCENE.but(workloads=(stateful_set(HAS),), policies=(moving(landing=Landing.SOME),))
    assert scene.decision().reason is Reason.MIGRATE
    dead = (node(), node("node-b"), node("node-c", ready=False))
    assert scene.but(nodes=dead).decision().reason is Reason.MIGRATE


def test_a_pod_under_another_name_is_never_evicted_for_a_smaller_template() -> None:
    scene = SCENE.but(pods=(surging("web-1-a"), filler()), workloads=web(), policies=(moving(landing=Landing.SOME),))
    reason, detail = blocked(scene, "web-1-a")
    assert reason is Reason.REPLACEMENT_TOO_SMALL
    assert "use strategy Surge" in detail


def test_a_pod_that_does_not_serve_is_not_moved_whatever_its_budget_says() -> None:
    sick = SCENE.but(pods=(overdue(ready=False), filler()), budgets=(budget(allowed=1),))
    assert blocked(sick) == (Reason.REPLACEMENT_NOT_READY, "sim-0 is not ready")


def test_a_policy_that_recommends_shows_the_move_and_makes_none() -> None:
    decision = SCENE.but(policies=(moving(Mode.RECOMMEND),)).decision()
    assert (decision.reason, decision.move) == (Reason.RECOMMEND_ONLY, None)
    assert decision.detail.startswith("Evict to node-b")


def test_without_the_role_a_plan_says_so_once() -> None:
    (problem,) = SCENE.but(capabilities=frozenset()).plan().problems
    assert (problem.source, problem.reason) == ("rbac/migrate", "CapabilityMissing")
    assert not SCENE.but(capabilities=frozenset(), policies=(moving(Mode.RESIZE),)).plan().problems
    assert not SCENE.but(capabilities=frozenset({Capability.MIGRATE})).plan().problems


# ---- budgets


def bridges(count: int, workloads: bool = True) -> Scene:
    """So many single pods, all overdue on the full node."""
    pods = [
        overdue(f"s{i}-0", workload=f"StatefulSet/s{i}", owner=f"StatefulSet/s{i}", node="node-a") for i in range(count)
    ]
    sets = tuple(workload(f"StatefulSet/s{i}") for i in range(count))
    nodes = (node(cpu="200", memory="1Ti", pods=200), *(node(f"node-{n}", "200", "1Ti") for n in "bc"))
    return Scene((*pods, filler(cpu="100")), nodes, sets)


def moved(scene: Scene) -> list[Decision]:
    return scene.plan().moving


def test_fifty_that_are_due_at_once_go_two_at_a_time() -> None:
    budgets = Budgets(max_disruptions_per_namespace=2, max_disruptions_cluster=2)
    scene = bridges(50).but(config={"budgets": budgets}, notes=Notes(began_at=ago(600)))
    assert len(moved(scene)) == 2
    # those that are on their way out count, and so do those that have gone and have no successor yet
    first, second, *rest = scene.pods
    leaving = replace(first, deleting=True, disrupted=True)
    assert len(moved(scene.but(pods=(leaving, second, *rest)))) == 1
    assert len(moved(scene.but(pods=(second, *rest)))) == 1
    assert len(moved(scene.but(pods=tuple(rest)))) == 0
    starting = replace(first, uid="next", phase="Pending", ready=False, node=None, created_at=ago(5), conditions=())
    assert len(moved(scene.but(pods=(starting, second, *rest)))) == 1


def test_a_successor_that_has_not_asked_yet_has_its_room_kept() -> None:
    """By who evicted the pod; a controller that has just started waits until it runs."""
    scene = bridges(2)
    scene = scene.but(nodes=(scene.nodes[0], node("node-b", "6", "20Gi")))
    first, second, *rest = scene.pods
    small = tuple(replace(one, template={"app": HAS}) for one in scene.workloads)
    full = scene.but(workloads=small, policies=(moving(landing=Landing.SOME),), notes=Notes(began_at=ago(600)))
    (evicts,) = moved(full)
    notes = learn_moves(full.notes, [(evicts, Outcome(OutcomeKind.ACCEPTED))], {"bridges": moving()}, NOW)
    successor = replace(first, uid="next", asks=(), conditions=(), containers=(container(HAS),), node="node-b")
    starting = replace(successor, phase="Pending", ready=False, created_at=ago(2))
    asked = replace(successor, asks=second.asks, containers=(container(WANTED),), created_at=ago(86_400))
    for pods in ((second, *rest), (starting, second, *rest), (replace(successor, created_at=ago(9)), second, *rest)):
        assert moved(full.but(pods=pods, notes=notes)) == []
    assert moved(full.but(pods=(asked, second, *rest), notes=notes)) == []  # by now the cluster shows it
    roomy = full.but(nodes=(scene.nodes[0], node("node-b", "32", "64Gi")))
    assert [one.pod.name for one in moved(roomy.but(pods=(second, *rest), notes=notes))] == ["s1-0"]
    unknown = roomy.but(pods=(starting, second, *rest), notes=Notes())
    reason, detail = blocked(unknown, "s1-0")
    assert (reason, detail) == (
        Reason.DISRUPTION_BUDGET,
        "a pod of bridge/s0 is being replaced, and how large it will be is not known yet",
    )


def test_two_that_land_do_not_count_on_the_same_room() -> None:
    scene = bridges(2)
    tight = (scene.nodes[0], node("node-b", "5", "10Gi"))
    assert len(moved(scene.but(nodes=tight))) == 1


def test_pods_of_policies_that_move_nothing_do_not_use_up_the_budget() -> None:
    others = replace(sibling("x-0"), namespace="elsewhere", workload="StatefulSet/x", ready=False, labels={})
    budgets = Budgets(max_disruptions_cluster=1)
    scene = SCENE.but(pods=(overdue(), filler(), others), config={"budgets": budgets})
    assert scene.decision().reason is Reason.MIGRATE


# ---- sessions


def test_sessions_are_asked_for_shortly_before_the_deadline_and_told_at_it() -> None:
    def drain_of(waited: float, **changes: Any) -> tuple[bool, bool]:
        pods = (overdue(waited=waited, **changes), filler())
        drain = DRAINED.but(pods=pods).decision().drain
        return drain is not None, drain is not None and drain.telling

    assert drain_of(10) == (True, False)
    assert drain_of(60) == (True, True)
    assert drain_of(60, created_at=ago(70)) == (True, False)  # it would not be moved yet
    slow = moving(drain=drained())
    slow = replace(slow, fallback=replace(slow.fallback, after=timedelta(minutes=5)))
    assert DRAINED.but(policies=(slow,)).decision().drain is None


def test_a_pod_without_sessions_goes_at_once() -> None:
    scene = DRAINED.but(gates=gate(overdue(), is_open=True))
    assert scene.decision().reason is Reason.MIGRATE


@pytest.mark.parametrize(
    ("how", "gates"),
    [
        ({}, gate(overdue(), is_open=False, told=20)),
        ({}, gate(overdue(), is_open=False, known=False, told=20)),
        ({}, gate(overdue(), is_open=False, age=40, told=20)),
        ({"notify": None}, gate(overdue(), is_open=False)),
        ({"notify": None}, {}),
    ],
)
def test_sessions_that_never_end_call_the_move_off_or_end_with_it(
    how: dict[str, Any], gates: Mapping[PodRef, Gate]
) -> None:
    how = {"max_wait": timedelta(seconds=20), **how}
    late = DRAINED.but(policies=(moving(drain=drained(**how)),), gates=gates)
    decision = late.decision()
    assert (decision.reason, decision.move, decision.drain) == (Reason.REVERT, None, None)
    assert decision.detail.startswith("called off: ")
    assert "maxWait was over at 2026-11-29T12:00:00+00:00" in decision.detail
    assert decision.action is not None
    forced = late.but(policies=(moving(drain=drained(then_force=True, **how)),))
    assert forced.decision().reason is Reason.MIGRATE
    for scene in (late, forced):
        early = scene.decision(at=NOW - timedelta(seconds=1))
        assert (early.move, early.due_at) == (None, NOW)
        assert early.reason in (Reason.DRAINING, Reason.GATE_UNKNOWN)


@pytest.mark.parametrize("then_force", [True, False])
def test_a_pod_that_was_kept_for_long_is_waited_for_in_full_once_it_is_told(then_force: bool) -> None:
    """An hour past its deadline its sibling comes back."""
    wait, hour = timedelta(minutes=10), timedelta(hours=1)
    policy = moving(drain=drained(max_wait=wait, then_force=then_force))
    pods = (overdue(waited=3640), filler())
    kept = DRAINED.but(
        pods=pods, policies=(policy,), workloads=(stateful_set(replicas=2),), gates=gate(overdue(), is_open=False)
    )
    decision = kept.decision()
    assert decision.reason is Reason.SIBLING_UNAVAILABLE
    assert decision.drain is not None
    assert (decision.drain.telling, decision.drain.due_at) == (False, NOW - hour)
    free = kept.but(workloads=(stateful_set(),))
    decision = free.decision()
    assert (decision.reason, decision.move, decision.action, decision.due_at) == (Reason.DRAINING, None, None, None)
    assert decision.drain is not None
    assert decision.drain.telling

    def heard(after: timedelta) -> Decision:
        at = NOW + after
        (known,) = gate(overdue(), is_open=False, told=0).values()
        gates = {overdue().ref: replace(known, measured_at=at)}
        return free.but(gates=gates).decision(at=at)

    last = heard(wait - timedelta(seconds=1))
    assert (last.reason, last.move, last.due_at) == (Reason.DRAINING, None, NOW + wait)
    assert heard(wait).reason is (Reason.MIGRATE if then_force else Reason.REVERT)


def test_a_move_that_is_only_recommended_is_called_off_in_words() -> None:
    late = DRAINED.but(policies=(moving(Mode.RECOMMEND, drain=drained(max_wait=timedelta(seconds=20), notify=None)),))
    decision = late.decision()
    assert (decision.reason, decision.action, decision.due_at) == (Reason.RECOMMEND_ONLY, None, None)
    assert decision.detail.startswith("Revert: called off: ")


@pytest.mark.parametrize("max_wait", [timedelta(hours=1), timedelta(seconds=20)])
def test_nobody_is_told_or_waited_for_where_nothing_is_moved(max_wait: timedelta) -> None:
    policy = moving(strategy=Strategy.NONE, drain=drained(max_wait=max_wait))
    decision = DRAINED.but(policies=(policy,), gates=gate(overdue(), is_open=False)).decision()
    assert (decision.reason, decision.action) == (Reason.MIGRATION_NOT_ENABLED, None)
    assert decision.drain is not None
    assert not decision.drain.telling
    assert decision.migration is not None
    assert Reason.DRAINING in {check.reason for check in decision.migration.checks}


def test_nothing_is_called_off_that_cannot_be_moved_for_another_reason() -> None:
    late = DRAINED.but(policies=(moving(drain=drained(max_wait=timedelta(0), notify=None)),), nodes=(node(),))
    assert blocked(late)[0] is Reason.NO_LANDING_NODE


# ---- what was refused, and what can never be on this node


def refused(kind: OutcomeKind, notes: Notes, at: float = 0) -> Notes:
    scene = SCENE.but(notes=notes)
    policies = {"bridges": moving()}
    return learn_moves(notes, [(scene.decision(), Outcome(kind, "why"))], policies, ago(-at))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (OutcomeKind.BLOCKED, Reason.EVICTION_BLOCKED),
        (OutcomeKind.THROTTLED, Reason.THROTTLED),
        (OutcomeKind.REFUSED, Reason.EVICTION_REFUSED),
        (OutcomeKind.FORBIDDEN, Reason.MIGRATION_NOT_PERMITTED),
    ],
)
def test_a_refused_eviction_is_tried_again_later(kind: OutcomeKind, reason: Reason) -> None:
    notes = refused(kind, Notes())
    decision = SCENE.but(notes=notes).decision()
    assert (decision.reason, decision.move) == (reason, None)
    assert decision.due_at is not None
    assert SCENE.but(notes=notes).decision(at=decision.due_at).move is not None


def test_what_a_budget_blocks_is_tried_less_and_less_often() -> None:
    notes, waits, at = Notes(), list[float](), 0.0
    for _ in range(8):
        notes = refused(OutcomeKind.BLOCKED, notes, at)
        wait = (notes.moves["uid-sim-0"].until - ago(-at)).total_seconds()
        waits.append(wait)
        at += wait
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300]
    assert not refused(OutcomeKind.ACCEPTED, notes, at).moves


def test_a_pod_wanted_larger_than_its_node_is_moved_once_that_has_lasted() -> None:
    small = pod(container(HAS), owner="StatefulSet/sim", created_at=ago(86_400), labels={"app": "sim"})
    scene = SCENE.but(pods=(small,), nodes=(node(cpu="3"), node("node-b")))
    first = scene.plan()
    (decision,) = first.decisions
    assert (decision.reason, decision.due_at) == (Reason.EXCEEDS_NODE, NOW + AFTER)
    assert decision.migration is not None
    notes = learn_wishes(Notes(), first)
    later = scene.but(notes=notes).decision(at=NOW + AFTER)
    assert isinstance(later.move, Evict)
    again = learn_wishes(notes, scene.but(policies=(moving(),), nodes=(node(), node("node-b"))).plan())
    assert not again.beyond
    assert learn(notes, scene.pods, (), {}, NOW).beyond == notes.beyond
    assert not learn(notes, (), (), {}, NOW).beyond


def test_a_move_to_a_larger_node_that_was_called_off_is_due_again() -> None:
    small = pod(container(HAS), owner="StatefulSet/sim", created_at=ago(86_400), labels={"app": "sim"})
    policy = moving(drain=drained(max_wait=timedelta(minutes=1), notify=None))
    scene = SCENE.but(pods=(small,), nodes=(node(cpu="3"), node("node-b")), policies=(policy,))
    wait = AFTER + timedelta(minutes=1)

    def since(waited: timedelta) -> Decision:
        return scene.but(notes=Notes(beyond={small.uid: NOW - waited})).decision()

    assert since(wait).detail.startswith("called off: ")
    again = since(wait + policy.fallback.retry_after).migration
    assert again is not None
    assert again.due_at == NOW + AFTER
    forced = drained(max_wait=timedelta(minutes=1), then_force=True, notify=None)
    scene = scene.but(policies=(moving(drain=forced),))
    assert since(timedelta(days=1)).move is not None


def test_a_pod_that_was_told_and_called_off_is_left_alone_for_a_while() -> None:
    """Whether it has been asked to be larger or could not be: else it would be told anew in the next turn."""
    small = pod(container(HAS), owner="StatefulSet/sim", created_at=ago(86_400), labels={"app": "sim"})
    policy = moving(drain=drained(max_wait=timedelta(minutes=1)))
    rest = policy.fallback.retry_after
    scene = SCENE.but(pods=(small,), nodes=(node(cpu="3"), node("node-b")), policies=(policy,))
    before = Notes(beyond={small.uid: ago(7200)})
    told = scene.but(notes=before, gates=gate(small, is_open=False, told=60))
    off = told.decision()
    assert (off.move, off.drain) == (None, None)
    assert off.detail.startswith("called off: 3 sessions; maxWait was over at 2026-11-29T12:00:00+00:00")
    notes = learn_wishes(before, told.plan())
    assert notes.called_off == {small.uid: NOW}

    def later(after: timedelta) -> Decision:
        return scene.but(notes=notes).decision(at=NOW + after)

    still = later(rest - timedelta(seconds=1))
    assert (still.drain, still.detail.startswith("called off: ")) == (None, True)
    again = later(rest)
    assert again.drain is not None
    assert (again.reason, again.drain.telling) == (Reason.DRAINING, True)

    assert learn_wishes(notes, scene.but(notes=notes).plan()).called_off == notes.called_off
    assert not learn_wishes(notes, scene.but(notes=notes).plan(at=NOW + rest)).called_off
    assert learn(notes, (small,), (), {}, NOW).called_off == notes.called_off
    assert not learn(notes, (), (), {}, NOW).called_off
    refused = DRAINED.but(policies=(policy,), notes=Notes(called_off={overdue().uid: NOW})).decision()
    assert (refused.reason, refused.drain) == (Reason.REVERT, None)


def test_no_pod_is_moved_to_be_made_smaller() -> None:
    """Its node would not let it shrink: there is nothing that it lacks."""
    has_more = overdue(reason="Infeasible", containers=(container(HAS, allocated=WANTED.requests, actual=WANTED),))
    decision = SCENE.but(pods=(has_more, filler())).decision()
    assert (decision.reason, decision.move, decision.migration) == (Reason.REVERT, None, None)
    static = Notes(static={"node-a": frozenset({Resource.CPU, Resource.MEMORY})}, beyond={"uid-sim-0": ago(600)})
    settled = pod(container(both("8", "16Gi")), owner="StatefulSet/sim", created_at=ago(86_400), labels={"app": "sim"})
    held = SCENE.but(pods=(settled, filler(cpu="1")), notes=static).decision()
    assert (held.reason, held.move, held.migration) == (Reason.STATIC_MANAGER, None, None)


# ---- what is wanted may change while it is waited for


def wanting(cpu: str, memory: str, mode: Mode = Mode.RESIZE_OR_MIGRATE) -> Scene:
    return SCENE.but(policies=(replace(moving(mode), recommender=fixed(cpu, memory)),))


def test_a_size_that_nobody_wants_any_more_moves_no_pod_and_is_given_up() -> None:
    decision = wanting("2", "4Gi").decision()
    assert (decision.reason, decision.move) == (Reason.REVERT, None)
    assert decision.detail.startswith("called off: by now the pod has what it needs")
    assert wanting("1", "1Gi").decision().reason is Reason.REVERT
    early = wanting("2", "4Gi").but(pods=(overdue(waited=10), filler())).decision()
    assert (early.reason, early.action) == (Reason.RESIZE_DEFERRED, None)
    assert early.migration is not None
    assert early.migration.blocked is not None
    assert early.migration.blocked.name == "wanted"
    assert wanting("2", "4Gi", Mode.RECOMMEND).decision().reason is Reason.RECOMMEND_ONLY


def test_a_pod_is_moved_only_where_there_is_room_for_what_it_needs_by_now() -> None:
    """It asked for 4 cores; what it has asked for counts as long as it wants more than it has."""
    tight = {"nodes": (node(), node("node-b", "4500m"))}
    assert wanting("4", "8Gi").but(**tight).decision().reason is Reason.MIGRATE
    assert wanting("3", "8Gi").but(**tight).decision().reason is Reason.MIGRATE
    assert wanting("5", "8Gi").but(**tight).decision().reason is Reason.NEEDS_NEW_NODE


def test_nothing_is_moved_while_it_is_not_known_what_it_needs() -> None:
    late = SCENE.snapshot(NOW + timedelta(hours=1))
    decision = one(decide(late, measurements(SCENE.pods), SCENE.settings()))
    assert (decision.reason, decision.move, decision.action) == (Reason.STALE_DATA, None, None)


@pytest.mark.parametrize(("cpu", "memory", "lacking"), [(None, "4Gi", "cpu"), ("2", None, "memory")])
def test_what_has_no_target_is_not_taken_for_enough(cpu: str | None, memory: str | None, lacking: str) -> None:
    """As after a gap in the samples: more was asked for, and nobody can tell whether it is needed."""
    decision = SCENE.but(policies=(replace(moving(), recommender=fixed(cpu, memory)),)).decision()
    assert (decision.reason, decision.move, decision.action) == (Reason.INSUFFICIENT_HISTORY, None, None)
    assert f"not known whether it still needs the {lacking} that was asked for" in decision.detail
    more = SCENE.but(policies=(replace(moving(), recommender=fixed(None, "8Gi")),)).decision()
    assert more.reason is Reason.MIGRATE
    gone = SCENE.but(
        policies=(replace(moving(), recommender=fixed(cpu, memory)),), nodes=(node(ready=False), node("node-b"))
    )
    assert gone.decision().reason is Reason.NODE_NOT_READY


def test_a_move_is_shown_before_the_resize_is_even_asked_for() -> None:
    small = pod(container(HAS), owner="StatefulSet/sim", created_at=ago(86_400), labels={"app": "sim"})
    for mode, reason in ((Mode.RESIZE_OR_MIGRATE, Reason.INCREASE), (Mode.RECOMMEND, Reason.RECOMMEND_ONLY)):
        decision = SCENE.but(pods=(small, filler()), policies=(moving(mode),)).decision()
        assert (decision.reason, decision.move, decision.drain) == (reason, None, None)
        assert decision.migration is not None
        assert (decision.migration.due_at, decision.migration.landing) == (NOW + AFTER, ("node-b",))
    fits = SCENE.but(pods=(small,)).decision()
    assert fits.migration is None
