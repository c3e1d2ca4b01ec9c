"""From the cells of a file to a trace, or to an error that says which cell is at fault and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from autoscaler.traces.trace import Column, Event, EventKind, Trace

TIMESTAMP, EVENT = "timestamp_s", "event"
_KNOWN = (TIMESTAMP, *Column, EVENT)
_MOST = 1e18  # an exbibyte and less; beyond it whole numbers and sums are no longer what they seem
_AT_MOST: Mapping[str, tuple[float, str]] = {
    Column.GPU_UTILISATION: (1.0, ", divide percents by 100"),
    TIMESTAMP: (1e12, ", divide milliseconds by 1000"),
}
_NONE_LEFT = "leave the cell blank where there is no sample"


class TraceError(ValueError):
    """A file that is not a trace. The text names the file, the place in it, and the remedy."""


class Places(StrEnum):
    """How rows are counted for a person: lines of a text, rows of a table."""

    LINE = "line"
    ROW = "row"


@dataclass(frozen=True, slots=True)
class Cells:
    """What stands in a file, not yet judged.

    times: shape (rows,), NaN where blank. columns: shape (rows,) each, NaN where blank. numbers: of each row, as
    `places` counts them.
    """

    source: str
    places: Places
    numbers: Sequence[int]
    times: NDArray[np.float64]
    columns: Mapping[Column, NDArray[np.float64]]
    events: Sequence[str]

    def error(self, row: int, what: str) -> TraceError:
        """An error about one row."""
        return TraceError(f"{self.source}: {self.places} {self.numbers[row]}: {what}")


def check_header(names: Sequence[str], source: str) -> None:
    """Raises `TraceError` for a column that is unknown, twice there or missing."""
    for name in names:
        if name not in _KNOWN:
            near = get_close_matches(name.strip().lower(), _KNOWN, 1, 0.5)
            meant = f", meant is perhaps {near[0]}" if near else ""
            if len(names) == 1 and TIMESTAMP in name:
                meant = ", perhaps all of them: separate them with commas"
            raise TraceError(f"{source}: unknown column {_shown(name)}{meant}; columns are {', '.join(_KNOWN)}")
        if names.count(name) > 1:
            raise TraceError(f"{source}: column {name} is there {names.count(name)} times; keep one")
    if TIMESTAMP not in names:
        raise TraceError(f"{source}: has no column {TIMESTAMP}; add it: seconds, whole, the same step between all rows")
    if not set(names) & set(Column):
        raise TraceError(f"{source}: has no samples; add at least one column of {', '.join(Column)}")


def number(cell: str) -> float:
    """A cell's number; NaN for a blank one. Raises `ValueError` with the remedy if it is none."""
    if not cell:
        return float("nan")
    # what float() takes beside numbers: nan, inf, 1_000, and digits of all scripts
    if cell[-1] not in "0123456789." or not cell.isascii() or "_" in cell or cell != cell.strip():
        raise ValueError(f"{_shown(cell)} is not a number; {_NONE_LEFT}")
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"{_shown(cell)} is not a number; {_NONE_LEFT}") from None


def judged(name: str, cells: Cells) -> Trace:
    """The trace in these cells. Raises `TraceError` for the first fault."""
    if (rows := len(cells.times)) < 2:
        raise TraceError(f"{cells.source}: has {rows or 'no'} row{'s'[rows:]}; the step is read from the first two")
    for column, values in ((TIMESTAMP, cells.times), *cells.columns.items()):
        _check_amounts(cells, column, values)
    step_s = _step(cells)
    if all(np.isnan(values).all() for values in cells.columns.values()):
        raise TraceError(f"{cells.source}: has no samples: {', '.join(cells.columns)} blank in each row")
    return Trace.of(name, step_s, cells.columns, _events(cells), starts_s=int(cells.times[0]))


def _check_amounts(cells: Cells, column: str, values: NDArray[np.float64]) -> None:
    most, unit = _AT_MOST.get(column, (_MOST, ""))
    for wrong, what in (
        (values < 0, "is negative"),
        (np.isinf(values), "is infinite"),
        (values > most, f"is more than {most:g}{unit}"),
    ):
        if wrong.any():
            row = int(wrong.argmax())
            raise cells.error(row, f"{column}: {values[row]:g} {what}; mend it, or leave the cell blank")


def _step(cells: Cells) -> int:
    times = cells.times
    if (wrong := np.isnan(times) | (times % 1 != 0)).any():
        row = int(wrong.argmax())
        what = "is blank" if np.isnan(times[row]) else f"{times[row]:.15g} is not a whole second"
        raise cells.error(row, f"{TIMESTAMP}: {what}; every row needs its own, in whole seconds")
    steps = np.diff(times)
    step_s = int(steps[0])
    if (wrong := (steps <= 0) | (steps != step_s)).any():
        row = int(wrong.argmax()) + 1
        before, at = int(times[row - 1]), int(times[row])
        if at == before:
            raise cells.error(row, f"{TIMESTAMP}: {at} is there twice; keep one of the rows")
        if at < before:
            raise cells.error(row, f"{TIMESTAMP}: {at} comes after {before}; sort the rows")
        remedy = "put all rows on one step, with blank cells where there is no sample"
        raise cells.error(row, f"{TIMESTAMP}: {at} is {at - before} s after {before}, the step is {step_s} s; {remedy}")
    return step_s


def _events(cells: Cells) -> list[Event]:
    found = []
    for row, word in enumerate(cells.events):
        if not word:
            continue
        try:
            found.append(Event(row, EventKind(word)))
        except ValueError:
            known = ", ".join(EventKind)
            raise cells.error(row, f"{EVENT}: {_shown(word)} is none; events are {known}, or blank") from None
    return found


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else f"{cell[:40]}…")
