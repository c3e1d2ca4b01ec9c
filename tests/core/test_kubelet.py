"""What the API server and a kubelet answer, in the words of captures of real ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from autoscaler.core.kubelet import (
    Verdict,
    actual,
    admit,
    allocated,
    allocated_on,
    counted,
    desired,
    footprint,
    holds_room,
    memory_decrease_error,
    predict,
    refused_by_api_server,
    reserved,
    resized,
    restarts,
    retry_order,
)
from autoscaler.core.model import Container, Node, Pod, QoSClass, Resource, ResourceList, Resources
from autoscaler.core.plan import PredictedOutcome, Prediction
from autoscaler.core.units import Bytes
from tests.adapters.kubernetes.objects import capture, decoded
from tests.build import NOW, amounts, both, container, init, node, pod, sidecar, sizes

NOTHING = amounts("0", "0")


def cpu(amount: str, name: str = "app") -> Container:
    return container(sizes(amount, "1Mi"), name)


@pytest.mark.parametrize(
    ("made", "millicores"),
    [
        pytest.param(pod(cpu("500m"), cpu("300m", "b")), 800, id="containers add up"),
        pytest.param(pod(init(sizes("2", "1Mi")), cpu("500m")), 2000, id="an init container that needs more"),
        pytest.param(pod(init(sizes("200m", "1Mi")), cpu("500m")), 500, id="an init container that needs less"),
        pytest.param(
            pod(init(sizes("1", "1Mi"), "a"), init(sizes("2", "1Mi"), "b"), cpu("500m")), 2000, id="one after another"
        ),
        pytest.param(pod(sidecar(sizes("100m", "1Mi")), cpu("500m")), 600, id="a sidecar runs along"),
        pytest.param(
            pod(sidecar(sizes("100m", "1Mi")), init(sizes("2", "1Mi")), cpu("500m")),
            2100,
            id="a sidecar before an init container runs beside it",
        ),
        pytest.param(
            pod(init(sizes("2", "1Mi")), sidecar(sizes("100m", "1Mi")), cpu("500m")),
            2000,
            id="a sidecar after an init container does not",
        ),
        pytest.param(pod(cpu("500m"), overhead=amounts("50m")), 550, id="overhead"),
        pytest.param(pod(cpu("500m"), pod_level=sizes("2", None), overhead=amounts("50m")), 2050, id="pod level"),
        pytest.param(pod(cpu("500m"), pod_level=sizes(None, "1Gi")), 500, id="pod level of the other resource"),
        pytest.param(pod(container(sizes(None, "1Mi"))), 0, id="no request"),
    ],
)
def test_footprint(made: Pod, millicores: int) -> None:
    assert footprint(made, desired).cpu == millicores


def test_amounts_that_the_kubelet_does_not_report_are_the_next_best() -> None:
    unknown = container(allocated=None, actual=None)
    assert allocated(unknown) == actual(unknown) == unknown.spec.requests
    known = container(allocated=amounts("200m", "1Gi"), actual=None)
    assert actual(known) == known.allocated
    assert actual(container(actual=sizes("300m", "1Gi"))) == amounts("300m", "1Gi")


def test_mig_04_a_pending_decrease_still_takes_its_room() -> None:
    shrinking = pod(container(sizes("2", "1Gi"), allocated=amounts("4", "1Gi"), actual=sizes("4", "1Gi")))
    other = pod(container(sizes("3", "1Gi")), name="b")
    free = 8000 - sum(reserved(each).cpu or 0 for each in (shrinking, other))
    assert free == 1000
    assert allocated_on([shrinking, other]) == amounts("7", "2Gi")


def test_reserved_is_the_largest_of_each_resource() -> None:
    moving = pod(container(sizes("3", "1Gi"), allocated=amounts("1", "2Gi"), actual=sizes("2", "3Gi")))
    assert reserved(moving) == amounts("3", "3Gi")


def test_cpu_that_is_still_in_force_counts_and_memory_does_not() -> None:
    shrinking = pod(container(sizes("1", "1Gi"), allocated=amounts("1", "1Gi"), actual=sizes("2", "2Gi")))
    assert counted(shrinking) == amounts("2", "1Gi")
    growing = pod(container(sizes("2", "2Gi"), allocated=amounts("2", "2Gi"), actual=sizes("1", "1Gi")))
    assert counted(growing) == allocated_on([growing]) == amounts("2", "2Gi")
    wishing = pod(container(sizes("2", "2Gi"), allocated=amounts("1", "1Gi"), actual=sizes("1", "1Gi")))
    assert counted(wishing) == amounts("1", "1Gi")


def test_overhead_counts_twice_once_a_kubelet_reports_sums() -> None:
    heavy = pod(cpu("1"), overhead=amounts("50m", "8Mi"), sums_reported=True)
    assert counted(heavy) == reserved(heavy) == amounts("1100m", "17Mi")
    assert footprint(heavy, desired) == amounts("1050m", "9Mi")
    assert counted(replace(heavy, sums_reported=False)) == amounts("1050m", "9Mi")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_and_unbound_pods_take_no_room(phase: str) -> None:
    assert not holds_room(pod(phase=phase))
    assert not holds_room(pod(node=None))
    assert allocated_on([pod(phase=phase), pod(node=None)]) == NOTHING


def test_capture_b_deferred() -> None:
    item = capture("b-deferred-pod")
    answer = admit(decoded(item), node(cpu="1900m"), amounts("1400m", "0"))
    (condition,) = (one for one in item["status"]["conditions"] if one["type"] == "PodResizePending")
    assert (answer.verdict, answer.message) == (Verdict.DEFERRED, condition["message"])
    assert (answer.resource, answer.missing) == (Resource.CPU, 700)


def test_admits_what_just_fits_and_names_only_the_first_resource_that_does_not() -> None:
    asking = pod(container(sizes("2", "4Gi")))
    assert admit(asking, node(cpu="4", memory="8Gi"), amounts("2", "4Gi")).verdict is Verdict.ACCEPTED
    both_lack = admit(asking, node(cpu="4", memory="8Gi"), amounts("2001m", "5Gi"))
    assert (both_lack.resource, both_lack.missing) == (Resource.CPU, 1)
    memory = admit(asking, node(cpu="4", memory="8Gi"), amounts("2", "5Gi"))
    assert memory.message == (
        "Node didn't have enough resource: memory, requested: 4294967296, used: 5368709120, capacity: 8589934592"
    )
    assert memory.missing == 1 << 30
    assert admit(asking, Node("n", ResourceList()), amounts("9", "9Gi")).verdict is Verdict.ACCEPTED
    nothing = pod(container(sizes("0", "1Gi")))
    assert admit(nothing, node(cpu="4", memory="8Gi"), amounts("5", "5Gi")).verdict is Verdict.ACCEPTED


def test_capture_e_infeasible_under_a_static_manager() -> None:
    item = capture("e-infeasible-cpu")
    (condition,) = (one for one in item["status"]["conditions"] if one["type"] == "PodResizePending")
    answer = admit(decoded(item), node(), NOTHING, frozenset({Resource.CPU}))
    assert (answer.verdict, answer.message) == (Verdict.INFEASIBLE, condition["message"])
    assert admit(decoded(item), node(), NOTHING, frozenset({Resource.MEMORY})).verdict is Verdict.ACCEPTED


@pytest.mark.parametrize(("name", "spec"), [("c-cpu-above", both("3", "64Mi")), ("c-mem-above", both("100m", "64Gi"))])
def test_capture_c_refused_by_the_api_server(name: str, spec: Resources) -> None:
    message = capture(name)["body"]["message"]
    refusal = refused_by_api_server(
        pod(container(spec)), Node("n", ResourceList(amounts("1900m").cpu, Bytes(1232617472)))
    )
    assert refusal is not None
    assert message == f'pods "c" is forbidden: {refusal}'


def test_both_resources_are_named_when_both_are_beyond_the_node() -> None:
    refusal = refused_by_api_server(pod(container(both("6100m", "1Gi"))), node(cpu="4", memory="1Mi"))
    assert refusal == (
        "node didn't have enough allocatable resources: cpu, requested: 6100, allocatable: 4000;"
        " memory, requested: 1073741824, allocatable: 1048576"
    )
    assert refused_by_api_server(pod(container(both("4", "1Mi"))), node(cpu="4", memory="1Mi")) is None


def test_capture_d_memory_decrease_below_usage() -> None:
    item = capture("d-error-pod")
    (condition,) = (one for one in item["status"]["conditions"] if one["type"] == "PodResizeInProgress")
    refused = decoded(item)
    assert memory_decrease_error(refused, {"app": Bytes(71094272)}) == condition["message"]
    assert memory_decrease_error(refused, {"app": Bytes(67108864)}) is not None
    assert memory_decrease_error(refused, {"app": Bytes(67108863)}) is None


def test_memory_errors_concern_limits_that_shrink_or_are_new() -> None:
    usage = {"app": Bytes(900 << 20), "proxy": Bytes(10 << 20)}
    grown = pod(container(both("1", "2Gi"), actual=both("1", "1Gi")), sidecar(both("1", "64Mi")))
    assert memory_decrease_error(grown, usage) is None
    added = pod(container(both("1", "512Mi"), actual=sizes("1", "512Mi")), sidecar(both("1", "64Mi")))
    error = memory_decrease_error(added, usage)
    assert error is not None
    assert "pod memory limit (603979776) below current usage (954204160)" in error
    assert 'container "app" memory limit (536870912) below current usage (954204160)' in error
    assert '"proxy"' not in error
    without = pod(container(both("1", "512Mi"), actual=both("1", "1Gi")), sidecar(sizes("1", "64Mi")))
    assert memory_decrease_error(without, usage) == (
        'cannot decrease memory limits: attempting to set container "app" memory limit (536870912)'
        " below current usage (954204160)"
    )
    assert memory_decrease_error(pod(container(sizes("1", "1Gi"))), usage) is None


def test_what_a_container_holds_is_no_matter_if_it_restarts() -> None:
    restarting = container(both("1", "512Mi"), actual=both("1", "1Gi"), restart_on=frozenset({Resource.MEMORY}))
    other = sidecar(both("1", "64Mi"))
    usage = {"app": Bytes(900 << 20), "proxy": Bytes(10 << 20)}
    assert memory_decrease_error(pod(restarting, other), usage) is None
    usage["proxy"] = Bytes(600 << 20)
    assert memory_decrease_error(pod(restarting, other), usage) == (
        "cannot decrease memory limits: attempting to set pod memory limit (603979776) below current usage (629145600)"
    )


def test_restarts_are_those_of_the_resources_whose_policy_says_so() -> None:
    memory, processor = frozenset({Resource.MEMORY}), frozenset({Resource.CPU})
    before = pod(container(restart_on=memory), sidecar(restart_on=processor), init())
    assert restarts(before, before) == ()
    assert restarts(before, resized(before, {"app": sizes("1", "1Gi", "2", "2Gi")})) == ()
    assert restarts(before, resized(before, {"app": sizes("500m", "2Gi", "1", "2Gi")})) == ("app",)
    assert restarts(before, resized(before, {"app": sizes("500m", "1Gi", "1", "3Gi")})) == ("app",)
    assert restarts(before, resized(before, {"proxy": sizes("600m", "1Gi", "1", "2Gi")})) == ("proxy",)


def test_capture_f_a_cpu_resize_does_not_restart_what_memory_would() -> None:
    before = decoded(capture("f-pod"))
    assert before.containers[0].restart_on == {Resource.MEMORY}
    assert restarts(before, resized(before, {"app": both("300m", "128Mi")})) == ()
    assert restarts(before, resized(before, {"app": both("200m", "256Mi")})) == ("app",)


def test_deferred_resizes_are_tried_again_in_the_kubelets_order() -> None:
    up, down = sizes("2", "1Gi", "3", "2Gi"), sizes("500m", "1Gi", "3", "2Gi")
    has = amounts("1", "1Gi")
    late, early = NOW, NOW - timedelta(minutes=5)
    pending = [
        (pod(container(up, allocated=has), name="late"), late),
        (pod(container(up, allocated=has), name="early"), early),
        (pod(container(both("2", "1Gi"), allocated=has), name="guaranteed"), late),
        (pod(container(up, allocated=has), name="important", priority=1000), late),
        (pod(container(down, allocated=has), name="shrinks"), late),
    ]
    assert [each.name for each in retry_order(pending)] == ["shrinks", "important", "guaranteed", "early", "late"]


def test_a_guaranteed_pod_is_known_by_its_status() -> None:
    first = pod(container(both("2", "1Gi"), allocated=amounts("1", "1Gi")), name="a", qos_class=QoSClass.BURSTABLE)
    second = pod(container(both("2", "1Gi"), allocated=amounts("1", "1Gi")), name="b")
    assert [each.name for each in retry_order([(first, NOW), (second, NOW)])] == ["b", "a"]


GROWN = {"app": sizes("2", "1Gi", "4", "2Gi")}


def predicted(before: Pod, on: Node | None, others: ResourceList = NOTHING) -> Prediction:
    return predict(before, GROWN, on, others)


def test_predicts_in_place() -> None:
    assert predicted(pod(), node()) == Prediction(PredictedOutcome.IN_PLACE)


def test_predicts_a_restart_by_resize_policy() -> None:
    before = pod(container(restart_on=frozenset({Resource.CPU})))
    assert predicted(before, node()) == Prediction(PredictedOutcome.RESTART, "resizePolicy restarts app")


def test_predicts_deferred_and_by_how_much_it_is_short() -> None:
    found = predicted(pod(), node(cpu="3"), amounts("1500m", "0"))
    assert found.outcome is PredictedOutcome.DEFERRED
    assert found.detail.startswith("short of 500m cpu. Node didn't have enough resource: cpu, requested: 2000")


def test_predicts_infeasible_beyond_the_node() -> None:
    found = predicted(pod(), node(cpu="1"))
    assert found.outcome is PredictedOutcome.INFEASIBLE
    assert "cpu, requested: 2000, allocatable: 1000" in found.detail


def test_predicts_infeasible_off_linux() -> None:
    found = predicted(pod(), node(os="windows"))
    assert found == Prediction(
        PredictedOutcome.INFEASIBLE, 'pod resize is only supported on linux nodes, this is "windows"'
    )


def test_predicts_nothing_on_a_node_that_is_not_known() -> None:
    assert predicted(pod(), None) == Prediction(PredictedOutcome.UNKNOWN, "node node-a is not known")


def test_a_spec_that_stays_is_the_same_object() -> None:
    before = pod()
    assert resized(before, {"app": before.containers[0].spec}).containers[0] is before.containers[0]
