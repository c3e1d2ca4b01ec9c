"""Containers that are measured and folded together: answers go into arrays as they arrive, and are not kept.

All instants of a batch are folded at once, so that a long back-fill costs each container one fold for each resolution,
in whichever order its pieces arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from autoscaler.adapters.prometheus import queries, ranges
from autoscaler.adapters.prometheus.answers import Series
from autoscaler.adapters.prometheus.layout import Layout, Names
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.core.bounds import HIGHEST
from autoscaler.core.history import ContainerRef, History, advance
from autoscaler.core.model import PodRef, Resource
from autoscaler.core.recommender import Grid, Recommender, Samples
from autoscaler.core.units import Bytes

_HIGHEST = {Resource.CPU: HIGHEST[Resource.CPU] / 1000, Resource.MEMORY: HIGHEST[Resource.MEMORY]}  # cores, bytes


class Member(NamedTuple):
    """A container of a batch: what is known of it before, and who folds."""

    history: History | None
    recommender: Recommender[Any]


class Chunk(NamedTuple):
    """One request: a resource over a part of one of the batch's spans."""

    resource: Resource
    table: int
    span: Span


class Batch:
    """The members' missing samples: for each span, CPU and memory as arrays of one row a container."""

    def __init__(
        self,
        members: Mapping[ContainerRef, Member],
        grid: Grid,
        rate_window_s: int,
        wanted: tuple[Span, ...],
        layout: Layout,
    ) -> None:
        self.members = members
        self.spans = wanted
        self._grid = grid
        self._rate_window_s = rate_window_s
        self._row = {container: row for row, container in enumerate(members)}
        self._tables: list[dict[Resource, np.ndarray[Any, np.dtype[np.float32]]]] = []
        self._layout = layout
        self._matchers = queries.of_pods(layout, {container.pod_ref for container in members})

    def chunks(self, most_points: int) -> tuple[Chunk, ...]:
        """The requests that it takes, oldest first."""
        return tuple(
            Chunk(resource, table, piece)
            for table, span in enumerate(self.spans)
            for piece in ranges.chunks(span, len(self.members), most_points)
            for resource in Resource
        )

    def query(self, chunk: Chunk) -> str:
        """The PromQL of a request."""
        if chunk.resource is Resource.CPU:
            return queries.cpu(self._layout, self._matchers, self._rate_window_s)
        return queries.memory(self._layout, self._matchers, chunk.span.step)

    def open(self) -> None:
        """Set the arrays up; nothing is known yet."""
        shape = len(self.members)
        self._tables = [{r: np.full((shape, len(s)), np.nan, np.float32) for r in Resource} for s in self.spans]

    def fill(self, chunk: Chunk, answer: Iterable[Series]) -> None:
        """Put an answer where it belongs. Series of other containers and values that no usage has are left out."""
        span = self.spans[chunk.table]
        table, most = self._tables[chunk.table][chunk.resource], _HIGHEST[chunk.resource]
        for series in answer:
            row = self._row.get(_container(series, self._layout.names))
            if row is None:
                continue
            column = np.rint((series.at - span.first) / span.step)
            # NaN compares false
            keep = (series.values >= 0) & (series.values <= most) & (column >= 0) & (column < len(span))
            table[row, column[keep].astype(np.intp)] = series.values[keep]

    def fold(self) -> dict[ContainerRef, History | None]:
        """The histories with the new samples in them; None where there has never been any. Ends the batch."""
        ends = [np.arange(span.first, span.last + 1, span.step, dtype=np.int64) for span in self.spans]
        folded = {}
        for container, (history, recommender) in self.members.items():
            row = self._row[container]
            for span, end_at, table in zip(self.spans, ends, self._tables, strict=True):
                samples = Samples(end_at, table[Resource.CPU][row], table[Resource.MEMORY][row])
                history = advance(history, samples, recommender, self._grid, sample_s=span.step)
            folded[container] = history
        self._tables = []
        return folded


def newest_memory(answer: Iterable[Series], pods: AbstractSet[PodRef], names: Names) -> Mapping[ContainerRef, Bytes]:
    """The bytes of an instant query, of all containers of these pods. Values that no usage has are left out."""
    found: dict[ContainerRef, Bytes] = {}
    for series in answer:
        container = _container(series, names)
        value = float(series.values[-1]) if len(series.values) else -1.0
        if container.pod_ref in pods and 0 <= value <= _HIGHEST[Resource.MEMORY]:  # NaN compares false
            found[container] = Bytes(int(value))
    return MappingProxyType(found)


def _container(series: Series, names: Names) -> ContainerRef:
    return ContainerRef(*(series.labels.get(name, "") for name in names))
