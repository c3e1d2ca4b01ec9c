"""What asking Prometheus costs, what fails, and what of its answers is left out: counted by all threads that ask."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from autoscaler.adapters.prometheus.answers import MetricsError, Series


class Failure(StrEnum):
    """Kinds of queries that were not answered."""

    TIMEOUT = "timeout"  # nothing within prometheus.timeout, or the server gave up after as long
    CONNECTION = "connection"  # no connection, or one that broke off; TLS included
    CREDENTIALS = "credentials"  # 401, 403, and a redirect, which is a login page
    TOO_MUCH = "too_much"  # more samples or steps than the server gives at once
    QUERY = "query"  # refused for what it asks
    SERVER = "server"  # 429 and 5xx
    NOT_PROMETHEUS = "not_prometheus"  # anything else that is no answer


class Counts(NamedTuple):
    """What has been counted since the start.

    `queries`: sent, those that failed and repeated ones included. `samples`: in answers, of which `not_finite` are no
    numbers (NaN, infinite). `blank`: samples of GPUs that are DCGM's numbers for "none". `unknown_pods`: series in
    answers that are of no pod that is followed.
    """

    queries: int
    samples: int
    not_finite: int
    blank: int
    unknown_pods: int
    failures: Mapping[Failure, int]

    @property
    def words(self) -> str:
        """What it has cost, for a person."""
        queries = "1 query" if self.queries == 1 else f"{self.queries:,} queries"
        return f"Prometheus: {queries}, {self.samples:,} samples in the answers"


class Traffic:
    """The counters. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries = self._samples = self._not_finite = self._blank = self._unknown_pods = 0
        self._failures = Counter(dict.fromkeys(Failure, 0))

    def sent(self) -> None:
        with self._lock:
            self._queries += 1

    def answered(self, answer: Iterable[Series]) -> None:
        values = np.concatenate([np.empty(0), *(series.values for series in answer)])
        numbers = int(np.count_nonzero(np.isfinite(values)))
        with self._lock:
            self._samples += len(values)
            self._not_finite += len(values) - numbers

    def failed(self, error: MetricsError) -> None:
        with self._lock:
            self._failures[failure_of(error)] += 1

    def blank(self, samples: int) -> None:
        """So many samples of GPUs say that there is none."""
        with self._lock:
            self._blank += samples

    def passed_over(self, series: int) -> None:
        """So many series were of no pod that is followed."""
        with self._lock:
            self._unknown_pods += series

    def counts(self) -> Counts:
        with self._lock:
            failures = MappingProxyType(dict(self._failures))
            return Counts(self._queries, self._samples, self._not_finite, self._blank, self._unknown_pods, failures)


def failure_of(error: MetricsError) -> Failure:
    """Which kind a failure is of."""
    if error.error_type in ("hang", "timeout"):
        return Failure.TIMEOUT
    if error.too_much:
        return Failure.TOO_MUCH
    if error.status is None or error.error_type == "tls":
        return Failure.CONNECTION
    if error.status in (401, 403) or 300 <= error.status < 400:
        return Failure.CREDENTIALS
    if error.status == 429 or error.status >= 500:
        return Failure.SERVER
    if error.error_type in ("html", "not_json", "empty") or error.status == 404:
        return Failure.NOT_PROMETHEUS
    return Failure.QUERY
