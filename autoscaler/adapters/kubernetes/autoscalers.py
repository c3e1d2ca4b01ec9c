"""Other people's autoscalers: HorizontalPodAutoscalers, and VerticalPodAutoscalers where that API is installed.

Verbs: horizontalpodautoscalers (autoscaling) and verticalpodautoscalers (autoscaling.k8s.io) list, watch;
rbac/autoscalers grants exactly these. It is an extra: without the permission none is seen, and that is a problem in
every snapshot; an API that is not installed means that there are none. Both are looked at again at each re-list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from autoscaler.adapters.kubernetes.cache import Cache
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.errors import KubernetesError, NotServed, PermissionMissing
from autoscaler.adapters.kubernetes.watch import Kind, Timing, Watch
from autoscaler.adapters.kubernetes.wire import Owned, decode_horizontal, decode_vertical
from autoscaler.core.model import Autoscaler, Problem

_ROLE = "rbac/autoscalers"
_KINDS = (
    Kind("/apis/autoscaling/v2/horizontalpodautoscalers", "horizontalpodautoscalers", decode_horizontal, role=_ROLE),
    Kind("/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", "verticalpodautoscalers", decode_vertical, role=_ROLE),
)
_LOST = (NotServed, PermissionMissing)


class Autoscalers:
    """Every autoscaler that may be seen. `read` first; `start` keeps them current until `close`."""

    def __init__(
        self, connection: Connection, timing: Timing, now_s: Callable[[], float], max_silence_s: float
    ) -> None:
        self._kinds = [_Kind(connection, kind, timing, now_s, max_silence_s) for kind in _KINDS]
        self._tasks: list[asyncio.Task[None]] = []

    async def read(self) -> None:
        """Read everything once. What cannot be read is a problem, never an error."""
        for kind in self._kinds:
            await kind.read()

    def start(self) -> None:
        """Watch, each kind in a task of its own."""
        self._tasks = [asyncio.create_task(kind.run(), name=f"watch {kind.resource}") for kind in self._kinds]

    async def close(self) -> None:
        """Stop watching."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def found(self) -> tuple[Autoscaler, ...]:
        """Those that are known now."""
        return tuple(one for kind in self._kinds for one in kind.cache.items.values())

    def problems(self) -> Iterator[Problem]:
        """What may not be seen, or could not be read."""
        for kind in self._kinds:
            yield from kind.problems()


class _Kind:
    """One of the kinds: present, not served, or not permitted."""

    def __init__(
        self,
        connection: Connection,
        kind: Kind[Owned, Autoscaler],
        timing: Timing,
        now_s: Callable[[], float],
        max_silence_s: float,
    ) -> None:
        self.cache: Cache[Owned, Autoscaler] = Cache(lambda _key, _old, new: new)
        self.resource = kind.resource
        self._watch = Watch(connection, kind, self.cache, timing, now_s)
        self._relist_s = timing.relist_s
        self._max_silence_s = max_silence_s
        self._failure: KubernetesError | None = None

    async def read(self) -> None:
        try:
            await self._watch.list_once()
            self._failure = None
        except KubernetesError as error:
            self._fail(error)

    async def run(self) -> None:
        while True:
            if isinstance(self._failure, _LOST):
                await asyncio.sleep(self._relist_s)
                await self.read()
                continue
            self._failure = None
            try:
                await self._watch.run(until=_LOST)
            except _LOST as error:
                self._fail(error)

    def _fail(self, error: KubernetesError) -> None:
        self._failure = error
        if isinstance(error, _LOST):
            self.cache.replace([])

    def problems(self) -> Iterator[Problem]:
        yield from self.cache.problems.values()
        silent = self._watch.failure if self._watch.silent_s() > self._max_silence_s else None
        error = self._failure or silent
        if isinstance(error, PermissionMissing):
            detail = f"{error}; until then pods are sized as if there were no {self.resource}"
            yield Problem(self.resource, "CapabilityMissing", detail)
        elif error is not None and not isinstance(error, NotServed):
            yield Problem(self.resource, "Unavailable", f"what was read last is still used: {error}")
