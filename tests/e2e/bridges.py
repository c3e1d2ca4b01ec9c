"""Bridges that answer for the rig's pods: how many sessions they have, and what they were told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiohttp import web

from tests.rig.process import free_ports

T = TypeVar("T")


@dataclass
class Bridge:
    """One pod's program. `sessions`: how many it says it has each time it is asked; `told`: the notices it was sent."""

    sessions: Callable[[], int]
    asked: int = 0
    told: list[dict[str, Any]] = field(default_factory=list)

    @property
    def drains(self) -> list[bool]:
        """What it was told, without repetitions: to take no new sessions, and that it may again."""
        said = [bool(notice["drain"]) for notice in self.told]
        return [now for now, before in zip(said, [None, *said], strict=False) if now is not before]

    async def get(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.json_response({"sessions": self.sessions()})

    async def post(self, request: web.Request) -> web.Response:
        self.told.append(await request.json())
        return web.Response()


class Bridges:
    """Servers at the addresses of pods, all on one port, in a thread of their own so that a test may block."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self._runners: list[web.AppRunner] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bridges", daemon=True)
        self._thread.start()

    def serve(self, pod: dict[str, Any], sessions: Callable[[], int]) -> Bridge:
        """Answer for a pod of the rig, whose IP is an address of the loopback interface."""
        bridge = Bridge(sessions)
        self._call(self._open(bridge, pod["status"]["podIP"]))
        return bridge

    def drain(self, **more: Any) -> dict[str, Any]:
        """`fallback.drain` of a policy for these bridges."""
        return {
            "endpoint": {"port": self.port, "path": "/sessions"},
            "notify": {"port": self.port, "path": "/drain"},
            **more,
        }

    def close(self) -> None:
        """Stop all of them."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _open(self, bridge: Bridge, ip: str) -> None:
        application = web.Application()
        application.router.add_get("/sessions", bridge.get)
        application.router.add_post("/drain", bridge.post)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        self._runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, ip, self.port).start()

    async def _close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
