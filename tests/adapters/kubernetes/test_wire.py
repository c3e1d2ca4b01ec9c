from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from autoscaler.adapters.kubernetes.decoded import Owned
from autoscaler.adapters.kubernetes.wire import decode_node, decode_pod, patch_body
from autoscaler.adapters.kubernetes.wire_workloads import Controller, decode_job, decode_replica_set
from autoscaler.core.actions import ContainerResize, Resize
from autoscaler.core.model import Container, ContainerKind, Node, PodRef, QoSClass, Resource, ResourceList, Resources
from autoscaler.core.scheduling import Taint
from autoscaler.core.units import Bytes, Millicores
from tests.adapters.kubernetes.objects import Json, broken, capture, decoded, node, owned, pod, raw

MIB = 1 << 20


def amounts(cpu: int | None = None, memory: int | None = None) -> ResourceList:
    return ResourceList(None if cpu is None else Millicores(cpu), None if memory is None else Bytes(memory))


def both(cpu: int, memory: int) -> Resources:
    return Resources(amounts(cpu, memory), amounts(cpu, memory))


def test_a_deferred_pod_shows_what_is_wanted_set_aside_and_in_force() -> None:
    read = decoded(capture("b-deferred-pod"))
    (app,) = read.containers
    assert app.spec == both(1200, 64 * MIB)
    assert app.allocated == amounts(200, 64 * MIB)
    assert app.actual == both(200, 64 * MIB)
    assert app.running
    assert app.started_at == datetime(2026, 11, 29, 14, 52, 6, tzinfo=UTC)
    assert (read.qos_class, read.node, read.phase) == (QoSClass.GUARANTEED, "127.0.0.1", "Running")
    assert (read.generation, read.observed_generation) == (2, 1)
    pending = read.condition("PodResizePending")
    assert pending is not None
    assert (pending.reason, pending.observed_generation) == ("Deferred", 2)
    assert "requested: 1200, used: 1400, capacity: 1900" in pending.message
    assert len(read.conditions) == 1  # the others are not used


def test_the_newest_ask_is_read_from_the_managed_fields_of_the_resize_subresource() -> None:
    ask = decoded(capture("b-deferred-pod")).newest_ask
    assert ask is not None
    assert (ask.manager, ask.at) == ("unknown", datetime(2026, 11, 29, 14, 52, 7, tzinfo=UTC))
    assert decoded(pod()).newest_ask is None


def test_times_that_no_duration_can_be_added_to_are_none() -> None:
    """Whoever may update a pod may write any time into its managedFields."""
    never = "9999-12-31T23:59:59Z"
    made_up = capture("b-deferred-pod")
    for entry in made_up["metadata"]["managedFields"]:
        entry["time"] = never
    for condition in made_up["status"]["conditions"]:
        condition["lastTransitionTime"] = never
    made_up["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = never
    read = decoded(made_up)
    assert (read.asks, read.containers[0].started_at) == ((), None)
    assert [condition.last_transition_at for condition in read.conditions] == [None]


@pytest.mark.parametrize(
    ("name", "condition", "reason"),
    [("d-error-pod", "PodResizeInProgress", "Error"), ("e-infeasible-cpu", "PodResizePending", "Infeasible")],
)
def test_the_kubelets_word_is_read(name: str, condition: str, reason: str) -> None:
    found = decoded(capture(name)).condition(condition)
    assert found is not None
    assert found.reason == reason


def test_a_resize_policy_that_restarts_is_read() -> None:
    (app,) = decoded(capture("f-pod")).containers
    assert app.restart_on == {Resource.MEMORY}
    assert app.restart_count == 1


def test_init_containers_come_first_and_sidecars_are_told_apart() -> None:
    item = pod()
    item["spec"]["initContainers"] = [
        {"name": "setup", "resources": {"requests": {"cpu": "100m"}}},
        {"name": "proxy", "restartPolicy": "Always", "resources": {}},
    ]
    item["status"]["initContainerStatuses"] = [
        {"name": "setup", "state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": None}}}
    ]
    setup, proxy, app = decoded(item).containers
    assert (setup.kind, setup.ended, setup.running) == (ContainerKind.INIT, True, False)
    assert setup.spec == Resources(amounts(100), amounts())
    assert proxy == Container("proxy", ContainerKind.SIDECAR)
    assert (app.kind, app.ended) == (ContainerKind.CONTAINER, False)


@pytest.mark.parametrize(
    ("restart_policy", "exit_code", "ended"),
    [("Always", 0, False), ("OnFailure", 0, True), ("OnFailure", 1, False), ("Never", 1, True)],
)
def test_a_container_has_ended_when_nothing_starts_it_again(restart_policy: str, exit_code: int, ended: bool) -> None:
    item = pod()
    item["spec"]["restartPolicy"] = restart_policy
    item["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": exit_code}}
    assert decoded(item).containers[0].ended is ended


def test_the_last_termination_is_read() -> None:
    item = pod()
    item["status"]["containerStatuses"][0]["lastState"] = {
        "terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-29T10:00:00Z"}
    }
    last = decoded(item).containers[0].last_terminated
    assert last is not None
    assert (last.reason, last.exit_code) == ("OOMKilled", 137)
    assert last.finished_at == datetime(2026, 11, 29, 10, tzinfo=UTC)


def test_what_the_kubelet_does_not_report_is_none_and_not_zero() -> None:
    item = pod()
    status = item["status"]["containerStatuses"][0]
    del status["allocatedResources"], status["resources"]
    (app,) = decoded(item).containers
    assert app.allocated is None
    assert app.actual is None


def test_an_allocation_of_nothing_is_omitted_by_the_kubelet_and_still_known() -> None:
    item = pod()
    status = item["status"]["containerStatuses"][0]
    del status["allocatedResources"]
    status["resources"] = {}
    (app,) = decoded(item).containers
    assert app.allocated == amounts()
    assert app.actual == Resources()


def test_a_static_pod_is_known_by_its_mirror_annotation() -> None:
    item = pod()
    assert not decoded(item).static
    item["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert decoded(item).static


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False), (None, False)])
def test_readiness_is_read(status: str | None, ready: bool) -> None:
    item = pod()
    item["status"]["conditions"] = [] if status is None else [{"type": "Ready", "status": status}]
    assert decoded(item).ready is ready


def test_only_annotations_for_this_program_or_against_moving_are_kept() -> None:
    item = pod()
    kept = {
        "bridge-autoscaler.dev/acknowledged": "x",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    item["metadata"]["annotations"] = kept | {"other.example/large": "y" * 1000, "karpenter.sh/other": "z"}
    assert decoded(item).annotations == kept


def test_owner_birth_and_address_are_read() -> None:
    item = pod()
    assert (decoded(item).owner, decoded(item).created_at, decoded(item).ip) == (None, None, "")
    item["metadata"] |= {
        "creationTimestamp": "2026-11-29T10:00:00Z",
        "ownerReferences": [
            {"kind": "Group", "name": "other"},
            {"kind": "ReplicaSet", "name": "bridge-7d", "controller": True},
        ],
    }
    item["status"]["podIP"] = "10.0.0.7"
    read = decoded(item)
    assert (read.owner, read.workload, read.ip) == ("ReplicaSet/bridge-7d", "ReplicaSet/bridge-7d", "10.0.0.7")
    assert read.created_at == datetime(2026, 11, 29, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("conditions", "disrupted", "unscheduled"),
    [
        (None, False, None),
        ([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}], True, None),
        ([{"type": "DisruptionTarget", "status": "False"}], False, None),
        ([{"type": "PodScheduled", "status": "True"}], False, None),
        ([{"type": "PodScheduled", "status": "Unknown", "message": "?"}], False, None),
        (
            [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}],
            False,
            "0/3 nodes",
        ),
        ([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}], False, "SchedulingGated"),
        ([{"type": "PodScheduled", "status": "False"}], False, "the scheduler does not say why"),
    ],
)
def test_evictions_and_what_the_scheduler_says_are_read(
    conditions: list[Json] | None, disrupted: bool, unscheduled: str | None
) -> None:
    item = pod()
    item["status"]["conditions"] = conditions
    read = decoded(item)
    assert (read.disrupted, read.unscheduled, read.conditions) == (disrupted, unscheduled, ())


def test_deletion_priority_overhead_and_pod_level_resources_are_read() -> None:
    item = pod()
    item["metadata"]["deletionTimestamp"] = "2026-11-29T10:00:00Z"
    item["spec"] |= {"priority": 7, "overhead": {"cpu": "250m"}, "resources": {"limits": {"memory": "2Gi"}}}
    read = decoded(item)
    assert (read.deleting, read.priority, read.overhead) == (True, 7, amounts(250))
    assert read.pod_level == Resources(amounts(), amounts(memory=2 << 30))
    assert decoded(pod()).pod_level is None
    assert not read.sums_reported
    item["status"]["allocatedResources"] = {"cpu": "1250m"}
    assert decoded(item).sums_reported


def test_an_unknown_qos_class_leaves_the_pod_in_the_snapshot_and_untouched() -> None:
    item = pod()
    item["status"]["qosClass"] = "Golden"
    one = decode_pod(raw(item))
    assert one.value is not None
    assert one.value.qos_class is QoSClass.BEST_EFFORT
    assert one.problem is not None
    assert "'Golden'" in one.problem.detail


@pytest.mark.parametrize(
    "breakage",
    [
        {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "much"}}}]}},
        {"spec": {"containers": "none"}},
        {"status": 7},
    ],
)
def test_an_unreadable_pod_is_a_problem_that_names_it(breakage: Json) -> None:
    one = decode_pod(raw(pod(version=9) | breakage))
    assert one.value is None
    assert one.key == PodRef("sim", "bridge-0")
    assert one.version == "9"
    assert one.problem is not None
    assert "sim/bridge-0" in one.problem.detail


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"<html>", b'{"metadata": 3}', b'"\xff"', b"[" * 100_000])
def test_garbage_is_a_problem(text: bytes) -> None:
    assert decode_pod(text).problem is not None
    assert decode_node(text).problem is not None
    assert decode_job(text).problem is not None
    assert decode_replica_set(text).problem is not None


def test_a_node_is_read() -> None:
    item = capture("node")
    read = decode_node(raw(item)).value
    assert read is not None
    assert (read.name, read.ready, read.os) == ("127.0.0.1", True, "linux")
    assert read.allocatable == amounts(1900, 1203728 << 10)
    assert read.declared_features == frozenset(item["status"].get("declaredFeatures", ()))
    assert decode_node(raw({"metadata": {"name": "bare"}})).value == Node("bare", amounts(), ready=False)


def test_what_a_node_offers_and_refuses_is_read() -> None:
    item = node()
    item["metadata"]["labels"] |= {"topology.kubernetes.io/zone": "a"}
    item["spec"] = {
        "unschedulable": True,
        "taints": [
            {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-11-29T10:00:00Z"},
        ],
    }
    item["status"]["allocatable"] |= {"ephemeral-storage": "1Ki", "example.com/gpu": "2", "hugepages-2Mi": "0"}
    read = decode_node(raw(item)).value
    assert read is not None
    assert read.labels == {"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a"}
    assert read.taints == (Taint("gpu", "yes"), Taint("node.kubernetes.io/unschedulable"))
    assert (read.unschedulable, read.pods) == (True, 110)
    assert read.extended == {"ephemeral-storage": 1024, "example.com/gpu": 2, "hugepages-2Mi": 0}


@pytest.mark.parametrize("name", ["b-deferred-pod", "f-pod"])
def test_whatever_stands_in_a_pod_is_read_or_a_problem(name: str) -> None:
    item = capture(name)
    item["metadata"]["managedFields"] = item["metadata"]["managedFields"][:2]
    for variant in broken(item):
        read = decode_pod(raw(variant))
        assert read.value is not None or read.problem is not None


def test_whatever_stands_in_a_node_is_read_or_a_problem() -> None:
    item = node()
    item["spec"] = {"unschedulable": False, "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}
    item["status"]["declaredFeatures"] = ["A"]
    assert decode_node(raw(item)).problem is None
    read = [decode_node(raw(variant)) for variant in broken(item)]
    assert all((one.value is None) == (one.problem is not None) for one in read)
    assert {one.value is None for one in read} == {True, False}


def test_only_the_controlling_owner_counts() -> None:
    item = owned("bridge-7d", "Deployment/bridge")
    item["metadata"]["ownerReferences"].insert(0, {"kind": "Group", "name": "other"})
    one = decode_job(raw(item))
    assert (one.key, one.value) == (Owned("sim", "Job/bridge-7d"), Controller("Deployment/bridge"))
    assert decode_job(raw(owned("bare", None))).value == Controller()


def test_equal_sizes_and_labels_are_held_once() -> None:
    one, two = decoded(pod("a")), decoded(pod("b"))
    assert one.containers[0].spec is two.containers[0].spec
    assert one.labels is two.labels


def test_a_patch_names_only_what_changes_and_carries_both_preconditions() -> None:
    resize = Resize(
        PodRef("sim", "bridge-0"),
        "the-uid",
        3,
        (
            ContainerResize("app", ContainerKind.CONTAINER, Resources(amounts(1500, 2 << 30), amounts(2000))),
            ContainerResize("proxy", ContainerKind.SIDECAR, Resources(amounts(), amounts(memory=300 * MIB))),
            ContainerResize("idle", ContainerKind.CONTAINER, Resources()),
        ),
    )
    expected: dict[str, Any] = {
        "metadata": {"uid": "the-uid", "resourceVersion": "77"},
        "spec": {
            "containers": [
                {
                    "name": "app",
                    "resources": {"requests": {"cpu": "1500m", "memory": "2Gi"}, "limits": {"cpu": "2"}},
                }
            ],
            "initContainers": [{"name": "proxy", "resources": {"limits": {"memory": "300Mi"}}}],
        },
    }
    assert patch_body(resize, "77") == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"spec": {"schedulingGates": [{"name": "a"}, {"name": "b"}]}}, "scheduling gates a, b"),
        ({"spec": {"schedulingGates": []}}, None),
        ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, "label kueue.x-k8s.io/queue-name"),
        ({"metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}}}, "label kueue.x-k8s.io/managed"),
        ({"metadata": {"annotations": {"kueue.x-k8s.io/queue-name": "q"}}}, "annotation kueue.x-k8s.io/queue-name"),
    ],
)
def test_what_marks_a_pod_as_gated_is_read(change: dict[str, Json], words: str | None) -> None:
    item = pod()
    for part, fields in change.items():
        item[part].update(fields)
    assert decoded(item).gated == words
