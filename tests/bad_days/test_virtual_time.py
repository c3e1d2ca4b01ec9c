"""Minutes and hours of trouble, in virtual time: a pod waits for room, and something else goes wrong."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from autoscaler.core.actions import AskKind
from autoscaler.core.model import ClusterSnapshot, Node, Pod
from autoscaler.core.policy import Config, Fallback
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import Phase, phase_of
from autoscaler.loop import Loop
from autoscaler.ports import Turn, Wake, WakeKind
from autoscaler.simulator.clock import VirtualClock
from autoscaler.simulator.cluster import SimulatedCluster
from autoscaler.simulator.metrics import SimulatedMetrics
from tests.build import Fixed, policy
from tests.properties.events import Event, History, Kind
from tests.properties.lives import Asked, Run
from tests.properties.storm import POLICY, START
from tests.properties.test_histories import Promises
from tests.simulator import builders

FULL = (Event(1, Kind.ARRIVE, "n1", 2900, 2000), Event(2, Kind.ARRIVE, "n1", 1600, 2000))
WAITS = (*FULL, Event(29, Kind.TARGET, "a", 1000, 512))
"""Node n1 is full, and at 00:30 pod a asks for half a core more."""

AFTER_S = int(POLICY.fallback.after.total_seconds())


def lived(*events: Event, forgets: bool = True) -> Run:
    promises = Promises()
    run = asyncio.run(Run(History(0, True, tuple(sorted(events))), forgets, promises).live())
    assert not promises.broken
    return run


def asked(run: Run, name: str = "a") -> list[tuple[float, AskKind]]:
    """When and what was asked of a pod, in seconds from the start."""
    return [((one.at - START).total_seconds(), one.kind) for one in run.asked if one.uid.startswith(f"{name}#")]


def stored(run: Run) -> list[Asked]:
    return sorted(run.asked, key=lambda one: (one.at, one.uid))


def test_a_resize_without_room_is_given_up_to_the_second_and_asked_again_later() -> None:
    times = asked(lived(*WAITS))
    assert times[:2] == [(30, AskKind.TARGET), (30 + AFTER_S, AskKind.REVERT)]
    again_s = 30 + AFTER_S + POLICY.fallback.retry_after.total_seconds()
    assert times[2] == (again_s, AskKind.TARGET)


@pytest.mark.parametrize("at", [29, 31, 50, 69])
def test_killed_between_any_two_steps_the_outcome_is_the_same(at: int) -> None:
    """Before, after and between: observing, measuring, each patch, recording."""
    undisturbed = stored(lived(*WAITS))
    for number in range(1, 16):
        assert stored(lived(*WAITS, Event(at, Kind.KILL, number=number))) == undisturbed


def test_restarted_more_often_than_a_deadline_is_long_it_still_falls_due() -> None:
    kills = [Event(second, Kind.KILL, number=1) for second in range(31, 120, 7)]
    assert asked(lived(*WAITS, *kills)) == asked(lived(*WAITS))


def test_away_when_a_deadline_falls_due_it_is_the_first_thing_after_the_return() -> None:
    times = asked(lived(*WAITS, Event(60, Kind.KILL, seconds=45, number=1)))
    assert times[0] == (30, AskKind.TARGET)
    kind, at = times[1][1], times[1][0]
    assert kind is AskKind.REVERT
    assert 100 <= at <= 110  # killed at the first call after 01:00, and away for 45 s


def test_deadlines_are_kept_while_prometheus_hangs() -> None:
    assert asked(lived(*WAITS, Event(35, Kind.STALE, seconds=400)))[1] == (30 + AFTER_S, AskKind.REVERT)


def test_a_deadline_survives_an_api_server_that_is_away_for_a_minute() -> None:
    times = asked(lived(*WAITS, Event(50, Kind.LOSE, seconds=60)))
    assert times[0] == (30, AskKind.TARGET)
    assert times[1][1] is AskKind.REVERT
    assert times[1][0] <= 75 + 5  # every second patch is stored, whatever is answered
    blind = asked(lived(*WAITS, Event(50, Kind.BLIND, seconds=60)))
    assert blind[1][1] is AskKind.REVERT
    assert 110 <= blind[1][0] <= 115  # soon after the cluster can be seen again


def test_a_silent_kubelet_is_waited_for_and_then_judged_by_the_same_clock() -> None:
    times = asked(lived(*WAITS, Event(30, Kind.SILENT, "n1", seconds=60)))
    assert times[0] == (30, AskKind.TARGET)
    kind, at = times[1][1], times[1][0]
    assert kind is AskKind.REVERT
    assert 90 <= at <= 91  # overdue the moment the kubelet says Deferred


def test_a_pod_deleted_while_pending_leaves_nothing_to_its_successor() -> None:
    """A StatefulSet makes it again under the same name: another uid, without deadline or patience used up."""
    run = lived(*WAITS, Event(50, Kind.DELETE, "a"))
    first = [one for one in run.asked if one.uid == "a#1"]
    second = [one for one in run.asked if one.uid == "a#2"]
    assert [one.kind for one in first] == [AskKind.TARGET]
    asks = [one for one in second if one.kind is AskKind.TARGET]
    reverts = [one for one in second if one.kind is AskKind.REVERT]
    # asks are dated to the second
    assert reverts[0].at - asks[0].at.replace(microsecond=0) == POLICY.fallback.after


class _Kept:
    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def record(self, turn: Turn) -> None:
        self.turns.append(turn)


def test_500_pods_deferred_at_once_are_given_up_at_once() -> None:
    """Each on a full node of its own. What it takes is bounded: one ask and one revert for each."""
    pods, nodes = [], []
    for index in range(500):
        size = builders.container(builders.both("1", "256Mi"))
        pods.append(builders.pod(f"p{index}", size, node=f"n{index}"))
        pods.append(replace(builders.pod(f"x{index}", size, node=f"n{index}"), namespace="others"))
        nodes.append(builders.node(f"n{index}", cpu="2"))
    sim = builders.cluster(*pods, nodes=nodes)
    wants = policy(Fixed(1.9, None), fallback=Fallback(after=timedelta(seconds=30)))
    settings = Config((replace(wants, selector=POLICY.selector),))
    clock = VirtualClock(sim, timedelta(seconds=60), builders.START + timedelta(minutes=12))
    sim.advance(builders.START + timedelta(minutes=10))
    kept = _Kept()
    started = time.monotonic()
    asyncio.run(Loop(sim, SimulatedMetrics(sim), clock, kept, lambda: settings).run())
    took = time.monotonic() - started
    done = [one for turn in kept.turns for one in turn.done]
    asks = [one for one in done if one.decision.reason is Reason.INCREASE]
    reverts = [one for one in done if one.decision.reason is Reason.REVERT]
    assert (len(done), len(asks), len(reverts)) == (1000, 500, 500)
    given_up = {turn.plan.taken_at for turn in kept.turns if turn.plan and any(d in reverts for d in turn.done)}
    assert len(given_up) == 1
    assert all(phase_of(pod).phase is Phase.SETTLED for pod in asyncio.run(sim.observe()).pods.values())
    assert took < 60


class _NodeGone(SimulatedCluster):
    """The node object is deleted, while its pods are still there."""

    gone = False

    async def observe(self) -> ClusterSnapshot:
        seen = await super().observe()
        return replace(seen, nodes={}) if self.gone else seen


@pytest.mark.parametrize("wake", [WakeKind.TICK, WakeKind.CHANGED])
async def test_a_node_that_is_gone_puts_off_no_deadline(wake: WakeKind) -> None:
    sim = _NodeGone(builders.START)
    sim.add_node(Node("n1", builders.amounts("2", "4Gi")))
    bridge: Pod = builders.pod("a", builders.container(builders.both("1", "256Mi")))
    other = replace(builders.pod("b", builders.container(builders.both("1", "256Mi"))), namespace="others")
    for each in (bridge, other):
        sim.add_pod(each, {"app": builders.demand()})
    sim.advance(builders.START + timedelta(minutes=10))
    settings = Config((replace(policy(Fixed(1.9, None)), selector=POLICY.selector),))
    kept = _Kept()
    loop = Loop(sim, SimulatedMetrics(sim), VirtualClock(sim, timedelta(hours=1), sim.now), kept, lambda: settings)
    await loop.turn(Wake(WakeKind.TICK))
    sim.advance(sim.now + timedelta(seconds=31))
    sim.gone = True
    turn = await loop.turn(Wake(wake, frozenset({bridge.ref})))
    assert [one.decision.reason for one in turn.done] == [Reason.REVERT]
