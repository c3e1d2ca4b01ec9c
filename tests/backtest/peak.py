"""`peak1h` and `peak6h` of the published baselines, twice: as a recommender, and replayed by a plain loop."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.model import Resource
from autoscaler.core.recommender import EMPTY, Recommender, Samples, Situation, Target

MARGIN = 1.15
LEAST_CPU = 0.01


class Past(NamedTuple):
    """The window, and the newest kill with the size that it calls for."""

    window: Samples
    kill: tuple[datetime, float] | None = None


class Peak(Recommender[Samples]):
    """The greatest usage of some hours and 15 %; after an OOM kill a fifth more than the limit then, for an hour."""

    name = "peak"
    Parameters = dict

    def __init__(self, hours: int, resource: Resource) -> None:
        super().__init__({})
        self._seconds = hours * 3600
        self._resource = resource
        self._killed: tuple[datetime, float] | None = None  # a replay turns in order, so this may be remembered here

    def start(self) -> Samples:
        return EMPTY

    def fold(self, state: Samples, samples: Samples, block_s: int) -> Samples:
        joined = state + samples
        return joined.after(int(joined.end_at[-1]) - self._seconds)

    def recommend(self, state: Samples, situation: Situation) -> Target:
        amounts = situation.in_force.requests
        if self._resource is Resource.CPU:
            size, least, usage = (amounts.cpu or 0) / 1000, LEAST_CPU, state.cpu
        else:
            size, least, usage = float(amounts.memory or 0), self._floor(situation, amounts.memory or 0), state.memory
        wanted = max(MARGIN * float(usage.max()), least)
        if 0.9 * size <= wanted <= 1.02 * size:
            return Target(None, None)
        return Target(wanted, None) if self._resource is Resource.CPU else Target(None, wanted)

    def _floor(self, situation: Situation, size: float) -> float:
        kill = situation.oom_kill
        if kill is None:
            return 0.0
        if self._killed is None or self._killed[0] != kill.finished_at:
            self._killed = kill.finished_at, max(1.2 * size, size + 100 * 2**20)
        at, floor = self._killed
        return floor if situation.now - at < timedelta(hours=1) else 0.0


def replayed(demand: NDArray[np.float64], start: float, hours: int, resource: Resource, *, soft: bool) -> list[float]:
    """The limits that come of it, minute by minute, after the published rules of replay."""
    limits, seen, size = list[float](), list[float](), start
    floor, until = 0.0, -1
    for minute, wanted in enumerate(demand.tolist()):
        limits.append(size)
        seen.append(wanted if soft else min(wanted, size))
        if resource is Resource.MEMORY and wanted > size:
            floor, until = max(1.2 * size, size + 100 * 2**20), minute + 60
        if minute < 59:
            continue
        peak = MARGIN * max(seen[-hours * 60 :])
        peak = max(peak, LEAST_CPU) if resource is Resource.CPU else max(peak, floor if minute < until else 0)
        if (peak > 1.02 * size or peak < 0.9 * size) and (resource is Resource.CPU or peak > seen[-1]):
            size = peak
    return limits
