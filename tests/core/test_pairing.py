"""Requests and limits that are legal together: by cases, and over pods of every shape."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.decide import decide
from autoscaler.core.history import ContainerRef, Gap, History, Measurements
from autoscaler.core.model import (
    RESOURCES,
    Container,
    ContainerKind,
    Node,
    Pod,
    QoSClass,
    Resource,
    ResourceList,
    Resources,
)
from autoscaler.core.pairing import Blocked, Wish, pair, qos_class
from autoscaler.core.policy import ContainerPolicy, LimitMode
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Target
from tests.build import (
    GUARANTEED,
    NOW,
    Fixed,
    amounts,
    both,
    config,
    container,
    fixed,
    history,
    in_use,
    init,
    measurements,
    one,
    pod,
    policy,
    sidecar,
    sizes,
    snapshot,
    specs,
    with_resize,
)


def paired(sized: Pod, **wishes: Wish) -> dict[str, Resources]:
    found = pair(sized, wishes)
    assert not isinstance(found, Blocked), found
    assert qos_class(sized, found[0]) is sized.qos_class
    return found[0]


def test_rsz_07_requests_alone_cannot_move_in_a_guaranteed_pod() -> None:
    sized = pod(container(both("2", "4Gi")), sidecar(both("100m", "128Mi")))
    found = pair(sized, {"app": Wish(amounts("3"), LimitMode.REQUESTS_ONLY)})
    assert isinstance(found, Blocked)
    assert "app" in found.because
    assert "Guaranteed" in found.because
    entries = (ContainerPolicy(limits=LimitMode.REQUESTS_ONLY),)
    decision = one(decide(snapshot(sized), measurements([sized]), config(policy(fixed("3", None), containers=entries))))
    assert (decision.action, decision.reason) == (None, Reason.QOS_WOULD_CHANGE)
    assert "app" in decision.detail


def test_rsz_07_request_and_limit_move_together() -> None:
    sized = pod(container(both("2", "4Gi")), sidecar(both("100m", "128Mi")))
    for limits in (LimitMode.KEEP, LimitMode.EQUAL):
        assert paired(sized, app=Wish(amounts("3"), limits)) == {"app": both("3", "4Gi")}


def test_rsz_07_a_burstable_pod_stays_burstable() -> None:
    sized = pod(container(both("2", "4Gi")), sidecar(sizes("100m", "128Mi")))
    assert sized.qos_class is QoSClass.BURSTABLE
    assert paired(sized, app=Wish(amounts("3"))) == {"app": both("3", "4Gi")}


def test_rsz_08_an_absent_limit_stays_absent() -> None:
    sized = pod(container(sizes("500m", "512Mi", "1")))
    for limits in LimitMode:
        assert paired(sized, app=Wish(amounts(None, "900Mi"), limits))["app"].limits.memory is None


def test_acc_03_best_effort_is_given_nothing() -> None:
    sized = pod(container(Resources()))
    decision = one(decide(snapshot(sized), measurements([sized]), config(policy(fixed("100m", "128Mi")))))
    assert (decision.action, decision.reason) == (None, Reason.BEST_EFFORT)


def test_acc_03_guaranteed_is_equal_at_both_ends() -> None:
    assert paired(pod(container(GUARANTEED)), app=Wish(amounts("300m", "300Mi"))) == {"app": both("300m", "300Mi")}


def test_acc_06_a_limit_stays_below_max_allowed_and_says_so() -> None:
    sized = pod(container(sizes("1", "100Mi", None, "1000Mi")))
    entry = ContainerPolicy(max_allowed=amounts(None, "1536Mi"))
    settings_ = config(policy(fixed(None, "768Mi"), containers=(entry,)))
    decision = one(decide(snapshot(sized), measurements([sized], history(memory=(float(90 << 20),))), settings_))
    assert decision.proposals[0].proposed == sizes("1", "768Mi", None, "1536Mi")
    assert any("ratio" in step.because and step.cap for step in decision.proposals[0].trail)


def test_num_03_the_ratio_concerns_limits_alone() -> None:
    requests = {
        limits: paired(pod(container(sizes("1", "1Gi", "2", "2Gi"))), app=Wish(amounts("1500m"), limits))["app"]
        for limits in LimitMode
    }
    assert {each.requests.cpu for each in requests.values()} == {1500}
    assert requests[LimitMode.KEEP].limits.cpu == 3000
    assert requests[LimitMode.EQUAL].limits.cpu == 1500
    assert requests[LimitMode.REQUESTS_ONLY].limits.cpu == 2000
    assert paired(pod(container(GUARANTEED)), app=Wish(amounts("600m")))["app"].limits.cpu == 600


def test_a_request_that_must_stay_below_its_limit_is_one_that_was_to_move() -> None:
    sized = pod(container(sizes("1", "1Gi", "1", "2Gi")))
    found = paired(sized, app=Wish(amounts(None, "1536Mi"), LimitMode.EQUAL))["app"]
    assert (found.requests.cpu, found.limits.cpu) == (1000, 1000)
    assert (found.requests.memory, found.limits.memory) == ((1536 << 20) - 1, 1536 << 20)


def test_blocks_where_no_request_can_stay_below_its_limit() -> None:
    sized = pod(container(sizes("2m", "1Gi", "4m", "1Gi")))
    found = pair(sized, {"app": Wish(amounts("1m"), LimitMode.EQUAL)})
    assert isinstance(found, Blocked)
    assert "would become Guaranteed" in found.because


def test_a_sidecar_or_init_container_decides_the_class_too() -> None:
    assert pod(init(sizes("1", "1Gi")), container(GUARANTEED)).qos_class is QoSClass.BURSTABLE
    sized = pod(init(both("1", "1Gi")), container(sizes("100m", "1Gi", "200m", "1Gi")))
    found = paired(sized, app=Wish(amounts("300m"), LimitMode.EQUAL))
    assert found["app"] == sizes("299m", "1Gi", "300m", "1Gi")


def test_pod_level_resources_decide_the_class_alone() -> None:
    assert qos_class(pod(container(), pod_level=both("1", "1Gi")), {}) is QoSClass.GUARANTEED


def test_a_memory_limit_is_not_lowered_below_recent_usage() -> None:
    """ACC-04, RSZ-03: usage 900 MiB, at most 1000 MiB in 15 minutes, limit 2 GiB, target 800 MiB."""
    usage = [float(size << 20) for size in (1000, 900, 900)]
    measured = history(cpu=(0.1,) * 3, memory=usage, step=300)
    for spec, after in (
        (both("1", "2Gi"), both("1", "1100Mi")),
        (sizes("1", "1Gi", "1", "2Gi"), None),
    ):
        sized = pod(container(spec))
        decision = one(decide(snapshot(sized), measurements([sized], measured), config(policy(fixed(None, "800Mi")))))
        proposed = decision.proposals[0].proposed
        assert after is None or proposed == after
        assert (proposed.limits.memory or 0) >= 1100 << 20
        assert (proposed.requests.memory or 0) >= 1024 << 20
    sized = pod(container(sizes("1", "2Gi", None, "3Gi")))
    entry = ContainerPolicy(limits=LimitMode.EQUAL)
    settings_ = config(policy(fixed(None, "800Mi"), containers=(entry,)))
    decision = one(decide(snapshot(sized), measurements([sized], measured), settings_))
    assert decision.proposals[0].proposed == sizes("1", "1100Mi", None, "1100Mi")


@pytest.mark.parametrize(
    ("target", "after", "steps"),
    [("110Mi", sizes("1", "110Mi", None, "1000Mi"), ["limit"]), ("80Mi", sizes("1", "80Mi", None, "800Mi"), [])],
    ids=["grows", "shrinks"],
)
def test_max_allowed_does_not_lower_a_limit_that_is_above_it(target: str, after: Resources, steps: list[str]) -> None:
    sized = pod(container(sizes("1", "100Mi", None, "1000Mi")))
    entry = ContainerPolicy(max_allowed=amounts(None, "200Mi"))
    settings_ = config(policy(fixed(None, target), containers=(entry,)))
    decision = one(decide(snapshot(sized), measurements([sized], history(memory=(1.0,))), settings_))
    assert decision.proposals[0].proposed == after
    assert [step.name for step in decision.proposals[0].trail if step.name != "recommender"] == steps


def test_a_memory_decrease_that_the_floor_eats_up_holds() -> None:
    sized = pod(container(both("1", "1Gi")))
    measured = measurements([sized], history(memory=(float(1 << 30),)))
    decision = one(decide(snapshot(sized), measured, config(policy(fixed(None, "800Mi")))))
    assert (decision.action, decision.reason) == (None, Reason.AT_TARGET)
    assert [step.name for step in decision.proposals[0].trail if step.name != "recommender"] == ["memoryFloor"]


def test_memory_usage_older_than_the_floor_looks_back_does_not_count() -> None:
    sized = pod(container(both("1", "2Gi")))
    measured = measurements([sized], history((0.1,) * 2, (float(2 << 30), float(100 << 20)), step=901))
    decision = one(decide(snapshot(sized), measured, config(policy(fixed(None, "1Gi")))))
    assert decision.proposals[0].proposed == both("1", "1Gi")


def _side(draw: st.DrawFn, largest: int) -> tuple[int | None, int | None]:
    """Request and limit of one resource: absent, zero, or far apart; the request never exceeds the limit."""
    limit = draw(st.none() | st.sampled_from([1, 2, 10, 100]) | st.integers(1, largest))
    most = largest if limit is None else limit
    request = draw(st.none() | st.sampled_from([0, most, max(most - 1, 0)]) | st.integers(0, most))
    if limit is not None and draw(st.booleans()):
        request = limit
    return request, limit


@st.composite
def resources(draw: st.DrawFn) -> Resources:
    cpu, cpu_limit = _side(draw, 500_000)
    memory, memory_limit = _side(draw, 1 << 42)
    made = Resources()
    for resource, request, limit in ((Resource.CPU, cpu, cpu_limit), (Resource.MEMORY, memory, memory_limit)):
        made = Resources(made.requests.with_amount(resource, request), made.limits.with_amount(resource, limit))
    return made


@st.composite
def guaranteed(draw: st.DrawFn) -> Resources:
    same = ResourceList()
    for resource, largest in ((Resource.CPU, 500_000), (Resource.MEMORY, 1 << 42)):
        same = same.with_amount(resource, draw(st.integers(1, largest)))
    return Resources(same, same)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    kinds = draw(st.lists(st.sampled_from(list(ContainerKind)), max_size=3))
    kinds = sorted([*kinds, ContainerKind.CONTAINER], key=lambda kind: kind is ContainerKind.CONTAINER)
    size = draw(st.sampled_from([resources(), guaranteed()]))
    made: list[Container] = [container(draw(size), f"c{i}", kind) for i, kind in enumerate(kinds)]
    return pod(*made)


def _target(draw: st.DrawFn) -> Target:
    return Target(
        draw(st.none() | st.floats(0.0005, 9999)),
        draw(st.none() | st.floats(1, 2.0**49)),
    )


@st.composite
def entries(draw: st.DrawFn) -> ContainerPolicy:
    bounds = ResourceList(), ResourceList()
    for resource, largest in ((Resource.CPU, 500_000), (Resource.MEMORY, 1 << 42)):
        least, most = sorted(draw(st.tuples(st.integers(1, largest), st.integers(1, largest))))
        bounds = (
            bounds[0].with_amount(resource, draw(st.sampled_from([None, least]))),
            bounds[1].with_amount(resource, draw(st.sampled_from([None, most]))),
        )
    return ContainerPolicy(
        draw(st.sampled_from(["*", "c0", "c1"])),
        controlled=draw(
            st.sampled_from([frozenset(Resource), frozenset({Resource.CPU}), frozenset({Resource.MEMORY})])
        ),
        min_allowed=bounds[0],
        max_allowed=bounds[1],
        limits=draw(st.sampled_from(list(LimitMode))),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Pod, Measurements, tuple[ContainerPolicy, ...]]:
    sized = draw(pods())
    measured: dict[ContainerRef, History | Gap] = {}
    for each in sized.containers:
        usage = draw(st.floats(1, 2.0**42))
        measured[ContainerRef(sized.namespace, sized.name, each.name)] = history(memory=(usage,), state=_target(draw))
    return (
        sized,
        Measurements(NOW, measured, in_use=in_use(measured)),
        tuple(draw(st.lists(entries(), min_size=1, max_size=2))),
    )


BOUNDLESS = Node("node-a", ResourceList())


def _sides(each: Resources) -> list[int | None]:
    return [side.get(resource) for side in (each.requests, each.limits) for resource in RESOURCES]


@settings(max_examples=400)
@given(cases())
def test_any_pod_keeps_its_class_its_fields_and_legal_pairs(
    case: tuple[Pod, Measurements, tuple[ContainerPolicy, ...]],
) -> None:
    sized, measured, rules = case
    settings_ = config(policy(Fixed(), containers=rules))
    decision = one(decide(snapshot(sized, nodes=[BOUNDLESS]), measured, settings_))
    proposals = {each.container.name: each.proposed for each in decision.proposals}
    assert list(proposals) == [each.name for each in sized.containers]
    if decision.action is None:
        assert proposals == specs(sized)
        return
    resized = with_resize(sized, decision.action)
    assert specs(resized) == proposals
    assert qos_class(resized, {}) is sized.qos_class
    for before, after in zip(sized.containers, resized.containers, strict=True):
        assert [amount is None for amount in _sides(before.spec)] == [amount is None for amount in _sides(after.spec)]
        for old, new in zip(_sides(before.spec), _sides(after.spec), strict=True):
            assert new == old or new
        for resource in RESOURCES:
            request, limit = after.spec.requests.get(resource), after.spec.limits.get(resource)
            assert limit is None or (request or 0) <= limit
    for change in decision.action.containers:
        (before,) = (each for each in sized.containers if each.name == change.name)
        assert change.kind is before.kind is not ContainerKind.INIT
        sides = list(zip(_sides(change.change), _sides(before.spec), strict=True))
        assert any(new is not None for new, _ in sides)
        assert all(new is None or new != old for new, old in sides)
    again = one(decide(snapshot(resized, nodes=[BOUNDLESS]), measured, settings_))
    # a memory limit that may not fall yet may do so once others of the pod have risen: the kubelet compares their sum
    if not any(step.name == "memoryLimit" for each in decision.proposals for step in each.trail):
        assert (again.action, again.reason) == (None, Reason.AT_TARGET)
