"""Prometheus' HTTP API: prometheus-api-client over a session of our own. Synchronous; called from worker threads.

The session sends queries in the body (URLs have limits), follows no redirect, retries nothing, bounds how long and how
large an answer may be, and decodes it once, values into arrays. Every failure is a `MetricsError`.
https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import RemoteDisconnected
from itertools import chain
from typing import Any, Generic, NoReturn, TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np
import requests
from numpy.typing import NDArray
from prometheus_api_client import PrometheusConnect
from urllib3.exceptions import DecodeError, HTTPError, ProtocolError, ReadTimeoutError
from urllib3.util.retry import Retry

from autoscaler.adapters.prometheus.ranges import Span

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 20.0
_MOST_BYTES = 64 << 20  # many times what a planned request is answered with
_READ_BYTES = 1 << 18
_LATEST = 253_402_300_800.0  # the year 10000, which no datetime reaches
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # the last: nested beyond all reason

T = TypeVar("T")


class MetricsError(Exception):
    """A query that was not answered. `status`: the HTTP status, None if there was no answer.

    `error_type`: Prometheus' own word (`bad_data`, `execution`, `timeout`, …), or one of ours: `connection`, `hang`,
    `broken_off`, `too_large`, `html`, `not_json`, `empty`. `text`: what is to be said about it, without the address.
    """

    def __init__(self, status: int | None, error_type: str, text: str) -> None:
        super().__init__(status, error_type, text)
        self.status = status
        self.error_type = error_type
        self.text = text

    def __str__(self) -> str:
        return self.text

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.status in (429, 499, 502, 503, 504) or self.error_type in ("connection", "broken_off", "canceled")

    @property
    def too_much(self) -> bool:
        """Whether a shorter range may succeed."""
        return (
            self.error_type in ("timeout", "too_large")
            or (self.status == 422 and "too many samples" in self.text)
            or (self.status == 400 and "exceeded maximum resolution" in self.text)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One series of an answer: unix seconds and values, both float64; values may be NaN or infinite."""

    labels: Mapping[str, str]
    at: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Answer(Generic[T]):
    """What a query returned. `missing`: warnings which say that data is missing; remarks about the query are not."""

    result: T
    missing: tuple[str, ...] = ()


class _Envelope(msgspec.Struct, rename="camel"):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    values: msgspec.Raw = msgspec.Raw(b"[]")  # absent where there are only native histograms, which are no data here


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_DATA = msgspec.json.Decoder(_Data)
_SERIES = msgspec.json.Decoder(list[_Series])
# not strict: numbers come as strings, "NaN" and "-Inf" included
_PAIR = msgspec.json.Decoder(tuple[float, float], strict=False)
_PAIRS = msgspec.json.Decoder(list[tuple[float, float]], strict=False)


class PrometheusApi:
    """Queries to one Prometheus. Safe to use from several threads. All methods raise `MetricsError`."""

    def __init__(self, url: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        # what may be shown and logged: a user name and password in the address may not
        self.address = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
        # retries are the caller's, who knows what is worth one; the library's would hide the answer's JSON
        self._client = PrometheusConnect(
            self.url,
            session=_FormSession(),
            method="POST",
            retry=Retry(0, redirect=False),
            timeout=(CONNECT_TIMEOUT_S, timeout_s),
        )
        self._params = {"timeout": f"{timeout_s:g}"}  # the server gives up as well, as a thread cannot be stopped

    def range(self, query: str, span: Span) -> Answer[list[Series]]:
        """Evaluate the query at each instant of the span."""
        answer: Answer[list[Series]] = self._client.custom_query_range(
            query,
            datetime.fromtimestamp(span.first, UTC),
            datetime.fromtimestamp(span.last, UTC),
            f"{span.step}",
            params=self._params,
        )
        return answer

    def instant(self, query: str) -> Answer[list[Series]]:
        """Evaluate the query now, by the server's clock."""
        answer: Answer[list[Series]] = self._client.custom_query(query, params=self._params)
        return answer

    def server_time(self) -> float:
        """The server's clock, unix seconds. The cheapest question that only Prometheus' API answers."""
        series = self.instant("time()").result
        if len(series) != 1 or not len(series[0].values) or not 0 <= series[0].values[0] < _LATEST:
            raise MetricsError(200, "not_json", "gave no time for the query time(); it does not seem to be Prometheus")
        return float(series[0].values[0])

    def close(self) -> None:
        """Close idle connections. A request in another thread still ends by itself."""
        self._client.close()


@dataclass(frozen=True, slots=True)
class _Decoded:
    """What the library takes for a response: it looks at the status, and returns `json()["data"]["result"]`."""

    answer: Answer[list[Series]]
    status_code: int = 200
    content: bytes = b""

    def json(self) -> Mapping[str, Any]:
        return {"data": {"result": self.answer}}


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> None:
        """None is followed, so none is looked at: what a server writes there may break the library."""


class _FormSession:
    """The part of `requests.Session` that the library uses."""

    def __init__(self) -> None:
        self._session = _Session()
        self._session.trust_env = False  # neither proxies nor ~/.netrc unless configured
        self.verify = self._session.verify
        self.cert = self._session.cert
        self.mount = self._session.mount
        self.close = self._session.close

    def request(self, *, params: Mapping[str, str], timeout: tuple[float, float], **settings: Any) -> _Decoded:
        deadline = time.monotonic() + timeout[1]
        try:
            with self._session.request(
                data=params, timeout=timeout, allow_redirects=False, stream=True, **settings
            ) as response:
                body = _read(response, deadline)
        except (requests.RequestException, HTTPError) as error:
            _raise_transport(error, timeout[1])
        return _Decoded(_decode(response, body))


def _read(response: requests.Response, deadline: float) -> bytes:
    parts = []
    size = 0
    # read1 returns what has arrived: one byte at a time would never exceed a timeout, which is for each read
    while part := response.raw.read1(_READ_BYTES, decode_content=True):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise MetricsError(response.status_code, "too_large", f"sent more than {_MOST_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise MetricsError(None, "hang", "did not finish its answer in time")
    return b"".join(parts)


def _raise_transport(error: Exception, timeout_s: float) -> NoReturn:
    match error:
        case requests.ConnectTimeout():
            text = f"cannot be reached: no connection within {CONNECT_TIMEOUT_S:.0f} s; check --prometheus-url"
            raise MetricsError(None, "connection", text) from error
        case requests.Timeout() | ReadTimeoutError():
            raise MetricsError(None, "hang", f"did not answer within {timeout_s:g} s") from error
        case (
            requests.exceptions.InvalidSchema() | requests.exceptions.MissingSchema() | requests.exceptions.InvalidURL()
        ):
            text = "is not an address; --prometheus-url looks like http://prometheus.monitoring:9090"
            raise MetricsError(None, "address", text) from error
        case ProtocolError() | DecodeError():
            raise MetricsError(None, "broken_off", "broke off in the middle of an answer") from error
    raise MetricsError(
        None, "connection", f"cannot be reached: {_cause(error)}; check --prometheus-url and that it runs"
    ) from error


def _cause(error: BaseException) -> str:
    """The operating system's word for what happened, from the bottom of the chain; never the address."""
    cause: BaseException | None = error
    word = type(error).__name__
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            word = cause.strerror
        elif isinstance(cause, RemoteDisconnected):
            word = "it closed the connection without an answer"
        inner = next((a for a in (*cause.args, getattr(cause, "reason", None)) if isinstance(a, BaseException)), None)
        cause = inner or cause.__cause__ or cause.__context__
    return word


def _decode(response: requests.Response, body: bytes) -> Answer[list[Series]]:
    status = response.status_code
    try:
        envelope = _ENVELOPE.decode(body)
    except _UNREADABLE:
        raise _not_prometheus(response, body) from None
    if status in (401, 403):
        raise _not_prometheus(response, body)
    if status != 200 or envelope.status != "success":
        text = envelope.error.strip() or f"status {envelope.status}"
        raise MetricsError(status, envelope.error_type, f"refused a query (HTTP {status}): {text[:500]}")
    missing = tuple(text for text in envelope.warnings or () if not text.startswith("PromQL"))
    try:
        return Answer(_series(_DATA.decode(envelope.data)), missing)
    except _UNREADABLE as error:
        raise MetricsError(status, "not_json", f"sent an answer that is not Prometheus': {error}") from None


def _series(data: _Data) -> list[Series]:
    match data.result_type:
        case "matrix":
            return [_arrays(s.metric, _pairs(s.values)) for s in _SERIES.decode(data.result)]
        case "vector":
            found = _SERIES.decode(data.result)
            return [_arrays(s.metric, [_pair(s.value)]) for s in found if isinstance(s.value, msgspec.Raw)]
        case "scalar":
            return [_arrays({}, [_pair(data.result)])]
    raise msgspec.DecodeError(f"result type {data.result_type[:40]!r}")


def _arrays(labels: Mapping[str, str], pairs: list[tuple[float, float]]) -> Series:
    flat = np.fromiter(chain.from_iterable(pairs), np.float64, 2 * len(pairs))
    return Series(labels, flat[0::2], flat[1::2])


def _pairs(raw: msgspec.Raw) -> list[tuple[float, float]]:
    try:
        return _PAIRS.decode(raw)
    except msgspec.ValidationError:  # the decoder knows "Inf" and "-Inf", not "+Inf"
        return _PAIRS.decode(bytes(raw).replace(b'"+Inf"', b'"Inf"'))


def _pair(raw: msgspec.Raw) -> tuple[float, float]:
    return _PAIR.decode(bytes(raw).replace(b'"+Inf"', b'"Inf"'))


def _not_prometheus(response: requests.Response, body: bytes) -> MetricsError:
    status = response.status_code
    start = body[:200].lstrip().lower()
    html = start.startswith((b"<!doctype html", b"<html")) or "html" in response.headers.get("content-type", "")
    kind = "html" if html else "not_json" if body.strip() else "empty"
    if 300 <= status < 400:
        to = _site(response.headers.get("location", ""))
        text = f"redirects to {to} (HTTP {status}): a login page, or --prometheus-url has a wrong scheme or path"
    elif status in (401, 403):
        text = f"refuses access (HTTP {status}): it wants credentials"
    elif status == 404:
        text = "has no query API (HTTP 404): --prometheus-url has a wrong path (some servers need /prometheus)"
    elif status in (429, 500, 502, 503, 504):
        text = f"fails with HTTP {status}: {_excerpt(body) or response.reason or 'no explanation'}"
    elif html:
        text = f"answered with an HTML page (HTTP {status}): not Prometheus, or a login page; check --prometheus-url"
    elif kind == "empty":
        text = f"sent an empty answer (HTTP {status}): it does not seem to be Prometheus; check --prometheus-url"
    else:
        text = (
            f"sent something that is not Prometheus' JSON (HTTP {status}): {_excerpt(body)!r}; check --prometheus-url"
        )
    return MetricsError(status, kind, text)


def _site(location: str) -> str:
    with suppress(ValueError):  # foreign text need not be an address
        target = urlsplit(location)
        if target.hostname:
            return f"{target.scheme}://{target.hostname}"
    return "another page"


def _excerpt(body: bytes) -> str:
    if body.lstrip()[:1] == b"<":
        return "an HTML page"
    return " ".join(body[:200].decode("utf-8", "replace").split())[:80]
