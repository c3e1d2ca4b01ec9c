"""What a series of limits saves and costs, compared with one size that stays. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autoscaler.backtest.scoring import Scores, score

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """Today's size (cores, bytes), how it would have done, and what changes against it. `reserved`: what is reserved
    today, of which slack and hours are.

    `reserved_change_percent`: of what today's size reserves; negative is less. `oom_avoided`: OOM episodes under
    today's size in which the new limits would have been enough; `oom_caused`: the other way round.
    """

    size: float
    reserved: float
    scores: Scores
    reserved_change_percent: float
    oom_avoided: int
    oom_caused: int


def against(
    demand: Values,
    limit: Values,
    size: float,
    step_s: float,
    unscored: int = 0,
    *,
    kills: bool = True,
    reserved_size: float | None = None,
    frames_ms: Values | None = None,
) -> Counterfactual:
    """Compare limits with a size that stays, of which `reserved_size` is reserved; None: all. The first samples do not
    count, as in `score`, which says what it needs and raises."""
    today = score(demand, np.full(len(limit), size), step_s, unscored, kills=kills, frames_ms=frames_ms)
    if reserved_size is not None:
        held = score(demand, np.full(len(limit), reserved_size), step_s, unscored, kills=kills)
        today = replace(
            today,
            slack_percent=held.slack_percent,
            slack_hours=held.slack_hours,
            reserved_hours=held.reserved_hours,
        )
    wanted, given = demand[unscored:], limit[unscored:]
    hours = float(given[np.isfinite(wanted)].sum()) * step_s / 3600
    over, over_today = (wanted > given, wanted > size) if kills else (np.zeros(len(wanted), np.bool_),) * 2
    return Counterfactual(
        size,
        size if reserved_size is None else reserved_size,
        today,
        100 * (hours / today.reserved_hours - 1) if today.reserved_hours else 0.0,
        _episodes_without(over_today, over),
        _episodes_without(over, over_today),
    )


def _episodes_without(episodes: NDArray[np.bool_], other: NDArray[np.bool_]) -> int:
    """How many unbroken stretches have nothing of the other in them."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], episodes, [False])).astype(np.int8)))
    return sum(not other[first:last].any() for first, last in zip(edges[::2], edges[1::2], strict=True))
