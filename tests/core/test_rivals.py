"""Others who set sizes: other autoscalers, other writers, quota systems, and pods of the system."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.core.actions import AskKind
from autoscaler.core.decide import decide
from autoscaler.core.model import Ask, Autoscaler, Condition, Pod, Resource, ScaledResource
from autoscaler.core.plan import Decision
from autoscaler.core.policy import ByDirection, Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.rivals import NO_CLAIMS, Rivals
from autoscaler.core.trail import sentence
from tests.build import (
    FREE,
    GUARANTEED,
    NOW,
    config,
    container,
    fixed,
    measurements,
    one,
    pod,
    policy,
    sidecar,
    snapshot,
)

BUSY = fixed("800m", "1536Mi")
VPA = Autoscaler("VerticalPodAutoscaler", "bridge", "vpa", "StatefulSet/sim", mode="Recreate")
HPA = Autoscaler(
    "HorizontalPodAutoscaler", "bridge", "web", "StatefulSet/sim", frozenset({ScaledResource(Resource.CPU)})
)
PATIENT = policy(BUSY, stability=replace(FREE, other_writer_hold=timedelta(hours=1)))


def decided(sized: Pod, *autoscalers: Autoscaler, rule: Policy | None = None) -> Decision:
    cluster = replace(snapshot(sized), autoscalers=autoscalers)
    return one(decide(cluster, measurements([sized]), config(rule or policy(BUSY))))


def hpa(*resources: tuple[Resource, str | None]) -> Autoscaler:
    return replace(HPA, resources=frozenset(ScaledResource(*each) for each in resources))


def sent(decision: Decision) -> set[tuple[str, str]]:
    """Container and resource of each request that is asked for."""
    containers = decision.action.containers if decision.action else ()
    return {(c.name, str(r)) for c in containers for r in Resource if c.change.requests.get(r) is not None}


# --- other autoscalers


@pytest.mark.parametrize("mode", ["Auto", "Recreate", "Initial", "InPlaceOrRecreate", "SomethingNew"])
def test_a_vertical_one_that_is_not_off_holds_the_pod(mode: str) -> None:
    found = decided(pod(), replace(VPA, mode=mode))
    assert (found.reason, found.action) == (Reason.OTHER_AUTOSCALER, None)
    assert found.detail == f"VerticalPodAutoscaler bridge/vpa with updateMode {mode} targets StatefulSet/sim"


@pytest.mark.parametrize(
    "other",
    [
        replace(VPA, mode="Off"),
        replace(VPA, namespace="elsewhere"),
        replace(VPA, target="Deployment/sim"),
        replace(VPA, target=""),
    ],
)
def test_one_that_only_recommends_or_is_about_other_pods_does_not(other: Autoscaler) -> None:
    assert decided(pod(), other).reason is Reason.INCREASE


def test_a_pod_without_an_owner_is_nobodys() -> None:
    assert decided(pod(workload=None), replace(VPA, target="")).reason is Reason.INCREASE


def test_what_a_horizontal_one_scales_on_is_left_alone_and_the_other_resource_sized() -> None:
    found = decided(pod(), HPA)
    assert (found.reason, found.detail) == (Reason.INCREASE, "app memory 1Gi -> 1536Mi")
    assert sent(found) == {("app", "memory")}
    (proposal,) = found.proposals
    assert proposal.proposed.limits.cpu == proposal.container.spec.limits.cpu
    assert "cpu: hpa keeps 500m instead of 800m (HorizontalPodAutoscaler bridge/web scales on its utilisation)" in [
        sentence(step) for step in proposal.trail
    ]


def test_the_qos_class_of_a_guaranteed_pod_stays_when_one_resource_is_left_alone() -> None:
    found = decided(pod(container(GUARANTEED)), HPA)
    assert sent(found) == {("app", "memory")}
    (proposal,) = found.proposals
    assert proposal.proposed.requests == proposal.proposed.limits


def test_a_metric_of_one_container_is_about_that_container() -> None:
    found = decided(pod(sidecar(), container()), hpa((Resource.CPU, "app")))
    assert sent(found) == {("app", "memory"), ("proxy", "cpu"), ("proxy", "memory")}


def test_nothing_is_left_to_size() -> None:
    found = decided(pod(), hpa((Resource.CPU, None), (Resource.MEMORY, None)))
    assert (found.reason, found.action) == (Reason.LEFT_TO_HPA, None)
    words = "HorizontalPodAutoscaler bridge/web scales on its utilisation"
    assert found.detail == f"container app: cpu: {words}; container app: memory: {words}"


def test_a_pod_at_its_target_is_that_first() -> None:
    assert decided(pod(), HPA, rule=policy(fixed("500m", "1Gi"))).reason is Reason.AT_TARGET


def test_a_horizontal_one_without_utilisation_claims_nothing() -> None:
    assert Rivals(replace(snapshot(pod()), autoscalers=(hpa(),))).claims(pod()) is NO_CLAIMS
    assert decided(pod(), hpa()).reason is Reason.INCREASE


# --- other writers


def asked(manager: str, ago: timedelta, *older: Ask) -> Pod:
    return pod(asks=(*older, Ask(manager, NOW - ago)))


def test_a_pod_that_someone_else_resized_is_left_to_them_for_an_hour() -> None:
    found = decided(asked("kubectl-patch", timedelta(minutes=20)), rule=PATIENT)
    assert (found.reason, found.action) == (Reason.OTHER_WRITER, None)
    assert found.due_at == NOW + timedelta(minutes=40)
    assert found.detail == (
        "kubectl-patch asked for a size at 2026-11-29T11:40:00+00:00; left to it until 2026-11-29T12:40:00+00:00"
    )


def test_after_that_it_is_sized_again() -> None:
    assert decided(asked("kubectl-patch", timedelta(hours=1)), rule=PATIENT).reason is Reason.INCREASE


@pytest.mark.parametrize("manager", list(AskKind))
def test_our_own_asks_are_nobody_elses(manager: str) -> None:
    assert decided(asked(manager, timedelta(minutes=20)), rule=PATIENT).reason is Reason.INCREASE


def test_only_the_newest_ask_counts() -> None:
    theirs = Ask("kubectl-patch", NOW - timedelta(minutes=30))
    assert decided(asked("bridge-autoscaler", timedelta(minutes=20), theirs), rule=PATIENT).reason is Reason.INCREASE


def test_someone_elses_unfinished_resize_is_theirs_too() -> None:
    waiting = (Condition("PodResizePending", "True", "Deferred", "no room"),)
    pending = replace(asked("kubectl-patch", timedelta(minutes=20)), conditions=waiting)
    assert decided(pending, rule=PATIENT).reason is Reason.OTHER_WRITER


def test_the_hold_is_the_policys() -> None:
    short = policy(BUSY, stability=replace(FREE, other_writer_hold=timedelta(minutes=5)))
    assert decided(asked("kubectl-patch", timedelta(minutes=4)), rule=short).reason is Reason.OTHER_WRITER
    assert decided(asked("kubectl-patch", timedelta(minutes=6)), rule=short).reason is Reason.INCREASE


# --- quota systems and pods of the system


@pytest.mark.parametrize("changes", [{}, {"node": None, "phase": "Pending"}])
def test_a_gated_pod_is_held(changes: dict[str, Any]) -> None:
    found = decided(pod(gated="label kueue.x-k8s.io/queue-name", **changes))
    assert (found.reason, found.detail, found.action) == (Reason.GATED, "label kueue.x-k8s.io/queue-name", None)


@pytest.mark.parametrize(
    ("priority", "reason"),
    [(1_999_999_999, Reason.INCREASE), (2_000_000_000, Reason.CRITICAL_POD), (2_000_001_000, Reason.CRITICAL_POD)],
)
def test_a_pod_of_the_system_is_held(priority: int, reason: Reason) -> None:
    assert decided(pod(priority=priority)).reason is reason


def test_a_cooldown_is_not_another_writer() -> None:
    cooling = policy(
        BUSY,
        stability=replace(PATIENT.stability, cooldown=ByDirection(timedelta(minutes=30), timedelta(minutes=30))),
    )
    assert decided(asked("bridge-autoscaler", timedelta(minutes=20)), rule=cooling).reason is Reason.COOLDOWN
