"""From traces and recommenders to scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler.backtest.demand import Demand, Replayed, ReplayError, demand_of
from autoscaler.backtest.replay import Progress, Replay, neutral, replay
from autoscaler.backtest.scoring import Scores, score
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Recommender
from autoscaler.traces.trace import Trace

OBSERVED_S = 3600
"""What passes at the start of a trace before anything is decided, if that much is not scored."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What is replayed, and how."""

    replayed: Replayed
    interval_s: int = 60
    warmup_s: int = 3600
    soft: bool = False

    def idle(self, demand: Demand) -> int:
        """The turns at the start in which nothing is decided."""
        return min(self.warmup_s, OBSERVED_S) // demand.interval_s

    def unscored(self, demand: Demand) -> int:
        """The samples at the start that are not scored."""
        return self.warmup_s // demand.step_s


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one trace went."""

    trace: str
    scores: Scores
    held: Mapping[Reason, int]
    first_hold: Mapping[Reason, str]


def demand_for(trace: Trace, terms: Terms) -> Demand:
    """The demand of a trace on these terms. Raises `ReplayError`, naming the trace."""
    try:
        demand = demand_of(trace, terms.replayed, terms.interval_s)
    except ReplayError as error:
        raise ReplayError(f"trace {trace.name} {error}") from None
    if len(demand.values) <= terms.unscored(demand):
        hours = len(demand.values) * demand.step_s / 3600
        raise ReplayError(f"trace {trace.name} lasts {hours:g} h, which is all warm-up; give a shorter --warmup")
    return demand


def run(trace: Trace, recommender: Recommender[Any], terms: Terms, progress: Progress | None = None) -> Outcome:
    """Replay and score one trace. Raises `ReplayError`."""
    demand = demand_for(trace, terms)
    replayed = run_on(demand, recommender, terms, progress)
    kills = terms.replayed is not Replayed.CPU
    scores = score(demand.values, replayed.limit, demand.step_s, terms.unscored(demand), kills=kills)
    return Outcome(trace.name, scores, replayed.held, replayed.first_hold)


def run_on(demand: Demand, recommender: Recommender[Any], terms: Terms, progress: Progress | None = None) -> Replay:
    """Replay one demand."""
    policy = neutral(recommender, demand)
    return replay(demand, policy, soft=terms.soft, idle=terms.idle(demand), progress=progress)
