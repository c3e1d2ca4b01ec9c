"""What a scheduler asks of one node, case by case as its plugins answer."""

from __future__ import annotations

import pytest

from autoscaler.core.model import Node
from autoscaler.core.predicates import admits, collide, matches_any, reaches, selects, tolerated, volume_needs
from autoscaler.core.scheduling import (
    HostPort,
    NodeRequirement,
    NodeTerm,
    Scheduling,
    Storage,
    StorageClass,
    Taint,
    Toleration,
    Volume,
    VolumeClaim,
)
from tests.build import node, pod

ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("toleration", "taint", "passes"),
    [
        (None, Taint("gpu"), False),
        (None, Taint("gpu", effect="NoExecute"), False),
        (None, Taint("gpu", effect="PreferNoSchedule"), True),
        (Toleration("gpu", "Exists"), Taint("gpu", "a100"), True),
        (Toleration("gpu", "Equal", "a100"), Taint("gpu", "a100"), True),
        (Toleration("gpu", "", "a100"), Taint("gpu", "a100"), True),
        (Toleration("gpu", "Equal", "t4"), Taint("gpu", "a100"), False),
        (Toleration("tpu", "Exists"), Taint("gpu"), False),
        (Toleration(operator="Exists"), Taint("gpu", "a100", "NoExecute"), True),
        (Toleration("gpu", "Exists", effect="NoSchedule"), Taint("gpu", effect="NoExecute"), False),
        (Toleration("gpu", "Exists", effect="NoExecute"), Taint("gpu", effect="NoExecute"), True),
        (Toleration("gpu", "Gt", "3"), Taint("gpu", "5"), False),
        (Toleration("gpu", "Resembles", "5"), Taint("gpu", "5"), False),
    ],
)
def test_taints_keep_pods_away_that_do_not_tolerate_them(
    toleration: Toleration | None, taint: Taint, passes: bool
) -> None:
    assert tolerated((taint,), (toleration,) if toleration else (), doubt=False) is passes


def test_every_taint_has_to_be_tolerated() -> None:
    taints = (Taint("gpu"), Taint("dedicated"))
    assert not tolerated(taints, (Toleration("gpu", "Exists"),), doubt=False)
    assert tolerated(taints, (Toleration("gpu", "Exists"), Toleration("dedicated", "Exists")), doubt=False)


@pytest.mark.parametrize("operator", ["Lt", "Gt"])
def test_tolerations_that_compare_may_or_may_not_count(operator: str) -> None:
    comparing = (Toleration("load", operator, "5"),)
    assert not tolerated((Taint("load", "3"),), comparing, doubt=False)
    assert tolerated((Taint("load", "3"),), comparing, doubt=True)


def test_a_cordon_is_a_taint_by_another_name() -> None:
    cordoned = node(unschedulable=True)
    assert admits(node(), (), doubt=False)
    assert not admits(cordoned, (), doubt=True)
    assert admits(cordoned, (Toleration("node.kubernetes.io/unschedulable", "Exists"),), doubt=False)
    assert admits(cordoned, (Toleration(operator="Exists"),), doubt=False)
    assert not admits(cordoned, (Toleration("gpu", "Exists"),), doubt=False)


def test_a_node_selector_needs_all_its_labels() -> None:
    assert selects((), node())
    assert selects((("disk", "ssd"),), node(labels={"disk": "ssd", "zone": "a"}))
    assert not selects((("disk", "ssd"), ("gpu", "yes")), node(labels={"disk": "ssd"}))
    assert not selects((("disk", "ssd"),), node(labels={"disk": "hdd"}))


@pytest.mark.parametrize(
    ("requirement", "passes"),
    [
        (NodeRequirement("cores", "In", ("8", "16")), True),
        (NodeRequirement("cores", "In", ("32",)), False),
        (NodeRequirement("arch", "In", ("arm",)), False),
        (NodeRequirement("cores", "NotIn", ("8",)), True),
        (NodeRequirement("cores", "NotIn", ("16",)), False),
        (NodeRequirement("arch", "NotIn", ("arm",)), True),
        (NodeRequirement("cores", "Exists"), True),
        (NodeRequirement("arch", "Exists"), False),
        (NodeRequirement("cores", "DoesNotExist"), False),
        (NodeRequirement("arch", "DoesNotExist"), True),
        (NodeRequirement("cores", "Gt", ("15",)), True),
        (NodeRequirement("cores", "Gt", ("16",)), False),
        (NodeRequirement("cores", "Lt", ("17",)), True),
        (NodeRequirement("cores", "Lt", ("9",)), False),  # as numbers, not as words
        (NodeRequirement("cores", "Gt", ("few",)), False),
        (NodeRequirement("cores", "Gt", ("1", "2")), False),
        (NodeRequirement("arch", "Lt", ("9",)), False),
        (NodeRequirement("name", "Gt", ("1",)), False),
        (NodeRequirement("cores", "Like", ("16",)), False),
    ],
)
def test_node_affinity_by_labels(requirement: NodeRequirement, passes: bool) -> None:
    assert matches_any((NodeTerm((requirement,)),), node(labels={"cores": "16", "name": "x"})) is passes


@pytest.mark.parametrize(
    ("requirement", "passes"),
    [
        (NodeRequirement("metadata.name", "In", ("node-a",)), True),
        (NodeRequirement("metadata.name", "In", ("node-b",)), False),
        (NodeRequirement("metadata.name", "NotIn", ("node-b",)), True),
        (NodeRequirement("metadata.name", "NotIn", ("node-a",)), False),
        (NodeRequirement("metadata.name", "In", ("node-a", "node-b")), False),  # the API takes one name only
        (NodeRequirement("metadata.name", "Exists", ("node-a",)), False),
        (NodeRequirement("metadata.uid", "In", ("node-a",)), False),
    ],
)
def test_node_affinity_by_name(requirement: NodeRequirement, passes: bool) -> None:
    assert matches_any((NodeTerm(fields=(requirement,)),), node("node-a")) is passes


def test_terms_are_alternatives_and_their_requirements_are_not() -> None:
    here, there = NodeRequirement("zone", "In", ("a",)), NodeRequirement("zone", "In", ("b",))
    named = NodeRequirement("metadata.name", "In", ("node-z",))
    where = node(labels={"zone": "a"})
    assert matches_any((NodeTerm((there,)), NodeTerm((here,))), where)
    assert not matches_any((NodeTerm((here, there)),), where)
    assert not matches_any((NodeTerm((here,), (named,)),), where)
    assert not matches_any((NodeTerm(),), where)
    assert not matches_any((), where)


@pytest.mark.parametrize(
    ("wanted", "taken", "clash"),
    [
        (HostPort(80), HostPort(80), True),
        (HostPort(80), HostPort(81), False),
        (HostPort(80), HostPort(80, "UDP"), False),
        (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.2"), False),
        (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.1"), True),
        (HostPort(80, ip="10.0.0.1"), HostPort(80), True),
        (HostPort(80), HostPort(80, ip="10.0.0.1"), True),
    ],
)
def test_host_ports_clash_by_port_protocol_and_address(wanted: HostPort, taken: HostPort, clash: bool) -> None:
    assert collide((wanted,), (HostPort(9999), taken)) is clash


@pytest.mark.parametrize(
    ("labels", "of_node", "passes"),
    [
        ({}, {ZONE: "a"}, True),
        ({ZONE: "a"}, {ZONE: "a"}, True),
        ({ZONE: "a"}, {ZONE: "b"}, False),
        ({ZONE: "a__b"}, {ZONE: "b"}, True),
        ({ZONE: "a"}, {}, True),  # a node without any such label is in a cluster of one zone
        ({ZONE: "a"}, {"topology.kubernetes.io/region": "r"}, False),
        ({OLD_ZONE: "a"}, {ZONE: "a"}, True),
        ({OLD_ZONE: "a"}, {ZONE: "b"}, False),
        ({OLD_ZONE: "a"}, {OLD_ZONE: "a", ZONE: "b"}, True),
        ({ZONE: "a__"}, {ZONE: "b"}, True),  # cannot be read, and is ignored
        ({"size": "big"}, {ZONE: "b"}, True),
    ],
)
def test_labels_of_volumes_bind_them_to_zones(labels: dict[str, str], of_node: dict[str, str], passes: bool) -> None:
    assert reaches(Volume("v", labels=labels), node(labels=of_node)) is passes


def test_a_volume_is_tied_to_nodes_by_its_affinity() -> None:
    local = Volume("v", (NodeTerm((NodeRequirement("host", "In", ("a",)),)),))
    assert reaches(local, node(labels={"host": "a"}))
    assert not reaches(local, node(labels={"host": "b"}))
    assert not reaches(local, Node("bare", node().allocatable))


EBS = StorageClass("ebs", waits=True, provisioner="ebs.csi")
LOCAL = StorageClass("local", waits=True, provisioner="kubernetes.io/no-provisioner")
AT_ONCE = StorageClass("at-once", waits=False, provisioner="ebs.csi")


@pytest.mark.parametrize(
    ("claim", "unknown"),
    [
        (None, True),
        (VolumeClaim("bridge", "data", "v1"), False),
        (VolumeClaim("bridge", "data", "v1", "ebs", of_pod=True), False),
        (VolumeClaim("bridge", "data", "v1", "at-once", of_pod=True), True),
        (VolumeClaim("bridge", "data", "lost"), True),
        (VolumeClaim("bridge", "data", storage_class="ebs"), False),
        (VolumeClaim("bridge", "data", storage_class="local"), True),
        (VolumeClaim("bridge", "data", storage_class="at-once"), True),
        (VolumeClaim("bridge", "data", storage_class="unheard-of"), True),
        (VolumeClaim("bridge", "data"), True),
    ],
)
def test_a_claim_is_bound_or_can_be_provided_or_nothing_is_known(claim: VolumeClaim | None, unknown: bool) -> None:
    storage = Storage(
        {("bridge", "data"): claim} if claim else {},
        {"v1": Volume("v1", driver="ebs.csi", handle="h1")},
        {one.name: one for one in (EBS, LOCAL, AT_ONCE)},
    )
    assert volume_needs(pod(scheduling=Scheduling(claims=("data",))), storage).unknown is unknown


def test_claims_of_the_same_name_in_other_namespaces_are_others() -> None:
    storage = Storage({("elsewhere", "data"): VolumeClaim("elsewhere", "data", "v1")}, {"v1": Volume("v1")})
    assert volume_needs(pod(scheduling=Scheduling(claims=("data",))), storage).unknown


def test_the_volume_of_a_claim_that_goes_with_its_pod_ties_the_next_pod_to_nothing() -> None:
    storage = Storage(
        {("bridge", "data"): VolumeClaim("bridge", "data", "v1", "ebs", frozenset({"ReadWriteOnce"}), of_pod=True)},
        {"v1": Volume("v1", (NodeTerm((NodeRequirement("zone", "In", ("a",)),)),))},
        {"ebs": EBS},
    )
    needs = volume_needs(pod(scheduling=Scheduling(claims=("data",))), storage)
    assert (needs.volumes, needs.single_node) == ((), ())
