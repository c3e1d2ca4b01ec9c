"""Every decision, and the reason it has. A test at the end sees to it that no reason is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.decide import decide, select
from autoscaler.core.history import ContainerRef, Gap, History, Measurements
from autoscaler.core.labels import LabelSelector, Operator, Requirement
from autoscaler.core.model import (
    Ask,
    Autoscaler,
    ClusterSnapshot,
    Condition,
    Container,
    ContainerKind,
    Pod,
    PodRef,
    Problem,
    QoSClass,
    Resource,
    Resources,
    ScaledResource,
)
from autoscaler.core.plan import Decision, Plan, PredictedOutcome
from autoscaler.core.policy import (
    ByDirection,
    Config,
    ContainerPolicy,
    LimitMode,
    Mode,
    Policy,
    Selector,
    Stability,
)
from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Abstain, Grid, Step, Target
from autoscaler.core.trail import sentence
from tests.build import (
    FREE,
    GUARANTEED,
    NOW,
    Fixed,
    amounts,
    both,
    config,
    container,
    fixed,
    history,
    init,
    measurements,
    node,
    one,
    pod,
    policy,
    sidecar,
    sizes,
    snapshot,
    target,
)
from tests.core.migrations import SHOWN_IN_TESTS_OF_MIGRATIONS

DEFAULT = Stability()
GROW = fixed("800m", "1Gi")


def decided(
    sized: Pod,
    *policies: Policy,
    measured: History | Gap | None = None,
    settings_: Config | None = None,
    nodes: list[str] | None = None,
) -> Decision:
    """The decision about one pod on its own."""
    cluster = snapshot(sized, nodes=None if nodes is None else [node(cpu=each) for each in nodes])
    return one(decide(cluster, measurements([sized], measured), settings_ or config(*policies or (policy(GROW),))))


def beside(autoscaler: Autoscaler) -> Decision:
    """The decision about a pod beside an autoscaler of someone else."""
    cluster = replace(snapshot(pod()), autoscalers=(autoscaler,))
    return one(decide(cluster, measurements([pod()]), config(policy(GROW))))


def resizing(reason: str, kind: str = "PodResizePending") -> Pod:
    return pod(conditions=(Condition(kind, "True", reason, "words of the kubelet"),))


ASK = Ask("bridge-autoscaler", NOW - timedelta(seconds=20))
PROPOSED = pod(container(allocated=amounts("400m", "1Gi")), asks=(ASK,))
COOLING = policy(GROW, stability=replace(FREE, cooldown=ByDirection(timedelta(minutes=1), timedelta(minutes=10))))


def _reason(name: Reason, decision: Callable[[], Decision], detail: str) -> object:
    return pytest.param(name, decision, detail, id=str(name))


ON_THE_LADDER = {
    Reason.FIT,
    Reason.REVERT,
    Reason.DEADLINE_PASSED,
    Reason.MIGRATION_NOT_ENABLED,
    Reason.RETRY_LATER,
    Reason.KUBELET_NOT_RETRYING,
    Reason.RESIZE_STALLED,
    Reason.STATIC_MANAGER,
    Reason.LIMIT_RANGE,
    Reason.RESOURCE_QUOTA,
    Reason.ADMISSION_DENIED,
    Reason.THROTTLED,
    Reason.REFUSED,
}
"""Shown in test_ladder.py."""

OF_MEMORY_LIMITS = {
    Reason.PAGE_CACHE_ABOVE_TARGET,
    Reason.MEMORY_USE_UNKNOWN,
    Reason.MEMORY_DECREASE_UNSUPPORTED,
}
"""Shown in test_decreases.py."""

OF_RESTARTS = {Reason.CRASH_LOOP, Reason.RECOVERING, Reason.NODE_NOT_READY}
"""Shown in test_restarts.py and test_away.py."""

IN_BUDGETS = {Reason.NODE_FULL, Reason.WORKLOAD_BUSY, Reason.DISRUPTION_BUDGET, Reason.UNEXPLAINED_RESTART}
"""Shown in test_budgets.py."""

CASES = [
    _reason(Reason.INCREASE, lambda: decided(pod()), "app cpu 500m -> 800m"),
    _reason(
        Reason.DECREASE,
        lambda: decided(pod(), policy(fixed("200m", "512Mi"))),
        "app cpu 500m -> 200m, app memory 1Gi -> 512Mi",
    ),
    _reason(
        Reason.REBALANCE,
        lambda: decided(pod(), policy(fixed("200m", "2Gi"))),
        "app cpu 500m -> 200m, app memory 1Gi -> 2Gi",
    ),
    _reason(Reason.RECOMMEND_ONLY, lambda: decided(pod(), policy(GROW, mode=Mode.RECOMMEND)), "app cpu 500m -> 800m"),
    _reason(Reason.POLICY_OFF, lambda: decided(pod(), policy(GROW, mode=Mode.OFF)), "policy bridges"),
    _reason(
        Reason.AMBIGUOUS_POLICY,
        lambda: decided(pod(), policy(GROW, "one"), policy(GROW, "two", source="")),
        "selected by one (policies/one.yaml) and two",
    ),
    _reason(
        Reason.NO_CONTAINER_SELECTED,
        lambda: decided(pod(init(), sidecar(), container()), policy(GROW, containers=(ContainerPolicy("other"),))),
        "policy bridges sizes none of: proxy, app",
    ),
    _reason(Reason.DELETING, lambda: decided(pod(deleting=True)), ""),
    _reason(Reason.NOT_RUNNING, lambda: decided(pod(phase="Pending")), "phase Pending"),
    _reason(Reason.STATIC_POD, lambda: decided(pod(static=True)), ""),
    _reason(Reason.BEST_EFFORT, lambda: decided(pod(container(Resources()))), ""),
    _reason(
        Reason.NO_REQUESTS,
        lambda: decided(pod(container(sizes("0", "0", "1", "1Gi")), qos_class=QoSClass.BURSTABLE)),
        "no request of app that the policy controls",
    ),
    _reason(Reason.POD_LEVEL_RESOURCES, lambda: decided(pod(pod_level=sizes("1", "1Gi"))), ""),
    _reason(
        Reason.RESIZE_UNSUPPORTED,
        lambda: decided(pod(container(actual=None))),
        "container app has no resources in its status",
    ),
    _reason(
        Reason.QOS_WOULD_CHANGE,
        lambda: decided(
            pod(container(GUARANTEED)), policy(GROW, containers=(ContainerPolicy(limits=LimitMode.REQUESTS_ONLY),))
        ),
        "container app: cpu has request = limit (Guaranteed) and the policy says limits: RequestsOnly",
    ),
    _reason(
        Reason.EXCEEDS_NODE,
        lambda: decided(pod(), nodes=["700m"]),
        "node didn't have enough allocatable resources: cpu, requested: 800, allocatable: 700",
    ),
    _reason(Reason.GATED, lambda: decided(pod(gated="scheduling gates a")), "scheduling gates a"),
    _reason(Reason.CRITICAL_POD, lambda: decided(pod(priority=2_000_000_000)), "priority 2000000000"),
    _reason(
        Reason.OTHER_AUTOSCALER,
        lambda: beside(Autoscaler("VerticalPodAutoscaler", "bridge", "v", "StatefulSet/sim", mode="Auto")),
        "VerticalPodAutoscaler bridge/v with updateMode Auto targets StatefulSet/sim",
    ),
    _reason(
        Reason.OTHER_WRITER,
        lambda: decided(pod(asks=(Ask("kubectl", NOW),)), policy(GROW, stability=DEFAULT)),
        "kubectl asked for a size at 2026-11-29T12:00:00+00:00; left to it until 2026-11-29T13:00:00+00:00",
    ),
    _reason(
        Reason.LEFT_TO_HPA,
        lambda: beside(
            Autoscaler(
                "HorizontalPodAutoscaler",
                "bridge",
                "h",
                "StatefulSet/sim",
                frozenset({ScaledResource(Resource.CPU)}),
            )
        ),
        "container app: cpu: HorizontalPodAutoscaler bridge/h scales on its utilisation",
    ),
    _reason(
        Reason.RESIZE_PROPOSED,
        lambda: decided(PROPOSED),
        "container app: allocated differs from spec; deadline 2026-11-29T12:00:10+00:00",
    ),
    _reason(
        Reason.KUBELET_SILENT,
        lambda: decided(PROPOSED, settings_=config(policy(GROW), kubelet_patience=timedelta(seconds=20))),
        "container app: allocated differs from spec for 20 s",
    ),
    _reason(Reason.RESIZE_DEFERRED, lambda: decided(resizing("Deferred")), "words of the kubelet"),
    _reason(Reason.RESIZE_INFEASIBLE, lambda: decided(resizing("Infeasible")), "words of the kubelet"),
    _reason(Reason.RESIZE_IN_PROGRESS, lambda: decided(resizing("", "PodResizeInProgress")), "words of the kubelet"),
    _reason(Reason.RESIZE_ERROR, lambda: decided(resizing("Error", "PodResizeInProgress")), "words of the kubelet"),
    _reason(
        Reason.RESIZE_UNKNOWN,
        lambda: decided(resizing("Gated")),
        "PodResizePending with reason Gated: words of the kubelet",
    ),
    _reason(
        Reason.NOT_MEASURED_YET,
        lambda: decided(pod(), measured=Gap(Reason.NOT_MEASURED_YET, "its history is being read")),
        "container app: its history is being read",
    ),
    _reason(
        Reason.METRICS_UNAVAILABLE,
        lambda: decided(pod(), measured=Gap(Reason.METRICS_UNAVAILABLE, "503 for 5 min")),
        "container app: 503 for 5 min",
    ),
    _reason(
        Reason.NO_DATA,
        lambda: one(decide(snapshot(pod()), Measurements(NOW), config())),
        "container app: no samples in Prometheus",
    ),
    *(
        _reason(reason, partial(decided, pod(), measured=Gap(reason, "copies")), "container app: copies")
        for reason in (Reason.CLUSTER_AMBIGUOUS, Reason.AMBIGUOUS_SOURCE, Reason.DUPLICATE_SERIES)
    ),
    _reason(
        Reason.STALE_DATA,
        lambda: decided(pod(), measured=history(age_s=301)),
        "container app: newest sample is 301 s old",
    ),
    _reason(
        Reason.INSUFFICIENT_HISTORY,
        lambda: decided(pod(), measured=history(state=Abstain("12 of 30 minutes", insufficient_history=True))),
        "container app: 12 of 30 minutes",
    ),
    _reason(
        Reason.RECOMMENDER_FAILED,
        lambda: decided(pod(), measured=history(failure="ZeroDivisionError: division by zero")),
        "container app: ZeroDivisionError: division by zero",
    ),
    _reason(
        Reason.RECOMMENDER_INVALID,
        lambda: decided(pod(), policy(Fixed(cpu=float("nan")))),
        "container app: cpu target is nan",
    ),
    _reason(
        Reason.RECOMMENDER_SLOW,
        lambda: one(
            decide(
                snapshot(pod()),
                measurements([pod()]),
                config(recommender_patience=timedelta(seconds=1)),
                tick=iter([0.0, 1.5]).__next__,
            )
        ),
        "container app: took 1.5 s, allowed are 1 s",
    ),
    _reason(
        Reason.RECOMMENDER_ABSTAINED,
        lambda: decided(pod(), measured=history(state=Abstain("the session is starting"))),
        "container app: the session is starting",
    ),
    _reason(Reason.AT_TARGET, lambda: decided(pod(), policy(fixed("500m", "1Gi"))), ""),
    _reason(
        Reason.CHANGE_TOO_SMALL,
        lambda: decided(pod(), policy(fixed("520m", "950Mi"), stability=DEFAULT)),
        "app cpu +4.0% is less than 5%; app memory -7.2% is less than 10%",
    ),
    _reason(Reason.COOLDOWN, lambda: decided(pod(asks=(ASK,)), COOLING), "until 2026-11-29T12:00:40+00:00"),
]
OF_DOUBTS = {
    *(Reason.LOW_COVERAGE, Reason.SCRAPE_GAP, Reason.PARTIAL_RESPONSE, Reason.COUNTER_RESET),
    *(Reason.COUNTER_RESET_STORM, Reason.GPU_UNATTRIBUTED, Reason.GPU_UTILIZATION_UNKNOWN),
    *(Reason.RATE_WINDOW_TOO_SHORT, Reason.SOURCE_CHANGED, Reason.RANGE_TRUNCATED, Reason.RESOLUTION_REDUCED),
}  # tests/core/test_doubted.py
ACTING = {Reason.INCREASE, Reason.DECREASE, Reason.REBALANCE}


@pytest.mark.parametrize(("reason", "decision", "detail"), CASES)
def test_reason(reason: Reason, decision: Callable[[], Decision], detail: str) -> None:
    found = decision()
    assert (found.reason, found.detail) == (reason, detail)
    assert (found.action is not None) is (reason in ACTING)
    assert [each.container for each in found.proposals] == list(found.pod.containers)
    if found.action is None and reason not in {Reason.RECOMMEND_ONLY, Reason.EXCEEDS_NODE}:
        assert not any(each.changed for each in found.proposals)


def test_every_reason_has_a_case() -> None:
    cases = {str(case.id) for case in CASES}  # type: ignore[attr-defined]
    tested = ON_THE_LADDER | OF_MEMORY_LIMITS | OF_RESTARTS | IN_BUDGETS | OF_DOUBTS | SHOWN_IN_TESTS_OF_MIGRATIONS
    elsewhere = {str(reason) for reason in tested}
    assert cases | elsewhere == {str(reason) for reason in Reason}


def test_deciding_changes_nothing_and_repeats() -> None:
    many = [pod(name=f"sim-{i}") for i in range(3)]
    cluster, measured, rules = snapshot(*many), measurements(many), config(policy(GROW))
    first = decide(cluster, measured, rules)
    assert decide(cluster, measured, rules) == first
    assert len({decision.action for decision in first.decisions}) == 3


# --- what is selected


def test_a_pod_that_no_policy_selects_is_no_decision() -> None:
    elsewhere = policy(GROW, selector=Selector(frozenset({"other"})))
    plan = decide(snapshot(pod()), measurements([pod()]), config(elsewhere))
    assert plan.decisions == ()
    assert plan.problems == (
        Problem(
            "policy bridges (policies/bridges.yaml)",
            Trouble.NOTHING_SELECTED,
            "its selector matches no pod; check spec.selector",
        ),
    )


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_are_selected_but_no_decision(phase: str) -> None:
    done = pod(phase=phase)
    assert decide(snapshot(done), measurements([done]), config()).decisions == ()
    assert select(snapshot(done), config()) == {}


def test_only_a_plan_of_all_pods_says_that_a_policy_selects_nothing() -> None:
    elsewhere = policy(GROW, selector=Selector(frozenset({"other"})))
    assert decide(snapshot(pod()), measurements([pod()]), config(elsewhere), frozenset()).problems == ()


def test_problems_of_measuring_are_passed_on() -> None:
    problem = Problem("prometheus", Trouble.CLOCK_SKEW, "by 40 s")
    measured = replace(measurements([pod()]), problems=(problem,))
    assert decide(snapshot(pod()), measured, config()).problems == (problem,)


def test_namespaces_limit_what_is_looked_at() -> None:
    plan = decide(snapshot(pod()), measurements([pod()]), config(namespaces=frozenset({"other"})))
    assert plan.decisions == ()
    assert select(snapshot(pod()), config(namespaces=frozenset({"bridge"}))).keys() == {
        ContainerRef("bridge", "sim-0", "app")
    }


def test_scope_limits_what_is_decided() -> None:
    many = [pod(name=f"sim-{i}") for i in range(3)]
    scope = frozenset({many[1].ref, PodRef("bridge", "gone")})
    plan = decide(snapshot(*many), measurements(many), config(policy(GROW)), scope)
    assert [decision.pod.name for decision in plan.decisions] == ["sim-1"]


LABELS = {"app": "bridge", "tier": "sim"}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (Selector(), True),
        (Selector(labels=LabelSelector(match_labels=(("app", "bridge"), ("tier", "sim")))), True),
        (Selector(labels=LabelSelector(match_labels=(("app", "bridge"), ("tier", "other")))), False),
        (Selector(labels=LabelSelector(match_labels=(("missing", ""),))), False),
        (Selector(frozenset({"bridge"}), LabelSelector((("app", "bridge"),))), True),
        (Selector(frozenset({"other"}), LabelSelector((("app", "bridge"),))), False),
        (
            Selector(
                labels=LabelSelector(match_expressions=(Requirement("tier", Operator.IN, frozenset({"sim", "x"})),))
            ),
            True,
        ),
        (
            Selector(labels=LabelSelector(match_expressions=(Requirement("tier", Operator.IN, frozenset({"x"})),))),
            False,
        ),
        (
            Selector(labels=LabelSelector(match_expressions=(Requirement("none", Operator.IN, frozenset({"x"})),))),
            False,
        ),
        (
            Selector(labels=LabelSelector(match_expressions=(Requirement("tier", Operator.NOT_IN, frozenset({"x"})),))),
            True,
        ),
        (
            Selector(labels=LabelSelector(match_expressions=(Requirement("none", Operator.NOT_IN, frozenset({"x"})),))),
            True,
        ),
        (
            Selector(
                labels=LabelSelector(match_expressions=(Requirement("tier", Operator.NOT_IN, frozenset({"sim"})),))
            ),
            False,
        ),
        (Selector(labels=LabelSelector(match_expressions=(Requirement("tier", Operator.EXISTS),))), True),
        (Selector(labels=LabelSelector(match_expressions=(Requirement("none", Operator.EXISTS),))), False),
        (Selector(labels=LabelSelector(match_expressions=(Requirement("none", Operator.DOES_NOT_EXIST),))), True),
        (Selector(labels=LabelSelector(match_expressions=(Requirement("tier", Operator.DOES_NOT_EXIST),))), False),
    ],
)
def test_selectors(selector: Selector, selected: bool) -> None:
    assert selector.matches(pod(labels=LABELS)) is selected


def test_select_wants_the_containers_that_are_sized() -> None:
    made = pod(init(), sidecar(), container())
    rule = policy(GROW, containers=(ContainerPolicy("app"),))
    assert select(snapshot(made), config(rule)) == {ContainerRef("bridge", "sim-0", "app"): rule}
    assert select(snapshot(made), config(policy(GROW, mode=Mode.OFF))) == {}
    assert select(snapshot(made), config(policy(GROW, "a"), policy(GROW, "b"))) == {}
    assert [ref.container for ref in select(snapshot(made), config())] == ["proxy", "app"]


def test_the_entry_of_a_container_is_the_exact_name_then_the_first_pattern() -> None:
    entries = (ContainerPolicy("*"), ContainerPolicy("br*"), ContainerPolicy("bridge"), ContainerPolicy("x", False))
    rule = policy(GROW, containers=entries)
    assert rule.container_policy(container(name="bridge")) is entries[2]
    assert rule.container_policy(container(name="bride")) is entries[0]
    assert rule.container_policy(container(name="x")) is None


# --- guards


@pytest.mark.parametrize(
    ("made", "detail"),
    [
        (pod(node=None, phase="Pending"), "phase Pending, not bound to a node"),
        (pod(phase="Unknown"), "phase Unknown"),
        (pod(container(running=False, actual=None)), "container app is not running"),
    ],
)
def test_not_running(made: Pod, detail: str) -> None:
    found = decided(made)
    assert (found.reason, found.detail) == (Reason.NOT_RUNNING, detail)


def test_a_container_that_is_not_sized_need_not_run() -> None:
    made = pod(sidecar(running=False, actual=None), container())
    rule = policy(GROW, containers=(ContainerPolicy("app"),))
    assert decided(made, rule).reason is Reason.INCREASE


def test_a_node_that_is_not_linux_cannot_resize() -> None:
    cluster = snapshot(pod(), nodes=[node(os="windows")])
    found = one(decide(cluster, measurements([pod()]), config(policy(GROW))))
    assert (found.action, found.reason) == (None, Reason.RESIZE_UNSUPPORTED)
    assert "windows" in found.detail


def test_a_node_that_is_not_known_predicts_nothing_and_holds_nothing() -> None:
    found = one(decide(snapshot(pod(), nodes=[]), measurements([pod()]), config(policy(GROW))))
    assert found.action is not None
    assert found.prediction.outcome is PredictedOutcome.UNKNOWN


def test_a_deferred_resize_is_not_asked_again() -> None:
    """V059: ten turns, no patch."""
    assert {decided(resizing("Deferred")).action for _ in range(10)} == {None}


def test_the_kubelets_patience_is_a_deadline() -> None:
    assert decided(PROPOSED).due_at == ASK.at + timedelta(seconds=30)


# --- quality


def test_one_container_without_data_holds_its_pod() -> None:
    made = pod(container(), sidecar())
    measured = measurements([made], proxy=Gap(Reason.NO_DATA, "no samples in Prometheus"))
    found = one(decide(snapshot(made), measured, config(policy(GROW))))
    assert (found.reason, found.detail) == (Reason.NO_DATA, "container proxy: no samples in Prometheus")


@pytest.mark.parametrize(("age_s", "step", "stale"), [(300, 60, False), (301, 60, True), (900, 300, False)])
def test_samples_may_be_three_steps_old(age_s: int, step: int, stale: bool) -> None:
    rule = policy(GROW, grid=Grid(step=step))
    found = decided(pod(), rule, measured=history(age_s=age_s, step=step))
    assert (found.reason is Reason.STALE_DATA) is stale


def _samples(cpu: list[float], memory: list[float]) -> History:
    return history(cpu, memory, step=200)


GAP = float("nan")


def test_stale_cpu_keeps_cpu_and_fresh_memory_moves() -> None:
    measured = _samples([0.2, GAP, GAP], [1.0, 1.0, 1.0])
    found = decided(pod(), policy(fixed("800m", "2Gi")), measured=measured)
    assert found.reason is Reason.INCREASE
    assert found.proposals[0].proposed == sizes("500m", "2Gi", "1", "4Gi")
    (stale,) = (step for step in found.proposals[0].trail if step.name == "stale")
    assert (stale.resource, stale.because, stale.after) == (Resource.CPU, "newest sample is 460 s old", 500)


def test_stale_alone_is_not_at_target() -> None:
    found = decided(pod(), policy(fixed("800m", "1Gi")), measured=_samples([0.2, GAP, GAP], [1.0, 1.0, 1.0]))
    assert (found.reason, found.detail) == (Reason.STALE_DATA, "container app: cpu: newest sample is 460 s old")
    found = decided(pod(), policy(fixed(None, "2Gi")), measured=_samples([0.2], [GAP]))
    assert (found.reason, found.detail) == (Reason.STALE_DATA, "container app: memory: no recent sample")


def test_no_recent_samples_at_all_are_stale() -> None:
    empty = replace(history(), recent=history().recent[:0])
    assert decided(pod(), policy(GROW), measured=empty).reason is Reason.STALE_DATA


def test_infinite_samples_do_not_count_for_the_memory_floor() -> None:
    measured = history((0.2, 0.2), (float(100 << 20), float("inf")))
    found = decided(pod(), policy(fixed(None, "512Mi")), measured=measured)
    assert found.proposals[0].proposed.requests.memory == 512 << 20


# --- bounds and stability


@pytest.mark.parametrize(
    ("current", "wanted", "rules", "entry", "expected", "steps"),
    [
        ("1", "5", DEFAULT, ContainerPolicy(), "2", ["maxStep"]),
        ("1", "100m", DEFAULT, ContainerPolicy(), "700m", ["maxStep"]),
        ("100m", "1", replace(FREE, max_step=ByDirection(0.1, 1.0)), ContainerPolicy(), "110m", ["maxStep"]),
        ("1", "1234m", FREE, ContainerPolicy(), "1240m", ["round"]),
        ("15m", "14m", FREE, ContainerPolicy(), "15m", ["round"]),
        ("15m", "15m", FREE, ContainerPolicy(), "15m", []),
        ("15m", "16m", FREE, ContainerPolicy(), "20m", ["round"]),
        # bounds are never left, whatever the step limit says
        ("8", "8", DEFAULT, ContainerPolicy(max_allowed=amounts("1")), "1", ["maxAllowed"]),
        ("100m", "100m", DEFAULT, ContainerPolicy(min_allowed=amounts("1")), "1", ["minAllowed"]),
        # and minChange does not keep an amount outside of them
        ("1020m", "1020m", DEFAULT, ContainerPolicy(max_allowed=amounts("1")), "1", ["maxAllowed"]),
        ("990m", "990m", DEFAULT, ContainerPolicy(min_allowed=amounts("1")), "1", ["minAllowed"]),
        ("1", "1040m", DEFAULT, ContainerPolicy(), "1", ["minChange"]),
        ("1", "920m", DEFAULT, ContainerPolicy(), "1", ["minChange"]),
        ("1", "1050m", DEFAULT, ContainerPolicy(), "1050m", []),
        ("1", "900m", DEFAULT, ContainerPolicy(), "900m", []),
        ("1", "2", FREE, ContainerPolicy(controlled=frozenset({Resource.MEMORY})), "1", []),
    ],
)
def test_bounds(
    current: str, wanted: str, rules: Stability, entry: ContainerPolicy, expected: str, steps: list[str]
) -> None:
    made = pod(container(sizes(current, "1Gi")))
    found = decided(made, policy(fixed(wanted, None), stability=rules, containers=(entry,)))
    assert found.proposals[0].proposed.requests == amounts(expected, "1Gi")
    assert [step.name for step in found.proposals[0].trail if step.name != "recommender"] == steps


def test_the_trail_begins_with_the_recommenders_own_steps() -> None:
    own = (Step(Resource.CPU, "guess", None, 620, "of the day"),)
    made = decided(pod(), measured=history(state=replace(target("620m", "2Gi"), trail=own)))
    assert made.proposals[0].trail[0] == own[0]


def test_an_amount_without_steps_is_said_to_come_from_its_recommender() -> None:
    own = (Step(Resource.CPU, "guess", None, 620, "of the day"),)
    made = decided(pod(), measured=history(state=replace(target("620m", "2Gi"), trail=own)))
    said = [sentence(step) for step in made.proposals[0].trail if step.name in ("guess", "recommender")]
    assert said == ["cpu: guess of the day = 620m", "memory: recommender fixed = 2Gi"]


def test_sizes_from_32_bit_samples_cost_no_extra_step() -> None:
    import numpy as np

    found = decided(pod(), policy(Fixed(float(np.float32(0.7)), float(np.float32(2 << 30)))))
    assert found.proposals[0].proposed.requests == amounts("700m", "2Gi")


def test_cooldown_is_by_direction_and_due() -> None:
    sized = pod(asks=(Ask("kubectl", NOW - timedelta(minutes=2)),))
    assert decided(sized, COOLING).reason is Reason.INCREASE
    shrinks = replace(COOLING, recommender=fixed("100m", "1Gi"))
    found = decided(sized, shrinks)
    assert (found.reason, found.due_at) == (Reason.COOLDOWN, NOW + timedelta(minutes=8))
    (kept,) = (step for step in found.proposals[0].trail if step.name != "recommender")
    assert kept.name == "cooldown"
    assert "120 s after the last resize, cooldown is 600 s" in kept.because


def test_the_earlier_of_two_cooldowns_is_due() -> None:
    sized = pod(asks=(Ask("kubectl", NOW - timedelta(seconds=30)),))
    found = decided(sized, replace(COOLING, recommender=fixed("100m", "2Gi")))
    assert (found.reason, found.due_at) == (Reason.COOLDOWN, NOW + timedelta(seconds=30))


def test_cooldown_of_one_direction_does_not_hold_the_other() -> None:
    sized = pod(asks=(Ask("kubectl", NOW - timedelta(minutes=2)),))
    found = decided(sized, replace(COOLING, recommender=fixed("100m", "2Gi")))
    assert (found.reason, found.detail) == (Reason.INCREASE, "app memory 1Gi -> 2Gi")


def test_cooldown_is_over_at_its_end() -> None:
    sized = pod(asks=(Ask("kubectl", NOW - timedelta(minutes=1)),))
    assert decided(sized, COOLING).reason is Reason.INCREASE


def test_a_change_that_is_only_one_of_limits_is_told() -> None:
    made = pod(container(sizes("199m", "1Gi", "300m", "1Gi")))
    rule = policy(fixed("200m", None), containers=(ContainerPolicy(limits=LimitMode.EQUAL),))
    found = decided(made, rule)
    assert (found.reason, found.detail) == (Reason.DECREASE, "app cpu limit 300m -> 200m")


def test_sizes_follow_what_is_in_force() -> None:
    drifted = pod(container(sizes("500m", "1Gi"), actual=sizes("505m", "1Gi")))
    found = decided(drifted, policy(fixed("500m", "1Gi")))
    assert (found.action, found.reason) == (None, Reason.AT_TARGET)


def test_the_size_in_force_is_the_best_that_is_known() -> None:
    assert container(actual=sizes("1", "2Gi")).in_force == sizes("1", "2Gi")
    assert container(allocated=amounts("1", "2Gi"), actual=None).in_force == sizes("1", "2Gi", "1", "2Gi")
    assert container(allocated=None, actual=None).in_force == container().spec
    assert str(pod().ref) == "bridge/sim-0"


# --- room


def _crowd(*names: str, mode: Mode = Mode.RESIZE) -> Plan:
    many = [pod(container(sizes("1", "1Gi")), name=name) for name in names]
    cluster = snapshot(*many, nodes=[node(cpu=f"{len(names) + 1}")])
    return decide(cluster, measurements(many), config(policy(fixed("2", "1Gi"), mode=mode)))


def test_two_increases_do_not_count_on_the_same_room() -> None:
    plan = _crowd("sim-0", "sim-1", "sim-2")
    assert [each.prediction.outcome for each in plan.decisions] == [
        PredictedOutcome.IN_PLACE,
        PredictedOutcome.DEFERRED,
        PredictedOutcome.DEFERRED,
    ]
    assert one(plan, "sim-1").prediction.detail.startswith("short of 1 cpu.")
    # one asks, so that the next room that appears is its; a second would wait behind it
    assert [each.action is not None for each in plan.decisions] == [True, True, False]
    held = one(plan, "sim-2")
    assert (held.reason, held.detail) == (
        Reason.NODE_FULL,
        f"room has been asked for by bridge/sim-1. {held.prediction.detail}",
    )


def test_what_is_only_recommended_takes_no_room() -> None:
    plan = _crowd("sim-0", "sim-1", mode=Mode.RECOMMEND)
    assert {each.prediction.outcome for each in plan.decisions} == {PredictedOutcome.IN_PLACE}


def test_room_that_a_decrease_will_free_is_not_there_yet() -> None:
    shrinks, grows = pod(container(sizes("2", "1Gi")), name="a"), pod(container(sizes("1", "1Gi")), name="b")
    measured = Measurements(
        NOW,
        {
            ContainerRef("bridge", "a", "app"): history(state=target("1")),
            ContainerRef("bridge", "b", "app"): history(state=target("2")),
        },
    )
    plan = decide(snapshot(shrinks, grows, nodes=[node(cpu="3")]), measured, config())
    assert one(plan, "b").prediction.outcome is PredictedOutcome.DEFERRED


def test_pods_of_other_nodes_and_finished_ones_take_no_room() -> None:
    others = [pod(name="elsewhere", node="node-b"), pod(name="done", phase="Succeeded")]
    cluster = snapshot(pod(), *others, nodes=[node(cpu="800m"), node("node-b")])
    plan = decide(cluster, measurements([pod()]), config(policy(GROW)), frozenset({pod().ref}))
    assert one(plan).prediction.outcome is PredictedOutcome.IN_PLACE


# --- whole clusters


@st.composite
def _clusters(draw: st.DrawFn) -> tuple[ClusterSnapshot, Measurements, Config]:
    flags = st.booleans()
    made: list[Pod] = []
    for index in range(draw(st.integers(0, 6))):
        kinds = draw(st.lists(st.sampled_from(list(ContainerKind)), min_size=1, max_size=3))
        containers: list[Container] = [container(GUARANTEED, f"c{i}", kind) for i, kind in enumerate(kinds)]
        condition = Condition("PodResizePending", "True", draw(st.sampled_from(["Deferred", "Infeasible", "New"])))
        made.append(
            pod(
                *containers,
                name=f"sim-{index}",
                namespace=draw(st.sampled_from(["bridge", "other"])),
                phase=draw(st.sampled_from(["Running", "Running", "Pending", "Failed"])),
                deleting=draw(flags) and draw(flags),
                static=draw(flags) and draw(flags),
                qos_class=draw(st.sampled_from(list(QoSClass))),
                conditions=(condition,) if draw(flags) and draw(flags) else (),
            )
        )
    found: dict[ContainerRef, History | Gap] = {}
    for each in made:
        for part in each.containers:
            state = draw(st.sampled_from([None, Abstain("no"), Target(0.7, None), Target(-1, 0), "nonsense"]))
            choices: list[History | Gap] = [history(state=state), history(age_s=10_000), Gap(Reason.NO_DATA, "none")]
            found[ContainerRef(each.namespace, each.name, part.name)] = draw(st.sampled_from(choices))
    rules = [
        policy(fixed("1", "2Gi"), "all", mode=draw(st.sampled_from(list(Mode)))),
        policy(fixed("1", "2Gi"), "bridge", selector=Selector(frozenset({"bridge"}))),
    ]
    chosen = draw(st.lists(st.sampled_from(rules), max_size=2, unique_by=lambda each: each.name))
    return snapshot(*made), Measurements(NOW, found), Config(tuple(chosen))


@settings(max_examples=150)
@given(_clusters())
def test_every_selected_pod_is_decided_about_once_and_for_a_reason(
    case: tuple[ClusterSnapshot, Measurements, Config],
) -> None:
    cluster, measured, rules = case
    plan = decide(cluster, measured, rules)
    selected = [
        each
        for each in cluster.pods.values()
        if each.phase != "Failed" and any(rule.selector.matches(each) for rule in rules.policies)
    ]
    assert [each.pod.ref for each in plan.decisions] == sorted(each.ref for each in selected)
    for decision in plan.decisions:
        assert decision.reason in Reason
        assert (decision.action is not None) is (decision.reason in ACTING)
        assert decision.action is None or decision.action.uid == decision.pod.uid
    assert decide(cluster, measured, rules) == plan
    for ref in cluster.pods:
        alone = decide(cluster, measured, rules, frozenset({ref}))
        assert [each.reason for each in alone.decisions] == [
            each.reason for each in plan.decisions if each.pod.ref == ref
        ]


def deadline(plan: Plan) -> datetime | None:
    """The earliest moment at which a pod is to be looked at again."""
    return min((decision.due_at for decision in plan.decisions if decision.due_at is not None), default=None)


def test_a_deadline_is_the_earliest_of_all() -> None:
    cooling = pod(name="sim-1", asks=(ASK,))
    waiting = replace(PROPOSED, name="sim-2")
    plan = decide(snapshot(pod(), cooling, waiting), measurements([pod(), cooling, waiting]), config(COOLING))
    assert deadline(plan) == min(NOW + timedelta(seconds=40), ASK.at + timedelta(seconds=30))
    assert deadline(decide(snapshot(pod()), measurements([pod()]), config(policy(GROW)))) is None


def test_guaranteed_containers_move_on_both_sides() -> None:
    found = decided(pod(container(GUARANTEED)))
    assert found.action is not None
    (change,) = found.action.containers
    assert change.change == both("800m")
