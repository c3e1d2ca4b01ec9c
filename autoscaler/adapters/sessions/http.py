"""HTTP to pods: GET a number of sessions, POST a notice. To the pod's own IP, in plain HTTP, without credentials.

Pods are not trusted: how long and how large an answer may be is bounded, no redirect is followed, no proxy of the
environment is used, nothing is unpacked, no cookie is kept.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from ipaddress import IPv6Address, ip_address

import aiohttp

from autoscaler import __version__
from autoscaler.adapters.sessions.gates import MOST_BYTES, Reading, of_answer
from autoscaler.core.policy import PodEndpoint

TIMEOUT_S = 3.0
_AT_ONCE = 16
_HEADERS = {"User-Agent": f"bridge-autoscaler/{__version__}", "Accept-Encoding": "identity"}


class Failure(Exception):
    """No answer, or not the one that was needed. `kind`: a word; `text`: what is to be said, the address included."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind = kind
        self.text = text


REFUSED = "connection refused"
"""Kind of the failure where nothing listens."""


class PodHttp:
    """Requests to pods, at most 16 at a time. To be used on one event loop, and closed."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._session: aiohttp.ClientSession | None = None

    async def count(self, ip: str, endpoint: PodEndpoint) -> Reading:
        """How many sessions the pod says it has."""
        try:
            async with self._request("GET", ip, endpoint) as response:
                body = b""
                while len(body) <= MOST_BYTES and (part := await response.content.read(MOST_BYTES + 1)):
                    body += part
                return of_answer(response.status, body, _address(ip, endpoint))
        except Failure as failure:
            return Reading.unknown(failure.kind, failure.text)

    async def tell(self, ip: str, endpoint: PodEndpoint, notice: Mapping[str, object]) -> None:
        """Send a notice; it has arrived when this returns. Raises `Failure`."""
        async with self._request("POST", ip, endpoint, notice) as response:
            if not 200 <= response.status < 300:
                raise Failure(f"HTTP {response.status}", f"{_address(ip, endpoint)} answered HTTP {response.status}")

    async def close(self) -> None:
        """Give up what is under way."""
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def _request(
        self, method: str, ip: str, endpoint: PodEndpoint, body: Mapping[str, object] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        address = _address(ip, endpoint)
        try:
            # the time in the queue does not count: a slow pod must not make others look slow
            async with (
                self._slots,
                self._opened().request(method, address, json=body, allow_redirects=False) as response,
            ):
                yield response
        except TimeoutError:
            raise Failure("no answer", f"{address} did not answer within {self._timeout_s:g} s") from None
        except aiohttp.ClientConnectionError as error:
            number = error.errno if isinstance(error, OSError) else None
            why = "it closed the connection" if number is None else os.strerror(number)
            kind = REFUSED if number == errno.ECONNREFUSED else "unreachable"
            raise Failure(kind, f"{address} cannot be reached: {why}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Failure("not HTTP", f"{address} gave no answer in HTTP: {type(error).__name__}") from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # connections are not kept: pods come and go, and their addresses are given to others
                connector=aiohttp.TCPConnector(limit=_AT_ONCE, force_close=True),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=_HEADERS,
                trust_env=False,
                auto_decompress=False,
            )
        return self._session


def _address(ip: str, endpoint: PodEndpoint) -> str:
    """Raises `Failure` for what is no IP address: names are not looked up."""
    try:
        parsed = ip_address(ip)
    except ValueError:
        raise Failure("no address", "the pod has no IP address" if not ip else "the pod's address is no IP") from None
    host = f"[{parsed.compressed}]" if isinstance(parsed, IPv6Address) else parsed.compressed
    return f"http://{host}:{endpoint.port}{endpoint.path}"
