"""Prometheus, and the usage of the selected pods in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from autoscaler.core.history import ContainerRef
from autoscaler.core.model import Problem
from autoscaler.core.policy import Policy
from autoscaler.core.quality import SCRAPES_IN_A_WINDOW
from autoscaler.diagnosis.cluster import NodeFacts
from autoscaler.diagnosis.findings import Check, Finding, Status, counted, failed, listed

SKEW = timedelta(seconds=30)  # from when on Prometheus' time is used instead of the API server's
_STALE_SCRAPES, _STALE_S = 5, 60.0
_YOUNG_S = 120.0  # a container has not been scraped yet
_V2_BY_DEFAULT = 36  # failCgroupV1 is true (kubelet configuration v1beta1)


def clocks(server: datetime, local: datetime, prometheus: datetime) -> Iterator[Finding]:
    """How far the three clocks are apart: the API server's, this machine's, Prometheus'."""
    apart = prometheus - server
    if abs(apart) > SKEW:
        detail = f"Prometheus' clock is {_seconds(apart)} the API server's: samples look older or newer than they are"
        yield Finding(Check.CLOCKS, Status.WARNING, detail, "set both by NTP; until then Prometheus' time is used")
    else:
        yield Finding(
            Check.CLOCKS, Status.OK, f"Prometheus and the API server differ by {abs(apart).total_seconds():.0f} s"
        )
    if abs(local - server) > SKEW:
        detail = f"this machine's clock is {_seconds(local - server)} the API server's; nothing here goes by it"
        yield Finding(Check.CLOCKS, Status.NOTE, detail)


def _seconds(apart: timedelta) -> str:
    seconds = apart.total_seconds()
    return f"{abs(seconds):,.0f} s {'ahead of' if seconds > 0 else 'behind'}"


def labels(names: Iterable[str], notes: Iterable[Problem]) -> Iterator[Finding]:
    """By which labels the selected pods' series are found."""
    yield Finding(Check.LABELS, Status.OK, f"containers are found by the labels {', '.join(names)}")
    for note in notes:
        yield Finding(Check.LABELS, Status.NOTE, note.detail)


def unlabelled(memory: str, age_s: float) -> Finding:
    """There is no such series of any selected pod, the oldest of whose containers is so old."""
    detail = f"no series {memory} of a selected pod, under any labels that are known"
    if age_s < _YOUNG_S:
        detail = f"{detail}; all of them started less than {_YOUNG_S / 60:g} minutes ago"
        return Finding(Check.LABELS, Status.UNKNOWN, detail, "run doctor again")
    return Finding(Check.LABELS, Status.ERROR, detail, _UNLABELLED)


_UNLABELLED = (
    "have Prometheus scrape the kubelets' /metrics/cadvisor; if it does, see how its series name namespace, pod and "
    "container"
)


def scrapes(interval_s: int | None, policies: Iterable[Policy]) -> Iterator[Finding]:
    """How often is scraped, and whether CPU rates are over enough scrapes. None: fewer than two were found."""
    if interval_s is None:
        yield Finding(Check.SCRAPES, Status.UNKNOWN, "no series has two samples within 10 minutes", "run doctor again")
        return
    yield Finding(Check.SCRAPES, Status.OK, f"every {interval_s} s")
    needed = SCRAPES_IN_A_WINDOW * interval_s
    for policy in policies:
        window = policy.rate_window.total_seconds()
        if window < needed:
            # with fewer than two scrapes in it a window has no rate at all
            status = Status.ERROR if window < 2 * interval_s else Status.WARNING
            detail = f"metrics.rateWindow {window:g}s is less than {SCRAPES_IN_A_WINDOW} scrapes: CPU usage has gaps"
            yield Finding(Check.SCRAPES, status, detail, f"write rateWindow: {needed}s ({policy.source})", policy.name)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A series that is read. `without`: what does not work without it; `missing`: how bad that is."""

    metric: str
    without: str
    missing: Status


@dataclass(frozen=True, slots=True)
class Seen:
    """When each container was last scraped, and when that was asked: unix seconds of Prometheus' clock."""

    newest: Mapping[ContainerRef, float]
    asked_at: float
    interval_s: int


def coverage(wanted: Wanted, seen: Seen, started: Mapping[ContainerRef, datetime]) -> Finding:
    """Of how many containers there is such a series, and how old it is. `started`: those that are to be sized."""
    stale_s = max(_STALE_S, float(_STALE_SCRAPES * seen.interval_s))
    ages = {container: seen.asked_at - seen.newest[container] for container in started if container in seen.newest}
    stale = [container for container, age in ages.items() if age > stale_s]
    absent = [container for container in started if container not in ages]
    young = [one for one in absent if seen.asked_at - started[one].timestamp() < max(_YOUNG_S, 2 * seen.interval_s)]
    lacking = sorted({*absent} - {*young} | {*stale})
    counts = f"{len(ages) - len(stale)} of {counted(len(started), 'container')}"
    if lacking:
        names = listed(dict.fromkeys(str(container.pod_ref) for container in lacking))
        oldest = f"; newest sample {max(ages[one] for one in stale):,.0f} s old" if stale else ""
        status = wanted.missing if len(lacking) == len(started) else min(wanted.missing, Status.WARNING, key=_BADNESS)
        detail = f"{counts}: {wanted.without}; missing of {names}{oldest}"
        return Finding(Check.METRICS, status, detail, _SCRAPE.format(wanted.metric), wanted.metric)
    if young:
        detail = f"{counts}; the others started less than {_YOUNG_S / 60:g} minutes ago"
        return Finding(Check.METRICS, Status.NOTE, detail, "run doctor again", wanted.metric)
    oldest = f", at most {max(0.0, *ages.values()):.0f} s old" if ages else ""
    return Finding(Check.METRICS, Status.OK, counts + oldest, subject=wanted.metric)


_BADNESS = list(Status).index
_SCRAPE = (
    "see whether Prometheus' targets for these pods' nodes are up (/metrics/cadvisor of their kubelets), and that "
    "relabelling keeps {}"
)


def signal(policy: Policy, name: str, found: Collection[ContainerRef], asked: Collection[ContainerRef]) -> Finding:
    """Of how many of a policy's containers there is a signal: its own, or one that its recommender reads."""
    counts = f"{len(found)} of {counted(len(asked), 'container')}"
    subject = f"{policy.name}/{name}"
    if len(found) == len(asked):
        return Finding(Check.SIGNALS, Status.OK, counts, subject=subject)
    detail = (
        f"{counts}; missing of {listed(dict.fromkeys(str(one.pod_ref) for one in sorted(asked) if one not in found))}"
    )
    if name in policy.signals:
        status = Status.WARNING if not found else Status.NOTE
        return Finding(Check.SIGNALS, status, detail, _OWN_SIGNAL.format(name, policy.source), subject)
    return Finding(Check.SIGNALS, Status.NOTE, detail, "see in docs/metrics.md what has it", subject)


_OWN_SIGNAL = (
    "run the query of metrics.signals.{} by hand ({}): it must give a number with the labels namespace and pod"
)


def sessions(policy: str, lacking: Collection[str], pods: int) -> Finding:
    """Whether a policy's drain query has a number for each of its pods."""
    if not lacking:
        return Finding(
            Check.SESSIONS, Status.OK, f"fallback.drain.query answers for {counted(pods, 'pod')}", "", policy
        )
    detail = f"fallback.drain.query has no number for {len(lacking)} of {counted(pods, 'pod')}: {listed(lacking)}"
    return Finding(Check.SESSIONS, Status.WARNING, f"{detail}; they wait as if they had sessions", _GATE, policy)


_GATE = "run the query by hand: it must give one number a pod, with the labels namespace and pod, also for none (0)"


def cgroups(found: Iterable[NodeFacts], told: Mapping[str, int], pressed: Collection[str]) -> Iterator[Finding]:
    """Which nodes have cgroup v2. `told`: what kubelets say; `pressed`: nodes with PSI, which only v2 has."""
    v1, v2, likely, unknown = list[str](), list[str](), list[str](), list[str]()
    for node in found:
        if node.os != "linux":
            continue
        version = told.get(node.name, 2 if node.name in pressed else None)
        if version is not None:
            (v1 if version == 1 else v2).append(node.name)
        else:
            (likely if node.minor is not None and node.minor >= _V2_BY_DEFAULT else unknown).append(node.name)
    if v1:
        detail = (
            f"cgroup v1 on {listed(v1)}: no pressure (PSI) is measured, and kubelets since 1.36 refuse to start on it"
        )
        yield Finding(Check.CGROUPS, Status.WARNING, detail, "move these nodes to cgroup v2")
    if v2:
        yield Finding(Check.CGROUPS, Status.OK, f"v2 on {counted(len(v2), 'node')}")
    if likely:
        detail = f"v2 on {listed(likely)}, unless their kubelets are told failCgroupV1: false"
        yield Finding(Check.CGROUPS, Status.NOTE, detail)
    if unknown:
        detail = (
            f"not known of {listed(unknown)}: Prometheus has no kubelet_cgroup_version and no pressure (PSI) of them"
        )
        yield Finding(Check.CGROUPS, Status.UNKNOWN, detail, "scrape the kubelets' /metrics, or look on the nodes")


def disputes(details: Mapping[str, str]) -> Iterator[Finding]:
    """Pods that are left alone because copies of a series differ, each with what they say."""
    if details:
        text = next(iter(details.values()))
        found = failed(Check.METRICS, f"copies of a series differ for {listed(details)}: {text}")
        yield replace(found, subject="copies")


def partial(texts: Iterable[str]) -> Iterator[Finding]:
    """What the server said of data that it left out."""
    for text in dict.fromkeys(texts):
        yield Finding(Check.METRICS, Status.WARNING, f"answers are partial: {text[:300]}", _PARTIAL)


_PARTIAL = "see the state of its stores: what they leave out counts as missing"
