"""A bridge on loopback that is asked for its sessions and told to drain, and what stands around it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.sessions.notices import Told
from autoscaler.adapters.sessions.source import PodSessions
from autoscaler.core.actions import Move, Outcome, Resize
from autoscaler.core.model import ClusterSnapshot, Pod, PodRef, Problem
from autoscaler.core.plan import Drain
from autoscaler.core.policy import DrainPolicy, PodEndpoint
from autoscaler.ports import Unavailable
from tests.adapters.prometheus.servers import serve

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BRIDGE = PodRef("sim", "bridge-0")
NOBODY = "http://127.0.0.1:9"  # a Prometheus that is not asked


@dataclass
class Bridge:
    """Answers GET with `answer`, and POST with `status`; keeps what it was sent."""

    port: int = 0
    answer: Callable[[], web.StreamResponse | None] = lambda: web.Response(text="0")
    status: int = 200
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)  # what never answers may end

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path_qs}")
        self.headers.append(dict(request.headers))
        self.asked.set()
        if request.method == "POST":
            self.told.append(await request.json())
            return web.Response(status=self.status)
        answer = self.answer()
        if answer is None:
            await self.over.wait()
        return answer or web.Response()

    @property
    def drains(self) -> list[bool]:
        return [notice["drain"] for notice in self.told]

    def policy(self, **more: Any) -> DrainPolicy:
        endpoint, notify = PodEndpoint(self.port, "/sessions"), PodEndpoint(self.port, "/drain")
        return DrainPolicy(**{"endpoint": endpoint, "notify": notify, **more})


@asynccontextmanager
async def bridge() -> AsyncIterator[Bridge]:
    made = Bridge()
    async with serve(made.handle) as url:
        made.port = urlsplit(url).port or 0
        try:
            yield made
        finally:
            made.over.set()


def endpoint_of(url: str, path: str = "/") -> PodEndpoint:
    return PodEndpoint(urlsplit(url).port or 0, path)


def text(body: str, status: int = 200, **more: Any) -> Callable[[], web.StreamResponse]:
    return lambda: web.Response(text=body, status=status, **more)


@dataclass
class Pods:
    """The cluster, as far as somebody asks whether a pod is still there."""

    pods: list[Pod] = field(default_factory=lambda: [pod()])
    unavailable: bool = False

    async def observe(self) -> ClusterSnapshot:
        if self.unavailable:
            raise Unavailable("down")
        return ClusterSnapshot(NOW, {one.ref: one for one in self.pods}, {})

    async def perform(self, action: Resize) -> Outcome:
        raise AssertionError

    async def move(self, move: Move) -> Outcome:
        raise AssertionError


def pod(ref: PodRef = BRIDGE, uid: str = "u-1", ip: str = "127.0.0.1", **more: Any) -> Pod:
    return Pod(ref.namespace, ref.name, uid, ip=ip, **more)


def drain(
    how: DrainPolicy,
    ref: PodRef = BRIDGE,
    *,
    telling: bool = False,
    due_in_s: float = 60,
    uid: str = "u-1",
    ip: str = "127.0.0.1",
) -> Drain:
    return Drain(ref, uid, ip, how, telling, NOW + timedelta(seconds=due_in_s))


@dataclass
class Watched:
    """A `PodSessions` whose time is a test's, and what it has called."""

    url: str  # of Prometheus
    sessions: PodSessions
    pods: Pods
    clock: list[datetime]
    waited_s: list[float]
    changed: list[PodRef]
    warned: list[Problem]
    notices: list[Told]

    def follow(self, *drains: Drain, telling: bool = True) -> None:
        self.sessions.follow({one.pod: one for one in drains}, telling=telling)

    async def looks(self, number: int = 1, *, apart_s: float = 5) -> list[tuple[bool, str]]:
        """What each look found out about the one bridge."""
        found = []
        for _ in range(number):
            self.waited_s[0] += apart_s
            await self.sessions.look_once()
            gate = self.sessions.latest()[BRIDGE]
            found.append((gate.open, gate.detail))
        return found

    def later(self, **delta: float) -> None:
        self.clock[0] += timedelta(**delta)


@asynccontextmanager
async def watched(prometheus_url: str = NOBODY, pods: Iterable[Pod] = (pod(),), **more: Any) -> AsyncIterator[Watched]:
    clock, waited_s, changed, warned, there = [NOW], [0.0], list[PodRef](), list[Problem](), Pods(list(pods))
    notices: list[Told] = []
    sessions = PodSessions(
        Access(prometheus_url),
        there,
        now=lambda: clock[0],
        changed=changed.append,
        warn=warned.append,
        told=notices.append,
        monotonic=lambda: time.monotonic() + waited_s[0],
        **more,
    )
    try:
        yield Watched(prometheus_url, sessions, there, clock, waited_s, changed, warned, notices)
    finally:
        await sessions.close()
