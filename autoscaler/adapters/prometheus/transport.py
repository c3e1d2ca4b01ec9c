"""Connections to Prometheus and to token servers: which certificates count, and how long an answer may take.

Files are read anew when they change.
"""

from __future__ import annotations

import http.client
import io
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from autoscaler.adapters.prometheus.access import Tls
from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.secrets import NOT_REGULAR, is_regular

# it shows headers that it cannot read, with a traceback; what is wrong with an answer shows in its failure
for _name in ("connection", "connectionpool"):  # the client of Kubernetes sets the level of the logger above them
    logging.getLogger(f"urllib3.{_name}").setLevel(logging.ERROR)

_Stamp = tuple[tuple[int, int, int] | None, ...]


class Session(requests.Session):
    """requests over TLS as the settings want it, without what it would take from its surroundings."""

    def __init__(self, tls: Tls) -> None:
        super().__init__()
        self.trust_env = False  # neither proxies nor ~/.netrc unless configured
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))  # what says who asks is configured
        self._http = _Adapter()
        self._https = _Certified(tls)

    def get_adapter(self, url: str) -> Any:
        if url.lower().startswith("https://"):
            return self._https.adapter()
        return self._http if url.lower().startswith("http://") else super().get_adapter(url)

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None is followed, so none is looked at: what a server writes there may break the library."""

    def check(self) -> None:
        """Read the files. Raises `MetricsError`."""
        self._https.adapter()

    def close(self) -> None:
        super().close()
        self._http.close()
        self._https.close()


class _Certified:
    """Holds the adapter that the files as they are now make."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._lock = threading.Lock()
        self._stamp: _Stamp = ()
        self._adapter: _Adapter | None = None

    def adapter(self) -> HTTPAdapter:
        with self._lock:
            stamp = tuple(map(_stamp, (self._tls.ca_file, self._tls.cert_file, self._tls.key_file)))
            if self._adapter is None or stamp != self._stamp:
                try:
                    # the one before is not closed: others may be using it, and it closes its connections when they end
                    self._adapter, self._stamp = _Adapter(_context(self._tls), self._tls.server_name), stamp
                except MetricsError:
                    if self._adapter is None:  # else a pair is being written, of which one half is there
                        raise
            return self._adapter

    def close(self) -> None:
        with self._lock:
            if self._adapter is not None:
                self._adapter.close()


class _Until(io.RawIOBase):
    """What a socket receives, up to a moment. A timeout of a socket is for each of its bytes."""

    def __init__(self, sock: socket.socket, until_s: float) -> None:
        self._socket = sock
        self._received = sock.makefile("rb", buffering=0)
        self._until_s = until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left_s)
        return self._received.readinto(buffer)

    def close(self) -> None:
        self._received.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """The whole of it, header and body, has to be there within the timeout of the socket."""

    def __init__(self, sock: socket.socket, *settings: Any, **more: Any) -> None:
        super().__init__(sock, *settings, **more)
        if (timeout_s := sock.gettimeout()) is not None:
            with self.fp:
                self.fp = io.BufferedReader(_Until(sock, time.monotonic() + timeout_s))


class _Http(HTTPConnection):
    response_class = _Response


class _Https(HTTPSConnection):
    response_class = _Response


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https


class _Adapter(HTTPAdapter):
    """`context` and `server_name` are for TLS."""

    def __init__(self, context: ssl.SSLContext | None = None, server_name: str | None = None) -> None:
        tls = {"ssl_context": context, "server_hostname": server_name}
        self._pool_settings: dict[str, Any] = {} if context is None else tls
        super().__init__()

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **settings: Any) -> None:
        super().init_poolmanager(connections, maxsize, block, **settings, **self._pool_settings)
        self.poolmanager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """The context knows whom to trust; requests would add the authorities of the world."""
        conn.cert_reqs = "CERT_REQUIRED"


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=DEFAULT_CA_BUNDLE_PATH if tls.ca_file is None else None)
    if tls.ca_file is not None:
        # many an authority of one's own lacks what RFC 5280 wants of it, and other programs take it
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        with _blaming(tls.ca_setting, tls.ca_file, "holds no certificates in PEM form"):
            _check(tls.ca_setting, tls.ca_file)
            context.load_verify_locations(tls.ca_file)
    if tls.cert_file is not None and tls.key_file is not None:
        for setting, file in (("prometheus.tls.certFile", tls.cert_file), ("prometheus.tls.keyFile", tls.key_file)):
            with _blaming(setting, file, ""):
                _check(setting, file)
        why = f"and prometheus.tls.keyFile: {tls.key_file} are not a certificate and its key in PEM form, without a"
        with _blaming("prometheus.tls.certFile", tls.cert_file, f"{why} pass phrase"):
            # without a function of one's own OpenSSL would ask for the pass phrase on the terminal
            context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: "")
    return context


def _check(setting: str, file: Path) -> None:
    """Whether OpenSSL can read it, without waiting for somebody to write. Raises `OSError` and `MetricsError`."""
    if not is_regular(file):
        raise MetricsError(None, "tls", f"is not asked: {setting}: {file} {NOT_REGULAR}")
    file.open("rb").close()


@contextmanager
def _blaming(setting: str, file: Path, why: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError:
        raise MetricsError(None, "tls", f"is not asked: {setting}: {file} {why}") from None
    except OSError as error:
        text = f"is not asked: {setting}: {file} cannot be read: {error.strerror}"
        raise MetricsError(None, "tls", text) from None
