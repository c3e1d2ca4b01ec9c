"""Traces as text: a header, commas, one row a step, a blank cell where there is no sample."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO

import numpy as np
from numpy.typing import NDArray

from autoscaler.traces.judging import EVENT, TIMESTAMP, Cells, Places, TraceError, check_header, judged, number
from autoscaler.traces.trace import Column, Trace

_WHOLE = 2.0**53  # from here on not every whole number is a float


def parse_csv(text: str, *, name: str, source: str) -> Trace:
    """The trace `name` in a text that came from `source`. Raises `TraceError`."""
    reader = csv.reader(StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    rows, numbers = [], []
    try:
        header = next(reader, [])
        if not header:
            raise TraceError(f"{source}: is empty; the first line names the columns")
        check_header(header, source)
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                what = f"has {len(row)} cells, the header {len(header)}; cells are separated by commas"
                raise TraceError(f"{source}: line {reader.line_num}: {what}")
            rows.append(row)
            numbers.append(reader.line_num)
    except csv.Error as error:
        raise TraceError(f"{source}: line {reader.line_num}: {error}; write it as plain CSV") from None
    by_name: dict[str, Sequence[str]] = dict(
        zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True)
    )
    floats = {
        column: _floats(by_name[column], column, numbers, source)
        for column in (TIMESTAMP, *Column)
        if column in by_name
    }
    times = floats.pop(TIMESTAMP)
    columns = {Column(column): values for column, values in floats.items()}
    return judged(name, Cells(source, Places.LINE, numbers, times, columns, by_name.get(EVENT, ())))


def csv_text(trace: Trace) -> str:
    """The trace as text, each number with as many digits as it takes to read the same one again."""
    events = {event.row: event.kind for event in trace.events}
    columns = [[str(second) for second in trace.seconds.tolist()]]
    columns += [_cells(values) for values in trace.columns.values()]
    header = [TIMESTAMP, *trace.columns]
    if events:
        header.append(EVENT)
        columns.append([events.get(row, "") for row in range(len(trace))])
    return "\n".join([",".join(header), *map(",".join, zip(*columns, strict=True)), ""])


def _floats(cells: Sequence[str], column: str, numbers: Sequence[int], source: str) -> NDArray[np.float64]:
    values = np.empty(len(cells))
    for row, cell in enumerate(cells):
        try:
            values[row] = number(cell)
        except ValueError as error:
            raise TraceError(f"{source}: line {numbers[row]}: {column}: {error}") from None
    return values


def _cells(values: NDArray[np.float64]) -> list[str]:
    return ["" if each != each else _digits(each) for each in values.tolist()]


def _digits(value: float) -> str:
    return str(int(value)) if value.is_integer() and value < _WHOLE else repr(value)
