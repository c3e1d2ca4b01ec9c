"""Other people's autoscalers: how they are read, and what happens where they may not be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.adapters.kubernetes.decoded import Decoded, Owned
from autoscaler.adapters.kubernetes.wire_autoscalers import decode_horizontal, decode_vertical
from autoscaler.core.model import Autoscaler, ClusterSnapshot, Resource, ScaledResource
from tests.adapters.kubernetes.api_server import HPAS, VPAS, ApiServer, always
from tests.adapters.kubernetes.conftest import QUICK, Build
from tests.adapters.kubernetes.objects import Json, raw

SOON = replace(QUICK, relist_s=0.1)
HIDDEN = (
    'horizontalpodautoscalers.autoscaling is forbidden: User "u" cannot list resource "horizontalpodautoscalers" in '
    'API group "autoscaling" at the cluster scope'
)
FORBIDDEN = always(403, {"kind": "Status", "message": HIDDEN, "code": 403})
NOT_FOUND = always(404, {"kind": "Status", "message": "the server could not find the requested resource", "code": 404})


def horizontal(*metrics: Json, version: int = 1) -> Json:
    return {
        "metadata": {"name": "web", "namespace": "sim", "resourceVersion": str(version)},
        "spec": {"scaleTargetRef": {"kind": "StatefulSet", "name": "bridge"}, "metrics": list(metrics)},
    }


def vertical(**policy: Any) -> Json:
    return {
        "metadata": {"name": "vpa", "namespace": "sim", "resourceVersion": "1"},
        "spec": {"targetRef": {"kind": "StatefulSet", "name": "bridge", "apiVersion": "apps/v1"}, **policy},
    }


def on(resource: str, kind: str = "Utilization", container: str | None = None) -> Json:
    metric: Json = {"name": resource, "target": {"type": kind, "averageUtilization": 80}}
    if container is None:
        return {"type": "Resource", "resource": metric}
    return {"type": "ContainerResource", "containerResource": {**metric, "container": container}}


VPA = Autoscaler("VerticalPodAutoscaler", "sim", "vpa", "StatefulSet/bridge", mode="Auto")


@pytest.mark.parametrize(
    ("metrics", "scaled"),
    [
        ([on("cpu")], {ScaledResource(Resource.CPU)}),
        ([on("cpu"), on("memory")], {ScaledResource(Resource.CPU), ScaledResource(Resource.MEMORY)}),
        ([on("memory", container="app")], {ScaledResource(Resource.MEMORY, "app")}),
        ([on("cpu", "AverageValue")], set()),
        ([on("ephemeral-storage")], set()),
        ([{"type": "External", "external": {"metric": {"name": "sessions"}}}], set()),
        ([], set()),
    ],
)
def test_a_horizontal_one_scales_on_utilisation(metrics: list[Json], scaled: set[ScaledResource]) -> None:
    one = decode_horizontal(raw(horizontal(*metrics)))
    assert one.key == Owned("sim", "HorizontalPodAutoscaler/web")
    assert one.value == Autoscaler("HorizontalPodAutoscaler", "sim", "web", "StatefulSet/bridge", frozenset(scaled))


@pytest.mark.parametrize(
    ("policy", "mode"),
    [
        ({}, "Auto"),
        ({"updatePolicy": {}}, "Auto"),
        ({"updatePolicy": {"updateMode": None}}, "Auto"),
        ({"updatePolicy": {"updateMode": "Off"}}, "Off"),
        ({"updatePolicy": {"updateMode": "InPlaceOrRecreate"}}, "InPlaceOrRecreate"),
    ],
)
def test_a_vertical_one_acts_unless_it_says_otherwise(policy: Json, mode: str) -> None:
    assert decode_vertical(raw(vertical(**policy))).value == replace(VPA, mode=mode)


def test_a_vertical_one_without_a_target_is_nobodys() -> None:
    item = vertical()
    del item["spec"]["targetRef"]
    read = decode_vertical(raw(item)).value
    assert read is not None
    assert read.target == ""


@pytest.mark.parametrize("decode", [decode_horizontal, decode_vertical])
def test_one_that_cannot_be_read_is_a_problem(decode: Callable[[bytes], Decoded[Owned, Autoscaler]]) -> None:
    read = decode(raw({"metadata": {"name": "web", "namespace": "sim", "resourceVersion": "1"}, "spec": "?"}))
    assert read.value is None
    assert read.problem is not None
    assert read.problem.source.endswith("/web in sim")


async def until(cluster: KubernetesCluster, holds: Callable[[ClusterSnapshot], bool]) -> ClusterSnapshot:
    async with asyncio.timeout(5):
        while not holds(snapshot := await cluster.observe()):
            await asyncio.sleep(0.01)
    return snapshot


async def test_they_are_listed_and_followed(api: ApiServer, build: Build) -> None:
    api.objects[HPAS] = [horizontal(on("cpu"))]
    api.objects[VPAS] = [vertical()]
    cluster = await build()
    seen = await cluster.observe()
    assert {one.kind: one.name for one in seen.autoscalers} == {
        "HorizontalPodAutoscaler": "web",
        "VerticalPodAutoscaler": "vpa",
    }
    assert seen.problems == ()
    api.send(HPAS, "MODIFIED", horizontal(on("memory"), version=101))
    api.send(VPAS, "DELETED", vertical())
    now = await until(cluster, lambda s: len(s.autoscalers) == 1)
    now = await until(cluster, lambda s: s.autoscalers[0].resources == {ScaledResource(Resource.MEMORY)})
    assert now.problems == ()


async def test_an_api_that_is_not_installed_means_none_and_is_looked_for_again(api: ApiServer, build: Build) -> None:
    cluster = await build(timing=SOON)
    seen = await cluster.observe()
    assert (seen.autoscalers, seen.problems) == ((), ())
    assert api.count(f"LIST {VPAS}") == 1
    api.objects[VPAS] = [vertical()]
    assert (await until(cluster, lambda s: bool(s.autoscalers))).autoscalers == (VPA,)


async def test_a_plan_without_watching_sees_them_too(api: ApiServer, build: Build) -> None:
    api.objects[VPAS] = [vertical()]
    assert (await (await build(watch=False)).observe()).autoscalers == (VPA,)


async def test_a_missing_permission_switches_it_off_and_is_looked_for_again(api: ApiServer, build: Build) -> None:
    api.objects[HPAS] = [horizontal(on("cpu"))]
    api.next_answers[f"LIST {HPAS}"].append(FORBIDDEN)
    cluster = await build(timing=SOON)
    seen = await cluster.observe()
    assert seen.autoscalers == ()
    (problem,) = seen.problems
    assert (problem.source, problem.reason) == ("horizontalpodautoscalers", "CapabilityMissing")
    assert "kubectl apply -k rbac/autoscalers" in problem.detail
    seen = await until(cluster, lambda s: bool(s.autoscalers))
    assert seen.problems == ()


async def test_a_permission_that_is_taken_away_is_noticed(api: ApiServer, build: Build) -> None:
    api.objects[HPAS] = [horizontal(on("cpu"))]
    api.next_answers[f"WATCH {HPAS}"].append(FORBIDDEN)
    cluster = await build()
    seen = await until(cluster, lambda s: bool(s.problems))
    assert (seen.autoscalers, seen.problems[0].reason) == ((), "CapabilityMissing")
    await asyncio.sleep(0.3)
    assert api.count(f"WATCH {HPAS}") == 1  # not asked again before the next re-list


async def test_an_api_that_is_removed_leaves_none(api: ApiServer, build: Build) -> None:
    api.objects[VPAS] = [vertical()]
    cluster = await build()
    assert (await cluster.observe()).autoscalers == (VPA,)
    api.next_answers[f"LIST {VPAS}"].append(NOT_FOUND)
    api.send(VPAS, "ERROR", {"kind": "Status", "code": 410})
    seen = await until(cluster, lambda s: not s.autoscalers)
    assert seen.problems == ()


async def test_one_that_does_not_answer_is_a_problem_and_stops_nobody(api: ApiServer, build: Build) -> None:
    api.objects[VPAS] = [vertical()]
    api.next_answers[f"LIST {VPAS}"].append(always(500, "conversion webhook"))
    cluster = await build(watch=False)
    seen = await cluster.observe()
    assert [(p.source, p.reason) for p in seen.problems] == [("verticalpodautoscalers", "Unavailable")]
    assert seen.autoscalers == ()


async def test_one_that_is_down_for_long_is_a_problem_and_its_last_state_is_used(api: ApiServer, build: Build) -> None:
    api.objects[VPAS] = [vertical()]
    down = always(503, {"kind": "Status", "message": "no endpoints", "code": 503})
    api.next_answers[f"WATCH {VPAS}"].extend([down] * 100)
    listed = always(200, {"kind": "List", "metadata": {"resourceVersion": "100"}, "items": [vertical()]})
    api.next_answers[f"LIST {VPAS}"].extend([listed, *[down] * 100])
    cluster = await build(max_silence_s=0.1)
    seen = await until(cluster, lambda s: bool(s.problems))
    assert seen.problems[0].reason == "Unavailable"
    assert seen.autoscalers == (VPA,)
