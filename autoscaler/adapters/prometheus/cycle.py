"""What one cycle of measuring is made of, and what it has come to so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.batch import Batch, Chunk
from autoscaler.adapters.prometheus.tracked import Tracked
from autoscaler.core.history import ContainerRef
from autoscaler.core.model import Problem

Progress = Callable[[int, int, int], None]
"""Hears of requests done, of requests in all, and of the samples that these may be answered with."""

_LIVE_INSTANTS = 10
"""That a turn may have missed. With more at once many containers make up for an outage."""


class Work(NamedTuple):
    """A batch with its requests. `since`: how far its members had been measured; None for a back-fill. `shortened`:
    whether it is a part of the look-back alone."""

    batch: Batch
    chunks: tuple[Chunk, ...]
    tracked: Mapping[ContainerRef, Tracked]
    since: int | None
    shortened: bool = False

    @property
    def is_past(self) -> bool:
        """Whether it is much that is asked for: a back-fill, or what was missed in a long outage."""
        return self.since is None or sum(map(len, self.batch.spans)) > _LIVE_INSTANTS


class Cycle:
    """What one cycle has come to so far."""

    def __init__(self, progress: Progress | None, started_at: datetime, backfill_until: float) -> None:
        self._progress = progress
        self.started_at = started_at
        self.backfill_until = backfill_until  # loop time after which no further back-fill is started
        self.asked = 0  # queries that every cycle makes
        self.requests = self._finished = 0
        self.samples = 0  # that the requests may be answered with, of those that are followed
        self.unreachable: list[MetricsError] = []
        self.busy: MetricsError | None = None  # of a server that is to be asked nothing more
        self.postponed = False
        self.first_known = False
        self.problems: dict[Problem, None] = {}
        self.faulty: set[str] = set()  # signals whose queries are at fault

    def go_on(self) -> None:
        """Raise `MetricsError` if the server is to be asked nothing more."""
        if self.busy is not None:
            raise self.busy

    def expect(self, work: Iterable[Work]) -> None:
        """This is going to be asked for, too."""
        for item in work:
            self.requests += len(item.chunks)
            self.samples += sum(len(chunk.span) for chunk in item.chunks) * len(item.tracked)

    def finish(self, requests: int) -> None:
        self._finished += requests
        if self._progress is not None:
            self._progress(self._finished, self.requests, self.samples)
