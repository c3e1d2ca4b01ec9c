"""Who comes first, how much goes on at once, and restarts that no one has explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core import kubelet
from autoscaler.core.actions import AskKind
from autoscaler.core.decide import decide
from autoscaler.core.history import ContainerRef, Measurements
from autoscaler.core.model import Ask, ClusterSnapshot, Condition, Container, Pod, Resource, Termination
from autoscaler.core.order import precedence
from autoscaler.core.plan import Decision, Plan, PredictedOutcome
from autoscaler.core.policy import Budgets, ContainerPolicy, Mode
from autoscaler.core.preconditions import unavailable
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import IN_PROGRESS, PENDING, Phase, phase_of
from autoscaler.core.restarts import ACKNOWLEDGED
from autoscaler.core.rooms import Rooms
from tests.build import (
    NOW,
    both,
    config,
    container,
    fixed,
    history,
    measurements,
    node,
    one,
    pod,
    policy,
    snapshot,
    target,
)

ONE, TWO = both("1", "1Gi"), both("2", "1Gi")
RESTARTS = frozenset({Resource.CPU})


def ago(seconds: float) -> Any:
    return NOW - timedelta(seconds=seconds)


def ours(seconds: float, kind: AskKind = AskKind.TARGET) -> tuple[Ask, ...]:
    return (Ask(kind, ago(seconds)),)


def grows(name: str, *, restart_on: frozenset[Resource] = frozenset(), **changes: Any) -> Pod:
    """A pod with 1 core that wants 2."""
    return pod(container(ONE, restart_on=restart_on), name=name, **changes)


def pending(name: str, reason: str = "Deferred", restart_on: frozenset[Resource] = frozenset()) -> Pod:
    """A pod with 1 core whose ask for 2 has not been accepted for 10 s."""
    app = container(TWO, allocated=ONE.requests, actual=ONE, restart_on=restart_on)
    condition = Condition(PENDING, "True", reason, "words of the kubelet", 2)
    return pod(app, name=name, generation=2, observed_generation=2, conditions=(condition,), asks=ours(10))


def planned(*pods: Pod, cpu: str = "16", budgets: Budgets | None = None, **changes: Any) -> Plan:
    rules = config(policy(fixed("2", "1Gi"), **changes), budgets=budgets or Budgets())
    return decide(snapshot(*pods, nodes=[node(cpu=cpu)]), measurements(pods), rules)


def asked(plan: Plan) -> list[str]:
    return [decision.pod.name for decision in plan.acting]


def reasons(plan: Plan) -> dict[str, Reason]:
    return {decision.pod.name: decision.reason for decision in plan.decisions}


# --- order


def test_priority_then_guaranteed_then_who_has_waited_longest_then_the_name() -> None:
    burstable = pod(name="burstable", asks=ours(3600))
    young = [replace(c, started_at=ago(60)) for c in pod(container(ONE)).containers]
    in_order = [
        pod(name="important", priority=1000),
        pod(container(ONE), name="early", asks=ours(600)),
        pod(container(ONE), name="late", asks=ours(300)),
        pod(*young, name="young-a"),
        pod(*young, name="young-b"),
        burstable,
        pod(name="unimportant", priority=-1),
    ]
    backwards = in_order[::-1]
    assert sorted(backwards, key=precedence) == in_order
    nothing_known = pod(container(ONE, started_at=None), name="a")
    assert max([*in_order[1:5], nothing_known], key=precedence) is nothing_known


def test_room_is_given_in_order_and_so_are_actions_performed() -> None:
    pods = grows("a", asks=ours(100)), grows("b", asks=ours(200)), grows("c", priority=7)
    plan = planned(*pods, cpu="4")
    assert [decision.pod.name for decision in plan.decisions] == ["a", "b", "c"]
    assert asked(plan) == ["c", "b"]
    assert one(plan, "c").prediction.outcome is PredictedOutcome.IN_PLACE
    assert one(plan, "b").prediction.outcome is PredictedOutcome.DEFERRED
    assert one(plan, "a").reason is Reason.NODE_FULL


def test_a_fit_takes_its_room_in_order_too() -> None:
    """Both get what is free on the node half-way to their deadline, but only once."""
    waiting = [replace(pending(name), asks=ours(20)) for name in ("a", "b")]
    first = replace(waiting[1], priority=5)
    plan = planned(waiting[0], first, cpu="2500m")
    assert reasons(plan) == {"a": Reason.RESIZE_DEFERRED, "b": Reason.FIT}


# --- the node's room


def test_on_a_full_node_one_asks_and_the_others_wait_behind_it() -> None:
    plan = planned(*(grows(f"sim-{i}") for i in range(3)), cpu="3")
    assert asked(plan) == ["sim-0"]
    assert [one(plan, f"sim-{i}").reason for i in (1, 2)] == [Reason.NODE_FULL] * 2
    held = one(plan, "sim-1")
    assert held.prediction.outcome is PredictedOutcome.DEFERRED
    assert held.detail == f"room has been asked for by bridge/sim-0. {held.prediction.detail}"
    assert held.proposals[0].proposed == TWO


def test_room_that_has_appeared_is_for_whoever_waits_for_it() -> None:
    """The kubelet tries again within three minutes; until then nobody else is told that there is room."""
    for waits in (pending("other"), replace(pending("other"), asks=ours(20))):
        plan = planned(waits, grows("sim-0"), grows("sim-1"), cpu="4")
        assert reasons(plan)["other"] is Reason.KUBELET_NOT_RETRYING  # asking again for the same would be nothing new
        assert one(plan, "sim-0").prediction.outcome is PredictedOutcome.DEFERRED
        assert (asked(plan), one(plan, "sim-1").reason) == (["sim-0"], Reason.NODE_FULL)


@pytest.mark.parametrize("reason", ["Deferred", "Infeasible", "Gated"])
def test_what_waits_already_counts_whoever_asked_for_it(reason: str) -> None:
    waits = replace(pending("other", reason), labels={"someone": "else's"}, asks=())
    assert reasons(planned(waits, grows("sim-0"), cpu="2"))["sim-0"] is Reason.NODE_FULL
    # what fits is accepted within seconds and need not wait; the kubelet does not let it either
    small = both("1500m", "1Gi")
    assert asked(planned(waits, pod(container(small), name="sim-0"), cpu="3")) == ["sim-0"]


def test_an_ask_that_the_kubelet_has_not_answered_takes_its_room() -> None:
    unanswered = replace(pending("other"), conditions=())
    assert phase_of(unanswered).phase is Phase.PROPOSED
    fits = planned(unanswered, grows("sim-0"), cpu="3")
    assert one(fits, "sim-0").prediction.outcome is PredictedOutcome.DEFERRED
    assert asked(fits) == ["sim-0"]  # nobody waits for room yet
    assert reasons(planned(unanswered, grows("sim-0"), cpu="2500m"))["sim-0"] is Reason.NODE_FULL
    assert one(planned(unanswered, grows("sim-0"), cpu="4"), "sim-0").prediction.outcome is PredictedOutcome.IN_PLACE


def test_more_may_wait_on_a_node_or_none() -> None:
    three = [grows(f"sim-{i}") for i in range(3)]
    assert asked(planned(*three, cpu="3", budgets=Budgets(max_in_flight_per_node=2))) == ["sim-0", "sim-1"]
    none = planned(*three, cpu="4", budgets=Budgets(max_in_flight_per_node=0))
    assert asked(none) == ["sim-0"]
    assert one(none, "sim-1").detail.startswith("maxInFlightPerNode is 0. short of 1 cpu")


def test_decreases_and_other_nodes_do_not_wait_for_room() -> None:
    shrinks = pod(container(both("3", "1Gi")), name="sim-0")
    elsewhere = grows("sim-1", node="node-b")
    cluster = snapshot(pending("other"), shrinks, elsewhere, nodes=[node(cpu="3"), node("node-b")])
    rules = config(policy(fixed("2", "1Gi")))
    assert asked(decide(cluster, measurements(cluster.pods.values()), rules)) == ["sim-0", "sim-1"]


def test_what_is_only_recommended_spends_nothing() -> None:
    plan = planned(*(grows(f"sim-{i}") for i in range(3)), cpu="3", mode=Mode.RECOMMEND)
    assert set(reasons(plan).values()) == {Reason.RECOMMEND_ONLY}


# --- one workload


def test_resizes_of_one_workload_are_unlimited_unless_said_otherwise() -> None:
    three = [grows(f"sim-{i}") for i in range(3)]
    assert len(asked(planned(*three))) == 3
    plan = planned(*three, budgets=Budgets(max_in_flight_per_workload=2))
    assert asked(plan) == ["sim-0", "sim-1"]
    held = one(plan, "sim-2")
    assert (held.reason, held.detail) == (
        Reason.WORKLOAD_BUSY,
        "StatefulSet/sim: bridge/sim-0, bridge/sim-1 of at most 2",
    )


def test_a_resize_of_a_workload_is_in_flight_until_it_is_settled() -> None:
    busy = pod(name="busy", conditions=(Condition(IN_PROGRESS, "True", "", "", 1),), asks=ours(1))
    limit = Budgets(max_in_flight_per_workload=1)
    assert reasons(planned(busy, grows("sim-0"), budgets=limit))["sim-0"] is Reason.WORKLOAD_BUSY
    for free in (replace(busy, workload="StatefulSet/other"), replace(busy, namespace="other"), pod(name="busy")):
        assert "sim-0" in asked(planned(free, grows("sim-0"), budgets=limit))
    alone = [grows(f"sim-{i}", workload=None) for i in range(2)]
    assert len(asked(planned(*alone, budgets=limit))) == 2


# --- restarts by resizePolicy


def test_pods_of_a_workload_are_restarted_one_at_a_time() -> None:
    plan = planned(*(grows(f"sim-{i}", restart_on=RESTARTS) for i in range(3)))
    assert asked(plan) == ["sim-0"]
    held = one(plan, "sim-1")
    assert (held.reason, held.prediction.outcome) == (Reason.DISRUPTION_BUDGET, PredictedOutcome.RESTART)
    assert held.detail == "it would restart containers; StatefulSet/sim: bridge/sim-0 of at most 1"


def test_a_few_are_restarted_in_a_namespace_and_in_the_cluster() -> None:
    pods = [
        grows(f"sim-{i}", restart_on=RESTARTS, workload=f"StatefulSet/{i}", namespace=f"n{i % 4}") for i in range(16)
    ]
    plan = planned(*pods, cpu="100")
    taken = [decision.pod.namespace for decision in plan.acting]
    assert len(taken) == 5
    assert max(map(taken.count, taken)) == 2
    details = {decision.detail.split(":")[0] for decision in plan.decisions if decision.action is None}
    assert details >= {"it would restart containers; namespace n0", "it would restart containers; the cluster"}
    assert any(decision.detail.endswith(" and 2 more of at most 5") for decision in plan.decisions)


def _restarted(name: str, seconds: float, asked: float, **changes: Any) -> Pod:
    """A pod that was resized, and whose container is back since `seconds` ago."""
    app = container(
        TWO,
        restart_on=RESTARTS,
        restart_count=1,
        started_at=ago(seconds),
        last_terminated=Termination("Completed", 0, ago(seconds + 2)),
    )
    return pod(app, name=name, **{"asks": ours(asked), **changes})


@pytest.mark.parametrize(
    ("other", "due_s"),
    [
        (pod(container(TWO), name="other", ready=False), None),
        (pod(container(TWO), name="other", deleting=True), None),
        (pod(container(TWO), name="other", phase="Pending", node=None), None),
        (pod(container(TWO, running=False), name="other"), None),
        (pending("other", restart_on=RESTARTS), None),
        (replace(pending("other", restart_on=RESTARTS), conditions=()), None),
        (_restarted("other", 20, 25), 40),
        (_restarted("other", 20, 900), 40),  # deferred for a long time
        (_restarted("other", 900, 20), 40),  # asked; the restart is still to be seen
        (_restarted("other", 300, 305, ready=False), None),
    ],
)
def test_whoever_does_not_serve_holds_the_next_restart(other: Pod, due_s: float | None) -> None:
    held = one(planned(other, grows("sim-0", restart_on=RESTARTS)), "sim-0")
    assert held.reason is Reason.DISRUPTION_BUDGET
    assert held.due_at == (None if due_s is None else NOW + timedelta(seconds=due_s))


@pytest.mark.parametrize(
    "other",
    [
        pod(container(TWO), name="other"),
        pod(container(TWO, running=False, ended=True), name="other"),
        pod(container(TWO), name="other", phase="Succeeded", ready=False),
        pod(container(TWO), name="other", ready=False, workload="StatefulSet/other"),
        pod(container(TWO), name="other", ready=False, namespace="other"),
        pending("other"),  # in place, when it comes
        _restarted("other", 61, 65),
        _restarted("other", 20, 25, asks=(Ask("kubectl", ago(25)),)),
        _restarted("other", 20, 25, asks=ours(25, AskKind.REVERT)),
    ],
)
def test_others_do_not(other: Pod) -> None:
    assert "sim-0" in asked(planned(other, grows("sim-0", restart_on=RESTARTS)))


def test_only_restarts_of_ours_count_beyond_the_workload() -> None:
    ours_ = [_restarted(f"other-{i}", 20, 25, workload=f"StatefulSet/{i}") for i in range(2)]
    held = one(planned(*ours_, grows("sim-0", restart_on=RESTARTS)), "sim-0")
    assert held.detail == "it would restart containers; namespace bridge: bridge/other-0, bridge/other-1 of at most 2"
    assert held.due_at == NOW + timedelta(seconds=40)


def test_a_restart_that_waits_for_room_spends_the_budget_as_well() -> None:
    """The kubelet restarts the container when room appears, without asking anyone."""
    pods = [grows(f"sim-{i}", restart_on=RESTARTS) for i in range(2)]
    plan = planned(*pods, cpu="2", budgets=Budgets(max_in_flight_per_node=5))
    assert asked(plan) == ["sim-0"]
    assert one(plan, "sim-0").prediction.outcome is PredictedOutcome.DEFERRED
    assert one(plan, "sim-1").reason is Reason.DISRUPTION_BUDGET


def test_a_pod_that_is_held_takes_no_room() -> None:
    pods = grows("a", restart_on=RESTARTS), grows("b", restart_on=RESTARTS), grows("c", asks=ours(1))
    assert asked(planned(*pods, cpu="5")) == ["a", "c"]


def test_no_restarts_at_all() -> None:
    held = one(planned(grows("sim-0", restart_on=RESTARTS), budgets=Budgets(max_disruptions_cluster=0)), "sim-0")
    assert held.detail == "it would restart containers; the cluster: none of at most 0"


# --- restarts that no one has explained


def _ended(reason: str = "Error", after: float = 5, asked: float = 600, **changes: Any) -> Pod:
    """A container that ended `after` seconds after our ask and runs again."""
    moment = ago(asked) + timedelta(seconds=after)
    app = container(
        ONE,
        restart_count=1,
        started_at=moment + timedelta(seconds=1),
        last_terminated=Termination(reason, 1, moment),
        **changes,
    )
    return pod(app, asks=ours(asked))


def found(made: Pod, **changes: Any) -> Decision:
    return one(planned(made, **changes))


def test_a_restart_right_after_a_resize_stops_further_ones() -> None:
    held = found(_ended())
    assert (held.reason, held.action) == (Reason.UNEXPLAINED_RESTART, None)
    assert held.detail == "container app restarted at 2026-11-29T11:50:05+00:00"
    assert found(_ended(after=60)).reason is Reason.UNEXPLAINED_RESTART
    without_end = _ended()
    (app,) = without_end.containers
    assert found(replace(without_end, containers=(replace(app, last_terminated=None),))).action is None


@pytest.mark.parametrize(
    "made",
    [
        _ended("OOMKilled"),
        _ended(restart_on=RESTARTS),
        _ended(after=61),
        _ended(after=-1),
        replace(_ended(), asks=(Ask("kubectl", ago(600)),)),
        replace(_ended(), asks=()),
        replace(_ended(), containers=(replace(_ended().containers[0], restart_count=0),)),
    ],
)
def test_what_explains_a_restart_or_is_none(made: Pod) -> None:
    rules = replace(policy().stability, other_writer_hold=timedelta(0))
    assert found(made, stability=rules).reason is Reason.INCREASE


def test_a_resource_that_the_policy_leaves_alone_explains_nothing() -> None:
    memory = (ContainerPolicy(controlled=frozenset({Resource.MEMORY})),)
    assert found(_ended(restart_on=RESTARTS), containers=memory).reason is Reason.UNEXPLAINED_RESTART


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("2026-11-29T11:50:06Z", None),
        ("2026-11-29T13:00:00+01:00", None),
        ("2026-11-29T11:50:05Z", "acknowledged was what happened before 2026-11-29T11:50:05+00:00"),
        ("yes", "is 'yes', write a time like 2026-11-29T12:00:00Z"),
        ("2026-11-29T11:55:00", "write a time like"),
    ],
)
def test_a_person_acknowledges_it_with_a_later_time(value: str, words: str | None) -> None:
    decision = found(replace(_ended(), annotations={ACKNOWLEDGED: value}))
    assert decision.reason is (Reason.INCREASE if words is None else Reason.UNEXPLAINED_RESTART)
    assert words is None or words in decision.detail


def test_a_pending_ask_of_such_a_pod_is_given_up_but_not_fitted() -> None:
    waits = pending("sim-0")
    app = replace(
        waits.containers[0], restart_count=1, started_at=ago(8), last_terminated=Termination("Error", 1, ago(9))
    )
    waits = replace(waits, containers=(app,), asks=ours(20))
    # half-way to its deadline
    plan = planned(waits, pod(container(both("500m", "1Gi")), name="other"), cpu="2")
    held = one(plan)
    assert (held.reason, held.action, held.due_at) == (Reason.RESIZE_DEFERRED, None, NOW + timedelta(seconds=10))
    assert found(replace(waits, asks=ours(30))).reason is Reason.REVERT


# --- whole clusters


@st.composite
def _clusters(draw: st.DrawFn) -> tuple[ClusterSnapshot, Mapping[str, str], Budgets]:
    """Pods of a few workloads on two nodes, some of them in the middle of a resize or a restart."""
    made, wants = [], {}
    for index in range(draw(st.integers(1, 10))):
        name, has, asks_for = f"sim-{index}", draw(st.integers(1, 3)), draw(st.integers(1, 4))
        spec, now = both(f"{asks_for}", "1Gi"), both(f"{has}", "1Gi")
        condition = draw(st.sampled_from([None, "Deferred", "Infeasible", "settled", "settled"]))
        app: Container = container(
            now if condition == "settled" else spec,
            allocated=now.requests,
            actual=now,
            restart_on=draw(st.sampled_from([frozenset(), RESTARTS])),
            restart_count=draw(st.integers(0, 1)),
            started_at=ago(draw(st.integers(0, 200))),
        )
        shown = condition if condition in ("Deferred", "Infeasible") and has != asks_for else None
        made.append(
            pod(
                app,
                name=name,
                workload=f"StatefulSet/{draw(st.integers(0, 2))}",
                node=f"node-{draw(st.integers(0, 1))}",
                priority=draw(st.integers(0, 2)),
                ready=draw(st.integers(0, 3)) > 0,
                asks=ours(draw(st.integers(0, 200))) if draw(st.booleans()) else (),
                conditions=() if shown is None else (Condition(PENDING, "True", shown, "", 1),),
            )
        )
        wants[name] = f"{draw(st.integers(1, 5))}"
    nodes = [node(f"node-{i}", cpu=str(draw(st.integers(4, 16)))) for i in range(2)]
    budgets = Budgets(
        draw(st.integers(0, 2)),
        draw(st.none() | st.integers(1, 2)),
        draw(st.integers(0, 2)),
        draw(st.integers(0, 3)),
        draw(st.integers(0, 3)),
    )
    return snapshot(*made, nodes=nodes), wants, budgets


@settings(max_examples=300, deadline=None)
@given(_clusters())
def test_no_plan_exceeds_a_budget_or_gives_the_same_room_twice(
    case: tuple[ClusterSnapshot, Mapping[str, str], Budgets],
) -> None:
    cluster, wants, budgets = case
    measured = Measurements(
        NOW,
        {ContainerRef("bridge", name, "app"): history(state=target(cpu, "1Gi")) for name, cpu in wants.items()},
    )
    plan = decide(cluster, measured, config(policy(), budgets=budgets))
    grown = [d for d in plan.acting if d.action is not None and d.action.kind is AskKind.TARGET]
    after = {d.pod.ref: kubelet.resized(d.pod, {p.container.name: p.proposed for p in d.proposals}) for d in grown}

    for name, each_node in cluster.nodes.items():
        here = [p for p in cluster.pods.values() if p.node == name]
        taken = kubelet.allocated_on(here).cpu or 0
        more, waiting = 0, [cluster.pods[ref] for ref in Rooms(cluster).unaccepted(name)]
        asked_here = [d for d in grown if d.pod.node == name]
        for decision in asked_here:
            wanted = kubelet.footprint(after[decision.pod.ref], kubelet.desired).cpu or 0
            raised = wanted - (kubelet.footprint(decision.pod, kubelet.allocated).cpu or 0)
            if decision.prediction.outcome is not PredictedOutcome.DEFERRED:
                more += max(raised, 0)
            elif raised > 0:
                waiting.append(decision.pod)
        assert not more or taken + more <= (each_node.allocatable.cpu or 0)
        deferred = [d for d in asked_here if d.pod in waiting]
        assert not deferred or len(waiting) <= budgets.max_in_flight_per_node

    restarts = [d.pod for d in grown if kubelet.restarts(d.pod, after[d.pod.ref])]
    assert len(restarts) <= budgets.max_disruptions_cluster
    assert len(restarts) <= budgets.max_disruptions_per_namespace
    for workload in {p.workload for p in restarts}:
        beside = [p for p in cluster.pods.values() if p.workload == workload and p not in restarts and unavailable(p)]
        together = [p for p in restarts if p.workload == workload]
        assert len(together) + len(beside) <= budgets.max_disruptions_per_workload
    most = budgets.max_in_flight_per_workload
    for workload in {d.pod.workload for d in grown}:
        asked_of = [d for d in grown if d.pod.workload == workload]
        unfinished = [
            p for p in cluster.pods.values() if p.workload == workload and phase_of(p).phase is not Phase.SETTLED
        ]
        assert most is None or len(asked_of) + len(unfinished) <= most
