"""What a pod would lose if it were made anew, amount by amount."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from autoscaler.core.drift import Drift, Side, drifts
from autoscaler.core.model import Pod, Resource, Resources, Workload, WorkloadRef
from autoscaler.core.units import parse_cpu
from tests.build import amounts, both, container, init, pod, sidecar, sizes
from tests.core.migrations import HAS, SCENE, WANTED, overdue, stateful_set

CPU, MEMORY = Resource.CPU, Resource.MEMORY
REQUEST, LIMIT = Side.REQUEST, Side.LIMIT


def made_of(**template: Resources) -> Workload:
    return Workload(WorkloadRef("bridge", "StatefulSet/sim"), "uid", template=template)


def shown(found: tuple[Drift, ...]) -> list[str]:
    """`app cpu limit: 2 -> 3`."""
    return [
        f"{d.container} {d.resource} {d.side}: {d.resource.quantity(d.template)} -> "
        f"{'unset' if d.live is None else d.resource.quantity(d.live)}"
        for d in found
    ]


def test_mig_03_a_pod_that_was_resized_in_place_drifts_from_its_template() -> None:
    assert drifts(pod(container(both("3", "4Gi"))), made_of(app=both("2", "4Gi"))) == (
        Drift("app", CPU, REQUEST, parse_cpu("2"), parse_cpu("3")),
        Drift("app", CPU, LIMIT, parse_cpu("2"), parse_cpu("3")),
    )


def test_each_amount_stands_for_itself_in_the_order_of_the_pod() -> None:
    live = pod(
        init(sizes("1", "1Gi")),
        sidecar(sizes("200m", "64Mi", "400m", "64Mi")),
        container(sizes("2", "3Gi", "4", "4Gi")),
    )
    template = {
        "app": sizes("1", "4Gi", "4", "8Gi"),
        "proxy": sizes("200m", "64Mi", "300m", "64Mi"),
        "init": sizes("1", "2Gi"),
    }
    assert shown(drifts(live, made_of(**template))) == [
        "init memory request: 2Gi -> 1Gi",
        "proxy cpu limit: 300m -> 400m",
        "app cpu request: 1 -> 2",
        "app memory request: 4Gi -> 3Gi",
        "app memory limit: 8Gi -> 4Gi",
    ]


@pytest.mark.parametrize(
    ("live", "template"),
    [
        (pod(container(both("2", "4Gi"))), {"app": both("2", "4Gi")}),
        (pod(container(both("2", "4Gi")), sidecar(both("1", "1Gi"), "injected")), {"app": both("2", "4Gi")}),
        (pod(container(both("100m", "128Mi"))), {"app": Resources()}),  # what a LimitRange gave, it gives again
        (overdue(), {"app": HAS}),  # asks for more, and has not got it
        (pod(container(both("515m", "1Gi"), actual=both("520m", "1Gi"))), {"app": both("515m", "1Gi")}),  # rounded
    ],
    ids=["equal", "injected container", "open in the template", "deferred", "rounded"],
)
def test_what_is_no_drift(live: Pod, template: Mapping[str, Resources]) -> None:
    assert drifts(live, made_of(**template)) == ()


def test_nothing_is_said_of_a_template_that_is_not_known() -> None:
    assert drifts(pod(container(both("3", "4Gi"))), None) == ()


def test_a_resize_that_waits_drifts_by_what_is_in_force() -> None:
    assert shown(drifts(overdue(), made_of(app=both("1", "4Gi")))) == [
        "app cpu request: 1 -> 2",
        "app cpu limit: 1 -> 2",
    ]
    # asked back to the size of the template, and not there yet
    back = pod(container(both("2", "4Gi"), allocated=amounts("3", "4Gi"), actual=both("3", "4Gi")))
    assert shown(drifts(back, made_of(app=both("2", "4Gi")))) == ["app cpu request: 2 -> 3", "app cpu limit: 2 -> 3"]


def test_rounding_hides_no_resize_and_no_memory() -> None:
    assert shown(drifts(pod(container(sizes("30m", "1Gi"))), made_of(app=sizes("20m", "1Gi")))) == [
        "app cpu request: 20m -> 30m"
    ]
    more = container(sizes("1", "1Gi"), actual=sizes("1011m", "1Gi"))
    assert shown(drifts(pod(more), made_of(app=sizes("1", "1Gi")))) == ["app cpu request: 1 -> 1011m"]
    few = container(sizes(None, "1073741824"), actual=sizes(None, "1073741829"))
    (one,) = drifts(pod(few), made_of(app=sizes(None, "1Gi")))
    assert one == Drift("app", MEMORY, REQUEST, 1 << 30, (1 << 30) + 5)


def test_an_amount_that_the_pod_has_not_is_told_from_one_that_is_not_reported() -> None:
    template = made_of(app=sizes("1", "1Gi", "2"))
    assert shown(drifts(pod(container(sizes("1", "1Gi"))), template)) == ["app cpu limit: 2 -> unset"]
    assert drifts(pod(container(sizes("1", "1Gi", "2"), actual=sizes("1", "1Gi"))), template) == ()


def test_a_plan_has_the_workloads_of_its_snapshot() -> None:
    owner = stateful_set(WANTED)
    assert SCENE.but(workloads=(owner,)).plan().workloads == MappingProxyType({owner.ref: owner})
