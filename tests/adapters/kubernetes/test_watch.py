from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from autoscaler.adapters.kubernetes.backoff import Backoff
from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.adapters.kubernetes.errors import Expired, PermissionMissing, Unreachable
from autoscaler.adapters.kubernetes.watch import Timing, lines
from autoscaler.core.model import Pod, PodRef, WorkloadRef
from autoscaler.ports import Unavailable
from tests.adapters.kubernetes.api_server import (
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    ApiServer,
    always,
    lose,
)
from tests.adapters.kubernetes.conftest import QUICK, Build
from tests.adapters.kubernetes.objects import Json, node, owned, pod, workload

REF = PodRef("sim", "bridge-0")


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


async def until_pod(cluster: KubernetesCluster, holds: Callable[[Pod], bool], ref: PodRef = REF) -> Pod:
    async with asyncio.timeout(5):
        while True:
            found = (await cluster.observe()).pods.get(ref)
            if found is not None and holds(found):
                return found
            await asyncio.sleep(0.005)


def of_owner(item: Json, owner: str) -> Json:
    kind, _, name = owner.partition("/")
    item["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "controller": True}]
    return item


def watches(api: ApiServer) -> list[str | None]:
    """The resource versions with which the pods were watched."""
    return [seen.query["resourceVersion"] for seen in api.seen if seen.path == PODS and "watch" in seen.query]


async def test_lists_in_pages_then_watches_from_the_lists_version(api: ApiServer, build: Build) -> None:
    api.page = 2
    api.objects[PODS] = [pod(f"bridge-{number}") for number in range(5)]
    api.objects[NODES] = [node()]
    cluster = await build()
    snapshot = await cluster.observe()
    assert len(snapshot.pods) == 5
    assert snapshot.nodes["node-a"].ready
    assert api.count(f"LIST {PODS}") == 3
    await eventually(lambda: api.count(f"WATCH {PODS}") == 1)
    query = next(seen.query for seen in api.seen if seen.path == PODS and "watch" in seen.query)
    assert query["resourceVersion"] == "100"
    assert query["allowWatchBookmarks"] == "true"
    assert 200 < int(query["timeoutSeconds"]) <= 290


async def test_asks_for_no_more_than_the_metadata_of_jobs(api: ApiServer, build: Build) -> None:
    await build(watch=False)
    accepts = {seen.path: seen.headers["Accept"] for seen in api.seen}
    assert "PartialObjectMetadataList" in accepts[JOBS]
    assert {accepts[path] for path in (PODS, NODES, REPLICASETS, DEPLOYMENTS, STATEFULSETS)} == {"application/json"}


async def test_reading_once_does_not_watch(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod()]
    cluster = await build(watch=False)
    assert REF in (await cluster.observe()).pods
    await asyncio.sleep(0.05)
    assert watches(api) == []


async def test_events_change_the_cache_and_only_relevant_ones_are_told(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod(version=1)]
    told: list[PodRef] = []
    cluster = await build(changed=told.append)
    assert told == []

    heartbeat = pod(version=101)
    heartbeat["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastProbeTime": "2026-11-29T10:00:00Z"}]
    api.send(PODS, "MODIFIED", heartbeat)
    seen = await until_pod(cluster, lambda found: found.resource_version == "101")
    assert (seen.ready, told) == (True, [])  # readiness is known, and nothing to decide about

    api.send(PODS, "MODIFIED", pod(version=102, generation=2, cpu="2"))
    await until_pod(cluster, lambda found: found.generation == 2)
    assert told == [REF]

    api.send(PODS, "ADDED", pod("other", version=103))
    await until_pod(cluster, lambda _: True, PodRef("sim", "other"))
    api.send(PODS, "DELETED", pod("other", version=104))
    await eventually(lambda: len(told) == 3)
    assert set(told[1:]) == {PodRef("sim", "other")}
    assert PodRef("sim", "other") not in (await cluster.observe()).pods


async def test_an_older_event_never_replaces_a_newer_state(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod(version=50, generation=3)]
    cluster = await build()
    api.send(PODS, "MODIFIED", pod(version=49, generation=2))
    api.send(PODS, "ADDED", pod("marker", version=101))
    await until_pod(cluster, lambda _: True, PodRef("sim", "marker"))
    assert (await cluster.observe()).pods[REF].generation == 3


async def test_a_dropped_connection_resumes_from_the_last_version(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod()]
    cluster = await build()
    api.send(PODS, "MODIFIED", pod(version=130, generation=2))
    api.send_raw(PODS, b'{"type": "MODIFIED", "object": {"metada')  # cut off in the middle of a line
    await until_pod(cluster, lambda found: found.generation == 2)
    api.drop(PODS)
    await eventually(lambda: len(watches(api)) == 2)
    assert watches(api) == ["100", "130"]
    assert api.count(f"LIST {PODS}") == 1
    api.send(PODS, "MODIFIED", pod(version=131, generation=3))
    await until_pod(cluster, lambda found: found.generation == 3)


async def test_a_bookmark_moves_the_version_and_nothing_else(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod()]
    told: list[PodRef] = []
    cluster = await build(changed=told.append)
    api.send(PODS, "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "170"}})
    api.send_raw(PODS, b"")  # the server ends the watch, as it does after timeoutSeconds
    await eventually(lambda: len(watches(api)) == 2)
    assert watches(api) == ["100", "170"]
    assert told == []
    assert len((await cluster.observe()).pods) == 1


@pytest.mark.parametrize("how", ["answer", "event", "garbage", "deep", "html"])
async def test_an_expired_version_or_garbage_lists_again(how: str, api: ApiServer, build: Build) -> None:
    gone = {"kind": "Status", "message": "too old resource version", "reason": "Expired", "code": 410}
    api.objects[PODS] = [pod("doomed"), pod()]
    if how == "answer":
        api.next_answers[f"WATCH {PODS}"].append(always(410, gone))
    told: list[PodRef] = []
    cluster = await build(changed=told.append)
    api.objects[PODS] = [pod(version=150, generation=2)]
    api.version = 200
    if how == "event":
        api.send(PODS, "ERROR", gone)
    elif how == "garbage":
        api.send_raw(PODS, b'{"type": "MODIFIED", "obj\n')
    elif how == "deep":
        api.send_raw(PODS, b'{"type": "ADDED", "object": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    elif how == "html":
        api.send_raw(PODS, b"<html>\n<body>the proxy is tired</body>\n")
    await until_pod(cluster, lambda found: found.generation == 2)
    await eventually(lambda: watches(api)[-1] == "200")
    assert PodRef("sim", "doomed") not in (await cluster.observe()).pods
    assert set(told) == {REF, PodRef("sim", "doomed")}


async def test_a_server_restored_from_a_backup_is_followed_back(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod(version=90, generation=3)]
    cluster = await build()
    too_large = {"kind": "Status", "message": "Too large resource version: 100, current: 60", "code": 504}
    api.objects[PODS], api.version = [pod(version=50, generation=2)], 60
    api.next_answers[f"WATCH {PODS}"].append(always(504, too_large))
    await eventually(lambda: api.count(f"WATCH {PODS}") == 1)
    api.send_raw(PODS, b"")
    await until_pod(cluster, lambda found: found.generation == 2)
    await eventually(lambda: watches(api)[-1] == "60")


async def test_a_full_list_is_made_now_and_then(api: ApiServer, build: Build) -> None:
    api.objects[PODS] = [pod()]
    cluster = await build(timing=Timing(silence_s=0.5, settled_s=0.05, relist_s=0.0, backoff=QUICK.backoff))
    api.objects[PODS] = [pod(version=140, generation=2)]  # an event that was missed
    api.send_raw(PODS, b"")
    await until_pod(cluster, lambda found: found.generation == 2)


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_hot_loop(api: ApiServer, build: Build) -> None:
    for _ in range(500):
        api.next_answers[f"WATCH {PODS}"].append(always(200, ""))
    await build(timing=Timing(backoff=Backoff(first_s=0.1, limit_s=1.0, jitter=0.0)))
    await asyncio.sleep(0.5)
    assert 2 <= api.count(f"WATCH {PODS}") <= 4


async def test_a_watch_that_has_been_down_for_too_long_makes_the_cluster_unavailable(
    api: ApiServer, build: Build
) -> None:
    cluster = await build(max_silence_s=0.2)
    await eventually(lambda: api.count(f"WATCH {PODS}") == 1)
    for _ in range(500):
        api.next_answers[f"WATCH {PODS}"].append(lose)
    api.drop(PODS)
    await cluster.observe()
    await asyncio.sleep(0.3)
    with pytest.raises(Unavailable, match=r"watch of pods has been down for \d+ s"):
        await cluster.observe()
    api.next_answers[f"WATCH {PODS}"].clear()
    async with asyncio.timeout(5):
        while True:
            try:
                await cluster.observe()
            except Unavailable:
                await asyncio.sleep(0.01)
            else:
                break


async def test_a_half_open_connection_is_noticed_by_its_silence(api: ApiServer, build: Build) -> None:
    await build(timing=Timing(silence_s=0.1, settled_s=0.05, backoff=QUICK.backoff))
    await eventually(lambda: len(watches(api)) >= 3)


async def test_silence_alone_does_not_make_it_blind(api: ApiServer, build: Build) -> None:
    """Of a kind that never changes an API server sends no bookmarks either."""
    cluster = await build(timing=Timing(silence_s=0.1, settled_s=0.05, backoff=QUICK.backoff), max_silence_s=0.05)
    while len(watches(api)) < 4:
        await cluster.observe()
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        (PODS, 'apiGroups: [""], resources: [pods], verbs: [list]'),
        (REPLICASETS, 'apiGroups: ["apps"], resources: [replicasets], verbs: [list]'),
    ],
)
async def test_a_forbidden_verb_names_the_missing_rule(path: str, rule: str, api: ApiServer, build: Build) -> None:
    group, resource = ("", "pods") if path == PODS else ("apps", "replicasets")
    message = f'{resource} is forbidden: User "u" cannot list resource "{resource}" in API group "{group}" at the scope'
    body = {"kind": "Status", "message": message, "code": 403}
    api.next_answers[f"LIST {path}"].append(always(403, body))
    with pytest.raises(PermissionMissing) as raised:
        await build()
    assert rule in str(raised.value)
    assert "rbac/base" in str(raised.value)


@pytest.mark.parametrize(("status", "body"), [(200, "<html>hello</html>"), (500, "oops"), (200, {"kind": "x"})])
async def test_a_list_that_is_none_is_an_error(status: int, body: str | Json, api: ApiServer, build: Build) -> None:
    api.next_answers[f"LIST {PODS}"].append(always(status, body))
    with pytest.raises(Unreachable, match="list pods"):
        await build()


async def test_owners_are_followed_upwards_in_either_order_of_arrival(api: ApiServer, build: Build) -> None:
    api.objects[REPLICASETS] = [owned("bridge-7d", "Deployment/bridge"), owned("bare", None)]
    api.objects[JOBS] = [owned("night-1", "CronJob/night")]
    api.objects[PODS] = [
        of_owner(pod("a"), "ReplicaSet/bridge-7d"),
        of_owner(pod("b"), "ReplicaSet/bare"),
        of_owner(pod("c"), "Job/night-1"),
        of_owner(pod("d"), "StatefulSet/sim"),
        pod("e"),
        of_owner(pod("late"), "ReplicaSet/new"),
    ]
    cluster = await build()
    pods = (await cluster.observe()).pods
    workloads = {ref.name: found.workload for ref, found in pods.items()}
    assert workloads == {
        "a": "Deployment/bridge",
        "b": "ReplicaSet/bare",
        "c": "CronJob/night",
        "d": "StatefulSet/sim",
        "e": None,
        "late": "ReplicaSet/new",
    }
    api.send(REPLICASETS, "ADDED", owned("new", "Deployment/bridge", version=101))
    await until_pod(cluster, lambda found: found.workload == "Deployment/bridge", PodRef("sim", "late"))


async def test_what_controls_pods_is_known_and_followed(api: ApiServer, build: Build) -> None:
    above = [{"kind": "Deployment", "name": "bridge", "controller": True}]
    api.objects[DEPLOYMENTS] = [workload("bridge")]
    api.objects[STATEFULSETS] = [workload("sim")]
    api.objects[REPLICASETS] = [
        workload("bridge-new", ownerReferences=above),
        workload("bridge-old", 0, ownerReferences=above),
    ]
    api.objects[PODS] = [
        of_owner(pod(), "ReplicaSet/bridge-new"),
        of_owner(pod("leaving"), "ReplicaSet/bridge-old"),
    ]
    cluster = await build()
    seen = await cluster.observe()
    assert set(seen.workloads) == {
        WorkloadRef("sim", one) for one in ("Deployment/bridge", "StatefulSet/sim", "ReplicaSet/bridge-new")
    }
    assert {one.workload for one in seen.pods.values()} == {"Deployment/bridge"}
    assert seen.pods[REF].owner == "ReplicaSet/bridge-new"
    api.send(REPLICASETS, "MODIFIED", workload("bridge-new", 0, version=101, ownerReferences=above))
    api.send(STATEFULSETS, "DELETED", workload("sim", version=101))
    async with asyncio.timeout(5):
        while set((await cluster.observe()).workloads) != {WorkloadRef("sim", "Deployment/bridge")}:
            await asyncio.sleep(0.005)
    assert set(seen.workloads) > {WorkloadRef("sim", "StatefulSet/sim")}  # a snapshot does not change


async def test_a_workload_that_is_scaled_wakes_its_pods(api: ApiServer, build: Build) -> None:
    above = [{"kind": "Deployment", "name": "bridge", "controller": True}]
    api.objects[DEPLOYMENTS] = [workload("bridge")]
    api.objects[REPLICASETS] = [workload("bridge-new", ownerReferences=above)]
    api.objects[PODS] = [of_owner(pod(), "ReplicaSet/bridge-new"), of_owner(pod("other"), "StatefulSet/sim")]
    told: list[PodRef] = []
    cluster = await build(changed=told.append)
    api.send(DEPLOYMENTS, "MODIFIED", workload("bridge", 3, version=101))
    await eventually(lambda: told == [REF])
    entry = {"manager": "bridge-autoscaler-surge@2026-11-29T10:00:00Z", "subresource": "scale", "operation": "Update"}
    api.send(DEPLOYMENTS, "MODIFIED", workload("bridge", 3, version=102, managedFields=[entry]))
    await eventually(lambda: told == [REF, REF])
    api.send(DEPLOYMENTS, "MODIFIED", workload("bridge", 3, version=103, managedFields=[entry], generation=9))
    api.send(DEPLOYMENTS, "ADDED", workload("new", version=104))
    async with asyncio.timeout(5):
        while WorkloadRef("sim", "Deployment/new") not in (await cluster.observe()).workloads:
            await asyncio.sleep(0.005)
    assert not (await cluster.observe()).workloads[WorkloadRef("sim", "Deployment/bridge")].settled
    assert told == [REF, REF]


async def test_an_eviction_and_the_schedulers_verdict_are_told_and_its_wording_is_not(
    api: ApiServer, build: Build
) -> None:
    api.objects[PODS] = [pod()]
    told: list[PodRef] = []
    cluster = await build(changed=told.append)

    async def send(version: int, **condition: str) -> Pod:
        item = pod(version=version)
        item["status"]["conditions"] = [condition] if condition else []
        api.send(PODS, "MODIFIED", item)
        return await until_pod(cluster, lambda found: found.resource_version == str(version))

    assert (await send(101, type="PodScheduled", status="False", message="0/3 nodes")).unscheduled == "0/3 nodes"
    assert told == [REF]
    assert (await send(102, type="PodScheduled", status="False", message="0/4 nodes")).unscheduled == "0/4 nodes"
    assert told == [REF]
    assert (await send(103, type="PodScheduled", status="True")).unscheduled is None
    assert told == [REF] * 2
    assert (await send(104, type="DisruptionTarget", status="True")).disrupted
    assert told == [REF] * 3


async def test_an_unreadable_pod_is_a_problem_and_harms_no_other(api: ApiServer, build: Build) -> None:
    broken = pod("broken")
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1e400"
    api.objects[PODS] = [broken, pod()]
    cluster = await build()
    snapshot = await cluster.observe()
    assert set(snapshot.pods) == {REF}
    (problem,) = snapshot.problems
    assert "sim/broken" in problem.detail
    api.send(PODS, "MODIFIED", pod("broken", version=101))
    await until_pod(cluster, lambda _: True, PodRef("sim", "broken"))
    assert (await cluster.observe()).problems == ()


async def pieces_of(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_lines_are_put_together_from_pieces_of_any_length() -> None:
    got = [line async for line in lines(pieces_of(b"a", b"b\nc\n", b"\n", b"d", b"e", b"\nlost"))]
    assert got == [b"ab", b"c", b"de"]


async def test_an_endless_line_is_not_collected_for_ever() -> None:
    with pytest.raises(Expired):
        _ = [line async for line in lines(pieces_of(*[b"x" * 2**20] * 17))]


def test_backoff_grows_to_its_limit_and_never_overflows() -> None:
    backoff = Backoff(first_s=0.5, factor=2, limit_s=30, jitter=0.5)
    assert [backoff.delay_s(failures, 0.0) for failures in (1, 2, 3, 7, 10_000)] == [0.5, 1, 2, 30, 30]
    assert backoff.delay_s(1, 0.999) == pytest.approx(0.25, abs=0.001)
    assert 15 <= backoff.delay_s(50) <= 30


@pytest.mark.parametrize(
    ("status", "body", "minor"),
    [
        (200, '{"major": "1", "minor": "36", "gitVersion": "v1.36.3"}', 36),
        (200, '{"major": "1", "minor": "33+"}', 33),
        (200, '{"minor": "x"}', None),
        (200, "{}", None),
        (200, "<html>", None),
        (403, '{"kind": "Status"}', None),
    ],
)
async def test_the_servers_minor_version_is_known_or_none(
    status: int, body: str, minor: int | None, api: ApiServer, build: Build
) -> None:
    api.next_answers["GET /version"].append(always(status, body))
    assert (await (await build(watch=False)).observe()).server_minor == minor
