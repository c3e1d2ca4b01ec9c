"""Connections to Prometheus and to token servers: which certificates count. Files are read anew when they change."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from autoscaler.adapters.prometheus.access import Tls
from autoscaler.adapters.prometheus.answers import MetricsError

_Stamp = tuple[tuple[int, int, int] | None, ...]


class Session(requests.Session):
    """requests over TLS as the settings want it, without what it would take from its surroundings."""

    def __init__(self, tls: Tls) -> None:
        super().__init__()
        self.trust_env = False  # neither proxies nor ~/.netrc unless configured
        self._https = _Certified(tls)

    def get_adapter(self, url: str) -> Any:
        return self._https.adapter() if url.lower().startswith("https://") else super().get_adapter(url)

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None is followed, so none is looked at: what a server writes there may break the library."""

    def check(self) -> None:
        """Read the files. Raises `MetricsError`."""
        self._https.adapter()

    def close(self) -> None:
        super().close()
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


class _Adapter(HTTPAdapter):
    def __init__(self, context: ssl.SSLContext, server_name: str | None) -> None:
        self._pool_settings: dict[str, Any] = {"ssl_context": context, "server_hostname": server_name}
        super().__init__()

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **settings: Any) -> None:
        super().init_poolmanager(connections, maxsize, block, **settings, **self._pool_settings)

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
            context.load_verify_locations(tls.ca_file)
    if tls.cert_file is not None and tls.key_file is not None:
        for setting, file in (("prometheus.tls.certFile", tls.cert_file), ("prometheus.tls.keyFile", tls.key_file)):
            with _blaming(setting, file, ""):
                file.open("rb").close()
        why = f"and prometheus.tls.keyFile: {tls.key_file} are not a certificate and its key in PEM form, without a"
        with _blaming("prometheus.tls.certFile", tls.cert_file, f"{why} pass phrase"):
            # without a function of one's own OpenSSL would ask for the pass phrase on the terminal
            context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: "")
    return context


@contextmanager
def _blaming(setting: str, file: Path, why: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError:
        raise MetricsError(None, "tls", f"is not asked: {setting}: {file} {why}") from None
    except OSError as error:
        text = f"is not asked: {setting}: {file} cannot be read: {error.strerror}"
        raise MetricsError(None, "tls", text) from None
