"""Who is best: the least slack among those that starve nobody and leave the API server in peace. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.scoring import Scores

ALLOWED: Mapping[Replayed, float] = {Replayed.CPU: 1.0, Replayed.MEMORY: 0.4, Replayed.GPU_MEMORY: 1.0}
"""Time throttled in percent, or OOM episodes a day, that a mean may have to be ranked."""

CHANGES = 24.0
"""Resizes a day that it may have."""


def harm(scores: Scores, replayed: Replayed) -> float:
    """What `ALLOWED` is about."""
    return scores.throttled_percent if replayed is Replayed.CPU else scores.oom_per_day


def ranked(means: Mapping[str, Scores], replayed: Replayed) -> list[str]:
    """Who meets the bounds, by slack, then by name."""
    good = [name for name, each in means.items() if harm(each, replayed) <= ALLOWED[replayed]]
    return sorted(
        (name for name in good if means[name].resizes_per_day <= CHANGES),
        key=lambda name: (means[name].slack_percent, name),
    )
