"""Traces come back from files as they were, and what is not a trace is refused with a place and a remedy."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.traces.judging import TraceError
from autoscaler.traces.reading import read_trace
from autoscaler.traces.trace import Column, Event, EventKind, Trace
from autoscaler.traces.writing import write_trace

SUFFIXES = pytest.mark.parametrize("suffix", [".csv", ".parquet"])


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    rows = draw(st.integers(2, 12))
    columns = {}
    for column in draw(st.lists(st.sampled_from(Column), min_size=1, unique=True)):
        most = 1.0 if column is Column.GPU_UTILISATION else 1e18
        samples = st.floats(0, most) | st.integers(0, int(most)).map(float) | st.just(float("nan"))
        columns[column] = draw(st.lists(samples, min_size=rows, max_size=rows))
    columns[Column.CPU] = [0.1, *columns.get(Column.CPU, [0.0] * rows)[1:]]
    marked = sorted(draw(st.sets(st.integers(0, rows - 1))))
    events = [Event(row, draw(st.sampled_from(EventKind))) for row in marked]
    return Trace.of("t", draw(st.integers(1, 10**6)), columns, events, starts_s=draw(st.integers(0, 2**31)))


@settings(max_examples=20)
@given(trace=traces())
def test_a_trace_can_be_sent_to_another_process(trace: Trace) -> None:
    assert pickle.loads(pickle.dumps(trace)) == trace


@SUFFIXES
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=traces())
def test_what_was_written_is_read(suffix: str, tmp_path: Path, trace: Trace) -> None:
    path = tmp_path / f"t{suffix}"
    write_trace(trace, path)
    assert read_trace(path) == trace


def test_traces_that_differ_are_not_equal() -> None:
    one = Trace.of("t", 60, {Column.CPU: [1, 2]})
    assert one == Trace.of("t", 60, {Column.CPU: [1, 2], Column.MEMORY: [np.nan, np.nan]})
    others = [
        Trace.of("u", 60, {Column.CPU: [1, 2]}),
        Trace.of("t", 61, {Column.CPU: [1, 2]}),
        Trace.of("t", 60, {Column.CPU: [1, 2]}, starts_s=60),
        Trace.of("t", 60, {Column.CPU: [1, np.nan]}),
        Trace.of("t", 60, {Column.MEMORY: [1, 2]}),
        Trace.of("t", 60, {Column.CPU: [1, 2]}, [Event(0, EventKind.GC)]),
    ]
    assert not [other for other in others if other == one]


def test_a_file_says_step_start_blanks_and_events(tmp_path: Path) -> None:
    path = tmp_path / "seen.csv"
    path.write_bytes(b"\xef\xbb\xbftimestamp_s,event,memory_bytes,cpu_cores\r\n30,,,1e-3\r\n45.0,gc,4096,\r\n\r\n")
    trace = read_trace(path)
    assert (trace.name, trace.step_s, trace.starts_s) == ("seen", 15, 30)
    assert trace.seconds.tolist() == [30, 45]
    np.testing.assert_array_equal(trace.columns[Column.CPU], [0.001, np.nan])
    np.testing.assert_array_equal(trace.columns[Column.MEMORY], [np.nan, 4096])
    assert trace.events == (Event(1, EventKind.GC),)


def test_a_column_without_samples_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("timestamp_s,cpu_cores,memory_bytes\n0,1,\n60,2,\n")
    assert list(read_trace(path).columns) == [Column.CPU]


HEAD = "timestamp_s,cpu_cores\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; the first line names the columns"),
        ("\n", "is empty; the first line names the columns"),
        (
            "timestamp_s,cpu_core\n0,1\n60,1\n",
            "unknown column 'cpu_core', meant is perhaps cpu_cores; columns are timest",
        ),
        ("timestamp_s;cpu_cores\n0;1\n", "unknown column 'timestamp_s;cpu_cores'"),
        ("timestamp_s,cpu_cores,\n0,1,\n60,1,\n", "unknown column ''; columns are"),
        ("timestamp_s,cpu_cores,cpu_cores\n", "column cpu_cores is there 2 times; keep one"),
        ("cpu_cores\n1\n1\n", "has no column timestamp_s; add it"),
        ("timestamp_s,event\n0,gc\n60,\n", "has no samples; add at least one column of cpu_cores, memory_bytes"),
        (HEAD, "has no rows; the step is read from the first two"),
        (HEAD + "0,1\n", "has 1 row; the step is read from the first two"),
        (HEAD + "0,\n60,\n", "has no samples: cpu_cores blank in each row"),
        (
            HEAD + "0,1\n60,1\n180,1\n",
            "line 4: timestamp_s: 180 is 120 s after 60, the step is 60 s; put all rows on one",
        ),
        (HEAD + "0,1\n60,1\n90,1\n", "line 4: timestamp_s: 90 is 30 s after 60, the step is 60 s; put all rows on one"),
        (HEAD + "0,1\n60,1\n30,1\n", "line 4: timestamp_s: 30 comes after 60; sort the rows"),
        (HEAD + "60,1\n0,1\n", "line 3: timestamp_s: 0 comes after 60; sort the rows"),
        (HEAD + "0,1\n0,1\n", "line 3: timestamp_s: 0 is there twice; keep one of the rows"),
        (HEAD + "0,1\n0.5,1\n", "line 3: timestamp_s: 0.5 is not a whole second"),
        (HEAD + ",1\n60,1\n", "line 2: timestamp_s: is blank"),
        (HEAD + "1700000000000,1\n1700000060000,1\n", "line 2: timestamp_s: 1.7e+12 is more than 1e+12, divide milli"),
        (HEAD + "0,1\n60,one\n", "line 3: cpu_cores: 'one' is not a number; leave the cell blank where there is no s"),
        (HEAD + "0,1\n60,NaN\n", "line 3: cpu_cores: 'NaN' is not a number; leave the cell blank"),
        (HEAD + "0,1\n60,1_0\n", "line 3: cpu_cores: '1_0' is not a number"),
        (HEAD + "0,1\n60,١\n", "line 3: cpu_cores: '١' is not a number"),
        (HEAD + "0,1\n60, 1\n", "line 3: cpu_cores: ' 1' is not a number"),
        (HEAD + "0,1\n60,-1\n", "line 3: cpu_cores: -1 is negative; mend it, or leave the cell blank"),
        (HEAD + "0,1\n60,inf\n", "line 3: cpu_cores: 'inf' is not a number"),
        (HEAD + "0,1\n60,1e400\n", "line 3: cpu_cores: inf is infinite; mend it"),
        (HEAD + "0,1\n60,2e18\n", "line 3: cpu_cores: 2e+18 is more than 1e+18; mend it"),
        (HEAD + f"0,1\n60,{'9' * 400}\n", "line 3: cpu_cores: inf is infinite; mend it"),
        (HEAD + "0,1\n60\n", "line 3: has 1 cells, the header 2; cells are separated by commas"),
        (HEAD + '0,1\n60,"1\n', "line 3: unexpected end of data; write it as plain CSV"),
        ("timestamp_s,gpu_utilisation\n0,50\n60,1\n", "line 2: gpu_utilisation: 50 is more than 1, divide percents by"),
        ("timestamp_s,cpu_cores,event\n0,1,boom\n60,1,\n", "line 2: event: 'boom' is none; events are start, scene_lo"),
    ],
)
def test_what_is_not_a_trace_is_refused_with_its_place_and_a_remedy(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as refused:
        read_trace(path)
    assert str(refused.value).startswith(f"{path}: {said}")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"timestamp_s": [0, 60], "cpu": [1.0, 1.0]}, "unknown column 'cpu', meant is perhaps cpu_cores"),
        ({"timestamp_s": [0, 60], "cpu_cores": [1.0, float("inf")]}, "row 2: cpu_cores: inf is infinite; mend it"),
        ({"timestamp_s": [0, 60], "cpu_cores": ["1", "2"]}, "cpu_cores holds string; convert it to numbers"),
        ({"timestamp_s": [0, None], "cpu_cores": [1, 2]}, "row 2: timestamp_s: is blank"),
        ({"timestamp_s": [0, 60], "cpu_cores": [1, 2], "event": [1, 2]}, "event holds int64; convert it to text"),
        (
            {"timestamp_s": pa.array([0, 60], pa.timestamp("ms")), "cpu_cores": [1, 2]},
            "timestamp_s holds timestamp[ms]; convert it to seconds",
        ),
    ],
)
def test_what_is_not_a_trace_in_parquet_is_refused(tmp_path: Path, columns: dict[str, object], said: str) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(TraceError) as refused:
        read_trace(path)
    assert str(refused.value).startswith(f"{path}: {said}")


def test_columns_of_whole_numbers_and_of_nulls_are_read_from_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"timestamp_s": [0.0, 1.0], "cpu_cores": [1, None], "memory_bytes": [None, None]}), path)
    assert read_trace(path) == Trace.of("t", 1, {Column.CPU: [1, np.nan]})


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.txt", b"", "is neither CSV nor Parquet by its name; name it .csv or .parquet"),
        ("t.csv", b"timestamp_s\xff", "byte 11 is not UTF-8; save it as UTF-8"),
        ("t.parquet", b"not this", "is not Parquet: "),
        ("absent.csv", None, "cannot be read: No such file"),
        ("absent.parquet", None, "cannot be read: "),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TraceError) as refused:
        read_trace(path)
    assert str(refused.value).startswith(f"{path}: {said}")


@SUFFIXES
def test_a_file_that_cannot_be_written(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(TraceError, match=r"t\.(csv|parquet): cannot be written: "):
        write_trace(Trace.of("t", 60, {Column.CPU: [1, 2]}), tmp_path / "absent" / f"t{suffix}")


def test_without_pyarrow_the_remedy_is_said(tmp_path: Path) -> None:
    """Where the extra is not installed: a folder before all others holds a package that cannot be imported."""
    (tmp_path / "pyarrow").mkdir()
    (tmp_path / "pyarrow" / "__init__.py").write_text("raise ImportError('not here')")
    (tmp_path / "t.parquet").write_bytes(b"")
    program = "import sys; from pathlib import Path; from autoscaler.traces.reading import read_trace\n"
    program += "try: read_trace(Path('t.parquet'))\nexcept ValueError as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"},
        capture_output=True,
        text=True,
        check=True,
    )
    remedy = "pip install 'bridge-autoscaler[parquet]', or write the trace as CSV"
    assert done.stdout == f"t.parquet: Parquet needs the extra parquet: {remedy}\n"


@pytest.mark.parametrize(
    ("step_s", "columns", "events"),
    [
        (0, {Column.CPU: [1, 2]}, ()),
        (60, {Column.CPU: [1]}, ()),
        (60, {}, ()),
        (60, {Column.CPU: [np.nan, np.nan]}, ()),
        (60, {Column.CPU: [1, 2], Column.MEMORY: [1, 2, 3]}, ()),
        (60, {Column.CPU: [[1, 2], [3, 4]]}, ()),
        (60, {Column.CPU: [1, -1]}, ()),
        (60, {Column.CPU: [1, np.inf]}, ()),
        (60, {Column.CPU: [1, 2]}, (Event(2, EventKind.GC),)),
        (60, {Column.CPU: [1, 2]}, (Event(1, EventKind.GC), Event(1, EventKind.IDLE))),
    ],
)
def test_traces_keep_their_promises(step_s: int, columns: dict[Column, list[float]], events: tuple[Event, ...]) -> None:
    with pytest.raises(ValueError):
        Trace.of("t", step_s, columns, events)


def test_the_samples_of_a_trace_stay() -> None:
    given_values = np.array([1.0, 2.0])
    trace = Trace.of("t", 60, {Column.CPU: given_values})
    given_values[0] = 7
    assert trace.columns[Column.CPU].tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        trace.columns[Column.CPU][0] = 7


def test_every_shared_trace_is_read(shared: Path) -> None:
    found = {path.stem: read_trace(path) for path in sorted((shared / "traces").glob("*.csv"))}
    assert (len(found["nezha_tt_basic_0129"]), found["nezha_tt_basic_0129"].step_s) == (919, 60)
    assert (len(found["bitbrains_batch_vm43"]), found["bitbrains_batch_vm43"].step_s) == (4032, 300)
    assert list(found["gentd26_leak_c26bb102"].columns) == [Column.MEMORY, Column.GPU_MEMORY]
