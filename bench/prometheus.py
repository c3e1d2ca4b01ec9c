"""What measuring 2,000 pods costs a Prometheus and this program: `python -m bench.prometheus`.

Starts a Prometheus of its own and writes usage by remote write. Prints of steady turns, each of which brings one
sample: queries, samples in the greatest answer, wall time, and how much of it goes into decoding; and the same of a
back-fill of 500 pods over 14 days, with how many queries there are at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.layout import CPU, IN_USE, MEMORY
from autoscaler.adapters.prometheus.source import PrometheusMetrics
from autoscaler.core.history import ContainerRef
from autoscaler.core.policy import Policy
from autoscaler.core.problems import NOTES
from autoscaler.core.recommender import Grid
from tests.adapters.prometheus.watched import Exchange, watched
from tests.adapters.prometheus.written import POLICY
from tests.rig.prometheus_server import PrometheusServer

NAMESPACE = "bench"
SCRAPE_S = 5  # also the distance of samples, so that turns need not be a minute apart
BEHIND_S = 28  # of Prometheus' clock at first: with more than 30 s between them its own would count
AHEAD_S = 300  # usage is written for so long a time to come
PAST_S = 120  # between samples of the far past
DAY_S = 86400
_PODS_A_WRITE = 50


class Turn(NamedTuple):
    """Seconds that one took; and of CPU, in both processes."""

    took_s: float
    cpu_s: float


Found = tuple[list[Turn], list[Exchange], int]
"""Turns, what was asked in one, and how many queries there were at a time."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pods", type=int, default=2000)
    options.add_argument("--turns", type=int, default=7)
    options.add_argument("--past-pods", type=int, default=500)
    options.add_argument("--days", type=int, default=14)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        server = PrometheusServer(Path(folder), out_of_order="100y")
        try:
            asyncio.run(measured(server, arguments))
        finally:
            server.stop()


async def measured(server: PrometheusServer, arguments: argparse.Namespace) -> None:
    now = int(time.time())
    wanted = containers("now", arguments.pods)
    write(server, wanted, now - 900, now + AHEAD_S, SCRAPE_S)
    turns, exchanges, most = await steady(server, wanted, arguments.turns)
    median = statistics.median(turn.took_s for turn in turns)
    say(f"a turn for {len(wanted):,} pods: median {median:.2f} s of {listed(turns)}", exchanges, most)
    past = containers("past", arguments.past_pods)
    write(server, past, now - arguments.days * DAY_S, now, PAST_S)
    turns, exchanges, most = await back_fill(server, past, arguments.days)
    say(f"back-fill of {len(past):,} pods over {arguments.days} days: {listed(turns)}", exchanges, most)


def listed(turns: list[Turn]) -> str:
    took, cpu = (", ".join(f"{one:.2f}" for one in column) for column in zip(*turns, strict=True))
    return f"{took} s (CPU, Prometheus' included: {cpu} s)"


async def timed(server: PrometheusServer, metrics: PrometheusMetrics) -> Turn:
    """One measurement."""
    began, cpu_s = time.monotonic(), time.process_time() + server.cpu_s
    await succeed(metrics)
    return Turn(time.monotonic() - began, time.process_time() + server.cpu_s - cpu_s)


def say(what: str, exchanges: list[Exchange], most: int) -> None:
    decoding = min(decoding_s(exchanges) for _ in range(3))
    greatest = max(one.samples for one in exchanges)
    sizes = f"{len(exchanges)} queries, {most} at a time, at most {greatest:,} samples in an answer"
    print(f"{what}; {sizes}; decoding all of them {decoding:.2f} s", flush=True)


def containers(namespace: str, pods: int) -> list[ContainerRef]:
    return [ContainerRef(f"bench-{namespace}", f"sim-{number}", "app") for number in range(pods)]


def write(server: PrometheusServer, wanted: list[ContainerRef], start: int, end: int, every_s: int) -> None:
    """Usage of each container from `start` to `end`, unix seconds."""
    at = range(start // every_s * every_s, end + 1, every_s)
    for first in range(0, len(wanted), _PODS_A_WRITE):
        server.write(
            ({"__name__": metric, **one._asdict()}, list(zip(at, values, strict=True)))
            for number, one in enumerate(wanted[first : first + _PODS_A_WRITE], first)
            for metric, values in _values(at, number).items()
        )


def _values(at: range, number: int) -> dict[str, list[float]]:
    return {
        CPU: [0.2 * (t - at[0]) + number for t in at],
        MEMORY: [2.0**28 + 1e5 * (t % 3600) + number for t in at],
        IN_USE: [2.0**29 + number] * len(at),
    }


async def steady(server: PrometheusServer, wanted: list[ContainerRef], turns: int) -> Found:
    """Steady turns: timed without anything between, and one more that is looked at."""
    grid, clock = Grid(SCRAPE_S, 300), Clock(-BEHIND_S)
    async with watched(server.url) as proxy, AsyncExitStack() as stack:
        alone, seen = (measuring(stack, address, wanted, grid, clock) for address in (server.url, proxy.url))
        await succeed(alone)
        found = []
        for _ in range(turns):
            clock.advance(SCRAPE_S)
            found.append(await timed(server, alone))
        await succeed(seen)
        clock.advance(SCRAPE_S)
        proxy.forget()
        await succeed(seen)
    return found, proxy.exchanges, proxy.most


async def back_fill(server: PrometheusServer, wanted: list[ContainerRef], days: int) -> Found:
    """All that there is, asked for as blocks: through the proxy, whose time is a small part."""
    async with watched(server.url) as proxy, AsyncExitStack() as stack:
        metrics = measuring(stack, proxy.url, wanted, Grid(60, days * DAY_S), Clock())
        return [await timed(server, metrics)], proxy.exchanges, proxy.most


class Clock:
    """The time, and `ahead_s` seconds: turns need not wait for the next sample where it is there already."""

    def __init__(self, ahead_s: float = 0) -> None:
        self._ahead = timedelta(seconds=ahead_s)

    def advance(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._ahead


def measuring(
    stack: AsyncExitStack, url: str, wanted: list[ContainerRef], grid: Grid, clock: Clock, policy: Policy = POLICY
) -> PrometheusMetrics:
    metrics = PrometheusMetrics(Access(url, timeout_s=60), now=clock)
    stack.callback(metrics.close)
    metrics.follow(dict.fromkeys(wanted, replace(policy, grid=grid)))
    return metrics


async def succeed(metrics: PrometheusMetrics) -> None:
    found = await metrics.measure_once()
    if problems := [problem for problem in found.problems if problem.reason not in NOTES]:
        raise SystemExit(f"measuring failed: {problems[0].detail}")


def decoding_s(exchanges: list[Exchange]) -> float:
    """Seconds of CPU that it takes to decode all of these answers."""
    began = time.process_time()
    for one in exchanges:
        one.series()
    return time.process_time() - began


if __name__ == "__main__":
    main()
