"""Containers that are measured and folded together: answers go into arrays as they arrive, and are not kept.

All instants of a batch are folded at once, so that a long back-fill costs each container one fold for each resolution,
in whichever order its pieces arrive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.adapters.prometheus import ranges
from autoscaler.adapters.prometheus.answers import Series
from autoscaler.adapters.prometheus.layout import Layout, Names, whose
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.adapters.prometheus.signals import Reading, readings
from autoscaler.core.bounds import HIGHEST
from autoscaler.core.history import ContainerRef, History, advance
from autoscaler.core.model import PodRef, Resource
from autoscaler.core.recommender import Grid, Recommender, Samples
from autoscaler.core.units import Bytes

_RESOURCES = frozenset(Resource)
_MOST_ASIDE = 0.01  # of a step: servers round to milliseconds
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Member(NamedTuple):
    """A container of a batch: what is known of it before, and who folds."""

    history: History | None
    recommender: Recommender[Any]


class Chunk(NamedTuple):
    """One request: one reading over a part of one of the batch's spans."""

    reading: Reading
    table: int
    span: Span


class Batch:
    """The members' missing samples: for each span an array of one row a container for each reading.

    `wanted` signals and the policy's `own` queries are asked for beside CPU and memory. `least`: samples without which
    a rate would be too low. `partial` is to be set where an answer was not whole.
    """

    def __init__(
        self,
        members: Mapping[ContainerRef, Member],
        grid: Grid,
        rate_window_s: int,
        spans: tuple[Span, ...],
        layout: Layout,
        wanted: AbstractSet[str] = frozenset(),
        own: Mapping[str, str] = _NOTHING,
        least: int = 0,
    ) -> None:
        self.partial = False
        self.members = members
        self.spans = spans
        self._grid = grid
        self._row = {container: row for row, container in enumerate(members)}
        self._of_pod: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for row, container in enumerate(members):
            self._of_pod[container[:2]].append(row)
        self._tables: list[dict[str, NDArray[np.float32]]] = []
        pods = {container.pod_ref for container in members}
        containers = {container.container for container in members}
        self._readings = readings(layout, pods, containers, rate_window_s, wanted, own, least)

    def chunks(self, most_points: int) -> tuple[Chunk, ...]:
        """The requests that it takes, oldest first."""
        return tuple(
            Chunk(reading, table, piece)
            for table, span in enumerate(self.spans)
            for piece in ranges.chunks(span, len(self.members), most_points)
            for reading in self._readings
        )

    def query(self, chunk: Chunk) -> str:
        """The PromQL of a request."""
        return chunk.reading.query(chunk.span.step)

    def open(self) -> None:
        """Set the arrays up; nothing is known yet."""
        rows, names = len(self.members), [reading.name for reading in self._readings]
        self._tables = [{n: np.full((rows, len(span)), np.nan, np.float32) for n in names} for span in self.spans]

    def fill(self, chunk: Chunk, answer: Iterable[Series]) -> int:
        """Put an answer where it belongs. Series of other containers and values that no usage has are left out.

        Returns how many series were of other pods.
        """
        others = 0
        span, reading = self.spans[chunk.table], chunk.reading
        table = self._tables[chunk.table][reading.name]
        for series in answer:
            container, whole = _container(series, reading)
            row = self._row.get(container)
            rows = [row] if row is not None else self._of_pod.get(container[:2], []) if whole else []
            if not rows:
                others += container[:2] not in self._of_pod
                continue
            place = (series.at - span.first) / span.step
            column = np.rint(place)
            # NaN compares false
            keep = (series.values >= reading.least) & (series.values <= reading.most)
            # between two instants nothing was asked for: of several values there one would hide the others
            keep &= (column >= 0) & (column < len(span)) & (np.abs(place - column) <= _MOST_ASIDE)
            columns, values = column[keep].astype(np.intp), series.values[keep].astype(np.float32)
            if reading.share:
                values = np.minimum(values, np.float32(1))
            for row in rows:
                # several series of one container are a policy's query that does not say which of them counts
                table[row, columns] = np.fmax(table[row, columns], values)
        return others

    def fold(self) -> dict[ContainerRef, History | None]:
        """The histories with the new samples in them; None where there has never been any. Ends the batch."""
        ends = [np.arange(span.first, span.last + 1, span.step, dtype=np.int64) for span in self.spans]
        folded = {}
        for container, (history, recommender) in self.members.items():
            row = self._row[container]
            for span, end_at, table in zip(self.spans, ends, self._tables, strict=True):
                signals = {name: values[row] for name, values in table.items() if name not in _RESOURCES}
                samples = Samples(end_at, table[Resource.CPU][row], table[Resource.MEMORY][row], signals)
                history = advance(history, samples, recommender, self._grid, sample_s=span.step)
            if history is not None and self.partial:
                history = replace(history, partial_at=self.spans[-1].last)
            folded[container] = history
        self._tables = []
        return folded


def newest_memory(answer: Iterable[Series], pods: AbstractSet[PodRef], names: Names) -> Mapping[ContainerRef, Bytes]:
    """The bytes of an instant query, of all containers of these pods. Values that no usage has are left out."""
    found: dict[ContainerRef, Bytes] = {}
    for series in answer:
        container = _named(series, names)
        value = float(series.values[-1]) if len(series.values) else -1.0
        if container.pod_ref in pods and 0 <= value <= HIGHEST[Resource.MEMORY]:  # NaN compares false
            found[container] = Bytes(int(value))
    return MappingProxyType(found)


def _container(series: Series, reading: Reading) -> tuple[ContainerRef, bool]:
    """Of which container a series is; and whether it is of all of the pod's, if it is of none."""
    if reading.own:
        names, whole = whose(series.labels)
        return ContainerRef(*names), whole
    return _named(series, reading.names), False


def _named(series: Series, names: Names) -> ContainerRef:
    return ContainerRef(*(series.labels.get(name, "") for name in names))
