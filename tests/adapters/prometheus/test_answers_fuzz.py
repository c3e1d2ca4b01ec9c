"""Answers that no Prometheus gives: always an error that names the query, or what the answer rightly says."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.answers import MetricsError, Series
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.adapters.prometheus.session import PrometheusApi

QUERY = "max by (pod) (frame_seconds)"


class Server(ThreadingHTTPServer):
    """Answers with `status` and `body`, whatever is asked."""

    daemon_threads = True
    status = 200
    body = b""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        self.rfile.read(int(self.headers["Content-Length"]))
        body = self.server.body  # which may be another one as soon as the client has the header
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nothing is logged."""


@contextmanager
def serving() -> Iterator[tuple[Server, PrometheusApi]]:
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        api = PrometheusApi(Access(f"http://127.0.0.1:{server.server_port}", timeout_s=5))
        try:
            yield server, api
        finally:
            api.close()
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def answering() -> Iterator[tuple[Server, PrometheusApi]]:
    with serving() as both:
        yield both


def asked(
    answering: tuple[Server, PrometheusApi], body: bytes, status: int = 200, *, ranged: bool = True
) -> list[Series] | None:
    """What is read of this answer; None if it is an error, which is looked at."""
    server, api = answering
    server.body, server.status = body, status
    found, failure = None, None
    try:
        found = (api.range(QUERY, Span(0, 60, 60)) if ranged else api.instant(QUERY)).result
    except MetricsError as error:
        failure = error
    if failure is not None:
        # a server that wants https is wrong about every query
        assert QUERY in failure.text or failure.error_type == "tls"
        assert failure.status == status
    for one in found or ():
        assert one.at.dtype == one.values.dtype == np.float64
        assert len(one.at) == len(one.values)
        assert all(isinstance(text, str) for label in one.labels.items() for text in label)
    return found


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)
NUMBERS = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 1.7e308, 5e-324, -0.0])
PAIRS = st.lists(st.tuples(st.integers(0, 2**40), NUMBERS), max_size=5, unique_by=lambda pair: pair[0]).map(sorted)
LABELS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)
MATRICES = st.lists(st.tuples(LABELS, PAIRS), max_size=4, unique_by=lambda one: frozenset(one[0].items()))


def written(value: float) -> str:
    """As Go writes it."""
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(repr(value), repr(value))


def answer(result: object, kind: object = "matrix") -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()


def matrix(series: list[tuple[dict[str, str], list[tuple[int, float]]]]) -> list[dict[str, Any]]:
    return [{"metric": labels, "values": [[at, written(value)] for at, value in pairs]} for labels, pairs in series]


fuzzed = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@fuzzed
@given(MATRICES)
def test_what_prometheus_says_is_read_to_the_bit(
    answering: tuple[Server, PrometheusApi], series: list[tuple[dict[str, str], list[tuple[int, float]]]]
) -> None:
    found = asked(answering, answer(matrix(series)))
    assert found is not None
    assert [dict(one.labels) for one in found] == [labels for labels, _ in series]
    for one, (_, pairs) in zip(found, series, strict=True):
        assert one.at.tolist() == [at for at, _ in pairs]
        np.testing.assert_array_equal(one.values, np.asarray([value for _, value in pairs], np.float64))


@fuzzed
@given(st.binary(max_size=200), st.sampled_from([200, 400, 422, 500]))
def test_garbage_is_an_error(answering: tuple[Server, PrometheusApi], body: bytes, status: int) -> None:
    assert asked(answering, body, status) is None


@fuzzed
@given(MATRICES.filter(bool), st.data())
def test_half_an_answer_is_an_error(
    answering: tuple[Server, PrometheusApi],
    series: list[tuple[dict[str, str], list[tuple[int, float]]]],
    data: st.DataObject,
) -> None:
    whole = answer(matrix(series))
    assert asked(answering, whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@fuzzed
@given(JSON, st.sampled_from(["matrix", "vector", "scalar", "string", "streams", "", None, 7]))
def test_other_types_are_an_error_or_no_samples(
    answering: tuple[Server, PrometheusApi], result: object, kind: object
) -> None:
    """Hypothesis does not come upon a pair of numbers for a scalar, which would be right."""
    found = asked(answering, answer(result, kind), ranged=False)
    assert not found or kind == "scalar"


@fuzzed
@given(SCALARS | JSON)
def test_a_value_that_is_no_number_is_never_one(answering: tuple[Server, PrometheusApi], value: object) -> None:
    found = asked(answering, answer([{"metric": {}, "values": [[60, value]]}]))
    if found is not None:
        (one,) = found
        assert isinstance(value, int | float | str)
        np.testing.assert_array_equal(one.values, [float(value)])


@pytest.mark.parametrize("depth", [100, 100_000])
@pytest.mark.parametrize("place", ["result", "value", "label", "data"])
def test_nested_beyond_reason(answering: tuple[Server, PrometheusApi], depth: int, place: str) -> None:
    deep = "[" * depth + "]" * depth
    bodies = {
        "data": '{"status":"success","data":DEEP}',
        "result": '{"status":"success","data":{"resultType":"matrix","result":DEEP}}',
        "value": '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":DEEP}]}}',
        "label": '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":DEEP}}]}}',
    }
    assert asked(answering, bodies[place].replace("DEEP", deep).encode()) is None


@pytest.mark.parametrize("number", ["1e400", "9" * 400, "-1e400", "0x10", "1_000", "٣", "1e", ".", "+", "infinity", ""])
def test_numbers_that_no_float_holds(answering: tuple[Server, PrometheusApi], number: str) -> None:
    """Infinite where there are too many digits, which is no usage; never another number."""
    found = asked(answering, answer([{"metric": {}, "values": [[60, number]]}]))
    assert found is None or math.isinf(found[0].values[0])


def test_native_histograms_are_no_samples(answering: tuple[Server, PrometheusApi]) -> None:
    histogram = {"count": "2", "sum": "3", "buckets": [[0, "0.5", "1", "2"]]}
    found = asked(answering, answer([{"metric": {"pod": "a"}, "histograms": [[60, histogram]]}]))
    assert found is not None
    assert [len(one.values) for one in found] == [0]
    assert (
        asked(answering, answer([{"metric": {"pod": "a"}, "histogram": [60, histogram]}], "vector"), ranged=False) == []
    )
