"""Virtual time as the loop meets it."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from autoscaler.core.model import PodRef
from autoscaler.ports import Wake, WakeKind
from autoscaler.simulator.clock import VirtualClock
from tests.simulator.builders import START, ask, both, cluster, container, pod

_MINUTE = timedelta(minutes=1)


async def test_a_change_is_coalesced_then_the_deadline_then_the_tick_then_the_end() -> None:
    sim = cluster(pod("a", container(both("500m", "256Mi"))))
    sim.advance(START)
    clock = VirtualClock(sim, _MINUTE, START + 1.5 * _MINUTE)
    ask(sim, "a", both("1", None))
    a = frozenset({PodRef("sim", "a")})

    wakes = [(await clock.wait(None), (sim.now - START).total_seconds()) for _ in range(2)]
    wakes.append((await clock.wait(START + timedelta(seconds=20)), (sim.now - START).total_seconds()))
    wakes.append((await clock.wait(START + timedelta(minutes=5)), (sim.now - START).total_seconds()))
    wakes.append((await clock.wait(None), (sim.now - START).total_seconds()))

    assert wakes == [
        (Wake(WakeKind.CHANGED, a), 0.3),
        (Wake(WakeKind.CHANGED, a), 0.8),
        (Wake(WakeKind.DEADLINE), 20),
        (Wake(WakeKind.TICK), 60),
        (Wake(WakeKind.STOP), 90),
    ]


async def test_a_deadline_that_stays_overdue_does_not_stop_the_time() -> None:
    """While the cluster is out of sight a loop asks for the same moment again and again."""
    sim = cluster(pod("a", container(both("500m", "256Mi"))))
    sim.advance(START)
    clock = VirtualClock(sim, _MINUTE, START + _MINUTE)
    wakes = [await clock.wait(START) for _ in range(3)]
    assert wakes == [Wake(WakeKind.DEADLINE)] * 3
    assert sim.now == START + timedelta(seconds=2)  # the first at once


async def test_stop_ends_a_paced_wait_at_once() -> None:
    sim = cluster(pod("a", container(both("500m", "256Mi"))))
    sim.advance(START)
    clock = VirtualClock(sim, _MINUTE, START + 10 * _MINUTE, pace=0.1)
    waiting = asyncio.create_task(clock.wait(None))
    await asyncio.sleep(0.02)
    clock.stop()

    assert await asyncio.wait_for(waiting, 5) == Wake(WakeKind.STOP)
    assert sim.now == START


async def test_pace_holds_virtual_time_to_real_time() -> None:
    sim = cluster(pod("a", container(both("500m", "256Mi"))))
    sim.advance(START)
    clock = VirtualClock(sim, _MINUTE, START + 10 * _MINUTE, pace=600)
    began = time.monotonic()

    assert [(await clock.wait(None)).kind for _ in range(2)] == [WakeKind.TICK] * 2

    assert time.monotonic() - began >= 0.19
