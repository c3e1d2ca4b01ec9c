"""Puts a case onto the real control plane, and does there what the owner of an evicted pod does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType

from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.credentials import Kubeconfig
from autoscaler.core.model import ClusterSnapshot, ResourceList, Resources
from tests.proof.cases import CLASS, NAMESPACE, OTHER, OVERHEAD, RUNTIME, WAITING_CLASS, Case, Json, Placed, quantities
from tests.rig.api import STRATEGIC_MERGE, Api, ApiError
from tests.rig.control_plane import ControlPlane

_NOW = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
_VOLUMES, _NODES, _CSI = "/api/v1/persistentvolumes", "/api/v1/nodes", "/apis/storage.k8s.io/v1/csinodes"
_CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_LOOKS_AGAIN_S = 0.02
_AS_ASKED: Mapping[str, ResourceList | None] = MappingProxyType({})


class Stage:
    """One control plane without nodes of its own; one case is on it at a time."""

    def __init__(self, control_plane: ControlPlane, api: Api, connection: Connection) -> None:
        self._control_plane = control_plane
        self._api = api
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def open(cls, control_plane: ControlPlane) -> AsyncIterator[Stage]:
        """Connect, and make the namespaces and storage classes that all cases share."""
        api = Api(control_plane.url, control_plane.certificate, control_plane.token("admin"))
        connection = await Connection.open(Kubeconfig((control_plane.kubeconfig("admin"),)))
        try:
            stage = cls(control_plane, api, connection)
            await stage._prepare()
            yield stage
        finally:
            await connection.close()
            await api.close()

    async def _prepare(self) -> None:
        for name, team in ((NAMESPACE, "bridges"), (OTHER, "other")):
            metadata = {"name": name, "labels": {"team": team}}
            await self._api.call(
                "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            )
        overhead = {"podFixed": quantities(OVERHEAD)}
        runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": RUNTIME}}
        await self._api.call(
            "POST", "/apis/node.k8s.io/v1/runtimeclasses", {**runtime, "handler": RUNTIME, "overhead": overhead}
        )
        for name, mode in ((CLASS, "Immediate"), (WAITING_CLASS, "WaitForFirstConsumer")):
            await self._api.call(
                "POST",
                "/apis/storage.k8s.io/v1/storageclasses",
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "StorageClass",
                    "metadata": {"name": name},
                    "provisioner": "kubernetes.io/no-provisioner",
                    "volumeBindingMode": mode,
                },
            )

    async def put(self, case: Case) -> None:
        """Create all that does not come late, and return when the control plane has taken all of it in."""
        await asyncio.gather(
            *(self._api.call("POST", _NODES, node) for node in case.nodes),
            *(self._api.call("POST", _CSI, node) for node in case.csi_nodes),
            *(self._api.call("POST", _VOLUMES, volume) for volume in case.volumes),
        )
        await asyncio.gather(
            *(self._api.call("POST", _CLAIMS, claim) for claim in case.claims),
            self._run(case.subject, "Running"),
            *(self._place(pod) for pod in case.pods if not pod.late),
        )
        await self._until(lambda: self._settled(case))

    async def _place(self, pod: Placed) -> None:
        if pod.node is None:
            await self._api.call("POST", pod.path.rpartition("/")[0], pod.manifest)
            return
        await self._run(pod.manifest, pod.phase, {"main": pod.sets_aside, "side": pod.side_sets_aside})
        if pod.asks is not None:
            await self._until(lambda: self._ask(pod))
        if pod.infeasible:
            condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "observedGeneration": 2}
            await self._patch(f"{pod.path}/status", {"status": {"conditions": [condition]}})
        if pod.leaving:
            await self._api.call("DELETE", pod.path, {})

    async def _ask(self, pod: Placed) -> bool:
        """Ask for the pod's new requests; not yet, if admission has not heard of its node so far."""
        assert pod.asks is not None
        containers = [{"name": "main", "resources": {"requests": quantities(pod.asks)}}]
        try:
            await self._patch(f"{pod.path}/resize", {"spec": {"containers": containers}})
        except ApiError as error:
            if error.status == 403 and f'node "{pod.node}" not found' in str(error):
                return False
            raise
        return True

    async def _run(self, manifest: Json, phase: str, sets_aside: Mapping[str, ResourceList | None] = _AS_ASKED) -> None:
        """Create a pod that has a node, and say of it what its kubelet would."""
        metadata, spec = manifest["metadata"], manifest["spec"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods"
        await self._api.call("POST", path, manifest)
        ready = {"status": "True" if phase == "Running" else "False", "observedGeneration": 1}
        status: Json = {
            "phase": phase,
            "observedGeneration": 1,
            "conditions": [{"type": kind} | ready for kind in ("Initialized", "Ready", "ContainersReady")],
            "containerStatuses": [_status(one, phase, sets_aside.get(one["name"])) for one in spec["containers"]],
        }
        if "initContainers" in spec:
            status["initContainerStatuses"] = [
                _status(one, phase if "restartPolicy" in one else "Succeeded", None) for one in spec["initContainers"]
            ]
        await self._patch(f"{path}/{metadata['name']}/status", {"status": status})

    async def _settled(self, case: Case) -> bool:
        """Nodes are tainted for what they are, claims are bound, and pods that no node takes are told so."""
        nodes, claims, pods = await asyncio.gather(
            *(self._api.call("GET", path) for path in (_NODES, _CLAIMS, f"{_PODS}?fieldSelector=spec.nodeName="))
        )
        waiting = [one for one in pods["items"] if "schedulingGates" not in one["spec"]]
        return (
            all(_tainted(node) for node in nodes["items"])
            and all(
                claim["status"].get("phase") == "Bound" for claim in claims["items"] if "volumeName" in claim["spec"]
            )
            and all(_verdict(one) is not None for one in waiting)
        )

    @asynccontextmanager
    async def eve(self, case: Case) -> AsyncIterator[ClusterSnapshot]:
        """The cluster as the controller reads it, with the late pods, which the scheduler has not seen yet."""
        with self._control_plane.hold("kube-scheduler"):
            await asyncio.gather(*(self._place(pod) for pod in case.pods if pod.late))
            yield await self._observe()

    async def _observe(self) -> ClusterSnapshot:
        cluster = KubernetesCluster(self._connection)
        await cluster.start(watch=False)
        snapshot = await cluster.observe()
        await cluster.close()
        assert not snapshot.problems, snapshot.problems
        return snapshot

    async def replace(self, case: Case, size: Mapping[str, Resources]) -> None:
        """Create the replacement; take the subject away at once before, or what has replaced it already."""
        try:
            await self._api.call("DELETE", f"{_PODS}/{case.replacement_name}", _NOW)
        except ApiError as error:
            if not case.stays or error.status != 404:
                raise
        await self._api.call("POST", _PODS, case.replacement(size))

    async def placed(self, case: Case, changes_its_mind_s: float = 0) -> str | None:
        """The node that the scheduler gives the replacement.

        None if it finds none and does not think better of it in that time: things that it waits for are on their way.
        """

        async def answer() -> str | None:
            return _verdict(await self._api.call("GET", f"{_PODS}/{case.replacement_name}"))

        async def answered() -> bool:
            return await answer() is not None

        async def bound() -> bool:
            return bool(await answer())

        await self._until(answered)
        if changes_its_mind_s:
            with suppress(TimeoutError):
                await self._until(bound, changes_its_mind_s)
        return await answer() or None

    async def close_nodes(self, names: Iterable[str]) -> None:
        """Let nodes take no further pod, without a change to anything else that the scheduler looks at."""
        status = {"allocatable": {"pods": "0"}, "capacity": {"pods": "0"}}
        await asyncio.gather(*(self._patch(f"{_NODES}/{name}/status", {"status": status}) for name in names))

    async def clear(self, case: Case) -> None:
        """Take everything away again, the pods at once."""
        await asyncio.gather(
            *(self._api.call("DELETE", f"/api/v1/namespaces/{name}/pods", _NOW) for name in (NAMESPACE, OTHER))
        )
        await asyncio.gather(
            self._api.call("DELETE", _NODES, _NOW),
            self._api.call("DELETE", _CSI, _NOW),
            self._api.call("DELETE", _CLAIMS, _NOW),
            self._api.call("DELETE", _VOLUMES, _NOW),
        )

        async def gone() -> bool:
            lists = await asyncio.gather(*(self._api.call("GET", path) for path in (_CLAIMS, _VOLUMES, "/api/v1/pods")))
            return not any(one["items"] for one in lists)

        await self._until(gone)

    async def _patch(self, path: str, body: Json) -> None:
        await self._api.call("PATCH", path, body, content_type=STRATEGIC_MERGE)

    @staticmethod
    async def _until(holds: Callable[[], Awaitable[bool]], within_s: float = 30) -> None:
        async with asyncio.timeout(within_s):
            while not await holds():
                await asyncio.sleep(_LOOKS_AGAIN_S)


def _status(container: Json, phase: str, sets_aside: ResourceList | None) -> Json:
    resources = container.get("resources", {})
    if sets_aside is not None:
        resources = resources | {"requests": quantities(sets_aside)}
    running = phase == "Running"
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "ready": running,
        "restartCount": 0,
        "state": {"running": {}} if running else {"terminated": {"exitCode": 0}},
        "allocatedResources": resources.get("requests", {}),
        "resources": resources,
    }


def _tainted(node: Json) -> bool:
    """Whether the taints that follow from a node's state, and no others, have been put onto it."""
    ready = next(one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready")
    wanted = {
        "node.kubernetes.io/not-ready": ready == "False",
        "node.kubernetes.io/unreachable": ready == "Unknown",
        "node.kubernetes.io/unschedulable": bool(node["spec"].get("unschedulable")),
    }
    found = {taint["key"] for taint in node["spec"].get("taints", []) if taint["effect"] == "NoSchedule"}
    return all((key in found) == wanted[key] for key in wanted)


def _verdict(pod: Json) -> str | None:
    """The scheduler's answer: a node, "" for none, None before there is one."""
    if "nodeName" in pod["spec"]:
        return str(pod["spec"]["nodeName"])
    conditions = pod.get("status", {}).get("conditions", [])
    return "" if any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions) else None
