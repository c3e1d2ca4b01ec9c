"""Asks for what a batch lacks, in parts that servers answer. Synchronous; called from worker threads."""

from __future__ import annotations

from autoscaler.adapters.prometheus import ranges
from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.batch import Batch, Chunk
from autoscaler.adapters.prometheus.retries import retried
from autoscaler.adapters.prometheus.session import PrometheusApi


class Fetcher:
    """Knows how many samples this server gives at once. `most_points`: in one answer."""

    def __init__(self, api: PrometheusApi) -> None:
        self._api = api
        self.most_points = ranges.MOST_POINTS

    def dare(self) -> None:
        """Ask for more at once again: what was too much may pass later."""
        self.most_points = min(ranges.MOST_POINTS, 2 * self.most_points)

    def fetch(self, batch: Batch, chunk: Chunk) -> tuple[str, ...]:
        """Put the answer for a chunk into the batch; in halves where it is too much. Returns what was left out.

        Raises `MetricsError`.
        """
        query = batch.query(chunk)
        missing: tuple[str, ...] = ()
        spans = [chunk.span]
        while spans:
            span = spans.pop()
            points = len(span) * len(batch.members)
            if len(span) == 1 or points <= self.most_points:
                try:
                    answer = retried(self._api.range, query, span)
                except MetricsError as error:
                    if len(span) == 1 or not error.too_much:
                        raise
                    self.most_points = min(self.most_points, points // 2)  # another thread may know better
                else:
                    self._api.traffic.passed_over(batch.fill(chunk, answer.result))
                    missing += answer.missing
                    continue
            spans += reversed(tuple(span.pieces(-(-len(span) // 2))))
        return missing
