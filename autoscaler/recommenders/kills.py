"""What an OOM kill says about the memory that is needed: how much there was when it happened. Pure.

A kill is one event, known by its time. Its limit is that of its time, never the one in force now, which may have been
raised for this very kill: however often it is seen, it raises once.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Signal, Situation, Step
from autoscaler.core.units import Bytes
from autoscaler.recommenders.parameters import (
    Duration,
    MemoryAmount,
    Parameters,
    Ratio,
    bounded,
    format_duration,
)
from autoscaler.recommenders.usage import amount, known

Limits = tuple[tuple[int, float], ...]
"""Since when (unix seconds) which memory limit (bytes), oldest first."""

_MOST_LIMITS = 64


class KillParameters(Parameters):
    """What follows from an OOM kill: memory is not less than it was then, and some more, for a while."""

    hold: Annotated[Duration, bounded(timedelta(0), timedelta(hours=2))] = Field(
        timedelta(hours=1), description="How long after an OOM kill memory is held up; 0s: not at all."
    )
    bump: Ratio = Field(0.2, description="What is added to the limit at the kill.")
    least_bump: MemoryAmount = Field(Bytes(100 << 20), description="The least that is added to it.")


def raised(used: float, share: float, least: float) -> float:
    """What a kill at so many bytes stands for: a share more, and at least so many bytes more."""
    return max(used + least, used * (1 + share))


def limits_after(before: Limits, at: NDArray[np.int64], limit: NDArray[np.float32]) -> Limits:
    """The limits with those of further samples, as far as they are known: the newest 64 changes."""
    fresh: list[tuple[int, float]] = []
    last = before[-1][1] if before else None
    for end_at, value in zip(at.tolist(), limit.tolist(), strict=True):
        if value != last and value > 0:  # NaN compares false
            fresh.append((end_at, value))
            last = value
    return (*before, *fresh)[-_MOST_LIMITS:] if fresh else before


def limit_at(limits: Limits, instant: int) -> float | None:
    """The limit at an instant, as far as it is known."""
    return next((limit for since, limit in reversed(limits) if since <= instant), None)


def killed_with(situation: Situation) -> tuple[int, float] | None:
    """When the newest kill was (unix seconds), and the memory in bytes that was too little: the limit at that time, or
    the greatest usage around it where the limit is not known. None: no kill, or too old for the recent samples."""
    kill = situation.oom_kill
    if kill is None:
        return None
    at = int(kill.finished_at.timestamp())
    recent = situation.recent
    # the sample that was running at the kill, and the one before it; a limit is raised later than that
    last = int(recent.end_at.searchsorted(at))
    around = recent[max(last - 1, 0) : last + 1]
    if not len(around) or around.end_at[-1] < at - situation.sample_s:
        return None
    limit, usage = around.signal(Signal.MEMORY_LIMIT), around.memory
    limits, usages = limit[known(limit, Resource.MEMORY)], usage[known(usage, Resource.MEMORY)]
    used = max(float(limits[-1]) if len(limits) else 0.0, float(usages.max()) if len(usages) else 0.0)
    return (at, used) if used > 0 else None


def held_up(situation: Situation, rule: KillParameters, memory: float | None) -> tuple[float | None, tuple[Step, ...]]:
    """Memory in bytes, and while a kill is recent no less than follows from it, with the step that says so."""
    if memory is None or not rule.hold:
        return memory, ()
    found = killed_with(situation)
    if found is None or situation.now.timestamp() - found[0] >= rule.hold.total_seconds():
        return memory, ()
    used = found[1]
    least = math.ceil(raised(used, rule.bump, rule.least_bump))
    if memory >= least:
        return memory, ()
    ago, at = format_duration(rule.hold), Resource.MEMORY.quantity(int(used))
    because = f"killed for lack of memory at {at} less than {ago} ago"
    return float(least), (Step(Resource.MEMORY, "oomKill", amount(Resource.MEMORY, memory), least, because, cap=True),)
