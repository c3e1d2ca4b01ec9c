import asyncio
import math
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from aiohttp import web

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.retries import rest_s
from autoscaler.adapters.prometheus.source import PrometheusMetrics
from autoscaler.core.history import ContainerRef, Gap, History, Measurements, MemoryInUse
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid, Samples, Signal, Situation, Target, WindowRecommender
from autoscaler.core.units import Bytes
from tests.adapters.prometheus.servers import SCRAPE_S, FakePrometheus, refusal, result, serve
from tests.adapters.prometheus.written import SIGNALS_POLICY

NOW = 1_795_759_217
END = 1_795_759_140  # two scrapes ago, on the minute
HOUR = Grid(60, 3600)
NAN = float("nan")
GIB = 2.0**30


class Window(WindowRecommender):
    name = "window"
    Parameters = dict

    def recommend(self, state: Samples, situation: Situation) -> Target:
        return Target(None, None)


class Refuses(Window):
    def fold(self, state: Samples, samples: Samples, block_s: int) -> Samples:
        raise ZeroDivisionError("no")


POLICY = Policy("bridges", Window({}), grid=HOUR)


def ref(pod: str, container: str = "main", namespace: str = "sim") -> ContainerRef:
    return ContainerRef(namespace, pod, container)


def cores(at: int) -> float:
    return 0.5 + (at % 600) / 1000


def memory(at: int) -> float:
    return GIB + at % 3600


def nothing(at: int) -> float:
    return NAN


def fake(*pods: str, now: float = NOW) -> FakePrometheus:
    return FakePrometheus(now, {ref(pod): (cores, memory) for pod in pods})


@asynccontextmanager
async def measuring(
    server: FakePrometheus,
    wanted: Mapping[ContainerRef, Policy],
    *,
    timeout_s: float = 5,
    first_known: Callable[[], None] = lambda: None,
) -> AsyncIterator[PrometheusMetrics]:
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url, timeout_s=timeout_s), now=lambda: server.clock, first_known=first_known)
        metrics.follow(wanted)
        yield metrics
        metrics.close()


def history(measurements: Measurements, container: ContainerRef) -> History:
    found = measurements.of(container)
    assert isinstance(found, History), found
    return found


def gap(measurements: Measurements, container: ContainerRef) -> Gap:
    found = measurements.of(container)
    assert isinstance(found, Gap), found
    return found


def reasons(measurements: Measurements) -> list[str]:
    return [problem.reason for problem in measurements.problems]


async def test_nothing_is_known_before_the_first_measurement() -> None:
    async with measuring(fake("a"), {ref("a"): POLICY}) as metrics:
        assert gap(metrics.latest(), ref("a")) == Gap(Reason.NOT_MEASURED_YET, "its history is being read")
        assert metrics.latest().measured_at is None


async def test_an_hour_is_asked_for_once_and_folded() -> None:
    server = fake("a", "b")
    async with measuring(server, {ref("a"): POLICY, ref("b"): POLICY}) as metrics:
        measured = await metrics.measure_once()
    assert measured is metrics.latest()
    assert measured.measured_at == server.clock
    assert measured.problems == ()
    minutes = list(range(END - 3540, END + 1, 60))
    assert server.asked("rate") == server.asked("max_over_time") == minutes
    found = history(measured, ref("a"))
    assert found.newest_at == END
    assert found.state.end_at.tolist() == minutes
    np.testing.assert_array_equal(found.state.cpu, np.asarray([cores(at) for at in minutes], np.float32))
    expected = [max(memory(at), memory(at - 30)) for at in minutes]
    np.testing.assert_array_equal(found.state.memory, np.asarray(expected, np.float32))


async def test_a_live_cycle_asks_only_for_what_is_new() -> None:
    server = fake("a")
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        await metrics.measure_once()
        server.requests.clear()
        assert (await metrics.measure_once()).measured_at == server.clock
        assert server.ranges == []
        server.now += 120
        measured = await metrics.measure_once()
    assert server.asked("rate") == server.asked("max_over_time") == [END + 60, END + 120]
    assert history(measured, ref("a")).newest_at == END + 120


async def test_two_weeks_are_asked_for_as_blocks() -> None:
    server = fake("a")
    policy = replace(POLICY, grid=Grid())
    async with measuring(server, {ref("a"): policy}) as metrics:
        found = history(await metrics.measure_once(), ref("a"))
    assert np.unique(np.diff(found.state.end_at)).tolist() == [300]
    assert len(found.state) == 14 * 288
    assert np.unique(np.diff(found.recent.end_at)).tolist() == [60]
    assert len(found.recent) == 120
    assert {form["step"] for form in server.ranges} == {"300", "60"}
    assert found.open.end_at.tolist() == [at for at in found.recent.end_at.tolist() if at > found.folded_until]
    assert found.folded_until == END // 300 * 300


async def test_new_containers_are_filled_without_the_others() -> None:
    server = fake("a", "b", "c")
    async with measuring(server, {ref("a"): POLICY, ref("b"): POLICY}) as metrics:
        before = await metrics.measure_once()
        server.requests.clear()
        metrics.follow({ref("a"): POLICY, ref("c"): POLICY})
        assert ref("b") not in metrics.latest().histories
        assert gap(metrics.latest(), ref("c")).reason is Reason.NOT_MEASURED_YET
        after = await metrics.measure_once()
        assert len(server.asked("rate")) == 60
        assert all('pod=~"c"' in form["query"] for form in server.ranges)
        server.requests.clear()
        server.now += 60
        await metrics.measure_once()
    assert history(after, ref("a")) is history(before, ref("a"))
    assert history(after, ref("c")).newest_at == END
    assert server.asked("rate") == [END + 60]
    assert 'pod=~"a|c"' in server.ranges[0]["query"]


async def test_a_reload_keeps_histories_unless_what_they_depend_on_changes() -> None:
    server = fake("a")
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        before = history(await metrics.measure_once(), ref("a"))
        same = replace(POLICY, name="other", recommender=Window({}), source="elsewhere")
        metrics.follow({ref("a"): same})
        assert history(metrics.latest(), ref("a")) is before
        for changed in (
            replace(POLICY, recommender=Window({"x": 1})),
            replace(POLICY, grid=Grid(60, 1800)),
            replace(POLICY, rate_window=timedelta(minutes=10)),
        ):
            metrics.follow({ref("a"): changed})
            assert gap(metrics.latest(), ref("a")).reason is Reason.NOT_MEASURED_YET
            server.requests.clear()
            await metrics.measure_once()
            window = f"[{changed.rate_window.total_seconds():.0f}s]"
            assert window in next(form["query"] for form in server.ranges if "rate" in form["query"])
            assert len(history(metrics.latest(), ref("a")).state) == changed.grid.lookback // 60


async def test_a_change_of_policy_during_a_measurement_discards_its_answer() -> None:
    server = fake("a")
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        other = replace(POLICY, recommender=Window({"x": 1}))

        def reload(path: str, form: Mapping[str, str]) -> None:
            if path.endswith("query_range"):
                metrics.follow({ref("a"): other})

        server.intercept = reload
        measured = await metrics.measure_once()
    assert gap(measured, ref("a")).reason is Reason.NOT_MEASURED_YET


async def test_policies_with_the_same_grid_share_requests() -> None:
    server = fake("a", "b")
    other = replace(POLICY, name="b", recommender=Refuses({}))
    async with measuring(server, {ref("a"): POLICY, ref("b"): other}) as metrics:
        measured = await metrics.measure_once()
    assert len(server.ranges) == 2
    assert history(measured, ref("b")).failure == "ZeroDivisionError: no"
    assert history(measured, ref("a")).failure == ""


async def test_no_samples_are_a_gap_and_never_zero() -> None:
    server = fake("a")
    server.usage[ref("silent")] = (nothing, nothing)
    server.usage[ref("cpu")] = (cores, nothing)
    wanted = {ref(pod): POLICY for pod in ("a", "silent", "cpu", "unknown")}
    async with measuring(server, wanted) as metrics:
        measured = await metrics.measure_once()
        for pod in ("silent", "unknown"):
            assert gap(measured, ref(pod)) == Gap(Reason.NO_DATA, "no samples in Prometheus")
        assert np.isnan(history(measured, ref("cpu")).state.memory).all()
        server.usage[ref("silent")] = (cores, memory)
        server.now += 60
        assert history(await metrics.measure_once(), ref("silent")).newest_at == END + 60


@pytest.mark.parametrize("value", [math.inf, -1.0, 1e30, 1e300])
async def test_values_that_no_usage_has_are_missing(value: float) -> None:
    server = fake()
    server.usage[ref("a")] = (lambda at: value if at == END else 1.0, memory)
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        found = history(await metrics.measure_once(), ref("a"))
    assert np.isnan(found.state.cpu[-1])
    assert found.state.cpu[-2] == 1.0


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (web.Response(text="<html>", content_type="text/html"), "not Prometheus, or a login page"),
        (web.Response(status=302, headers={"Location": "https://sso.example/"}), "redirects to"),
        (web.Response(status=401), "HTTP 401"),
        (web.Response(status=500, text="boom"), "fails with HTTP 500: boom"),
        (web.Response(text="garbage"), "'garbage'"),
        (web.Response(), "empty answer"),
    ],
)
async def test_what_is_not_prometheus_changes_nothing(answer: web.Response, words: str) -> None:
    server = fake("a")
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        good = await metrics.measure_once()
        server.intercept = lambda path, form: web.Response(
            status=answer.status, body=answer.body, headers=answer.headers
        )
        server.now += 60
        metrics.follow({ref("a"): POLICY, ref("b"): POLICY})
        measured = await metrics.measure_once()
    assert history(measured, ref("a")) is history(good, ref("a"))
    assert measured.measured_at == good.measured_at
    assert reasons(measured) == [Reason.METRICS_UNAVAILABLE]
    assert words in measured.problems[0].detail
    assert words in gap(measured, ref("b")).detail
    assert measured.problems[0].detail.startswith("http://127.0.0.1:")


async def test_memory_in_use_is_measured_for_all_containers_of_followed_pods() -> None:
    server = fake("a")
    server.in_use = {ref("a"): 1.5 * GIB, ref("a", "proxy"): 7.0, ref("other"): 8.0, ref("a", "odd"): math.inf}
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        assert metrics.latest().in_use == MemoryInUse()
        measured = await metrics.measure_once()
    assert measured.in_use == MemoryInUse(server.clock, {ref("a"): Bytes(3 << 29), ref("a", "proxy"): Bytes(7)})
    (query,) = (form["query"] for _, form in server.requests if "usage_bytes" in form["query"])
    assert query.endswith("[90s]))")  # three scrapes


async def test_without_its_series_memory_in_use_is_empty_but_measured() -> None:
    server = fake("a")
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        measured = await metrics.measure_once()
    assert measured.in_use == MemoryInUse(server.clock)
    assert measured.problems == ()


async def test_memory_in_use_grows_old_while_it_cannot_be_measured() -> None:
    server = fake("a")
    server.in_use = {ref("a"): GIB}
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        before = (await metrics.measure_once()).in_use
        server.intercept = lambda path, form: web.Response(status=400) if "usage_bytes" in form["query"] else None
        server.now += 120
        measured = await metrics.measure_once()
    assert measured.in_use == before
    assert measured.measured_at == server.clock
    assert reasons(measured) == [Reason.METRICS_UNAVAILABLE]


async def test_many_pods_are_asked_for_by_their_namespaces_alone() -> None:
    server = fake("a")
    server.in_use = {ref(f"p-{i}"): GIB for i in range(400)}
    async with measuring(server, {ref(f"p-{i}"): POLICY for i in range(300)}) as metrics:
        measured = await metrics.measure_once()
    assert len(measured.in_use.of) == 300
    (query,) = (form["query"] for _, form in server.requests if "usage_bytes" in form["query"])
    assert ",pod=" not in query


async def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        metrics = PrometheusMetrics(
            Access(f"http://127.0.0.1:{unused.getsockname()[1]}"), now=lambda: datetime.now(UTC)
        )
        metrics.follow({ref("a"): POLICY})
        measured = await metrics.measure_once()
    assert "Connection refused" in gap(measured, ref("a")).detail
    assert reasons(measured) == [Reason.METRICS_UNAVAILABLE]
    assert measured.measured_at is None


async def test_a_hanging_server_does_not_hold_the_event_loop() -> None:
    server = fake("a")

    async def hang() -> web.StreamResponse:
        await asyncio.sleep(1)
        return web.Response()

    server.intercept = lambda path, form: hang()
    async with measuring(server, {ref("a"): POLICY}, timeout_s=0.4) as metrics:
        task = asyncio.create_task(metrics.measure_once())
        turns = 0
        while not task.done():
            await asyncio.sleep(0.01)
            turns += 1
        assert turns > 5
    assert "did not answer within 0.4 s" in gap(task.result(), ref("a")).detail


async def test_one_failing_query_does_not_stop_the_others() -> None:
    server = fake("a", "b")

    def fail_half_hours(path: str, form: Mapping[str, str]) -> web.StreamResponse | None:
        return web.Response(status=500) if form.get("start") == f"{END - 1740}" else None

    server.intercept = fail_half_hours
    wanted = {ref("a"): POLICY, ref("b"): replace(POLICY, grid=Grid(60, 1800))}
    async with measuring(server, wanted) as metrics:
        measured = await metrics.measure_once()
        assert history(measured, ref("a")).newest_at == END
        assert gap(measured, ref("b")).reason is Reason.METRICS_UNAVAILABLE
        assert reasons(measured) == [Reason.METRICS_UNAVAILABLE]
        server.intercept = None
        measured = await metrics.measure_once()
    assert history(measured, ref("b")).newest_at == END
    assert measured.problems == ()


async def test_a_server_that_stops_answering_is_not_asked_everything() -> None:
    server = fake("a")
    server.hangs_up = True
    wanted = {ref(f"p{i}"): replace(POLICY, grid=Grid(60, 600 + 60 * i)) for i in range(12)}
    async with measuring(server, wanted) as metrics:
        measured = await metrics.measure_once()
    assert len({form["start"] for form in server.ranges}) <= 4
    assert all(gap(measured, container).detail == measured.problems[0].detail for container in wanted)


async def test_back_fills_wait_for_what_is_up_to_date() -> None:
    server = fake("a", "b")
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        await metrics.measure_once()
        server.now += 60
        metrics.follow({ref("a"): POLICY, ref("b"): POLICY})
        measured = await metrics.measure_once(backfill_s=-1)
        assert history(measured, ref("a")).newest_at == END + 60
        assert gap(measured, ref("b")).reason is Reason.NOT_MEASURED_YET
        assert history(await metrics.measure_once(), ref("b")).newest_at == END + 60


@pytest.mark.parametrize(("most_past", "minutes"), [(2 * 2 * 60, 60), (2 * 2 * 60 - 1, 59), (2 * 2 * 20, 20), (1, 1)])
async def test_a_back_fill_that_is_too_much_in_all_is_shortened_and_its_histories_say_so(
    most_past: int, minutes: int
) -> None:
    server = fake("a", "b")
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url), now=lambda: server.clock, most_past=most_past)
        metrics.follow(dict.fromkeys(server.usage, POLICY))
        found = history(await metrics.measure_once(), ref("a"))
        metrics.close()
    assert len(found.state) == minutes
    assert found.unread_before == (found.first_at if minutes < 60 else 0)


async def test_a_hole_where_a_shortened_look_back_begins_passes_nothing_off_as_all_there_is() -> None:
    server = FakePrometheus(NOW, {ref("a"): (lambda at: cores(at) if at > END - 600 else NAN, nothing)})
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url), now=lambda: server.clock, most_past=2 * 20)
        metrics.follow({ref("a"): POLICY})
        assert history(await metrics.measure_once(), ref("a")).unread_before == END - 19 * 60
        metrics.close()


async def test_a_back_fill_takes_no_notice_of_those_that_have_been_measured() -> None:
    server = fake("a", "b", "c")
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url), now=lambda: server.clock, most_past=2 * 60)
        metrics.follow({ref("a"): POLICY})
        await metrics.measure_once()
        metrics.follow({ref("a"): POLICY, ref("b"): POLICY})
        server.now += 60
        found = history(await metrics.measure_once(), ref("b"))
        metrics.close()
    assert (len(found.state), found.unread_before) == (60, 0)


async def test_the_last_of_a_back_fill_get_no_more_than_their_share() -> None:
    server = fake("a", "b")
    server.intercept = lambda path, form: web.Response(status=500) if 'pod=~"b"' in form["query"] else None
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url), now=lambda: server.clock, most_past=2 * 60)
        other = replace(POLICY, rate_window=timedelta(minutes=4))
        metrics.follow({ref("a"): POLICY, ref("b"): other})
        await metrics.measure_once()
        server.intercept = None
        found = history(await metrics.measure_once(), ref("b"))
        metrics.close()
    assert len(found.state) == 30


class OfGpus(Window):
    @property
    def signals(self) -> frozenset[str]:
        return frozenset({Signal.GPU_MEMORY})


async def test_the_past_of_gpus_is_read_once_it_is_known_how_they_are_labelled() -> None:
    """Of containers, too, whose usage was read while the server failed to say."""
    server = fake("a")
    server.in_use = {ref("a"): GIB}
    server.intercept = lambda path, form: web.Response(status=500) if 'exported_pod!=""' in form["query"] else None

    def read() -> list[int]:
        return server.asked(',exported_pod=~"a"')

    async with measuring(server, {ref("a"): replace(POLICY, recommender=OfGpus({}))}) as metrics:
        assert history(await metrics.measure_once(), ref("a")).newest_at == END
        assert read() == []
        server.intercept = None
        for _ in range(2):
            server.now += 60
            await metrics.measure_once()
        assert len(read()) in (60, 61)
        server.requests.clear()
        server.now += 60
        await metrics.measure_once()
        assert len(read()) == 1


async def test_pods_are_halved_until_a_single_instant_of_them_is_answered() -> None:
    server = fake(*(f"p{i}" for i in range(8)))

    def overloaded(path: str, form: Mapping[str, str]) -> web.StreamResponse | None:
        much = path.endswith("query_range") and form["query"].count("|") > 1
        return refusal(422, "execution", "would load too many samples into memory: too many samples") if much else None

    server.intercept = overloaded
    async with measuring(server, dict.fromkeys(server.usage, replace(POLICY, grid=Grid(60, 180)))) as metrics:
        measured = await metrics.measure_once()
    assert reasons(measured) == []
    assert all(len(history(measured, container).state) == 3 for container in server.usage)


@pytest.mark.parametrize("failures", [1, 2, 3])
async def test_what_may_pass_is_tried_three_times(failures: int) -> None:
    server = fake("a")
    left = {"rate": failures}

    def busy(path: str, form: Mapping[str, str]) -> web.StreamResponse | None:
        if path.endswith("query_range") and "rate(" in form["query"] and left["rate"]:
            left["rate"] -= 1
            return web.Response(status=429)
        return None

    server.intercept = busy
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        measured = await metrics.measure_once()
    assert isinstance(measured.of(ref("a")), History) == (failures < 3)
    assert reasons(measured) == ([Reason.METRICS_UNAVAILABLE] if failures == 3 else [])


@pytest.mark.parametrize(
    "too_much",
    [
        (422, "execution", "query processing would load too many samples into memory in query execution"),
        (503, "timeout", "query timed out in expression evaluation"),
    ],
)
async def test_ranges_are_halved_until_they_are_answered(too_much: tuple[int, str, str]) -> None:
    server = fake("a")

    def strict(path: str, form: Mapping[str, str]) -> web.StreamResponse | None:
        long = "start" in form and int(form["end"]) - int(form["start"]) >= 9 * 60
        return refusal(*too_much) if long else None

    async with measuring(server, {ref("a"): POLICY}) as metrics:
        server.intercept = strict
        found = history(await metrics.measure_once(), ref("a"))
    answered = [form for form in server.ranges if strict("", form) is None]
    for word in ("rate(", "max_over_time("):
        minutes = sorted(
            at
            for form in answered
            if word in form["query"]
            for at in range(int(form["start"]), int(form["end"]) + 1, 60)
        )
        assert minutes == list(range(END - 3540, END + 1, 60))
    assert len(found.state) == 60
    # one resource found out how much is too much, the other one profits
    assert len(server.ranges) - len(answered) <= 6


async def test_a_single_instant_that_is_too_much_is_a_failure() -> None:
    server = fake("a")
    server.intercept = lambda path, form: refusal(422, "execution", "too many samples") if "start" in form else None
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        measured = await metrics.measure_once()
    assert "too many samples" in gap(measured, ref("a")).detail


async def test_partial_answers_are_reported() -> None:
    server = fake("a")
    server.warnings = ["PromQL info: fine", "store 1 is down"]
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        measured = await metrics.measure_once()
    assert [(p.reason, p.detail.partition(" ")[2]) for p in measured.problems] == [
        ("PartialResponse", "left data out: store 1 is down")
    ]


async def test_a_partial_answer_is_carried_with_its_histories_and_read_again_once_answers_are_whole() -> None:
    server = fake("a")
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        assert history(await metrics.measure_once(), ref("a")).partial_at == 0
        server.warnings = ["store 1 is down"]
        server.now += 60
        assert history(await metrics.measure_once(), ref("a")).partial_at == END + 60
        server.warnings = []
        server.now += 600
        assert history(await metrics.measure_once(), ref("a")).partial_at == END + 60
        server.requests.clear()
        server.now += 60
        whole = history(await metrics.measure_once(), ref("a"))
    assert whole.partial_at == 0
    assert len(server.asked("max_over_time")) == 60
    assert len(whole.state) == 60


async def test_a_rate_without_most_of_its_window_is_not_asked_for() -> None:
    """Scrapes are 30 s apart, so that five minutes hold ten."""
    server = fake("a")
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        assert (await metrics.measure_once()).scrape_interval_s == SCRAPE_S
    assert all(") >= 8" in form["query"] for form in server.ranges if "rate" in form["query"])


async def test_a_clock_that_was_set_back_starts_anew() -> None:
    server = fake("a")
    server.now += 36_000
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url), now=lambda: datetime.fromtimestamp(NOW, UTC))
        metrics.follow({ref("a"): POLICY})
        assert history(await metrics.measure_once(), ref("a")).newest_at == END + 36_000
        server.now = NOW
        measured = await metrics.measure_once()
    assert reasons(measured) == []
    assert history(measured, ref("a")).newest_at == END


@pytest.mark.parametrize("ahead", [-3600, -31, -20, 0, 20, 31, 3600])
async def test_prometheus_clock_wins_when_it_differs(ahead: int) -> None:
    server = fake("a")
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url), now=lambda: server.clock - timedelta(seconds=ahead))
        metrics.follow({ref("a"): POLICY})
        measured = await metrics.measure_once()
    differs = abs(ahead) > 30
    assert reasons(measured) == (["ClockSkew"] if differs else [])
    now = NOW if differs else NOW - ahead
    assert history(measured, ref("a")).newest_at == (now - 2 * SCRAPE_S) // 60 * 60


async def test_progress_counts_requests() -> None:
    server = fake(*(f"p{i}" for i in range(300)))
    seen: list[tuple[int, int, int]] = []
    wanted = {container: replace(POLICY, grid=Grid(60, 6 * 3600)) for container in server.usage}
    async with measuring(server, wanted) as metrics:
        await metrics.measure_once(lambda *told: seen.append(told))
    assert [done for done, _, _ in seen] == list(range(1, len(server.ranges) + 1))
    assert {total for _, total, _ in seen} == {len(server.ranges)}
    assert {samples for _, _, samples in seen} == {2 * 300 * 360}
    assert len(server.ranges) > 2


@pytest.mark.parametrize(("away_s", "most"), [(600, 4), (6 * 3600, 2)])
async def test_what_an_outage_left_out_is_read_two_queries_at_a_time(away_s: int, most: int) -> None:
    """As a back-fill is. A few instants are read with as many as a turn has."""
    server, under_way, seen = fake("a", "b"), 0, 0

    async def slow() -> web.StreamResponse:
        nonlocal under_way, seen
        under_way += 1
        seen = max(seen, under_way)
        await asyncio.sleep(0.05)
        under_way -= 1
        return result("matrix", [])

    policy = replace(SIGNALS_POLICY, grid=HOUR)
    async with measuring(server, {ref("a"): policy, ref("b"): policy}) as metrics:
        await metrics.measure_once()
        server.intercept = lambda path, form: slow() if path.endswith("query_range") else None
        server.now += away_s
        await metrics.measure_once()
    assert seen == most


async def test_run_measures_and_takes_up_new_containers_at_once() -> None:
    server = fake("a", "b")
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        task = asyncio.create_task(metrics.run())
        await until(lambda: isinstance(metrics.latest().of(ref("a")), History))
        metrics.follow({ref("a"): POLICY, ref("b"): POLICY})
        await until(lambda: isinstance(metrics.latest().of(ref("b")), History))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_run_takes_up_new_grid_points() -> None:
    server = fake("a")
    grid = Grid(1, 60)
    async with measuring(server, {ref("a"): replace(POLICY, grid=grid)}) as metrics:
        task = asyncio.create_task(metrics.run())
        await until(lambda: isinstance(metrics.latest().of(ref("a")), History))
        server.now += 30
        newest = int(server.now) - 2 * SCRAPE_S
        await until(lambda: history(metrics.latest(), ref("a")).newest_at == newest)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.02)


async def test_the_scrape_interval_is_read_off_the_samples() -> None:
    server = fake("a")

    def slow(path: str, form: Mapping[str, str]) -> web.StreamResponse | None:
        if not form["query"].endswith("[600s]"):
            return None
        return result("matrix", [{"metric": {}, "values": [[NOW - 240 + 120 * i, "1"] for i in range(3)]}])

    server.intercept = slow
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        await metrics.measure_once()
    assert server.asked("rate")[-1] == (NOW - 240) // 60 * 60


@pytest.mark.parametrize("stamps", [["NaN", 1], ["Inf", 1], [0, 1e300], [0, 1e9], [5, 5], [9, 2]])
async def test_a_scrape_interval_that_cannot_be_is_not_known(stamps: list[float | str]) -> None:
    server = fake("a")
    answer = result("matrix", [{"metric": {}, "values": [[stamp, "1"] for stamp in stamps]}])
    server.intercept = lambda path, form: answer if form["query"].endswith("[600s]") else None
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        measured = await metrics.measure_once()
    assert history(measured, ref("a")).newest_at == (NOW - 2 * 60) // 60 * 60


async def test_without_the_scrape_interval_measuring_goes_on() -> None:
    server = fake("a")
    server.intercept = lambda path, form: web.Response(status=500) if "topk" in form["query"] else None
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        measured = await metrics.measure_once()
    assert reasons(measured) == [Reason.METRICS_UNAVAILABLE]
    assert history(measured, ref("a")).newest_at == (NOW - 2 * 60) // 60 * 60


async def test_the_loop_is_told_once_when_containers_are_first_known() -> None:
    told: list[int] = []
    server = fake("a", "b")
    async with measuring(server, {ref("a"): POLICY}, first_known=lambda: told.append(1)) as metrics:
        await metrics.measure_once()
        await metrics.measure_once()
        assert told == [1]
        metrics.follow({ref("a"): POLICY, ref("b"): POLICY})
        await metrics.measure_once()
        assert told == [1, 1]


async def test_a_fold_that_does_not_return_shows() -> None:
    returning = threading.Event()

    class Hangs(Window):
        def fold(self, state: Samples, samples: Samples, block_s: int) -> Samples:
            returning.wait(10)
            return state

    async with measuring(fake("a"), {ref("a"): replace(POLICY, recommender=Hangs({}))}) as metrics:
        assert metrics.busy_since is None
        measured = asyncio.create_task(metrics.measure_once())
        await until(lambda: metrics.busy_since is not None)
        returning.set()
        await measured
        assert metrics.busy_since is None


async def test_a_turn_for_2000_pods_costs_few_queries_and_no_answer_is_large() -> None:
    server = fake(*(f"p-{i}" for i in range(2000)), now=NOW - NOW % 60 + 10)
    server.in_use = dict.fromkeys(server.usage, GIB)
    counts: list[int] = []
    policy = replace(POLICY, grid=Grid(60, 180))
    async with measuring(server, dict.fromkeys(server.usage, policy), timeout_s=60) as metrics:
        await metrics.measure_once()
        for _ in range(3):
            server.now += 60
            server.requests.clear()
            measured = await metrics.measure_once()
            counts.append(len(server.requests))
            for form in server.ranges:
                assert 2000 * (1 + (int(form["end"]) - int(form["start"])) // int(form["step"])) <= 100_000
    assert max(counts) == 3  # and questions about what is behind the endpoint, every ten minutes: at most 12
    assert measured.problems == ()


async def test_a_turn_with_every_signal_costs_no_more_than_twelve_queries() -> None:
    server = fake(*(f"p-{i}" for i in range(2000)), now=NOW - NOW % 60 + 10)
    server.in_use = dict.fromkeys(server.usage, GIB)
    policy = replace(SIGNALS_POLICY, grid=Grid(60, 180))
    async with measuring(server, dict.fromkeys(server.usage, policy), timeout_s=60) as metrics:
        await metrics.measure_once()
        server.now += 60
        server.requests.clear()
        await metrics.measure_once()
        assert len(server.requests) == 3 + len(Signal) < 12


class HurriedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


@pytest.mark.parametrize(("policy", "most"), [(POLICY, 12), (SIGNALS_POLICY, 13)], ids=["usage", "every signal"])
def test_no_turn_makes_more_queries_when_all_series_vanish(policy: Policy, most: int) -> None:
    """With every signal it is one more, as then the clock has to be asked for and one question is put at least."""

    async def asked(loop: HurriedLoop) -> list[int]:
        server, found = fake("a"), []
        server.in_use = {ref("a"): GIB}
        async with measuring(server, {ref("a"): replace(policy, grid=Grid(60, 180))}) as metrics:
            await metrics.measure_once()
            server.usage, server.in_use = {}, {}
            for _ in range(4):
                server.now += 60
                loop.ahead_s += 600
                server.requests.clear()
                await metrics.measure_once()
                found.append(len(server.requests))
        return found

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, HurriedLoop)
        found = runner.run(asked(loop))
    assert max(found) <= most


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_is_always_busy_is_left_alone_for_as_long_as_it_wants(status: int) -> None:
    """By the other batches of a cycle, and by the next cycles: here ten minutes of a minute's rest each."""

    def busy() -> web.Response:
        return web.Response(status=status, headers={"Retry-After": "60"})

    async def asked(loop: HurriedLoop) -> tuple[int, int]:
        server = fake(*(f"p{i}" for i in range(6)))
        wanted = {ref(f"p{i}"): replace(POLICY, grid=Grid(60, 180 + 60 * i)) for i in range(6)}
        async with measuring(server, wanted) as metrics:
            await metrics.measure_once()
            server.intercept = lambda path, form: busy() if path.endswith("query_range") else None
            server.requests.clear()
            server.now += 60
            measured = await metrics.measure_once()
            assert set(reasons(measured)) == {Reason.METRICS_UNAVAILABLE}
            assert all(isinstance(measured.of(container), History) for container in wanted)
            in_one_cycle = len(server.ranges)
            server.requests.clear()
            server.intercept = lambda path, form: busy()
            task = asyncio.create_task(metrics.run())
            for _ in range(40):
                loop.ahead_s += 15
                await asyncio.sleep(0.02)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        return in_one_cycle, len(server.requests)

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, HurriedLoop)
        in_one_cycle, in_ten_minutes = runner.run(asked(loop))
    assert in_one_cycle <= 4  # under way at once; there are 12
    assert 1 <= in_ten_minutes <= 11


def test_for_how_long_a_busy_server_is_left_alone() -> None:
    assert [rest_s(MetricsError(429, "", ""), times) for times in (1, 2, 3, 4, 99)] == [10, 20, 40, 60, 60]
    assert [rest_s(MetricsError(503, "", "", wanted), 2) for wanted in (1, 90, 1e9)] == [20, 90, 300]
    assert not MetricsError(503, "timeout", "query timed out").busy


@pytest.mark.parametrize("there", [True, False])
async def test_the_clock_is_asked_for_where_the_answer_about_memory_in_use_does_not_show_it(there: bool) -> None:
    server = fake("a")
    server.in_use = {ref("a"): GIB}
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        await metrics.measure_once()
        server.in_use = server.in_use if there else {}
        server.now += 60
        server.requests.clear()
        await metrics.measure_once()
        assert sum(form["query"] == "time()" for _, form in server.requests) == (0 if there else 1)


async def test_a_clock_that_begins_to_differ_is_found_in_the_next_turn() -> None:
    server, ahead = fake("a"), timedelta()
    server.in_use = {ref("a"): GIB}
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url), now=lambda: server.clock - ahead)
        metrics.follow({ref("a"): POLICY})
        assert reasons(await metrics.measure_once()) == []
        ahead = timedelta(seconds=31)
        assert reasons(await metrics.measure_once()) == ["ClockSkew"]
        metrics.close()


async def test_what_cannot_be_compared_is_said_and_without_clusters_nothing_is_read() -> None:
    server = fake("a")
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        server.intercept = lambda path, form: web.Response(status=500) if " and on (" in form["query"] else None
        measured = await metrics.measure_once()
        assert history(measured, ref("a")).newest_at == END
        assert reasons(measured) == [Reason.METRICS_UNAVAILABLE]
    server.intercept = lambda path, form: web.Response(status=500) if form["query"].startswith("count by") else None
    async with measuring(server, {ref("a"): POLICY}) as metrics:
        measured = await metrics.measure_once()
        assert gap(measured, ref("a")).reason is Reason.METRICS_UNAVAILABLE
