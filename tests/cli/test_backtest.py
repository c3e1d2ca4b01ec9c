"""`bridge-autoscaler backtest`: what it prints where, and its exit status."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from autoscaler import cli
from autoscaler.backtest.limits import FIGURES
from tests.backtest.public import SHIPPED
from tests.cli.conftest import write_policy

Out = pytest.CaptureFixture[str]
GIB = 1 << 30


@pytest.fixture
def usage(tmp_path: Path) -> Path:
    """Two hours at 1 core and 1 GiB, with three minutes at 3 of them after 90."""
    path = tmp_path / "usage.csv"
    rows = [(3.0 if 90 <= minute < 93 else 1.0) for minute in range(120)]
    lines = [f"{60 * minute},{value},{int(value * GIB)}" for minute, value in enumerate(rows)]
    path.write_text("\n".join(["timestamp_s,cpu_cores,memory_bytes", *lines, ""]))
    return path


def backtest(*arguments: object) -> int:
    return cli.main(["backtest", *map(str, arguments), "--jobs=1"])


def refused(capsys: Out, *arguments: object) -> str:
    assert backtest(*arguments) == 1
    out = capsys.readouterr()
    assert out.out == ""
    return out.err


def document(capsys: Out) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_contract(usage: Path, capsys: Out) -> None:
    arguments = ("--recommender", "percentile", "--resource", "memory", "--limit", "hard", "--replay", "open")
    assert backtest("--trace", usage, *arguments, "--interval", "60s", "--warmup", "1h", "-o", "json") == 0
    found = document(capsys)
    (one,) = found["traces"]
    assert (one["trace"], one["resource"]) == ("usage", "memory")
    figures = ("slack_percent", "throttled_percent", "unmet_percent", "oom_per_day", "resizes_per_day")
    assert [one[name] for name in figures] == [found["mean"][name] for name in figures]
    assert one["oom_episodes"] == 1
    assert one["oom_per_day"] == pytest.approx(24)
    assert set(FIGURES) <= one.keys() & found["mean"].keys()


def test_parameters_make_a_difference(usage: Path, capsys: Out) -> None:
    arguments = ("--trace", usage, "--resource", "cpu", "--recommender")
    assert backtest(*arguments, "percentile", "--parameters", "cpu.margin=100%,cpu.target=max", "-o", "json") == 0
    wide = document(capsys)
    assert backtest(*arguments, "percentile:cpu.margin=0%,cpu.target=max", "-o", "json") == 0
    narrow = document(capsys)
    assert wide["mean"]["slack_percent"] > 40 > narrow["mean"]["slack_percent"]
    assert wide["recommender"] == "percentile:cpu.margin=100%,cpu.target=max"


def test_several_of_both_are_shown_beside_each_other(usage: Path, capsys: Out) -> None:
    other = SHIPPED / "nezha_tt_gateway_0129.csv"
    entrants = ("--recommender", "percentile", "--recommender", "percentile:memory.margin=50%")
    assert backtest("--trace", usage, "--trace", other, "--resource", "memory", *entrants) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    lines = [line.split()[0] for line in out.splitlines() if line]
    assert lines.count("nezha_tt_gateway_0129") == 2
    assert lines.count("mean") == 3
    assert lines[-2] == "percentile:memory.margin=50%"
    assert backtest("--trace", usage, "--trace", other, "--resource", "memory", *entrants, "-o", "json") == 0
    runs = document(capsys)["runs"]
    assert [len(run["traces"]) for run in runs] == [2, 2]


def test_the_table_fits_80_columns(usage: Path, capsys: Out) -> None:
    for resource in ("cpu", "memory"):
        assert backtest("--trace", usage, "--resource", resource, "--recommender", "percentile") == 0
        out = capsys.readouterr()
        assert max(map(len, out.out.splitlines())) <= 80
        assert "Against today's twice the peak of the first hour:" in out.out


def test_the_least_slack_with_as_many_resizes(usage: Path, capsys: Out) -> None:
    arguments = ("--trace", usage, "--resource", "memory", "--recommender", "percentile", "--as-often")
    assert backtest(*arguments, "-o", "json") == 0
    found = document(capsys)
    (one,) = found["traces"]
    # an hour at 1 GiB with three minutes at 3 in it; there is room for both changes
    assert one["resizes"] >= 2
    assert one["oracle_same_resizes_slack_percent"] == pytest.approx(0)
    assert found["mean"]["oracle_same_resizes_slack_percent"] == pytest.approx(0)
    assert one["oracle_slack_percent"] == pytest.approx(100 * (1 - 66 / 180))
    assert backtest(*arguments, "--recommender", "percentile:memory.margin=50%") == 0
    out = capsys.readouterr().out
    assert out.count("as often\n") == 3
    assert max(map(len, out.splitlines())) <= 80


def test_what_runs_today_is_where_it_starts_and_what_it_is_compared_with(usage: Path, capsys: Out) -> None:
    arguments = ("--trace", usage, "--resource", "memory", "--recommender", "percentile", "-o", "json")
    assert backtest(*arguments, "--today", "memory=2560Mi,cpu=3") == 0
    (one,) = document(capsys)["traces"]
    assert one["today"]["size"] == 2.5 * GIB
    assert one["today"]["oom_episodes"] == 1
    assert (one["oom_avoided"], one["oom_caused"]) == (0, 0)
    assert one["reserved_change_percent"] < -20


def test_a_bound_that_is_passed_fails_it(usage: Path, capsys: Out) -> None:
    arguments = ("--trace", usage, "--resource", "memory", "--recommender", "percentile")
    assert backtest(*arguments, "--fail-if", "oom_per_day > 24.5", "--fail-if", "slack_percent >= 99 %") == 0
    assert capsys.readouterr().err == ""
    assert backtest(*arguments, "--fail-if", "oom_per_day > 0.4", "--fail-if", "slack_percent < 0") == 3
    err = capsys.readouterr().err
    assert err == "failed: percentile: oom_per_day is 24; --fail-if 'oom_per_day > 0.4'\n"


def test_a_figure_that_is_not_known_fails_it(usage: Path, capsys: Out) -> None:
    arguments = ("--trace", usage, "--resource", "cpu", "--recommender", "percentile")
    assert backtest(*arguments, "--fail-if", "late_frames_percent > 1") == 3
    err = capsys.readouterr().err
    assert err.startswith("failed: percentile: late_frames_percent is not known; it takes a trace with frame_time_ms")


def test_late_frames_are_shown_where_a_trace_has_frames(tmp_path: Path, capsys: Out) -> None:
    path = tmp_path / "frames.csv"
    rows = [f"{60 * at},{4 if at == 90 else 1},{20 if at % 2 else ''}" for at in range(120)]
    rows[90] = f"{60 * 90},4,20"
    path.write_text("timestamp_s,cpu_cores,frame_time_ms\n" + "\n".join(rows) + "\n")
    arguments = ("--trace", path, "--resource", "cpu", "--recommender", "percentile:cpu.margin=10%", "--today", "cpu=2")
    assert backtest(*arguments) == 0
    head, row = capsys.readouterr().out.splitlines()[3:5]
    assert head.split()[:5] == ["trace", "slack", "throttled", "unmet", "late"]
    assert backtest(*arguments, "-o", "json") == 0
    (one,) = document(capsys)["traces"]
    # of the second hour 30 samples have a frame time, and so has the one in which twice or four times as much is wanted
    assert one["late_frames_percent"] == pytest.approx(100 / 31)
    assert row.split()[4] == "3.23%"
    assert one["today"]["late_frames_percent"] == pytest.approx(100 / 31)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fail-if", "ooms > 1"), "there is no figure 'ooms'; figures: days, slack_percent"),
        (("--fail-if", "oom_per_day"), "is no condition; write a figure"),
        (("--recommender", "bridgee"), "--recommender: no recommender 'bridgee' is installed (did you mean bridge?)"),
        (("--recommender", "percentile:cpu.margn=1%"), "--recommender: cpu.margn: unknown key (did you mean margin?)"),
        (("--recommender", "percentile", "--parameters", "cpu.margn=1%"), "--parameters: cpu.margn: unknown key"),
        (("--recommender", "bridge", "--recommender", "bridge"), "bridge is given twice"),
        (("--html", "/no/page.html"), "there is no folder /no for page.html; create it"),
        (("--html", f"/{'a' * 300}/page.html"), "for page.html; create it"),
        (("--fail-if", "late_frames_percent > 1"), "late_frames_percent says nothing of memory"),
        (("--recommender", "percentile:cpu"), "--recommender: 'cpu' is no parameter; write key=value"),
        (("--recommender", "percentile:cpu.margin=1%,cpu.margin=2%"), "cpu.margin: is given twice"),
        (("--recommender", "percentile:cpu=1,cpu.margin=2%"), "cpu.margin: has a value, and keys below it"),
        (("--recommender", "percentile", "--recommender", "bridge", "--parameters", "a=1"), "'--parameters'"),
        (("--today", "cpu=4Gib"), "'--today'"),
        (("--today", "disk=4"), "'disk=4' is no size; write cpu=4,memory=8Gi"),
        (("--today", "memory=0"), "is next to nothing; write what runs today"),
        (("--today", "memory=4"), "is next to nothing; write what runs today, like memory=4Gi"),
        (("--today", "memory=4Gi,memory=5Gi"), "memory is given twice"),
        (("--today", "cpu=4"), "says nothing of memory; add memory="),
        (("--resource", "cpu", "--fail-if", "oom_per_day > 0"), "oom_per_day says nothing of cpu"),
        (("--parameters", "cpu.margin=5%"), "say of which recommender"),
        (("--others", "cpu=4"), "'--others'"),
        (("--policy", "p.yaml", "--others", "cpu=4"), "give --node, too"),
        (("--policy", "p.yaml", "--node", "cpu=4,cpu=5"), "cpu is given twice"),
        (("--interval", "0s"), "0 s is no interval"),
        (("--interval", "1500ms"), "1500ms is not a whole number of seconds"),
        (("--interval", "60"), "is not a duration; write a number with its unit"),
        (("--interval", "7s"), "trace usage has a step of 60 s, which does not fit a control interval of 7 s"),
        (("--warmup", "2h"), "trace usage lasts 2h, which is all warm-up; give a shorter --warmup"),
        (("--resource", "gpu_memory"), "trace usage has no gpu_memory_bytes; resources recorded there: cpu, memory"),
        (("--trace", "gone.csv"), "gone.csv: cannot be read"),
    ],
)
def test_errors_name_the_flag_and_the_remedy(usage: Path, capsys: Out, arguments: tuple[str, ...], words: str) -> None:
    resource = () if "--resource" in arguments else ("--resource", "memory")
    assert words in refused(capsys, "--trace", usage, *resource, *arguments)


def test_several_processes_find_the_same(usage: Path, capsys: Out) -> None:
    arguments = ["--trace", str(usage), "--resource", "cpu", "--recommender", "percentile", "-o", "json"]
    arguments += ["--recommender", "percentile:cpu.margin=50%"]
    assert cli.main(["backtest", *arguments, "--jobs=1"]) == 0
    alone = document(capsys)
    assert cli.main(["backtest", *arguments, "--jobs=2"]) == 0
    assert document(capsys) == alone


def test_what_held_sizes_back_is_a_share_of_the_decisions(usage: Path, capsys: Out, tmp_path: Path) -> None:
    """Of which there are none in the first hour, and more than one for each sample."""
    policy = write_policy(tmp_path)
    arguments = ("--trace", usage, "--resource", "memory", "--policy", policy, "--interval", "15s")
    assert backtest(*arguments) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Held back: "))
    shares = {reason: int(share) for reason, share in re.findall(r"(\w+) in (\d+)%", line)}
    assert backtest(*arguments, "-o", "json") == 0
    (one,) = document(capsys)["traces"]
    decisions = sum(one["held"].values()) + one["resizes"]
    for reason, count in one["held"].items():
        if reason != "AtTarget" and count > 0.06 * decisions:
            assert shares[reason] == pytest.approx(100 * count / decisions, abs=1)
    assert shares


def test_a_whole_policy_beside_a_recommender(usage: Path, capsys: Out, tmp_path: Path) -> None:
    policy = write_policy(tmp_path, mode="Recommend")
    arguments = ("--trace", usage, "--resource", "memory", "--recommender", "percentile", "--policy", policy)
    assert backtest(*arguments, "--node", "cpu=8,memory=16Gi", "--others", "memory=1Gi", "-o", "json") == 0
    neutral, whole = document(capsys)["runs"]
    assert neutral["recommender"] == "percentile"
    assert whole["recommender"].startswith("policy ")
    assert whole["traces"][0]["held"].keys() & {"ChangeTooSmall", "Cooldown"}
    assert not neutral["traces"][0]["held"].keys() & {"ChangeTooSmall", "Cooldown"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--node", "cpu=8"), "a node counts for policies alone; give a --policy"),
        (("--node", "disk=8"), "'disk=8' is no amount; write cpu=16,memory=64Gi"),
        (("--others", "memory=8Gib"), "'--others'"),
        (("--policy", "gone.yaml"), "gone.yaml: no such file or folder"),
    ],
)
def test_errors_of_policies(usage: Path, capsys: Out, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(capsys, "--trace", usage, "--resource", "memory", *arguments)
