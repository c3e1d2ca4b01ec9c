"""Recorded usage of real containers, played back in virtual time.

Where the recordings come from, and under which licence: traces/README.md. Values are held until the next row, never
interpolated, since nothing is known in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.model import Resource
from autoscaler.traces.csvfile import parse_csv
from autoscaler.traces.trace import Column, Trace

_COLUMNS = {Resource.CPU: Column.CPU, Resource.MEMORY: Column.MEMORY}
_STEP_S = 60


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One quantity over time: `values` (cores or bytes) `step_s` seconds apart, the first at unix second `starts_s`.

    It repeats for ever in both directions.
    """

    values: NDArray[np.float64]
    step_s: int = _STEP_S
    starts_s: int = 0

    def at(self, instants: NDArray[np.int64]) -> NDArray[np.float64]:
        """The values at these unix seconds."""
        return self.values[(instants - self.starts_s) // self.step_s % len(self.values)]

    @staticmethod
    def of(values: Sequence[float], *, step_s: int = _STEP_S, starts_at: datetime | None = None) -> Series:
        """A series from plain numbers; a single one is constant usage."""
        starts_s = 0 if starts_at is None else int(starts_at.timestamp())
        return Series(_frozen(np.asarray(values, np.float64)), step_s, starts_s)


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What a container would use if nothing limited it: `cpu` in cores, `memory` (working set) and `cache` in bytes.

    `cache`: inactive page cache, which gives way to a limit instead of being killed.
    """

    cpu: Series
    memory: Series
    cache: Series = field(default_factory=lambda: Series.of((0.0,)))


def recorded(trace: str, resource: Resource, *, starts_at: datetime, scale: float = 1.0) -> Series:
    """One column of a recording, its first row at `starts_at`, every value multiplied by `scale`.

    Raises `FileNotFoundError` for an unknown trace, `ValueError` if it has no such column.
    """
    played = _trace(trace)
    values = played.columns.get(_COLUMNS[resource])
    if values is None or np.isnan(values).any():
        raise ValueError(f"trace {trace} has no {resource}, or not in every row")
    return Series(_frozen(values * scale), played.step_s, int(starts_at.timestamp()))


@cache
def _trace(name: str) -> Trace:
    file = files("autoscaler.simulator").joinpath("traces", f"{name}.csv")
    return parse_csv(file.read_text(encoding="utf-8"), name=name, source=str(file))


def _frozen(values: NDArray[np.float64]) -> NDArray[np.float64]:
    values.setflags(write=False)
    return values
