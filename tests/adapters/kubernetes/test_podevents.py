"""Which events a turn becomes, by value."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from autoscaler.adapters.kubernetes.podevents import OUTCOMES, PodEvent
from autoscaler.core.actions import AskKind, Evict, Outcome, OutcomeKind, Scale, ScaleKind
from autoscaler.core.model import Container, WorkloadRef
from autoscaler.core.plan import Check, Decision, MigrationReport, PredictedOutcome, Prediction, Proposal, resize_of
from autoscaler.core.policy import Strategy
from autoscaler.core.reasons import Reason
from autoscaler.ports import Done
from tests.build import NOW, container, pod, sidecar, sizes

GROWN = sizes("800m", "1Gi", "1600m", "2Gi")
POD = pod(sidecar(), container())


def proposals(*changed: str) -> tuple[Proposal, ...]:
    return tuple(Proposal(c, GROWN if c.name in changed else c.spec) for c in POD.containers)


def decision(*changed: str, reason: Reason = Reason.INCREASE, detail: str = "app cpu 500m -> 800m") -> Decision:
    made = proposals(*changed)
    action = resize_of(POD, made) if changed else None
    return Decision(POD, "bridges", reason, detail, made, action, Prediction(PredictedOutcome.IN_PLACE))


def done(kind: OutcomeKind, detail: str = "", cause: str = "") -> Done:
    return Done(decision("app"), Outcome(kind, detail, cause), timedelta(0))


def test_what_is_asked_is_told_from_what_is_in_force() -> None:
    event = PodEvent.asked(done(OutcomeKind.ACCEPTED), NOW)
    assert (event.type, event.reason, event.action) == ("Normal", "Increase", "Resize")
    assert event.note == (
        "app: cpu 500m -> 800m (limit 1 -> 1600m). The pod needs more than it has. Expected: InPlace."
    )


def test_a_limit_that_moves_alone_and_several_containers_are_told() -> None:
    limits = sizes("500m", "1Gi", "2", "2Gi")
    made = (Proposal(POD.containers[0], GROWN), Proposal(POD.containers[1], limits))
    event = PodEvent.asked(replace(done(OutcomeKind.ACCEPTED), decision=replace(decision("app"), proposals=made)), NOW)
    assert event.note.startswith("proxy: cpu 500m -> 800m (limit 1 -> 1600m), app: cpu limit 1 -> 2. ")


def test_what_is_in_force_may_differ_from_the_spec() -> None:
    pending: Container = replace(container(), spec=sizes("2", "1Gi", "4", "2Gi"))
    made = replace(decision("app"), proposals=(Proposal(pending, GROWN),))
    event = PodEvent.asked(replace(done(OutcomeKind.ACCEPTED), decision=made), NOW)
    assert event.note.startswith("app: cpu 500m -> 800m (limit 1 -> 1600m). ")


def test_a_revert_is_told_from_what_was_asked_for_and_with_what_made_it_be_given_up() -> None:
    kept = sizes("500m", "1Gi", "1", "2Gi")
    pending = replace(container(), spec=GROWN, allocated=kept.requests, actual=kept)
    made = (Proposal(pending, kept),)
    why = "called off: 3 sessions; waited for until 12:00"
    reverted = replace(
        decision(reason=Reason.REVERT, detail=why), proposals=made, action=resize_of(POD, made, AskKind.REVERT)
    )
    event = PodEvent.asked(replace(done(OutcomeKind.ACCEPTED), decision=reverted), NOW)
    assert event.note == (
        f"app: cpu 800m -> 500m (limit 1600m -> 1). {why}. {Reason.REVERT.meaning} Expected: InPlace."
    )
    other = PodEvent.asked(replace(done(OutcomeKind.ACCEPTED), decision=replace(reverted, detail="no room")), NOW)
    assert other.key != event.key


def test_a_refusal_has_the_servers_words() -> None:
    event = PodEvent.answered(done(OutcomeKind.REFUSED, "maximum cpu usage per Pod is 1", "LimitRange"), NOW)
    assert (event.type, event.reason) == ("Warning", "Refused")
    assert event.note == ("Increase (app cpu 500m -> 800m) was not done as asked: maximum cpu usage per Pod is 1")


def test_a_hold_says_why_and_what_to_do() -> None:
    event = PodEvent.held(decision(reason=Reason.AMBIGUOUS_POLICY, detail="selected by one and two"), NOW)
    assert (event.type, event.reason, event.action) == ("Warning", "AmbiguousPolicy", "Hold")
    assert event.note == (
        "selected by one and two. More than one policy selects this pod. "
        "Narrow one of the selectors that the detail names, until one policy is left."
    )
    assert PodEvent.held(decision(reason=Reason.DECREASE, detail=""), NOW).note == Reason.DECREASE.meaning


def test_outcomes_that_pass_by_themselves_are_no_event() -> None:
    passing = {OutcomeKind.SUPERSEDED, OutcomeKind.CONFLICT, OutcomeKind.GONE, OutcomeKind.THROTTLED}
    # the hold that follows tells of it, see below
    assert set(OutcomeKind) - set(OUTCOMES) == passing | {OutcomeKind.BLOCKED}


DETAIL = "to node-b, node-c; OutOfcpu for 30 s"
CUT = Check("sessions", Reason.DRAINING, True, "3 sessions; maxWait is over, and thenForce is set")


def moved(*landing: str, kind: OutcomeKind = OutcomeKind.ACCEPTED, detail: str = "", cause: str = "") -> Done:
    made = replace(
        decision("app", reason=Reason.MIGRATE, detail=DETAIL),
        action=None,
        migration=MigrationReport(Strategy.EVICT, NOW, (), landing),
        move=Evict(POD.ref, POD.uid, "7", landing),
    )
    return Done(made, Outcome(kind, detail, cause), timedelta(0), move=True)


def test_a_move_is_told_with_its_landing_and_the_sizes() -> None:
    event = OUTCOMES[OutcomeKind.ACCEPTED](moved("node-b", "node-c"), NOW)
    assert (event.type, event.reason, event.action, event.uid) == ("Normal", "Migrate", "Migrate", POD.uid)
    assert event.note == (
        "app: cpu 500m -> 800m (limit 1 -> 1600m), to node-b, node-c; OutOfcpu for 30 s. "
        "The resize has waited past its deadline, and everything that a move needs was proved: the pod is evicted."
    )


def test_a_pod_that_was_asked_for_its_size_long_ago_is_moved_for_that_size() -> None:
    kept = sizes("500m", "1Gi", "1", "2Gi")
    pending = replace(container(), spec=GROWN, allocated=kept.requests, actual=kept)
    step = replace(moved(), decision=replace(moved().decision, proposals=(Proposal(pending, GROWN),)))
    assert PodEvent.done(step, NOW).note.startswith(f"app: cpu 500m -> 800m (limit 1 -> 1600m), {DETAIL}. ")


def test_a_move_says_what_became_of_the_sessions() -> None:
    step = moved("node-b")
    report = MigrationReport(Strategy.EVICT, NOW, (CUT,), ("node-b",))
    cut = replace(step, decision=replace(step.decision, migration=report))
    assert f" for 30 s. {CUT.detail}. The resize " in PodEvent.done(cut, NOW).note
    # the sessions of another pod: that of a surge which is ended
    back = replace(cut, decision=replace(cut.decision, reason=Reason.SURGE_BACK))
    assert CUT.detail not in PodEvent.done(back, NOW).note


def test_each_step_of_a_surge_is_told() -> None:
    for kind, reason in ((ScaleKind.SURGE, Reason.SURGE), (ScaleKind.BACK, Reason.SURGE_BACK)):
        scale = Scale(WorkloadRef("bridge", "Deployment/sim"), "uid", "7", 2, kind, POD.ref)
        step = replace(moved(), decision=replace(moved().decision, reason=reason, move=scale, proposals=()))
        event = OUTCOMES[OutcomeKind.ACCEPTED](step, NOW)
        assert (event.type, event.reason, event.note) == ("Normal", str(reason), f"{DETAIL}. {reason.meaning}")


def test_a_move_that_is_refused_has_the_servers_words() -> None:
    event = OUTCOMES[OutcomeKind.FORBIDDEN](
        moved(kind=OutcomeKind.FORBIDDEN, detail="cannot create pods/eviction"), NOW
    )
    assert (event.type, event.reason, event.action) == ("Warning", "Forbidden", "Migrate")
    assert event.note == f"Migrate ({DETAIL}) was not done as asked: cannot create pods/eviction"


def test_a_blocked_eviction_is_told_as_the_hold_that_follows_and_is_the_same_each_time() -> None:
    def held(allowed: int) -> PodEvent:
        return PodEvent.held(decision(reason=Reason.EVICTION_BLOCKED, detail=f"sim allows {allowed} of 1"), NOW)

    assert Reason.EVICTION_BLOCKED.notify
    assert held(0).note.startswith("sim allows 0 of 1. A PodDisruptionBudget does not allow the eviction now. ")
    assert held(0).key == held(1).key


def test_the_same_with_other_numbers_is_the_same() -> None:
    def held(detail: str, uid: str = POD.uid) -> PodEvent:
        made = decision(reason=Reason.RESIZE_DEFERRED, detail=detail)
        return PodEvent.held(replace(made, pod=replace(POD, uid=uid)), NOW)

    words = "Node didn't have enough resource: {}, requested: {}, used: {}"
    first = held(words.format("cpu", 1200, 1400))
    assert first.key == held(words.format("cpu", 1300, 99)).key
    assert first.key != held(words.format("memory", 1200, 1400)).key
    assert first.key != held(words.format("cpu", 1200, 1400), "another").key


def test_the_name_is_the_same_within_the_hour_and_fits() -> None:
    long = replace(POD, name="a" * 229 + "-" + "b" * 23)
    event = PodEvent.held(replace(decision(reason=Reason.QOS_WOULD_CHANGE), pod=long), NOW)

    def name(at: timedelta) -> str:
        found: str = replace(event, at=NOW + at).body("here")["metadata"]["name"]
        return found

    assert name(timedelta(0)) == name(timedelta(minutes=59))
    assert name(timedelta(0)) != name(timedelta(minutes=60))
    assert len(name(timedelta(0))) <= 253
    assert "-." not in name(timedelta(0))


def test_the_body_is_an_event_on_the_pod() -> None:
    body = PodEvent.asked(done(OutcomeKind.ACCEPTED), NOW).body("host-1")
    assert body["metadata"]["namespace"] == "bridge"
    assert body["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "bridge",
        "name": "sim-0",
        "uid": "uid-sim-0",
    }
    assert body["eventTime"] == "2026-11-29T12:00:00.000000Z"
    assert (body["reportingController"], body["reportingInstance"]) == ("bridge-autoscaler", "host-1")


def test_a_note_is_cut_to_what_the_api_takes() -> None:
    event = PodEvent.held(decision(reason=Reason.RESIZE_DEFERRED, detail="ä" * 2000), NOW)
    assert len(event.note.encode()) <= 1024
    assert event.note.endswith("ä...")
