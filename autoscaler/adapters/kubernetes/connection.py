"""The one HTTP client of the process: raw requests, always with a timeout, and what their failures mean.

Answers are not raised: the caller looks at the status. Only what is not an answer is an error, and a 401 that stays
after the credentials have been read again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

import aiohttp
from kubernetes_asyncio import client

from autoscaler import __version__
from autoscaler.adapters.kubernetes.credentials import Credentials
from autoscaler.adapters.kubernetes.errors import BadConfiguration, Unauthorized, Unreachable
from autoscaler.adapters.kubernetes.servertime import ServerTime
from autoscaler.ports import Unavailable

USER_AGENT = f"bridge-autoscaler/{__version__}"
_CONNECT_S = 10.0

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    query: Query
    headers: Mapping[str, str]
    limits: aiohttp.ClientTimeout
    body: Mapping[str, Any] | None = None


class Connection:
    """Talks to one API server. Open with `Connection.open` inside a running event loop, and close it."""

    def __init__(self, credentials: Credentials, api: client.ApiClient, monotonic: Callable[[], float]) -> None:
        self._credentials = credentials
        self._api = api
        self._monotonic = monotonic
        self._time = ServerTime()
        self._read_at = monotonic()
        self._rereading = asyncio.Lock()

    @classmethod
    async def open(cls, credentials: Credentials, monotonic: Callable[[], float] = time.monotonic) -> Connection:
        """Read the credentials and make the client; nothing is sent yet. Raises `BadConfiguration`."""
        configuration = await credentials.read()
        try:
            api = client.ApiClient(configuration)
        except (ssl.SSLError, OSError) as error:
            raise BadConfiguration(
                f"{credentials.source}: its certificates cannot be used ({error}); "
                "check certificate-authority, client-certificate and client-key"
            ) from None
        api.user_agent = USER_AGENT
        return cls(credentials, api, monotonic)

    async def close(self) -> None:
        """Close every connection to the server."""
        await self._api.close()

    @property
    def server(self) -> str:
        """The address that is talked to."""
        return str(self._api.configuration.host)

    def now(self) -> datetime:
        """The API server's time, aware UTC; never the local wall clock. `Unavailable` before its first answer."""
        if not self._time.known:
            raise Unavailable(f"{self.server} has not answered yet: the time is not known")
        return self._time.at(self._monotonic())

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        headers: Mapping[str, str] = _NO_HEADERS,
        body: Mapping[str, Any] | None = None,
        within_s: float = 30.0,
    ) -> Answer:
        """One request and its whole answer. Raises `Unreachable`, `Unauthorized`, `BadConfiguration`."""
        limits = aiohttp.ClientTimeout(total=within_s, connect=_CONNECT_S)
        with _explained(self.server, self._credentials.source, f"within {within_s:g} s"):
            response = await self._send(_Request(method, path, query, headers, limits, body))
            async with response:
                return Answer(response.status, response.headers, await response.read())

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Query = (),
        headers: Mapping[str, str] = _NO_HEADERS,
        total_s: float,
        silence_s: float,
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """A GET whose answer is read as it comes: its status, and its bytes in pieces of any length.

        `total_s` bounds the whole, `silence_s` the time between two pieces. Raises as `request` does.
        """
        limits = aiohttp.ClientTimeout(total=total_s, connect=_CONNECT_S, sock_read=silence_s)
        with _explained(self.server, self._credentials.source, f"for {silence_s:g} s"):
            response = await self._send(_Request("GET", path, query, headers, limits))
            try:
                yield response.status, response.content.iter_any()
            finally:
                # what is left of a watch is of no use: the connection goes with it
                response.close()

    async def _send(self, request: _Request) -> aiohttp.ClientResponse:
        await self._reread_if_due()
        used = self._bearer
        response = await self._once(request)
        if response.status != 401:
            return response
        response.release()
        await self._reread(used)
        response = await self._once(request)
        if response.status == 401:
            response.release()
            raise Unauthorized(
                f"{self.server} does not accept the credentials of {self._credentials.source} (401, also after reading "
                "them again); renew them"
            )
        return response

    async def _once(self, request: _Request) -> aiohttp.ClientResponse:
        sent_at = self._monotonic()
        response: aiohttp.ClientResponse = await self._api.call_api(
            request.path,
            request.method,
            query_params=list(request.query),
            header_params={"Accept": "application/json", **request.headers},
            body=request.body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=request.limits,
        )
        self._time.note(response.headers.get("Date", ""), sent_at, self._monotonic())
        return response

    async def _reread_if_due(self) -> None:
        after_s = self._credentials.reread_after_s
        if after_s is not None and self._monotonic() - self._read_at >= after_s:
            await self._reread(self._bearer)

    @property
    def _bearer(self) -> str | None:
        token: str | None = self._api.configuration.api_key.get("BearerToken")
        return token

    async def _reread(self, used: str | None) -> None:
        async with self._rereading:
            if self._bearer != used:  # another request has done it
                return
            self._api.configuration.api_key = (await self._credentials.read()).api_key
            self._read_at = self._monotonic()


@contextmanager
def _explained(server: str, source: str, patience: str) -> Iterator[None]:
    """Turns the client's errors into one message each."""
    try:
        yield
    except (aiohttp.ClientSSLError, ssl.SSLError) as error:
        raise Unreachable(
            f"{server}: TLS failed ({_short(error)}); check certificate-authority, tls-server-name and the client "
            f"certificate in {source}"
        ) from error
    except TimeoutError as error:
        raise Unreachable(f"{server} did not answer {patience}") from error
    except aiohttp.ClientConnectorError as error:
        raise Unreachable(
            f"{server} cannot be reached ({_short(error)}); check the server in {source} and the network"
        ) from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"{server} broke off: {_short(error)}") from error


def _short(error: BaseException) -> str:
    cause = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    has_own_words = isinstance(cause, ssl.SSLError | socket.gaierror)
    if isinstance(cause, OSError) and not has_own_words and cause.errno:
        return os.strerror(cause.errno)  # asyncio has put the address into the error's own words
    return (getattr(cause, "strerror", None) or str(cause) or type(cause).__name__)[:300]
