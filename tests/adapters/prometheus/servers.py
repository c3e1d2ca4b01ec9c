"""Servers on loopback that answer as a test wants: a small Prometheus, and everything that is none."""

from __future__ import annotations

import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from autoscaler.core.history import ContainerRef

SCRAPE_S = 30
Usage = Callable[[int], float]
Intercept = Callable[[str, Mapping[str, str]], web.StreamResponse | Awaitable[web.StreamResponse] | None]


@asynccontextmanager
async def serve(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """A server that gives every request to the handler; yields its address, with a name for certificates over TLS."""
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}" if tls is None else f"https://localhost:{port}"
    finally:
        await runner.cleanup()


def refusal(status: int, error_type: str, error: str) -> web.Response:
    """An error as Prometheus words it."""
    return web.json_response({"status": "error", "errorType": error_type, "error": error}, status=status)


def result(kind: str, content: object, **more: Any) -> web.Response:
    """A success as Prometheus words it."""
    return web.json_response({"status": "success", "data": {"resultType": kind, "result": content}, **more})


@dataclass
class FakePrometheus:
    """Answers the queries of this adapter from functions of time, as Prometheus 3 would.

    `usage` gives CPU cores and memory bytes of a container at an instant; NaN means that there is no sample.
    `intercept` sees each request first.
    """

    now: float
    usage: dict[ContainerRef, tuple[Usage, Usage]] = field(default_factory=dict)
    intercept: Intercept | None = None
    in_use: dict[ContainerRef, float] = field(default_factory=dict)  # container_memory_usage_bytes
    hangs_up: bool = False  # on range queries
    warnings: list[str] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def clock(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    @property
    def ranges(self) -> list[dict[str, str]]:
        return [form for path, form in self.requests if path.endswith("query_range")]

    def asked(self, word: str) -> list[int]:
        """Every instant that was asked for in range queries with that word."""
        return sorted(
            instant
            for form in self.ranges
            if word in form["query"]
            for instant in range(int(form["start"]), int(form["end"]) + 1, int(form["step"]))
        )

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form = {key: str(value) for key, value in (await request.post()).items()}
        assert request.method == "POST"
        assert not request.query_string
        self.requests.append((request.path, form))
        if self.intercept is not None:
            answer = self.intercept(request.path, form)
            if isinstance(answer, web.StreamResponse):
                return answer
            if answer is not None:
                return await answer
        query = form["query"]
        if self.hangs_up and request.path.endswith("query_range"):
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if request.path.endswith("query_range"):
            return self._range(query, int(form["start"]), int(form["end"]), int(form["step"]))
        if query == "time()":
            return result("scalar", [self.now, f"{self.now}"])
        if " and on (" in query:  # what copies of series disagree about
            return result("vector", [])
        if query.startswith("count by"):
            found = [{"metric": container._asdict(), "value": [self.now, "1"]} for container in self.usage]
            return result("vector", found)
        if query.startswith("topk"):
            found = [{"metric": container._asdict(), "value": [self.now, "1"]} for container in self.usage]
            return result("vector", found[:1])
        if "container_memory_usage_bytes" in query:
            used = self.in_use.items()
            found = [{"metric": ref._asdict(), "value": [self.now, repr(amount)]} for ref, amount in used]
            return result("vector", found, warnings=self.warnings) if self.warnings else result("vector", found)
        if not query.endswith("]"):
            return result("vector", [{"metric": {}, "value": [self.now, "1"]}])
        newest = self.now // SCRAPE_S * SCRAPE_S
        values = [[newest - SCRAPE_S * back, "1"] for back in reversed(range(10))]
        return result("matrix", [{"metric": {}, "values": values}])

    def _range(self, query: str, start: int, end: int, step: int) -> web.Response:
        found = []
        for container, (cpu, memory) in self.usage.items():
            values = []
            for instant in range(start, end + 1, step):
                if "max_over_time" in query:
                    inside = range(instant - step + SCRAPE_S, instant + 1, SCRAPE_S)
                    samples = [memory(at) for at in inside if not math.isnan(memory(at))]
                    values += [[instant, repr(max(samples))]] if samples else []
                elif not math.isnan(cpu(instant)):
                    values.append([instant, repr(cpu(instant))])
            if values:
                found.append({"metric": container._asdict(), "values": values})
        return result("matrix", found, warnings=self.warnings) if self.warnings else result("matrix", found)
