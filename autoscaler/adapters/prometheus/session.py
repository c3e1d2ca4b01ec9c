"""Prometheus' HTTP API: prometheus-api-client over a session of our own. Synchronous; called from worker threads.

The session sends queries in the body (URLs have limits), follows no redirect, retries nothing but what was refused by
credentials that have changed since, and bounds how long and how large an answer may be. Every failure is a
`MetricsError`. https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.answers import Answer, MetricsError, Series, decoded
from autoscaler.adapters.prometheus.credentials import Credentials
from autoscaler.adapters.prometheus.failures import CONNECT_TIMEOUT_S, no_answer, not_prometheus
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.adapters.prometheus.traffic import Traffic
from autoscaler.adapters.prometheus.transport import Session

_MOST_BYTES = 64 << 20  # many times what a planned request is answered with
_READ_BYTES = 1 << 18
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
        deadline = time.monotonic() + timeout[1]
        settings |= {"data": params, "timeout": timeout}
        try:
            response, body = self._exchange(deadline, settings)
            if response.status_code == 401 and self._credentials.renewed(response.request):
                response, body = self._exchange(deadline, settings)
            answer = self._answer(response, body)
        except MetricsError as error:
            self._traffic.failed(error)
            raise error.about(params["query"]) from error.__cause__
        self._traffic.answered(answer.result)
        return _Decoded(answer)

    def _exchange(self, deadline: float, settings: Mapping[str, Any]) -> tuple[requests.Response, bytes]:
        self._traffic.sent()
        try:
            with self._session.request(allow_redirects=False, stream=True, **settings) as response:
                return response, _read(response, deadline)
        except (requests.RequestException, HTTPError) as error:
            raise no_answer(error, self._access.tls, self._access.timeout_s) from error

    def _answer(self, response: requests.Response, body: bytes) -> Answer[list[Series]]:
        if response.status_code == 200:
            with suppress(MetricsError):
                answer = decoded(200, body)
                if answer is not None:
                    return answer
        failure = self._failure(response, self._without_secrets(body.decode(errors="replace"), response).encode())
        # once more: JSON may have written a secret in another way
        raise MetricsError(failure.status, failure.error_type, self._without_secrets(failure.text, response))

    def _failure(self, response: requests.Response, body: bytes) -> MetricsError:
        if response.status_code not in (401, 403):
            try:
                decoded(response.status_code, body)
            except MetricsError as error:
                return error
        return not_prometheus(response, body, self._access)

    def _without_secrets(self, text: str, response: requests.Response) -> str:
        return self._credentials.hidden(text, response.request)


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
