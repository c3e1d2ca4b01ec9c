"""A node that is not ready: nothing is asked of it, and nobody is moved away from it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from autoscaler.core.decide import decide
from autoscaler.core.model import Ask, Condition, Pod
from autoscaler.core.plan import Decision
from autoscaler.core.policy import Fallback
from autoscaler.core.reasons import Reason
from tests.build import NOW, amounts, both, config, container, fixed, measurements, node, one, pod, policy, snapshot
from tests.core.migrations import SCENE, overdue

PATIENCE = Fallback(after=timedelta(seconds=40))


def found(made: Pod, *, ready: bool = False, **changes: Any) -> Decision:
    nodes = [node(ready=ready), node("node-b", ready=not ready)]
    rules = policy(fixed("800m", "2Gi"), fallback=PATIENCE, **changes)
    return one(decide(snapshot(made, nodes=nodes), measurements([made]), config(rules)))


def asked(ago_s: float, reason: str = "Deferred") -> Pod:
    """A pod that was asked to grow so long ago; no reason: the kubelet has not answered."""
    size = container(both("2", "1Gi"), allocated=amounts("1", "1Gi"), actual=both("1", "1Gi"))
    conditions = (Condition("PodResizePending", "True", reason, "no room"),) if reason else ()
    return pod(size, asks=(Ask("bridge-autoscaler", NOW - timedelta(seconds=ago_s)),), conditions=conditions)


def test_nothing_is_asked_of_it() -> None:
    held = found(pod())
    assert (held.reason, held.detail, held.action) == (Reason.NODE_NOT_READY, "node node-a is not ready", None)
    assert found(pod(), ready=True).reason is Reason.INCREASE
    assert found(pod(node="node-c")).reason is Reason.INCREASE  # nothing is known of it


@pytest.mark.parametrize("ago_s", [5, 25, 40, 400])
def test_an_ask_waits_with_it_and_is_neither_fitted_nor_given_up(ago_s: float) -> None:
    held = found(asked(ago_s))
    assert (held.reason, held.action) == (Reason.NODE_NOT_READY, None)
    assert held.detail.startswith("node node-a is not ready; no room")
    assert held.due_at is None or held.due_at > NOW


def test_the_deadline_has_run_on_when_it_is_back() -> None:
    assert found(asked(25), ready=True).due_at == NOW + timedelta(seconds=15)
    assert found(asked(40), ready=True).reason is Reason.REVERT


def test_a_kubelet_that_cannot_answer_is_not_called_silent() -> None:
    assert found(asked(400, reason="")).reason is Reason.NODE_NOT_READY
    assert found(asked(400, reason=""), ready=True).reason is Reason.KUBELET_SILENT


def test_nobody_is_moved_away_from_it() -> None:
    """An eviction would end the sessions only once the node is back, and it may be back with all of them alive."""
    assert SCENE.decision().reason is Reason.MIGRATE
    decision = SCENE.but(nodes=(node(ready=False), node("node-b"))).decision()
    assert (decision.reason, decision.move) == (Reason.NODE_NOT_READY, None)
    lost = SCENE.but(pods=(overdue(ready=False),), nodes=(node(ready=False), node("node-b"))).decision()
    assert lost.detail.startswith("node node-a is not ready; ")
