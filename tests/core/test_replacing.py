"""Pods that take the place of others, and what keeps them from serving."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.core.model import Pod
from autoscaler.core.policy import Mode
from autoscaler.core.reasons import Reason
from tests.build import container
from tests.core.migrations import HAS, SCENE, ago, filler, moving, overdue

MESSAGE = "0/3 nodes are available: 3 Insufficient cpu"


def starting(age: float, **changes: Any) -> Pod:
    """The same pod anew, `age` seconds after it was made: nothing of it runs yet."""
    still = container(HAS, running=False, actual=None, allocated=None)
    made = overdue(conditions=(), asks=(), phase="Pending", ready=False, created_at=ago(age), containers=(still,))
    return replace(made, **changes)


STUCK = starting(900, phase="Running", deleting=True, disrupted=True, gone_by=ago(300))


@pytest.mark.parametrize(
    ("pod", "reason", "due_in"),
    [
        (starting(10, node=None, unscheduled=MESSAGE), Reason.REPLACING, 50),
        (starting(60, node=None, unscheduled=MESSAGE), Reason.REPLACEMENT_UNSCHEDULED, None),
        (starting(60), Reason.REPLACING, 240),
        (starting(300), Reason.REPLACEMENT_NOT_READY, None),
        (starting(300, phase="Running"), Reason.REPLACEMENT_NOT_READY, None),
        (starting(86_400, phase="Running", ready_changed_at=ago(60)), Reason.REPLACING, 240),
        (starting(10, phase="Running", deleting=True, disrupted=True), Reason.REPLACING, None),
        (starting(10, phase="Running", deleting=True, disrupted=True, gone_by=ago(20)), Reason.REPLACING, 280),
        (STUCK, Reason.REPLACEMENT_NOT_READY, None),
        (starting(10, phase="Running", deleting=True), Reason.DELETING, None),
    ],
)
def test_a_replacement_is_named_until_it_runs(pod: Pod, reason: Reason, due_in: int | None) -> None:
    decision = SCENE.but(pods=(pod, filler())).decision()
    assert (decision.reason, decision.action, decision.move) == (reason, None, None)
    assert decision.due_at == (None if due_in is None else ago(0) + timedelta(seconds=due_in))
    if pod.unscheduled:
        assert MESSAGE in decision.detail


def test_it_is_only_named_where_pods_may_be_moved() -> None:
    scene = SCENE.but(pods=(starting(600), filler()), policies=(moving(Mode.RESIZE),))
    assert scene.decision().reason is Reason.NOT_RUNNING


def test_nothing_else_of_its_workload_is_moved_meanwhile() -> None:
    waits = replace(overdue("sim-1"), uid="uid-sim-1")
    scene = SCENE.but(pods=(starting(600, node=None, unscheduled=MESSAGE), waits, filler(cpu="12")))
    decision = scene.decision("sim-1")
    assert decision.move is None
    assert decision.reason in (Reason.POD_TOO_YOUNG, Reason.SIBLING_UNAVAILABLE)


def test_a_pod_that_its_controller_has_not_made_is_a_problem() -> None:
    scene = SCENE.but(pods=(filler(),))
    assert ("StatefulSet/sim in bridge", "PodsMissing") in {(p.source, p.reason) for p in scene.plan().problems}
    idle = scene.but(policies=(moving(Mode.RESIZE),))
    assert "PodsMissing" not in {problem.reason for problem in idle.plan().problems}
    assert "PodsMissing" not in {problem.reason for problem in SCENE.plan().problems}
