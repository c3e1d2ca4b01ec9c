from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.lease import LeaseTiming
from autoscaler.adapters.kubernetes.moves import TRIED_WITHIN_S
from autoscaler.core.actions import Evict, Outcome, OutcomeKind
from autoscaler.core.model import PodRef
from tests.adapters.kubernetes.api_server import PODS, ApiServer, Handler, always, answer, hang, lose
from tests.adapters.kubernetes.conftest import Build
from tests.adapters.kubernetes.objects import Json, pod
from tests.adapters.kubernetes.refusals import LOST, status

REF = PodRef("sim", "bridge-0")
EVICTION = "POST /api/v1/namespaces/sim/pods/bridge-0/eviction"
GET = "GET /api/v1/namespaces/sim/pods/bridge-0"
DONE = always(201, {"kind": "Status", "status": "Success", "code": 201})
GONE = always(404, {"kind": "Status", "message": 'pods "bridge-0" not found', "details": {"name": "bridge-0"}})


def evict(*, uid: str = "uid-bridge-0", version: int = 42) -> Evict:
    return Evict(REF, uid, str(version), ("node-b",))


def deleting(**more: Any) -> Json:
    item = pod(**more)
    item["metadata"]["deletionTimestamp"] = "2026-11-29T10:00:00Z"
    return item


async def test_an_eviction_is_tried_before_it_is_done(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod(version=42)]
    cluster = await build()
    api.next_answers[EVICTION].extend([DONE, DONE])
    api.next_answers[GET].append(always(200, deleting(version=44)))
    assert await cluster.move(evict()) == Outcome(OutcomeKind.ACCEPTED)
    tried, done = [seen for seen in api.seen if seen.path.endswith("/eviction")]
    preconditions = {"uid": "uid-bridge-0", "resourceVersion": "42"}
    assert tried.query == {"dryRun": "All"}  # for admission
    assert tried.body["deleteOptions"] == {"preconditions": preconditions, "dryRun": ["All"]}
    assert done.query == {}
    assert done.body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "bridge-0", "namespace": "sim"},
        "deleteOptions": {"preconditions": preconditions},
    }
    assert not any(seen.method == "DELETE" for seen in api.seen)
    known = (await cluster.observe()).pods[REF]
    assert (known.deleting, known.disrupted, known.resource_version) == (True, True, "44")


@pytest.mark.parametrize("then", [GONE, always(200, pod(version=50, uid="another")), always(500, "?"), lose, hang])
async def test_an_evicted_pod_counts_until_the_watch_says_that_it_has_gone(
    then: Handler, api: ApiServer, build: Build
) -> None:
    api.objects[PODS] = [pod(version=42)]
    cluster = await build()
    api.next_answers[EVICTION].extend([DONE, DONE])
    api.next_answers[GET].extend([then, then])  # the HTTP library repeats a lost GET by itself
    assert (await cluster.move(evict())).kind is OutcomeKind.ACCEPTED
    known = (await cluster.observe()).pods[REF]
    assert (known.uid, known.deleting, known.disrupted) == ("uid-bridge-0", True, True)
    api.send(PODS, "DELETED", deleting(version=45))
    async with asyncio.timeout(5):
        while (await cluster.observe()).pods:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("new", [None, pod(version=46, uid="another")], ids=["none yet", "a new one"])
async def test_a_pod_that_went_during_its_eviction_does_not_come_back(
    new: Json | None, api: ApiServer, build: Build
) -> None:
    api.objects[PODS] = [pod(version=42)]
    cluster = await build()

    async def evicted(_: web.Request) -> web.StreamResponse:
        api.send(PODS, "DELETED", deleting(version=45))
        if new:
            api.send(PODS, "ADDED", new)
        async with asyncio.timeout(5):
            while [known.uid for known in (await cluster.observe()).pods.values()] != (["another"] if new else []):
                await asyncio.sleep(0.01)
        return answer(201, {"kind": "Status", "status": "Success"})

    api.next_answers[EVICTION].extend([DONE, evicted])
    api.next_answers[GET].append(always(200, deleting(version=44)))
    assert (await cluster.move(evict())).kind is OutcomeKind.ACCEPTED
    assert [(pod.uid, pod.deleting) for pod in (await cluster.observe()).pods.values()] == (
        [("another", False)] if new else []
    )


@pytest.mark.parametrize(
    ("item", "move", "kind", "word"),
    [
        (None, evict(), OutcomeKind.GONE, "no longer"),
        (pod(version=42), evict(uid="another"), OutcomeKind.GONE, "replaced"),
        (pod(version=43), evict(), OutcomeKind.SUPERSEDED, "changed"),
        (deleting(version=42), evict(), OutcomeKind.SUPERSEDED, "being deleted"),
    ],
)
async def test_an_eviction_that_no_longer_fits_is_not_sent(
    item: Json | None, move: Evict, kind: OutcomeKind, word: str, api: ApiServer, build: Build
) -> None:
    api.objects[PODS] = [item] if item else []
    cluster = await build(watch=False)
    outcome = await cluster.move(move)
    assert outcome.kind is kind
    assert word in outcome.detail
    assert api.count(EVICTION) == 0


BUDGET = {"reason": "DisruptionBudget", "message": "The disruption budget h needs 1 healthy pods and has 1 currently"}
BUSY = {"reason": "DisruptionBudget", "message": "The disruption budget b is still being processed by the server."}
CANNOT = (
    'pods "bridge-0" is forbidden: User "x" cannot create resource "pods/eviction" in API group "" in the namespace'
)
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
OTHER = "the UID in the precondition (a) does not match the UID in record (b)"
WEBHOOK = 'admission webhook "no.example.com" denied the request: frozen'


# texts as they were read off an API server
@pytest.mark.parametrize(
    ("refusal", "kind", "cause", "word", "wait_s"),
    [
        (status(429, "Cannot evict pod", BUDGET), OutcomeKind.BLOCKED, "DisruptionBudget", "budget h needs 1", None),
        (
            status(429, "Cannot evict pod", BUSY, retryAfterSeconds=10),
            OutcomeKind.BLOCKED,
            "DisruptionBudget",
            "still being processed",
            10,
        ),
        (status(429, "Too many requests"), OutcomeKind.THROTTLED, "", "Too many", None),
        (always(429, "slow", {"Retry-After": "4"}), OutcomeKind.THROTTLED, "", "slow", 4),
        (always(500, {"kind": "Status", "message": SEVERAL}), OutcomeKind.REFUSED, "SeveralBudgets", "leave one", None),
        (GONE, OutcomeKind.GONE, "", "not found", None),
        (always(404, "<html>"), OutcomeKind.REFUSED, "NotServed", "pods/eviction", None),
        (status(409, OTHER), OutcomeKind.GONE, "", "replaced", None),
        (status(409, "the ResourceVersion in the precondition (1)"), OutcomeKind.CONFLICT, "", "Version", None),
        (status(403, CANNOT), OutcomeKind.FORBIDDEN, "MissingRule", "rbac/migrate", None),
        (status(403, WEBHOOK), OutcomeKind.REFUSED, "AdmissionWebhook", "frozen", None),
        (status(403, "no"), OutcomeKind.REFUSED, "Forbidden", "no", None),
        (status(400, "name in URL does not match"), OutcomeKind.REFUSED, "BadRequest", "name", None),
    ],
)
async def test_a_refused_eviction_is_an_outcome(
    refusal: Handler,
    kind: OutcomeKind,
    cause: str,
    word: str,
    wait_s: float | None,
    api: ApiServer,
    build: Build,
) -> None:
    api.objects[PODS] = [pod(version=42)]
    cluster = await build(watch=False)
    api.next_answers[EVICTION].append(refusal)
    outcome = await cluster.move(evict())
    assert (outcome.kind, outcome.cause, outcome.retry_after_s) == (kind, cause, wait_s)
    assert word in outcome.detail
    assert api.count(EVICTION) == 1  # the dry run
    # between the two somebody else may have used the budget up
    api.next_answers[EVICTION].extend([DONE, refusal])
    assert await cluster.move(evict()) == outcome
    assert not (await cluster.observe()).pods[REF].deleting


@LOST
@pytest.mark.parametrize(
    ("then", "kind", "word"),
    [
        (always(200, deleting(version=43)), OutcomeKind.ACCEPTED, "lost"),
        (always(200, pod(version=50, uid="another")), OutcomeKind.ACCEPTED, "lost"),
        (GONE, OutcomeKind.ACCEPTED, "lost"),
        (always(200, pod(version=42)), OutcomeKind.UNKNOWN, "not being deleted"),
        (always(404, "<html>"), OutcomeKind.UNKNOWN, ""),
        (always(200, "<html>"), OutcomeKind.UNKNOWN, ""),
        (always(503, "still not"), OutcomeKind.UNKNOWN, ""),
        (lose, OutcomeKind.UNKNOWN, ""),
    ],
)
async def test_a_lost_answer_to_an_eviction_is_looked_up_in_the_pod(
    failure: Handler, then: Handler, kind: OutcomeKind, word: str, api: ApiServer, build: Build
) -> None:
    api.objects[PODS] = [pod(version=42)]
    cluster = await build(watch=False)
    api.next_answers[EVICTION].extend([DONE, failure])
    api.next_answers[GET].extend([then, then])
    outcome = await cluster.move(evict())
    assert outcome.kind is kind
    assert word in outcome.detail
    assert api.count(EVICTION) == 2  # never sent twice
    assert (await cluster.observe()).pods[REF].deleting is (kind is OutcomeKind.ACCEPTED)


@LOST
async def test_after_a_lost_dry_run_nothing_is_evicted(failure: Handler, api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod(version=42)]
    cluster = await build(watch=False)
    api.next_answers[EVICTION].append(failure)
    outcome = await cluster.move(evict())
    assert outcome.kind is OutcomeKind.UNKNOWN
    assert outcome.detail.startswith("nothing was evicted")
    assert (api.count(EVICTION), api.count(GET)) == (1, 0)


async def test_a_server_dry_run_evicts_nothing(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod(version=42)]
    cluster = await build(watch=False, server_dry_run=True)
    api.next_answers[EVICTION].append(DONE)
    assert (await cluster.move(evict())).kind is OutcomeKind.ACCEPTED
    assert [seen.query for seen in api.seen if seen.path.endswith("/eviction")] == [{"dryRun": "All"}]
    assert not (await cluster.observe()).pods[REF].deleting


async def test_credentials_that_are_not_accepted_are_an_outcome(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod(version=42)]
    cluster = await build(watch=False)
    api.token = "another"
    assert (await cluster.move(evict())).kind is OutcomeKind.FORBIDDEN


async def test_a_dry_run_that_takes_longer_than_leadership_can_be_counted_on_is_not_followed(
    api: ApiServer, connection: Connection
) -> None:
    timing = LeaseTiming()
    assert timing.lease_s - timing.renew_s > TRIED_WITHIN_S
    api.objects[PODS] = [pod(version=42)]
    cluster = KubernetesCluster(connection)  # whose calls may take 10 s
    await cluster.start(watch=False)
    api.next_answers[EVICTION].append(hang)
    outcome = await asyncio.wait_for(cluster.move(evict()), TRIED_WITHIN_S + 2)
    assert outcome.kind is OutcomeKind.UNKNOWN
    assert outcome.detail.startswith("nothing was evicted, the dry run has no answer")
    assert api.count(EVICTION) == 1
    await cluster.close()
