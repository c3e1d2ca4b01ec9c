"""Servers in front of a Prometheus that let in whom a test says, over TLS where it wants; and one that gives tokens."""

from __future__ import annotations

import ssl
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs

import aiohttp
import trustme
from aiohttp import web

from tests.adapters.prometheus.servers import serve

Check = Callable[["Asked"], web.StreamResponse | None]


@dataclass(frozen=True)
class Asked:
    """A request, and the subject of the client's certificate."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    client: str | None


@dataclass
class Guard:
    """Where it listens, and what it was asked."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)


@asynccontextmanager
async def guarded(
    prometheus_url: str, check: Check = lambda asked: None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Guard]:
    """Give each request to `check`, and those that it has no answer for to Prometheus."""
    guard = Guard()

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert") or {}
        names = [value for rdn in certificate.get("subject", ()) for key, value in rdn if key == "commonName"]
        asked = Asked(
            request.method,
            str(request.url),
            request.headers,
            await request.read(),
            names[0] if names else None,
        )
        guard.asked.append(asked)
        refusal = check(asked)
        if refusal is not None:
            return refusal
        forwarded = {"Content-Type": request.headers.get("Content-Type", "")}
        async with session.post(prometheus_url + request.path_qs, data=asked.body, headers=forwarded) as response:
            return web.Response(status=response.status, body=await response.read(), content_type=response.content_type)

    async with aiohttp.ClientSession() as session, serve(handler, tls) as url:
        guard.url = url
        yield guard


def only(authorization: Callable[[], str], words: str = "go away") -> Check:
    """Let in who sends this value of Authorization. Others are told what they sent, as some servers do."""

    def check(asked: Asked) -> web.StreamResponse | None:
        sent = asked.headers.get("Authorization", "")
        if sent == authorization():
            return None
        shown = b64decode(sent.partition(" ")[2]).decode() if sent.startswith("Basic ") else sent
        return web.Response(status=401, text=f"{words}: {sent} {shown}")

    return check


@dataclass
class TokenServer:
    """An OAuth 2 server for one client. `url`: where it gives tokens. `given`: all of them, the newest last."""

    client: str = "bridge autoscaler"
    secret: str = "client+secret/%"
    lasts_s: object = 3600
    in_body: bool = False
    url: str = ""
    given: list[str] = field(default_factory=list)
    forms: list[dict[str, str]] = field(default_factory=list)

    @property
    def authorization(self) -> str:
        return f"Bearer {self.given[-1]}" if self.given else "nothing"

    async def handler(self, request: web.Request) -> web.StreamResponse:
        form = {key: values[0] for key, values in parse_qs((await request.read()).decode()).items()}
        self.forms.append(form)
        if self.in_body:
            client, secret = form.get("client_id", ""), form.get("client_secret", "")
        else:
            pair = b64decode(request.headers.get("Authorization", "").partition(" ")[2]).decode()
            client, secret = (parse_qs(f"x={part}")["x"][0] if part else "" for part in (pair + ":").split(":")[:2])
        if (client, secret) != (self.client, self.secret):
            words = {"error": "invalid_client", "error_description": f"{secret} is wrong"}
            return web.json_response(words, status=401)
        if form.get("grant_type") != "client_credentials":
            return web.json_response({"error": "unsupported_grant_type"}, status=400)
        self.given.append(f"token-{len(self.given)}-of-the-server")
        answer = {"access_token": self.given[-1], "token_type": "bearer", "expires_in": self.lasts_s}
        return web.json_response(answer, headers={"Cache-Control": "no-store"})


@asynccontextmanager
async def token_server(server: TokenServer, tls: ssl.SSLContext | None = None) -> AsyncIterator[TokenServer]:
    """Let it listen."""
    async with serve(server.handler, tls) as url:
        server.url = f"{url}/token"
        yield server


def context(ca: trustme.CA, certificate: trustme.LeafCert, *, clients: bool = False) -> ssl.SSLContext:
    """A server's side. `clients`: only those with a certificate of the same authority."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(tls)
    if clients:
        ca.configure_trust(tls)
        tls.verify_mode = ssl.CERT_REQUIRED
    return tls


def store(certificate: trustme.LeafCert, cert_file: Path, key_file: Path) -> None:
    """Write a certificate and its key, in place of what is there."""
    cert_file.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(str(key_file))
