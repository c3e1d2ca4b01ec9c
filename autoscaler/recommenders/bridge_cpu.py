"""How much CPU `bridge` finds needed: the level, and how a size grows that is used up. Pure.

Under a limit usage never exceeds it: a container that is starved looks like one that has just enough. So what was used
says how much is enough only as long as it has not reached the size; from there on the size grows by a factor, again and
again, until it is no longer reached. Then usage can be believed again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from autoscaler.core.recommender import Samples, Signal
from autoscaler.recommenders.blocks import Peaks, count_of, greatest_since
from autoscaler.recommenders.bridge_parameters import CpuParameters
from autoscaler.recommenders.lowering import REMEMBERED

LEAST = 0.01
"""Cores: the least target. The kernel takes no quota below 1 ms, which is 10m of a period of 100 ms: a smaller limit
would not bind (kubernetes, pkg/kubelet/cm/helpers_linux.go, MinQuotaPeriod)."""

_IN_A_ROW = 5  # throttled samples, beyond which growth no longer grows
_NOT_FALLING = 0.9  # of a share of throttled periods one sample ago: rates still show for minutes what is over
_MOST_USED = 0.8  # of a size, from which on waiting is a matter of the size


class CpuPast(NamedTuple):
    """The past of one container's CPU, in cores.

    `block`: the running one; `peak`: the highest in it; `before`: of complete blocks, as many as matter; `needs`: at
    the ends of complete blocks.
    """

    block: int = -1
    peak: float = 0.0
    before: Peaks = ()
    needs: tuple[float, ...] = ()


NO_CPU = CpuPast()


class Reached(NamedTuple):
    """A size that is used up: by how much it is to grow, and how that is known."""

    growth: float
    because: str


class CpuNeeds:
    """The rule, with its parameters."""

    def __init__(self, params: CpuParameters) -> None:
        self._params = params
        self._window = count_of(params.window)

    def seen(self, past: CpuPast, block: int, peak: float) -> CpuPast:
        """The past with the highest usage that was seen in a block, or in a part of one. Older blocks are ignored."""
        if block < past.block:
            return past
        if past.block < 0:
            return CpuPast(block, peak)
        if block == past.block:
            return past if peak <= past.peak else past._replace(peak=peak)
        before = (*past.before, (past.block, past.peak))[-self._window :]
        return CpuPast(block, peak, before, (*past.needs, self.need(self.level(past)))[-REMEMBERED:])

    def all_seen(self, past: CpuPast, peaks: Sequence[tuple[int, float]]) -> CpuPast:
        """The past with those of many blocks, ascending in time."""
        if len(peaks) > (matter := REMEMBERED + self._window + 1):
            past, peaks = NO_CPU, peaks[-matter:]
        for block, peak in peaks:
            past = self.seen(past, block, peak)
        return past

    def level(self, past: CpuPast) -> float:
        """The highest usage of the window that ends with the running block."""
        return greatest_since(past.before, past.peak, past.block - self._window + 1)

    def need(self, level: float) -> float:
        """What is enough for a level of usage."""
        return max(level * (1 + self._params.margin), LEAST)

    def reached(self, recent: Samples, size: float, limit: float | None) -> Reached | None:
        """Whether the newest sample has used up the size, or its container was throttled.

        `size`: cores that are promised, `limit`: cores above which it is throttled; None: it is not.
        """
        params = self._params
        used = recent.cpu[-1].item()
        throttled = recent.signals.get(Signal.THROTTLED)
        if limit is not None and throttled is not None and throttled[-1] > params.throttled:
            share = throttled[-_IN_A_ROW:].tolist()
            if not (len(share) > 1 and share[-1] < _NOT_FALLING * share[-2]):
                row = next((n for n, one in enumerate(reversed(share)) if not one > params.throttled), len(share))
                growth = params.growth * params.hurry ** (row - 1)
                return Reached(growth, f"throttled in {share[-1]:.0%} of the time")
        line = size if limit is None else min(size, limit)
        if used > line * (1 - params.reached):
            return Reached(params.growth, f"{used / line:.0%} of the size is used")
        pressure = recent.signals.get(Signal.CPU_PRESSURE)
        if pressure is None or not used > _MOST_USED * line or not pressure[-1] > params.pressure:
            return None
        if throttled is not None and throttled[-1] <= params.throttled:
            return None  # what it waits for is not its own limit
        return Reached(params.growth, f"some task waited for {pressure[-1]:.0%} of the time")


def newest_is_known(recent: Samples) -> bool:
    """Whether the newest sample has CPU."""
    return len(recent) > 0 and math.isfinite(recent.cpu[-1])
