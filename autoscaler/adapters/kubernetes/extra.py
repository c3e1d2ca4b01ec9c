"""One kind of object that is read only where it may be: known, not served, not permitted, or not answered for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from autoscaler.adapters.kubernetes.cache import Cache
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.decoded import Owned
from autoscaler.adapters.kubernetes.errors import KubernetesError, NotServed, PermissionMissing
from autoscaler.adapters.kubernetes.watch import Kind, Timing, Watch
from autoscaler.core.model import Problem
from autoscaler.core.problems import Trouble

T = TypeVar("T")

_LOST = (NotServed, PermissionMissing)


class Extra(Generic[T]):
    """`read` first; `run` keeps it current. `max_silence_s`: for how long a broken watch's state counts as known."""

    def __init__(
        self,
        connection: Connection,
        kind: Kind[Owned, T],
        timing: Timing,
        now_s: Callable[[], float],
        max_silence_s: float,
    ) -> None:
        self.resource = kind.resource
        self.cache: Cache[Owned, T] = Cache(self._accept)
        self.version = 0  # counts the changes
        self._watch = Watch(connection, kind, self.cache, timing, now_s)
        self._timing = timing
        self._max_silence_s = max_silence_s
        self._failure: KubernetesError | None = None
        self._is_read = False

    @property
    def is_known(self) -> bool:
        """Whether its state is known now."""
        return self._is_read and self.lack is None

    @property
    def lack(self) -> KubernetesError | None:
        """What keeps its state from being known now; None if nothing does."""
        silent = self._watch.failure if self._watch.silent_s() > self._max_silence_s else None
        return self._failure or silent

    async def read(self) -> None:
        """Read everything once. What goes wrong is a lack, never an error."""
        try:
            await self._watch.list_once()
            self._failure, self._is_read = None, True
        except KubernetesError as error:
            self._fail(error)

    async def run(self) -> None:
        """Keep it current until cancelled. What is not served or permitted is looked for again at each re-list."""
        failures = 0
        while True:
            if self._failure is None:
                failures = 0
                try:
                    await self._watch.run(until=_LOST)
                except _LOST as error:
                    self._fail(error)
            failures += 1
            is_lost = isinstance(self._failure, _LOST)
            await asyncio.sleep(self._timing.relist_s if is_lost else self._timing.backoff.delay_s(failures))
            await self.read()

    def forget(self) -> None:
        """Know nothing of it any more."""
        self._is_read = False
        self.cache.replace([])

    def unavailable(self, meanwhile: str) -> Problem | None:
        """The problem if it does not answer, though it may be read. `meanwhile`: what that means."""
        error = self.lack
        if error is None or isinstance(error, _LOST):
            return None
        return Problem(self.resource, Trouble.UNAVAILABLE, f"{meanwhile}: {error}")

    def _fail(self, error: KubernetesError) -> None:
        self._failure = error
        if isinstance(error, _LOST):
            self.forget()

    def _accept(self, _: Owned, _old: T | None, new: T | None) -> T | None:
        self.version += 1
        return new
