"""Traces as Parquet, for which the extra `parquet` is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.traces.judging import EVENT, TIMESTAMP, Cells, Places, TraceError, check_header, judged
from autoscaler.traces.trace import Column, Trace

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    pa = None


def read_parquet(path: Path) -> Trace:
    """The trace in a file. Raises `TraceError`; `OSError` if it cannot be read."""
    source = str(path)
    _need_pyarrow(source)
    try:
        table = pq.read_table(path, partitioning=None)
    except pa.ArrowException as error:
        raise TraceError(f"{source}: is not Parquet: {' '.join(str(error).split())}") from None
    check_header(table.column_names, source)
    floats = {each: _floats(table, each, source) for each in (TIMESTAMP, *Column) if each in table.column_names}
    times = floats.pop(TIMESTAMP)
    columns = {Column(column): values for column, values in floats.items()}
    numbers = range(1, table.num_rows + 1)
    return judged(path.stem, Cells(source, Places.ROW, numbers, times, columns, _words(table, source)))


def write_parquet(trace: Trace, path: Path) -> None:
    """Raises `TraceError` without pyarrow; `OSError` if it cannot be written."""
    _need_pyarrow(str(path))
    columns: dict[str, Any] = {TIMESTAMP: trace.seconds}
    columns |= {column.value: pa.array(values, from_pandas=True) for column, values in trace.columns.items()}
    if trace.events:
        events: list[str | None] = [None] * len(trace)
        for event in trace.events:
            events[event.row] = event.kind.value
        columns[EVENT] = pa.array(events, pa.string())
    pq.write_table(pa.table(columns), path)


def _need_pyarrow(source: str) -> None:
    if pa is None:
        remedy = "pip install 'bridge-autoscaler[parquet]', or write the trace as CSV"
        raise TraceError(f"{source}: Parquet needs the extra parquet: {remedy}")


def _floats(table: Any, column: str, source: str) -> NDArray[np.float64]:
    kind = table.schema.field(column).type
    if not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        what = "convert it to seconds" if pa.types.is_temporal(kind) else "convert it to numbers"
        raise TraceError(f"{source}: {column} holds {kind}; {what}")
    values = table.column(column).cast(pa.float64(), safe=False).to_numpy()
    return np.asarray(values, np.float64)


def _words(table: Any, source: str) -> list[str]:
    if EVENT not in table.column_names:
        return []
    kind = table.schema.field(EVENT).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise TraceError(f"{source}: {EVENT} holds {kind}; convert it to text")
    return [word or "" for word in table.column(EVENT).to_pylist()]
