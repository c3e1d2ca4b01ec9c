"""What nobody expects to happen to a pod that is to be moved, and must not lead to an eviction all the same."""

from __future__ import annotations

import time

from autoscaler.core.policy import Budgets
from autoscaler.core.reasons import Reason
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
