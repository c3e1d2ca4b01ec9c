"""What is behind the endpoint, found out by a few cheap queries every ten minutes.

How containers are labelled, which cluster the pods that are followed are in, how often they are scraped, and whether
copies of a series agree. Usage is then asked of that one cluster by name: what another one has under the same names is
never added to it, averaged with it, or taken for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from autoscaler.adapters.prometheus import queries
from autoscaler.adapters.prometheus.answers import Series
from autoscaler.adapters.prometheus.layout import Layout
from autoscaler.core.history import Gap
from autoscaler.core.model import PodRef
from autoscaler.core.reasons import Reason

Ask = Callable[[str], Awaitable[list[Series]]]
"""The answer to an instant query. Raises `MetricsError`."""

VALID_S = 600.0
"""For how long what was found is believed."""

_UNKNOWN_INTERVAL_S = 60
_LOOK_BACK_S = 600  # of samples that are looked at to find the scrape interval


class Survey:
    """What is known of the endpoint.

    `layout`: what queries are built from; it leaves nothing open. `usable`: whether it is for one cluster.
    `ambiguous`: why nothing that is read may be acted on, if so. `scrape_interval_s`: of the newest series.
    """

    def __init__(self, layout: Layout) -> None:
        self._open = layout
        self._valid_until = float("-inf")
        self._cluster: Mapping[str, str] | None = None
        self.layout = of_cluster(layout.labelled(layout.variants[0]), {})
        self.usable = False
        self.ambiguous: Gap | None = None
        self.scrape_interval_s = _UNKNOWN_INTERVAL_S

    async def renew(self, ask: Ask, pods: AbstractSet[PodRef], now_s: float) -> bool:
        """Look again if it is time to; `now_s` is of a monotonic clock. Returns whether other series are read from now
        on. Raises `MetricsError`; what was known is then still known."""
        if now_s < self._valid_until or not pods:
            return False
        before = self.layout
        found, series = await self._labelled(ask, pods)
        values = clusters_of(series, found)
        several = next(((label, seen) for label, seen in values.items() if len(seen) > 1), None)
        for label, value in (self._cluster or {}).items():
            if several is None and not values.get(label, frozenset()) <= {value}:
                several = label, {value, *values[label]}
        self.ambiguous = None if several is None else _ambiguous(*several)
        if several is None:
            # a label that no series has now is still that of the cluster
            self._cluster = {**(self._cluster or {}), **{label: value for label, (value,) in values.items()}}
            self.layout, self.usable = of_cluster(found, self._cluster), True
        if series:
            await self._find_scrape_interval(ask, pods)
            self._valid_until = now_s + VALID_S
        return self.layout != before

    async def _labelled(self, ask: Ask, pods: AbstractSet[PodRef]) -> tuple[Layout, list[Series]]:
        """The layout with the first way of labelling that has series of the pods, and their numbers by cluster."""
        for variant in self._open.variants:
            layout = self._open.labelled(variant)
            answer = await ask(queries.clusters(layout, queries.of_pods(layout, pods)))
            if found := [series for series in answer if pod_of(series, layout) in pods]:
                return layout, found
        return self._open.labelled(self._open.variants[0]), []

    async def _find_scrape_interval(self, ask: Ask, pods: AbstractSet[PodRef]) -> None:
        """Read off the newest series how often it is scraped; how often is in no API."""
        newest = await ask(queries.newest_series(self.layout, queries.of_pods(self.layout, pods)))
        for series in newest[:1]:
            raw = await ask(queries.raw_samples(self.layout, series.labels, _LOOK_BACK_S))
            gaps = np.concatenate([np.diff(one.at) for one in raw] or [np.empty(0)])
            gaps = gaps[(gaps > 0) & (gaps <= _LOOK_BACK_S)]
            if len(gaps):
                self.scrape_interval_s = max(1, round(float(np.median(gaps))))


def pod_of(series: Series, layout: Layout) -> PodRef:
    """Whose series it is."""
    return PodRef(series.labels.get(layout.names.namespace, ""), series.labels.get(layout.names.pod, ""))


def clusters_of(answer: Iterable[Series], layout: Layout) -> Mapping[str, AbstractSet[str]]:
    """The values of each label that tells clusters apart. Series without it are of the same cluster as the others."""
    found: dict[str, set[str]] = defaultdict(set)
    for series in answer:
        for label in layout.cluster_labels:
            if value := series.labels.get(label):
                found[label].add(value)
    return MappingProxyType(found)


def of_cluster(layout: Layout, cluster: Mapping[str, str]) -> Layout:
    """The layout for one cluster, and for what no such label is on.

    Labels that it does not have are on no series at all then, so that a cluster which turns up later is not added.
    """
    pins = (
        f"{label}=~{queries.one_of({cluster[label], ''})}" if label in cluster else f'{label}=""'
        for label in layout.cluster_labels
    )
    return replace(layout, matchers=(*layout.matchers, *pins), cluster_labels=())


def _ambiguous(label: str, values: AbstractSet[str]) -> Gap:
    first, second, *more = (f"{label}={queries.quoted(value)}" for value in sorted(values))
    others = f" and {len(more)} more" if more else ""
    return Gap(
        Reason.CLUSTER_AMBIGUOUS,
        f"the series of these pods are of {first} and {second}{others}; say which in prometheus.layout.clusterMatcher, "
        f"like clusterMatcher: '{first}'",
    )
