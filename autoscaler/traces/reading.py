"""Traces from files."""

from __future__ import annotations

from pathlib import Path

from autoscaler.traces.csvfile import parse_csv
from autoscaler.traces.judging import TraceError
from autoscaler.traces.trace import Trace

SUFFIXES = (".csv", ".parquet")


def read_trace(path: Path) -> Trace:
    """The trace in a file, `.csv` or `.parquet`; its name is that of the file without the suffix.

    Raises `TraceError`, with the file, the place in it and the remedy, for whatever keeps it from being read.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise TraceError(f"{path}: is neither CSV nor Parquet by its name; name it {' or '.join(SUFFIXES)}")
    try:
        if suffix == ".parquet":
            # pyarrow takes a third of a second to load
            from autoscaler.traces.parquetfile import read_parquet

            return read_parquet(path)
        text = path.read_bytes().decode()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: byte {error.start} is not UTF-8; save it as UTF-8") from None
    return parse_csv(text, name=path.stem, source=str(path))
