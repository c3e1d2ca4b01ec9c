"""`/metrics`, `/healthz` and `/readyz` over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

Check = Callable[[], str | None]
"""Why something is not well, or None if it is."""

Handler = Callable[[web.Request], Awaitable[web.Response]]


class CannotListen(Exception):
    """The address cannot be listened on; the text says why."""


@asynccontextmanager
async def serving(
    host: str | None, port: int, registry: CollectorRegistry, healthy: Check, ready: Check
) -> AsyncIterator[int]:
    """Serve until the block ends; gives the port. Host None: every interface; port 0: a free one.

    Raises `CannotListen`.
    """
    app = web.Application()
    app.add_routes(
        [
            web.get("/metrics", _metrics(registry)),
            web.get("/healthz", _check(healthy)),
            web.get("/readyz", _check(ready)),
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            why = f"{error.strerror or error}; choose another --metrics-address"
            raise CannotListen(f"cannot listen on {host or '*'} port {port}: {why}") from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _metrics(registry: CollectorRegistry) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    return handle


def _check(check: Check) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        problem = check()
        return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

    return handle
