"""What controllers of pods are read as: what each would make next, and whether it is at rest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from autoscaler.adapters.kubernetes.decoded import Decoded, Owned
from autoscaler.adapters.kubernetes.wire_workloads import (
    Controller,
    decode_deployment,
    decode_replica_set,
    decode_stateful_set,
)
from autoscaler.core.model import Ask, ResourceList, Resources, Workload, WorkloadRef
from autoscaler.core.units import Bytes, Millicores
from tests.adapters.kubernetes.objects import Json, broken, raw, resources, workload

Decode = Callable[[bytes], Decoded[Owned, Controller]]

GIB = 1 << 30
SIZE = ResourceList(Millicores(1000), Bytes(GIB))
PARTITION: Json = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
KINDS: dict[str, Decode] = {
    "Deployment": decode_deployment,
    "ReplicaSet": decode_replica_set,
    "StatefulSet": decode_stateful_set,
}


def read(decode: Decode, item: Json) -> Workload:
    one = decode(raw(item))
    assert one.value is not None
    assert one.value.workload is not None
    return one.value.workload


def with_status(item: Json, **status: Any) -> Json:
    return item | {"status": item["status"] | status}


@pytest.mark.parametrize("kind", KINDS)
def test_a_workload_is_read(kind: str) -> None:
    one = KINDS[kind](raw(workload("bridge", 2, version=7)))
    ref = WorkloadRef("sim", f"{kind}/bridge")
    template = {"app": Resources(SIZE, SIZE)}
    expected = Workload(ref, "uid-bridge", "7", 2, {"app": "bridge"}, template, revision="bridge-1")
    assert (one.key, one.version) == (Owned("sim", f"{kind}/bridge"), "7")
    assert one.value == Controller(None, expected)
    assert read(KINDS[kind], workload()).template == expected.template


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_replicas_is_one_unless_it_is_said(kind: str) -> None:
    item = workload(replicas=1)
    item["spec"]["replicas"] = None
    assert (read(KINDS[kind], item).replicas, read(KINDS[kind], item).settled) == (1, True)


def test_a_replica_set_that_wants_no_pods_is_only_a_link_to_its_owner() -> None:
    above = [{"kind": "Deployment", "name": "bridge", "controller": True}]
    item = workload("bridge-7d", 0, ownerReferences=above)
    assert decode_replica_set(raw(item)).value == Controller("Deployment/bridge")
    assert read(decode_deployment, workload(replicas=0)).replicas == 0


def test_only_a_replica_set_belongs_to_what_its_pods_belong_to() -> None:
    above = [{"kind": "Deployment", "name": "bridge", "controller": True}]
    assert read(decode_replica_set, workload(ownerReferences=above)).owned
    assert not read(decode_replica_set, workload()).owned
    assert not read(decode_stateful_set, workload(ownerReferences=above)).owned


def test_the_template_is_what_a_new_pod_asks_for() -> None:
    item = workload()
    item["spec"]["template"]["spec"] = {
        "initContainers": [
            {"name": "setup"},
            {"name": "proxy", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
        ],
        "containers": [
            {"name": "app", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}}},
            {"name": "log", "resources": {"requests": {"memory": "1Gi"}}},
        ],
    }
    assert read(decode_deployment, item).template == {
        "setup": Resources(),
        "proxy": Resources(SIZE, SIZE),  # the API server takes a limit for the request that is not there
        "app": Resources(ResourceList(Millicores(500), Bytes(GIB)), SIZE),
        "log": Resources(ResourceList(memory=Bytes(GIB))),
    }


def test_templates_that_are_equal_are_held_once() -> None:
    assert read(decode_deployment, workload("a")).template is read(decode_stateful_set, workload("b")).template


@pytest.mark.parametrize("kind", KINDS)
def test_a_workload_whose_controller_has_not_looked_yet_is_not_settled(kind: str) -> None:
    assert not read(KINDS[kind], workload(generation=2)).settled
    assert not read(KINDS[kind], with_status(workload(), observedGeneration=0)).settled
    assert read(KINDS[kind], with_status(workload(generation=2), observedGeneration=2)).settled


@pytest.mark.parametrize("kind", KINDS)
def test_a_workload_that_is_being_deleted_is_not_settled_as_it_makes_no_pods(kind: str) -> None:
    item = workload()
    item["metadata"]["deletionTimestamp"] = "2026-03-02T08:00:00Z"
    assert not read(KINDS[kind], item).settled


@pytest.mark.parametrize(
    ("status", "settled"),
    [
        ({"updatedReplicas": 1}, False),  # the rest is of the old template
        ({"updatedReplicas": 2, "replicas": 3}, False),  # one of the old template is still there
        ({"updatedReplicas": 1, "replicas": 1}, False),  # one is missing
        ({"updatedReplicas": 3, "replicas": 3}, False),  # one is to go
        ({"readyReplicas": 0, "availableReplicas": 0}, True),  # what is not ready is seen at the pods
    ],
)
def test_a_deployment_is_settled_when_all_its_pods_are_of_the_newest_template(status: Json, settled: bool) -> None:
    assert read(decode_deployment, with_status(workload(replicas=2), **status)).settled is settled


def test_a_deployment_that_is_paused_is_not_settled() -> None:
    item = workload()
    item["spec"]["paused"] = True
    assert not read(decode_deployment, item).settled


@pytest.mark.parametrize(
    ("strategy", "status", "settled"),
    [
        ({"type": "RollingUpdate"}, {}, True),
        ({"type": "RollingUpdate"}, {"updateRevision": "bridge-2", "updatedReplicas": 1}, False),
        ({"type": "RollingUpdate"}, {"updateRevision": "bridge-2", "updatedReplicas": 2}, True),  # the last starts
        ({"type": "RollingUpdate"}, {"updateRevision": "bridge-2", "updatedReplicas": 2, "replicas": 3}, False),
        (PARTITION, {}, True),
        (PARTITION, {"updateRevision": "bridge-2", "updatedReplicas": 1}, False),
        (PARTITION, {"updateRevision": "bridge-2", "updatedReplicas": 2}, False),  # the next below gets the old one
        ({"type": "OnDelete"}, {"updateRevision": "bridge-2", "updatedReplicas": 0}, True),
    ],
)
def test_a_stateful_set_is_settled_when_each_next_pod_is_of_the_newest_template(
    strategy: Json, status: Json, settled: bool
) -> None:
    item = with_status(workload(replicas=2), **status)
    item["spec"]["updateStrategy"] = strategy
    found = read(decode_stateful_set, item)
    assert (found.settled, found.revision) == (settled, status.get("updateRevision", "bridge-1"))


def test_a_replica_set_never_replaces_a_pod_by_itself() -> None:
    assert read(decode_replica_set, with_status(workload(replicas=2), replicas=1)).settled


def test_who_scaled_it_and_when_is_read() -> None:
    fields = [
        {"manager": "kubectl", "operation": "Update"},
        {"manager": "bridge-autoscaler-surge@2026-11-29T10:00:00Z", "operation": "Update", "subresource": "scale"},
    ]
    found = read(decode_deployment, workload(managedFields=fields)).scaled
    assert found == Ask("bridge-autoscaler-surge", datetime(2026, 11, 29, 10, tzinfo=UTC))
    assert read(decode_deployment, workload()).scaled is None


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_stands_in_a_workload_is_read_or_a_problem(kind: str) -> None:
    above = [{"kind": "Deployment", "name": "bridge", "controller": True}]
    fields = [{"manager": "x", "operation": "Update", "subresource": "scale", "time": "2026-11-29T10:00:00Z"}]
    item = workload(ownerReferences=above, managedFields=fields, labels={"a": "b"})
    item["spec"] |= {
        "paused": False,
        "template": {"spec": {"initContainers": [{"name": "i", "resources": resources()}]}},
    }
    one = [KINDS[kind](raw(variant)) for variant in broken(item)]
    assert all((found.value is None) == (found.problem is not None) for found in one)
    assert {found.value is None for found in one} == {True, False}
    (problem,) = {found.problem.source for found in one if found.problem and found.key.object.endswith("/bridge")}
    assert problem == f"{kind}/bridge in sim"
