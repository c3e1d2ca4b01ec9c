"""Virtual time for the loop: waiting makes the simulated cluster move on."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from autoscaler.ports import Wake, WakeKind
from autoscaler.simulator.cluster import SimulatedCluster

_COALESCING = timedelta(milliseconds=100)
_BETWEEN_DEADLINES = timedelta(seconds=1)  # one that cannot be met, as while the cluster is out of sight, must not spin


class VirtualClock:
    """`ports.Clock` over a simulated cluster.

    Ticks every `interval`, stops at `ends_at`. `pace`: virtual seconds per real second; None runs as fast as it can.
    """

    def __init__(
        self, cluster: SimulatedCluster, interval: timedelta, ends_at: datetime, pace: float | None = None
    ) -> None:
        self._cluster = cluster
        self._interval = interval
        self._ends_at = ends_at
        self._pace = pace
        self._next_tick = cluster.now + interval
        self._missed: datetime | None = None  # the deadline that ended a wait last, and when it may do so again
        self._next_deadline = cluster.now
        self._virtual_start = cluster.now
        self._real_start: float | None = None
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """The next wake, or the one waited for, is STOP."""
        self._stopping.set()

    async def wait(self, until: datetime | None) -> Wake:
        """Move the cluster on to the tick, a change or `until`, whichever comes first."""
        due_at = until
        if until is not None and until == self._missed:
            due_at = max(until, self._next_deadline)
        while True:
            target = min(self._next_tick, self._ends_at, due_at or self._ends_at)
            step = min(target, self._cluster.next_event_at)
            await self._keep_pace(step)
            if self._stopping.is_set():
                return Wake(WakeKind.STOP)
            changed = self._cluster.advance(step)
            if changed and step < self._next_tick:
                changed |= self._cluster.advance(min(step + _COALESCING, self._next_tick, self._ends_at))
            now = self._cluster.now
            if now >= self._ends_at:
                return Wake(WakeKind.STOP)
            if now >= self._next_tick:
                self._next_tick += self._interval
                return Wake(WakeKind.TICK)
            if changed:
                return Wake(WakeKind.CHANGED, changed)
            if due_at is not None and now >= due_at:
                self._missed, self._next_deadline = until, now + _BETWEEN_DEADLINES
                return Wake(WakeKind.DEADLINE)

    async def until(self, moment: datetime) -> None:
        """For ever: no virtual time passes during a turn."""
        await asyncio.Event().wait()

    async def _keep_pace(self, virtual: datetime) -> None:
        """Sleep until it is time for this virtual moment, or until stopped."""
        if self._pace is None:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        if self._real_start is None:
            self._real_start = loop.time()
        due = self._real_start + (virtual - self._virtual_start).total_seconds() / self._pace
        try:
            async with asyncio.timeout_at(due):
                await self._stopping.wait()
        except TimeoutError:
            return
