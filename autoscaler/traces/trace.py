"""A trace: what a container used, or would have used, in equal steps of time. docs/traces.md describes the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Column(StrEnum):
    """What can be recorded, and its unit. The order is that of files."""

    CPU = "cpu_cores"  # mean over the step
    MEMORY = "memory_bytes"  # working set at the sample
    GPU_MEMORY = "gpu_memory_bytes"
    GPU_UTILISATION = "gpu_utilisation"  # share of time in which the busiest of its devices worked, 0 to 1
    SESSIONS = "sessions"  # users connected
    FRAME_TIME = "frame_time_ms"  # 95th percentile of the step


class EventKind(StrEnum):
    """What happened in a step. Of several in one step the first of this list is recorded."""

    START = "start"
    SCENE_LOAD = "scene_load"
    SCENE_READY = "scene_ready"
    SCENE_DROP = "scene_drop"
    STORM = "storm"
    GC = "gc"
    RESTART = "restart"
    IDLE = "idle"


class Event(NamedTuple):
    """Something that happened in row number `row` of a trace."""

    row: int
    kind: EventKind


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Samples `step_s` seconds apart, the first at second `starts_s`. Made by `Trace.of`.

    columns: for each recorded quantity float64 of shape (rows,), read-only; NaN where there is no sample. What has no
    sample at all is not there.
    events: in the order of their rows, one a row at most.
    """

    name: str
    step_s: int
    columns: Mapping[Column, NDArray[np.float64]]
    events: tuple[Event, ...] = ()
    starts_s: int = 0

    @staticmethod
    def of(
        name: str,
        step_s: int,
        columns: Mapping[Column, ArrayLike],
        events: Iterable[Event] = (),
        *,
        starts_s: int = 0,
    ) -> Trace:
        """A trace from plain numbers, which are copied.

        Raises `ValueError` if columns differ in length, nothing has a sample, there are fewer than two rows (they have
        no step), a value is negative or infinite, or events are not in the order of existing rows, one a row.
        """
        arrays = {column: np.array(columns[column], np.float64) for column in Column if column in columns}
        kept = {column: values for column, values in arrays.items() if not np.isnan(values).all()}
        if len(shapes := {values.shape for values in arrays.values()}) > 1:
            raise ValueError(f"columns of different shapes: {sorted(shapes)}")
        if step_s < 1 or not kept or len(rows := next(iter(shapes))) != 1 or rows[0] < 2:
            raise ValueError("a trace needs a step of whole seconds, two rows, and a sample")
        if any((values < 0).any() or np.isinf(values).any() for values in kept.values()):
            raise ValueError("samples are finite and not negative")
        listed = tuple(events)
        at = [-1, *(event.row for event in listed), rows[0]]
        if any(left >= right for left, right in pairwise(at)):
            raise ValueError("events are in the order of rows, one a row at most")
        for values in kept.values():
            values.setflags(write=False)
        return Trace(name, step_s, MappingProxyType(kept), listed, starts_s)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def seconds(self) -> NDArray[np.int64]:
        """The instants of the rows, shape (rows,)."""
        return self.starts_s + self.step_s * np.arange(len(self), dtype=np.int64)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return (
            (self.name, self.step_s, self.starts_s, self.events)
            == (other.name, other.step_s, other.starts_s, other.events)
            and self.columns.keys() == other.columns.keys()
            and all(np.array_equal(self.columns[each], other.columns[each], equal_nan=True) for each in self.columns)
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Callable[..., Trace], tuple[object, ...]]:
        # read-only mappings cannot be sent to another process
        return _again, (self.name, self.step_s, dict(self.columns), self.events, self.starts_s)


def _again(
    name: str,
    step_s: int,
    columns: Mapping[Column, NDArray[np.float64]],
    events: tuple[Event, ...],
    starts_s: int,
) -> Trace:
    return Trace.of(name, step_s, columns, events, starts_s=starts_s)
