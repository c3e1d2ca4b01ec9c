"""Demand under a limit: what is used, what is starved, what slows down, and when the kernel kills."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from autoscaler.scenarios.elementary import Floats
from autoscaler.scenarios.generator import Demand, compose
from autoscaler.scenarios.scenario import Scenario
from autoscaler.traces.trace import Column, Trace


class Starved(NamedTuple):
    """CPU under a limit, shape (rows,): cores used, cores wanted, share of the time throttled, frame time in ms.

    wanted: the demand, and what is left to do of a phase that takes longer.
    """

    usage: Floats
    wanted: Floats
    throttled: Floats
    frame_time_ms: Floats


def starve(demand: Demand, limit: ArrayLike) -> Starved:
    """CPU of a demand under a limit in cores, one for all seconds or one a second.

    What is not done is dropped: frames are skipped. Work that boots, compiles or loads is not: what is left of it is
    carried over until it is done, after all other work of a second.
    """
    cpu = demand.trace.columns[Column.CPU]
    limits = np.broadcast_to(np.asarray(limit, np.float64), cpu.shape)
    room = limits - np.minimum(cpu - demand.phase_cores, limits)
    # what is left after each second: max(0, before + new - room), which is a sum less its own lowest point so far
    balance = np.cumsum(demand.phase_cores - room)
    left = balance - np.minimum(np.minimum.accumulate(balance), 0)
    wanted = cpu + np.concatenate(([0.0], left[:-1]))
    factor = np.maximum(wanted / np.maximum(limits, 1e-9), 1)
    return Starved(np.minimum(wanted, limits), wanted, 1 - 1 / factor, demand.trace.columns[Column.FRAME_TIME] * factor)


def first_kill(trace: Trace, limit: ArrayLike, from_s: int = 0) -> int | None:
    """The first second from `from_s` on whose demand for memory is above a limit in bytes, one for all or one
    a second."""
    memory = trace.columns[Column.MEMORY]
    above = np.flatnonzero((memory > np.broadcast_to(np.asarray(limit, np.float64), memory.shape))[from_s:])
    return from_s + int(above[0]) if len(above) else None


class Killed(NamedTuple):
    """A demand in which the kernel kills, and when it does."""

    demand: Demand
    kills_s: tuple[int, ...]


def live(scenario: Scenario, seed: int, limit: ArrayLike, seconds: int | None = None, *, most: int = 20) -> Killed:
    """The demand of a scenario under a limit of memory in bytes, one for all seconds or one a second.

    Each kill is a restart with a warm cache: sessions are lost and come back as in a storm, leak and residue are gone.
    Stops after `most` kills: a process whose start needs more than the limit never gets up.
    """
    kills = list[int]()
    while True:
        demand = compose(scenario, seed, seconds, kills)
        kill = first_kill(demand.trace, limit, kills[-1] + 1 if kills else 0)
        if kill is None or len(kills) == most:
            return Killed(demand, tuple(kills))
        kills.append(kill)
