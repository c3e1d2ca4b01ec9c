"""The demo as a user meets it, and what its story tells of a turn."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.console import Console

from autoscaler.cli import main
from autoscaler.cli.demo_story import Story
from autoscaler.cli.demo_table import LiveTable
from autoscaler.core.actions import ContainerResize, Outcome, OutcomeKind
from autoscaler.core.decide import decide
from autoscaler.core.model import ContainerKind, Pod, PodRef, Resource
from autoscaler.core.policy import Config, Mode, Policy, Selector
from autoscaler.core.reasons import Reason
from autoscaler.loop import Loop
from autoscaler.ports import Done, Turn, Wake, WakeKind
from autoscaler.recommenders.percentile import Percentile, PercentileParameters
from autoscaler.simulator.clock import VirtualClock
from autoscaler.simulator.cluster import SimulatedCluster
from autoscaler.simulator.metrics import SimulatedMetrics
from tests.simulator.builders import START, both, cluster, container, demand, node, pod, sizes


def _demo(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["demo", "--seconds", "0"]) == 0
    return capsys.readouterr().out


def test_the_demo_ends_by_itself_and_names_what_was_resized_deferred_and_held(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = _demo(capsys)
    lines = printed.splitlines()
    events, summary = (
        [line for line in lines if re.match(r"\d\d:\d\d:\d\d ", line)],
        lines[lines.index("Resized: 7 pods") :],
    )

    assert "\x1b" not in printed
    assert any("lidar-0 Decrease: resized in place in 0.8 s: app cpu 3 -> 2100m" in line for line in events)
    assert any("replay-0 Increase: resized in place in 2h" in line for line in events)
    assert any("world-0 held: ResizeDeferred: Node didn't have enough resource: cpu" in line for line in events)
    assert "0 container restarts, 9 of 9 pods with the uid and the QoS class they began with." in printed
    assert [line.split()[0] for line in summary if line.startswith("  ")] == [
        *("camera-0", "lidar-0", "map-0", "physics-0", "replay-0", "traffic-0", "world-0"),
        *("replay-0", "world-0"),
        *("rookie-0", "scratch-0"),
    ]
    assert any(re.search(r" world-0 Revert: given up: ", line) for line in events)
    assert re.search(r"^  world-0 +from 09:\d\d to 12:\d\d, until it was given up$", printed, re.MULTILINE)
    assert any(" world-0 held: RetryLater: until " in line for line in events)
    assert re.search(r"^  rookie-0 +RecommendOnly: .*app cpu 500m -> 3\d0m", printed, re.MULTILINE)
    assert re.search(r"^  scratch-0 +BestEffort: ", printed, re.MULTILINE)


def test_two_runs_print_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert _demo(capsys) == _demo(capsys)


def test_ctrl_c_ends_the_demo_with_the_summary_so_far() -> None:
    command = [sys.executable, "-m", "autoscaler", "demo", "--seconds", "3600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        rest, errors = process.communicate(timeout=30)

    assert first.startswith("08:00:00 ")
    assert "Summary of 08:00 to 08:0" in rest
    assert errors == "Replaying 6 hours of recorded usage on a simulated cluster. Ctrl-C ends it.\n"
    assert process.returncode == 130


def test_on_a_terminal_it_draws_the_table() -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "30"}
    command = [sys.executable, "-m", "autoscaler", "demo", "--seconds", "0"]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        drawn = b""
        with suppress(OSError):  # how Linux says that the other end is closed
            while part := os.read(ours, 65536):
                drawn += part
    os.close(ours)
    text = drawn.decode()

    assert process.returncode == 0
    assert "virtual time 14:00" in text
    summary = text[text.index("Summary of") :].splitlines()
    assert max(map(len, summary)) <= 80
    assert any(line.startswith(" " * 13) for line in summary)
    assert text.count("camera-0") > 2
    assert "\x1b[32mSettled" in text
    assert "Deferred: 2 pods" in text


def _config(mode: Mode = Mode.RESIZE) -> Config:
    params = PercentileParameters(min_history=timedelta(minutes=2))
    return Config((Policy("p", Percentile(params), Selector(frozenset({"sim"})), mode),))


class _Kept:
    """A journal that keeps what a story tells."""

    def __init__(self) -> None:
        self.story = Story()
        self.lines: list[str] = []

    def record(self, turn: Turn) -> None:
        self.lines += self.story.tell(turn)


async def _told(sim: SimulatedCluster, minutes: int, config: Config) -> _Kept:
    kept = _Kept()
    clock = VirtualClock(sim, timedelta(minutes=1), START + timedelta(minutes=minutes))
    await Loop(sim, SimulatedMetrics(sim), clock, kept, lambda: config).run()
    return kept


def _has(lines: Sequence[str], pattern: str) -> bool:
    return any(re.search(pattern, line) for line in lines)


async def test_an_oom_kill_and_a_restart_by_resize_policy_are_told() -> None:
    restarting = container(both("500m", "256Mi"), restart_on=frozenset({Resource.MEMORY}))
    sim = cluster(pod("a", restarting), usage=demand(cpu=0.2, memory=["200Mi"] * 10 + ["300Mi"] + ["200Mi"] * 60))

    kept = await _told(sim, 15, _config())

    assert _has(kept.lines, r"^08:10:00 a container app stopped: OOMKilled$")
    assert _has(kept.lines, r"a Increase: asked, predicted Restart: app memory 256Mi -> 301Mi")
    assert _has(kept.lines, r"a Increase: resized by a restart in ")
    assert " 2 container restarts, 1 of 1 pods" in kept.story.summary()[0]


async def test_somebody_elses_resize_and_a_dry_run_are_told_as_what_they_are() -> None:
    sim = cluster(pod("a", container(sizes("500m", "256Mi", "1", "512Mi"))), usage=demand(cpu=0.2))
    sim.advance(START)
    sim.resize(PodRef("sim", "a"), (ContainerResize("app", ContainerKind.CONTAINER, sizes("600m", None)),), "kubectl")

    kept = await _told(sim, 12, _config(Mode.RECOMMEND))

    assert _has(kept.lines, r"^08:00:00 a Resize: resized in place in 0\.8 s: app cpu 500m/1 -> 600m/1$")
    assert _has(kept.lines, r"a held: OtherWriter: kubectl asked for a size at ")
    assert kept.story.summary()[-1].startswith("  a          OtherWriter: ")


async def test_a_refused_ask_is_told_with_the_servers_words() -> None:
    sim = cluster(pod("a", container(both("1", "1Gi"))), usage=demand(cpu=0.2))
    snapshot = await sim.observe()
    plan = decide(snapshot, SimulatedMetrics(sim).latest(), _config())
    refused = Outcome(OutcomeKind.REFUSED, "exceeded quota: q", "")
    done = Done(replace(plan.decisions[0], reason=Reason.INCREASE, detail="app cpu 1 -> 2"), refused, timedelta())

    lines = Story().tell(Turn(1, Wake(WakeKind.TICK), timedelta(), plan, (done,)))

    assert lines[-1] == "08:00:00 a Increase: Refused: exceeded quota: q: app cpu 1 -> 2"


def test_a_turn_without_a_cluster_is_told_and_nothing_else() -> None:
    story = Story()
    turn = Turn(1, Wake(WakeKind.TICK), timedelta(), unavailable="the watch is 90 s old")

    assert story.tell(turn) == ["turn 1: the watch is 90 s old"]
    assert story.summary() == ["Nothing has happened yet."]


async def test_the_table_fits_80_columns_and_shows_size_usage_phase_and_reason() -> None:
    sim = cluster(
        pod("physics-0", container(sizes("100m", "64Mi", "200m", "128Mi"), "recorder"), container(sizes("1", "1Gi"))),
        pod("world-0", container(both("1", "1Gi"))),
        replace(pod("scratch-0", container(sizes(None, None)))),
        nodes=(node(cpu="2100m"),),
        usage=demand(cpu=0.9, memory="100Mi"),
    )
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=80, height=40, color_system=None)

    def usage_of(pod: Pod) -> tuple[float, float]:
        return 0.9, 100 << 20

    with LiveTable(Story(), console, usage_of) as table:
        clock = VirtualClock(sim, timedelta(minutes=1), START + timedelta(minutes=20))
        await Loop(sim, SimulatedMetrics(sim), clock, table, _config).run()
    lines = [line.rstrip() for line in drawn.getvalue().split("virtual time")[-1].splitlines()]

    assert max(map(len, lines)) <= 80
    assert lines[0].strip() == "08:19"
    assert lines[1].split() == ["pod", "qos", "cpu", "r/l", "memory", "r/l", "in", "use", "phase", "reason"]
    assert [line.split()[0] for line in lines[2:5]] == ["physics-0", "scratch-0", "world-0"]
    assert lines[3].split() == ["scratch-0", "BestEff.", "-", "-", "0.90", "0.1Gi", "Settled", "BestEffort"]
    assert "Settled RetryLater" in "\n".join(lines)
