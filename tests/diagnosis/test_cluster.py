"""What is made of an API server, of permissions, of a dry run, and of nodes."""

from __future__ import annotations

import pytest

from autoscaler.core.actions import Outcome, OutcomeKind
from autoscaler.core.model import PodRef
from autoscaler.core.policy import Fallback, FallbackAction, Migration, Mode, Policy, Strategy
from autoscaler.diagnosis import cluster
from autoscaler.diagnosis.cluster import NodeFacts, Server
from autoscaler.diagnosis.findings import Status
from autoscaler.diagnosis.rights import ROLES, Right
from autoscaler.recommenders.percentile import Percentile, PercentileParameters

POD = PodRef("sim", "sim-0")
ALL: dict[Right, bool | None] = {right: True for role in ROLES for right in role.rights}
SHIPPED = "system:serviceaccount:bridge-autoscaler:bridge-autoscaler"


@pytest.mark.parametrize(
    ("minor", "resizes", "statuses"),
    [
        (37, True, [Status.OK]),
        (37, None, [Status.OK]),
        (34, False, [Status.OK, Status.ERROR]),
        (33, True, [Status.OK, Status.WARNING]),
        (32, False, [Status.OK, Status.ERROR, Status.ERROR]),
        (None, True, [Status.OK, Status.UNKNOWN]),
    ],
)
def test_versions(minor: int | None, resizes: bool | None, statuses: list[Status]) -> None:
    found = list(cluster.server(Server("https://api", "v1", minor, resizes, "")))
    assert [one.status for one in found] == statuses
    assert all(one.remedy for one in found[1:])


def permissions(lacking: str, policies: tuple[Policy, ...] = (), **more: bool) -> dict[str, tuple[Status, str]]:
    answers = ALL | {right: False for role in ROLES if role.folder == lacking for right in role.rights}
    found = cluster.permissions(answers, policies, user=SHIPPED, leader_elect=more.get("leader_elect", True))
    return {one.subject: (one.status, one.remedy) for one in found}


def moving(strategy: Strategy) -> tuple[Policy, ...]:
    fallback = Fallback(action=FallbackAction.MIGRATE, migration=Migration(strategy=strategy))
    return (Policy("sim", Percentile(PercentileParameters()), mode=Mode.RESIZE_OR_MIGRATE, fallback=fallback),)


@pytest.mark.parametrize(
    ("folder", "policies", "status"),
    [
        ("rbac/base", (), Status.ERROR),
        ("rbac/leader", (), Status.ERROR),
        ("rbac/events", (), Status.WARNING),
        ("rbac/autoscalers", (), Status.WARNING),
        ("rbac/migrate", (), Status.NOTE),
        ("rbac/migrate", moving(Strategy.EVICT), Status.ERROR),
        ("rbac/surge", moving(Strategy.EVICT), Status.NOTE),
        ("rbac/surge", moving(Strategy.SURGE), Status.ERROR),
    ],
)
def test_what_is_missing_counts_as_far_as_it_is_needed(
    folder: str, policies: tuple[Policy, ...], status: Status
) -> None:
    found = permissions(folder, policies)
    assert found.pop(folder) == (
        status,
        f"kubectl apply -k {folder}" + (", if it is wanted" if status is Status.NOTE else ""),
    )
    assert set(found.values()) == {(Status.OK, "")}
    assert len(found) == len(ROLES) - 1


def test_a_lease_is_not_needed_without_an_election() -> None:
    assert permissions("rbac/leader", leader_elect=False)["rbac/leader"][0] is Status.NOTE


def test_no_answer_is_not_a_no() -> None:
    found = cluster.permissions({}, (), user="", leader_elect=True)
    assert {one.status for one in found} == {Status.UNKNOWN}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (OutcomeKind.ACCEPTED, Status.OK),
        (OutcomeKind.ALTERED, Status.WARNING),
        (OutcomeKind.CONFLICT, Status.UNKNOWN),
        (OutcomeKind.THROTTLED, Status.UNKNOWN),
        (OutcomeKind.REFUSED, Status.ERROR),
        (OutcomeKind.FORBIDDEN, Status.ERROR),
    ],
)
def test_a_dry_run(kind: OutcomeKind, status: Status) -> None:
    found = cluster.resize(POD, Outcome(kind, "the server's words"))
    assert found.status is status
    assert bool(found.remedy) is (status is not Status.OK)


def nodes(*found: NodeFacts, used: tuple[str, ...] = ()) -> list[tuple[Status, str]]:
    return [(one.status, one.detail) for one in cluster.nodes(found, used)]


def test_nodes_are_grouped_by_what_they_cannot_do() -> None:
    found = nodes(
        NodeFacts("a", "v1.37.2", 37, "linux", frozenset({"InPlacePodX", "Other"})),
        NodeFacts("b", "v1.34.1", 34, "linux"),
        NodeFacts("c", "v1.33.1", 33, "linux"),
        NodeFacts("d", "v1.32.1", 32, "linux"),
        NodeFacts("e", "v1.32.1", 32, "linux"),
        NodeFacts("f", "v1.37.1", 37, "windows"),
        NodeFacts("g", "nightly", None, "linux"),
        used=("d", "c"),
    )
    assert found == [
        (Status.UNKNOWN, "1 without selected pods have a kubelet version that cannot be read: g"),
        (Status.ERROR, "1 with selected pods cannot resize pods in place (kubelet before 1.33): d"),
        (Status.NOTE, "1 without selected pods do not run Linux: their pods are not resized: f"),
        (Status.WARNING, "1 with selected pods lower no memory limit (kubelet 1.33): c"),
        (Status.OK, "2 of 7 with kubelet v1.34.1, v1.37.2 can do everything"),
        (Status.NOTE, "declared features on resizing: InPlacePodX (1 of 7)"),
    ]


def test_a_cluster_without_nodes() -> None:
    assert nodes() == [(Status.WARNING, "there are no nodes")]
