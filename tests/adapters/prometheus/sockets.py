"""Servers that write bytes as a test says, HTTP or not."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Write = Callable[[Callable[[bytes], None]], object]
"""Gets what sends bytes; the connection is closed when it returns."""


@dataclass
class Sockets:
    """Where it listens, and what it was asked: header and body of each request."""

    url: str = ""
    asked: list[tuple[bytes, bytes]] = field(default_factory=list)


@contextmanager
def writing(write: Write, tls: ssl.SSLContext | None = None) -> Iterator[Sockets]:
    """Answer one request of each connection by `write`."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = Sockets(f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}")

        def serve(client: socket.socket) -> None:
            with suppress(OSError), client:
                speaking = client if tls is None else tls.wrap_socket(client, server_side=True)
                with speaking:
                    server.asked.append(_request(speaking))
                    write(speaking.sendall)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    threading.Thread(target=serve, args=(client,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _request(client: socket.socket) -> tuple[bytes, bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        received += _part(client)
    header, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", header)
    while length is not None and len(body) < int(length[1]):
        body += _part(client)
    return header, body


def _part(client: socket.socket) -> bytes:
    part = client.recv(1 << 16)
    if not part:
        raise ConnectionResetError
    return part


def response(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """An answer of HTTP/1.1."""
    lines = (b"HTTP/1.1 " + status, b"Connection: close", b"Content-Length: %d" % len(body), *headers, b"", body)
    return b"\r\n".join(lines)
