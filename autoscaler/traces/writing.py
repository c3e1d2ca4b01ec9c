"""Traces into files."""

from __future__ import annotations

from pathlib import Path

from autoscaler.traces.csvfile import csv_text
from autoscaler.traces.judging import TraceError
from autoscaler.traces.reading import SUFFIXES
from autoscaler.traces.trace import Trace


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace to a file, `.csv` or `.parquet`, in place of what is there. `read_trace` gives the same one again.

    Raises `TraceError` if the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise TraceError(f"{path}: is neither CSV nor Parquet by its name; name it {' or '.join(SUFFIXES)}")
    try:
        if suffix == ".parquet":
            from autoscaler.traces.parquetfile import write_parquet

            write_parquet(trace, path)
        else:
            path.write_bytes(csv_text(trace).encode())
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from None
