"""When it pays to lower a size. Pure.

A change is worth something: it may be wanted back a minute later, and each one costs the API server, the kubelet and
the person who reads the log. How long the smaller need will last is not known. The rule is that of the ski rental
problem (Karlin, Manasse, Rudolph, Sleator 1988): go on holding too much until that has cost as much as a change does.
It costs at most twice what one would pay who knew the future, and nothing has to be remembered of past changes: since
when the size has been more than is needed follows from what was needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autoscaler.recommenders.blocks import BLOCK_S

REMEMBERED = 72
"""Blocks for which needs are remembered: what has been too much for six hours is lowered in any case."""

_IN_FORCE = 0.97  # a need that comes so close to a size is the one that it was set for


class Excess(NamedTuple):
    """For how long a size has been more than is needed, and what that comes to, in seconds of the whole size."""

    for_s: int
    worth_s: float


def excess(size: float, need: float, running_s: int, needs: Sequence[float], settle: float, cost_s: float) -> Excess:
    """What has been held too much since the need last rose, or last was what is in force; no further back than it
    takes to be worth `cost_s`.

    `need`: now, for `running_s` seconds of a block that is not complete. `needs`: at the ends of blocks, newest last.
    A need has risen if it is more than the one before it by a share of `settle`.
    """
    line, rose = size * _IN_FORCE, 1 + settle
    if need >= line:
        return Excess(0, 0.0)
    enough, held, later, blocks = cost_s * size, running_s * (size - need), need, 0
    for before in reversed(needs):
        if held >= enough or before >= line or later > before * rose:
            break
        held += BLOCK_S * (size - before)
        later = before
        blocks += 1
    return Excess(running_s + blocks * BLOCK_S, held / size)
