"""Runs the one loop over a recorded demand, and keeps what came of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.backtest.demand import Demand, Replayed
from autoscaler.backtest.playback import CONTAINER, Playback
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
from autoscaler.loop import Loop
from autoscaler.ports import Turn

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

    `first_hold`: the words of the first hold of each reason.
    """

    limit: NDArray[np.float64]
    wanted: NDArray[np.float64]
    held: Mapping[Reason, int]
    first_hold: Mapping[Reason, str]


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
        rate_window=timedelta(seconds=4 * demand.interval_s),
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
    return Replay(playback.limit, playback.wanted, dict(journal.held), journal.first)


async def _at_once(function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    return function(*args, **named)


class _Holds:
    """`ports.Journal` that counts why nothing was done."""

    def __init__(self, progress: Progress | None) -> None:
        self.held: Counter[Reason] = Counter()
        self.first: dict[Reason, str] = {}
        self._progress = progress
        self._turns = 0

    def record(self, turn: Turn) -> None:
        if turn.plan is not None:
            for decision in turn.plan.decisions:
                if decision.action is None:
                    self.held[decision.reason] += 1
                    self.first.setdefault(decision.reason, decision.detail)
        self._turns += 1
        if self._progress is not None and self._turns % _TOLD_EVERY == 0:
            self._progress(_TOLD_EVERY)
