"""The real clock, in real time of some milliseconds."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

from autoscaler.adapters.clock import RealClock
from autoscaler.core.model import PodRef
from autoscaler.ports import Wake, WakeKind

A, B = PodRef("sim", "a"), PodRef("sim", "b")
EPOCH = datetime(2026, 11, 29, tzinfo=UTC)
LONG = timedelta(hours=1)


def now() -> datetime:
    """The API server's time: it runs with ours, but says something else."""
    return EPOCH + timedelta(seconds=time.monotonic())


async def waited(clock: RealClock, until: datetime | None = None) -> tuple[Wake, float]:
    started = time.monotonic()
    async with asyncio.timeout(5):
        wake = await clock.wait(until)
    return wake, time.monotonic() - started


async def test_it_ticks_every_interval_and_makes_up_for_nothing() -> None:
    clock = RealClock(timedelta(seconds=0.1), now)
    wake, took = await waited(clock)
    assert wake == Wake(WakeKind.TICK)
    assert took >= 0.09
    await asyncio.sleep(0.35)  # a turn that lasts several intervals
    assert (await waited(clock))[1] < 0.05
    assert (await waited(clock))[1] >= 0.09


async def test_changes_are_gathered() -> None:
    clock = RealClock(LONG, now)
    clock.changed(A)
    asyncio.get_running_loop().call_later(0.05, clock.changed, B)
    wake, took = await waited(clock)
    assert wake == Wake(WakeKind.CHANGED, frozenset({A, B}))
    assert 0.09 <= took < 1


async def test_a_change_during_a_wait_ends_it() -> None:
    clock = RealClock(LONG, now)
    asyncio.get_running_loop().call_later(0.02, clock.changed, A)
    assert (await waited(clock))[0].pods == {A}


async def test_a_tick_is_about_everything_so_changes_are_forgotten() -> None:
    clock = RealClock(timedelta(seconds=0.05), now)
    clock.changed(A)
    assert (await waited(clock))[0].kind is WakeKind.TICK
    assert (await waited(clock))[0].kind is WakeKind.TICK


async def test_a_deadline_is_in_the_servers_time() -> None:
    clock = RealClock(LONG, now)
    wake, took = await waited(clock, now() + timedelta(seconds=0.15))
    assert wake == Wake(WakeKind.DEADLINE)
    assert 0.14 <= took < 1


async def test_a_deadline_that_cannot_be_met_does_not_spin() -> None:
    clock = RealClock(LONG, now)
    overdue = now() - timedelta(minutes=1)
    assert (await waited(clock, overdue))[1] < 0.5
    assert (await waited(clock, overdue))[1] >= 0.9


async def test_deadlines_one_after_the_other_are_all_kept() -> None:
    clock = RealClock(LONG, now)
    for _ in range(5):
        wake, took = await waited(clock, now() + timedelta(milliseconds=20))
        assert wake == Wake(WakeKind.DEADLINE)
        assert took < 0.5


async def test_a_moment_is_waited_for_whatever_else_happens() -> None:
    clock = RealClock(timedelta(milliseconds=10), now)
    clock.changed(A)
    started = time.monotonic()
    await clock.until(now() + timedelta(seconds=0.1))
    assert 0.09 <= time.monotonic() - started < 1
    await clock.until(now() - timedelta(seconds=1))


async def test_changes_survive_a_deadline() -> None:
    clock = RealClock(LONG, now)
    clock.changed(A)
    assert (await waited(clock, now()))[0].kind is WakeKind.DEADLINE
    assert (await waited(clock))[0].pods == {A}


async def test_stop_ends_this_wait_and_every_other() -> None:
    clock = RealClock(LONG, now)
    asyncio.get_running_loop().call_later(0.02, clock.stop)
    assert (await waited(clock))[0].kind is WakeKind.STOP
    clock.changed(A)
    assert (await waited(clock))[0].kind is WakeKind.STOP


async def test_a_tick_asked_for_comes_at_once_and_starts_the_interval_anew() -> None:
    clock = RealClock(timedelta(seconds=0.3), now)
    asyncio.get_running_loop().call_later(0.05, clock.tick)
    wake, took = await waited(clock)
    assert wake == Wake(WakeKind.TICK)
    assert took < 0.25
    assert (await waited(clock))[1] >= 0.25
