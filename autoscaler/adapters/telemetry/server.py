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


class AddressError(ValueError):
    """An address to listen on that is not `host:port`, or that cannot be listened on."""


@asynccontextmanager
async def serving(address: str, registry: CollectorRegistry, healthy: Check, ready: Check) -> AsyncIterator[int]:
    """Serve until the block ends; gives the port. Raises `AddressError`.

    `address` is `host:port`, `:port` (every interface) or `[v6]:port`; port 0 takes a free one.
    """
    host, port = parse_address(address)
    app = web.Application()
    app.add_routes(
        [
            web.get("/metrics", _metrics(registry)),
            web.get("/healthz", _check(healthy)),
            web.get("/readyz", _check(ready)),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, shutdown_timeout=1)
        try:
            await site.start()
        except OSError as error:
            raise AddressError(f"cannot listen on {address}: {error.strerror or error}") from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def parse_address(address: str) -> tuple[str | None, int]:
    """Host (None: every interface) and port. Raises `AddressError`."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise AddressError(f"{address!r} is not an address to listen on; write host:port, :port or [v6 address]:port")
    return host.strip("[]") or None, int(port)


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
