"""What an unfinished resize calls for: wait, fit, give up; read from the pod alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from autoscaler.core.actions import AskKind, Outcome, OutcomeKind, Resize
from autoscaler.core.decide import decide
from autoscaler.core.ladder import PHASES
from autoscaler.core.model import Ask, Condition, Container, Pod, QoSClass, Resource, Resources
from autoscaler.core.notes import Notes, learn
from autoscaler.core.plan import Decision, PredictedOutcome
from autoscaler.core.policy import Fallback, FallbackAction, Mode, Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import IN_PROGRESS, PENDING, Phase
from tests.build import (
    NOW,
    amounts,
    both,
    config,
    container,
    fixed,
    measurements,
    node,
    one,
    pod,
    policy,
    sizes,
    snapshot,
    specs,
)

AFTER = timedelta(seconds=40)
WANTED, HAS = both("4", "8Gi"), both("2", "4Gi")
DEFERRED = "Node didn't have enough resource: cpu, requested: 4000, used: 13000, capacity: 16000"


def condition(kind: str, reason: str = "", message: str = "why") -> Condition:
    return Condition(kind, "True", reason, message, 2)


def waiting(
    *conditions: Condition,
    age: float,
    spec: Resources = WANTED,
    has: Resources = HAS,
    manager: str = AskKind.TARGET,
    **changes: Any,
) -> Pod:
    """A pod that was asked to grow `age` seconds ago; its node has granted nothing yet."""
    app = container(spec, allocated=has.requests, actual=has)
    asks = (Ask(manager, NOW - timedelta(seconds=age)),)
    return replace(
        pod(app, generation=2, observed_generation=2, conditions=conditions, asks=asks, qos_class=QoSClass.GUARANTEED),
        **changes,
    )


def neighbour(cpu: str, memory: str = "1Gi") -> Pod:
    return pod(container(both(cpu, memory)), name="neighbour", labels={"other": "yes"})


def decided(waits: Pod, *others: Pod, at: datetime = NOW, notes: Notes | None = None, **changes: Any) -> Decision:
    made = bridges(**changes)
    plan = decide(snapshot(waits, *others, at=at), measurements((waits, *others)), config(made), notes=notes or Notes())
    return one(plan)


def bridges(fallback: Fallback | None = None, **changes: Any) -> Policy:
    return policy(
        changes.pop("recommender", fixed("4", "8Gi")),
        fallback=fallback or Fallback(after=AFTER, infeasible_after=AFTER, fit=False),
        **changes,
    )


def asked(decision: Decision) -> Resize:
    assert decision.action is not None
    return decision.action


@pytest.mark.parametrize(
    ("conditions", "reason", "patience"),
    [
        ((condition(PENDING, "Deferred"),), Reason.RESIZE_DEFERRED, AFTER),
        ((condition(PENDING, "Infeasible"),), Reason.RESIZE_INFEASIBLE, AFTER),
        ((condition(IN_PROGRESS, "Error"),), Reason.RESIZE_ERROR, timedelta(minutes=10)),
        ((condition(IN_PROGRESS),), Reason.RESIZE_IN_PROGRESS, timedelta(minutes=2)),
        ((), Reason.RESIZE_PROPOSED, timedelta(seconds=30)),
        ((condition(PENDING, "Gated"),), Reason.RESIZE_UNKNOWN, None),
    ],
)
def test_a_phase_is_waited_for_until_its_deadline(
    conditions: tuple[Condition, ...], reason: Reason, patience: timedelta | None
) -> None:
    decision = decided(waiting(*conditions, age=10), neighbour("13"))
    assert (decision.reason, decision.action) == (reason, None)
    assert decision.due_at == (None if patience is None else NOW - timedelta(seconds=10) + patience)


@pytest.mark.parametrize(
    ("conditions", "age", "reason"),
    [
        ((condition(IN_PROGRESS),), 120, Reason.RESIZE_STALLED),
        ((), 30, Reason.KUBELET_SILENT),
        ((condition(PENDING, "Gated"),), 1e6, Reason.RESIZE_UNKNOWN),
    ],
)
def test_what_the_kubelet_is_busy_with_is_left_to_it_however_long(
    conditions: tuple[Condition, ...], age: float, reason: Reason
) -> None:
    decision = decided(waiting(*conditions, age=age))
    assert (decision.reason, decision.action) == (reason, None)


@pytest.mark.parametrize("reason", ["Deferred", "Infeasible"])
def test_a_resize_past_its_deadline_is_given_up_and_the_spec_goes_back(reason: str) -> None:
    """RSZ-06: a pending ask would reserve room on the node for as long as the pod lives."""
    waits = waiting(condition(PENDING, reason, DEFERRED), age=40)
    decision = decided(waits)
    assert decision.reason is Reason.REVERT
    assert DEFERRED in decision.detail
    resize = asked(decision)
    assert resize.kind is AskKind.REVERT
    assert [change.change for change in resize.containers] == [HAS]


def test_room_that_a_kubelet_does_not_see_is_waited_for_without_asking_again() -> None:
    """RSZ-05: the same values again would be no change; the deadline runs on from the ask."""
    waits = waiting(condition(PENDING, "Deferred", DEFERRED), age=20)
    decision = decided(waits, neighbour("12"), fallback=FIT)
    assert (decision.reason, decision.action) == (Reason.KUBELET_NOT_RETRYING, None)
    assert decision.due_at == NOW + timedelta(seconds=20)
    assert decided(waits, neighbour("12"), at=NOW + timedelta(seconds=20)).reason is Reason.REVERT


def test_a_deadline_is_kept_while_a_container_is_not_running() -> None:
    """One that crashes again and again would put it off for ever."""
    crashed = container(WANTED, allocated=HAS.requests, actual=HAS, running=False)
    waits = replace(waiting(condition(PENDING, "Deferred"), age=40), containers=(crashed,))
    assert asked(decided(waits)).kind is AskKind.REVERT
    settled = pod(replace(crashed, spec=HAS))
    assert decided(settled).reason is Reason.NOT_RUNNING


def test_nothing_is_asked_when_there_is_nothing_to_give_up() -> None:
    waits = waiting(condition(PENDING, "Deferred", DEFERRED), age=40, spec=HAS)
    decision = decided(waits, neighbour("15"))
    assert (decision.reason, decision.action) == (Reason.RESIZE_DEFERRED, None)


def test_what_a_node_can_no_longer_allocate_is_not_put_back() -> None:
    """The server refuses a pod that is larger than its node, even if the node has granted it before."""
    waits = waiting(condition(PENDING, "Deferred", DEFERRED), age=40)
    small = snapshot(waits, nodes=[node(cpu="1900m")])
    decision = one(decide(small, measurements([waits]), config(bridges())))
    assert (decision.reason, decision.action) == (Reason.EXCEEDS_NODE, None)


def test_an_ask_that_follows_a_refused_decrease_goes_back_to_what_is_allocated() -> None:
    """Limits in status are still those before the decrease: a Guaranteed pod needs the ones that go with it."""
    app = container(WANTED, allocated=amounts("2", "1Gi"), actual=HAS)
    waits = replace(waiting(condition(PENDING, "Deferred"), age=40), containers=(app,))
    (change,) = asked(decided(waits)).containers
    assert change.change == both("2", "1Gi")


def test_a_revert_of_a_refused_decrease_that_waits_for_room_is_not_turned_back() -> None:
    """Others have taken the memory that the decrease gave up: to ask for the decrease again would be refused again."""
    has = both("2", "8Gi")
    app = container(has, allocated=amounts("2", "4Gi"), actual=has)
    conditions = (condition(PENDING, "Deferred"), condition(IN_PROGRESS, "Error"))
    waits = replace(waiting(*conditions, age=60, manager=AskKind.REVERT), containers=(app,))
    held = decided(waits, neighbour("1", "60Gi"))
    assert (held.reason, held.action) == (Reason.RESIZE_DEFERRED, None)
    # what someone asked for after the Error goes back all the same
    other = replace(waits, asks=(Ask(AskKind.TARGET, NOW - timedelta(seconds=60)),))
    assert asked(decided(other, neighbour("1", "60Gi"))).kind is AskKind.REVERT


def test_no_request_goes_back_above_its_limit() -> None:
    """What is allocated may be larger than what is in force: the server would refuse the pair."""
    has = sizes("1", "2Gi", "2", "4Gi")
    app = container(sizes("1", "4Gi", "2", "4Gi"), allocated=amounts("3", "1Gi"), actual=has)
    waits = replace(waiting(condition(PENDING, "Deferred"), age=40, qos_class=QoSClass.BURSTABLE), containers=(app,))
    (change,) = asked(decided(waits)).containers
    assert change.change == sizes("3", "1Gi", "3")


def test_a_refused_decrease_goes_back_to_what_is_in_force_not_to_what_is_allocated() -> None:
    """`allocatedResources` already shows the refused decrease: mixing both would break a Guaranteed pod."""
    app = container(both("2", "1Gi"), allocated=amounts("2", "1Gi"), actual=HAS)
    waits = replace(waiting(condition(IN_PROGRESS, "Error"), age=600), containers=(app,))
    resize = asked(decided(waits))
    assert resize.kind is AskKind.REVERT
    assert [change.change for change in resize.containers] == [both(None, "4Gi")]


def test_absent_fields_stay_absent_when_a_resize_is_given_up() -> None:
    spec, has = sizes("4", "8Gi", None, "16Gi"), sizes("2", "4Gi", None, "8Gi")
    waits = waiting(condition(PENDING, "Deferred"), age=40, spec=spec, has=has, qos_class=QoSClass.BURSTABLE)
    (change,) = asked(decided(waits)).containers
    assert change.change == has


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (FallbackAction.HOLD, Reason.DEADLINE_PASSED),
        (FallbackAction.MIGRATE, Reason.MIGRATION_NOT_ENABLED),
    ],
)
def test_other_fallbacks_keep_the_ask(action: FallbackAction, reason: Reason) -> None:
    waits = waiting(condition(PENDING, "Deferred"), age=41)
    decision = decided(waits, fallback=Fallback(after=AFTER, action=action, fit=False))
    assert (decision.reason, decision.action) == (reason, None)


def test_one_clock_runs_on_when_deferred_and_infeasible_alternate() -> None:
    """MIG-02: only a new ask starts a new clock; the moment of the condition plays no part."""
    for reason in ("Deferred", "Infeasible", "Deferred"):
        flipped = replace(condition(PENDING, reason), last_transition_at=NOW)
        assert decided(waiting(flipped, age=39)).action is None
        assert decided(waiting(flipped, age=40)).reason is Reason.REVERT


def test_an_old_episode_shortens_nothing() -> None:
    """ACC-02: Deferred at 00:00, applied at 00:02, Deferred again at 08:00 with a deadline of 5 minutes."""
    long = Fallback(after=timedelta(minutes=5), fit=False)
    waits = replace(
        waiting(condition(PENDING, "Deferred"), age=299),
        asks=(Ask(AskKind.TARGET, NOW - timedelta(hours=8)), Ask(AskKind.TARGET, NOW - timedelta(seconds=299))),
    )
    assert decided(waits, fallback=long).due_at == NOW + timedelta(seconds=1)
    assert decided(waits, fallback=long, at=NOW + timedelta(seconds=1)).reason is Reason.REVERT


def test_in_mode_recommend_nothing_is_given_up() -> None:
    decision = decided(waiting(condition(PENDING, "Deferred"), age=40), mode=Mode.RECOMMEND)
    assert (decision.reason, decision.action) == (Reason.RECOMMEND_ONLY, None)
    assert specs(decision.pod)["app"] != decision.proposals[0].proposed


# fit: 16 cores and 64Gi on the node, of which the neighbour has most; the pod has 2 cores and wants 4

FIT = Fallback(after=AFTER, infeasible_after=AFTER, fit=True)


def test_half_way_as_much_is_asked_as_there_is_room_for() -> None:
    waits = waiting(condition(PENDING, "Deferred"), age=20)
    decision = decided(waits, neighbour("13"), fallback=FIT)
    assert (decision.reason, decision.prediction.outcome) == (Reason.FIT, PredictedOutcome.IN_PLACE)
    resize = asked(decision)
    assert resize.kind is AskKind.FIT
    assert [change.change for change in resize.containers] == [both("3", None)]  # memory has room for all of it


def test_before_half_way_it_waits_for_that_moment() -> None:
    decision = decided(waiting(condition(PENDING, "Deferred"), age=19), neighbour("13"), fallback=FIT)
    assert (decision.action, decision.due_at) == (None, NOW + timedelta(seconds=1))


@pytest.mark.parametrize("taken", ["14", "13.95"])
def test_a_gain_that_is_none_is_not_asked_for(taken: str) -> None:
    rules = replace(policy().stability, min_change=replace(policy().stability.min_change, increase=0.05))
    waits = waiting(condition(PENDING, "Deferred"), age=20)
    decision = decided(waits, neighbour(taken, "60Gi"), fallback=FIT, stability=rules)
    assert (decision.action, decision.due_at) == (None, NOW + timedelta(seconds=20))


def test_room_is_shared_in_proportion_to_what_is_missing() -> None:
    def grows(name: str, cpu: str, to: str) -> Container:
        return container(sizes(to, "1Gi"), name, allocated=amounts(cpu, "1Gi"), actual=sizes(cpu, "1Gi"))

    waits = replace(
        waiting(condition(PENDING, "Deferred"), age=20, qos_class=QoSClass.BURSTABLE),
        containers=(grows("a", "1", "4"), grows("b", "1", "2")),
    )
    resize = asked(decided(waits, neighbour("12"), fallback=FIT))
    assert {c.name: c.change.requests.cpu for c in resize.containers} == {"a": 2500, "b": 1500}


def test_limits_follow_a_fit_by_their_ratio() -> None:
    spec, has = sizes("4", "1Gi", "8", "2Gi"), sizes("2", "1Gi", "4", "2Gi")
    waits = waiting(condition(PENDING, "Deferred"), age=20, spec=spec, has=has, qos_class=QoSClass.BURSTABLE)
    (change,) = asked(decided(waits, neighbour("13"), fallback=FIT)).containers
    assert change.change == sizes("3", None, "6", None)


def test_the_full_target_follows_a_fit_without_a_cooldown() -> None:
    settled = replace(
        pod(container(both("3", "8Gi"))),
        asks=(Ask(AskKind.FIT, NOW - timedelta(seconds=1)),),
    )
    cooling = replace(policy().stability, cooldown=replace(policy().stability.cooldown, increase=timedelta(hours=1)))
    assert asked(decided(settled, neighbour("13"), stability=cooling)).kind is AskKind.REST
    other = replace(settled, asks=(Ask(AskKind.TARGET, NOW - timedelta(seconds=1)),))
    assert decided(other, neighbour("13"), stability=cooling).reason is Reason.COOLDOWN


@pytest.mark.parametrize("manager", [AskKind.FIT, AskKind.REST])
def test_a_wait_is_prolonged_by_one_fit_however_often_a_little_room_appears(manager: AskKind) -> None:
    waits = waiting(condition(PENDING, "Deferred"), age=20, manager=manager)
    held = decided(waits, neighbour("13"), fallback=FIT)
    assert (held.reason, held.action, held.due_at) == (Reason.RESIZE_DEFERRED, None, NOW + timedelta(seconds=20))


def test_an_increase_long_after_a_fit_is_a_wait_of_its_own() -> None:
    settled = replace(pod(container(both("3", "8Gi"))), asks=(Ask(AskKind.FIT, NOW - AFTER),))
    assert asked(decided(settled, neighbour("13"))).kind is AskKind.TARGET


# after giving up


def given_up(age: float) -> Pod:
    return pod(container(HAS), asks=(Ask(AskKind.REVERT, NOW - timedelta(seconds=age)),))


def test_what_was_given_up_is_not_asked_again_before_its_time() -> None:
    decision = decided(given_up(60), neighbour("13"))
    assert (decision.reason, decision.action) == (Reason.RETRY_LATER, None)
    assert decision.due_at == NOW + timedelta(minutes=9)
    assert asked(decided(given_up(600), neighbour("13"))).kind is AskKind.TARGET


def test_room_that_appears_ends_the_wait() -> None:
    assert asked(decided(given_up(60), neighbour("12"))).kind is AskKind.TARGET


# what is learned from refusals


def noted(waits: Pod, *done: tuple[Decision, Outcome], known: Notes | None = None) -> Notes:
    return learn(known or Notes(), (waits,), done, {"bridges": bridges()}, NOW)


def test_the_same_or_a_larger_ask_is_not_sent_to_a_node_that_called_it_infeasible() -> None:
    notes = noted(waiting(condition(PENDING, "Infeasible", "swap"), age=1))
    back = given_up(60)
    notes = noted(back, known=notes)
    decision = decided(back, notes=notes)
    assert (decision.reason, decision.action) == (Reason.RESIZE_INFEASIBLE, None)
    assert "swap" in decision.detail
    assert decided(back, notes=notes, recommender=fixed("5", "8Gi")).reason is Reason.RESIZE_INFEASIBLE
    # V053: less of either is another ask
    assert asked(decided(back, notes=notes, recommender=fixed("3", "8Gi")))
    # another node has not said so, and after a restart it may be asked once more
    moved = replace(back, node="node-b")
    plan = decide(snapshot(moved, nodes=[node("node-b")]), measurements((moved,)), config(bridges()), notes=notes)
    assert one(plan).action is not None
    assert asked(decided(back))


def test_a_refusal_is_not_forgotten_over_another() -> None:
    """Neither over one of a larger ask, nor over one that holds for a while only."""
    small = waiting(condition(PENDING, "Infeasible", "swap"), age=1, spec=both("3", "8Gi"))
    large = waiting(condition(PENDING, "Infeasible", "swap"), age=1, spec=both("5", "8Gi"))
    back = given_up(60)
    wanted = decided(back, recommender=fixed("3", "8Gi"))
    for later in (noted(large, known=noted(small)), noted(small, known=noted(large))):
        notes = noted(back, (wanted, Outcome(OutcomeKind.THROTTLED, "slow down")), known=later)
        for cpu in ("3", "4", "5"):
            found = decided(back, notes=notes, at=NOW + timedelta(minutes=2), recommender=fixed(cpu, "8Gi"))
            assert found.reason is Reason.RESIZE_INFEASIBLE
        assert asked(decided(back, notes=notes, at=NOW + timedelta(minutes=2), recommender=fixed("2500m", "8Gi")))


def test_a_static_cpu_manager_is_recognised_by_the_kubelets_words() -> None:
    """RSZ-04: known for the node, for every Guaranteed pod on it; memory and Burstable pods are still resized."""
    words = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
    notes = noted(waiting(condition(PENDING, "Infeasible", words), age=1))
    assert notes.static == {"node-a": {Resource.CPU}}
    other = pod(container(HAS))
    decision = decided(other, notes=notes, recommender=fixed("4", "4Gi"))
    assert (decision.reason, decision.action) == (Reason.STATIC_MANAGER, None)
    assert decision.prediction.outcome is PredictedOutcome.INFEASIBLE
    assert words in decision.detail
    assert asked(decided(other, notes=notes, recommender=fixed("2", "8Gi")))
    burstable = pod(container(sizes("2", "4Gi", "4", "8Gi")), uid="another")
    assert asked(decided(burstable, notes=notes))
    assert noted(other, known=notes).static
    assert not noted(replace(other, node="node-b"), known=notes).static


def test_what_a_static_manager_lets_change_is_asked_for_without_the_rest() -> None:
    """A Guaranteed pod gets its memory, however long it wants CPU that it cannot get there."""
    words = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
    notes = noted(waiting(condition(PENDING, "Infeasible", words), age=1))
    decision = decided(pod(container(HAS)), notes=notes)
    (app,) = asked(decision).containers
    assert app.change == both(memory="8Gi")
    assert decision.prediction.outcome is PredictedOutcome.IN_PLACE
    assert decision.detail == f"app memory 4Gi -> 8Gi; {words}"


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("NodeCapacity", Reason.EXCEEDS_NODE),
        ("LimitRange", Reason.LIMIT_RANGE),
        ("ResourceQuota", Reason.RESOURCE_QUOTA),
        ("AdmissionPolicy", Reason.ADMISSION_DENIED),
        ("AdmissionWebhook", Reason.ADMISSION_DENIED),
        ("NodeFeatures", Reason.RESIZE_UNSUPPORTED),
        ("Forbidden", Reason.REFUSED),
    ],
)
def test_what_the_server_refuses_is_named_and_not_repeated_for_a_while(cause: str, reason: Reason) -> None:
    settled = pod(container(HAS))
    wanted = decided(settled)
    short = {"bridges": bridges(Fallback(retry_after=timedelta(minutes=2)))}
    done = [(wanted, Outcome(OutcomeKind.REFUSED, "no", cause))]
    notes = learn(Notes(), (settled,), done, short, NOW)
    decision = decided(settled, notes=notes)
    assert (decision.reason, decision.action) == (reason, None)
    assert decision.due_at == NOW + timedelta(minutes=2)
    assert asked(decided(settled, notes=notes, at=NOW + timedelta(minutes=2)))
    assert asked(decided(settled, notes=notes, recommender=fixed("3", "8Gi")))


def test_a_revert_that_the_server_refuses_is_named_and_not_sent_with_every_turn() -> None:
    """A LimitRange that appeared in the meantime may forbid the size in force."""
    waits = waiting(condition(PENDING, "Deferred"), age=60)
    revert = decided(waits)
    assert asked(revert).kind is AskKind.REVERT
    notes = noted(waits, (revert, Outcome(OutcomeKind.REFUSED, "minimum is 3", "LimitRange")))
    held = decided(waits, notes=notes)
    again_at = NOW + bridges().fallback.retry_after
    assert (held.reason, held.action, held.due_at) == (Reason.LIMIT_RANGE, None, again_at)
    assert "Revert was refused before: minimum is 3" in held.detail
    assert asked(decided(waits, notes=notes, at=again_at)).kind is AskKind.REVERT
    # it says nothing about larger sizes, once the pod has settled at one
    grown = replace(waits, containers=(container(WANTED),), conditions=())
    assert asked(decided(grown, notes=notes, recommender=fixed("3", "8Gi"))).kind is AskKind.TARGET


def test_a_revert_of_what_a_static_manager_calls_infeasible_is_sent() -> None:
    """The larger size that the pod has is not the one that was refused."""
    waits = waiting(condition(PENDING, "Infeasible", "static"), age=60, spec=both("1", "2Gi"))
    assert asked(decided(waits, notes=noted(waits))).kind is AskKind.REVERT


def test_a_fit_that_the_server_refuses_moves_no_deadline() -> None:
    fallback = Fallback(after=AFTER, fit=True)
    waits = waiting(condition(PENDING, "Deferred"), age=25)
    fit = decided(waits, neighbour("13"), fallback=fallback)
    assert (asked(fit).kind, fit.due_at) == (AskKind.FIT, NOW + timedelta(seconds=15))
    notes = noted(waits, (fit, Outcome(OutcomeKind.REFUSED, "no", "ResourceQuota")))
    held = decided(waits, neighbour("13"), notes=notes, fallback=fallback)
    assert (held.reason, held.action) == (Reason.RESIZE_DEFERRED, None)
    assert held.due_at == NOW + timedelta(seconds=15)
    later = decided(waits, neighbour("13"), notes=notes, fallback=fallback, at=NOW + timedelta(seconds=15))
    assert asked(later).kind is AskKind.REVERT


def test_a_refusal_that_passes_by_itself_is_waited_for_as_long_as_it_says() -> None:
    settled = pod(container(HAS))
    starting = Outcome(OutcomeKind.REFUSED, "not yet ready to handle request", "NotReady", retry_after_s=10)
    notes = noted(settled, (decided(settled), starting))
    assert decided(settled, notes=notes).due_at == NOW + timedelta(seconds=10)
    assert asked(decided(settled, notes=notes, at=NOW + timedelta(seconds=10)))


def test_a_decrease_that_the_server_refuses_holds_back_no_increase() -> None:
    """A minimum of a LimitRange, and then the load rises."""
    settled = pod(container(HAS))
    smaller = decided(settled, recommender=fixed("500m", "4Gi"))
    notes = noted(settled, (smaller, Outcome(OutcomeKind.REFUSED, "minimum is 1", "LimitRange")))
    for cpu in ("500m", "400m"):
        assert decided(settled, notes=notes, recommender=fixed(cpu, "4Gi")).reason is Reason.LIMIT_RANGE
    for cpu in ("600m", "4"):
        assert asked(decided(settled, notes=notes, recommender=fixed(cpu, "4Gi")))


def test_what_admission_makes_another_size_of_is_not_asked_again_after_each_cooldown() -> None:
    settled = pod(container(HAS))
    altered = Outcome(OutcomeKind.ALTERED, "admission changes the resize: app.requests.cpu: 3 stored, 4 asked")
    short = {"bridges": bridges(Fallback(retry_after=timedelta(minutes=2)))}
    notes = learn(Notes(), (settled,), [(decided(settled), altered)], short, NOW)
    stored = pod(container(both("3", "8Gi")))
    assert decided(stored, notes=notes).reason is Reason.ADMISSION_DENIED
    assert asked(decided(stored, notes=notes, at=NOW + timedelta(minutes=2)))


def test_what_is_known_of_a_pod_goes_with_the_pod() -> None:
    notes = noted(waiting(condition(PENDING, "Infeasible"), age=1))
    assert notes.refusals
    assert not noted(pod(name="another", uid="other"), known=notes).refusals


def test_passing_troubles_are_not_refusals() -> None:
    settled = pod(container(HAS))
    for kind in OutcomeKind:
        if kind not in (OutcomeKind.REFUSED, OutcomeKind.ALTERED, OutcomeKind.THROTTLED):
            assert not noted(settled, (decided(settled), Outcome(kind))).refusals


def test_a_server_that_asks_to_wait_is_not_asked_before() -> None:
    settled = pod(container(HAS))
    notes = noted(settled, (decided(settled), Outcome(OutcomeKind.THROTTLED, "slow down", retry_after_s=7)))
    decision = decided(settled, notes=notes)
    assert (decision.reason, decision.due_at) == (Reason.THROTTLED, NOW + timedelta(seconds=7))
    assert asked(decided(settled, notes=notes, at=NOW + timedelta(seconds=7)))


def test_the_table_has_every_phase_in_order_of_precedence() -> None:
    assert sorted(PHASES, key=list(Phase).index) == [phase for phase in Phase if phase is not Phase.SETTLED]
