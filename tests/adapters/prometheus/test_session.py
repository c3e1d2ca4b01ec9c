import asyncio
import socket
from collections.abc import Callable

import numpy as np
import pytest
from aiohttp import web

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.answers import Answer, MetricsError, Series
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.adapters.prometheus.session import PrometheusApi
from tests.adapters.prometheus.servers import refusal, result, serve

SPAN = Span(1_795_759_140, 1_795_759_200, 60)
HTML = "<!DOCTYPE html><html><title>Log in</title></html>"
NESTED: list[object] = []
for _ in range(500):
    NESTED = [NESTED]
Respond = Callable[[], web.StreamResponse]


async def ask(url: str, *, timeout_s: float = 5.0) -> Answer[list[Series]]:
    return await asyncio.to_thread(PrometheusApi(Access(url, timeout_s=timeout_s)).range, "up", SPAN)


async def answer_now(response: web.StreamResponse) -> Answer[list[Series]]:
    """To a query that is not for a range."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return response

    async with serve(handler) as url:
        return await asyncio.to_thread(PrometheusApi(Access(url, timeout_s=5)).instant, "up")


async def failure(url: str, *, timeout_s: float = 5.0) -> MetricsError:
    with pytest.raises(MetricsError) as caught:
        await ask(url, timeout_s=timeout_s)
    return caught.value


async def answer_to(response: web.StreamResponse) -> Answer[list[Series]]:
    async def handler(request: web.Request) -> web.StreamResponse:
        return response

    async with serve(handler) as url:
        return await ask(url)


async def test_the_query_is_in_the_body() -> None:
    seen = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append((request.method, request.path_qs, dict(await request.post())))
        return result("matrix", [])

    long = "up or " * 20_000 + "up"
    async with serve(handler) as url:
        api = PrometheusApi(Access(f"{url}/prometheus/", timeout_s=5))
        await asyncio.to_thread(api.range, long, SPAN)
        api.close()
    form = {"query": long, "start": "1795759140", "end": "1795759200", "step": "60", "timeout": "5"}
    assert seen == [("POST", "/prometheus/api/v1/query_range", form)]


async def test_values_become_arrays() -> None:
    values = [
        [1795759140, "1"],
        [1795759170.5, "NaN"],
        [1795759200, "+Inf"],
        [1795759230, "-Inf"],
        [1795759260, "1e-7"],
    ]
    answer = await answer_to(result("matrix", [{"metric": {"pod": "p"}, "values": values}]))
    (series,) = answer.result
    assert series.labels == {"pod": "p"}
    assert series.at.tolist() == [1795759140, 1795759170.5, 1795759200, 1795759230, 1795759260]
    np.testing.assert_array_equal(series.values, [1, np.nan, np.inf, -np.inf, 1e-7])


async def test_vectors_are_series_of_one_value() -> None:
    histogram = {"metric": {"pod": "h"}, "histogram": [1795759200, {"count": "1"}]}
    vector = [{"metric": {"pod": "p"}, "value": [1795759200, "+Inf"]}, histogram]
    answer = await answer_now(result("vector", vector))
    assert [(s.labels, s.at.tolist(), s.values.tolist()) for s in answer.result] == [
        ({"pod": "p"}, [1795759200], [np.inf])
    ]
    for other in (result("scalar", [1795759200.123, "1"]), result("matrix", [{"metric": {}, "values": []}])):
        with pytest.raises(
            MetricsError, match=r"is not Prometheus': a result of type \w+ in place of a vector \(query: up"
        ):
            await answer_now(other)


async def test_native_histograms_are_no_values() -> None:
    answer = await answer_to(result("matrix", [{"metric": {}, "histograms": [[1795759200, {"count": "1"}]]}]))
    assert len(answer.result[0].values) == 0


async def test_only_warnings_about_missing_data_are_kept() -> None:
    warnings = ["PromQL info: metric might not be a counter", "store down", "PromQL warning: mixed"]
    answer = await answer_to(result("matrix", [], warnings=warnings, infos=["PromQL info: x"]))
    assert answer.missing == ("store down",)


@pytest.mark.parametrize(
    ("respond", "status", "error_type", "words"),
    [
        (lambda: web.Response(text=HTML, content_type="text/html"), 200, "html", "not Prometheus, or a login page"),
        (lambda: web.Response(text="<html>", content_type="text/plain"), 200, "html", "login page"),
        (lambda: web.Response(status=302, headers={"Location": "https://sso.example/?token=secret"}), 302, "empty",
         "redirects to https://sso.example (HTTP 302): a login page"),
        (lambda: web.Response(status=302, headers={"Location": "/login"}), 302, "empty", "another page"),
        (lambda: web.Response(status=302, headers={"Location": "http://[::bad"}), 302, "empty", "another page"),
        (lambda: web.Response(status=401, text="no org id"), 401, "not_json", "refuses access (HTTP 401)"),
        (lambda: refusal(403, "forbidden", "no"), 403, "not_json", "refuses access (HTTP 403)"),
        (lambda: web.Response(status=404, text="404 page not found"), 404, "not_json", "another server, or a path"),
        (lambda: web.Response(status=500, text="boom"), 500, "not_json", "fails with HTTP 500: boom"),
        (lambda: web.Response(status=502, text=HTML, content_type="text/html"), 502, "html", "HTTP 502: an HTML page"),
        (lambda: web.Response(text="nonsense"), 200, "not_json", "not Prometheus' JSON (HTTP 200): 'nonsense'"),
        (lambda: web.Response(body=b"\xff\xfe\x00"), 200, "not_json", "not Prometheus' JSON"),
        (lambda: web.Response(body=b'{"status":"success","data":' + b"[" * 100_000), 200, "not_json", "not Prometheus"),
        (lambda: result("matrix", NESTED), 200, "not_json", "not Prometheus'"),
        (lambda: web.json_response({"hello": 1}), 200, "not_json", "not Prometheus' JSON"),
        (lambda: web.json_response({"status": "success"}), 200, "not_json", "not Prometheus'"),
        (lambda: result("matrix", "x"), 200, "not_json", "not Prometheus'"),
        (lambda: result("matrix", [{"metric": {}, "values": [[1, "abc"]]}]), 200, "not_json", "not Prometheus'"),
        (lambda: result("string", [1, "x"]), 200, "not_json", "a result of type string"),
        (lambda: web.Response(), 200, "empty", "empty answer"),
        (lambda: refusal(400, "bad_data", "parse error"), 400, "bad_data", "refused a query (HTTP 400): parse error"),
        (lambda: refusal(200, "weird", ""), 200, "weird", "status error"),
    ],
)  # fmt: skip
async def test_what_is_no_answer_is_named(respond: Respond, status: int, error_type: str, words: str) -> None:
    with pytest.raises(MetricsError) as caught:
        await answer_to(respond())
    assert (caught.value.status, caught.value.error_type) == (status, error_type)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not caught.value.too_much
    assert caught.value.passing == (status == 502)


@pytest.mark.parametrize(
    ("respond", "too_much", "passing"),
    [
        (lambda: refusal(422, "execution", "query processing would load too many samples into memory"), True, False),
        (lambda: refusal(400, "bad_data", "exceeded maximum resolution of 11,000 points"), True, False),
        (lambda: refusal(503, "timeout", "query timed out in expression evaluation"), True, True),
        (lambda: refusal(422, "execution", "found duplicate series for the match group"), False, False),
        (lambda: refusal(503, "canceled", "query was canceled"), False, True),
        (lambda: refusal(429, "too_many_requests", "slow down"), False, True),
        (lambda: web.Response(status=504, text="gateway"), False, True),
    ],
)
async def test_what_to_do_about_it(respond: Respond, too_much: bool, passing: bool) -> None:
    with pytest.raises(MetricsError) as caught:
        await answer_to(respond())
    assert (caught.value.too_much, caught.value.passing) == (too_much, passing)


async def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = await failure(f"http://user:secret@127.0.0.1:{unused.getsockname()[1]}")
    assert (error.status, error.error_type, error.passing) == (None, "connection", True)
    assert "Connection refused" in error.text
    assert "--prometheus-url" in error.text
    assert "secret" not in error.text


async def test_a_name_that_does_not_exist() -> None:
    error = await failure("http://prometheus.invalid:9090")
    assert (error.status, error.error_type) == (None, "connection")
    assert "cannot be reached" in error.text


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://prometheus", "http://"])
async def test_an_address_that_is_none(url: str) -> None:
    error = await failure(url)
    assert (error.status, error.error_type, error.passing) == (None, "address", False)


async def test_a_server_that_hangs() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1)
        return web.Response()

    async with serve(handler) as url:
        error = await failure(url, timeout_s=0.2)
    assert (error.status, error.error_type) == (None, "hang")
    assert "did not answer within 0.2 s" in error.text


@pytest.mark.parametrize("headers", [{}, {"Content-Length": "100000"}])
async def test_a_server_that_never_finishes(headers: dict[str, str]) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        for _ in range(40):
            await response.write(b" ")
            await asyncio.sleep(0.05)
        return response

    async with serve(handler) as url:
        error = await failure(url, timeout_s=0.4)
    assert (error.status, error.error_type) == (None, "hang")


async def test_a_server_that_hangs_up() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with serve(handler) as url:
        error = await failure(url)
    assert (error.status, error.error_type, error.passing) == (None, "connection", True)
    assert "closed the connection without an answer" in error.text


async def test_half_a_body() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"status":"success"')
        assert request.transport is not None
        request.transport.close()
        return response

    async with serve(handler) as url:
        error = await failure(url)
    assert (error.status, error.error_type, error.passing) == (None, "broken_off", True)
    assert "middle of an answer" in error.text


async def test_a_compressed_answer() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        values = [[at, "0.5"] for at in range(50_000)]
        response = result("matrix", [{"metric": {}, "values": values}])
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async with serve(handler) as url:
        answer = await ask(url)
    assert answer.result[0].values.sum() == 25_000


async def test_an_answer_whose_compression_is_broken() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"not gzip", headers={"Content-Encoding": "gzip"})

    async with serve(handler) as url:
        assert (await failure(url)).error_type == "broken_off"


async def test_an_answer_that_is_too_large() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(70):
            await response.write(b" " * (1 << 20))
        return response

    async with serve(handler) as url:
        error = await failure(url)
    assert (error.error_type, error.too_much) == ("too_large", True)


async def test_the_clock() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert (await request.post())["query"] == "time()"
        return result("scalar", [1795759200.5, "1795759200.5"])

    async with serve(handler) as url:
        assert await asyncio.to_thread(PrometheusApi(Access(url)).server_time) == 1795759200.5


@pytest.mark.parametrize("time", [None, "NaN", "+Inf", "1e30", "1e14", "-1e12"])
async def test_a_server_without_a_clock_is_no_prometheus(time: str | None) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return result("vector", []) if time is None else result("scalar", [1795759200, time])

    async with serve(handler) as url:
        with pytest.raises(MetricsError, match="does not seem to be Prometheus"):
            await asyncio.to_thread(PrometheusApi(Access(url)).server_time)


def test_addresses_are_shown_without_credentials() -> None:
    api = PrometheusApi(Access("https://user:secret@prometheus.example:9090/prometheus?token=secret"))
    assert api.address == "https://prometheus.example:9090/prometheus"
