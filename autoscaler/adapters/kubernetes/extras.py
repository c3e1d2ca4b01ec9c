"""What is looked at only where it is permitted, and what may be done beyond resizing.

Other people's autoscalers (rbac/autoscalers): horizontalpodautoscalers (autoscaling) and verticalpodautoscalers
(autoscaling.k8s.io) list, watch. Without the permission none is seen, and that is a problem in every snapshot; an API
that is not installed means that there are none.

What an eviction is proved with (rbac/migrate): poddisruptionbudgets (policy), persistentvolumeclaims,
persistentvolumes, storageclasses and csinodes (storage.k8s.io) list, watch. They are read only where pods may be
evicted. Whether pods may be evicted and Deployments scaled (rbac/surge) is asked of the API server
(SelfSubjectAccessReview, which everyone may create), at the start and at each re-list, so that a role that is granted
or taken away is noticed. What is missing is missing from the capabilities; it is no problem unless a policy needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from autoscaler.adapters.kubernetes.access import may
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.errors import NotServed, PermissionMissing
from autoscaler.adapters.kubernetes.extra import Extra
from autoscaler.adapters.kubernetes.watch import Kind, Timing
from autoscaler.adapters.kubernetes.wire_autoscalers import decode_horizontal, decode_vertical
from autoscaler.adapters.kubernetes.wire_migration import (
    decode_budget,
    decode_claim,
    decode_class,
    decode_csi_node,
    decode_volume,
)
from autoscaler.core.model import Autoscaler, Capability, Problem
from autoscaler.core.problems import Trouble
from autoscaler.core.scheduling import DisruptionBudget, Storage

_AUTOSCALERS, _MIGRATE = "rbac/autoscalers", "rbac/migrate"
_HORIZONTALS = Kind(
    "/apis/autoscaling/v2/horizontalpodautoscalers", "horizontalpodautoscalers", decode_horizontal, role=_AUTOSCALERS
)
_VERTICALS = Kind(
    "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", "verticalpodautoscalers", decode_vertical, role=_AUTOSCALERS
)
_BUDGETS = Kind("/apis/policy/v1/poddisruptionbudgets", "poddisruptionbudgets", decode_budget, role=_MIGRATE)
_CLAIMS = Kind("/api/v1/persistentvolumeclaims", "persistentvolumeclaims", decode_claim, role=_MIGRATE)
_VOLUMES = Kind("/api/v1/persistentvolumes", "persistentvolumes", decode_volume, role=_MIGRATE)
_CLASSES = Kind("/apis/storage.k8s.io/v1/storageclasses", "storageclasses", decode_class, role=_MIGRATE)
_CSI_NODES = Kind("/apis/storage.k8s.io/v1/csinodes", "csinodes", decode_csi_node, role=_MIGRATE)

_RIGHTS: Mapping[Capability, Mapping[str, str]] = {
    Capability.MIGRATE: {"verb": "create", "group": "", "resource": "pods", "subresource": "eviction"},
    Capability.SURGE: {"verb": "patch", "group": "apps", "resource": "deployments", "subresource": "scale"},
}


class Seen(NamedTuple):
    """What is permitted, and can be read as far as it takes reading, with what was read."""

    capabilities: frozenset[Capability]
    autoscalers: tuple[Autoscaler, ...]
    disruption_budgets: tuple[DisruptionBudget, ...]
    storage: Storage


class Extras:
    """`read` first; `start` keeps everything current until `close`."""

    def __init__(
        self, connection: Connection, timing: Timing, now_s: Callable[[], float], max_silence_s: float
    ) -> None:
        extra = partial(Extra[Any], connection, timing=timing, now_s=now_s, max_silence_s=max_silence_s)
        self._connection = connection
        self._timing = timing
        self._autoscalers: tuple[Extra[Autoscaler], ...] = (extra(_HORIZONTALS), extra(_VERTICALS))
        self._budgets: Extra[DisruptionBudget] = extra(_BUDGETS)
        self._claims, self._volumes, self._classes = extra(_CLAIMS), extra(_VOLUMES), extra(_CLASSES)
        self._csi_nodes: Extra[tuple[str, Mapping[str, int]]] = extra(_CSI_NODES)
        self._stored = (self._claims, self._volumes, self._classes, self._csi_nodes)
        self._proving = (self._budgets, *self._stored)
        self._allowed: frozenset[Capability] = frozenset()
        self._unanswered = 0
        self._storage, self._storage_of = Storage(), 0
        self._watching: list[asyncio.Task[None]] = []
        self._following: list[asyncio.Task[None]] = []  # what an eviction is proved with

    async def read(self) -> None:
        """Read everything once that may be read. What cannot be is missing or a problem, never an error."""
        for one in self._autoscalers:
            await one.read()
        await self._ask()
        await self._follow(watch=False)

    def start(self) -> None:
        """Watch, each kind in a task of its own."""
        asking = asyncio.create_task(self._keep_asking(), name="ask for permissions")
        self._watching = [asking, *_tasks(self._autoscalers)]
        if Capability.MIGRATE in self._allowed:
            self._following = _tasks(self._proving)

    async def close(self) -> None:
        """Stop watching."""
        watching, self._watching = self._watching, []
        await _cancelled(watching)  # first: what asks starts others
        following, self._following = self._following, []
        await _cancelled(following)

    def check(self) -> None:
        """Raise what a task has ended with: a mistake of this program's."""
        for task in chain(self._watching, self._following):
            if task.done():
                task.result()

    def seen(self) -> Seen:
        """What is known now.

        What an eviction is proved with is there if, and only if, pods may be evicted. Whether they may is asked once,
        since time alone may change the answer.
        """
        migrates = self._may_migrate()
        lacks = [one.lack for one in self._autoscalers]
        found = {Capability.AUTOSCALERS} if all(one is None or isinstance(one, NotServed) for one in lacks) else set()
        found |= self._allowed & {Capability.SURGE}
        found |= {Capability.MIGRATE} if migrates else set()
        return Seen(
            frozenset(found),
            tuple(one for kind in self._autoscalers for one in kind.cache.items.values()),
            tuple(self._budgets.cache.items.values()) if migrates else (),
            self._newest_storage() if migrates else Storage(),
        )

    def _newest_storage(self) -> Storage:
        newest = sum(one.version for one in self._stored)
        if newest != self._storage_of:
            self._storage, self._storage_of = self._storage_now(), newest
        return self._storage

    def problems(self) -> Iterator[Problem]:
        """What could not be read, and autoscalers that may not be seen."""
        for kind in self._autoscalers:
            if isinstance(kind.lack, PermissionMissing):
                detail = f"{kind.lack}; until then pods are sized as if there were no {kind.resource}"
                yield Problem(kind.resource, Trouble.CAPABILITY_MISSING, detail)
            yield from _troubles(kind, "what was read last is still used")
        if Capability.MIGRATE in self._allowed:
            yield from chain.from_iterable(_troubles(one, "nothing is evicted meanwhile") for one in self._proving)

    def _may_migrate(self) -> bool:
        return Capability.MIGRATE in self._allowed and all(one.is_known for one in self._proving)

    def _storage_now(self) -> Storage:
        limits = {
            (node, driver): limit
            for node, drivers in self._csi_nodes.cache.items.values()
            for driver, limit in drivers.items()
        }
        return Storage(
            MappingProxyType({(one.namespace, one.name): one for one in self._claims.cache.items.values()}),
            MappingProxyType({one.name: one for one in self._volumes.cache.items.values()}),
            MappingProxyType({one.name: one for one in self._classes.cache.items.values()}),
            MappingProxyType(limits),
        )

    async def _keep_asking(self) -> None:
        relist_s, backoff = self._timing.relist_s, self._timing.backoff
        while True:
            failures = self._unanswered
            await asyncio.sleep(min(relist_s, backoff.delay_s(failures)) if failures else relist_s)
            await self._ask()
            await self._follow(watch=True)

    async def _ask(self) -> None:
        """Ask what is permitted. Where there is no answer, the last one counts."""
        answers = {capability: await may(self._connection, right) for capability, right in _RIGHTS.items()}
        self._allowed = frozenset(one for one, may in answers.items() if may or (may is None and one in self._allowed))
        self._unanswered = self._unanswered + 1 if None in answers.values() else 0

    async def _follow(self, *, watch: bool) -> None:
        """Begin to read what an eviction is proved with, or stop, as permitted."""
        if Capability.MIGRATE not in self._allowed:
            following, self._following = self._following, []
            await _cancelled(following)
            for one in self._proving:
                one.forget()
        elif not self._following:
            for one in self._proving:
                await one.read()
            self._following = _tasks(self._proving) if watch else []


def _troubles(extra: Extra[Any], meanwhile: str) -> Iterator[Problem]:
    yield from extra.cache.problems.values()
    if (unavailable := extra.unavailable(meanwhile)) is not None:
        yield unavailable


def _tasks(extras: tuple[Extra[Any], ...]) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(one.run(), name=f"watch {one.resource}") for one in extras]


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
