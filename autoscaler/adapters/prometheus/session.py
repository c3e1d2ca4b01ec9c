"""Prometheus' HTTP API: prometheus-api-client over a session of our own. Synchronous; called from worker threads.

The session sends queries in the body (URLs have limits), follows no redirect, retries nothing but what was refused by
credentials that have changed since, and bounds how long and how large an answer may be. Every failure is a
`MetricsError`. https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.answers import (
    TIME,
    Answer,
    MetricsError,
    Series,
    decoded,
    foreign,
    kinds_of,
    weight,
)
from autoscaler.adapters.prometheus.credentials import Credentials
from autoscaler.adapters.prometheus.failures import CONNECT_TIMEOUT_S, no_answer, not_prometheus, pause_s
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.adapters.prometheus.traffic import Traffic
from autoscaler.adapters.prometheus.transport import Session

_MOST_BYTES = 16 << 20  # several times what a planned request is answered with
_MOST_MEMORY = 128 << 20  # of what is read of it, several times as well; four answers are read at once
_MOST_ERROR_BYTES = 1 << 20
_READ_BYTES = 1 << 18
_RANGES = "/query_range"
_LEAST_S = 0.1
_LATEST = 253_402_300_800.0  # the year 10000, which no datetime reaches


class PrometheusApi:
    """Queries to one Prometheus. Safe to use from several threads. All methods raise `MetricsError`.

    `traffic` counts what is asked and answered, maybe together with others.
    """

    def __init__(self, access: Access, traffic: Traffic | None = None) -> None:
        self.traffic = traffic or Traffic()
        self.url = access.url.rstrip("/")
        parts = urlsplit(self.url)
        # what may be shown and logged: a user name and password in the address may not
        self.address = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
        self._session = _FormSession(access, self.traffic)
        # retries are the caller's, who knows what is worth one; the library's would hide the answer's JSON
        self._client = PrometheusConnect(
            self.url,
            session=self._session,
            method="POST",
            retry=Retry(0, redirect=False),
            timeout=(CONNECT_TIMEOUT_S, access.timeout_s),
        )
        # the server gives up as well, as a thread cannot be stopped
        self._params = {**access.params, "timeout": f"{access.timeout_s:g}"}

    def check(self) -> None:
        """Read the files that the settings name, so that one which is missing is named at once."""
        self._session.check()

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
        """Evaluate the query now, by the server's clock: to one sample of each series, unless it ends with a range."""
        answer: Answer[list[Series]] = self._client.custom_query(query, params=self._params)
        return answer

    def server_time(self) -> float:
        """The server's clock, unix seconds. The cheapest question that only Prometheus' API answers."""
        series = self.instant(TIME).result
        if len(series) != 1 or not len(series[0].values) or not 0 <= series[0].values[0] < _LATEST:
            text = "gave no time for the query time(): it does not seem to be Prometheus; check --prometheus-url"
            raise MetricsError(200, "not_json", text)
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


class _FormSession:
    """The part of `requests.Session` that the library uses."""

    def __init__(self, access: Access, traffic: Traffic) -> None:
        self._access = access
        self._traffic = traffic
        self._credentials = Credentials(access)
        self._session = Session(access.tls)
        self._session.auth = self._credentials
        self.verify = self._session.verify
        self.cert = self._session.cert
        self.mount = self._session.mount

    def check(self) -> None:
        """Read the files that the settings name. Raises `MetricsError`."""
        self._session.check()
        self._credentials.check()

    def close(self) -> None:
        self._session.close()
        self._credentials.close()

    def request(self, *, params: Mapping[str, str], timeout: tuple[float, float], **settings: Any) -> _Decoded:
        settings |= {"data": params, "timeout": timeout}
        began_s = time.monotonic()
        try:
            response, body = self._exchange(settings)
            if response.status_code == 401 and self._credentials.renewed(response.request):
                left_s = max(_LEAST_S, began_s + timeout[1] - time.monotonic())
                response, body = self._exchange({**settings, "timeout": (timeout[0], left_s)})
            answer = self._answer(response, body, params["query"])
        except MetricsError as error:
            self._traffic.failed(error)
            raise error.about(params["query"]) from error.__cause__
        self._traffic.answered(answer.result)
        return _Decoded(answer)

    def _exchange(self, settings: Mapping[str, Any]) -> tuple[requests.Response, bytes]:
        self._traffic.sent()
        try:
            with self._session.request(allow_redirects=False, stream=True, **settings) as response:
                return response, _read(response)
        # the last three: what the libraries below let through, of addresses, names and sockets
        except (requests.RequestException, HTTPError, HTTPException, OSError, ValueError) as error:
            raise no_answer(error, self._access.tls, self._access.timeout_s) from error

    def _answer(self, response: requests.Response, body: bytes, query: str) -> Answer[list[Series]]:
        def shown(text: str, most: int) -> str:
            return foreign(self._credentials.hidden(text, response.request), most)

        if response.status_code == 200:
            if weight(body) > _MOST_MEMORY:
                raise MetricsError(200, "too_large", "sent more series and samples than are ever asked for at once")
            kinds = kinds_of(query, ranged=str(response.request.url).endswith(_RANGES))
            answer = decoded(200, body, shown, kinds=kinds)
            if answer is not None:
                return answer
        try:
            body = body[:_MOST_ERROR_BYTES]
            if response.status_code not in (200, 401, 403):
                decoded(response.status_code, body, shown)
            raise not_prometheus(response, body, self._access, shown)
        except MetricsError as error:
            error.pause_s = pause_s(response.headers.get("Retry-After", ""))
            raise


def _read(response: requests.Response) -> bytes:
    parts = []
    size = 0
    while part := response.raw.read1(_READ_BYTES, decode_content=True):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise MetricsError(response.status_code, "too_large", f"sent more than {_MOST_BYTES >> 20} MiB")
    return b"".join(parts)
