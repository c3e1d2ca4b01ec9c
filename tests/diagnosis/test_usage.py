"""What is made of clocks, scrapes, coverage and cgroups."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from autoscaler.core.history import ContainerRef
from autoscaler.core.policy import Policy
from autoscaler.diagnosis import usage
from autoscaler.diagnosis.cluster import NodeFacts
from autoscaler.diagnosis.findings import Finding, Status
from autoscaler.diagnosis.usage import Seen, Wanted
from autoscaler.recommenders.percentile import Percentile, PercentileParameters

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
CPU = Wanted("cpu_total", "no CPU is sized", Status.ERROR)
EVERY = [ContainerRef("sim", f"sim-{n}", "app") for n in range(8)]


def shown(found: list[Finding]) -> list[tuple[Status, str]]:
    return [(one.status, one.detail) for one in found]


@pytest.mark.parametrize(
    ("local_s", "prometheus_s", "expected"),
    [
        (0, 0, [(Status.OK, "Prometheus and the API server differ by 0 s")]),
        (0, -30, [(Status.OK, "Prometheus and the API server differ by 30 s")]),
        (
            0,
            -31,
            [
                (
                    Status.WARNING,
                    "Prometheus' clock is 31 s behind the API server's: samples look older or newer than they are",
                )
            ],
        ),
        (
            3600,
            0,
            [
                (Status.OK, "Prometheus and the API server differ by 0 s"),
                (
                    Status.NOTE,
                    "this machine's clock is 3,600 s ahead of the API server's; nothing here goes by it",
                ),
            ],
        ),
    ],
)
def test_clocks(local_s: int, prometheus_s: int, expected: list[tuple[Status, str]]) -> None:
    local, prometheus = NOW + timedelta(seconds=local_s), NOW + timedelta(seconds=prometheus_s)
    assert shown(list(usage.clocks(NOW, local, prometheus))) == expected


@pytest.mark.parametrize(
    ("interval_s", "window_s", "status"),
    [(60, 240, None), (61, 240, Status.WARNING), (120, 240, Status.WARNING), (121, 240, Status.ERROR)],
)
def test_a_rate_window_holds_four_scrapes(interval_s: int, window_s: int, status: Status | None) -> None:
    policy = Policy("sim", Percentile(PercentileParameters()), rate_window=timedelta(seconds=window_s))
    first, *rest = usage.scrapes(interval_s, [policy])
    assert (first.status, first.detail) == (Status.OK, f"every {interval_s} s")
    assert [one.status for one in rest] == ([] if status is None else [status])
    assert all(f"rateWindow: {4 * interval_s}s" in one.remedy for one in rest)


def test_an_interval_that_is_not_known_says_nothing_of_windows() -> None:
    policy = Policy("sim", Percentile(PercentileParameters()), rate_window=timedelta(seconds=1))
    (only,) = usage.scrapes(None, [policy])
    assert only.status is Status.UNKNOWN


def coverage(ages: list[float | None], *, since_s: float = 3600, wanted: Wanted = CPU, interval_s: int = 30) -> Finding:
    now = NOW.timestamp()
    newest = {container: now - age for container, age in zip(EVERY, ages, strict=False) if age is not None}
    started = dict.fromkeys(EVERY[: len(ages)], NOW - timedelta(seconds=since_s))
    return usage.coverage(wanted, Seen(newest, now, interval_s), started)


def test_all_are_there() -> None:
    found = coverage([3, 17.6])
    assert (found.status, found.detail, found.subject) == (
        Status.OK,
        "2 of 2 containers, at most 18 s old",
        "cpu_total",
    )


def test_some_are_missing_and_are_named() -> None:
    found = coverage([1, None, 151, 150, None, None, None, None])
    assert found.status is Status.WARNING
    assert found.detail == (
        "2 of 8 containers: no CPU is sized; missing of sim/sim-1, sim/sim-2, sim/sim-4, sim/sim-5, sim/sim-6 and 1 "
        "more; newest sample 151 s old"
    )
    assert "keeps cpu_total" in found.remedy


def test_all_are_missing() -> None:
    assert coverage([None, None]).status is Status.ERROR
    assert coverage([None, 1e4]).status is Status.ERROR
    assert coverage([None], wanted=Wanted("x", "less", Status.WARNING)).status is Status.WARNING


def test_what_has_just_started_is_not_missed_yet() -> None:
    found = coverage([1, None], since_s=119)
    assert (found.status, found.detail) == (
        Status.NOTE,
        "1 of 2 containers; the others started less than 2 minutes ago",
    )
    assert coverage([1, None], since_s=121).status is Status.WARNING
    assert coverage([1, 1e4], since_s=1).status is Status.WARNING


def test_a_server_that_leaves_data_out_does_not_say_what_to_do() -> None:
    (found,) = usage.partial(["store b is away; run this", "store b is away; run this"])
    assert found.detail == "answers are partial: store b is away; run this"
    assert found.remedy.startswith("see the state of its stores")


def test_no_series_at_all() -> None:
    assert usage.unlabelled("memory", 119).status is Status.UNKNOWN
    found = usage.unlabelled("memory", 121)
    assert found.status is Status.ERROR
    assert "/metrics/cadvisor" in found.remedy


def test_cgroups_are_told_or_unknown_never_guessed() -> None:
    nodes = [
        NodeFacts("a", "v1.35.0", 35, "linux"),
        NodeFacts("b", "v1.35.0", 35, "linux"),
        NodeFacts("c", "v1.36.0", 36, "linux"),
        NodeFacts("d", "v1.35.0", 35, "linux"),
        NodeFacts("e", "v1.35.0", 35, "windows"),
        NodeFacts("f", "odd", None, "linux"),
    ]
    found = shown(list(usage.cgroups(nodes, {"a": 1, "b": 2}, {"d"})))
    assert found == [
        (
            Status.WARNING,
            "cgroup v1 on a: no pressure (PSI) is measured, and kubelets since 1.36 refuse to start on it",
        ),
        (Status.OK, "v2 on 2 nodes"),
        (Status.NOTE, "v2 on c, unless their kubelets are told failCgroupV1: false"),
        (Status.UNKNOWN, "not known of f: Prometheus has no kubelet_cgroup_version and no pressure (PSI) of them"),
    ]
