"""What nobody expects to happen to a pod that is to be moved, and must not lead to an eviction all the same."""

from __future__ import annotations

import time

import pytest

from autoscaler.core import preconditions
from autoscaler.core.labels import LabelSelector
from autoscaler.core.policy import Budgets
from autoscaler.core.reasons import Reason
from autoscaler.core.scheduling import DisruptionBudget
from tests.core.migrations import SCENE, drained, gate, moving, overdue, stateful_set


def test_what_was_heard_of_sessions_before_the_clock_was_set_back_is_not_believed() -> None:
    scene = SCENE.but(policies=(moving(drain=drained()),))
    assert scene.but(gates=gate(overdue(), is_open=True, age=-29)).decision().reason is Reason.MIGRATE
    assert scene.but(gates=gate(overdue(), is_open=True, age=-31)).decision().reason is Reason.GATE_UNKNOWN


def test_a_pod_of_a_workload_that_wants_none_is_not_evicted_as_it_would_not_come_back() -> None:
    decision = SCENE.but(workloads=(stateful_set(replicas=0),)).decision()
    assert decision.reason is Reason.WORKLOAD_CHANGING
    assert decision.detail.startswith("StatefulSet/sim wants no pods")


def test_a_workload_that_wants_two_billion_pods_and_gets_none_costs_no_time() -> None:
    began_s = time.process_time()
    scene = SCENE.but(workloads=(stateful_set(replicas=2**31 - 1),))
    assert scene.decision().reason is Reason.SIBLING_UNAVAILABLE
    many = scene.but(config={"budgets": Budgets(max_disruptions_per_namespace=7)}).decision()
    assert many.migration is not None
    (budgets,) = (check for check in many.migration.checks if check.name == "budgets")
    assert (budgets.holds, budgets.reason) == (False, Reason.DISRUPTION_BUDGET)
    assert time.process_time() - began_s < 5


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", [0, 0, 0, 0]),
        ("2", [2, 2, 2, 2]),
        ("0%", [0, 0, 0, 0]),
        ("1%", [0, 1, 1, 1]),
        ("50%", [0, 1, 2, 2]),
        ("100%", [0, 1, 3, 4]),
        *((bad, [None] * 4) for bad in ("", "%", "-1", "-1%", "1.5", "50 %", "half", "\u0663", "9" * 5000)),
    ],
)
def test_at_least_so_many_healthy_pods_are_wanted(text: str, wanted: list[int | None]) -> None:
    budget = DisruptionBudget("sim", "b", min_available=text)
    assert [preconditions.desired_for(budget, expected) for expected in (0, 1, 3, 4)] == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", [0, 1, 3, 4]),
        ("2", [0, 0, 1, 2]),
        ("0%", [0, 1, 3, 4]),
        ("1%", [0, 0, 2, 3]),
        ("50%", [0, 0, 1, 2]),
        ("100%", [0, 0, 0, 0]),
        *((bad, [None] * 4) for bad in ("%", "-1", "half")),
    ],
)
def test_all_but_so_many_healthy_pods_are_wanted(text: str, wanted: list[int | None]) -> None:
    budget = DisruptionBudget("sim", "b", max_unavailable=text)
    assert [preconditions.desired_for(budget, expected) for expected in (0, 1, 3, 4)] == wanted


def never(*, healthy: int, desired: int, expected: int, least: str = "", most: str = "") -> DisruptionBudget:
    """A budget of all pods that allows no eviction now."""
    return DisruptionBudget(
        *("bridge", "b", LabelSelector()),
        healthy=healthy,
        desired=desired,
        expected=expected,
        min_available=least,
        max_unavailable=most,
    )


@pytest.mark.parametrize(
    ("budget", "holds", "words"),
    [
        (never(healthy=1, desired=1, expected=1, least="1"), True, "b will need 1 healthy of 2, and have 2"),
        (never(healthy=1, desired=2, expected=1, least="2"), False, "b will need 2 healthy of 2, and have 2"),
        (never(healthy=2, desired=2, expected=2, least="2"), True, "b will need 2 healthy of 3, and have 3"),
        (never(healthy=1, desired=1, expected=1, least="100%"), False, "b will need 2 healthy of 2, and have 2"),
        (never(healthy=1, desired=1, expected=1, least="50%"), True, "b will need 1 healthy of 2, and have 2"),
        (never(healthy=2, desired=2, expected=2, least="51%"), True, "b will need 2 healthy of 3, and have 3"),
        (never(healthy=2, desired=2, expected=2, least="67%"), False, "b will need 3 healthy of 3, and have 3"),
        (never(healthy=1, desired=1, expected=1, most="0"), False, "b will need 2 healthy of 2, and have 2"),
        (never(healthy=1, desired=1, expected=1, most="0%"), False, "b will need 2 healthy of 2, and have 2"),
        (never(healthy=1, desired=0, expected=1, most="1"), True, "b will need 1 healthy of 2, and have 2"),
        (never(healthy=0, desired=0, expected=1, most="1"), False, "b will need 1 healthy of 2, and have 1"),
        (never(healthy=1, desired=1, expected=1), True, "b needs 1 healthy of 1, and has 1"),
        (never(healthy=1, desired=2, expected=1), False, "b needs 2 healthy of 1, and has 1"),
        (never(healthy=1, desired=1, expected=1, least="half"), True, "b needs 1 healthy of 1, and has 1"),
    ],
)
def test_a_budget_agrees_to_a_surge_if_it_will_allow_an_eviction_with_one_pod_more(
    budget: DisruptionBudget, holds: bool, words: str
) -> None:
    check = preconditions.budget(overdue(), SCENE.but(budgets=(budget,)).snapshot(), ready=False)
    assert (check.holds, check.reason, check.detail) == (holds, Reason.EVICTION_BLOCKED, words)
    assert not preconditions.budget(overdue(), SCENE.but(budgets=(budget,)).snapshot()).holds
