"""Budgets over many turns, on kubelets that answer by themselves, with a controller that is replaced at any turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.actions import AskKind
from autoscaler.core.history import ContainerRef, Measurements
from autoscaler.core.model import PodRef, Resource
from autoscaler.core.policy import Budgets, Config, Fallback, FallbackAction, Policy
from autoscaler.core.preconditions import unavailable
from autoscaler.core.resize import PENDING
from autoscaler.loop import Loop
from autoscaler.ports import Turn, Wake, WakeKind
from autoscaler.simulator.clock import VirtualClock
from autoscaler.simulator.cluster import SimulatedCluster
from tests import build
from tests.simulator.builders import START, both, cluster, container, node, pod

TURN = timedelta(seconds=10)
TURNS = 60
RESTARTS = frozenset({Resource.CPU})


class Bridge(NamedTuple):
    """A pod with 1 core; what it wants at first and later, in cores."""

    workload: int
    node: int
    restarts: bool
    wants: tuple[int, int]
    priority: int = 0

    def wanted(self, turn: int) -> int:
        return self.wants[0] if turn < TURNS // 2 else self.wants[1]


@dataclass
class Wishes:
    """Metrics whose histories say at once what each pod wants."""

    now: datetime
    cores: Mapping[PodRef, int]

    def follow(self, wanted: Mapping[ContainerRef, Policy]) -> None:
        """Everything is known already."""

    def latest(self) -> Measurements:
        age_s = 60 - int((self.now - build.NOW).total_seconds())
        return Measurements(
            self.now,
            {
                ContainerRef(*ref, "app"): build.history(state=build.target(str(cores), "1Gi"), age_s=age_s)
                for ref, cores in self.cores.items()
            },
        )


class Silent:
    def record(self, turn: Turn) -> None:
        """Nobody listens."""


class World:
    """Bridges on two nodes, turns every ten seconds, and what was asked for at which."""

    def __init__(self, bridges: list[Bridge], cpu: tuple[int, int], config: Config) -> None:
        pods = [
            replace(
                pod(
                    f"b{index}",
                    container(both("1", "1Gi"), restart_on=RESTARTS if bridge.restarts else frozenset()),
                    node=f"n{bridge.node}",
                    workload=f"StatefulSet/w{bridge.workload}",
                ),
                priority=bridge.priority,
            )
            for index, bridge in enumerate(bridges)
        ]
        here = [sum(bridge.node == index for bridge in bridges) for index in range(2)]
        nodes = [node(f"n{index}", str(here[index] + cpu[index]), "64Gi") for index in range(2)]
        self.bridges = dict(zip((each.ref for each in pods), bridges, strict=True))
        self.sim: SimulatedCluster = cluster(*pods, nodes=nodes)
        self.wishes = Wishes(START, {})
        self.config = config
        self.asked: list[tuple[int, PodRef, AskKind, int | None]] = []

    def controller(self) -> Loop:
        clock = VirtualClock(self.sim, TURN, START + timedelta(days=1))
        return Loop(self.sim, self.wishes, clock, Silent(), lambda: self.config)

    async def play(self, *, replaced_at: frozenset[int] = frozenset()) -> None:
        loop = self.controller()
        for number in range(TURNS):
            self.wishes.now = self.sim.now
            self.wishes.cores = {ref: bridge.wanted(number) for ref, bridge in self.bridges.items()}
            if number in replaced_at:
                loop = self.controller()
            turn = await loop.turn(Wake(WakeKind.TICK))
            for done in turn.done:
                action = done.decision.action
                assert action is not None
                self.asked.append((number, action.pod, action.kind, action.containers[0].change.requests.cpu))
            for _ in range(int(TURN.total_seconds())):
                self.sim.advance(self.sim.now + timedelta(seconds=1))
                await self.check()

    async def check(self) -> None:
        """What must hold at every second, whatever is asked for."""
        pods = (await self.sim.observe()).pods.values()
        waiting = Counter(each.node for each in pods if each.condition(PENDING) is not None)
        assert max(waiting.values(), default=0) <= self.config.budgets.max_in_flight_per_node
        away = Counter(each.workload for each in pods if unavailable(each))
        assert max(away.values(), default=0) <= self.config.budgets.max_disruptions_per_workload
        assert sum(away.values()) <= self.config.budgets.max_disruptions_per_namespace


def rules(action: FallbackAction = FallbackAction.REVERT, *, fit: bool = True) -> Config:
    fallback = Fallback(timedelta(seconds=60), timedelta(seconds=60), action=action, fit=fit)
    return build.config(build.policy(fallback=fallback), budgets=Budgets())


_BRIDGES = st.builds(
    Bridge,
    st.integers(0, 2),
    st.integers(0, 1),
    st.booleans(),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(0, 1),
)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(_BRIDGES, min_size=1, max_size=8),
    st.tuples(st.integers(0, 6), st.integers(0, 6)),
    st.sampled_from([FallbackAction.REVERT, FallbackAction.HOLD]),
    st.booleans(),
    st.frozensets(st.integers(0, TURNS - 1), max_size=20),
)
async def test_no_budget_is_ever_exceeded_and_a_new_controller_goes_on_alike(
    bridges: list[Bridge], cpu: tuple[int, int], action: FallbackAction, fit: bool, replaced_at: frozenset[int]
) -> None:
    one, other = (World(bridges, cpu, rules(action, fit=fit)) for _ in range(2))
    await one.play()
    await other.play(replaced_at=replaced_at)
    assert one.asked == other.asked


async def test_pods_that_restart_follow_each_other_within_minutes() -> None:
    world = World([Bridge(0, 0, True, (2, 2)) for _ in range(3)], (4, 0), rules())
    await world.play()
    turns = [number for number, *_ in world.asked]
    assert [pod.name for _, pod, *_ in world.asked] == ["b0", "b1", "b2"]
    assert turns == [0, 7, 14]  # a minute after the last one was back


async def test_on_a_full_node_pods_take_turns_in_waiting() -> None:
    world = World([Bridge(0, 0, False, (2, 2)) for _ in range(3)], (0, 0), rules(fit=False))
    await world.play()
    assert [(pod.name, kind) for _, pod, kind, _ in world.asked[:6]] == [
        ("b0", AskKind.TARGET),
        ("b0", AskKind.REVERT),
        ("b1", AskKind.TARGET),
        ("b1", AskKind.REVERT),
        ("b2", AskKind.TARGET),
        ("b2", AskKind.REVERT),
    ]
