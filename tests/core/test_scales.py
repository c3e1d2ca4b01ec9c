"""Scales that did not come about, or that somebody else undid: nothing is evicted or begun again and again for them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

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
STARTING = newcomer(ready=False)
SETTLED = surging(conditions=(), asks=(), generation=1, containers=newcomer().containers)
ENDS = BEGINS.but(pods=(SETTLED, newcomer(), filler(cpu="1")), workloads=web(2, surged()))
"""All pods are ready: the newest is evicted, so that its successor may go."""
GOES = ENDS.but(pods=(SETTLED, STARTING, filler(cpu="1")))
"""The successor is starting: the number goes back."""


def step(scene: Scene) -> Decision:
    (decision,) = scene.plan().moving
    return decision


def after(decision: Decision, kind: OutcomeKind) -> Notes:
    return learn_moves(Notes(), [(decision, Outcome(kind, "why"))], {POLICY.name: POLICY}, NOW)


@pytest.mark.parametrize("kind", sorted(set(OutcomeKind) - {OutcomeKind.ACCEPTED}))
def test_no_second_pod_is_evicted_for_a_scale_that_does_not_follow(kind: OutcomeKind) -> None:
    assert isinstance(step(ENDS).move, Evict)
    back = step(GOES)
    assert isinstance(back.move, Scale)
    notes = after(back, kind)
    waits = ENDS.but(notes=notes).plan()
    assert waits.moving == []
    assert f"the scale did not follow: {kind}: why" in {d.reason: d.detail for d in waits.decisions}[Reason.SURGING]
    # the scale itself is tried as soon as it may be, and the eviction once the pods of the workload are old enough
    assert step(GOES.but(notes=replace(notes, moves={}))).move == back.move
    late = NOW + POLICY.fallback.migration.min_pod_age
    assert notes.last_scale(web(2)[0], ScaleKind.BACK, late - timedelta(seconds=1)) is not None
    assert notes.last_scale(web(2)[0], ScaleKind.BACK, late) is None


def test_a_scale_that_has_followed_keeps_nothing() -> None:
    assert after(step(GOES), OutcomeKind.ACCEPTED).scales == {}


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
    assert len(notes.scales) == 1
    assert learn_moves(notes, [], {}, ago(-600)).scales == {}


@pytest.mark.parametrize("nodes", [(node(),), (node(), node("node-b", ready=False))])
def test_the_old_pod_stays_while_the_node_of_the_new_one_is_gone_or_not_ready(nodes: tuple[Node, ...]) -> None:
    going = BEGINS.but(pods=(surging(), newcomer(), filler()), workloads=web(2, surged()))
    assert step(going).reason is Reason.MIGRATE
    waits = going.but(nodes=nodes).decision("web-1-old")
    assert (waits.reason, waits.move) == (Reason.SURGING, None)
    assert waits.detail.startswith("web-1-new on node-b, a node that is gone or not ready")
