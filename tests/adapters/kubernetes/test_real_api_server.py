"""The adapter against a real API server, as the controller's own service account under the shipped role."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web
from yarl import URL

from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.adapters.kubernetes.errors import PermissionMissing
from autoscaler.core.actions import ContainerResize, OutcomeKind, Resize
from autoscaler.core.model import ContainerKind, Pod, PodRef, ResourceList, Resources
from autoscaler.core.units import Bytes, Millicores
from tests.rig.observer import cluster_of
from tests.rig.rig import Rig

pytestmark = pytest.mark.rig

MIB = 1 << 20


async def until(cluster: KubernetesCluster, ref: PodRef, holds: Callable[[Pod], bool]) -> Pod:
    async with asyncio.timeout(20):
        while True:
            found = (await cluster.observe()).pods.get(ref)
            if found is not None and holds(found):
                return found
            await asyncio.sleep(0.02)


def running(pod: Pod) -> bool:
    return pod.phase == "Running" and all(container.actual is not None for container in pod.containers)


def manifest(namespace: str, name: str) -> str:
    size = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "app", "image": "bridge", "resources": {"requests": size, "limits": size}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    return yaml.safe_dump(pod)


def to(pod: Pod, cpu: int | None = None, memory: int | None = None, *, limits: bool = True) -> Resize:
    amounts = ResourceList(None if cpu is None else Millicores(cpu), None if memory is None else Bytes(memory))
    change = ContainerResize("app", ContainerKind.CONTAINER, Resources(amounts, amounts if limits else ResourceList()))
    return Resize(pod.ref, pod.uid, pod.generation, (change,))


async def test_a_resize_is_stored_dated_and_followed(rig: Rig) -> None:
    ref = PodRef(rig.namespace(), "bridge")
    async with cluster_of(rig.kubeconfig) as cluster:
        rig.apply(manifest(*ref))
        before = await until(cluster, ref, running)
        outcome = await cluster.perform(to(before, 200, 128 * MIB))
        assert outcome.kind is OutcomeKind.ACCEPTED
        assert (await cluster.observe()).pods[ref].generation == before.generation + 1
        after = await until(cluster, ref, lambda pod: pod.containers[0].actual == pod.containers[0].spec)
        assert after.uid == before.uid
        assert after.containers[0].spec.limits == ResourceList(Millicores(200), Bytes(128 * MIB))
        ask = after.newest_ask
        assert ask is not None
        assert ask.manager == "bridge-autoscaler"
        assert abs(((await cluster.observe()).taken_at - ask.at).total_seconds()) < 30

        refused = await cluster.perform(to(after, 300, limits=False))
        assert (refused.kind, refused.cause) == (OutcomeKind.REFUSED, "RequestAboveLimit")
        refused = await cluster.perform(to(after, 10_000_000))
        assert (refused.kind, refused.cause) == (OutcomeKind.REFUSED, "NodeCapacity")
        refused = await cluster.perform(to(after, 100, limits=False))
        assert (refused.kind, refused.cause) == (OutcomeKind.REFUSED, "QoSClass")


async def test_a_state_that_is_out_of_date_is_refused_by_the_server(rig: Rig) -> None:
    ref = PodRef(rig.namespace(), "bridge")
    rig.apply(manifest(*ref))
    async with cluster_of(rig.kubeconfig) as watching:
        await until(watching, ref, running)
        async with cluster_of(rig.kubeconfig, watch=False) as frozen:
            seen = (await frozen.observe()).pods[ref]
            rig.kubectl("label", "pod", ref.name, f"--namespace={ref.namespace}", "touched=yes")
            assert (await frozen.perform(to(seen, 200))).kind is OutcomeKind.CONFLICT
            rig.kubectl("delete", "pod", ref.name, f"--namespace={ref.namespace}", "--now")
            assert (await frozen.perform(to(seen, 200))).kind is OutcomeKind.GONE
            rig.apply(manifest(*ref))
            await until(watching, ref, lambda pod: pod.uid != seen.uid and running(pod))
            assert (await frozen.perform(to(seen, 200))).kind in (OutcomeKind.GONE, OutcomeKind.CONFLICT)


async def test_a_server_dry_run_stores_nothing(rig: Rig) -> None:
    ref = PodRef(rig.namespace(), "bridge")
    rig.apply(manifest(*ref))
    async with cluster_of(rig.kubeconfig, server_dry_run=True) as cluster:
        pod = await until(cluster, ref, running)
        assert (await cluster.perform(to(pod, 200))).kind is OutcomeKind.ACCEPTED
    assert rig.pod(*ref)["metadata"]["generation"] == pod.generation


async def test_fields_that_a_limit_range_would_add_keep_a_resize_from_being_sent(rig: Rig) -> None:
    """An absent limit stays absent: a LimitRange that came later would give one, for as long as the pod lives."""
    ref = PodRef(rig.namespace(), "bridge")
    unlimited = yaml.safe_load(manifest(*ref))
    del unlimited["spec"]["containers"][0]["resources"]["limits"]
    rig.apply(yaml.safe_dump(unlimited))
    async with cluster_of(rig.kubeconfig) as cluster:
        before = await until(cluster, ref, running)
        assert (await cluster.perform(to(before, 150, limits=False))).kind is OutcomeKind.ACCEPTED
        settled = await until(cluster, ref, lambda pod: pod.containers[0].actual == pod.containers[0].spec)
        limits = {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}}
        metadata = {"name": "late", "namespace": ref.namespace}
        rig.apply(
            yaml.safe_dump(
                {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [limits]}}
            )
        )
        async with asyncio.timeout(20):
            while (outcome := await cluster.perform(to(settled, 200, limits=False))).kind is OutcomeKind.ACCEPTED:
                settled = await until(cluster, ref, lambda pod: pod.containers[0].actual == pod.containers[0].spec)
        assert (outcome.kind, outcome.cause) == (OutcomeKind.REFUSED, "LimitRange")
        assert "app.limits.memory" in outcome.detail
    assert "limits" not in rig.pod(*ref)["spec"]["containers"][0]["resources"]


@asynccontextmanager
async def losing_answers(rig: Rig, folder: Path) -> AsyncIterator[Path]:
    """A kubeconfig whose server passes everything on and breaks off instead of answering a patch."""
    context = ssl.create_default_context(cadata=rig.control_plane.certificate.decode())

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "accept-encoding")}
        body = await request.read()
        url = rig.control_plane.url + request.raw_path
        async with session.request(
            request.method, URL(url, encoded=True), headers=headers, data=body, ssl=context
        ) as answer:
            text = await answer.read()
            if request.method == "PATCH" and request.transport is not None:
                request.transport.abort()
            kept = {k: v for k, v in answer.headers.items() if k in ("Content-Type", "Date")}
            return web.Response(status=answer.status, body=text, headers=kept)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    config = yaml.safe_load(rig.kubeconfig.read_text())
    config["clusters"][0]["cluster"] = {"server": f"http://{host}:{port}"}
    kubeconfig = folder / "losing.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    async with aiohttp.ClientSession() as session:
        yield kubeconfig
    await runner.cleanup()


async def test_a_lost_answer_is_looked_up_in_the_pod(rig: Rig, tmp_path: Path) -> None:
    ref = PodRef(rig.namespace(), "bridge")
    rig.apply(manifest(*ref))
    async with cluster_of(rig.kubeconfig) as watching:
        await until(watching, ref, running)
    async with losing_answers(rig, tmp_path) as kubeconfig, cluster_of(kubeconfig, watch=False) as cluster:
        outcome = await cluster.perform(to((await cluster.observe()).pods[ref], 200))
    assert outcome.kind is OutcomeKind.ACCEPTED
    assert "lost" in outcome.detail
    assert rig.pod(*ref)["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "200m"


async def test_the_workload_of_a_pod_is_its_topmost_owner(rig: Rig) -> None:
    namespace = rig.namespace()
    template = yaml.safe_load(manifest(namespace, "x"))["spec"]
    labels = {"app": "bridge"}
    documents = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "bridge", "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": template["containers"]}},
            },
        },
    ]
    async with cluster_of(rig.kubeconfig) as cluster:
        rig.apply(yaml.safe_dump_all(documents))
        async with asyncio.timeout(60):
            while True:
                pods = [pod for pod in (await cluster.observe()).pods.values() if pod.namespace == namespace]
                if [pod.workload for pod in pods] == ["Deployment/bridge"]:
                    break
                await asyncio.sleep(0.02)


async def test_a_user_without_permission_is_told_the_missing_rule(rig: Rig) -> None:
    with pytest.raises(PermissionMissing) as raised:
        async with cluster_of(rig.nobody_kubeconfig):
            pass
    assert "nobody lacks the rule" in str(raised.value)
    assert "rbac/base" in str(raised.value)
