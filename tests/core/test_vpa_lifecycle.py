"""What triggers a resize, and what becomes of it: cases of the Vertical Pod Autoscaler (VPA), as in test_vpa_cases."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from autoscaler.core.actions import AskKind
from autoscaler.core.decide import decide
from autoscaler.core.model import Ask, Condition, Pod, Resource, ResourceList, Resources
from autoscaler.core.notes import Notes, learn
from autoscaler.core.pairing import Blocked, Wish, pair, qos_class
from autoscaler.core.plan import Decision
from autoscaler.core.policy import ByDirection, ContainerPolicy, Fallback, FallbackAction, LimitMode, Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Abstain
from autoscaler.core.resize import IN_PROGRESS, PENDING, Phase, phase_of
from tests.build import (
    FREE,
    NOW,
    amounts,
    config,
    container,
    fixed,
    history,
    measurements,
    one,
    pod,
    policy,
    sizes,
    snapshot,
)

GROUPS = ("D6-in-place-decision", "D6-beyond-vpa", "D7-trigger", "D7-direction-rule")

DIFFERENT = {
    **dict.fromkeys(("V046a", "V046b", "V047", "V048"), "a resize that restarts nothing spends no budget of replicas"),
    "V052a": "an Infeasible resize is waited for as long as fallback.infeasibleAfter says",
    "V063": "a recommender answers with one target, without bounds around it",
    **dict.fromkeys(("V065", "V066"), "each amount is compared with its own container's, not with the sum of the pod"),
    "V070": "pods come in the order of a kubelet: priority, QoS class, time waited",
}
ELSEWHERE = {
    "V060": "a resize that is not over is followed and not sized anew; then the size in force is the spec's",
    **dict.fromkeys(("V068a", "V068b", "V069"), "nothing depends on the age of a pod; an OOM kill is a recommender's"),
    **dict.fromkeys(
        ("V071a", "V071b", "V071c", "V072a", "V072b", "V073a", "V073b", "V074"),
        "rules for migrations: nothing is migrated",
    ),
}
TESTED = {
    *("V049a", "V049b", "V050a", "V050b", "V051a", "V051b", "V052b", "V053a", "V053b", "V053c", "V053d", "V053e"),
    *("V054", "V055", "V056", "V057", "V058", "V059", "V061", "V062", "V064", "V067a", "V067b", "V067c"),
}

HAS = sizes("100m", "128Mi")
LAST = sizes("200m", "512Mi")
MIGRATE = Fallback(after=timedelta(seconds=300), action=FallbackAction.MIGRATE, fit=False)


def decided(sized: Pod, made: Policy, notes: Notes | None = None) -> Decision:
    return one(decide(snapshot(sized), measurements([sized]), config(made), notes=notes or Notes()))


def pending(reason: str, since_s: float) -> Pod:
    app = container(LAST, allocated=HAS.requests, actual=HAS)
    asks = (Ask(AskKind.TARGET, NOW - timedelta(seconds=since_s)),)
    condition = Condition(PENDING, "True", reason, "no", 2)
    return replace(pod(app, generation=2, observed_generation=2), conditions=(condition,), asks=asks)


@pytest.mark.parametrize(("restart_on", "at_most"), [((), 5), ((Resource.CPU,), 1)], ids=["V049a", "V049b"])
def test_only_what_restarts_spends_the_budget(restart_on: tuple[Resource, ...], at_most: int) -> None:
    second = container(HAS, "second", restart_on=frozenset(restart_on))
    pods = [pod(container(HAS), second, name=f"sim-{i}", workload="StatefulSet/sim") for i in range(5)]
    plan = decide(snapshot(*pods), measurements(pods), config(policy(fixed("200m", None))))
    assert len(plan.acting) == at_most


def test_v050_what_does_not_run_or_has_no_recommendation_waits() -> None:
    assert decided(pod(container(HAS), phase="Pending"), policy(fixed("1", None))).reason is Reason.NOT_RUNNING
    sized = pod(container(HAS))
    measured = measurements([sized], history(state=Abstain("1 of 30 samples", insufficient_history=True)))
    silent = one(decide(snapshot(sized), measured, config(policy())))
    assert (silent.action, silent.reason) == (None, Reason.INSUFFICIENT_HISTORY)


@pytest.mark.parametrize(
    ("reason", "since_s", "held"),
    [
        pytest.param("Deferred", 0, Reason.RESIZE_DEFERRED, id="V051a"),
        pytest.param("Deferred", 600, Reason.MIGRATION_NOT_ENABLED, id="V051b"),
        pytest.param("Infeasible", 0, Reason.RESIZE_INFEASIBLE, id="V052b"),
    ],
)
def test_what_is_pending_is_waited_for_until_its_deadline(reason: str, since_s: float, held: Reason) -> None:
    crowded = pod(container(sizes("16", "1Gi")), name="neighbour", labels={"other": "yes"})
    waits = pending(reason, since_s)
    made = policy(fixed("200m", "512Mi"), fallback=MIGRATE)
    decision = one(decide(snapshot(waits, crowded), measurements([waits]), config(made)))
    assert (decision.action, decision.reason) == (None, held)


@pytest.mark.parametrize(
    ("cpu", "memory", "asked"),
    [
        pytest.param("200m", "512Mi", False, id="V053a"),
        pytest.param("300m", "1Gi", False, id="V053b"),
        pytest.param("100m", "512Mi", True, id="V053c"),
        pytest.param("200m", "256Mi", True, id="V053d"),
        pytest.param("100m", "1Gi", True, id="V053e"),
    ],
)
def test_what_was_infeasible_is_asked_again_with_less_of_anything(cpu: str, memory: str, asked: bool) -> None:
    notes = learn(Notes(), [pending("Infeasible", 1)], (), {}, NOW)
    assert (decided(pod(container(HAS)), policy(fixed(cpu, memory)), notes).action is not None) is asked


def test_v054_pending_outranks_in_progress() -> None:
    progress = Condition(IN_PROGRESS, "True")
    waits = pending("Deferred", 1)
    assert phase_of(replace(waits, conditions=(progress, *waits.conditions))).phase is Phase.DEFERRED


def test_v055_what_is_known_of_a_pod_goes_with_its_uid() -> None:
    notes = learn(Notes(), [pending("Infeasible", 1)], (), {}, NOW)
    assert notes.refusals
    assert not learn(notes, [pod(container(HAS), uid="u2")], (), {}, NOW).refusals


def test_v056_a_burstable_pod_stays_one() -> None:
    sized = pod(container(sizes("100m", "100Mi", "200m", "200Mi")))
    paired = pair(sized, {"app": Wish(amounts("300m", "300Mi"), LimitMode.REQUESTS_ONLY)})
    assert not isinstance(paired, Blocked)
    assert paired[0]["app"].requests == amounts("199m", "200Mi")
    assert qos_class(sized, paired[0]) is sized.qos_class


def test_v057_a_kept_ratio_is_rounded_up() -> None:
    paired = pair(pod(container(sizes("100m", None, "105m"))), {"app": Wish(amounts("11m", None))})
    assert not isinstance(paired, Blocked)
    assert paired[0]["app"] == sizes("11m", None, "12m")


def test_v058_each_wait_has_a_clock_of_its_own() -> None:
    """Deferred for two minutes, resolved, and Deferred again eight hours later."""
    asks = tuple(Ask(AskKind.TARGET, NOW - timedelta(hours=hours)) for hours in (8, 0))
    decision = decided(
        replace(pending("Infeasible", 0), asks=asks), policy(fallback=replace(MIGRATE, infeasible_after=MIGRATE.after))
    )
    assert decision.due_at == NOW + timedelta(seconds=300)


def test_v059_what_is_pending_is_not_sent_again() -> None:
    made = policy(fixed("200m", "512Mi"), fallback=MIGRATE)
    assert all(decided(pending("Deferred", since_s), made).action is None for since_s in range(0, 300, 30))


@pytest.mark.parametrize(
    ("has", "target", "reason"),
    [
        pytest.param(sizes("2", "1Gi"), ("2", None), Reason.AT_TARGET, id="V061"),
        pytest.param(sizes("10m", "1Gi"), ("900m", None), Reason.INCREASE, id="V062"),
        pytest.param(sizes("4", "10Mi"), ("2", "20Mi"), Reason.REBALANCE, id="V064"),
    ],
)
def test_what_triggers_a_resize(has: Resources, target: tuple[str, str | None], reason: Reason) -> None:
    assert decided(pod(container(has)), policy(fixed(*target))).reason is reason


@pytest.mark.parametrize(
    ("target", "highest", "reason"),
    [
        pytest.param("5", None, Reason.CHANGE_TOO_SMALL, id="V067a"),
        pytest.param("12", None, Reason.INCREASE, id="V067b"),
        pytest.param("5", "3", Reason.DECREASE, id="V067c"),
    ],
)
def test_a_small_change_is_made_only_where_the_size_is_outside_its_bounds(
    target: str, highest: str | None, reason: Reason
) -> None:
    entry = ContainerPolicy(max_allowed=ResourceList() if highest is None else amounts(highest, None))
    rules = replace(FREE, min_change=ByDirection(0.5, 0.5))
    sized = pod(container(sizes("4", "1Gi")))
    made = policy(fixed(target, None), containers=(entry,), stability=rules)
    assert decided(sized, made).reason is reason


def test_every_case_is_tested_or_explained(shared: Path) -> None:
    with (shared / "cases" / "vpa-cases.csv").open(newline="") as file:
        rows = {row["id"] for row in csv.DictReader(file) if row["group"] in GROUPS}
    assert rows == TESTED | DIFFERENT.keys() | ELSEWHERE.keys()
