"""Where a pod's last resize stands."""

from __future__ import annotations

from datetime import timedelta

import pytest

from autoscaler.core.model import Ask, Condition, Container, Pod
from autoscaler.core.resize import IN_PROGRESS, PENDING, Phase, PhaseReport, phase_of
from tests.adapters.kubernetes.objects import capture, decoded
from tests.build import BURSTABLE, NOW, amounts, container, init, pod, sizes

ASKED = Ask("bridge-autoscaler", NOW - timedelta(seconds=10))
SMALLER = sizes("250m", "512Mi", "500m", "1Gi")


def condition(kind: str, reason: str = "", status: str = "True", generation: int = 2) -> Condition:
    return Condition(kind, status, reason, f"about {reason or 'nothing'}", generation)


def asked(*conditions: Condition, deleting: bool = False) -> Pod:
    """A pod of generation 2 that the kubelet has seen, with these conditions."""
    return pod(conditions=conditions, generation=2, observed_generation=2, asks=(ASKED,), deleting=deleting)


@pytest.mark.parametrize(
    ("conditions", "phase"),
    [
        ((), Phase.SETTLED),
        ((condition(PENDING, "Deferred"),), Phase.DEFERRED),
        ((condition(PENDING, "Infeasible"),), Phase.INFEASIBLE),
        ((condition(PENDING, "Gated"),), Phase.UNKNOWN),
        ((condition(PENDING),), Phase.UNKNOWN),
        ((condition(IN_PROGRESS),), Phase.IN_PROGRESS),
        ((condition(IN_PROGRESS, "Error"),), Phase.ERROR),
        ((condition(IN_PROGRESS, "Thinking"),), Phase.UNKNOWN),
        # status False counts as absent
        ((condition(PENDING, "Deferred", "False"),), Phase.SETTLED),
        ((condition(PENDING, "Gated", "False"),), Phase.SETTLED),
        ((condition(IN_PROGRESS, "Error", "False"),), Phase.SETTLED),
        ((condition(PENDING, "Deferred", "Unknown"),), Phase.SETTLED),
        # a pending condition of an older generation is about an ask that has been replaced; progress is not
        ((condition(PENDING, "Deferred", generation=1),), Phase.SETTLED),
        ((condition(PENDING, "Gated", generation=1),), Phase.SETTLED),
        ((condition(IN_PROGRESS, generation=1),), Phase.IN_PROGRESS),
        ((condition(IN_PROGRESS, "Error", generation=1),), Phase.ERROR),
        # 0: a kubelet of 1.33 does not say
        ((condition(PENDING, "Deferred", generation=0),), Phase.DEFERRED),
        ((condition(PENDING, "Deferred", generation=3),), Phase.DEFERRED),
        # V054: both at once
        ((condition(IN_PROGRESS), condition(PENDING, "Deferred")), Phase.DEFERRED),
        ((condition(IN_PROGRESS, "Error"), condition(PENDING, "Infeasible")), Phase.INFEASIBLE),
        ((condition(IN_PROGRESS, "Thinking"), condition(PENDING, "Deferred")), Phase.UNKNOWN),
        ((condition(IN_PROGRESS), condition(PENDING, "Deferred", "False")), Phase.IN_PROGRESS),
        ((condition("Ready"),), Phase.SETTLED),
    ],
)
def test_phase_by_conditions(conditions: tuple[Condition, ...], phase: Phase) -> None:
    assert phase_of(asked(*conditions)).phase is phase


def test_an_unknown_reason_is_told_in_full() -> None:
    assert "PodResizePending with reason Gated: about Gated" in phase_of(asked(condition(PENDING, "Gated"))).detail
    assert "reason none" in phase_of(asked(condition(PENDING))).detail


def test_deleting_comes_first() -> None:
    report = phase_of(asked(condition(PENDING, "Gated"), deleting=True))
    assert report == PhaseReport(Phase.DELETING, since=ASKED.at)


@pytest.mark.parametrize(
    ("observed", "one", "phase"),
    [
        (2, container(), Phase.SETTLED),
        (0, container(), Phase.SETTLED),
        (1, container(), Phase.PROPOSED),
        (3, container(), Phase.SETTLED),
        (0, container(allocated=SMALLER.requests), Phase.PROPOSED),
        (2, container(allocated=SMALLER.requests), Phase.PROPOSED),
        (2, container(actual=SMALLER), Phase.PROPOSED),
        (2, container(actual=sizes("500m", "1Gi", "1", "1Gi")), Phase.PROPOSED),
        # what is read back from a cgroup may be 10m off
        (2, container(actual=sizes("505m", "1Gi", "1010m", "2Gi")), Phase.SETTLED),
        (2, container(actual=sizes("500m", "1Gi", "1011m", "2Gi")), Phase.PROPOSED),
        (2, container(allocated=amounts("505m", "1Gi")), Phase.PROPOSED),
        (2, container(actual=sizes("500m", "1073741825", "1", "2Gi")), Phase.PROPOSED),
        # what is not reported is not compared
        (2, container(allocated=None, actual=None), Phase.SETTLED),
        (2, container(actual=sizes("500m")), Phase.SETTLED),
        # a container that does not run is judged by what is allocated
        (2, container(actual=SMALLER, running=False), Phase.SETTLED),
        (2, container(actual=SMALLER, running=False, allocated=SMALLER.requests), Phase.PROPOSED),
        (2, init(BURSTABLE, actual=SMALLER), Phase.SETTLED),
        (2, init(BURSTABLE, actual=SMALLER, running=True), Phase.SETTLED),
        (2, init(BURSTABLE, allocated=SMALLER.requests), Phase.PROPOSED),
    ],
)
def test_settled_means_spec_allocated_and_actual_agree(observed: int, one: Container, phase: Phase) -> None:
    report = phase_of(pod(one, generation=2, observed_generation=observed))
    assert report.phase is phase
    assert bool(report.detail) is (phase is Phase.PROPOSED)


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("a-patch-response", Phase.PROPOSED),
        ("a-pod", Phase.SETTLED),
        ("b-pod", Phase.SETTLED),
        ("b-deferred-pod", Phase.DEFERRED),
        ("d-pod", Phase.SETTLED),
        ("d-error-pod", Phase.ERROR),
        ("e-infeasible-cpu", Phase.INFEASIBLE),
        ("f-pod", Phase.SETTLED),
    ],
)
def test_captures_of_a_real_kubelet(name: str, phase: Phase) -> None:
    item = capture(name)
    report = phase_of(decoded(item))
    assert report.phase is phase
    messages = [one["message"] for one in item["status"]["conditions"] if one["type"].startswith("PodResize")]
    if messages:
        assert report.detail == messages[0]
    assert report.since is None or report.since.isoformat().startswith("2026-11-29T14:5")


def test_the_newest_ask_counts_whoever_asked() -> None:
    older, newer = Ask("bridge-autoscaler", NOW - timedelta(hours=1)), Ask("kubectl", NOW)
    assert phase_of(pod(asks=(newer, older))).since == NOW
    assert phase_of(pod()).since is None
