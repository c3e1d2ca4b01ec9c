from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from autoscaler.adapters.kubernetes.cache import Cache
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.moves import Moves
from autoscaler.adapters.kubernetes.scaled import last_scaled, manager_at
from autoscaler.adapters.kubernetes.schema import ManagedFields
from autoscaler.core.actions import Outcome, OutcomeKind, Scale, ScaleKind
from autoscaler.core.model import Ask, Pod, PodRef, WorkloadRef
from tests.adapters.kubernetes.api_server import DEPLOYMENTS, PODS, ApiServer, Handler, always, answer, hang, lose
from tests.adapters.kubernetes.conftest import Build
from tests.adapters.kubernetes.objects import Json, pod, raw
from tests.adapters.kubernetes.refusals import LOST, status

REF = PodRef("sim", "bridge-0")
BRIDGE = WorkloadRef("sim", "Deployment/bridge")
READ = "GET /apis/apps/v1/namespaces/sim/deployments"
SCALE = "PATCH /apis/apps/v1/namespaces/sim/deployments/bridge/scale"
SCALED = always(200, {"kind": "Scale", "metadata": {"name": "bridge"}, "spec": {"replicas": 3}})


def scale(replicas: int, kind: ScaleKind = ScaleKind.SURGE) -> Scale:
    return Scale(BRIDGE, "uid-bridge", "42", replicas, kind, REF)


def owner(manager: str, *fields: str, subresource: str = "", version: str = "apps/v1") -> Json:
    entry = {"manager": manager, "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1"}
    made: Json = {"f:spec": {f"f:{field}": {} for field in fields}} if fields else {"f:metadata": {}}
    return entry | {"fieldsV1": made} | ({"subresource": subresource} if subresource else {})


APPLIED = owner("kubectl", "replicas", "template")


def deployment(*owners: Json, version: int = 42, replicas: int = 2, uid: str = "uid-bridge") -> Json:
    return {
        "metadata": {
            "name": "bridge",
            "namespace": "sim",
            "uid": uid,
            "resourceVersion": str(version),
            "managedFields": list(owners or (APPLIED,)),
        },
        "spec": {"replicas": replicas},
    }


def listed(*items: Json) -> Handler:
    return always(200, {"kind": "DeploymentList", "metadata": {"resourceVersion": "99"}, "items": list(items)})


@pytest.fixture
def learned() -> list[bytes]:
    return []


@pytest.fixture
def moves(connection: Connection, learned: list[bytes]) -> Moves:
    pods: Cache[PodRef, Pod] = Cache(lambda _key, _old, new: new)
    return Moves(connection, pods, learned.append, learned.append, lambda *_: None, dry_run=False, within_s=0.3)


async def test_a_scale_is_one_merge_patch_whose_manager_says_why_and_when(
    api: ApiServer, moves: Moves, learned: list[bytes]
) -> None:
    after = deployment(owner("x", "replicas", subresource="scale"), version=43, replicas=3)
    api.next_answers[READ].extend([listed(deployment()), listed(after)])
    api.next_answers[SCALE].append(SCALED)
    before_at = api.now().replace(microsecond=0)
    assert await moves.perform(scale(3)) == Outcome(OutcomeKind.ACCEPTED)
    read, patch, again = api.seen
    assert read.query == again.query == {"fieldSelector": "metadata.name=bridge"}
    assert patch.headers["Content-Type"] == "application/merge-patch+json"
    assert patch.body == {"metadata": {"uid": "uid-bridge", "resourceVersion": "42"}, "spec": {"replicas": 3}}
    ask = last_scaled([ManagedFields(patch.query["fieldManager"], "scale")])
    assert ask is not None
    assert ask.manager == ScaleKind.SURGE
    assert before_at <= ask.at <= api.now()  # never later: a new pod must not look older than its surge
    assert learned == [raw(deployment()), raw(after)]


@pytest.mark.parametrize(
    ("found", "kind", "word"),
    [
        (listed(), OutcomeKind.GONE, "no longer"),
        (listed(deployment(uid="another")), OutcomeKind.GONE, "replaced"),
        (listed(deployment(version=43)), OutcomeKind.SUPERSEDED, "changed"),
        (listed(deployment(replicas=3)), OutcomeKind.SUPERSEDED, "3 replicas already"),
        (listed(deployment(owner("argocd", "template"))), OutcomeKind.REFUSED, "strategy Evict"),
        (listed(deployment(APPLIED, owner("kubectl", "template"))), OutcomeKind.REFUSED, "strategy Evict"),
        (always(500, "oops"), OutcomeKind.UNKNOWN, "nothing was scaled"),
        (always(200, "<html>"), OutcomeKind.UNKNOWN, "nothing was scaled"),
        (lose, OutcomeKind.UNKNOWN, "nothing was scaled"),
        (status(403, 'User "x" cannot list resource "deployments" in API group "apps"'), OutcomeKind.FORBIDDEN, "base"),
    ],
)
async def test_a_scale_that_does_not_fit_is_not_sent(
    found: Handler, kind: OutcomeKind, word: str, api: ApiServer, moves: Moves
) -> None:
    api.next_answers[READ].extend([found, found])
    outcome = await moves.perform(scale(3))
    assert outcome.kind is kind
    assert word in outcome.detail
    assert api.count(SCALE) == 0


async def test_what_a_surge_has_begun_is_undone_whoever_owns_the_number(api: ApiServer, moves: Moves) -> None:
    nobody = owner("argocd", "template")
    api.next_answers[READ].extend([listed(deployment(nobody, replicas=3)), listed(deployment(nobody, version=43))])
    api.next_answers[SCALE].append(SCALED)
    assert (await moves.perform(scale(2, ScaleKind.BACK))).kind is OutcomeKind.ACCEPTED


BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
MODIFIED = status(409, "the object has been modified")


def surged(version: int, at: datetime = BEGAN) -> Handler:
    return listed(deployment(owner(manager_at(ScaleKind.SURGE, at), "replicas", subresource="scale"), version=version))


async def test_a_surge_is_undone_although_the_status_changes_again_and_again(api: ApiServer, moves: Moves) -> None:
    back = replace(scale(1, ScaleKind.BACK), undoes=Ask(ScaleKind.SURGE, BEGAN))
    api.next_answers[READ].extend([surged(43), surged(44), surged(45), listed(deployment(version=46, replicas=1))])
    api.next_answers[SCALE].extend([MODIFIED, MODIFIED, SCALED])
    assert (await moves.perform(back)).kind is OutcomeKind.ACCEPTED
    sent = [seen.body for seen in api.seen if seen.method == "PATCH"]
    assert [body["metadata"]["resourceVersion"] for body in sent if isinstance(body, dict)] == ["43", "44", "45"]


async def test_a_surge_is_not_undone_for_ever(api: ApiServer, moves: Moves) -> None:
    back = replace(scale(1, ScaleKind.BACK), undoes=Ask(ScaleKind.SURGE, BEGAN))
    api.next_answers[READ].extend([surged(43)] * 9)
    api.next_answers[SCALE].extend([MODIFIED] * 9)
    assert (await moves.perform(back)).kind is OutcomeKind.CONFLICT
    assert api.count(SCALE) == 5


@pytest.mark.parametrize("now", [listed(deployment(version=43)), surged(43, BEGAN + timedelta(seconds=1))])
async def test_a_number_that_somebody_else_has_set_since_is_theirs(now: Handler, api: ApiServer, moves: Moves) -> None:
    back = replace(scale(1, ScaleKind.BACK), undoes=Ask(ScaleKind.SURGE, BEGAN))
    api.next_answers[READ].append(now)
    outcome = await moves.perform(back)
    assert (outcome.kind, api.count(SCALE)) == (OutcomeKind.SUPERSEDED, 0)
    assert "somebody" in outcome.detail


CANNOT_SCALE = 'User "x" cannot patch resource "deployments/scale" in API group "apps" in the namespace "sim"'
POLICY = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: frozen"


@pytest.mark.parametrize(
    ("refusal", "kind", "cause", "word", "wait_s"),
    [
        (status(409, "Precondition failed: UID in precondition: a, UID"), OutcomeKind.GONE, "", "replaced", None),
        (status(409, "the object has been modified"), OutcomeKind.CONFLICT, "", "modified", None),
        (status(404, 'deployments.apps "bridge" not found'), OutcomeKind.GONE, "", "not found", None),
        (always(404, "<html>"), OutcomeKind.REFUSED, "NotServed", "deployments/scale", None),
        (status(403, CANNOT_SCALE), OutcomeKind.FORBIDDEN, "MissingRule", "rbac/surge", None),
        (status(422, POLICY), OutcomeKind.REFUSED, "AdmissionPolicy", "frozen", None),
        (status(403, "exceeded quota: q"), OutcomeKind.REFUSED, "Forbidden", "quota", None),
        (status(429, "slow", retryAfterSeconds=3), OutcomeKind.THROTTLED, "", "slow", 3),
        (always(429, "slow", {"Retry-After": "4"}), OutcomeKind.THROTTLED, "", "slow", 4),
    ],
)
async def test_a_refused_scale_is_an_outcome(
    refusal: Handler, kind: OutcomeKind, cause: str, word: str, wait_s: float | None, api: ApiServer, moves: Moves
) -> None:
    api.next_answers[READ].append(listed(deployment()))
    api.next_answers[SCALE].append(refusal)
    outcome = await moves.perform(scale(3))
    assert (outcome.kind, outcome.cause, outcome.retry_after_s) == (kind, cause, wait_s)
    assert word in outcome.detail


@LOST
@pytest.mark.parametrize("stored", [True, False])
async def test_a_lost_answer_to_a_scale_is_looked_up_in_the_deployment(
    failure: Handler, stored: bool, api: ApiServer, moves: Moves
) -> None:
    async def now(_: web.Request) -> web.StreamResponse:
        (manager,) = [seen.query["fieldManager"] for seen in api.seen if seen.method == "PATCH"]
        by = owner(manager if stored else "kubectl", "replicas", subresource="scale")
        body = {"metadata": {}, "items": [deployment(by, version=43, replicas=3)]}
        return answer(200, body)

    api.next_answers[READ].extend([listed(deployment()), now])
    api.next_answers[SCALE].append(failure)
    outcome = await moves.perform(scale(3))
    assert outcome.kind is (OutcomeKind.ACCEPTED if stored else OutcomeKind.UNKNOWN)
    assert ("lost" if stored else "3 replicas") in outcome.detail
    assert api.count(SCALE) == 1


@pytest.mark.parametrize("sent", [SCALED, lose, always(503, "oops")])
async def test_a_deployment_that_cannot_be_read_again_changes_no_outcome(
    sent: Handler, api: ApiServer, moves: Moves
) -> None:
    api.next_answers[READ].extend([listed(deployment()), always(503, "oops")])
    api.next_answers[SCALE].append(sent)
    outcome = await moves.perform(scale(3))
    assert outcome.kind is (OutcomeKind.ACCEPTED if sent is SCALED else OutcomeKind.UNKNOWN)


@pytest.mark.parametrize("then", [always(503, "oops"), always(200, "<html>"), lose, hang])
async def test_a_scale_that_was_accepted_counts_until_the_watch_says_more(
    then: Handler, api: ApiServer, build: Build
) -> None:
    bridge = pod()
    bridge["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "bridge", "controller": True}]
    api.objects[DEPLOYMENTS], api.objects[PODS] = [deployment()], [bridge]
    changed: list[PodRef] = []
    cluster = await build(changed=changed.append)
    api.next_answers[READ].extend([listed(deployment()), then, then])  # the HTTP library repeats a lost GET by itself
    api.next_answers[SCALE].append(SCALED)
    assert (await cluster.move(scale(3))).kind is OutcomeKind.ACCEPTED
    (manager,) = [seen.query["fieldManager"] for seen in api.seen if seen.method == "PATCH"]
    known = (await cluster.observe()).workloads[BRIDGE]
    assert (known.replicas, known.settled) == (3, False)
    assert known.scaled == last_scaled([ManagedFields(manager, "scale")])
    assert changed == [REF]
    api.send(DEPLOYMENTS, "MODIFIED", deployment(version=44, replicas=5))
    async with asyncio.timeout(5):
        while (await cluster.observe()).workloads[BRIDGE].replicas != 5:
            await asyncio.sleep(0.01)
    assert (await cluster.observe()).workloads[BRIDGE].scaled is None


async def test_what_the_watch_has_said_since_a_scale_is_not_overwritten(api: ApiServer, build: Build) -> None:
    api.objects[DEPLOYMENTS] = [deployment()]
    cluster = await build()

    async def undone(_: web.Request) -> web.StreamResponse:
        api.send(DEPLOYMENTS, "MODIFIED", deployment(version=44))
        async with asyncio.timeout(5):
            while (await cluster.observe()).workloads[BRIDGE].resource_version != "44":
                await asyncio.sleep(0.01)
        return answer(503, "oops")

    api.next_answers[READ].extend([listed(deployment()), undone])
    api.next_answers[SCALE].append(SCALED)
    assert (await cluster.move(scale(3))).kind is OutcomeKind.ACCEPTED
    known = (await cluster.observe()).workloads[BRIDGE]
    assert (known.replicas, known.scaled) == (2, None)


@pytest.mark.parametrize("refused", [lose, always(503, "oops"), status(409, "the object has been modified")])
async def test_a_scale_of_which_nothing_is_known_does_not_count(refused: Handler, api: ApiServer, build: Build) -> None:
    api.objects[DEPLOYMENTS] = [deployment()]
    cluster = await build(watch=False)
    api.next_answers[READ].extend([listed(deployment()), always(503, "oops")])
    api.next_answers[SCALE].append(refused)
    assert (await cluster.move(scale(3))).kind is not OutcomeKind.ACCEPTED
    assert (await cluster.observe()).workloads[BRIDGE].replicas == 2


async def test_a_server_dry_run_scales_nothing(api: ApiServer, connection: Connection) -> None:
    pods: Cache[PodRef, Pod] = Cache(lambda _key, _old, new: new)
    moves = Moves(connection, pods, lambda _: None, lambda _: None, lambda *_: None, dry_run=True, within_s=0.3)
    api.next_answers[READ].append(listed(deployment()))
    api.next_answers[SCALE].append(SCALED)
    assert (await moves.perform(scale(3))).kind is OutcomeKind.ACCEPTED
    assert [seen.query["dryRun"] for seen in api.seen if seen.method == "PATCH"] == ["All"]
    assert api.count(READ) == 1


async def test_credentials_that_are_not_accepted_are_an_outcome(api: ApiServer, moves: Moves) -> None:
    api.token = "another"
    assert (await moves.perform(scale(3))).kind is OutcomeKind.FORBIDDEN


AT = datetime(2026, 11, 29, 19, 36, 4, 700_000, tzinfo=UTC)


@pytest.mark.parametrize("kind", ScaleKind)
def test_a_managers_name_keeps_why_and_when(kind: ScaleKind) -> None:
    manager = manager_at(kind, AT)
    others = [ManagedFields("kubectl"), ManagedFields("kube-controller-manager", "status")]
    assert last_scaled([*others, ManagedFields(manager, "scale")]) == Ask(kind, AT.replace(microsecond=0))
    assert last_scaled([*others, ManagedFields(manager)]) is None


@pytest.mark.parametrize(
    "manager",
    [
        *("kubectl", "bridge-autoscaler-surge", "bridge-autoscaler-surge@", "bridge-autoscaler-surge@soon"),
        *("bridge-autoscaler-surge@9999-11-29T19:36:04Z", "kubectl@2026-11-29T19:36:04Z"),
    ],
)
def test_other_managers_say_nothing(manager: str) -> None:
    assert last_scaled([ManagedFields(manager, "scale")]) is None
