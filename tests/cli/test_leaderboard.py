"""`bridge-autoscaler leaderboard`: who takes part, on what, and how it is ranked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from click import ClickException

from autoscaler import cli
from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.ranking import ranked
from autoscaler.backtest.running import Terms
from autoscaler.backtest.scoring import Scores
from autoscaler.cli.leaderboard import SHIPPED, page, put
from autoscaler.cli.rendering.backtest import Result
from autoscaler.cli.rendering.leaderboard import PUBLIC, Board, as_markdown
from autoscaler.traces.reading import read_trace
from autoscaler.traces.trace import Column, Trace
from tests.report.made import GIB, outcome
from tests.rig.rig import eventually

GOOD = Scores(7, 40, 0.5, 1, 0.1, 10, 1, 1, 70, 1, 2)
FLAT = GIB * np.ones(120)


def test_all_that_ship_take_part() -> None:
    assert set(SHIPPED) == {each.name for each in entry_points(group="bridge_autoscaler.recommenders")}


@pytest.mark.parametrize("replayed", Replayed)
def test_slack_ranks_those_that_meet_the_bounds(replayed: Replayed) -> None:
    bound = 0.4 if replayed is Replayed.MEMORY else 1
    means = {
        "starves": replace(GOOD, slack_percent=1, throttled_percent=bound + 0.01, oom_per_day=bound + 0.01),
        "restless": replace(GOOD, slack_percent=2, resizes_per_day=24.1),
        "wide": replace(GOOD, slack_percent=50),
        "just": replace(GOOD, slack_percent=39, throttled_percent=bound, oom_per_day=bound, resizes_per_day=24),
        "also wide": replace(GOOD, slack_percent=50),
    }
    assert ranked(means, replayed) == ["just", "also wide", "wide"]


def board(**sizes: float) -> Board:
    """One gibibyte for two hours, with an oom of one minute where less than two are reserved; one trace."""
    terms = Terms(Replayed.MEMORY)
    wanted = FLAT.copy()
    wanted[90] = 1.9 * GIB
    made = [
        Result(name, terms, [outcome(wanted, size * FLAT, terms, name="alibaba18_x")]) for name, size in sizes.items()
    ]
    return Board("public traces", made)


def test_figures_by_hand() -> None:
    found = as_markdown([board(histogram=4, tight=1.5, bridge=2)], ["alibaba18_x", "mine"], ["cold-start"], 7)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines() if line[:1] == "|"]
    # wanted: 60.9 GiB-minutes; the oracle may keep one size for the hour: 1.9 x 60 = 114
    assert rows[2:] == [
        ["1", "`bridge`", "49.2 (49.2 alibaba18_x)", "0.00", "0", "0.95", "0.0", "yes"],
        ["2", "`histogram`", "74.6 (74.6 alibaba18_x)", "0.00", "0", "0.00", "0.0", ""],
        ["– (OOM)", "`tight`", "32.8 (32.8 alibaba18_x)", "24.00 (24.00 alibaba18_x)", "1", "1.19", "0.0", "yes"],
        ["", "oracle", "46.6", "", "", "", "", ""],
    ]
    assert "`alibaba18_x`: container c_12104" in found
    assert "- `mine`." in found
    assert f"- Absent when this was made: {', '.join(f'`{name}`' for name in PUBLIC)}." in found
    assert "seed 7: `cold-start`" in found


def gpu_memory(folder: Path) -> Path:
    path = folder / "mine.csv"
    path.write_text("timestamp_s,gpu_memory_bytes\n" + "".join(f"{60 * at},{GIB:.0f}\n" for at in range(90)))
    return path


def test_in_several_processes_it_is_the_same_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    public = [read_trace(gpu_memory(tmp_path)), Trace.of("flat", 60, {Column.MEMORY: FLAT})]
    alone = page(public, (), 3, ("percentile",), 1)
    assert page(public, (), 3, ("percentile",), 2) == alone
    put(alone, None)
    assert capsys.readouterr().out == alone
    with pytest.raises(ClickException, match="cannot be written"):
        put(alone, tmp_path / "no" / "page.md")


def test_ctrl_c_ends_all_of_its_processes(tmp_path: Path) -> None:
    """Also while those are at work that would take minutes."""
    line = [sys.executable, "-m", "autoscaler", "leaderboard", "--jobs=2", "--output", str(tmp_path / "page.md")]
    process = subprocess.Popen(line, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually("they have begun", lambda: len(in_group(process.pid)) >= 3, 60)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == cli.INTERRUPTED
        eventually("none is left", lambda: not in_group(process.pid))
    finally:
        for left in in_group(process.pid):
            os.kill(left, signal.SIGKILL)
    assert not (tmp_path / "page.md").exists()


def in_group(group: int) -> list[int]:
    """The processes of a group that are alive."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, of = status.read_text().rpartition(")")[2].split()[:3]
            if int(of) == group and state != "Z":
                found.append(int(status.parent.name))
    return found


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more, found = tmp_path / "more", tmp_path / "page.md"
    more.mkdir()
    gpu_memory(more)
    (more / "notes.txt").write_text("no trace")
    arguments = ["leaderboard", "--traces", str(more), "--recommender", "percentile", "--scenario", "cold-start"]
    assert cli.main([*arguments, "--seed", "3", "--jobs", "2", "-o", str(found)]) == 0
    assert [line for line in found.read_text().splitlines() if line.startswith("## ")] == [
        "## Traces",
        "## CPU, hard limit: public traces",
        "## Memory: public traces",
        "## GPU memory: public traces",
        "## CPU, hard limit: scenarios",
        "## Memory: scenarios",
    ]
    (more / "broken.csv").write_text("timestamp_s,nothing\n0,1\n60,2\n")
    assert cli.main([*arguments, "--jobs", "1"]) == 1
    assert "broken.csv" in capsys.readouterr().err
