"""What holds for every scenario: the same bytes everywhere, prefixes, ranges, components that keep to themselves."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.scenarios.catalog import SCENARIOS
from autoscaler.scenarios.frames import BUDGET_MS
from autoscaler.scenarios.generator import PAGE, Demand, compose, generate
from autoscaler.scenarios.gpu import CARD, UNIT
from autoscaler.traces.csvfile import csv_text
from autoscaler.traces.trace import Column, EventKind
from tests.scenarios.made import made

EVERY = pytest.mark.parametrize("name", list(SCENARIOS))


@pytest.mark.parametrize(
    ("name", "seed", "sha256"),
    [
        ("scene-hopper", 0, "a5ed61c46d843f65e5e58ffacc1d78205ad376e20778590fd27cfa65fed8ce92"),
        ("scene-hopper", 1, "9f2f504afebc487cd47d143cdd105dd666337341d3fb98dde359c45f39286c0b"),
        ("bad-day", 0, "95b8edb3aa27ba5dc62ee0983fd7b9006055d89fc6c79a56748dcc8de019546f"),
        ("bad-day", 1, "768906f5cc5fa1a93128675fb9e6b697cce29fde5463938b98e6cc2e5c2e6fc2"),
    ],
)
def test_bytes_are_the_same_everywhere(name: str, seed: int, sha256: str) -> None:
    """If this fails on your machine alone, numbers differ between machines; else raise draws.VERSION with the bytes."""
    assert hashlib.sha256(csv_text(generate(name, seed)).encode()).hexdigest() == sha256


@EVERY
def test_a_longer_run_begins_with_the_shorter(name: str) -> None:
    for seconds in (3600, 3601):
        short, longer = made(name, 1, seconds).trace, made(name, 1, 7200).trace
        for column, values in short.columns.items():
            np.testing.assert_array_equal(values, longer.columns[column][:seconds], column)
        assert short.events == tuple(event for event in longer.events if event.row < seconds)


@settings(max_examples=25)
@given(name=st.sampled_from(list(SCENARIOS)), seed=st.integers(0, 2**63), shorter=st.integers(2, 3000))
def test_a_longer_run_begins_with_the_shorter_for_any_seed_and_length(name: str, seed: int, shorter: int) -> None:
    short, longer = generate(name, seed, shorter), generate(name, seed, 3000)
    for column, values in short.columns.items():
        np.testing.assert_array_equal(values, longer.columns[column][:shorter], column)


def _promises(demand: Demand) -> None:
    columns, most = demand.trace.columns, demand.most
    assert set(columns) == {Column.CPU, Column.MEMORY, Column.GPU_MEMORY, Column.SESSIONS, Column.FRAME_TIME}
    assert not any(np.isnan(values).any() for values in columns.values())
    assert columns[Column.CPU].min() >= 0
    assert columns[Column.CPU].max() <= 64
    assert columns[Column.MEMORY].min() >= demand.base_bytes
    assert not (columns[Column.MEMORY] % PAGE).any()
    assert columns[Column.GPU_MEMORY].max() <= CARD
    assert not (columns[Column.GPU_MEMORY] % UNIT).any()
    assert columns[Column.SESSIONS].max() <= most <= 24
    assert columns[Column.FRAME_TIME].min() >= BUDGET_MS
    assert demand.phase_cores.min() >= 0
    assert (demand.phase_cores <= columns[Column.CPU] + 1e-5).all()


@EVERY
def test_values_are_within_their_ranges(name: str) -> None:
    _promises(made(name, 0))


@settings(max_examples=40)
@given(
    name=st.sampled_from(list(SCENARIOS)),
    seed=st.integers(0, 2**63),
    seconds=st.integers(2, 8000),
    kills=st.lists(st.integers(1, 9000), max_size=4),
)
def test_values_are_within_their_ranges_whatever_happens(name: str, seed: int, seconds: int, kills: list[int]) -> None:
    _promises(compose(SCENARIOS[name], seed, seconds, kills))


@settings(max_examples=25)
@given(name=st.sampled_from(list(SCENARIOS)), seed=st.integers(0, 99), kill=st.integers(1, 7000))
def test_a_kill_changes_nothing_ahead_of_it(name: str, seed: int, kill: int) -> None:
    alive, killed = generate(name, seed, 7200), compose(SCENARIOS[name], seed, 7200, [kill]).trace
    for column, values in alive.columns.items():
        np.testing.assert_array_equal(values[:kill], killed.columns[column][:kill], column)


@pytest.mark.parametrize("component", ["noisy", "collects", "leaks", "storms"])
def test_a_component_that_is_off_leaves_the_others_as_they_were(component: str) -> None:
    off = {"storms_s": ()} if component == "storms" else {component: False}
    full, part = made("bad-day", 2), compose(replace(SCENARIOS["bad-day"], **off), 2)
    same = {
        "noisy": (Column.GPU_MEMORY, Column.SESSIONS, Column.FRAME_TIME),
        "collects": (Column.GPU_MEMORY, Column.SESSIONS, Column.FRAME_TIME),
        "leaks": (Column.CPU, Column.GPU_MEMORY, Column.SESSIONS, Column.FRAME_TIME),
        "storms": (),
    }[component]
    for column in full.trace.columns:
        equal = np.array_equal(full.trace.columns[column], part.trace.columns[column])
        assert equal == (column in same) or (component == "storms" and column is Column.GPU_MEMORY)
    if component == "storms":  # afterwards, nothing is left of them but what time has moved
        before = slice(0, SCENARIOS["bad-day"].storms_s[0])
        for column, values in full.trace.columns.items():
            np.testing.assert_array_equal(values[before], part.trace.columns[column][before], column)


def test_seeds_differ() -> None:
    assert generate("steady-class", 0, 600) != generate("steady-class", 1, 600)


@pytest.mark.parametrize(("seed", "seconds"), [(0, 1), (-1, 60)])
def test_what_cannot_be_made_is_refused(seed: int, seconds: int) -> None:
    with pytest.raises(ValueError, match="two seconds or more"):
        generate("demo-step", seed, seconds)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(KeyError, match="no-such"):
        generate("no-such", 0)


@EVERY
def test_gpu_memory_falls_only_when_a_scene_or_a_session_goes(name: str) -> None:
    demand = made(name, 3)
    memory = demand.trace.columns[Column.GPU_MEMORY]
    falls = {int(at_s) + 1 for at_s in np.flatnonzero(np.diff(memory) < 0)}
    excused = {change.drops_s for change in demand.transitions} | {begin for begin, _ in demand.stalls}
    excused |= {one.freed_s for one in demand.connections} | {run.starts_s for run in demand.runs}
    assert falls <= excused


@EVERY
def test_events_are_told(name: str) -> None:
    trace = made(name, 0).trace
    kinds = {event.kind for event in trace.events}
    scenario = SCENARIOS[name]
    assert (EventKind.START in kinds) == (not scenario.starts_ready)
    assert (EventKind.GC in kinds) == scenario.collects
    assert (EventKind.STORM in kinds) == bool(scenario.storms_s)
    assert (EventKind.RESTART in kinds) == bool(scenario.restarts_s)


def test_a_day_takes_less_than_five_seconds_and_a_hundred_mebibytes() -> None:
    """In a process of its own: processor time, and the most memory that it ever had."""
    program = (
        "import pathlib, re, time\n"
        "from autoscaler.scenarios.generator import generate\n"
        "from autoscaler.traces.csvfile import csv_text\n"
        "csv_text(generate('bad-day', 3, 86_400))\n"
        "status = pathlib.Path('/proc/self/status').read_text()\n"
        "print(time.process_time(), int(re.search(r'VmHWM:\\s+(\\d+)', status)[1]) / 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    seconds, mebibytes = map(float, done.stdout.split())
    assert seconds < 5
    assert mebibytes < 100
