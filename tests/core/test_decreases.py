"""Decreases that need care: memory limits and page cache, versions that refuse them, and what goes first."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core import decreases
from autoscaler.core.actions import AskKind, Resize
from autoscaler.core.decide import decide
from autoscaler.core.history import ContainerRef, History, Measurements, MemoryInUse
from autoscaler.core.kubelet import memory_decrease_error
from autoscaler.core.model import Ask, Condition, Container, Pod, QoSClass, Resource, Resources
from autoscaler.core.plan import Decision, PredictedOutcome, Proposal
from autoscaler.core.policy import ByDirection, ContainerPolicy, LimitMode, Mode, Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Target
from autoscaler.core.trail import sentence
from autoscaler.core.units import Bytes, format_memory, parse_memory
from tests.build import (
    FREE,
    NOW,
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
    with_resize,
)

MIB = 1 << 20
LESS = fixed("500m", "512Mi")
REBALANCED = {"app": history(state=target("500m", "1Gi")), "proxy": history(state=target("1", "1Gi"))}


def known(sized: Pod, usage: dict[str, str], age_s: float = 0) -> MemoryInUse:
    found = {ContainerRef(sized.namespace, sized.name, name): parse_memory(text) for name, text in usage.items()}
    return MemoryInUse(NOW - timedelta(seconds=age_s), found)


def decided(
    sized: Pod,
    in_use: MemoryInUse,
    rules: Policy | None = None,
    minor: int | None = 37,
    by: dict[str, History] | None = None,
) -> Decision:
    measured = replace(measurements([sized], **(by or {})), in_use=in_use)
    cluster = replace(snapshot(sized), server_minor=minor)
    return one(decide(cluster, measured, config(rules or policy(LESS))))


def asked(decision: Decision) -> Resize:
    assert decision.action is not None, (decision.reason, decision.detail)
    return decision.action


# page cache


@pytest.mark.parametrize("spec", [both("500m", "1Gi"), sizes("500m", "1Gi", "1", "1Gi")])
def test_a_limit_at_or_below_what_is_in_use_with_page_cache_is_held(spec: Resources) -> None:
    """ACC-04: the working set is small, but the kubelet compares with page cache, and would refuse."""
    sized = pod(container(spec))
    decision = decided(sized, known(sized, {"app": "512Mi"}))
    assert (decision.reason, decision.action) == (Reason.PAGE_CACHE_ABOVE_TARGET, None)
    assert decision.detail == "container app: limit 512Mi, in use 512Mi with page cache"
    assert decision.prediction.outcome is PredictedOutcome.ERROR
    assert 'container "app" memory limit (536870912) below current usage (536870912)' in decision.prediction.detail
    assert not decision.proposals[0].changed
    assert sentence(decision.proposals[0].trail[-1]) == (
        "memory: memoryLimit keeps 1Gi instead of 512Mi (container app: limit 512Mi, in use 512Mi with page cache)"
    )


def test_a_container_that_would_restart_keeps_what_it_has_in_use_all_the_same() -> None:
    """Its kubelet would stop it before it compares, and it would start into the limit."""
    sized = pod(container(both("500m", "1Gi"), restart_on=frozenset({Resource.MEMORY})))
    assert decided(sized, known(sized, {"app": "512Mi"})).reason is Reason.PAGE_CACHE_ABOVE_TARGET


def test_it_is_lowered_once_usage_has_fallen() -> None:
    sized = pod(container(both("500m", "1Gi")))
    decision = decided(sized, known(sized, {"app": "511Mi"}))
    assert decision.reason is Reason.DECREASE
    assert [change.change for change in asked(decision).containers] == [both(None, "512Mi")]


def test_what_is_held_does_not_keep_anything_else_from_changing() -> None:
    """CPU rises, and the memory of the other container falls, while one container's page cache is above its target."""
    sized = pod(container(both("500m", "1Gi")), sidecar(both("500m", "1Gi")))
    grows = policy(fixed("800m", "512Mi"))
    decision = decided(sized, known(sized, {"app": "700Mi", "proxy": "100Mi"}), grows)
    changes = {change.name: change.change for change in asked(decision).containers}
    assert changes == {"app": both("800m", None), "proxy": both("800m", "512Mi")}
    assert decision.prediction.outcome is PredictedOutcome.IN_PLACE


def test_requests_alone_and_increases_need_no_memory_in_use() -> None:
    unknown = MemoryInUse()
    requests_only = policy(LESS, containers=(ContainerPolicy(limits=LimitMode.REQUESTS_ONLY),))
    for made in (container(sizes("500m", "1Gi", "1", "2Gi")), container(sizes("500m", "1Gi"))):
        assert decided(pod(made), unknown, requests_only).reason is Reason.DECREASE
    assert decided(pod(), unknown, policy(fixed("800m", "2Gi"))).reason is Reason.INCREASE


def test_a_request_that_grows_does_so_below_the_limit_that_cannot_be_lowered() -> None:
    """`limits: Equal` would lower the limit from 4Gi to 2Gi while the request rises."""
    sized = pod(container(sizes("500m", "1Gi", "1", "4Gi")))
    equal = policy(fixed("500m", "2Gi"), containers=(ContainerPolicy(limits=LimitMode.EQUAL),))
    (change,) = asked(decided(sized, known(sized, {"app": "3Gi"}), equal)).containers
    assert change.change == sizes(None, "2Gi")
    (change,) = asked(decided(sized, known(sized, {"app": "1Gi"}), equal)).containers
    assert change.change == sizes(None, "2Gi", None, "2Gi")


def test_the_sum_of_the_pod_is_compared_too() -> None:
    """A container that is above its own limit in force shows what the sum is about; each alone would pass."""
    sized = pod(container(both("500m", "1Gi")), sidecar(both("500m", "1Gi")))
    in_use = known(sized, {"app": "400Mi", "proxy": "700Mi"})
    measured = {"app": history(state=target("500m", "512Mi")), "proxy": history(state=target("500m", "1Gi"))}
    assert decided(sized, in_use, by=measured).reason is Reason.DECREASE
    more = known(sized, {"app": "400Mi", "proxy": "1200Mi"})
    decision = decided(sized, more, by=measured)
    assert decision.reason is Reason.PAGE_CACHE_ABOVE_TARGET
    assert "set pod memory limit" in decision.prediction.detail


# what is not known


@pytest.mark.parametrize(
    ("in_use", "detail"),
    [
        (MemoryInUse(), "container app: memory in use has not been measured yet"),
        (MemoryInUse(NOW), "container app: no samples of container_memory_usage_bytes"),
        (
            MemoryInUse(NOW - timedelta(seconds=301), {ContainerRef("bridge", "sim-0", "app"): Bytes(MIB)}),
            "container app: memory in use is 301 s old",
        ),
    ],
)
def test_unknown_memory_in_use_lowers_no_limit(in_use: MemoryInUse, detail: str) -> None:
    decision = decided(pod(), in_use)
    assert (decision.reason, decision.detail, decision.action) == (Reason.MEMORY_USE_UNKNOWN, detail, None)


def test_where_the_sum_is_compared_every_running_container_has_to_be_known() -> None:
    """Also of containers that the policy leaves alone; plain init containers have ended."""
    rules = policy(LESS, containers=(ContainerPolicy("app"),))
    sized = pod(init(), sidecar(), container())
    decision = decided(sized, known(sized, {"app": "1Mi"}), rules)
    assert decision.detail == "container proxy: no samples of container_memory_usage_bytes"
    assert decided(sized, known(sized, {"app": "1Mi", "proxy": "1Mi"}), rules).reason is Reason.DECREASE
    limitless = pod(sidecar(sizes("500m", "1Gi")), container())
    assert decided(limitless, known(limitless, {"app": "1Mi"}), rules).reason is Reason.DECREASE


def test_the_hold_wakes_when_a_cooldown_of_the_same_pod_ends() -> None:
    stability = replace(FREE, cooldown=ByDirection(timedelta(minutes=5), timedelta(0)))
    asks = (Ask(AskKind.TARGET, NOW - timedelta(minutes=1)),)
    sized = pod(container(), asks=asks)
    decision = decided(sized, MemoryInUse(NOW), policy(fixed("800m", "512Mi"), stability=stability))
    assert (decision.reason, decision.due_at) == (Reason.MEMORY_USE_UNKNOWN, NOW + timedelta(minutes=4))


# versions


def test_1_33_lowers_no_memory_limit() -> None:
    sized = pod()
    decision = decided(sized, known(sized, {"app": "1Mi"}), minor=33)
    assert (decision.reason, decision.action) == (Reason.MEMORY_DECREASE_UNSUPPORTED, None)
    assert decision.detail == "container app: the API server is 1.33, which lowers no memory limit"
    assert decided(sized, known(sized, {"app": "1Mi"}), policy(fixed("800m", "512Mi")), minor=33).action is not None
    for minor in (34, None):
        assert decided(sized, known(sized, {"app": "1Mi"}), minor=minor).reason is Reason.DECREASE


# decreases first

MIXED = pod(container(both("1", "1Gi")), sidecar(both("500m", "1Gi")))  # app has 1 core and needs half of it
NOTHING = known(MIXED, {"app": "1Mi", "proxy": "1Mi"})


@pytest.mark.parametrize("minor", [34, 36, None])
def test_until_1_36_what_falls_goes_first_and_what_rises_follows_without_a_cooldown(minor: int | None) -> None:
    cooling = replace(FREE, cooldown=ByDirection(timedelta(hours=1), timedelta(hours=1)))
    rules = policy(stability=cooling)
    first = decided(MIXED, NOTHING, rules, minor, by=REBALANCED)
    assert (first.reason, first.detail) == (Reason.DECREASE, "app cpu 1 -> 500m; increases follow")
    resize = asked(first)
    assert (resize.kind, [(c.name, c.change) for c in resize.containers]) == (
        AskKind.FIRST,
        [("app", both("500m", None))],
    )
    (waits,) = (p for p in first.proposals if p.container.name == "proxy")
    assert sentence(waits.trail[-1]) == (
        "cpu: decreaseFirst keeps 500m instead of 1 (asked for once the decreases in the pod are in force)"
    )
    after = replace(with_resize(MIXED, resize), asks=(Ask(resize.kind, NOW - timedelta(seconds=1)),))
    second = decided(after, NOTHING, rules, minor, by=REBALANCED)
    assert (second.reason, asked(second).kind) == (Reason.INCREASE, AskKind.TARGET)
    assert [(c.name, c.change) for c in asked(second).containers] == [("proxy", both("1", None))]


def test_a_further_decrease_has_no_leave_to_skip_its_cooldown() -> None:
    rules = policy(stability=replace(FREE, cooldown=ByDirection(timedelta(0), timedelta(hours=1))))
    after = replace(MIXED, asks=(Ask(AskKind.FIRST, NOW - timedelta(seconds=1)),))
    (change,) = asked(decided(after, NOTHING, rules, 36, by=REBALANCED)).containers
    assert (change.name, change.change) == ("proxy", both("1", None))


def test_from_1_37_on_it_is_one_patch() -> None:
    decision = decided(MIXED, NOTHING, minor=37, rules=policy(), by=REBALANCED)
    assert (decision.reason, asked(decision).kind) == (Reason.REBALANCE, AskKind.TARGET)
    assert {c.name for c in asked(decision).containers} == {"app", "proxy"}


def test_one_container_or_different_resources_go_in_one_patch() -> None:
    """The maximum of each container is that of the pod then."""
    alone = pod(container(both("1", "1Gi")))
    mixed = decided(alone, known(alone, {"app": "1Mi"}), policy(fixed("500m", "2Gi")), 36)
    assert (mixed.reason, asked(mixed).kind) == (Reason.REBALANCE, AskKind.TARGET)
    apart = {"app": history(state=target("500m", "1Gi")), "proxy": history(state=target("500m", "2Gi"))}
    assert asked(decided(MIXED, NOTHING, policy(), 36, apart)).kind is AskKind.TARGET


def test_what_restarts_containers_goes_in_one_patch() -> None:
    app, proxy = MIXED.containers
    restarting = replace(MIXED, containers=(replace(app, restart_on=frozenset({Resource.CPU})), proxy))
    decision = decided(restarting, NOTHING, policy(), 36, by=REBALANCED)
    assert (asked(decision).kind, decision.prediction.outcome) == (AskKind.TARGET, PredictedOutcome.RESTART)


def test_a_step_that_would_change_the_qos_class_is_none() -> None:
    """app alone keeps the pod Burstable before, proxy alone after."""
    app, proxy = container(sizes("1", "1Gi", "2", "1Gi")), sidecar(both("500m", "1Gi"))
    made = pod(app, proxy)
    proposals = tuple(
        Proposal(c, new)
        for c, new in zip(made.containers, (both("500m", "1Gi"), sizes("1", "1Gi", "2", "1Gi")), strict=True)
    )
    assert made.qos_class is QoSClass.BURSTABLE
    assert decreases.first_step(made, proposals, 36) is None


def test_in_mode_recommend_the_whole_change_is_shown() -> None:
    decision = decided(MIXED, NOTHING, policy(mode=Mode.RECOMMEND), 36, by=REBALANCED)
    assert decision.reason is Reason.RECOMMEND_ONLY
    assert all(p.changed for p in decision.proposals)


def test_a_fit_lowers_no_memory_limit() -> None:
    """The node grants part of the request; `limits: Equal` would take the limit down to it."""
    spec, has = sizes("500m", "8Gi", "1", "8Gi"), sizes("500m", "1Gi", "1", "4Gi")
    waits = pod(
        container(spec, allocated=has.requests, actual=has),
        generation=2,
        observed_generation=2,
        conditions=(Condition("PodResizePending", "True", "Deferred", "why", 2),),
        asks=(Ask(AskKind.TARGET, NOW - timedelta(seconds=20)),),
    )
    equal = policy(fixed("500m", "8Gi"), containers=(ContainerPolicy(limits=LimitMode.EQUAL),))
    plan = decide(snapshot(waits, nodes=[node(memory="2Gi")]), measurements([waits]), config(equal))
    decision = one(plan)
    assert (decision.reason, decision.proposals[0].proposed) == (Reason.FIT, sizes("500m", "2Gi", "1", "4Gi"))


# whatever the pod


@st.composite
def shrinking(draw: st.DrawFn) -> tuple[Pod, Measurements]:
    """Settled pods with usage below their limits, and targets that are mostly lower."""
    made: list[Container] = []
    measured, in_use = {}, {}
    for index in range(draw(st.integers(1, 3))):
        name, kind = f"c{index}", draw(st.sampled_from([container, sidecar]))
        limit = draw(st.integers(2, 4096))
        request = draw(st.integers(1, limit))
        spec = draw(
            st.sampled_from(
                [
                    sizes("1", f"{request}Mi", "2", f"{limit}Mi"),
                    both("1", f"{limit}Mi"),
                    sizes("1", f"{request}Mi"),
                ]
            )
        )
        made.append(kind(spec, name))
        working_set = draw(st.integers(1, limit * MIB))
        recent = draw(st.integers(1, limit * MIB))
        wanted = Target(draw(st.sampled_from([0.5, 1.0, 2.0])), float(draw(st.integers(1, 2 * limit * MIB))))
        measured[name] = history((0.1, 0.1), (float(recent), float(working_set)), wanted)
        in_use[name] = draw(st.integers(working_set, limit * MIB))
    sized = pod(*made)
    usage = {ContainerRef(*sized.ref, name): Bytes(amount) for name, amount in in_use.items()}
    dropped = draw(st.sets(st.sampled_from(sorted(usage))))
    known_usage = {ref: amount for ref, amount in usage.items() if ref not in dropped}
    found = measurements([sized], None, **measured)
    return sized, replace(found, in_use=MemoryInUse(NOW, known_usage))


@settings(max_examples=400)
@given(shrinking(), st.sampled_from(list(LimitMode)), st.sampled_from([None, 33, 36, 37]))
def test_no_memory_limit_falls_below_recent_usage_nor_to_what_is_in_use(
    case: tuple[Pod, Measurements], limits: LimitMode, minor: int | None
) -> None:
    sized, measured = case
    rules = policy(containers=(ContainerPolicy(limits=limits),))
    decision = one(decide(replace(snapshot(sized), server_minor=minor), measured, config(rules)))
    if decision.action is None:
        return
    after = with_resize(sized, decision.action)
    for old, new in zip(sized.containers, after.containers, strict=True):
        was, now = old.spec.limits.memory, new.spec.limits.memory
        if was is None or now is None or now >= was:
            continue
        ref = ContainerRef(*sized.ref, old.name)
        recent = measured.of(ref).recent.memory.max()  # type: ignore[union-attr]
        assert minor != 33
        assert now >= min(was, 1.1 * float(recent)), format_memory(now)
        assert now > measured.in_use.of[ref], format_memory(now)
    spec_only = replace(
        sized,
        containers=tuple(replace(c, spec=a.spec) for c, a in zip(sized.containers, after.containers, strict=True)),
    )
    used = {ref.container: amount for ref, amount in measured.in_use.of.items()}
    assert memory_decrease_error(spec_only, used) is None
