"""Plays an API server on loopback: lists, watches and patches, and every way in which these go wrong."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from aiohttp import web

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

REPLICASETS, JOBS = "/apis/apps/v1/replicasets", "/apis/batch/v1/jobs"
DEPLOYMENTS, STATEFULSETS = "/apis/apps/v1/deployments", "/apis/apps/v1/statefulsets"
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
VPAS = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers"  # not served unless a test puts it among the objects
PDBS = "/apis/policy/v1/poddisruptionbudgets"
CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES, CSI_NODES = "/apis/storage.k8s.io/v1/storageclasses", "/apis/storage.k8s.io/v1/csinodes"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SERVED = (
    *(REPLICASETS, JOBS, DEPLOYMENTS, STATEFULSETS, NODES, PODS, HPAS),
    *(PDBS, CLAIMS, VOLUMES, CLASSES, CSI_NODES),
)
_LISTS = (*_SERVED, VPAS)


@dataclass(frozen=True)
class Seen:
    """A request that arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class ApiServer:
    """Holds objects by the path of their list. Answers are played from `next_answers` first, then from the objects.

    `token`: the only one accepted, if set. `page`: objects in one page of a list. `skew`: how far its clock is ahead.
    `allowed`: what a SelfSubjectAccessReview says yes to ("create pods/eviction").
    """

    def __init__(self) -> None:
        self.objects: dict[str, list[Json]] = {path: [] for path in _SERVED}
        self.allowed: set[str] = set()
        self.version = 100
        self.page = 500
        self.token: str | None = None
        self.skew = timedelta(0)
        self.seen: list[Seen] = []
        self.next_answers: dict[str, deque[Handler]] = defaultdict(deque)  # "LIST path", "WATCH path", "PATCH path" …
        self.streams: dict[str, asyncio.Queue[bytes | None]] = defaultdict(asyncio.Queue)
        self.url = ""
        self.port = 0

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._any)
        app.on_response_prepare.append(self._dated)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    def now(self) -> datetime:
        """The time by its clock."""
        return datetime.now(UTC) + self.skew

    async def _dated(self, _: web.Request, response: web.StreamResponse) -> None:
        response.headers["Date"] = format_datetime(self.now(), usegmt=True)

    async def stop(self) -> None:
        await self._runner.cleanup()

    def count(self, what: str) -> int:
        """How many requests of one sort ("WATCH /api/v1/pods") have arrived."""
        return sum(_sort(seen) == what for seen in self.seen)

    def send(self, path: str, kind: str, item: Json) -> None:
        """An event on the watch of a path."""
        self.streams[path].put_nowait(json.dumps({"type": kind, "object": item}).encode() + b"\n")

    def send_raw(self, path: str, text: bytes) -> None:
        """Bytes on the watch of a path, as they are."""
        self.streams[path].put_nowait(text)

    def drop(self, path: str) -> None:
        """Break the connection of a watch in the middle."""
        self.streams[path].put_nowait(None)

    async def _any(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else None
        seen = Seen(request.method, request.path, dict(request.query), dict(request.headers), body)
        self.seen.append(seen)
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return answer(401, {"kind": "Status", "message": "Unauthorized", "code": 401})
        sort = _sort(seen)
        if self.next_answers[sort]:
            return await self.next_answers[sort].popleft()(request)
        if request.path in self.objects and sort.startswith("LIST"):
            return self._list(request)
        if request.path in self.objects and sort.startswith("WATCH"):
            return await self._watch(request)
        if request.path == REVIEWS and body is not None:
            return self._review(body["spec"]["resourceAttributes"])
        return answer(404, {"kind": "Status", "message": "not found", "details": {"name": "x"}, "code": 404})

    def _review(self, asked: Json) -> web.Response:
        what = f"{asked['verb']} {asked['resource']}/{asked['subresource']}"
        return answer(201, {"kind": "SelfSubjectAccessReview", "status": {"allowed": what in self.allowed}})

    def _list(self, request: web.Request) -> web.Response:
        items = self.objects[request.path]
        start = int(request.query.get("continue", "0"))
        more = {"continue": str(start + self.page)} if start + self.page < len(items) else {}
        metadata = {"resourceVersion": str(self.version), **more}
        return answer(200, {"kind": "List", "metadata": metadata, "items": items[start : start + self.page]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            piece = await self.streams[request.path].get()
            if piece is None:
                assert request.transport is not None
                request.transport.abort()
                return response
            if piece == b"":
                return response
            await response.write(piece)


def _sort(seen: Seen) -> str:
    if seen.method != "GET":
        return f"{seen.method} {seen.path}"
    if seen.path in _LISTS:
        return f"{'WATCH' if seen.query.get('watch') else 'LIST'} {seen.path}"
    return f"GET {seen.path}"


def answer(status: int, body: Json | str, headers: dict[str, str] | None = None) -> web.Response:
    text = body if isinstance(body, str) else json.dumps(body)
    kind = "text/html" if isinstance(body, str) else "application/json"
    return web.Response(status=status, text=text, content_type=kind, headers=headers)


def always(status: int, body: Json | str, headers: dict[str, str] | None = None) -> Handler:
    """A handler that gives one answer."""

    async def handle(_: web.Request) -> web.StreamResponse:
        return answer(status, body, headers)

    return handle


async def lose(request: web.Request) -> web.StreamResponse:
    """Break the connection off instead of answering."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hang(_: web.Request) -> web.StreamResponse:
    """Do not answer."""
    await asyncio.sleep(30)
    return web.Response()
