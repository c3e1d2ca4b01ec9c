"""What the loop sees of a recorded demand, one sample a turn: usage cut by the limit, and the signals beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from autoscaler.backtest.demand import Demand, Replayed, Values
from autoscaler.backtest.pressure import Backlog, Restarts
from autoscaler.core.recommender import Samples, Signal
from autoscaler.recommenders.bridge_cpu import FRAME_TIME, SESSIONS
from autoscaler.traces.trace import Column

Scalar = TypeVar("Scalar", bound=np.generic)

_Reduce = Callable[..., Values]
_BESIDE: tuple[tuple[str, Column, _Reduce, float], ...] = (
    (Signal.GPU_MEMORY, Column.GPU_MEMORY, np.fmax.reduce, 1.0),
    (Signal.GPU_UTILISATION, Column.GPU_UTILISATION, np.mean, 1.0),
    (SESSIONS, Column.SESSIONS, np.fmax.reduce, 1.0),
    (FRAME_TIME, Column.FRAME_TIME, np.fmax.reduce, 0.001),  # a trace has milliseconds
)


class Interval(NamedTuple):
    """What was in one interval: the memory or CPU in use at its end (NaN: not known), and whether demand was above the
    limit."""

    used: float
    over: bool


_UNKNOWN = Interval(float("nan"), False)


class Observations:
    """The samples of a replay, filled turn by turn.

    CPU is the mean of an interval, memory its maximum. `soft`: the limit does not cut what is used. A container whose
    CPU is cut is throttled for as long as it wants more, and shows nothing of how much more. `closed`: what is wanted
    depends on what there was.
    """

    def __init__(
        self, demand: Demand, starts_s: int, *, soft: bool, signals: Iterable[str], closed: bool = False
    ) -> None:
        self._demand = demand
        self._soft = soft
        is_cpu = demand.replayed is Replayed.CPU
        self._pressure: Backlog | Restarts | None = None
        if closed and not soft:
            self._pressure = Backlog(demand.step_s) if is_cpu else Restarts(demand.step_s)
        self.wanted = demand.values.copy() if self._pressure else demand.values
        turns = demand.turns
        self._end_at = starts_s + demand.interval_s * np.arange(1, turns + 1, dtype=np.int64)
        self._cpu = self._beside(Column.CPU, np.mean, 1.0)
        self._memory = self._beside(Column.MEMORY, np.fmax.reduce, 1.0)
        self._controlled = np.full(turns, np.nan, np.float32)
        if demand.replayed is Replayed.CPU:
            self._cpu = self._controlled
        else:
            self._memory = self._controlled
        wanted = frozenset(signals)
        self._signals = {name: self._beside(column, how, unit) for name, column, how, unit in _BESIDE if name in wanted}
        self._throttled = self._own(Signal.THROTTLED, wanted, demand.replayed is Replayed.CPU and not soft)
        self._given = self._own(Signal.MEMORY_LIMIT, wanted, demand.replayed is not Replayed.CPU)
        self._peak = self._own(Signal.MEMORY_PEAK, wanted, demand.replayed is not Replayed.CPU)
        self._frame_time = self._signals.get(FRAME_TIME) if demand.replayed is Replayed.CPU and not soft else None
        self._highest = 0.0  # memory since the container started
        self._plain = demand.values.tolist() if demand.per_turn == 1 else []
        signals = {name: _shown(values) for name, values in self._signals.items()}
        self._all = Samples(_shown(self._end_at), _shown(self._cpu), _shown(self._memory), signals)

    def _own(self, name: str, wanted: frozenset[str], there: bool) -> NDArray[np.float32] | None:
        """A signal that depends on the limits; None if it is not asked for, or not there."""
        if name not in wanted or not there:
            return None
        values = self._signals[name] = np.full(self._demand.turns, np.nan, np.float32)
        return values

    def _beside(self, column: Column, reduce: _Reduce, unit: float) -> NDArray[np.float32]:
        """A column that no limit of this replay has a say in, a value a turn."""
        values = self._demand.of(column)
        if values is None:
            return np.full(self._demand.turns, np.nan, np.float32)
        rows = values.reshape(self._demand.turns, self._demand.per_turn)
        reduced: Values = reduce(rows, axis=1) * unit
        return reduced.astype(np.float32)

    def see(self, turn: int, limit: float) -> Interval:
        """Take note of an interval in which `limit` (cores, bytes) was in force."""
        if self._given is not None:
            self._given[turn] = limit
        if self._pressure is not None:
            part = slice(turn * self._demand.per_turn, (turn + 1) * self._demand.per_turn)
            self.wanted[part] = self._pressure.want(self._demand.values[part], limit)
            if self._plain:
                self._plain[turn] = float(self.wanted[turn])
        found = self._see_one(turn, limit) if self._plain else self._see_many(turn, limit)
        if self._peak is not None:
            self._highest = limit if found.over else float(np.fmax(self._highest, found.used))
            self._peak[turn] = self._highest
        return found

    def restarted(self) -> None:
        """The container has begun anew."""
        self._highest = 0.0

    def _see_one(self, turn: int, limit: float) -> Interval:
        wanted = self._plain[turn]
        if wanted != wanted:  # nothing was recorded
            return _UNKNOWN
        over = wanted > limit
        used = limit if over and not self._soft else wanted
        self._controlled[turn] = used
        if self._throttled is not None:
            self._throttled[turn] = over
        if self._frame_time is not None and over:
            self._frame_time[turn] *= wanted / limit
        return Interval(used, over)

    def _see_many(self, turn: int, limit: float) -> Interval:
        part = slice(turn * self._demand.per_turn, (turn + 1) * self._demand.per_turn)
        wanted = self.wanted[part]
        known = wanted[np.isfinite(wanted)]
        if not len(known):
            return _UNKNOWN
        over = known > limit
        used = known if self._soft else np.minimum(known, limit)
        is_cpu = self._demand.replayed is Replayed.CPU
        self._controlled[turn] = used.mean() if is_cpu else used.max()
        if self._throttled is not None:
            self._throttled[turn] = over.mean()
        frames = self._demand.of(Column.FRAME_TIME)
        if self._frame_time is not None and frames is not None and over.any():
            stretched = frames[part] * np.fmax(1.0, wanted / limit)
            self._frame_time[turn] = np.fmax.reduce(stretched) / 1000
        return Interval(float(used[-1]), bool(over.any()))

    def between(self, first: int, last: int) -> Samples:
        """The samples of the turns from `first` up to `last`, exclusive. They cannot be written to."""
        return self._all[first:last]


def _shown(values: NDArray[Scalar]) -> NDArray[Scalar]:
    """The same values, filled in as turns pass, which those who are shown them cannot change."""
    shown = values.view()
    shown.flags.writeable = False
    return shown
