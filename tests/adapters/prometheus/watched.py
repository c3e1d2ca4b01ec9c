"""A proxy in front of a real Prometheus that keeps what is asked and answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from autoscaler.adapters.prometheus.answers import Series, decoded
from tests.adapters.prometheus.servers import serve


@dataclass(frozen=True, slots=True)
class Exchange:
    """A query and its answer."""

    form: Mapping[str, str]
    body: bytes

    def series(self) -> list[Series]:
        """What the adapter reads of it."""
        answer = decoded(200, self.body)
        assert answer is not None, self.body[:300]
        return answer.result

    @property
    def samples(self) -> int:
        """In the answer."""
        return sum(len(one.values) for one in self.series())


@dataclass
class Watched:
    """`most`: how many queries were under way at once."""

    url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    most: int = 0

    def forget(self) -> None:
        self.exchanges.clear()
        self.most = 0


@asynccontextmanager
async def watched(url: str) -> AsyncIterator[Watched]:
    """Queries to the address that it yields go to the Prometheus at `url`."""
    found, under_way = Watched(), 0
    async with aiohttp.ClientSession(auto_decompress=True) as session:

        async def handle(request: web.Request) -> web.Response:
            nonlocal under_way
            form = {key: str(value) for key, value in (await request.post()).items()}
            under_way += 1
            found.most = max(found.most, under_way)
            try:
                async with session.post(url + request.path, data=form) as response:
                    body, status = await response.read(), response.status
            finally:
                under_way -= 1
            found.exchanges.append(Exchange(form, body))
            return web.Response(body=body, status=status, content_type="application/json")

        async with serve(handle) as found.url:
            yield found
