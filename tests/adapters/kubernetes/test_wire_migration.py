"""What an eviction is proved with, as it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autoscaler.adapters.kubernetes.decoded import Decoded, Owned
from autoscaler.adapters.kubernetes.wire_migration import (
    decode_budget,
    decode_claim,
    decode_class,
    decode_csi_node,
    decode_volume,
)
from autoscaler.core.labels import LabelSelector, Operator, Requirement
from autoscaler.core.scheduling import DisruptionBudget, NodeRequirement, NodeTerm, StorageClass, Volume, VolumeClaim
from tests.adapters.kubernetes.objects import Json, broken, metadata, raw


def budget(**spec: Any) -> Json:
    return {
        "metadata": metadata("keep", generation=3),
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "bridge"}}, **spec},
        "status": {
            "observedGeneration": 3,
            "disruptionsAllowed": 1,
            "currentHealthy": 3,
            "desiredHealthy": 2,
            "expectedPods": 4,
        },
    }


def claim(*, volume: str = "pv-1", bound: bool = True, **meta: Any) -> Json:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if bound else {}
    return {
        "metadata": metadata("data-bridge-0", annotations=annotations | meta.pop("annotations", {}), **meta),
        "spec": {"volumeName": volume, "storageClassName": "fast", "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Bound"},
    }


def volume(**spec: Any) -> Json:
    labels = {"topology.kubernetes.io/zone": "a", "failure-domain.beta.kubernetes.io/region": "r", "other": "x"}
    return {"metadata": metadata("pv-1", namespace="", labels=labels), "spec": spec}


def storage_class(**fields: Any) -> Json:
    return {"metadata": metadata("fast", namespace=""), "provisioner": "csi.example.com", **fields}


AFFINITY: Json = {
    "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]}
}
IN_ZONE = NodeTerm((NodeRequirement("zone", "In", ("a", "b")),))


def test_a_disruption_budget_is_read_as_its_controller_filled_it_in() -> None:
    one = decode_budget(raw(budget()))
    assert one.key == Owned("sim", "PodDisruptionBudget/keep")
    assert one.value == DisruptionBudget(
        *("sim", "keep", LabelSelector((("app", "bridge"),))),
        allowed=1,
        healthy=3,
        desired=2,
        expected=4,
        min_available="1",
    )


@pytest.mark.parametrize(
    ("spec", "read"),
    [
        ({"minAvailable": 0}, ("0", "")),
        ({"minAvailable": "50%"}, ("50%", "")),
        ({"minAvailable": None, "maxUnavailable": 1}, ("", "1")),
        ({"minAvailable": None, "maxUnavailable": "0%"}, ("", "0%")),
        ({"minAvailable": None}, ("", "")),
    ],
)
def test_what_a_budget_asks_for_is_read_as_it_was_written(spec: Json, read: tuple[str, str]) -> None:
    found = decode_budget(raw(budget(**spec))).value
    assert found is not None
    assert (found.min_available, found.max_unavailable) == read


@pytest.mark.parametrize(
    ("selector", "read"),
    [
        (None, None),  # nothing
        ({}, LabelSelector()),  # the whole namespace
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}]},
            LabelSelector((), (Requirement("a", Operator.IN, frozenset({"x"})),)),
        ),
    ],
)
def test_an_absent_selector_is_not_an_empty_one(selector: Json | None, read: LabelSelector | None) -> None:
    found = decode_budget(raw(budget(selector=selector))).value
    assert found is not None
    assert found.selector == read


@pytest.mark.parametrize(("word", "always"), [(None, False), ("IfHealthyBudget", False), ("AlwaysAllow", True)])
def test_the_policy_for_unhealthy_pods_is_read(word: str | None, always: bool) -> None:
    found = decode_budget(raw(budget(unhealthyPodEvictionPolicy=word))).value
    assert found is not None
    assert found.always_allow is always


def test_a_budget_that_its_controller_has_not_looked_at_is_not_current() -> None:
    item = budget()
    item["metadata"]["generation"] = 4
    found = decode_budget(raw(item)).value
    assert found is not None
    assert not found.current


def test_a_claim_is_read() -> None:
    one = decode_claim(raw(claim()))
    assert one.key == Owned("sim", "PersistentVolumeClaim/data-bridge-0")
    assert one.value == VolumeClaim("sim", "data-bridge-0", "pv-1", "fast", frozenset({"ReadWriteOnce"}))


def test_a_claim_that_goes_with_its_pod_is_told_apart() -> None:
    item = claim()
    item["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "bridge-0", "controller": True}]
    found = decode_claim(raw(item)).value
    assert found is not None
    assert found.of_pod


def test_a_claim_has_a_volume_only_once_it_is_bound() -> None:
    for item in (claim(bound=False), claim(volume="")):
        found = decode_claim(raw(item)).value
        assert found is not None
        assert found.volume is None


def test_the_class_of_a_claim_may_be_an_annotation_or_none() -> None:
    found = decode_claim(raw(claim(annotations={"volume.beta.kubernetes.io/storage-class": "old"}))).value
    assert found is not None
    assert found.storage_class == "old"
    item = claim()
    item["spec"]["storageClassName"] = None
    found = decode_claim(raw(item)).value
    assert found is not None
    assert found.storage_class == ""


def test_a_claim_that_is_being_deleted_counts_as_gone() -> None:
    one = decode_claim(raw(claim(deletionTimestamp="2026-11-29T10:00:00Z")))
    assert (one.value, one.problem) == (None, None)


def test_a_volume_is_read_with_where_it_can_be_used() -> None:
    csi = {"driver": "csi.example.com", "volumeHandle": "vol-7", "volumeAttributes": {"a": "b"}}
    labels = {"topology.kubernetes.io/zone": "a", "failure-domain.beta.kubernetes.io/region": "r"}
    bare = Volume("pv-1", labels=labels)
    one = decode_volume(raw(volume(nodeAffinity=AFFINITY, csi=csi)))
    assert one.key == Owned("", "PersistentVolume/pv-1")
    assert one.value == Volume("pv-1", (IN_ZONE,), "csi.example.com", "vol-7", labels)
    assert decode_volume(raw(volume(hostPath={"path": "/x"}))).value == bare
    assert decode_volume(raw(volume(nodeAffinity={"required": None}))).value == bare


def test_a_storage_class_is_read() -> None:
    assert decode_class(raw(storage_class())).value == StorageClass("fast", provisioner="csi.example.com")
    topologies = [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]
    waits = storage_class(volumeBindingMode="WaitForFirstConsumer", allowedTopologies=topologies)
    assert decode_class(raw(waits)).value == StorageClass("fast", True, (IN_ZONE,), "csi.example.com")
    anywhere = storage_class(volumeBindingMode="Immediate", allowedTopologies=[])
    assert decode_class(raw(anywhere)).value == StorageClass("fast", False, None, "csi.example.com")


def test_the_limits_of_a_node_are_those_that_its_drivers_say() -> None:
    drivers = [
        {"name": "csi.example.com", "nodeID": "x", "allocatable": {"count": 25}},
        {"name": "zero.example.com", "allocatable": {"count": 0}},
        {"name": "free.example.com", "allocatable": None},
        {"name": "odd.example.com", "allocatable": {}},
    ]
    item = {"metadata": metadata("node-a", namespace=""), "spec": {"drivers": drivers}}
    expected = ("node-a", {"csi.example.com": 25, "zero.example.com": 0})
    assert decode_csi_node(raw(item)).value == expected
    assert decode_csi_node(raw({"metadata": metadata("node-a", namespace="")})).value == ("node-a", {})


TOPOLOGIES = [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]
SAMPLES: list[tuple[Callable[[bytes], Decoded[Owned, Any]], Json]] = [
    (decode_budget, budget(unhealthyPodEvictionPolicy="AlwaysAllow")),
    (decode_claim, claim()),
    (decode_volume, volume(nodeAffinity=AFFINITY, csi={"driver": "d", "volumeHandle": "h"})),
    (decode_class, storage_class(volumeBindingMode="Immediate", allowedTopologies=TOPOLOGIES)),
    (
        decode_csi_node,
        {
            "metadata": metadata("node-a", namespace=""),
            "spec": {"drivers": [{"name": "d", "allocatable": {"count": 2}}]},
        },
    ),
]


@pytest.mark.parametrize(("decode", "item"), SAMPLES)
def test_whatever_stands_in_an_object_is_read_or_a_problem(
    decode: Callable[[bytes], Decoded[Owned, Any]], item: Json
) -> None:
    one = [decode(raw(variant)) for variant in broken(item)]
    deleted = [found for found in one if found.value is None and found.problem is None]
    assert all(found.key.object.startswith("PersistentVolumeClaim") for found in deleted)
    assert all(found.value is None for found in one if found.problem is not None)
    assert {found.value is None for found in one} == {True, False}
    assert decode(b"<html>").problem is not None
