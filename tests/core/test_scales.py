"""Scales that did not come about, or that somebody else undid: nothing is evicted or begun again and again for them."""

from __future__ import annotations

import pytest

from autoscaler.core.actions import Evict, Outcome, OutcomeKind, Scale, ScaleKind
from autoscaler.core.model import Capability, Node
from autoscaler.core.notes import Notes, learn_moves
from autoscaler.core.plan import Decision
from autoscaler.core.policy import Strategy
from autoscaler.core.reasons import Reason
from tests.build import NOW, node
from tests.core.migrations import WEB, Scene, ago, filler, moving, newcomer, surged, surging, web

POLICY = moving(strategy=Strategy.SURGE)
BEGINS = WEB.but(policies=(POLICY,))
HOUR = 3600
STARTING = newcomer(ready=False)
SETTLED = surging(conditions=(), asks=(), generation=1, containers=newcomer().containers)
ENDS = BEGINS.but(pods=(SETTLED, newcomer(created=HOUR), filler(cpu="1")), workloads=web(2, surged(HOUR)))
"""All pods are ready: the newest is evicted, so that its successor may go."""
GOES = ENDS.but(pods=(SETTLED, STARTING, filler(cpu="1")))
"""The successor is starting: the number goes back."""


def step(scene: Scene) -> Decision:
    (decision,) = scene.plan().moving
    return decision


def after(decision: Decision, kind: OutcomeKind) -> Notes:
    return learn_moves(Notes(), [(decision, Outcome(kind, "why"))], {POLICY.name: POLICY}, NOW)


def test_no_second_pod_is_evicted_for_a_scale_that_does_not_follow() -> None:
    """The successor of the first is ready by then: it is the newest, and young."""
    assert isinstance(step(ENDS).move, Evict)
    assert isinstance(step(GOES).move, Scale)
    ready = newcomer("web-1-next", created=5)
    waits = ENDS.but(pods=(SETTLED, ready, filler(cpu="1"))).plan()
    assert waits.moving == []
    assert Reason.POD_TOO_YOUNG in {decision.reason for decision in waits.decisions}


@pytest.mark.parametrize("scene", [ENDS, GOES])
def test_without_the_right_to_scale_a_surge_is_not_ended_and_nobody_is_evicted_for_it(scene: Scene) -> None:
    plan = scene.but(capabilities=frozenset({Capability.MIGRATE, Capability.AUTOSCALERS})).plan()
    assert plan.moving == []
    assert Reason.MIGRATION_NOT_PERMITTED in {decision.reason for decision in plan.decisions}


def test_a_surge_that_somebody_else_has_undone_is_not_begun_again_at_once() -> None:
    begins = step(BEGINS)
    assert begins.reason is Reason.SURGE
    notes = after(begins, OutcomeKind.ACCEPTED)
    waits = BEGINS.but(notes=notes).decision("web-1-old")
    assert (waits.reason, waits.move, waits.due_at) == (
        Reason.SURGE_FAILED,
        None,
        NOW + POLICY.fallback.retry_after,
    )
    assert waits.detail.startswith("somebody else has set the number of replicas since the last surge began")
    # one that shows is gone on with, and one that shows its end counts from there
    going = BEGINS.but(pods=(surging(), newcomer(), filler()), workloads=web(2, surged()), notes=notes)
    assert step(going).reason is Reason.MIGRATE
    ended = BEGINS.but(workloads=web(scaled=surged(601, ScaleKind.BACK)), notes=notes)
    assert step(ended).reason is Reason.SURGE
    refused = after(begins, OutcomeKind.CONFLICT)
    assert step(BEGINS.but(notes=refused)).reason is Reason.SURGE


def test_what_is_over_is_forgotten() -> None:
    notes = after(step(BEGINS), OutcomeKind.ACCEPTED)
    assert len(notes.surges) == 1
    assert learn_moves(notes, [], {}, ago(-600)).surges == {}


@pytest.mark.parametrize("nodes", [(node(),), (node(), node("node-b", ready=False))])
def test_the_old_pod_stays_while_the_node_of_the_new_one_is_gone_or_not_ready(nodes: tuple[Node, ...]) -> None:
    going = BEGINS.but(pods=(surging(), newcomer(), filler()), workloads=web(2, surged()))
    assert step(going).reason is Reason.MIGRATE
    waits = going.but(nodes=nodes).decision("web-1-old")
    assert (waits.reason, waits.move) == (Reason.SURGING, None)
    assert waits.detail.startswith("web-1-new on node-b, a node that is gone or not ready")
