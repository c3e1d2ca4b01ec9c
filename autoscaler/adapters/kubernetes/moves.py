"""Moving pods: evictions and scales of Deployments, each against the newest state and with preconditions.

Verbs: pods/eviction create (rbac/migrate); deployments/scale patch (rbac/surge); pods get and deployments list
(rbac/base), to see what has become of it. A pod is never deleted: a delete passes every PodDisruptionBudget by.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from autoscaler.adapters.kubernetes import schema
from autoscaler.adapters.kubernetes.answers import GONE, missing_rule, read_status, replaced
from autoscaler.adapters.kubernetes.cache import Cache
from autoscaler.adapters.kubernetes.connection import Answer, Connection
from autoscaler.adapters.kubernetes.errors import KubernetesError, PermissionMissing, Unreachable
from autoscaler.adapters.kubernetes.evictions import eviction_refusal, scale_refusal
from autoscaler.adapters.kubernetes.scaled import Entry, is_noted, last_scaled, manager_at
from autoscaler.adapters.kubernetes.wire import decode_pod, pod_path
from autoscaler.core.actions import Evict, Move, Outcome, OutcomeKind, Scale, ScaleKind
from autoscaler.core.model import Pod, PodRef, WorkloadRef

_MERGE = {"Content-Type": "application/merge-patch+json"}
_DRY = [("dryRun", "All")]
_TRIES = 5  # to undo a scale: an eviction changes the status of its Deployment two or three times within milliseconds
TRIED_WITHIN_S = 4.0
"""How long the dry run of an eviction may take. Whether this replica leads was asked before it, and must still hold
when the eviction itself is sent: less than what a lease lasts longer than its leader acts (lease.py)."""


class _Kind(schema.Wire):
    kind: str = ""


class _Meta(schema.Wire):
    uid: str = ""
    resource_version: str = ""
    managed_fields: list[Entry] | None = None


class _Spec(schema.Wire):
    replicas: int = 1


class _Deployment(schema.Wire):
    metadata: _Meta
    spec: _Spec


_lists = msgspec.json.Decoder(schema.List)
_kinds = msgspec.json.Decoder(_Kind)
_deployments = msgspec.json.Decoder(_Deployment)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A Deployment as read; `at`: the API server's time, in whole seconds, never later than it was."""

    deployment: _Deployment
    at: datetime


class Moves:
    """Performs moves. `pods`: the watch cache. `learn_pod`, `learn_workload`: take the JSON of a pod, of a Deployment,
    newer than what the watch has told, so that what was done shows at once. `mark_workload`: takes a scale that was
    accepted at that time of the API server, where the Deployment could not be read again.

    `dry_run`: everything is sent with dryRun=All. `within_s`: timeout of each call, but for the dry run of an eviction.
    """

    def __init__(
        self,
        connection: Connection,
        pods: Cache[PodRef, Pod],
        learn_pod: Callable[[bytes], None],
        learn_workload: Callable[[bytes], None],
        mark_workload: Callable[[Scale, datetime], None],
        *,
        dry_run: bool,
        within_s: float,
    ) -> None:
        self._connection = connection
        self._pods = pods
        self._learn_pod = learn_pod
        self._learn_workload = learn_workload
        self._mark_workload = mark_workload
        self._dry_run = dry_run
        self._within_s = within_s

    async def perform(self, move: Move) -> Outcome:
        """Do it, if the newest state is still the one that was decided on. Failures are outcomes."""
        try:
            return await (self._evict(move) if isinstance(move, Evict) else self._scale(move))
        except KubernetesError as error:
            return Outcome(OutcomeKind.FORBIDDEN, str(error), type(error).__name__)

    async def _evict(self, move: Evict) -> Outcome:
        objection = _objection(self._pods.items.get(move.pod), move)
        if objection is not None:
            return objection
        tried = await self._ask(move, dry_run=True)
        if tried.kind is OutcomeKind.UNKNOWN:
            return replace(tried, detail=f"nothing was evicted, the dry run has no answer: {tried.detail}")
        if tried.kind is not OutcomeKind.ACCEPTED or self._dry_run:
            return tried
        outcome = await self._ask(move, dry_run=False)
        if outcome.kind not in (OutcomeKind.ACCEPTED, OutcomeKind.UNKNOWN):
            return outcome
        leaving = await self._is_leaving(move)
        if outcome.kind is OutcomeKind.UNKNOWN:
            if not leaving:
                seen = "" if leaving is None else "; read again, the pod is not being deleted"
                return replace(outcome, detail=outcome.detail + seen)
            outcome = Outcome(OutcomeKind.ACCEPTED, f"the answer was lost ({outcome.detail}), but the pod is leaving")
        self._mark(move)
        return outcome

    async def _ask(self, move: Evict, *, dry_run: bool) -> Outcome:
        preconditions = {"uid": move.uid, "resourceVersion": move.resource_version}
        options: dict[str, Any] = {"preconditions": preconditions} | ({"dryRun": ["All"]} if dry_run else {})
        sent = self._connection.request(
            "POST",
            f"{pod_path(move.pod)}/eviction",
            query=_DRY if dry_run else (),  # admission looks here, the eviction itself into its options
            body={
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": move.pod.name, "namespace": move.pod.namespace},
                "deleteOptions": options,
            },
            within_s=min(self._within_s, TRIED_WITHIN_S) if dry_run else self._within_s,
        )
        return await _outcome(sent, "Status", eviction_refusal)

    async def _is_leaving(self, move: Evict) -> bool | None:
        """Whether the pod has gone or is being deleted; what is read enters the cache. None: it cannot be read."""
        try:
            answer = await self._connection.request("GET", pod_path(move.pod), within_s=self._within_s)
        except KubernetesError:
            return None
        if answer.status == 404 and read_status(answer.body).kind:
            return True
        pod = decode_pod(answer.body).value if answer.status == 200 else None
        if pod is None:
            return None
        if pod.uid != move.uid:
            return True
        self._learn_pod(answer.body)
        return pod.deleting

    def _mark(self, move: Evict) -> None:
        """Let an evicted pod count as such until the watch says that it has gone: without it nothing would show that a
        pod of its workload is missing, before there is a new one."""
        known = self._pods.items.get(move.pod)
        if known is not None and known.uid == move.uid:
            self._pods.items[move.pod] = replace(known, deleting=True, disrupted=True)

    async def _scale(self, move: Scale) -> Outcome:
        outcome = await self._try_scale(move)
        tries = _TRIES if move.kind is ScaleKind.BACK else 1
        while outcome.kind is OutcomeKind.CONFLICT and (tries := tries - 1):
            outcome = await self._try_scale(move)
        return outcome

    async def _try_scale(self, move: Scale) -> Outcome:
        try:
            seen = await self._read(move.workload)
        except Unreachable as error:
            return Outcome(OutcomeKind.UNKNOWN, f"nothing was scaled: {error}")
        if seen is None:
            return Outcome(OutcomeKind.GONE, "the Deployment is no longer there")
        objection = _objection_to_scale(seen.deployment, move)
        if objection is not None:
            return objection
        move = replace(move, resource_version=seen.deployment.metadata.resource_version)
        manager = manager_at(move.kind, seen.at)
        outcome = await self._patch(move, manager)
        if self._dry_run or outcome.kind not in (OutcomeKind.ACCEPTED, OutcomeKind.UNKNOWN):
            return outcome
        try:
            now = await self._read(move.workload)
        except KubernetesError:
            if outcome.kind is OutcomeKind.ACCEPTED:
                self._mark_workload(move, seen.at)
            return outcome  # the preconditions keep anything from being done twice
        if outcome.kind is OutcomeKind.ACCEPTED or now is None:
            return outcome
        entries = now.deployment.metadata.managed_fields or ()
        if any(entry.manager == manager for entry in entries):
            return Outcome(OutcomeKind.ACCEPTED, f"the answer was lost ({outcome.detail}), but it is scaled")
        return replace(outcome, detail=f"{outcome.detail}; read again, it has {now.deployment.spec.replicas} replicas")

    async def _patch(self, move: Scale, manager: str) -> Outcome:
        sent = self._connection.request(
            "PATCH",
            f"{_deployments_path(move.workload)}/{move.workload.name}/scale",
            query=[("fieldManager", manager), *(_DRY if self._dry_run else ())],
            headers=_MERGE,
            body={
                "metadata": {"uid": move.uid, "resourceVersion": move.resource_version},
                "spec": {"replicas": move.replicas},
            },
            within_s=self._within_s,
        )
        return await _outcome(sent, "Scale", scale_refusal)

    async def _read(self, workload: WorkloadRef) -> _Seen | None:
        """The Deployment as the server has it, which enters the cache; None if there is none. Raises
        `KubernetesError`."""
        answer = await self._connection.request(
            "GET",
            _deployments_path(workload),
            query=[("fieldSelector", f"metadata.name={workload.name}")],  # a list, for which there is a rule already
            within_s=self._within_s,
        )
        if answer.status != 200:
            message = read_status(answer.body).message
            if answer.status == 403:
                raise PermissionMissing(missing_rule(message) or message)
            raise Unreachable(f"{self._connection.server}: list deployments: HTTP {answer.status}: {message}")
        try:
            items = _lists.decode(answer.body).items or ()
            found = [(_deployments.decode(item), bytes(item)) for item in items]
            at = parsedate_to_datetime(answer.headers.get("Date", "")).astimezone(UTC)
        except (*schema.UNREADABLE, ValueError) as error:
            raise Unreachable(f"{self._connection.server}: list deployments: the answer is not a list") from error
        if not found:
            return None
        if len(found) > 1:
            raise Unreachable(f"{self._connection.server}: list deployments: the fieldSelector was not heeded")
        ((deployment, body),) = found
        self._learn_workload(body)
        return _Seen(deployment, at)


def _objection(pod: Pod | None, move: Evict) -> Outcome | None:
    if pod is None:
        return GONE
    if pod.uid != move.uid:
        return replaced(pod)
    if pod.deleting:
        return Outcome(OutcomeKind.SUPERSEDED, "nothing was sent: the pod is being deleted")
    if pod.resource_version != move.resource_version:
        return Outcome(OutcomeKind.SUPERSEDED, "nothing was sent: the pod has changed since")
    return None


def _objection_to_scale(deployment: _Deployment, move: Scale) -> Outcome | None:
    meta, replicas = deployment.metadata, deployment.spec.replicas
    if meta.uid != move.uid:
        return Outcome(OutcomeKind.GONE, "the Deployment was replaced by another of the same name")
    if move.kind is ScaleKind.BACK:
        if last_scaled(meta.managed_fields or ()) != move.undoes:
            return Outcome(OutcomeKind.SUPERSEDED, "nothing was sent: somebody has scaled the Deployment since")
    elif meta.resource_version != move.resource_version:
        return Outcome(OutcomeKind.SUPERSEDED, "nothing was sent: the Deployment has changed since")
    if replicas == move.replicas:
        return Outcome(OutcomeKind.SUPERSEDED, f"nothing was sent: the Deployment has {replicas} replicas already")
    if move.kind is ScaleKind.SURGE and not is_noted(meta.managed_fields or ()):
        # a surge that the Deployment does not show would be begun again and again
        words = (
            f"the managedFields of Deployment {move.workload} name nobody for spec.replicas, so that it would not show "
            "who scaled it; apply it with spec.replicas (kubectl apply --server-side), or use strategy Evict"
        )
        return Outcome(OutcomeKind.REFUSED, words, "ReplicasNotOwned")
    return None


async def _outcome(sent: Awaitable[Answer], kind: str, refusal: Callable[[int, bytes, str | None], Outcome]) -> Outcome:
    """What came of a move that is being sent. `kind`: of the object that is answered where it is accepted."""
    try:
        answer = await sent
    except Unreachable as error:
        return Outcome(OutcomeKind.UNKNOWN, str(error))
    if answer.status < 400:
        return _accepted(answer, kind)
    return refusal(answer.status, answer.body, answer.headers.get("Retry-After"))


def _accepted(answer: Answer, kind: str) -> Outcome:
    """What an answer without an error means. One that is not the API server's says nothing about what was done."""
    try:
        known = _kinds.decode(answer.body).kind == kind
    except schema.UNREADABLE:
        known = False
    if known and answer.status in (200, 201):
        return Outcome(OutcomeKind.ACCEPTED)
    return Outcome(OutcomeKind.UNKNOWN, f"HTTP {answer.status} without a {kind} is no answer of an API server")


def _deployments_path(workload: WorkloadRef) -> str:
    return f"/apis/apps/v1/namespaces/{workload.namespace}/deployments"
