"""`bridge-autoscaler backtest --last`: usage straight from Prometheus, against what runs today."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoscaler import cli
from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.layout import CPU, MEMORY, MEMORY_LIMIT
from autoscaler.adapters.prometheus.ranges import MOST_PAST
from autoscaler.adapters.prometheus.source import PrometheusMetrics
from autoscaler.core.history import Measurements
from autoscaler.core.model import Container, Pod, Resources
from autoscaler.traces.reading import read_trace
from autoscaler.traces.trace import Column, EventKind
from tests.build import amounts
from tests.cli.conftest import write_policy
from tests.cli.fakes import FakeCluster, FakeMetrics, FakeWiring
from tests.rig.prometheus_server import PrometheusServer, Series

Out = pytest.CaptureFixture[str]
GIB = 1 << 30
SCRAPE_S = 15
HOURS = 4
KILLED_AT, BACK_AT = 2 * 3600, 2 * 3600 + 600  # s after the first sample; nothing is scraped in between
SIZE = Resources(amounts("2", "1536Mi"), amounts("4", "2Gi"))


def pod(namespace: str, *containers: str) -> Pod:
    made = tuple(Container(name, spec=SIZE, actual=SIZE, running=True) for name in containers)
    return Pod(namespace, "bridge-0", "11111111", node="node-a", containers=made)


def backtest(wiring: FakeWiring, policies: Path, *arguments: object) -> int:
    return cli.main(["backtest", "--jobs=1", "--policies", str(policies), *map(str, arguments)], wiring)


def document(capsys: Out) -> tuple[dict[str, Any], str]:
    out = capsys.readouterr()
    found: dict[str, Any] = json.loads(out.out)
    return found, out.err


def life(namespace: str) -> list[Series]:
    """Four hours at one core and 1 GiB. Memory rises to 1.9 GiB of a limit of 2, which kills; ten minutes are lost."""
    newest = int(time.time()) // SCRAPE_S * SCRAPE_S - 2
    first = newest - HOURS * 3600
    at = [t for t in range(first, newest + 1, SCRAPE_S) if not KILLED_AT <= t - first < BACK_AT]

    def memory(since: int) -> float:
        return (1.9 if KILLED_AT - 1800 <= since < KILLED_AT else 1.0) * GIB

    def series(metric: str, value: Callable[[int], float], **more: str) -> Series:
        labels = {"namespace": namespace, "pod": "bridge-0", "container": "app", **more}
        return {"__name__": metric, **labels}, [(t, value(t - first)) for t in at]

    status = "kube_pod_container_status"
    return [
        series(CPU, lambda since: since),
        series(MEMORY, memory),
        series(MEMORY_LIMIT, lambda _: 2.0 * GIB),
        series(f"{status}_restarts_total", lambda since: float(since >= BACK_AT), job="kube-state-metrics"),
        series(
            f"{status}_last_terminated_reason",
            lambda since: float(since >= BACK_AT),
            job="kube-state-metrics",
            reason="OOMKilled",
        ),
    ]


def of(server: PrometheusServer, cluster: FakeCluster, most_past: int = MOST_PAST) -> FakeWiring:
    wiring = FakeWiring(cluster)
    wiring.metrics = PrometheusMetrics(  # type: ignore[assignment]
        Access(server.url), now=lambda: datetime.now(UTC), traffic=wiring.traffic, most_past=most_past
    )
    return wiring


def test_what_a_setting_keeps_from_being_read_is_not_put_down_to_retention(
    prometheus: PrometheusServer, tmp_path: Path, capsys: Out
) -> None:
    prometheus.write(life("cut"))
    policies, wiring = write_policy(tmp_path, namespace="cut"), of(prometheus, FakeCluster((pod("cut", "app"),)), 800)
    arguments = ("--last", "4h", "--resource", "memory", "--recommender", "percentile", "-o", "json")
    assert backtest(wiring, policies, *arguments) == 0
    _, err = document(capsys)
    assert re.search(r"of the last 4h there is \S+ of cut/bridge-0/app; prometheus.backfillSamples allows no more", err)
    assert "retention" not in err


def test_what_prometheus_has_is_replayed_against_what_runs_today(
    prometheus: PrometheusServer, tmp_path: Path, capsys: Out
) -> None:
    prometheus.write(life("lately"))
    policies, kept = write_policy(tmp_path, namespace="lately"), tmp_path / "kept"
    wide = "percentile:memory.target=max,memory.margin=100%"
    arguments = ("--resource", "memory", "--recommender", wide, "-o", "json")
    wiring, page = of(prometheus, FakeCluster((pod("lately", "app"),))), tmp_path / "page.html"
    assert backtest(wiring, policies, "--last", "14d", "--save-traces", kept, "--html", page, *arguments) == 0
    assert "Against 2 GiB, 1.5 of it reserved, all the time" in page.read_text()
    found, err = document(capsys)
    there = r"of the last 14d there is (3h59m|4h|4h1m) of lately/bridge-0/app; its retention is shorter, or they are "
    assert re.search(there, err)
    assert "queries" in err
    (one,) = found["traces"]
    assert one["trace"] == "lately/bridge-0/app"
    assert (one["oom_avoided"], one["oom_caused"]) == (1, 0)
    assert (one["today"]["size"], one["today"]["reserved"], one["today"]["oom_episodes"]) == (2 * GIB, 1.5 * GIB, 1)
    # three hours less ten minutes are scored; today 1.5 GiB are reserved of the limit of 2
    assert one["today"]["reserved_hours"] == pytest.approx(1.5 * GIB * 17 / 6, rel=0.02)
    assert one["reserved_change_percent"] == pytest.approx(
        100 * (one["reserved_hours"] / one["today"]["reserved_hours"] - 1)
    )

    (file,) = kept.iterdir()
    trace = read_trace(file)
    assert trace.step_s == 60
    assert len(trace) == pytest.approx(HOURS * 60, abs=2)
    cpu, memory = trace.columns[Column.CPU], trace.columns[Column.MEMORY]
    known = cpu[np.isfinite(cpu)]
    assert (np.abs(known - 1) < 1e-3).sum() >= len(known) - 2  # but where a rate's window reaches into nothing
    assert known.max() < 1.001
    gap = np.flatnonzero(np.isnan(memory))
    assert len(gap) == pytest.approx(9, abs=1)
    assert np.diff(gap).tolist() == [1] * (len(gap) - 1)
    (restart,) = trace.events
    assert restart.kind is EventKind.RESTART
    assert restart.row == gap[-1] + 1
    assert memory[restart.row] == pytest.approx(2.4 * GIB)  # a fifth above the limit of then
    assert np.nanmax(np.delete(memory, restart.row)) == pytest.approx(1.9 * GIB)

    again = ["backtest", "--trace", str(file), "--today", "memory=2Gi", *arguments]
    assert cli.main(again) == 0
    same, _ = document(capsys)
    assert same["traces"][0]["slack_percent"] == pytest.approx(one["slack_percent"], rel=1e-6)


def test_nothing_recorded_is_an_error(prometheus: PrometheusServer, tmp_path: Path, capsys: Out) -> None:
    policies = write_policy(tmp_path, namespace="nowhere")
    wiring = of(prometheus, FakeCluster((pod("nowhere", "app"),)))
    assert backtest(wiring, policies, "--last", "1h", "--resource", "cpu") == 1
    out = capsys.readouterr()
    assert out.out == ""
    assert "nothing to replay: nowhere/bridge-0/app: no samples in Prometheus" in out.err


def test_a_prometheus_that_does_not_answer_is_named(tmp_path: Path, capsys: Out) -> None:
    policies = write_policy(tmp_path)
    wiring = FakeWiring(FakeCluster((pod("sim", "app"),)))
    wiring.metrics = PrometheusMetrics(Access("http://127.0.0.1:9"), now=lambda: datetime.now(UTC))  # type: ignore[assignment]
    assert backtest(wiring, policies, "--last", "1h", "--resource", "cpu") == 1
    assert "http://127.0.0.1:9" in capsys.readouterr().err


def test_without_an_address_the_flag_is_named(tmp_path: Path, capsys: Out) -> None:
    arguments = ["--last", "1h", "--resource", "cpu", "--policies", str(write_policy(tmp_path))]
    assert cli.main(["backtest", *arguments]) == 1
    assert "--prometheus-url: not given" in capsys.readouterr().err


# ---- the rest on usage that is made up: a day at 1.5 cores and 2 GiB


def test_nothing_said_each_container_is_tried_under_its_policy(tmp_path: Path, capsys: Out) -> None:
    write_policy(tmp_path, "first", namespace="sim", mode="Off")
    write_policy(tmp_path, "second", namespace="other")
    wiring = FakeWiring(FakeCluster((pod("sim", "app", "proxy"), pod("other", "app"), pod("third", "app"))))
    assert backtest(wiring, tmp_path, "--last", "6h", "--resource", "cpu", "-o", "json") == 0
    found, err = document(capsys)
    assert found["recommender"] == "the policy of each"
    assert [one["trace"] for one in found["traces"]] == ["other/bridge-0/app", "sim/bridge-0/app", "sim/bridge-0/proxy"]
    assert "there is no kube_pod_container_status_restarts_total" in err
    assert {one["today"]["size"] for one in found["traces"]} == {4}
    assert wiring.opened == [{"watching": False, "acting": False}]


def test_candidates_are_tried_on_all_that_is_selected(tmp_path: Path, capsys: Out) -> None:
    candidate = tmp_path / "candidate.yaml"
    candidate.write_text(
        (policies := write_policy(tmp_path)).read_text().replace("bridges", "wide") + "  containers:\n  - name: app\n"
        "    minAllowed: {cpu: 3}\n  - {name: proxy, controlledResources: [memory]}\n"
    )
    wiring = FakeWiring(FakeCluster((pod("sim", "app", "proxy"),)))
    arguments = ("--last", "6h", "--resource", "cpu", "--policy", candidate, "--recommender", "percentile")
    assert backtest(wiring, policies, *arguments, "--pod", "sim/bridge-*") == 0
    out = capsys.readouterr()
    assert "sim/bridge-0/proxy is left out: policy wide leaves cpu alone" in out.err
    assert out.out.count("\nAgainst what runs today: ") == 2
    assert cli.main(["backtest", "--jobs=1", *map(str, arguments)], wiring) == 0  # the candidate says which, then
    assert "policy wide" in capsys.readouterr().out
    assert backtest(wiring, policies, *arguments, "--pod", "other/*") == 1
    assert "nothing to read: the policies select no container" in capsys.readouterr().err


def test_a_size_of_ones_own_counts_instead(policies: Path, capsys: Out) -> None:
    wiring = FakeWiring(FakeCluster((pod("sim", "app"),)))
    arguments = ("--last", "3h", "--resource", "memory", "--recommender", "percentile", "--today", "memory=8Gi")
    assert backtest(wiring, policies, *arguments) == 0
    assert "Against today's 8Gi:" in capsys.readouterr().out


class Interrupted(FakeMetrics):
    """Someone presses Ctrl-C while it measures."""

    async def measure_once(self, progress: Callable[[int, int, int], None] | None = None) -> Measurements:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)
        return self.latest()


def test_ctrl_c_ends_it(policies: Path, capsys: Out) -> None:
    wiring = FakeWiring(FakeCluster((pod("sim", "app"),)), Interrupted())
    assert backtest(wiring, policies, "--last", "3h", "--resource", "cpu") == cli.INTERRUPTED
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give --trace FILE, or --last 14d for what Prometheus has"),
        (("--trace", "a.csv", "--last", "14d"), "leave one of them out"),
        (("--trace", "a.csv", "--pod", "a"), "without --last there is no use for --pod or --save-traces"),
        (("--trace", "a.csv", "--prometheus-url", "http://a"), "without --last there is no use for --prometheus-url"),
        (("--last", "0s"), "0 s is no time; write 14d"),
        (("--last", "14"), "is not a duration"),
    ],
)
def test_flags_that_do_not_go_together(capsys: Out, arguments: tuple[str, ...], words: str) -> None:
    assert cli.main(["backtest", "--resource", "cpu", *arguments]) == 1
    assert words in capsys.readouterr().err
