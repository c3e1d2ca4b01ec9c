"""What may be done beyond resizing, and what is read only where it is permitted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.core.model import Capability, ClusterSnapshot
from autoscaler.core.scheduling import Storage
from tests.adapters.kubernetes.api_server import (
    CLAIMS,
    CLASSES,
    CSI_NODES,
    HPAS,
    PDBS,
    PODS,
    REVIEWS,
    VOLUMES,
    VPAS,
    ApiServer,
    always,
    lose,
)
from tests.adapters.kubernetes.conftest import QUICK, Build
from tests.adapters.kubernetes.objects import Json, metadata, pod

SOON = replace(QUICK, relist_s=0.1)
EVICT, SCALE = "create pods/eviction", "patch deployments/scale"
PROVING = (PDBS, CLAIMS, VOLUMES, CLASSES, CSI_NODES)
FORBIDDEN = always(403, {"kind": "Status", "message": "forbidden", "code": 403})
DOWN = always(503, {"kind": "Status", "message": "no endpoints", "code": 503})


def fill(api: ApiServer) -> None:
    """One object of each kind."""
    api.objects[PDBS] = [{"metadata": metadata("keep"), "spec": {}, "status": {"observedGeneration": 1}}]
    annotations = {"pv.kubernetes.io/bind-completed": "yes"}
    api.objects[CLAIMS] = [
        {
            "metadata": metadata("data", annotations=annotations),
            "spec": {"volumeName": "pv", "storageClassName": "fast"},
        }
    ]
    api.objects[VOLUMES] = [{"metadata": metadata("pv", namespace=""), "spec": {}}]
    api.objects[CLASSES] = [{"metadata": metadata("fast", namespace=""), "provisioner": "x"}]
    drivers = [{"name": "x", "allocatable": {"count": 8}}]
    api.objects[CSI_NODES] = [{"metadata": metadata("node-a", namespace=""), "spec": {"drivers": drivers}}]


async def until(cluster: KubernetesCluster, holds: Callable[[ClusterSnapshot], bool]) -> ClusterSnapshot:
    async with asyncio.timeout(5):
        while not holds(snapshot := await cluster.observe()):
            await asyncio.sleep(0.01)
    return snapshot


def migrates(snapshot: ClusterSnapshot) -> bool:
    return Capability.MIGRATE in snapshot.capabilities


def asked(api: ApiServer) -> list[Any]:
    return [seen.body["spec"]["resourceAttributes"] for seen in api.seen if seen.path == REVIEWS]


@pytest.mark.parametrize("watch", [True, False])
async def test_what_an_eviction_is_proved_with_is_read_where_pods_may_be_evicted(
    watch: bool, api: ApiServer, build: Build
) -> None:
    fill(api)
    api.allowed = {EVICT, SCALE}
    seen = await (await build(watch=watch)).observe()
    assert seen.capabilities == frozenset(Capability)
    assert [(one.namespace, one.name) for one in seen.disruption_budgets] == [("sim", "keep")]
    assert seen.storage.claims["sim", "data"].volume == "pv"
    assert (set(seen.storage.volumes), set(seen.storage.classes)) == ({"pv"}, {"fast"})
    assert seen.storage.limits == {("node-a", "x"): 8}
    assert seen.problems == ()
    assert asked(api) == [
        {"verb": "create", "group": "", "resource": "pods", "subresource": "eviction"},
        {"verb": "patch", "group": "apps", "resource": "deployments", "subresource": "scale"},
    ]


@pytest.mark.parametrize("allowed", [set(), {SCALE}])
async def test_where_pods_may_not_be_evicted_none_of_it_is_read(
    allowed: set[str], api: ApiServer, build: Build
) -> None:
    fill(api)
    api.allowed = allowed
    seen = await (await build()).observe()
    surge = {Capability.SURGE} if allowed else set()
    assert seen.capabilities == {Capability.AUTOSCALERS} | surge
    assert (seen.disruption_budgets, seen.storage, seen.problems) == ((), Storage(), ())
    assert {seen.path for seen in api.seen}.isdisjoint(PROVING)


async def test_changes_are_followed(api: ApiServer, build: Build) -> None:
    fill(api)
    api.allowed = {EVICT}
    cluster = await build()
    before = (await cluster.observe()).storage
    assert (await cluster.observe()).storage is before
    api.send(VOLUMES, "ADDED", {"metadata": metadata("pv-2", namespace="", version=101), "spec": {}})
    api.send(PDBS, "DELETED", api.objects[PDBS][0])
    seen = await until(cluster, lambda s: len(s.storage.volumes) == 2 and not s.disruption_budgets)
    assert set(before.volumes) == {"pv"}
    assert migrates(seen)


async def test_a_role_that_is_granted_later_and_taken_away_again_is_noticed(api: ApiServer, build: Build) -> None:
    fill(api)
    cluster = await build(timing=SOON)
    assert not migrates(await cluster.observe())
    api.allowed = {EVICT, SCALE}
    seen = await until(cluster, migrates)
    assert seen.disruption_budgets
    assert Capability.SURGE in (await until(cluster, lambda s: len(s.capabilities) == 3)).capabilities
    async with asyncio.timeout(5):
        while any(api.count(f"WATCH {path}") == 0 for path in PROVING):
            await asyncio.sleep(0.01)
    api.allowed = set()
    seen = await until(cluster, lambda s: s.capabilities == {Capability.AUTOSCALERS})
    assert (seen.disruption_budgets, seen.storage) == ((), Storage())
    lists = api.count(f"LIST {PDBS}")
    await asyncio.sleep(0.3)
    assert api.count(f"LIST {PDBS}") == lists
    api.allowed = {EVICT}
    assert (await until(cluster, migrates)).storage.claims


@pytest.mark.parametrize("path", PROVING)
async def test_a_kind_that_may_not_be_read_is_lacking_and_no_problem(path: str, api: ApiServer, build: Build) -> None:
    fill(api)
    api.allowed = {EVICT}
    api.next_answers[f"LIST {path}"].append(FORBIDDEN)
    cluster = await build(timing=SOON)
    seen = await cluster.observe()
    assert not migrates(seen)
    assert (seen.disruption_budgets, seen.storage, seen.problems) == ((), Storage(), ())
    assert migrates(await until(cluster, migrates))  # the rule has been added


@pytest.mark.parametrize("path", PROVING)
async def test_a_kind_that_does_not_answer_is_a_problem_and_tried_again(
    path: str, api: ApiServer, build: Build
) -> None:
    fill(api)
    api.allowed = {EVICT}
    api.next_answers[f"LIST {path}"].append(DOWN)
    cluster = await build()
    seen = await cluster.observe()
    assert not migrates(seen)
    assert [problem.reason for problem in seen.problems] == ["Unavailable"]
    assert (await until(cluster, migrates)).problems == ()


async def test_a_kind_whose_watch_has_been_down_for_long_is_lacking(api: ApiServer, build: Build) -> None:
    fill(api)
    api.allowed = {EVICT}
    cluster = await build(max_silence_s=0.2)
    assert migrates(await until(cluster, lambda _: api.count(f"WATCH {PDBS}") == 1))
    api.next_answers[f"WATCH {PDBS}"].extend([lose] * 500)
    api.next_answers[f"LIST {PDBS}"].extend([lose] * 500)
    api.drop(PDBS)
    seen = await until(cluster, lambda s: not migrates(s))
    assert (seen.disruption_budgets, seen.storage) == ((), Storage())
    assert [(one.source, one.reason) for one in seen.problems] == [("poddisruptionbudgets", "Unavailable")]
    api.next_answers[f"WATCH {PDBS}"].clear()
    api.next_answers[f"LIST {PDBS}"].clear()
    assert (await until(cluster, migrates)).disruption_budgets


async def test_an_object_that_cannot_be_read_is_a_problem(api: ApiServer, build: Build) -> None:
    fill(api)
    api.allowed = {EVICT}
    expression: Json = {"key": "a", "operator": "Near", "values": ["b"]}
    api.objects[PDBS][0]["spec"] = {"selector": {"matchExpressions": [expression]}}
    seen = await (await build()).observe()
    assert migrates(seen)
    assert [problem.source for problem in seen.problems] == ["PodDisruptionBudget/keep in sim"]


@pytest.mark.parametrize(
    "answer",
    [
        always(500, "oops"),
        always(403, {"kind": "Status", "code": 403}),
        always(201, "<html>"),
        always(201, {"status": {"allowed": "yes"}}),
        lose,
    ],
)
async def test_a_review_without_an_answer_grants_nothing_and_is_asked_for_again(
    answer: Any, api: ApiServer, build: Build
) -> None:
    fill(api)
    api.allowed = {EVICT}
    api.next_answers[f"POST {REVIEWS}"].append(answer)
    api.objects[PODS] = [pod()]
    cluster = await build()  # an answer would be asked for again after 20 minutes
    seen = await cluster.observe()
    assert not migrates(seen)
    assert (len(seen.pods), seen.problems) == (1, ())
    assert migrates(await until(cluster, migrates))


async def test_what_was_granted_counts_while_the_review_has_no_answer(api: ApiServer, build: Build) -> None:
    fill(api)
    api.allowed = {EVICT}
    cluster = await build(timing=SOON)
    reviews = f"POST {REVIEWS}"
    api.next_answers[reviews].extend([DOWN] * 500)
    before = api.count(reviews)
    await until(cluster, lambda _: api.count(reviews) > before + 6)
    assert migrates(await cluster.observe())


async def test_without_seeing_autoscalers_that_is_lacking_and_an_api_that_is_not_installed_is_none(
    api: ApiServer, build: Build
) -> None:
    assert Capability.AUTOSCALERS in (await (await build(watch=False)).observe()).capabilities  # no VPA here
    for path in (HPAS, VPAS):
        api.next_answers[f"LIST {path}"].append(FORBIDDEN)
        assert Capability.AUTOSCALERS not in (await (await build(watch=False)).observe()).capabilities
