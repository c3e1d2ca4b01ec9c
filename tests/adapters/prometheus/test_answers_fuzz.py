"""Answers that no Prometheus gives: always an error that names the query, or what the answer rightly says."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.adapters.prometheus import probe
from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.answers import MetricsError, Series, decoded, kinds_of
from autoscaler.adapters.prometheus.batch import newest_memory
from autoscaler.adapters.prometheus.fetch import Fetcher
from autoscaler.adapters.prometheus.layout import ANY
from autoscaler.adapters.prometheus.portions import Portions
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.adapters.prometheus.session import PrometheusApi
from autoscaler.adapters.prometheus.signals import readings
from autoscaler.adapters.prometheus.survey import VALID_S, Survey
from autoscaler.adapters.prometheus.tracked import Key, Tracked
from autoscaler.adapters.sessions import gates
from autoscaler.core.history import ContainerRef
from autoscaler.core.problems import Trouble
from autoscaler.core.recommender import Signal
from autoscaler.diagnosis.findings import Status
from autoscaler.diagnosis.usage import Seen, Wanted, coverage
from tests.adapters.prometheus.written import SIGNALS_POLICY

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
    assert not asked(answering, answer(result, kind), ranged=False)


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


SIM = ContainerRef("sim", "sim-0", "app")
NAMES = st.fixed_dictionaries(
    {name: st.just(value) for name, value in SIM._asdict().items()},
    optional={name: st.sampled_from(["a", "b"]) for name in ("job", "cluster", "of", "node", "instance")},
)
OF_NOTHING = st.dictionaries(st.sampled_from(["of", "node", "pod"]), st.sampled_from(["sources", "series", "sim-0"]))
WORDS = NUMBERS.map(written) | st.sampled_from(["1", "2", "1e300", "-1"])
VECTORS = st.lists(
    st.tuples(NAMES | OF_NOTHING, WORDS), min_size=1, max_size=4, unique_by=lambda one: frozenset(one[0].items())
)
NO_SAMPLES = NAMES.map(lambda labels: answer([{"metric": labels, "values": []}]))
RAW = PAIRS.map(lambda pairs: answer(matrix([({}, pairs)])))


def vector(series: list[tuple[dict[str, str], str]]) -> bytes:
    return answer([{"metric": labels, "value": [60, value]} for labels, value in series], "vector")


class Garbage:
    """Answers each query with one of these bodies."""

    def __init__(self, labels: bytes, bodies: list[bytes]) -> None:
        self.labels = labels
        self.bodies = bodies
        self.asked = 0

    def read(self, query: str) -> list[Series]:
        self.asked += 1
        body = self.labels if query.startswith("count by (cluster") else self.bodies[self.asked % len(self.bodies)]
        found = decoded(200, body, kinds=kinds_of(query))
        assert found is not None
        return found.result

    async def ask(self, query: str) -> list[Series]:
        return self.read(query)


@settings(max_examples=60)
@given(
    st.one_of(st.just(vector([(SIM._asdict(), "1")])), VECTORS.map(vector), NO_SAMPLES),
    st.lists(st.one_of(VECTORS.map(vector), NO_SAMPLES, RAW), min_size=1, max_size=6),
)
def test_whoever_asks_raises_nothing_else(labels: bytes, bodies: list[bytes]) -> None:
    garbage, survey = Garbage(labels, bodies), Survey(ANY)
    tracked = {SIM: Tracked(Key.of(SIGNALS_POLICY), SIGNALS_POLICY)}
    for turn in range(4):
        with suppress(MetricsError):
            asyncio.run(survey.renew(garbage.ask, {SIM.pod_ref}, turn * VALID_S, gpus=True))
    for note in survey.notes:
        assert "nan" not in note.detail
    portions = Portions(survey, Fetcher(PrometheusApi(Access("http://127.0.0.1:1"))), 10**8)
    assert list(portions.missing(tracked, 1_795_759_217.0))
    for number in range(len(bodies)):
        garbage.asked = number
        with suppress(MetricsError):
            found = garbage.read("up")
            newest_memory(found, {SIM.pod_ref}, ANY.names)
            at = probe.by_container(found, ANY)
            coverage(Wanted("up", "", Status.ERROR), Seen(at, 60.0, 15), {SIM: datetime.fromtimestamp(0, UTC)})
            assert set(probe.by_node(found).values()) <= {1, 2}
            for reading in readings(ANY, {SIM.pod_ref}, {"app"}, 300, frozenset(Signal), {"own": "up"}):
                probe.having(reading, found, {SIM})
            for said in gates.of_series(found, "sim", ["sim-0"], "it", namespaced=True).values():
                assert said.sessions is None or 0 <= said.sessions < math.inf


@pytest.mark.parametrize("number", ["NaN", "+Inf", "-1", "1e300"])
def test_a_number_of_containers_that_is_none_names_the_query(number: str) -> None:
    """What may be asked for at once goes by it. It is not taken for none."""
    survey = Survey(ANY)
    with pytest.raises(MetricsError, match=r"does not say how many containers there are \(query: count by"):
        asyncio.run(survey.renew(Garbage(vector([(SIM._asdict(), number)]), [b""]).ask, {SIM.pod_ref}, 0))
    assert not survey.usable


@pytest.mark.parametrize("number", ["NaN", "+Inf", "-1", "1e300"])
def test_a_number_of_copies_and_of_gpus_that_is_none_is_said_to_be_unknown(number: str) -> None:
    survey = Survey(ANY)
    garbage = Garbage(vector([(SIM._asdict(), "1")]), [vector([({"of": "series"}, number)])])
    for now_s in range(2):
        with suppress(MetricsError):  # which the samples of a series are, that are no numbers of things
            asyncio.run(survey.renew(garbage.ask, {SIM.pod_ref}, now_s, gpus=True))
    said = {note.reason: note.detail for note in survey.notes}
    assert said[Trouble.GPU_UNATTRIBUTED].startswith("an unknown number of GPUs")
    assert said[Trouble.SENTINEL_SAMPLES].startswith("an unknown number of samples")
    assert said[Trouble.DUPLICATE_SERIES].startswith("an unknown number of containers are there several times")
    assert survey.take_blanks() == 0
