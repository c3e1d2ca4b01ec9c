"""Runs the one loop over a recorded demand, and keeps what came of it."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.backtest.demand import Demand, Replayed
from autoscaler.backtest.modelled import Modelled, Room, as_replayed
from autoscaler.backtest.playback import CONTAINER, STARTS_AT, Playback
from autoscaler.core.actions import Evict, OutcomeKind
from autoscaler.core.model import Resource
from autoscaler.core.policy import (
    ByDirection,
    Care,
    Config,
    ContainerPolicy,
    LimitMode,
    Mode,
    Policy,
    Stability,
)
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid, Recommender
from autoscaler.core.resize import Phase, phase_of
from autoscaler.loop import Loop
from autoscaler.ports import Done, Turn, WakeKind
from autoscaler.simulator.clock import VirtualClock

_STEPS = 4320  # the most that a grid keeps one by one, so that a fold sees each sample
_FINE_S = 2 * 3600
_FREE = Stability(ByDirection(0.0, 0.0), ByDirection(1e30, 1.0), ByDirection(timedelta(0), timedelta(0)), timedelta(0))
_CARELESS = Care(whole_units=False, memory_floor=False, recovery=False)
_EVER = timedelta(days=36500)

Progress = Callable[[int], None]
"""Is told of turns that were done since it was told last."""

_TOLD_EVERY = 500


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What was in force and what was wanted at each step, and why nothing was changed, by reason and in turns.

    `first_hold`: the words of the first hold of each reason. `decisions`: how many were made, in turns and between
    them. `deferred`, `infeasible`: asks that a kubelet answered so.
    `migrations`: evictions.
    """

    limit: NDArray[np.float64]
    wanted: NDArray[np.float64]
    held: Mapping[Reason, int]
    first_hold: Mapping[Reason, str]
    deferred: int = 0
    infeasible: int = 0
    migrations: int = 0
    decisions: int = 0


def neutral(recommender: Recommender[Any], demand: Demand) -> Policy:
    """A policy that does as the recommender says: nothing bounds, delays or rounds what it wants."""
    resource = demand.replayed.resource
    if demand.replayed is Replayed.GPU_MEMORY:
        recommender = recommender.for_gpu_memory()
    return Policy(
        recommender.name,
        recommender,
        mode=Mode.RESIZE,
        containers=(ContainerPolicy(CONTAINER.container, controlled=frozenset({resource}), limits=LimitMode.EQUAL),),
        stability=_FREE,
        care=_CARELESS,
        grid=Grid(demand.interval_s, _STEPS * demand.interval_s, _FINE_S),
        rate_window=timedelta(seconds=demand.interval_s),
        min_coverage=0.0,
    )


def replay(
    demand: Demand,
    policy: Policy,
    *,
    soft: bool = False,
    closed: bool = False,
    idle: int = 1,
    progress: Progress | None = None,
) -> Replay:
    """Replay a demand under a policy. `soft`: CPU is requested and not limited. `closed`: what is wanted depends on
    what there was. `idle`: turns at the start in which nothing is decided."""
    playback = Playback(demand, policy, soft=soft, closed=closed, idle=idle)
    config = Config((policy,), recommender_patience=_EVER, max_sample_age=_EVER)
    journal = _Holds(progress)
    loop = Loop(playback, playback, playback, journal, lambda: config, aside=_at_once)
    asyncio.run(loop.run())
    return Replay(playback.limit, playback.wanted, dict(journal.held), journal.first, decisions=journal.decisions)


def replay_policy(
    demands: Mapping[Resource, Demand],
    policy: Policy,
    room: Room,
    interval: timedelta,
    *,
    soft: bool = False,
    closed: bool = False,
    idle: timedelta = timedelta(0),
    progress: Progress | None = None,
) -> Mapping[Resource, Replay]:
    """Replay demands on the simulated cluster under a whole policy, deciding every `interval`, once `idle` has
    passed."""
    policy = as_replayed(policy)
    world = Modelled(demands, policy, room, soft=soft, closed=closed)
    length = next(iter(demands.values()))
    ends_at = STARTS_AT + timedelta(seconds=length.step_s * len(length.values))
    world.cluster.advance(min(STARTS_AT + idle, ends_at))
    journal, config = _Holds(progress), Config((policy,), recommender_patience=_EVER)
    clock = VirtualClock(world.cluster, interval, ends_at)
    asyncio.run(Loop(world.cluster, world, clock, journal, lambda: config, aside=_at_once).run())
    return {
        resource: Replay(
            world.limit(resource),
            world.wanted(resource),
            dict(journal.held),
            journal.first,
            len(journal.pending[Phase.DEFERRED]),
            len(journal.pending[Phase.INFEASIBLE]),
            journal.migrations,
            journal.decisions,
        )
        for resource in demands
    }


def _evicted(done: Done) -> bool:
    return done.move and isinstance(done.decision.move, Evict) and done.outcome.kind is OutcomeKind.ACCEPTED


async def _at_once(function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    return function(*args, **named)


class _Holds:
    """`ports.Journal` that counts why nothing was done."""

    def __init__(self, progress: Progress | None) -> None:
        self.held: Counter[Reason] = Counter()
        self.first: dict[Reason, str] = {}
        self.pending: defaultdict[Phase, set[tuple[str, int]]] = defaultdict(set)
        self.migrations = self.decisions = 0
        self._progress = progress
        self._turns = 0

    def record(self, turn: Turn) -> None:
        if turn.plan is not None:
            self.decisions += len(turn.plan.decisions)
            for decision in turn.plan.decisions:
                if decision.action is None:
                    self.held[decision.reason] += 1
                    self.first.setdefault(decision.reason, decision.detail)
                if decision.pod.conditions:
                    asked = decision.pod.uid, decision.pod.generation
                    self.pending[phase_of(decision.pod).phase].add(asked)
        self.migrations += sum(_evicted(done) for done in turn.done)
        if turn.wake.kind is not WakeKind.TICK:
            return
        self._turns += 1
        if self._progress is not None and self._turns % _TOLD_EVERY == 0:
            self._progress(_TOLD_EVERY)
