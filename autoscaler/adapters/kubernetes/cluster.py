"""The Cluster port over a real API server: a watch cache to look at, and `pods/resize` to act.

Verbs: pods get, list, watch; nodes, deployments, statefulsets, replicasets (apps), jobs (batch) list, watch;
pods/resize patch. rbac/base grants exactly these; /version is open to everyone (system:public-info-viewer). What else
is looked at if it may be: extras.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

from autoscaler.adapters.kubernetes.answers import GONE, changes, differences, refusal, replaced
from autoscaler.adapters.kubernetes.cache import Cache
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.controllers import Controllers
from autoscaler.adapters.kubernetes.decoded import Owned
from autoscaler.adapters.kubernetes.errors import KubernetesError, PermissionMissing, Unreachable
from autoscaler.adapters.kubernetes.extras import Extras
from autoscaler.adapters.kubernetes.moves import Moves
from autoscaler.adapters.kubernetes.watch import Kind, Timing, Watch
from autoscaler.adapters.kubernetes.wire import decode_minor, decode_node, decode_pod, patch_body, pod_path
from autoscaler.core.actions import Move, Outcome, OutcomeKind, Resize
from autoscaler.core.model import ClusterSnapshot, Node, Pod, PodRef, WorkloadRef
from autoscaler.ports import Unavailable

_STRATEGIC_MERGE = {"Content-Type": "application/strategic-merge-patch+json"}


class KubernetesCluster:
    """`ports.Cluster`. Call `start` before anything else, and `close` at the end; the connection stays the caller's.

    `changed` hears of each pod in which something has changed that sizing looks at. `server_dry_run` sends every patch
    with dryRun=All. `max_silence_s`: for how long a broken watch's state may still be acted on. `act_s`: timeout of a
    patch.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        changed: Callable[[PodRef], None] | None = None,
        server_dry_run: bool = False,
        max_silence_s: float = 60.0,
        act_s: float = 10.0,
        timing: Timing | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._changed = changed
        self._server_dry_run = server_dry_run
        self._max_silence_s = max_silence_s
        self._act_s = act_s
        self._started = False
        self._minor: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._pods: Cache[PodRef, Pod] = Cache(self._accept_pod)
        self._nodes: Cache[str, Node] = Cache(lambda _key, _old, new: new)
        self._controllers = Controllers(self._accept_owner, self._accept_scale)
        self._moves = Moves(
            connection,
            self._pods,
            self._learn,
            self._controllers.learn,
            self._controllers.mark,
            dry_run=server_dry_run,
            within_s=act_s,
        )
        watch = partial(Watch[Any, Any], connection, timing=timing or Timing(), now_s=monotonic)
        self._extras = Extras(connection, timing or Timing(), monotonic, max_silence_s)
        # owners and nodes first, so that pods are complete when they arrive
        self._watches = (
            *(watch(kind, cache) for kind, cache in self._controllers.watched()),
            watch(Kind("/api/v1/nodes", "nodes", decode_node), self._nodes),
            watch(Kind("/api/v1/pods", "pods", decode_pod), self._pods),
        )

    async def start(self, *, watch: bool = True) -> None:
        """Read everything once; then, unless `watch` is False, keep it current. Raises `KubernetesError`."""
        missing: list[str] = []
        for one in self._watches:
            try:
                await one.list_once()
            except PermissionMissing as error:  # name all missing rules at once
                missing.append(str(error))
        if missing:
            raise PermissionMissing("\n".join(missing))
        await self._extras.read()
        version = await self._connection.request("GET", "/version")
        self._minor = decode_minor(version.body) if version.status == 200 else None
        self._started = True
        if watch:
            self._extras.start()
            self._tasks = [asyncio.create_task(one.run(), name=f"watch {one.kind.resource}") for one in self._watches]

    async def close(self) -> None:
        """Stop watching."""
        await self._extras.close()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def observe(self) -> ClusterSnapshot:
        """The state as the watches have it. `Unavailable` when one of them has been down for too long."""
        if not self._started:
            raise Unavailable(f"{self._connection.server} has not been read yet")
        for watch, task in zip(self._watches, self._tasks, strict=False):
            if task.done():
                task.result()  # a mistake of ours, which nothing here can mend: raised, so that the process starts anew
            if (silent_s := watch.silent_s()) > self._max_silence_s:
                raise Unavailable(
                    f"the watch of {watch.kind.resource} has been down for {silent_s:.0f} s, its state is too old to "
                    f"act on: {watch.failure}"
                )
        self._extras.check()
        extras = self._extras.seen()
        owners = (cache for _, cache in self._controllers.watched())
        caches: tuple[Cache[Any, Any], ...] = (self._pods, self._nodes, *owners)
        return ClusterSnapshot(
            taken_at=self._connection.now(),
            pods=MappingProxyType(dict(self._pods.items)),
            nodes=MappingProxyType(dict(self._nodes.items)),
            problems=(*chain.from_iterable(cache.problems.values() for cache in caches), *self._extras.problems()),
            autoscalers=extras.autoscalers,
            server_minor=self._minor,
            workloads=MappingProxyType(dict(self._controllers.workloads)),
            disruption_budgets=extras.disruption_budgets,
            storage=extras.storage,
            capabilities=extras.capabilities,
        )

    async def move(self, move: Move) -> Outcome:
        """Evict the pod or scale the Deployment if its newest state is still the one that was decided on."""
        return await self._moves.perform(move)

    async def perform(self, action: Resize) -> Outcome:
        """Patch `pods/resize` if the newest state of the pod is still the one that the action was planned for."""
        pod = self._pods.items.get(action.pod)
        if pod is None:
            return GONE
        objection = _objection(pod, action)
        if objection is not None:
            return objection
        try:
            return await self._patch(pod, action)
        except Unreachable as error:
            return await self._look_again(pod, action, Outcome(OutcomeKind.UNKNOWN, str(error)))
        except KubernetesError as error:
            return Outcome(OutcomeKind.FORBIDDEN, str(error), type(error).__name__)

    async def _patch(self, pod: Pod, action: Resize) -> Outcome:
        # a LimitRange gives defaults to fields that are absent, also in a resize, and never takes them back
        if _has_absent_fields(pod) and not self._server_dry_run:
            probed = await self._send(pod, action, dry_run=True)
            if probed.kind is OutcomeKind.ALTERED:
                return replace(
                    probed, kind=OutcomeKind.REFUSED, cause="LimitRange", detail=f"not sent: {probed.detail}"
                )
            if probed.kind is not OutcomeKind.ACCEPTED:
                return probed
        outcome = await self._send(pod, action, dry_run=self._server_dry_run)
        return await self._look_again(pod, action, outcome) if outcome.kind is OutcomeKind.UNKNOWN else outcome

    async def _send(self, pod: Pod, action: Resize, *, dry_run: bool) -> Outcome:
        answer = await self._connection.request(
            "PATCH",
            f"{pod_path(action.pod)}/resize",
            query=[("fieldManager", action.kind), *([("dryRun", "All")] if dry_run else [])],
            headers=_STRATEGIC_MERGE,
            body=patch_body(action, pod.resource_version),
            within_s=self._act_s,
        )
        if answer.status != 200:
            return refusal(answer.status, answer.body, answer.headers.get("Retry-After"))
        stored = decode_pod(answer.body)
        if stored.value is None:
            raise Unreachable(f"{self._connection.server}: the answer to the resize of {action.pod} is not a pod")
        if not dry_run:
            self._learn(answer.body)
        foreign = differences(pod, action, stored.value)
        if foreign:
            return Outcome(OutcomeKind.ALTERED, f"admission changes the resize: {'; '.join(foreign)}")
        return Outcome(OutcomeKind.ACCEPTED)

    async def _look_again(self, before: Pod, action: Resize, unknown: Outcome) -> Outcome:
        """No answer came: see in the pod itself whether the resize was stored."""
        if self._server_dry_run:
            return unknown
        try:
            answer = await self._connection.request("GET", pod_path(action.pod), within_s=self._act_s)
        except KubernetesError:
            return unknown
        if answer.status == 404:
            return GONE
        now = decode_pod(answer.body).value if answer.status == 200 else None
        if now is None:
            return unknown
        if now.uid != before.uid:
            return replaced(now)
        self._learn(answer.body)
        if now.generation == before.generation:
            return replace(unknown, detail=f"{unknown.detail}; read again, the pod still has its old size")
        foreign = differences(before, action, now)
        if foreign:
            return replace(unknown, detail=f"{unknown.detail}; read again, the pod differs: {'; '.join(foreign)}")
        return Outcome(OutcomeKind.ACCEPTED, f"the answer was lost ({unknown.detail}), but the pod has the new size")

    def _learn(self, body: bytes) -> None:
        """Put a pod that was answered into the cache, unless it has gone in the meantime."""
        one = decode_pod(body)
        known = self._pods.items.get(one.key)
        if known is not None and one.value is not None and known.uid == one.value.uid:
            self._pods.put(one)

    def _accept_pod(self, ref: PodRef, old: Pod | None, new: Pod | None) -> Pod | None:
        if new is not None:
            new = self._with_workload(new)
            if old is not None:
                kept = replace(old, resource_version=new.resource_version)
                if kept == new:
                    return kept
                # readiness counts in the budgets of other pods, whenever they are decided about; and the scheduler's
                # words change with each of its tries
                known = replace(kept, ready=new.ready, ready_changed_at=new.ready_changed_at)
                if kept.unscheduled and new.unscheduled:
                    known = replace(known, unscheduled=new.unscheduled)
                if known == new:
                    return new
        if self._changed is not None and self._started and (old is not None or new is not None):
            self._changed(ref)
        return new

    def _accept_owner(self, owned: Owned, workload: str) -> None:
        for ref, pod in self._pods.items.items():
            if ref.namespace == owned.namespace and pod.workload == owned.object:
                self._pods.items[ref] = replace(pod, workload=workload)

    def _accept_scale(self, workload: WorkloadRef) -> None:
        if self._changed is not None and self._started:
            for ref, pod in self._pods.items.items():
                if ref.namespace == workload.namespace and pod.workload == workload.object:
                    self._changed(ref)

    def _with_workload(self, pod: Pod) -> Pod:
        workload = pod.owner and self._controllers.topmost(pod.namespace, pod.owner)
        return pod if workload == pod.workload else replace(pod, workload=workload)


def _has_absent_fields(pod: Pod) -> bool:
    """Whether any container lacks a request or limit that a LimitRange could default."""
    return any(
        amounts.cpu is None or amounts.memory is None
        for container in pod.containers
        for amounts in (container.spec.requests, container.spec.limits)
    )


def _objection(pod: Pod, action: Resize) -> Outcome | None:
    if pod.uid != action.uid:
        return replaced(pod)
    reasons: Mapping[str, bool] = {
        "the pod is being deleted": pod.deleting,
        f"the pod is {pod.phase}, not Running": pod.phase != "Running",
        f"planned for generation {action.generation}, the pod has {pod.generation}": pod.generation
        != action.generation,
        "the pod has this size already": not changes(pod, action),
    }
    reason = next((text for text, holds in reasons.items() if holds), None)
    return Outcome(OutcomeKind.SUPERSEDED, f"nothing was sent: {reason}") if reason else None
