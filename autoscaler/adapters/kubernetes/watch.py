"""List and watch one kind of object, for as long as the process lives.

A list gives the state and a resource version; a watch goes on from there. A watch that breaks off resumes from the
last version; one whose version has expired (410) or that says something unreadable starts again with a list; and now
and then a list is made anyway, because a missed event would otherwise stay missed. Nothing here loops without waiting.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from autoscaler.adapters.kubernetes import schema
from autoscaler.adapters.kubernetes.answers import missing_rule, read_status
from autoscaler.adapters.kubernetes.backoff import Backoff
from autoscaler.adapters.kubernetes.cache import Cache, K, newer
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.decoded import Decoded
from autoscaler.adapters.kubernetes.errors import (
    Expired,
    KubernetesError,
    NotServed,
    PermissionMissing,
    Unreachable,
)

T = TypeVar("T")

_MAX_LINE = 16 * 2**20  # etcd holds 1.5 MiB an object; more on one line is not an API server
_METADATA = {
    True: {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"},
    False: {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"},
}
_lists = msgspec.json.Decoder(schema.List)
_events = msgspec.json.Decoder(schema.Event)
_objects = msgspec.json.Decoder(schema.Object)


@dataclass(frozen=True, slots=True)
class Kind(Generic[K, T]):
    """What is watched. `metadata_only`: the server is asked to leave spec and status out. `role`: what grants it."""

    path: str
    resource: str
    decode: Callable[[msgspec.Raw | bytes], Decoded[K, T]]
    metadata_only: bool = False
    role: str = "rbac/base"

    def headers(self, *, of_list: bool) -> Mapping[str, str]:
        """The Accept header for a list or a watch."""
        return _METADATA[of_list] if self.metadata_only else {}


@dataclass(frozen=True, slots=True)
class Timing:
    """How patient a watch is. Seconds.

    `watch_s` is asked of the server, which then ends the watch itself; bookmarks come every minute, so that a
    connection silent for `silence_s` is given up. `settled_s`: a watch that lives so long was no failure.
    """

    page_s: float = 30.0
    watch_s: float = 290.0
    silence_s: float = 90.0
    relist_s: float = 20 * 60.0
    settled_s: float = 1.0
    backoff: Backoff = field(default_factory=Backoff)


class Watch(Generic[K, T]):
    """Keeps a cache current. `list_once` first, then `run` for ever."""

    def __init__(
        self, connection: Connection, kind: Kind[K, T], cache: Cache[K, T], timing: Timing, now_s: Callable[[], float]
    ) -> None:
        self.kind = kind
        self.failure: KubernetesError | None = None
        self._connection = connection
        self._cache = cache
        self._timing = timing
        self._now_s = now_s
        self._version = ""
        self._expired = True
        self._listed_at = self._heard_at = now_s()

    def silent_s(self) -> float:
        """How long the watch has been down: 0 while it stands, else the time since anything was heard from it."""
        return 0.0 if self.failure is None else self._now_s() - self._heard_at

    async def list_once(self) -> None:
        """Read the whole state, in pages. Raises `KubernetesError`."""
        found: list[Decoded[K, T]] = []
        query = [("limit", "500")]
        while True:
            answer = await self._connection.request(
                "GET",
                self.kind.path,
                query=query,
                headers=self.kind.headers(of_list=True),
                within_s=self._timing.page_s,
            )
            if answer.status != 200:
                raise self._refused("list", answer.status, answer.body)
            try:
                page = _lists.decode(answer.body)
            except schema.UNREADABLE as error:
                raise Unreachable(f"{self._about('list')}: the answer is not a list ({error})") from error
            found.extend(map(self.kind.decode, page.items or ()))
            if not page.metadata.continue_:
                break
            query = [("limit", "500"), ("continue", page.metadata.continue_)]
        version = page.metadata.resource_version
        # a list is as new as anything the server ever said, unless its database was restored from a backup
        self._cache.replace(found, rewound=newer(self._version, version))
        self._version, self._expired = version, False
        self._listed_at = self._heard_at = self._now_s()

    async def run(self, until: tuple[type[KubernetesError], ...] = ()) -> None:
        """List and watch until cancelled, or until an error of these kinds, which is raised."""
        failures = 0
        while True:
            began_at = self._now_s()
            try:
                await self._follow()
                ended: KubernetesError | None = None
            except until:
                raise
            except Expired as error:
                self._expired, ended = True, error
            except KubernetesError as error:
                ended = error
            # a watch that ends at once, however politely, would make this a hot loop
            failures = failures + 1 if self._now_s() - began_at < self._timing.settled_s else int(ended is not None)
            self.failure = ended or self.failure
            if failures:
                await asyncio.sleep(self._timing.backoff.delay_s(failures))

    async def _follow(self) -> None:
        """One list, if it is due, and one watch, until it ends."""
        spread = 1 - 0.2 * random.random()  # noqa: S311 - keeps the kinds and replicas from listing together
        if self._expired or self._now_s() - self._listed_at >= self._timing.relist_s * spread:
            await self.list_once()
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(max(1, round(self._timing.watch_s * spread)))),
        ]
        async with self._connection.stream(
            self.kind.path,
            query=query,
            headers=self.kind.headers(of_list=False),
            total_s=self._timing.watch_s + 30,
            silence_s=self._timing.silence_s,
        ) as (status, pieces):
            if status != 200:
                body = b"".join([piece async for piece in pieces])
                raise self._refused("watch", status, body)
            self.failure = None
            self._heard_at = self._now_s()
            try:
                async for line in lines(self._noting(pieces)):
                    self._event(line)
            except TimeoutError:
                # no failure yet: an API server sends no bookmarks of a kind of which it has never seen a change. If the
                # connection is dead, the next watch will tell
                return

    async def _noting(self, pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            self._heard_at = self._now_s()
            yield piece

    def _event(self, line: bytes) -> None:
        try:
            event = _events.decode(line)
            if event.type == "BOOKMARK":
                self._version = _objects.decode(event.object).metadata.resource_version
                return
        except schema.UNREADABLE as error:
            raise Expired(f"{self._about('watch')}: a line is not an event ({error})") from error
        if event.type == "ERROR":
            status = read_status(bytes(event.object))
            raise Expired(f"{self._about('watch')}: {status.message or status.reason} ({status.code})")
        one = self.kind.decode(event.object)
        if event.type == "DELETED":
            self._cache.remove(one.key)
        else:
            self._cache.put(one)
        self._version = one.version or self._version

    def _refused(self, verb: str, status: int, body: bytes) -> KubernetesError:
        message = read_status(body).message
        text = f"{self._about(verb)}: HTTP {status}: {message}"
        if status == 403:
            return PermissionMissing(f"{self._about(verb)}: {missing_rule(message, self.kind.role) or message}")
        if status == 404 and verb == "list":
            return NotServed(text)
        # 410 is the usual one; a version that is too large (504) is cured by a list as well
        return Expired(text) if verb == "watch" and status != 429 else Unreachable(text)

    def _about(self, verb: str) -> str:
        return f"{self._connection.server}: {verb} {self.kind.resource}"


async def lines(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Whole lines of a stream of pieces. What is left without an end of line is dropped: it was cut off."""
    rest = bytearray()
    async for piece in pieces:
        rest += piece
        if b"\n" not in piece:
            if len(rest) > _MAX_LINE:
                raise Expired(f"a line of more than {_MAX_LINE} bytes: this is not a watch")
            continue
        *whole, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in whole:
            if line.strip():
                yield line
