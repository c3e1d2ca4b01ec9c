"""Containers that end by themselves: what is not done to their pods meanwhile, and for how long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.core.actions import AskKind
from autoscaler.core.decide import decide
from autoscaler.core.model import Ask, Pod, Resource, Termination
from autoscaler.core.plan import Decision
from autoscaler.core.policy import Mode
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import Phase, phase_of
from tests.adapters.kubernetes.objects import capture, decoded
from tests.build import NOW, config, container, fixed, measurements, one, pod, policy, snapshot

MORE, LESS = fixed("800m", "2Gi"), fixed("200m", "512Mi")
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def ended(
    reason: str = "Error",
    ago: timedelta = MINUTE,
    lived: timedelta = MINUTE,
    asks: tuple[Ask, ...] = (),
    **changes: Any,
) -> Pod:
    """A pod whose container ended so long ago after so long a life, and runs again since a second later."""
    finished_at = NOW - ago
    last = Termination(reason, 137 if reason == "OOMKilled" else 3, finished_at, finished_at - lived)
    app: dict[str, Any] = {
        "restart_count": 4,
        "started_at": finished_at + timedelta(seconds=1),
        "last_terminated": last,
    }
    return pod(container(**{**app, **changes}), asks=asks)


def waiting(reason: str = "Error", **more: Any) -> Pod:
    return ended(reason, running=False, started_at=None, waiting="CrashLoopBackOff", **more)


def found(made: Pod, wants: Any = MORE, **changes: Any) -> Decision:
    return one(decide(snapshot(made), measurements([made]), config(policy(wants, **changes))))


@pytest.mark.parametrize("wants", [MORE, LESS])
def test_a_crash_loop_is_left_alone(wants: Any) -> None:
    held = found(ended(), wants)
    assert (held.reason, held.action) == (Reason.CRASH_LOOP, None)
    assert held.detail == (
        "container app has restarted 4 times, last after Error (exit code 3) at 2026-11-29T11:59:00+00:00; "
        "left alone until it has run for 10 minutes"
    )
    assert held.due_at == NOW + timedelta(minutes=9, seconds=1)
    held = found(waiting(), wants)
    assert (held.reason, held.action, held.due_at) == (Reason.CRASH_LOOP, None, None)
    assert held.detail.endswith("; the kubelet waits before it starts it again")


def test_it_is_over_when_the_container_has_run_for_long_enough() -> None:
    assert found(ended(ago=timedelta(minutes=10))).reason is Reason.CRASH_LOOP
    assert found(ended(ago=timedelta(minutes=10, seconds=1))).reason is Reason.INCREASE


@pytest.mark.parametrize(
    "made",
    [
        ended(lived=timedelta(minutes=10)),
        ended("OOMKilled"),
        ended(restart_on=frozenset({Resource.MEMORY}), asks=(Ask("bridge-autoscaler", NOW - 2 * MINUTE),)),
        ended(last_terminated=Termination("Error", 3, None)),
        ended(last_terminated=None),
        pod(container(running=True, started_at=NOW, waiting="", restart_count=0)),
    ],
)
def test_what_is_no_crash_loop_may_get_more(made: Pod) -> None:
    assert found(made).reason is Reason.INCREASE


def test_a_restart_by_a_resize_stays_explained_by_what_was_asked_for_next() -> None:
    """The next ask takes the place of the one that restarted the container, whose date is gone."""
    on_memory: dict[str, Any] = {"restart_on": frozenset({Resource.MEMORY}), "restart_count": 1}
    at = NOW - MINUTE / 2
    assert found(ended(asks=(Ask(AskKind.TARGET, at),), **on_memory)).reason is Reason.INCREASE
    for asks in ((Ask(AskKind.REVERT, at),), (Ask("kubectl", at - 2 * HOUR),)):
        assert found(ended(asks=asks, **on_memory)).reason is Reason.CRASH_LOOP
    assert found(ended(asks=(Ask(AskKind.TARGET, at),))).reason is Reason.CRASH_LOOP


def test_a_container_that_waits_for_another_reason_does_not_run() -> None:
    made = ended(running=False, waiting="ContainerCreating")
    assert found(made).reason is Reason.NOT_RUNNING
    restarts = (Ask("bridge-autoscaler", NOW - 2 * MINUTE),)
    made = waiting(restart_on=frozenset({Resource.CPU}), asks=restarts)
    assert found(made).reason is Reason.NOT_RUNNING


def test_a_replacement_in_a_crash_loop_is_a_replacement_that_does_not_get_ready() -> None:
    made = replace(waiting(), ready=False, created_at=NOW - HOUR)
    held = found(made, mode=Mode.RESIZE_OR_MIGRATE)
    assert held.reason is Reason.REPLACEMENT_NOT_READY
    assert "container app has restarted 4 times" in held.detail


# --- recovering


def test_nothing_is_lowered_right_after_a_restart() -> None:
    made = ended(lived=HOUR)
    held = found(made, LESS)
    assert (held.reason, held.action) == (Reason.RECOVERING, None)
    words = "restarted after Error (exit code 3) at 2026-11-29T11:59:00+00:00"
    assert held.detail == f"container app: cpu: {words}; container app: memory: {words}"
    assert held.due_at == NOW + timedelta(minutes=9)
    assert {step.name for step in held.proposals[0].trail if step.cap} == {"recovering"}
    assert found(ended(lived=HOUR, ago=timedelta(minutes=10)), LESS).reason is Reason.DECREASE


def test_memory_is_not_lowered_for_an_hour_after_an_oom_kill() -> None:
    def after(ago: timedelta) -> Decision:
        return found(ended("OOMKilled", ago, HOUR), LESS)

    early, later = after(timedelta(minutes=5)), after(timedelta(minutes=50))
    assert early.reason is Reason.RECOVERING
    assert (later.reason, later.detail) == (Reason.DECREASE, "app cpu 500m -> 200m")
    assert after(HOUR).detail == "app cpu 500m -> 200m, app memory 1Gi -> 512Mi"
    assert found(ended("OOMKilled"), fixed("500m", "2Gi")).detail == "app memory 1Gi -> 2Gi"


def test_a_pod_that_is_not_ready_may_get_more_and_not_less() -> None:
    made = replace(pod(), ready=False)
    held = found(made, LESS)
    assert (held.reason, held.due_at) == (Reason.RECOVERING, None)
    assert held.detail == "container app: cpu: the pod is not ready; container app: memory: the pod is not ready"
    assert found(made, MORE).reason is Reason.INCREASE
    mixed = found(made, fixed("800m", "512Mi"))
    assert mixed.detail == "app cpu 500m -> 800m"


def test_a_restart_that_a_resize_wants_is_no_reason() -> None:
    asks = (Ask("bridge-autoscaler", NOW - 2 * MINUTE),)
    made = ended("Completed", restart_on=frozenset({Resource.MEMORY}), asks=asks)
    assert found(made, LESS).reason is Reason.DECREASE
    assert found(replace(made, asks=()), LESS).reason is Reason.CRASH_LOOP
    killed = ended("OOMKilled", restart_on=frozenset({Resource.MEMORY}), asks=asks)
    assert found(killed, LESS).reason is Reason.RECOVERING


# --- as a real kubelet shows it


def test_captures_of_containers_that_ended() -> None:
    killed, loops, resized = (
        decoded(capture(name)) for name in ("g-oom-pod", "g-back-off-pod", "g-back-off-resized-pod")
    )
    (app,) = killed.containers
    assert app.running
    assert app.last_terminated is not None
    assert (app.last_terminated.reason, app.last_terminated.exit_code, app.restart_count) == ("OOMKilled", 137, 1)
    assert app.last_terminated.started_at is not None
    (app,) = loops.containers
    assert (app.running, app.waiting, app.restart_count) == (False, "CrashLoopBackOff", 2)
    # what was asked for in the back-off counts as done at once, although nothing runs
    assert phase_of(resized).phase is Phase.SETTLED
    (app,) = resized.containers
    assert (app.waiting, app.actual) == ("CrashLoopBackOff", app.spec)
