"""`run`: turns, signals, reloads and probes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler import cli
from autoscaler.core.model import Problem
from autoscaler.core.reasons import Reason
from tests.cli.conftest import write_policy
from tests.cli.fakes import FakeClock, FakeCluster, FakeLeadership, FakeMetrics, FakeWiring
from tests.cli.plans import POD

Out = pytest.CaptureFixture[str]


def run(wiring: FakeWiring, policies: Path, *arguments: str) -> int:
    line = ["run", f"--policies={policies}", "--metrics-address=127.0.0.1:0", "--log-format=json", *arguments]
    return cli.main(line, wiring)


def events(capsys: Out, name: str) -> list[dict[str, Any]]:
    out = capsys.readouterr()
    assert out.out == ""
    lines = [json.loads(line) for line in out.err.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def test_once_measures_takes_one_turn_and_ends(policies: Path, capsys: Out) -> None:
    wiring = FakeWiring()
    assert run(wiring, policies, "--once") == 0
    assert [action.pod for action in wiring.cluster.performed] == [POD.ref]
    assert wiring.opened == [{"watching": True, "acting": True}]
    out = capsys.readouterr().err
    (turn,) = [json.loads(line) for line in out.splitlines() if '"turn"' in line]
    assert (turn["pods"], turn["outcomes"]) == (1, {"Accepted": 1})


def test_once_with_metrics_that_cannot_be_had_says_so_and_does_nothing(policies: Path, capsys: Out) -> None:
    problem = Problem("prometheus", Reason.METRICS_UNAVAILABLE, "http://p:9090 cannot be reached")
    wiring = FakeWiring(metrics=FakeMetrics(problem=problem))
    assert run(wiring, policies, "--once") == 1
    assert wiring.cluster.performed == []
    assert [line["detail"] for line in events(capsys, "problem")] == ["http://p:9090 cannot be reached"]


def test_once_with_a_cluster_that_cannot_be_observed_fails(policies: Path, capsys: Out) -> None:
    assert run(FakeWiring(cluster=FakeCluster(unavailable="down")), policies, "--once") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "Error: down"


def test_the_controller_takes_turns_until_the_clock_stops_it(policies: Path, capsys: Out) -> None:
    assert run(FakeWiring(clock=FakeClock(ticks=2)), policies) == 0
    assert [line["turn"] for line in events(capsys, "turn")] == [1, 2, 3]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_after_the_action_in_hand(policies: Path, number: int, status: int, capsys: Out) -> None:
    pods = tuple(replace(POD, name=f"bridge-{i}", uid=f"{i}") for i in range(20))
    once = iter([number])  # a second signal would end the process

    def performing() -> None:
        for each in once:
            os.kill(os.getpid(), each)

    cluster = FakeCluster(pods, performing=performing)
    wiring = FakeWiring(cluster=cluster, metrics=FakeMetrics(measured=True), clock=FakeClock(ticks=1000))
    assert run(wiring, policies) == status
    (turn,) = events(capsys, "turn")
    assert 1 <= len(cluster.performed) < len(pods)  # what was in flight is finished, the rest is not begun
    assert turn["outcomes"] == {"Accepted": len(cluster.performed)}


def test_a_signal_while_it_starts_ends_it(policies: Path) -> None:
    once = iter([signal.SIGTERM])  # a second signal would end the process

    def observing() -> None:
        for each in once:
            os.kill(os.getpid(), each)

    wiring = FakeWiring(cluster=FakeCluster(observing=observing))
    assert run(wiring, policies, "--once") == 0
    assert wiring.cluster.performed == []


def test_a_signal_before_anything_has_begun_ends_it(tmp_path: Path) -> None:
    """It waits for its settings, which come through a pipe."""
    settings = tmp_path / "settings.yaml"
    os.mkfifo(settings)
    process = subprocess.Popen([sys.executable, "-m", "autoscaler", "run", f"--config={settings}"])
    with settings.open("w"):
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_a_changed_policy_takes_effect_and_a_bad_one_does_not(policies: Path, capsys: Out) -> None:
    turns = iter(range(100))

    def observing() -> None:
        turn = next(turns)
        if turn == 0:
            write_policy(policies, mode="Recommend")
        elif turn == 1:
            write_policy(policies, mode="Nonsense")

    metrics = FakeMetrics(measured=True)
    wiring = FakeWiring(cluster=FakeCluster(observing=observing), metrics=metrics, clock=FakeClock(ticks=3))
    assert run(wiring, policies) == 0
    out = capsys.readouterr().err
    lines = [json.loads(line) for line in out.splitlines()]
    first, second = [line for line in lines if line["event"] == "policies"]
    assert first["result"] == "changed bridges"
    assert second["level"] == "error"
    assert "bridges.yaml:6: spec.mode" in second["faults"][0]
    reasons = [line["reasons"] for line in lines if line["event"] == "turn"]
    assert reasons == [{"Rebalance": 1}] + [{"RecommendOnly": 1}] * 3


def test_what_nobody_expects_ends_it_with_a_traceback_in_the_log(policies: Path, capsys: Out) -> None:
    class Broken(FakeMetrics):
        async def run(self) -> None:
            raise ZeroDivisionError("a mistake in the program")

    assert run(FakeWiring(metrics=Broken(), clock=FakeClock(ticks=10**6)), policies) == 1
    lines = capsys.readouterr().err.splitlines()
    (crash,) = [json.loads(line) for line in lines if line.startswith("{") and '"crash"' in line]
    assert "test_run.py" in crash["exception"]
    assert "Error: unexpected ZeroDivisionError: a mistake in the program" in lines


def test_standing_by_it_decides_and_leaves_acting_to_the_leader(policies: Path, capsys: Out) -> None:
    wiring = FakeWiring(metrics=FakeMetrics(measured=True), leadership=FakeLeadership(leads=False))
    assert run(wiring, policies) == 0
    assert wiring.cluster.performed == []
    turns = events(capsys, "turn")
    assert {(line["leading"], line["sentence"]) for line in turns} == {
        (False, "standing by, the leader is left to resize 1 of 1 pods")
    }
    assert wiring.clock.ticked == 0
    assert wiring.leadership.released


def test_becoming_the_leader_asks_for_a_turn_and_each_change_is_logged(policies: Path, capsys: Out) -> None:
    leadership = FakeLeadership(leads=False, changes=[True, False])
    wiring = FakeWiring(metrics=FakeMetrics(measured=True), clock=FakeClock(ticks=20), leadership=leadership)
    assert run(wiring, policies) == 0
    assert wiring.cluster.performed
    assert wiring.clock.ticked == 1
    assert [line["leading"] for line in events(capsys, "leader")] == [False, True, False]


def test_once_acts_without_an_election(policies: Path) -> None:
    wiring = FakeWiring(leadership=FakeLeadership(leads=False))
    assert run(wiring, policies, "--once") == 0
    assert [action.pod for action in wiring.cluster.performed] == [POD.ref]


@pytest.mark.parametrize(
    ("arguments", "elects"),
    [([], True), (["--leader-elect"], True), (["--leader-elect=false"], False), (["--leader-elect=true"], True)],
)
def test_the_flag_that_leaves_the_election_out(policies: Path, arguments: list[str], elects: bool) -> None:
    wiring = FakeWiring(clock=FakeClock(ticks=0))
    assert run(wiring, policies, *arguments) == 0
    assert wiring.settings(wiring.flags).leader_elect is elects


def test_an_address_that_is_taken_is_named(policies: Path, capsys: Out) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status = cli.main(["run", f"--policies={policies}", f"--metrics-address=127.0.0.1:{port}"], FakeWiring())
    assert status == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in capsys.readouterr().err
