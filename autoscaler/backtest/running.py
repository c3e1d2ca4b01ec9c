"""From a trace and a recommender to an outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np

from autoscaler.backtest import oracles
from autoscaler.backtest.comparing import Counterfactual, against
from autoscaler.backtest.demand import Demand, Replayed, ReplayError, demand_of
from autoscaler.backtest.modelled import Room, container_of
from autoscaler.backtest.replay import Progress, Replay, neutral, replay, replay_policy
from autoscaler.backtest.scoring import Scores, score
from autoscaler.core.model import Container, Resource
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Recommender
from autoscaler.recommenders.parameters import format_duration
from autoscaler.traces.trace import Column, Trace

OBSERVED_S = 3600
"""What passes at the start of a trace before anything is decided, if that much is not scored."""

ORACLE_S = 3600
"""The shortest time for which the oracle beside the scores keeps a limit."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What is replayed, and how.

    `soft`: CPU is requested and not limited. `closed`: what is wanted depends on what there was (pressure.py). `today`:
    the size that runs now, in cores or bytes, with which a replay begins; None: twice the peak of the first hour.
    `requested`: what is reserved today, if that is not the same. `paced`: look for the oracle that changes as often as
    who is replayed, too, which takes a while.
    """

    replayed: Replayed
    interval_s: int = 60
    warmup_s: int = 3600
    soft: bool = False
    closed: bool = False
    today: float | None = None
    requested: float | None = None
    paced: bool = False

    def idle(self, demand: Demand) -> int:
        """The turns at the start in which nothing is decided."""
        return min(self.warmup_s, OBSERVED_S) // demand.interval_s

    def unscored(self, demand: Demand) -> int:
        """The samples at the start that are not scored."""
        return self.warmup_s // demand.step_s


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """How one trace went. `oracle_slack_percent`: of the least that could have been reserved with one change an hour;
    `paced_slack_percent`: with as many changes as there were, None if that was not looked for.

    `demand` and `replay`: of which these are the figures.
    """

    trace: str
    scores: Scores
    oracle_slack_percent: float
    today: Counterfactual
    demand: Demand
    replay: Replay
    paced_slack_percent: float | None = None

    @property
    def held(self) -> Mapping[Reason, int]:
        """In how many turns nothing was changed, by reason."""
        return self.replay.held


def demand_for(trace: Trace, terms: Terms) -> Demand:
    """The demand of a trace on these terms. Raises `ReplayError`, naming the trace."""
    try:
        demand = demand_of(trace, terms.replayed, terms.interval_s, terms.today)
    except ReplayError as error:
        raise ReplayError(f"trace {trace.name} {error}") from None
    if len(demand.values) <= terms.unscored(demand):
        lasts = format_duration(timedelta(seconds=len(demand.values) * demand.step_s))
        raise ReplayError(f"trace {trace.name} lasts {lasts}, which is all warm-up; give a shorter --warmup")
    if not np.isfinite(demand.values[terms.unscored(demand) :]).any():
        column = terms.replayed.column
        raise ReplayError(f"trace {trace.name} has no {column} after the warm-up; give a shorter --warmup")
    return demand


def run(trace: Trace, recommender: Recommender[Any], terms: Terms, progress: Progress | None = None) -> Outcome:
    """Replay and score one trace. Raises `ReplayError`."""
    demand = demand_for(trace, terms)
    return judged(demand, run_on(demand, recommender, terms, progress), terms)


def run_on(demand: Demand, recommender: Recommender[Any], terms: Terms, progress: Progress | None = None) -> Replay:
    """Replay one demand, neutrally."""
    policy = neutral(recommender, demand)
    return replay(demand, policy, soft=terms.soft, closed=terms.closed, idle=terms.idle(demand), progress=progress)


def run_policy(trace: Trace, policy: Policy, terms: Terms, room: Room, progress: Progress | None = None) -> Outcome:
    """Replay a trace under a whole policy, with both resources as far as they are recorded and controlled, and score
    one of them. Raises `ReplayError`."""
    demands = policy_demands(trace, policy, terms)
    replays = replay_policy(
        demands,
        policy,
        room,
        timedelta(seconds=terms.interval_s),
        soft=terms.soft,
        closed=terms.closed,
        idle=timedelta(seconds=min(terms.warmup_s, OBSERVED_S)),
        progress=progress,
    )
    resource = terms.replayed.resource
    return judged(demands[resource], replays[resource], terms)


def policy_demands(trace: Trace, policy: Policy, terms: Terms) -> Mapping[Resource, Demand]:
    """What a policy is replayed on. Raises `ReplayError`."""
    if terms.replayed is Replayed.GPU_MEMORY:
        raise ReplayError("a policy sizes cpu and memory; replay gpu_memory with --recommender")
    entry = policy.container_policy(Container(container_of(policy).container))
    controlled = frozenset[Resource]() if entry is None else entry.controlled
    if terms.replayed.resource not in controlled:
        raise ReplayError(f"policy {policy.name} leaves {terms.replayed.value} alone; see its controlledResources")
    each = replace(terms, interval_s=policy.grid.step)
    demands = {terms.replayed.resource: demand_for(trace, each)}
    for other in (Replayed.CPU, Replayed.MEMORY):
        if other is not terms.replayed and other.resource in controlled and other.column in trace.columns:
            demands[other.resource] = demand_for(trace, replace(each, replayed=other, today=None, requested=None))
    return demands


def judged(demand: Demand, replayed: Replay, terms: Terms) -> Outcome:
    """The figures of a replay."""
    kills, unscored = terms.replayed is not Replayed.CPU, terms.unscored(demand)
    values, limit = replayed.wanted, replayed.limit
    scored = values[unscored:]
    known = scored[scored == scored]
    best = oracles.with_pieces(known, max(1, ORACLE_S // demand.step_s))
    # a request alone makes no frame late
    frames_ms = None if kills or terms.soft else demand.of(Column.FRAME_TIME)
    scores = score(values, limit, demand.step_s, unscored, kills=kills, frames_ms=frames_ms)
    paced = oracles.with_changes(known, scores.resizes, demand.step_s).slack_percent(known) if terms.paced else None
    return Outcome(
        demand.name,
        scores,
        best.slack_percent(known),
        against(
            demand.values,
            limit,
            demand.start,
            demand.step_s,
            unscored,
            kills=kills,
            reserved_size=terms.requested,
            frames_ms=frames_ms,
        ),
        demand,
        replayed,
        paced,
    )
