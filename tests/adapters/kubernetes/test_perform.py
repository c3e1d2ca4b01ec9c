from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from autoscaler.core.actions import ContainerResize, OutcomeKind, Resize
from autoscaler.core.model import ContainerKind, PodRef, ResourceList, Resources
from autoscaler.core.units import Millicores
from tests.adapters.kubernetes.api_server import PODS, ApiServer, Handler, always, hang, lose
from tests.adapters.kubernetes.conftest import Build
from tests.adapters.kubernetes.objects import Json, capture, pod

REF = PodRef("sim", "bridge-0")
RESIZE = "PATCH /api/v1/namespaces/sim/pods/bridge-0/resize"
GET = "GET /api/v1/namespaces/sim/pods/bridge-0"


def to(cpu: int, *, uid: str = "uid-bridge-0", generation: int = 1) -> Resize:
    amounts = ResourceList(cpu=Millicores(cpu))
    change = ContainerResize("app", ContainerKind.CONTAINER, Resources(amounts, amounts))
    return Resize(REF, uid, generation, (change,))


async def test_a_resize_is_one_strategic_merge_patch_and_its_answer_enters_the_cache(
    api: ApiServer, build: Build
) -> None:
    api.objects[PODS] = [pod(version=42)]
    cluster = await build()
    stored = pod(version=143, generation=2, cpu="2")
    api.next_answers[RESIZE].append(always(200, stored))
    assert (await cluster.perform(to(2000))).kind is OutcomeKind.ACCEPTED
    (patch,) = [seen for seen in api.seen if seen.method == "PATCH"]
    assert patch.query == {"fieldManager": "bridge-autoscaler"}
    assert patch.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert patch.headers["User-Agent"].startswith("bridge-autoscaler/")
    assert patch.body["metadata"] == {"uid": "uid-bridge-0", "resourceVersion": "42"}
    assert patch.body["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2"}
    known = (await cluster.observe()).pods[REF]
    assert (known.generation, known.resource_version) == (2, "143")


def changed(**metadata: Any) -> Json:
    item = pod()
    item["metadata"] |= metadata
    return item


def in_phase(phase: str) -> Json:
    item = pod()
    item["status"]["phase"] = phase
    return item


@pytest.mark.parametrize(
    ("item", "action", "kind", "word"),
    [
        (None, to(2000), OutcomeKind.GONE, "no longer"),
        (pod(), to(2000, uid="another"), OutcomeKind.GONE, "replaced"),
        (pod(), to(2000, generation=7), OutcomeKind.SUPERSEDED, "generation"),
        (changed(deletionTimestamp="2026-11-29T10:00:00Z"), to(2000), OutcomeKind.SUPERSEDED, "deleted"),
        (in_phase("Succeeded"), to(2000), OutcomeKind.SUPERSEDED, "Succeeded"),
        (pod(), to(1000), OutcomeKind.SUPERSEDED, "already"),
    ],
)
async def test_an_action_that_no_longer_fits_is_not_sent(
    item: Json | None, action: Resize, kind: OutcomeKind, word: str, api: ApiServer, build: Build
) -> None:
    api.objects[PODS] = [item] if item else []
    cluster = await build(watch=False)
    outcome = await cluster.perform(action)
    assert outcome.kind is kind
    assert word in outcome.detail
    assert api.count(RESIZE) == 0


async def test_what_admission_changed_is_named(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod()]
    cluster = await build(watch=False)
    api.next_answers[RESIZE].append(always(200, pod(version=143, generation=2, cpu="3")))
    outcome = await cluster.perform(to(2000))
    assert outcome.kind is OutcomeKind.ALTERED
    assert "app.requests.cpu: 3 stored, 2 asked" in outcome.detail


async def test_a_refusal_is_an_outcome(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod()]
    cluster = await build(watch=False)
    answer = capture("c-cpu-above")
    api.next_answers[RESIZE].append(always(answer["code"], answer["body"]))
    outcome = await cluster.perform(to(2000))
    assert (outcome.kind, outcome.cause) == (OutcomeKind.REFUSED, "NodeCapacity")
    api.next_answers[RESIZE].append(always(429, {"kind": "Status", "message": "slow"}, {"Retry-After": "4"}))
    outcome = await cluster.perform(to(2000))
    assert (outcome.kind, outcome.retry_after_s) == (OutcomeKind.THROTTLED, 4)


@pytest.mark.parametrize(
    "failure", [lose, hang, always(500, "oops"), always(200, "<html></html>")], ids=["lost", "hung", "500", "html"]
)
@pytest.mark.parametrize(
    ("then", "kind", "word"),
    [
        (always(200, pod(version=143, generation=2, cpu="2")), OutcomeKind.ACCEPTED, "lost"),
        (always(200, pod(version=1)), OutcomeKind.UNKNOWN, "old size"),
        (always(200, pod(version=143, generation=2, cpu="3")), OutcomeKind.UNKNOWN, "differs"),
        (always(200, pod(version=143, uid="another")), OutcomeKind.GONE, "replaced"),
        (always(404, "gone"), OutcomeKind.GONE, "no longer"),
        (always(503, "still not"), OutcomeKind.UNKNOWN, ""),
        (lose, OutcomeKind.UNKNOWN, ""),
    ],
)
async def test_a_lost_answer_is_looked_up_in_the_pod(
    failure: Handler, then: Handler, kind: OutcomeKind, word: str, api: ApiServer, build: Build
) -> None:
    api.objects[PODS] = [pod()]
    cluster = await build(watch=False)
    api.next_answers[RESIZE].append(failure)
    api.next_answers[GET].extend([then, then])
    outcome = await cluster.perform(to(2000))
    assert outcome.kind is kind
    assert word in outcome.detail
    assert api.count(RESIZE) == 1  # never sent twice
    assert api.count(GET) in (1, 2)  # the HTTP library repeats a lost GET by itself


async def test_credentials_that_are_not_accepted_are_an_outcome(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod()]
    cluster = await build(watch=False)
    api.token = "another"
    assert (await cluster.perform(to(2000))).kind is OutcomeKind.FORBIDDEN


async def test_an_answer_about_a_pod_that_has_gone_meanwhile_brings_no_ghost_back(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod()]
    cluster = await build()
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.StreamResponse:
        asked.set()
        await go_on.wait()
        return web.json_response(pod(version=143, generation=2, cpu="2"))

    api.next_answers[RESIZE].append(slow)
    performing = asyncio.create_task(cluster.perform(to(2000)))
    await asked.wait()
    api.send(PODS, "DELETED", pod(version=144))
    while REF in (await cluster.observe()).pods:
        await asyncio.sleep(0.005)
    go_on.set()
    assert (await performing).kind is OutcomeKind.ACCEPTED
    assert REF not in (await cluster.observe()).pods


async def test_a_server_dry_run_is_marked_and_leaves_the_cache_alone(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod()]
    cluster = await build(watch=False, server_dry_run=True)
    api.next_answers[RESIZE].append(always(200, pod(version=143, generation=2, cpu="2")))
    assert (await cluster.perform(to(2000))).kind is OutcomeKind.ACCEPTED
    assert next(seen for seen in api.seen if seen.method == "PATCH").query["dryRun"] == "All"
    assert (await cluster.observe()).pods[REF].generation == 1
    api.next_answers[RESIZE].append(lose)
    assert (await cluster.perform(to(2000))).kind is OutcomeKind.UNKNOWN
    assert api.count(GET) == 0
