"""Which pods are looked at, and on which a resize is tried."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from autoscaler.core.history import ContainerRef
from autoscaler.core.model import Condition, Pod, Problem
from autoscaler.core.policy import Config, Mode, Policy, Selector
from autoscaler.core.problems import Trouble
from autoscaler.diagnosis import selection
from autoscaler.diagnosis.findings import Status
from autoscaler.recommenders.percentile import Percentile, PercentileParameters
from tests.cli.plans import POD

STARTED = datetime(2026, 11, 29, 11, tzinfo=UTC)
RUNNING = replace(
    POD, containers=tuple(replace(one, running=True, started_at=STARTED) for one in POD.containers), conditions=()
)
OTHER = replace(RUNNING, name="bridge-1", uid="other")


def policy(name: str, mode: Mode = Mode.RESIZE) -> Policy:
    return Policy(name, Percentile(PercentileParameters()), Selector(), mode, source=f"{name}.yaml:1")


def test_pods_of_two_policies_are_of_neither() -> None:
    config = Config((policy("one"), policy("two")))
    found = selection.select([RUNNING, OTHER], config)
    assert found.of == {"one": (), "two": ()}
    assert found.started == {}
    findings = list(selection.pods(found, config.policies, [Problem("pod x", Trouble.UNREADABLE, "odd")]))
    assert [one.status for one in findings] == [Status.WARNING, Status.WARNING, Status.ERROR, Status.WARNING]
    assert findings[2].detail == (
        "2 pods left alone, as two policies select them: sim/bridge-0 (one and two), sim/bridge-1 (one and two)"
    )
    assert "one.yaml:1" in findings[0].remedy


def test_only_what_is_sized_and_runs_has_to_be_measured() -> None:
    found = selection.select([RUNNING], Config((policy("one"),)))
    assert set(found.started) == {ContainerRef("sim", "bridge-0", one.name) for one in policy("one").sized(RUNNING)}
    assert set(found.started.values()) == {STARTED}
    assert not selection.select([RUNNING], Config((policy("one", Mode.OFF),))).started
    ended = replace(RUNNING, phase="Succeeded")
    assert selection.select([ended], Config((policy("one"),))).of == {"one": ()}
    assert not selection.select([RUNNING], Config((policy("one"),), frozenset({"elsewhere"}))).nodes


def test_a_resize_is_tried_on_a_pod_that_could_be_sized() -> None:
    config = Config((policy("one"),))

    def tried(*pods: Pod) -> str | None:
        pod = selection.trial(selection.select(pods, config), config.policies)
        return None if pod is None else pod.name

    pending = replace(RUNNING, conditions=(Condition("PodResizePending", "True", "Deferred"),))
    assert tried(RUNNING, OTHER) == "bridge-0"
    assert tried(pending, OTHER) == "bridge-1"
    assert tried(replace(RUNNING, deleting=True), OTHER) == "bridge-1"
    assert tried(replace(RUNNING, phase="Pending")) is None
    assert tried() is None
