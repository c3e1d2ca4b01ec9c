"""Which instants are asked for, and in how many requests. Pure arithmetic on whole unix seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoscaler.core.history import ContainerRef
from autoscaler.core.recommender import Grid

# the budget of one query: 3.5 MB of JSON. It reads 20 times as many at most, 5 minutes of scrapes 15 s apart for each:
# a small fraction of --query.max-samples (50 million)
MOST_POINTS = 100_000
MOST_STEPS = 11_000  # Prometheus refuses ranges with more
MOST_RANGE_S = 31 * 86400  # Amazon's refuses ranges of more than 32 days
MOST_PODS = 250  # named in one query: Prometheus looks up to 256 alternatives of a regex up in its index
MOST_LETTERS = 12_000  # of their names: VictoriaMetrics takes queries of 16 KiB (-search.maxQueryLen)
NAMED_LETTERS = MOST_LETTERS // 3  # of those in a batch: a query may name them so often
MOST_PAST = 100_000_000
"""Samples that all back-fills together may be answered with: 2,000 containers, 10 readings of each (CPU, memory and
every signal that comes built in), 4,128 instants (14 days of blocks, and 2 hours of minutes)."""

_MOST_CELLS = 2_000_000  # of one batch held in memory: 16 MB


@dataclass(frozen=True, slots=True)
class Span:
    """The instants `first`, `first + step`, … `last`, all multiples of the step."""

    first: int
    last: int
    step: int

    def __len__(self) -> int:
        return (self.last - self.first) // self.step + 1

    def pieces(self, steps: int) -> Iterator[Span]:
        """The same instants in spans of at most so many steps."""
        for first in range(self.first, self.last + 1, steps * self.step):
            yield Span(first, min(first + (steps - 1) * self.step, self.last), self.step)


def newest_instant(now: float, scrape_interval_s: int, step: int) -> int:
    """The newest grid point that is settled: two scrapes ago, so that late ones have arrived."""
    return int(now - 2 * scrape_interval_s) // step * step


def affordable(grid: Grid, most: int) -> int:
    """How many seconds of the past are so many instants; no more than the look-back, and one block at least."""
    fine = min(grid.fine, grid.lookback) // grid.step
    if grid.block == grid.step or most <= fine:
        return min(grid.lookback, max(grid.block, most * grid.step))
    return min(grid.lookback, fine * grid.step + (most - fine - 1) * grid.block)


def instants(grid: Grid) -> int:
    """How many a whole look-back is, at most."""
    return sum(map(len, spans(None, 10**9 // grid.block * grid.block, grid)))


def spans(after: int | None, end: int, grid: Grid, past_s: int | None = None) -> tuple[Span, ...]:
    """What a history that reaches up to `after` (None: no history) lacks up to `end`, in order of time.

    What is older than `grid.fine` is asked for at block resolution. `past_s`: of a look-back without a history, if it
    is to be shorter than the grid's.
    """
    past_s = grid.lookback if past_s is None else past_s
    start = end - past_s if after is None else max(after, end - grid.lookback)
    wanted = []
    coarse_until = start
    if grid.block > grid.step:
        boundary = (end - grid.fine) // grid.block * grid.block
        first = (start // grid.block + 1) * grid.block
        if first <= boundary:
            wanted.append(Span(first, boundary, grid.block))
            coarse_until = boundary
    first = (coarse_until // grid.step + 1) * grid.step
    if first <= end:
        wanted.append(Span(first, end, grid.step))
    return tuple(wanted)


def chunks(span: Span, series: int, most_points: int = MOST_POINTS) -> tuple[Span, ...]:
    """The span in pieces of which each response holds at most so many points, over a range that no server refuses."""
    most_steps = min(MOST_STEPS, MOST_RANGE_S // span.step)
    return tuple(span.pieces(max(1, min(most_steps, most_points // max(1, series)))))


def batches(
    containers: Sequence[ContainerRef], columns: int, in_namespaces: int = 0
) -> Iterator[tuple[ContainerRef, ...]]:
    """Containers in groups that are measured and folded together; those of one pod stay together.

    A group of few instants may be large: one query then asks for whole namespaces, in which there are so many
    containers `in_namespaces`. One of many instants is bounded by what it takes in memory and by the number of pods
    that one query should name.
    """
    most = max(1, _MOST_CELLS // max(1, columns))
    by_pod: dict[tuple[str, str], list[ContainerRef]] = {}
    for container in sorted(containers):
        by_pod.setdefault((container.namespace, container.pod), []).append(container)
    most_pods = len(by_pod) if max(len(containers), in_namespaces) * columns <= MOST_POINTS else MOST_PODS
    most_letters = math.inf if most_pods > MOST_PODS else NAMED_LETTERS
    batch: list[ContainerRef] = []
    pods = letters = 0
    for (_, name), of_pod in by_pod.items():
        full = pods == most_pods or len(batch) + len(of_pod) > most or letters + len(name) > most_letters
        if batch and full:
            yield tuple(batch)
            batch, pods, letters = [], 0, 0
        batch += of_pod
        pods += 1
        letters += len(name)
    if batch:
        yield tuple(batch)
