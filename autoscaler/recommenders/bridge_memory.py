"""How much memory `bridge` finds needed: the level, room for a rise, and what a kill has shown. Pure.

Memory comes without notice: what the next minutes bring cannot be told from the last ones, but a container that has
once taken 2 GiB more within a quarter of an hour may do so again. So the room above the level is as large as the
largest rise that is remembered, and narrow on a container that is calm. It ends a little above the highest usage that
is remembered, as a container at its peak does not rise by as much again.
"""

from __future__ import annotations

from typing import NamedTuple

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Step
from autoscaler.recommenders.blocks import BLOCK_S, Fading, Peaks, count_of, greatest_since, in_blocks
from autoscaler.recommenders.bridge_parameters import MemoryParameters
from autoscaler.recommenders.lowering import REMEMBERED
from autoscaler.recommenders.parameters import format_duration
from autoscaler.recommenders.usage import amount, span

LEAST = 2.0**20
"""Bytes: the least target. Even what uses nothing gets an amount."""


class MemoryPast(NamedTuple):
    """The past of one container's memory, in bytes.

    `block`: the running one; `peak`: the highest in it; `before`: of complete blocks, as many as matter. `rise`,
    `highest`: the largest that are remembered; `first`: the first sample. `needs`: at the ends of complete blocks.
    """

    block: int = -1
    peak: float = 0.0
    before: Peaks = ()
    rise: Fading = Fading()
    highest: Fading = Fading()
    first: Fading = Fading()
    needs: tuple[float, ...] = ()


NO_MEMORY = MemoryPast()


class Need(NamedTuple):
    """What is needed, in bytes, and what it is made of: `level` and `room` for a rise, which ends at `top`;
    `newcomer`: room for what has not been seen yet; `least`: what stays free in any case, added to the level."""

    level: float
    room: float
    top: float
    newcomer: float
    least: float

    @property
    def total(self) -> float:
        return max(self.least, min(self.level + self.room, self.top) + self.newcomer, LEAST)


class MemoryNeeds:
    """The rule, with its parameters."""

    def __init__(self, params: MemoryParameters) -> None:
        self._params = params
        self._window = count_of(params.window)
        self._within = count_of(params.rise_within)
        self._kept = max(self._window, self._within)
        self._rise_half_life = in_blocks(params.rise_half_life)
        self._highest_half_life = in_blocks(params.highest_half_life)
        self._newcomer_half_life = in_blocks(params.newcomer_half_life)
        self._level_because = f"highest of {format_duration(params.window)}"

    def seen(self, past: MemoryPast, block: int, peak: float) -> MemoryPast:
        """The past with the highest usage that was seen in a block, or in a part of one. Older blocks are ignored."""
        if block < past.block:
            return past
        if past.block < 0:
            first = Fading(peak, block)
            return MemoryPast(block, peak, (), Fading(), first, first, ())
        before, needs = past.before, past.needs
        if block > past.block:
            before = (*before, (past.block, past.peak))[-self._kept :]
            needs = (*needs, self.need(past).total)[-REMEMBERED:]
        else:
            peak = max(peak, past.peak)
        rise = past.rise
        if before:
            lowest = min([before[-1][1], *(low for number, low in before if number >= block - self._within)])
            if peak > lowest:
                rise = rise.or_greater(Fading(peak - lowest, block), self._rise_half_life)
        highest = past.highest.or_greater(Fading(peak, block), self._highest_half_life)
        return MemoryPast(block, peak, before, rise, highest, past.first, needs)

    def need(self, past: MemoryPast) -> Need:
        """What is needed as of the running block."""
        params, block = self._params, past.block
        level = greatest_since(past.before, past.peak, block - self._window + 1)
        return Need(
            level,
            params.rises * past.rise.at(block, self._rise_half_life),
            past.highest.at(block, self._highest_half_life) * (1 + params.beyond),
            params.newcomer * past.first.at(block, self._newcomer_half_life),
            level * (1 + params.margin),
        )

    def trail(self, past: MemoryPast, need: Need) -> list[Step]:
        """How the need comes about, step by step."""
        params = self._params
        value = _bytes(need.level)
        steps = [Step(Resource.MEMORY, "usage", None, value, self._level_because)]

        def step(name: str, after: float, because: str) -> None:
            nonlocal value
            amount_after = _bytes(after)
            if amount_after != value:
                steps.append(Step(Resource.MEMORY, name, value, amount_after, because))
                value = amount_after

        roomy = need.level + need.room
        if need.room:
            age = span((past.block - past.rise.block) * BLOCK_S)
            step("rise", roomy, f"{params.rises:.0%} of the largest rise, {_mib(past.rise.amount)} {age} ago, fading")
        if need.top < roomy:
            age = span((past.block - past.highest.block) * BLOCK_S)
            because = f"{params.beyond:.0%} above the highest usage, {_mib(past.highest.amount)} {age} ago, fading"
            step("highest", need.top, because)
        step("newcomer", min(roomy, need.top) + need.newcomer, "for what has not been seen of it yet, fading")
        step("margin", need.total, f"at least {params.margin:.0%} above the level")
        return steps


def _bytes(value: float) -> int:
    return amount(Resource.MEMORY, value)


def _mib(value: float) -> str:
    return f"{value / 2**20:.0f}Mi"
