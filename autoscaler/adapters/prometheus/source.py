"""Usage from Prometheus, folded into histories: the `Metrics` port.

One task measures in cycles. A cycle asks each container's missing grid points, in few requests for many containers: the
newest ones for those that are up to date, the whole look-back for new ones. Requests, decoding and folding happen in
worker threads; what is published is immutable. When Prometheus fails, the old histories stay and grow old.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import TypeVar

from autoscaler.adapters.prometheus import queries, ranges, signals
from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.answers import MetricsError, Series
from autoscaler.adapters.prometheus.batch import Chunk, newest_memory
from autoscaler.adapters.prometheus.cycle import Cycle, Progress, Work
from autoscaler.adapters.prometheus.fetch import Fetcher
from autoscaler.adapters.prometheus.layout import ANY, EXPORTED, Layout
from autoscaler.adapters.prometheus.missing import notes_on
from autoscaler.adapters.prometheus.portions import Portions
from autoscaler.adapters.prometheus.ranges import MOST_PAST
from autoscaler.adapters.prometheus.retries import rest_s, retried
from autoscaler.adapters.prometheus.session import PrometheusApi
from autoscaler.adapters.prometheus.survey import Survey
from autoscaler.adapters.prometheus.thread import in_thread
from autoscaler.adapters.prometheus.tracked import NOT_YET, Key, Tracked
from autoscaler.adapters.prometheus.traffic import Traffic
from autoscaler.core.history import ContainerRef, Gap, History, Measurements, MemoryInUse
from autoscaler.core.model import Problem
from autoscaler.core.policy import Policy
from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import GPU_SIGNALS

T = TypeVar("T")

_THREADS = 4
_PAST_QUERIES = 2  # at a time about the past, so that a server has room for others
_OPEN_BATCHES = 2  # one is folded while the next one's answers arrive
_MOST_UNREACHABLE = 3  # batches that fail without any answer before the rest of the cycle is given up
_MOST_SKEW_S = 30
_SCRAPES_NOW = 3  # as many scrapes count as "now", and no less than this:
_SHORTEST_NOW_S = 60
_SHORTEST_PAUSE_S = 1.0
_PAUSE_WITHOUT_DATA_S = 10.0
_BACKFILL_TIME_S = 30.0
_QUERIES_A_TURN = 12  # that questions about the endpoint fill up, with one in each turn at least
_SOURCE = "Prometheus"


class PrometheusMetrics:
    """The `Metrics` port over one Prometheus.

    `now` (aware) is the time that everything is measured against; the API server's, in a controller. `first_known` is
    called after a cycle in which containers were measured for the first time: there is something to decide about them.
    `progress` hears how far the cycles of `run` are. `most_past`: samples that all back-fills together may be answered
    with.
    All methods are to be called on one event loop.
    """

    def __init__(
        self,
        access: Access,
        layout: Layout = ANY,
        *,
        now: Callable[[], datetime],
        first_known: Callable[[], None] = lambda: None,
        progress: Progress | None = None,
        traffic: Traffic | None = None,
        most_past: int = MOST_PAST,
    ) -> None:
        self._progress = progress
        self._api = PrometheusApi(access, traffic)
        self._now = now
        self._first_known = first_known
        self._folding: list[float] = []
        self._tracked: dict[ContainerRef, Tracked] = {}
        self._latest = Measurements(default=NOT_YET)
        self._in_use = MemoryInUse()
        self._fresh = asyncio.Event()
        self._busy_cycles = 0  # one after the other, in which the server was too busy
        self._rest_s = 0.0
        self._faulty: frozenset[str] = frozenset()  # signals that the server refused to tell at last
        self._slots = asyncio.Semaphore(_THREADS)
        self._past_slots = asyncio.Semaphore(_PAST_QUERIES)
        self._open_batches = asyncio.Semaphore(_OPEN_BATCHES)
        self._fetcher = Fetcher(self._api)
        self._survey = Survey(layout)
        self._portions = Portions(self._survey, self._fetcher, most_past)
        matchers = (*layout.matchers, *layout.cluster)
        which = f" that match {', '.join(matchers)}" if matchers else ""
        self._no_data = Gap(Reason.NO_DATA, f"no samples in Prometheus{which}")

    def follow(self, wanted: Mapping[ContainerRef, Policy]) -> None:
        """Measure these containers from now on; what is known of any other is dropped. Returns at once."""
        keys = {id(policy): Key.of(policy) for policy in wanted.values()}
        before, self._tracked = self._tracked, {}
        fresh = False
        for container, policy in wanted.items():
            old, key = before.get(container), keys[id(policy)]
            if old is None or old.key != key:
                fresh = True
                self._tracked[container] = Tracked(key, policy)
            else:
                self._tracked[container] = old if old.policy is policy else replace(old, policy=policy)
        if fresh or len(before) != len(self._tracked):
            self._publish(self._latest.measured_at, self._latest.problems)
        if fresh:
            self._fresh.set()

    def latest(self) -> Measurements:
        """The newest measurements. Never waits."""
        return self._latest

    @property
    def cluster(self) -> tuple[str, ...] | Gap:
        """The matchers that select this cluster's series; or why they are not known."""
        return self._survey.cluster

    @property
    def busy_since(self) -> float | None:
        """Monotonic seconds at which the oldest running fold began: a recommender that never returns shows there."""
        return min(self._folding, default=None)

    async def measure_once(self, progress: Progress | None = None, *, backfill_s: float = float("inf")) -> Measurements:
        """Measure what is missing now. Failures are in the result, never raised.

        After `backfill_s` seconds no further back-fill is started; the next call goes on with them.
        """
        await self._measure(Cycle(progress, self._now(), asyncio.get_running_loop().time() + backfill_s))
        return self._latest

    async def run(self) -> None:
        """Measure for ever: whenever a new grid point has settled, and at once when new containers are followed.

        A long back-fill is spread over several cycles, so that it does not keep the others from being measured.
        """
        while True:
            self._fresh.clear()
            await self.measure_once(self._progress, backfill_s=_BACKFILL_TIME_S)
            await asyncio.sleep(max(_SHORTEST_PAUSE_S, self._rest_s))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._fresh.wait(), max(0.0, self._pause() - self._rest_s))

    def close(self) -> None:
        """Close idle connections. A thread that still waits for an answer does not keep the process from ending."""
        self._api.close()

    def _pause(self) -> float:
        """Seconds until there is something to measure."""
        until = [t.measured_until + t.key.grid.step for t in self._tracked.values() if t.measured_until is not None]
        if not until or any(problem.reason == Reason.METRICS_UNAVAILABLE for problem in self._latest.problems):
            return _PAUSE_WITHOUT_DATA_S
        # never longer than a step: the measured instants may be by Prometheus' clock, which may differ
        longest = min(tracked.key.grid.step for tracked in self._tracked.values())
        return max(0.0, min(min(until) + 2 * self._survey.scrape_interval_s - self._now().timestamp(), longest))

    async def _measure(self, cycle: Cycle) -> None:
        self._fetcher.dare()
        measured_at = self._latest.measured_at
        try:
            now = None
            if known := self._survey.usable:
                now = await self._measure_in_use(cycle)
                cycle.go_on()
            if now is None:
                now = await self._server_now(cycle)
            await self._look_around(cycle)
            cycle.go_on()
            measurable = self._survey.usable or not self._survey.ambiguous
            if measurable and not known:
                await self._measure_in_use(cycle)
        except MetricsError as error:
            self._fail(cycle, error, self._tracked)
        else:
            work = list(self._portions.missing(self._tracked, now)) if measurable else []
            cycle.expect(work)
            async with asyncio.TaskGroup() as tasks:
                for item in work:
                    tasks.create_task(self._measure_batch(item, cycle))
            measured_at = self._latest.measured_at if work else cycle.started_at
            if cycle.postponed:
                self._fresh.set()
            if work:
                self._faulty = frozenset(cycle.faulty)
        self._busy_cycles = self._busy_cycles + 1 if cycle.busy is not None else 0
        self._rest_s = rest_s(cycle.busy, self._busy_cycles) if cycle.busy is not None else 0.0
        followed = ((c, t.key.asked.signals - self._faulty, t.history) for c, t in self._tracked.items())
        notes = notes_on(followed, self._survey.layout)
        self._publish(measured_at, (*cycle.problems, *self._survey.notes, *notes))
        if cycle.first_known:
            self._first_known()

    async def _server_now(self, cycle: Cycle) -> float:
        """The time up to which to measure, unix seconds. Also finds out whether there is a Prometheus at all."""
        cycle.asked += 1
        before = self._now().timestamp()
        try:
            server = await self._call(self._api.server_time)
        except MetricsError:
            cycle.problems.clear()  # of queries before: nothing is answered, and that is one problem
            raise
        local = (before + self._now().timestamp()) / 2
        if abs(server - local) <= _MOST_SKEW_S:
            return local
        detail = f"the clock of {self._api.address} differs by {server - local:+.0f} s; its time is used for queries"
        cycle.problems[Problem(_SOURCE, Trouble.CLOCK_SKEW, detail)] = None
        return server

    async def _look_around(self, cycle: Cycle) -> None:
        """Find out what is behind the endpoint, if it is time to. Raises `MetricsError` while nothing is known."""

        async def ask(query: str) -> list[Series]:
            answer = await self._call(self._api.instant, query)
            self._note_partial(cycle, answer.missing)
            return answer.result

        pods = {container.pod_ref for container in self._tracked}
        before = self._survey.layout
        try:
            asked = {(tracked.key.grid, tracked.key.asked) for tracked in self._tracked.values()}
            gpus = any(one.signals & GPU_SIGNALS for _, one in asked)
            room = _QUERIES_A_TURN - cycle.asked - sum(one.queries for _, one in asked)
            await self._survey.renew(ask, pods, asyncio.get_running_loop().time(), gpus=gpus, room=room)
        except MetricsError as error:
            if not self._survey.usable:
                raise
            self._fail(cycle, error, {})
        self._api.traffic.blank(self._survey.take_blanks())
        if (after := self._survey.layout) != before:
            # what was not found under other labels may be under these
            lacking = GPU_SIGNALS if after.gpu == EXPORTED != before.gpu else frozenset()
            for container, tracked in self._tracked.items():
                if tracked.history is None or tracked.key.asked.signals & lacking:
                    self._tracked[container] = replace(tracked, measured_until=None)

    async def _measure_in_use(self, cycle: Cycle) -> float | None:
        """What containers use now, with page cache. If that fails, what was known stays, and grows old.

        Returns the time up to which to measure, where the answer shows that the clocks agree.
        """
        pods = {container.pod_ref for container in self._tracked}
        if not pods:
            return None
        layout = self._survey.layout
        # several scrapes: one alone may have been missed, and a sample that is older tells nothing of now
        range_s = max(_SHORTEST_NOW_S, _SCRAPES_NOW * self._survey.scrape_interval_s)
        before = self._now().timestamp()
        found: list[Series] = []
        everyone = self._survey.population.of_namespaces({pod.namespace for pod in pods})
        for part in ranges.batches(tuple(self._tracked), 1, everyone):
            selected = queries.of_pods(layout, {container.pod_ref for container in part})
            cycle.asked += 1
            try:
                answer = await self._call(self._api.instant, queries.in_use(layout, selected, range_s))
            except MetricsError as error:
                self._fail(cycle, error, {})
                return None
            self._note_partial(cycle, answer.missing)
            found += answer.result
        local = (before + self._now().timestamp()) / 2
        self._in_use = MemoryInUse(cycle.started_at, newest_memory(found, pods, layout.names), layout.in_use)
        agree = any(abs(at - local) <= _MOST_SKEW_S for series in found[:1] for at in series.at[-1:])
        return local if agree else None

    async def _measure_batch(self, work: Work, cycle: Cycle) -> None:
        async with self._open_batches:
            await self._measure_portion(work, cycle)

    async def _measure_portion(self, work: Work, cycle: Cycle) -> None:
        given_up = cycle.unreachable[-1] if len(cycle.unreachable) >= _MOST_UNREACHABLE else cycle.busy
        if given_up is not None:
            self._fail(cycle, given_up, work.tracked)
            cycle.finish(len(work.chunks))
        elif work.is_past and asyncio.get_running_loop().time() > cycle.backfill_until:
            cycle.postponed = True
            cycle.finish(len(work.chunks))
        elif failure := await self._ask(work, cycle):
            if failure.too_much and (halves := self._portions.halves(work)):
                cycle.expect(halves)
                for half in halves:
                    await self._measure_portion(half, cycle)
            else:
                self._fail(cycle, failure, work.tracked)
        else:
            folded = await self._fold(work)
            cycle.first_known |= work.since is None
            self._commit(work, folded)
            self._publish(cycle.started_at, self._latest.problems)

    async def _fold(self, work: Work) -> dict[ContainerRef, History | None]:
        async with self._slots:
            began_at = time.monotonic()
            self._folding.append(began_at)
            try:
                return await in_thread(work.batch.fold)
            finally:
                self._folding.remove(began_at)

    async def _ask(self, work: Work, cycle: Cycle) -> MetricsError | None:
        """Ask for all of a batch. After a failure, which is returned, nothing more is asked.

        A query for a signal that is at fault itself costs that signal alone, which is missing then.
        """
        failure: MetricsError | None = None
        faulty: set[str] = set()

        async def ask(chunk: Chunk) -> None:
            nonlocal failure
            async with self._past_slots if work.is_past else nullcontext(), self._slots:
                failure = failure or cycle.busy
                if failure is None and chunk.reading.name not in faulty:
                    try:
                        missing = await in_thread(self._fetcher.fetch, work.batch, chunk)
                    except MetricsError as error:
                        if chunk.reading.costs_itself_alone(error):
                            faulty.add(chunk.reading.name)
                            self._note_faulty(cycle, work, chunk.reading, error)
                        else:
                            failure = error
                            cycle.busy = error if error.busy else cycle.busy
                    else:
                        self._note_partial(cycle, missing)
                        work.batch.partial |= bool(missing)
            cycle.finish(1)

        work.batch.open()
        async with asyncio.TaskGroup() as tasks:
            for chunk in work.chunks:
                tasks.create_task(ask(chunk))
        return failure

    def _commit(self, work: Work, folded: Mapping[ContainerRef, History | None]) -> None:
        first, until = work.batch.spans[0].first, work.batch.spans[-1].last
        for container, history in folded.items():
            if work.shortened and history is not None:
                history = replace(history, unread_before=first)
            now = self._tracked.get(container)
            # it may have left, come back or changed its policy meanwhile
            if now and now.key == work.tracked[container].key and now.measured_until == work.since:
                self._tracked[container] = replace(now, history=history, measured_until=until, gap=self._no_data)

    def _fail(self, cycle: Cycle, error: MetricsError, tracked: Mapping[ContainerRef, Tracked]) -> None:
        if error.status is None:
            cycle.unreachable.append(error)
        if error.busy:
            cycle.busy = error
        detail = f"{self._api.address} {error.text}"
        cycle.problems[Problem(_SOURCE, Reason.METRICS_UNAVAILABLE, detail)] = None
        gap = Gap(Reason.METRICS_UNAVAILABLE, detail)
        for container in tracked:
            now = self._tracked.get(container)
            if now and now.measured_until is None:
                self._tracked[container] = replace(now, gap=gap)

    def _note_partial(self, cycle: Cycle, missing: tuple[str, ...]) -> None:
        for text in missing:
            problem = Problem(_SOURCE, Reason.PARTIAL_RESPONSE, f"{self._api.address} left data out: {text[:300]}")
            cycle.problems[problem] = None

    def _note_faulty(self, cycle: Cycle, work: Work, reading: signals.Reading, error: MetricsError) -> None:
        cycle.faulty.add(reading.name)
        signal = f"metrics.signals.{reading.name}" if reading.own else f"the signal {reading.name}"
        for policy in sorted({tracked.policy.name for tracked in work.tracked.values()}):
            detail = f"{signal} of policy {policy} is missing: {self._api.address} {error.text}"
            cycle.problems[Problem(_SOURCE, Trouble.SIGNAL_UNAVAILABLE, detail)] = None

    def _publish(self, measured_at: datetime | None, problems: tuple[Problem, ...]) -> None:
        every_s = self._survey.scrape_interval_s if self._survey.interval_known else None
        doubt, doubts = self._survey.ambiguous, self._survey.disputed
        histories = {
            container: doubt or doubts.get(container) or tracked.history or tracked.gap
            for container, tracked in self._tracked.items()
        }
        published, moved = MappingProxyType(histories), self._survey.moved
        self._latest = Measurements(measured_at, published, NOT_YET, problems, self._in_use, every_s, moved)

    async def _call(self, function: Callable[..., T], *args: object) -> T:
        async with self._slots:
            return await in_thread(retried, function, *args)
