"""Portions of what is to be measured: batches of containers that lack the same, with their requests. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from autoscaler.adapters.prometheus import ranges
from autoscaler.adapters.prometheus.batch import Batch, Member
from autoscaler.adapters.prometheus.cycle import Work
from autoscaler.adapters.prometheus.fetch import Fetcher
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.adapters.prometheus.survey import Survey
from autoscaler.adapters.prometheus.tracked import NOT_YET, Asked, Tracked
from autoscaler.core.history import ContainerRef, History
from autoscaler.core.recommender import Grid

_MOST_AHEAD_S = 60
_WHOLE_FOR_S = 600  # answers, before what was partial is read again


class Portions:
    """Goes by what the survey has found, and by how much the server gives at once. `most_past`: samples that all
    back-fills together may be answered with."""

    def __init__(self, survey: Survey, fetcher: Fetcher, most_past: int) -> None:
        self._survey = survey
        self._fetcher = fetcher
        self._most_past = most_past
        self._filling: AbstractSet[ContainerRef] = frozenset()  # without a history, the last time
        self._instants = 0  # that each of them was to be asked for

    def missing(self, tracked: dict[ContainerRef, Tracked], now: float) -> Iterator[Work]:
        """What there is to measure up to `now`: first what is nearly up to date, then the back-fills.

        Those in `tracked` that have to be read from the beginning are set back.
        """
        groups: dict[tuple[Grid, Asked, int], list[ContainerRef]] = defaultdict(list)
        for container, one in tracked.items():
            if one.measured_until is not None and one.measured_until > now + _MOST_AHEAD_S:
                # of a clock that was set back since: what follows would not be newer for as long as that
                one = tracked[container] = replace(one, history=None, measured_until=None, gap=NOT_YET)
            if one.history is not None and _whole_again(one.history, one.measured_until):
                one = tracked[container] = replace(one, measured_until=None)
            since = -1 if one.measured_until is None else one.measured_until
            groups[one.key.grid, one.key.asked, since].append(container)
        instants = self._affordable(
            {container: one for container, one in tracked.items() if one.measured_until is None}
        )
        for (grid, _, since), containers in sorted(groups.items(), key=lambda group: -group[0][2]):
            end = ranges.newest_instant(now, self._survey.scrape_interval_s, grid.step)
            after = None if since < 0 else since
            past_s = ranges.affordable(grid, instants)
            spans = ranges.spans(after, end, grid, past_s)
            shortened = after is None and past_s < grid.lookback
            everyone = self._survey.population.of_namespaces({container.namespace for container in containers})
            for part in ranges.batches(containers, sum(map(len, spans)), everyone) if spans else ():
                yield self._work({container: tracked[container] for container in part}, after, spans, shortened)

    def _affordable(self, filling: Mapping[ContainerRef, Tracked]) -> int:
        """Of how many instants each of these back-fills may be. One that takes several cycles stays as it was: the last
        of its containers do not get the share of the first."""
        if not filling.keys() <= self._filling:
            self._instants = self._most_past // sum(one.key.asked.queries for one in filling.values())
        self._filling = frozenset(filling)
        return self._instants

    def halves(self, work: Work) -> tuple[Work, ...]:
        """The same for half of the pods each; nothing if there is one pod alone."""
        pods = sorted({container.pod_ref for container in work.tracked})
        some = frozenset(pods[: len(pods) // 2])
        parts = (
            {container: one for container, one in work.tracked.items() if (container.pod_ref in some) == first}
            for first in (True, False)
        )
        return tuple(self._work(part, work.since, work.batch.spans, work.shortened) for part in parts) if some else ()

    def _work(
        self, tracked: Mapping[ContainerRef, Tracked], after: int | None, spans: tuple[Span, ...], shortened: bool
    ) -> Work:
        grid, asked = next((one.key.grid, one.key.asked) for one in tracked.values())
        batch = Batch(
            {
                container: Member(None if after is None else one.history, one.policy.recommender)
                for container, one in tracked.items()
            },
            grid,
            asked.rate_window_s,
            spans,
            self._survey.layout,
            asked.signals,
            dict(asked.own),
            self._survey.least_samples(asked.rate_window_s),
        )
        # of the same pods, and by the same names, there may be containers that nobody follows
        series = max(len(tracked), self._survey.population.selected({container.pod_ref for container in tracked}))
        chunks = batch.chunks(max(1, self._fetcher.most_points * len(tracked) // series))
        return Work(batch, chunks, tracked, after, shortened)


def _whole_again(history: History, measured_until: int | None) -> bool:
    """Whether what a partial answer left out of a history may be there now."""
    return (
        bool(history.partial_at) and measured_until is not None and measured_until - history.partial_at >= _WHOLE_FOR_S
    )
