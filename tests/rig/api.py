"""The few calls to the API server that a kubelet makes: read, watch, create, patch, delete. Raw JSON, no models."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import aiohttp

STRATEGIC_MERGE = "application/strategic-merge-patch+json"
_LINE_LIMIT = 4 * 1024 * 1024  # bytes of one watch event


class ApiError(Exception):
    """The server refused; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """A client with one identity. Open it within a running loop."""

    def __init__(self, url: str, certificate: bytes, token: str) -> None:
        self._session = aiohttp.ClientSession(
            url,
            headers={"Authorization": f"Bearer {token}", "User-Agent": "kubelet"},
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=certificate.decode())),
            timeout=aiohttp.ClientTimeout(total=30),
            read_bufsize=_LINE_LIMIT,
        )

    async def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """One request and its JSON answer. Raises `ApiError`."""
        data = None if body is None else json.dumps(body)
        async with self._session.request(method, path, data=data, headers={"Content-Type": content_type}) as response:
            answer: dict[str, Any] = await response.json()
            if response.status >= 400:
                raise ApiError(response.status, answer.get("message", ""))
            return answer

    async def follow(self, path: str) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        """The list under a path (LISTED), then every change (ADDED, MODIFIED, DELETED), for ever.

        A broken watch starts anew with a list.
        """
        while True:
            listed = await self.call("GET", path)
            yield "LISTED", listed
            version = listed["metadata"]["resourceVersion"]
            with suppress(aiohttp.ClientError, asyncio.TimeoutError):
                async with aclosing(self._watch(path, version)) as events:
                    async for event in events:
                        yield event

    async def _watch(self, path: str, version: str) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "600"}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
        async with self._session.get(path, params=query, timeout=timeout) as response:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]

    async def close(self) -> None:
        await self._session.close()
