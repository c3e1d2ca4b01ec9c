"""One resource of a trace as the demand that a replay meets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.model import Resource
from autoscaler.traces.trace import Column, Trace

Values = NDArray[np.float64]

_FIRST_HOUR_S = 3600


class Replayed(StrEnum):
    """The resource that a replay controls. No pod can change its GPU memory; it is replayed as if it were memory."""

    CPU = "cpu"
    MEMORY = "memory"
    GPU_MEMORY = "gpu_memory"

    @property
    def column(self) -> Column:
        return _COLUMN[self]

    @property
    def resource(self) -> Resource:
        """What the loop takes it for."""
        return Resource.CPU if self is Replayed.CPU else Resource.MEMORY

    @property
    def least(self) -> float:
        """The least size at the start, in cores or bytes."""
        return _LEAST[self]


_COLUMN = {
    Replayed.CPU: Column.CPU,
    Replayed.MEMORY: Column.MEMORY,
    Replayed.GPU_MEMORY: Column.GPU_MEMORY,
}
_LEAST = {Replayed.CPU: 0.1, Replayed.MEMORY: 250.0 * 2**20, Replayed.GPU_MEMORY: 2.0**30}


class ReplayError(ValueError):
    """The trace cannot be replayed like this. The text says what to change."""


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What is asked of one resource: `values` (cores or bytes) `step_s` seconds apart, `per_turn` of them between two
    turns of the loop; NaN where nothing was recorded. `beside`: the other columns on the same steps. `start`: the size
    at the start."""

    name: str
    replayed: Replayed
    step_s: int
    per_turn: int
    values: Values
    beside: Mapping[Column, Values]
    start: float

    @property
    def interval_s(self) -> int:
        return self.step_s * self.per_turn

    @property
    def turns(self) -> int:
        return len(self.values) // self.per_turn

    @property
    def blank(self) -> NDArray[np.bool_]:
        """The turns in whose interval nothing was recorded of this resource."""
        return np.asarray(np.isnan(self.values).reshape(self.turns, self.per_turn).all(axis=1))

    def of(self, column: Column) -> Values | None:
        """The values of a column, if it was recorded."""
        return self.values if column is self.replayed.column else self.beside.get(column)


def demand_of(trace: Trace, replayed: Replayed, interval_s: int, start: float | None = None) -> Demand:
    """The demand of a trace for a loop that turns every `interval_s` seconds.

    A coarser trace is held at its previous value; of a finer one each turn sees several samples. What is left over at
    the end of a turn is cut off. `start`: the size at the start (cores, bytes), else twice the peak of the first hour.
    Raises `ReplayError`.
    """
    if replayed.column not in trace.columns:
        has = ", ".join(one.value for one in Replayed if one.column in trace.columns) or "none"
        raise ReplayError(f"has no {replayed.column}; resources recorded there: {has}")
    if interval_s % trace.step_s and trace.step_s % interval_s:
        raise ReplayError(
            f"has a step of {trace.step_s} s, which does not fit a control interval of {interval_s} s; give an"
            " --interval that is a multiple of it, or fits into it"
        )
    step_s, held = min(trace.step_s, interval_s), max(1, trace.step_s // interval_s)
    per_turn = interval_s // step_s
    count = len(trace) * held // per_turn * per_turn
    if not count:
        raise ReplayError(f"is shorter than the control interval of {interval_s} s")
    columns = {column: np.repeat(values, held)[:count] for column, values in trace.columns.items()}
    values = columns.pop(replayed.column)
    if start is None:
        peak = float(np.fmax.reduce(values[: max(1, _FIRST_HOUR_S // step_s)]))
        start = max(2 * peak, replayed.least) if peak == peak else replayed.least
    return Demand(trace.name, replayed, step_s, per_turn, values, columns, start)
