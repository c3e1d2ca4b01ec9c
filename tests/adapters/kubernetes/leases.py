"""A Lease server and an event loop whose time is made up, for replicas that contend."""

from __future__ import annotations

import asyncio
import json
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from aiohttp import web

from autoscaler.adapters.kubernetes.connection import Answer
from autoscaler.adapters.kubernetes.errors import Unreachable

T = TypeVar("T")
Json = dict[str, Any]
NAMESPACE = "bridge-autoscaler"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PATH = f"{LEASES}/bridge-autoscaler"
START = datetime(2026, 11, 29, 10, 0, 0, 123456, tzinfo=UTC)


class _Jumping(selectors.SelectSelector):
    """Waits for nothing: the loop's time jumps to where it would have waited."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everything waits for ever"
        self.now_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. No sockets, no threads."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def in_virtual_time(story: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a story to its end, however long it takes in its own time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story())


class LeaseServer:
    """What an API server does with Leases: versions, 404, 409. By value, in no time."""

    def __init__(self) -> None:
        self.lease: Json | None = None
        self.version = 0
        self.hanging = False  # over HTTP
        self.stored: list[Json] = []  # specs, as they were stored

    @property
    def holder(self) -> str | None:
        return None if self.lease is None else self.lease["spec"].get("holderIdentity")

    def put_in(self, **spec: Any) -> None:
        """Store a record, as another program would."""
        self._store({"metadata": {"name": "bridge-autoscaler", "namespace": NAMESPACE}, "spec": spec})

    def answer(self, method: str, path: str, body: Json | None) -> tuple[int, Json]:
        assert path == (LEASES if method == "POST" else PATH)
        if method == "POST":
            assert body is not None
            return self._refused(409) if self.lease else (201, self._store(body))
        if self.lease is None:
            return self._refused(404)
        if method == "GET":
            return 200, self.lease
        assert method == "PUT"
        assert body is not None
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return self._refused(409)
        return 200, self._store(body)

    def _store(self, body: Json) -> Json:
        self.version += 1
        body = json.loads(json.dumps(body))
        body["metadata"]["resourceVersion"] = str(self.version)
        self.lease = body
        self.stored.append(body["spec"])
        return body

    @staticmethod
    def _refused(code: int) -> tuple[int, Json]:
        return code, {"kind": "Status", "code": code, "message": f"HTTP {code}"}

    def routes(self) -> list[web.RouteDef]:
        """The same over HTTP."""

        async def handle(request: web.Request) -> web.Response:
            text = await request.text()
            while self.hanging:
                await asyncio.sleep(0.01)
            status, body = self.answer(request.method, request.path, json.loads(text) if text else None)
            return web.json_response(body, status=status)

        return [web.route("*", "/{path:.*}", handle)]


class Line:
    """The way from one replica to the server: what happens before a request is stored, and after.

    Each request takes the next of `fates`, (before, after); without one it goes through at once. A request goes on
    when its sender has given up. `skew`: what its estimate of the server's time is off by.
    """

    server = "http://virtual"

    def __init__(self, leases: LeaseServer, skew: timedelta = timedelta(0)) -> None:
        self.leases = leases
        self.skew = skew
        self.fates: deque[tuple[float, float, str]] = deque()  # seconds there, seconds back, "" | "lost" | "500" ...
        self.always: tuple[float, float, str] = (0.0, 0.0, "")
        self.seen: list[str] = []
        self._running: set[asyncio.Task[Answer]] = set()

    def now(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time()) + self.skew

    async def request(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, within_s: float = 30.0
    ) -> Answer:
        self.seen.append(method)
        fate = self.fates.popleft() if self.fates else self.always
        task = asyncio.create_task(self._carry(method, path, dict(body) if body else None, fate))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def _carry(self, method: str, path: str, body: Json | None, fate: tuple[float, float, str]) -> Answer:
        there_s, back_s, end = fate
        await asyncio.sleep(there_s)
        if end.isdecimal():
            text = json.dumps({"kind": "Status", "message": f"HTTP {end}"}).encode()
            return Answer(int(end), {}, text)
        if end == "refused":
            raise Unreachable("connection refused")
        status, answered = self.leases.answer(method, path, body)
        await asyncio.sleep(back_s)
        if end == "lost":
            raise Unreachable("broke off")
        return Answer(status, {}, json.dumps(answered).encode())

    def _ended(self, task: asyncio.Task[Answer]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # nobody waits for it when the sender has given up

    def cancel(self) -> Iterator[asyncio.Task[Answer]]:
        """End what is still under way."""
        for task in list(self._running):
            task.cancel()
            yield task
