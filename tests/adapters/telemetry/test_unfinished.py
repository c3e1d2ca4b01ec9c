"""Resizes that are not over, as /metrics shows them."""

from __future__ import annotations

from datetime import timedelta

from prometheus_client import CollectorRegistry, generate_latest

from autoscaler.adapters.telemetry.unfinished import UnfinishedResizes
from autoscaler.core.decide import decide
from autoscaler.core.model import Ask, Condition, Pod
from autoscaler.ports import Turn, Wake, WakeKind
from tests.build import NOW, both, config, container, measurements, pod, snapshot

DEFERRED = Condition("PodResizePending", "True", "Deferred", "no room", 2)


def turn(*pods: Pod, kind: WakeKind = WakeKind.TICK) -> Turn:
    return Turn(1, Wake(kind), timedelta(), decide(snapshot(*pods), measurements(pods), config()))


def shown(journal: UnfinishedResizes) -> list[str]:
    registry = CollectorRegistry()
    registry.register(journal)
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def waiting() -> Pod:
    """RSZ-10: spec 4 cores, of which 2 are in force."""
    has = both("2", "4Gi")
    app = container(both("4", "4Gi"), allocated=has.requests, actual=has)
    asked = (Ask("bridge-autoscaler", NOW - timedelta(seconds=10)),)
    return pod(app, generation=2, observed_generation=2, conditions=(DEFERRED,), asks=asked)


def test_what_is_asked_for_and_what_is_in_force_are_two_series() -> None:
    journal = UnfinishedResizes()
    journal.record(turn(waiting(), pod(name="settled")))
    lines = shown(journal)
    assert 'bridge_autoscaler_unfinished_resizes{phase="Deferred"} 1.0' in lines
    assert 'bridge_autoscaler_unfinished_resizes{phase="Error"} 0.0' in lines
    where = 'namespace="bridge",pod="sim-0",resource="cpu",side="request"'
    name = "bridge_autoscaler_unfinished_resize_amount"
    assert f'{name}{{container="app",{where},state="asked"}} 4.0' in lines
    assert f'{name}{{container="app",{where},state="in_force"}} 2.0' in lines
    assert any(line.startswith("bridge_autoscaler_unfinished_resize_due_timestamp_seconds{") for line in lines)
    assert not any("settled" in line for line in lines)


def test_a_pod_that_has_settled_or_gone_is_shown_no_more() -> None:
    journal = UnfinishedResizes()
    journal.record(turn(waiting()))
    journal.record(turn(pod(name="other"), kind=WakeKind.CHANGED))
    assert any("sim-0" in line for line in shown(journal))
    journal.record(turn(pod(), kind=WakeKind.CHANGED))
    assert not any("sim-0" in line for line in shown(journal))
    journal.record(turn(waiting()))
    journal.record(turn(pod(name="other")))
    assert not any("sim-0" in line for line in shown(journal))
