"""The users' sessions on pods that are going to be moved: the `Sessions` port.

One task looks every few seconds: at queries, for all pods of a namespace at once, and at the pods themselves. What is
published is immutable. A gate is open when pods have said twice in a row that they have no sessions, or Prometheus for
a minute; everything else keeps it closed.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from types import MappingProxyType

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.ranges import MOST_PODS
from autoscaler.adapters.prometheus.session import PrometheusApi
from autoscaler.adapters.prometheus.thread import in_thread
from autoscaler.adapters.prometheus.traffic import Traffic
from autoscaler.adapters.sessions.gates import Reading, of_series
from autoscaler.adapters.sessions.http import TIMEOUT_S, PodHttp
from autoscaler.adapters.sessions.notices import Notices, Told
from autoscaler.adapters.sessions.query import ClusterUnknown, asked, matchers_for, names_namespace
from autoscaler.core.history import Gap
from autoscaler.core.model import PodRef, Problem
from autoscaler.core.plan import Drain, Gate
from autoscaler.core.policy import PodEndpoint
from autoscaler.ports import Cluster, Unavailable

LOOKS = 2
"""In a row in which a pod has no sessions, before its gate is open: one that flaps stays closed."""

QUIET_S = 60.0
"""For how long all looks at a query have to find no sessions, before its gate is open: two scrapes of 30 s. Looks are
closer together than scrapes, so that several may see the same sample."""

_INTERVAL_S = 5.0
_QUERIES_AT_ONCE = 4
_QUERY_TIMEOUT_S = 5.0
_MOST_WORDS = 300


@dataclass(slots=True, eq=False)
class _Followed:
    """A pod that is followed. `empty`: looks in a row that found no sessions, for `quiet_s` by now. `looked_s`: when
    the last look began, `apart_s` after the one before it."""

    drain: Drain
    empty: int = 0
    quiet_s: float = 0
    looked_s: float = float("-inf")
    apart_s: float = 0
    state: str = ""
    gate: Gate | None = None


class PodSessions:
    """`ports.Sessions` over a Prometheus and the pods themselves.

    `cluster` is asked whether a pod that is to be called off is still there. `now`: the API server's time.
    `of_cluster`: the matchers that select this cluster's series in Prometheus, or why they are not known. `chosen`:
    those by which settings choose one of several clusters. `changed` hears of each pod of which something else is known
    than before, and of each that was told to take no new sessions; of another number it does not. `told` hears of each
    notice, and `warn` of what a pod could not be told. All methods belong to one event loop.
    """

    def __init__(
        self,
        prometheus: Access,
        cluster: Cluster,
        *,
        now: Callable[[], datetime],
        of_cluster: Callable[[], tuple[str, ...] | Gap] = tuple,
        changed: Callable[[PodRef], None] = lambda pod: None,
        warn: Callable[[Problem], None] = lambda problem: None,
        told: Callable[[Told], None] = lambda notice: None,
        interval_s: float = _INTERVAL_S,
        pod_timeout_s: float = TIMEOUT_S,
        query_timeout_s: float = _QUERY_TIMEOUT_S,
        monotonic: Callable[[], float] = time.monotonic,
        chosen: tuple[str, ...] = (),
        traffic: Traffic | None = None,
    ) -> None:
        access = replace(prometheus, timeout_s=min(query_timeout_s, prometheus.timeout_s))
        self._api = PrometheusApi(access, traffic)
        self._http = PodHttp(pod_timeout_s)
        self._cluster = cluster
        self._now = now
        self._of_cluster = of_cluster
        self._chosen = chosen
        self._changed = changed
        self._interval_s = interval_s
        self._monotonic = monotonic
        self._notices = Notices(self._http, now, warn, told)
        self._telling = False
        self._followed: dict[PodRef, _Followed] = {}
        self._latest: Mapping[PodRef, Gate] = MappingProxyType({})
        self._queries = asyncio.Semaphore(_QUERIES_AT_ONCE)
        self._fresh = asyncio.Event()

    def follow(self, drains: Mapping[PodRef, Drain], *, telling: bool) -> None:
        """Look at these pods from now on; what is known of any other is dropped. Returns at once."""
        before, self._followed = self._followed, {}
        for ref, drain in drains.items():
            one = before.get(ref)
            if one is None or _asked_of(one.drain) != _asked_of(drain):
                one = _Followed(drain)
                self._fresh.set()
            one.drain = drain
            self._followed[ref] = one
        self._telling = telling
        if telling:
            self._notices.follow(drains.values())
            if self._notices.fresh():
                self._fresh.set()
        else:
            self._notices.forget()
        self._publish()

    def latest(self) -> Mapping[PodRef, Gate]:
        """What is known of the pods that are followed. Never waits."""
        return self._latest

    async def look_once(self) -> None:
        """Look at every pod, and tell those that are to be told. Failures are in the gates, never raised."""
        await self._look(self._followed.values())
        await self._tell(again=True)

    async def run(self) -> None:
        """Look for ever: at all pods every interval, and at once at those that are new."""
        next_s = self._monotonic()
        while True:
            self._fresh.clear()
            began_s = self._monotonic()
            if regular := began_s >= next_s:
                next_s = began_s + self._interval_s
            # two looks in a row are to be apart: what was new a moment ago waits for the next one
            await self._look([f for f in self._followed.values() if f.looked_s <= began_s - self._interval_s / 2])
            await self._tell(again=regular)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, next_s - self._monotonic())):
                    await self._fresh.wait()

    async def close(self) -> None:
        """Close connections. Nobody is told anything: another replica goes on."""
        self._api.close()
        await self._http.close()

    async def _look(self, pods: Iterable[_Followed]) -> None:
        began_s, now = self._monotonic(), self._now()
        # a process that stood still for a minute has seen nothing of it
        longest_s = 2 * self._interval_s
        by_query: dict[tuple[str, str], list[_Followed]] = defaultdict(list)
        async with asyncio.TaskGroup() as tasks:
            for one in pods:
                one.apart_s, one.looked_s = min(began_s - one.looked_s, longest_s), began_s
                how = one.drain.how
                if how.query is not None:
                    by_query[how.query, one.drain.pod.namespace].append(one)
                elif how.endpoint is not None:
                    tasks.create_task(self._ask_pod(one, how.endpoint, now))
            for (query, namespace), group in by_query.items():
                left = iter(group)
                while part := list(islice(left, MOST_PODS)):
                    tasks.create_task(self._ask_prometheus(query, namespace, part, now))

    async def _ask_pod(self, one: _Followed, endpoint: PodEndpoint, now: datetime) -> None:
        self._learn(one, await self._http.count(one.drain.ip, endpoint), now)

    async def _ask_prometheus(self, query: str, namespace: str, pods: list[_Followed], now: datetime) -> None:
        names, source = [one.drain.pod.name for one in pods], self._api.address
        failure, found = None, {}
        try:
            which = matchers_for(query, self._of_cluster(), self._chosen)
            async with self._queries:
                answer = await in_thread(self._api.instant, asked(query, namespace, names, which))
        except ClusterUnknown as error:
            failure = Reading.unknown("cluster", f"{source}: {error}"[:_MOST_WORDS])
        except MetricsError as error:
            failure = Reading.unknown(error.error_type, f"{source} {error.text}"[:_MOST_WORDS])
        else:
            if answer.missing:  # where series are missing the greatest may be, too
                failure = Reading.unknown("partial", f"{source} left data out: {answer.missing[0]}"[:_MOST_WORDS])
            found = of_series(answer.result, namespace, names, source, namespaced=names_namespace(query))
        for one in pods:
            self._learn(one, failure or found[one.drain.pod], now)

    def _learn(self, one: _Followed, reading: Reading, now: datetime) -> None:
        ref = one.drain.pod
        if self._followed.get(ref) is not one:
            return
        if reading.sessions == 0:
            one.quiet_s += one.apart_s if one.empty else 0
            one.empty += 1
        else:
            one.empty, one.quiet_s = 0, 0
        by_query = one.drain.how.query is not None
        is_open = one.quiet_s >= QUIET_S if by_query else one.empty >= LOOKS
        before, one.state = one.state, f"{reading.kind}, {is_open}"
        detail = reading.detail
        if one.empty and not is_open:
            detail += f" for {int(one.quiet_s)} s of {QUIET_S:g} s" if by_query else ", if the next look agrees"
        one.gate = Gate(one.drain.uid, is_open, detail, now, known=reading.sessions is not None)
        self._publish()
        if one.state != before:
            self._changed(ref)

    def _publish(self) -> None:
        self._latest = MappingProxyType(
            {
                ref: replace(one.gate, told_at=self._notices.told_at(one.drain))
                for ref, one in self._followed.items()
                if one.gate is not None
            }
        )

    async def _tell(self, *, again: bool) -> None:
        there = None
        if self._notices.orphaned:
            with suppress(Unavailable):
                pods = (await self._cluster.observe()).pods
                there = {(ref, pod.uid, pod.ip) for ref, pod in pods.items() if not pod.deleting}
        before = {ref for ref, gate in self._latest.items() if gate.told_at is None}
        await self._notices.send(there, again=again)
        self._publish()
        for ref, gate in self._latest.items():
            if gate.told_at is not None and ref in before:
                self._changed(ref)


def _asked_of(drain: Drain) -> tuple[object, ...]:
    """What a reading depends on."""
    return drain.uid, drain.ip, drain.how.query, drain.how.endpoint
