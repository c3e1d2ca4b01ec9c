"""Asks for what a batch lacks, in parts that servers answer. Synchronous; called from worker threads."""

from __future__ import annotations

from autoscaler.adapters.prometheus import queries, ranges
from autoscaler.adapters.prometheus.answers import Answer, MetricsError, Series
from autoscaler.adapters.prometheus.batch import Batch, Chunk
from autoscaler.adapters.prometheus.layout import whose
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.adapters.prometheus.retries import retried
from autoscaler.adapters.prometheus.session import PrometheusApi

_MOST_GROWTH = 10  # of the series that a query of a policy's finds, from one time to the next
_MOST_KNOWN = 1000  # queries; those for pods that are gone are not asked again


class _TooMany(MetricsError):
    """A policy's query finds more series than may be answered with."""


class Fetcher:
    """Knows how many samples this server gives at once. `most_points`: in one answer."""

    def __init__(self, api: PrometheusApi) -> None:
        self._api = api
        self._series: dict[str, int] = {}  # that queries of policies' own were answered with
        self.most_points = ranges.MOST_POINTS

    def dare(self) -> None:
        """Ask for more at once again: what was too much may pass later."""
        self.most_points = min(ranges.MOST_POINTS, 2 * self.most_points)

    def fetch(self, batch: Batch, chunk: Chunk) -> tuple[str, ...]:
        """Put the answer for a chunk into the batch; in halves where it is too much. Returns what was left out.

        Raises `MetricsError`.
        """
        query = batch.query(chunk)
        ask = self._own if chunk.reading.own else self._planned
        missing: tuple[str, ...] = ()
        spans = [chunk.span]
        while spans:
            span = spans.pop()
            points = len(span) * len(batch.members)
            if len(span) == 1 or points <= self.most_points:
                try:
                    answer = ask(query, span)
                except MetricsError as error:
                    if len(span) == 1 or not error.too_much:
                        raise
                    if not isinstance(error, _TooMany):
                        self.most_points = min(self.most_points, points // 2)  # another thread may know better
                else:
                    self._api.traffic.passed_over(batch.fill(chunk, answer.result))
                    missing += answer.missing
                    continue
            spans += reversed(tuple(span.pieces(-(-len(span) // 2))))
        return missing

    def _planned(self, query: str, span: Span) -> Answer[list[Series]]:
        return retried(self._api.range, query, span)

    def _own(self, query: str, span: Span) -> Answer[list[Series]]:
        """A policy's query, which may find any number of series: the server is told how many may be answered with,
        as long as it is not known that there are far fewer."""
        known = self._series.get(query, 0)
        if known and _MOST_GROWTH * known * len(span) <= ranges.MOST_POINTS:
            answer = retried(self._api.range, query, span)
        else:
            answer = retried(self._api.range, queries.at_most(query, ranges.MOST_POINTS // len(span)), span)
            for series in answer.result:
                if queries.TOO_MANY in series.labels and len(series.values):
                    raise _TooMany(
                        200,
                        "too_large",
                        f"finds {series.values.max():,.0f} series, and {ranges.MOST_POINTS:,} samples are read at once "
                        "at most; let the query select less, with $namespace and $pod, or add up",
                    )
        if answer.result and not any(whose(series.labels)[0].pod for series in answer.result):
            text = "finds series without the label pod; let the query keep it, as sum by (namespace, pod) (…) does"
            raise MetricsError(200, "no_labels", text)
        if len(self._series) >= _MOST_KNOWN:
            self._series.clear()
        self._series[query] = max(known, len(answer.result))
        return answer
