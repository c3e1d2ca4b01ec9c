"""The journal that puts events on pods, where `kubectl describe pod` shows them.

Verbs: events (events.k8s.io) create; rbac/events grants exactly that. Events are an extra: nothing waits for them,
nothing is tried again, and what cannot be written is counted and forgotten.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from autoscaler.adapters.kubernetes.answers import missing_rule, read_status
from autoscaler.adapters.kubernetes.backoff import Backoff
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.errors import KubernetesError
from autoscaler.adapters.kubernetes.podevents import OUTCOMES, PodEvent
from autoscaler.core.model import Problem
from autoscaler.core.plan import Plan
from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason
from autoscaler.ports import Turn, WakeKind

_REPEATED_AFTER = timedelta(hours=1)
_WITHIN_S = 5.0  # timeout of one write

WRITTEN, KNOWN, FAILED, DROPPED = "written", "known", "failed", "dropped"


class EventJournal(Collector):
    """`ports.Journal`. `start` before and `close` after the turns; a task in between writes.

    The same event (see `PodEvent.key`) is written once an hour at most. `tell` hears once that the permission is
    missing: from then on nothing is written until the next start. `per_s`: events a second at most. `capacity`: how
    many may wait; the oldest give way. As a collector it shows what became of them.
    """

    def __init__(
        self,
        connection: Connection,
        tell: Callable[[Problem], None],
        *,
        instance: str | None = None,
        per_s: float = 10.0,
        capacity: int = 1000,
        backoff: Backoff | None = None,
    ) -> None:
        self._connection = connection
        self._tell = tell
        self._instance = instance or socket.gethostname()
        self._pause_s = 1 / per_s
        self._backoff = backoff or Backoff()
        self._waiting: asyncio.Queue[PodEvent] = asyncio.Queue(capacity)
        self._results: Counter[str] = Counter({WRITTEN: 0, KNOWN: 0, FAILED: 0, DROPPED: 0})
        self._holds: dict[str, Reason] = {}  # by uid
        self._said_at: dict[tuple[str, str, str], datetime] = {}
        self._off = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write, in a task of its own."""
        self._task = asyncio.create_task(self._write(), name="events")

    async def close(self, within_s: float = 5.0) -> None:
        """Write what is waiting, but for no longer than this; then stop."""
        if self._task is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._waiting.join()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._drop_all()

    def record(self, turn: Turn) -> None:
        if turn.plan is None or self._off:
            return
        at = turn.plan.taken_at
        events = [OUTCOMES[done.outcome.kind](done, at) for done in turn.done if done.outcome.kind in OUTCOMES]
        events += self._new_holds(turn.plan)
        self._forget(turn, at)
        for event in events if turn.leading else ():
            if event.key not in self._said_at:
                self._said_at[event.key] = at
                self._put(event)

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "bridge_autoscaler_events", "Kubernetes events, by what became of them.", labels=["result"]
        )
        for result, count in self._results.items():
            family.add_metric([result], count)
        yield family

    def _new_holds(self, plan: Plan) -> Iterator[PodEvent]:
        for decision in plan.decisions:
            uid, reason = decision.pod.uid, decision.reason
            if decision.action is not None:
                self._holds.pop(uid, None)
            elif self._holds.get(uid) is not reason:
                self._holds[uid] = reason
                if reason.notify:
                    yield PodEvent.held(decision, plan.taken_at)

    def _forget(self, turn: Turn, at: datetime) -> None:
        self._said_at = {key: said_at for key, said_at in self._said_at.items() if at - said_at < _REPEATED_AFTER}
        if turn.plan is not None and turn.wake.kind is WakeKind.TICK:
            there = {decision.pod.uid for decision in turn.plan.decisions}
            self._holds = {uid: reason for uid, reason in self._holds.items() if uid in there}

    def _put(self, event: PodEvent) -> None:
        if self._waiting.full():
            self._drop()
        self._waiting.put_nowait(event)

    def _drop(self) -> None:
        self._waiting.get_nowait()
        self._waiting.task_done()
        self._results[DROPPED] += 1

    def _drop_all(self) -> None:
        while not self._waiting.empty():
            self._drop()

    async def _write(self) -> None:
        failures = 0
        while True:
            event = await self._waiting.get()
            try:
                result = await self._send(event)
            finally:
                self._waiting.task_done()
            self._results[result] += 1
            failures = failures + 1 if result is FAILED else 0
            await asyncio.sleep(self._backoff.delay_s(failures) if failures else self._pause_s)

    async def _send(self, event: PodEvent) -> str:
        """One try. What became of it."""
        path = f"/apis/events.k8s.io/v1/namespaces/{event.pod.namespace}/events"
        try:
            answer = await self._connection.request("POST", path, body=event.body(self._instance), within_s=_WITHIN_S)
        except KubernetesError:
            return FAILED
        if answer.status == 403:
            self._switch_off(read_status(answer.body).message)
        return {201: WRITTEN, 409: KNOWN}.get(answer.status, FAILED)

    def _switch_off(self, message: str) -> None:
        # a namespace that is being deleted is a 403 as well
        rule = missing_rule(message, "rbac/events")
        if rule is not None and not self._off:
            self._off = True
            self._drop_all()
            self._tell(Problem("events", Trouble.CAPABILITY_MISSING, f"no more events are written: {rule}"))
