"""The clock of the running controller: ticks, changed pods, deadlines in the API server's time, and stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from autoscaler.core.model import PodRef
from autoscaler.ports import Wake, WakeKind

_COALESCE_S = 0.1  # one change of a pod comes as several events: spec, then conditions, then sizes
_BETWEEN_DEADLINES_S = 1.0  # a deadline that cannot be met must not spin the loop


class RealClock:
    """Wakes every `interval`, the first time one interval after its making: the loop's first turn needs no clock.

    `now` gives the API server's time. Everything here belongs to one event loop; `changed` and `stop` may be called
    from its callbacks and signal handlers.
    """

    def __init__(self, interval: timedelta, now: Callable[[], datetime]) -> None:
        self._interval_s = interval.total_seconds()
        self._now = now
        self._next_tick_s = time.monotonic() + self._interval_s
        self._next_deadline_s = 0.0
        self._missed: datetime | None = None
        self._pods: set[PodRef] = set()
        self._pods_due_s = 0.0
        self._stopped = False
        self._stir = asyncio.Event()

    def changed(self, pod: PodRef) -> None:
        """Ask for a turn about this pod, 100 ms from now, together with those that follow until then."""
        if not self._pods:
            self._pods_due_s = time.monotonic() + _COALESCE_S
        self._pods.add(pod)
        self._stir.set()

    def tick(self) -> None:
        """Ask for a full turn at once; the next regular one comes an interval later."""
        self._next_tick_s = time.monotonic()
        self._stir.set()

    def stop(self) -> None:
        """From now on every wait ends at once with STOP."""
        self._stopped = True
        self._stir.set()

    async def wait(self, until: datetime | None) -> Wake:
        while (wake := self._due(until)) is None:
            self._stir.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._sleep_s(until)):
                    await self._stir.wait()
        return wake

    async def until(self, moment: datetime) -> None:
        if (left := (moment - self._now()).total_seconds()) > 0:
            await asyncio.sleep(left)
            await self.until(moment)  # the estimate of the server's time may have changed meanwhile

    def _due(self, until: datetime | None) -> Wake | None:
        now_s = time.monotonic()
        if self._stopped:
            return Wake(WakeKind.STOP)
        if now_s >= self._next_tick_s:
            self._next_tick_s = now_s + self._interval_s
            self._pods.clear()
            return Wake(WakeKind.TICK)
        if until is not None and now_s >= self._earliest_s(until) and self._now() >= until:
            self._missed, self._next_deadline_s = until, now_s + _BETWEEN_DEADLINES_S
            return Wake(WakeKind.DEADLINE)
        if self._pods and now_s >= self._pods_due_s:
            pods = frozenset(self._pods)
            self._pods.clear()
            return Wake(WakeKind.CHANGED, pods)
        return None

    def _earliest_s(self, until: datetime) -> float:
        """When a deadline may end a wait; one that already has, and is still there, only after a while."""
        return self._next_deadline_s if until == self._missed else 0.0

    def _sleep_s(self, until: datetime | None) -> float:
        now_s = time.monotonic()
        waits = [self._next_tick_s - now_s]
        if until is not None:
            waits.append(max((until - self._now()).total_seconds(), self._earliest_s(until) - now_s))
        if self._pods:
            waits.append(self._pods_due_s - now_s)
        return max(min(waits), 0.0)
