"""What is behind the endpoint, found out by a few cheap queries every ten minutes.

How containers are labelled, which cluster the pods that are followed are in, how often they are scraped, and whether
copies of a series agree. Usage is then asked of that one cluster by name: what another one has under the same names is
never added to it, averaged with it, or taken for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from autoscaler.adapters.prometheus import queries, signals
from autoscaler.adapters.prometheus.answers import MetricsError, Series
from autoscaler.adapters.prometheus.layout import EXPORTED, KUBELET, Layout
from autoscaler.adapters.prometheus.ranges import MOST_LETTERS
from autoscaler.core.history import ContainerRef, Gap
from autoscaler.core.model import PodRef, Problem
from autoscaler.core.problems import Trouble
from autoscaler.core.quality import SCRAPES_IN_A_WINDOW
from autoscaler.core.reasons import Reason

Ask = Callable[[str], Awaitable[list[Series]]]
"""The answer to an instant query. Raises `MetricsError`."""

VALID_S = 600.0
"""For how long what was found is believed."""

_UNFINISHED_S = 10.0  # the same, while no series has the samples to tell how often it is scraped

_UNKNOWN_INTERVAL_S = 60
_LOOK_BACK_S = 600  # of samples that are looked at
_MOST_NAMED = 4
_COVERED = 0.8  # of a rate's window
_TIMES_SELECTED = 6  # a query that compares copies or sources holds its matchers so often, at most
_NO_CLUSTER_YET = Gap(Reason.NO_DATA, "no series of the pods has been found yet that says of which cluster they are")
_MOVED_S = 7200  # for so long a change of the source is told
_SOURCES = ("job", "metrics_path")  # who scraped what


class Survey:
    """What is known of the endpoint.

    `layout`: what queries are built from; it leaves nothing open. `usable`: whether it is for one cluster.
    `ambiguous`: why nothing that is read may be acted on, if so. `disputed`: the same of single containers.
    `moved`: containers whose series have lately come from another source, and from which now.
    `scrape_interval_s`: of the series with the most samples, as far as `interval_known`. `notes`: what is worth
    knowing.
    """

    def __init__(self, layout: Layout) -> None:
        self._open = layout
        self._valid_until = float("-inf")
        self._cluster: Mapping[str, str] | None = None
        self._gpus = False
        self.layout = of_cluster(layout.labelled(layout.variants[0]), {})
        self.usable = False
        self.ambiguous: Gap | None = None
        self.disputed: Mapping[ContainerRef, Gap] = MappingProxyType({})
        self.moved: Mapping[ContainerRef, str] = MappingProxyType({})
        self.notes: tuple[Problem, ...] = ()
        self.scrape_interval_s = _UNKNOWN_INTERVAL_S
        self.interval_known = False

    @property
    def cluster(self) -> tuple[str, ...] | Gap:
        """The matchers that select this cluster's series of any exporter; or why they are not known."""
        if self.ambiguous is not None:
            return self.ambiguous
        return self.layout.cluster if self.usable else self._open.cluster or _NO_CLUSTER_YET

    def least_samples(self, window_s: int) -> int:
        """How many samples a rate's window must hold for the rate not to be too low; 0: not known, or never so many."""
        if not self.interval_known or window_s < SCRAPES_IN_A_WINDOW * self.scrape_interval_s:
            return 0
        return int(_COVERED * window_s / self.scrape_interval_s)

    async def renew(self, ask: Ask, pods: AbstractSet[PodRef], now_s: float, *, gpus: bool = False) -> None:
        """Look again if it is time to, or if GPUs are asked for first; `now_s` is of a monotonic clock. Raises
        `MetricsError`; what was known and has not been found anew is then still known."""
        if (now_s < self._valid_until and gpus <= self._gpus) or not pods:
            return
        found, series = await self._labelled(ask, pods)
        if not series:
            return
        values = clusters_of(series, found)
        several = next(((label, seen) for label, seen in values.items() if len(seen) > 1), None)
        for label, value in (self._cluster or {}).items():
            if several is None and not values.get(label, frozenset()) <= {value}:
                several = label, {value, *values[label]}
        self.ambiguous = None if several is None else _ambiguous(*several)
        if several is None:
            # a label that no series has now is still that of the cluster
            self._cluster = {**(self._cluster or {}), **{label: value for label, (value,) in values.items()}}
            self.layout, self.usable = replace(of_cluster(found, self._cluster), gpu=self.layout.gpu), True
        self.notes = _exported(found)
        if self.usable and gpus:
            try:
                await self._find_gpus(ask)
            except MetricsError as error:
                if not error.refused:
                    raise
                detail = f"of which pods GPUs are is not known: the server {error.text}"
                self.notes += (Problem("Prometheus", Trouble.SIGNAL_UNAVAILABLE, detail),)
        self._gpus = gpus
        await self._find_scrape_interval(ask, pods)
        if self.usable:
            await self._find_disputes(ask, pods)
            await self._find_moves(ask, pods)
            await self._find_owners(ask)
        self._valid_until = now_s + (VALID_S if self.interval_known else _UNFINISHED_S)

    async def _labelled(self, ask: Ask, pods: AbstractSet[PodRef]) -> tuple[Layout, list[Series]]:
        """The layout with the first way of labelling that has series of the pods, and their numbers by cluster."""
        for variant in self._open.variants:
            layout = self._open.labelled(variant)
            answer = await ask(queries.clusters(layout, queries.of_pods(layout, pods)))
            if found := [series for series in answer if pod_of(series, layout) in pods]:
                return layout, found
        return self._open, []

    async def _find_gpus(self, ask: Ask) -> None:
        """How GPUs are labelled, and how many are of no pod that is known."""
        exported = await ask(signals.gpus_attributed(self.layout))
        self.layout = replace(self.layout, gpu=EXPORTED if exported else KUBELET)
        for series in await ask(signals.gpus_unattributed(self.layout)):
            detail = f"{series.values[-1]:.0f} GPUs, or parts of one, are of no pod by the label {self.layout.gpu.pod}"
            self.notes += (Problem("Prometheus", Trouble.GPU_UNATTRIBUTED, f"{detail}: what they do is not known"),)

    async def _find_moves(self, ask: Ask, pods: AbstractSet[PodRef]) -> None:
        """Compare who scrapes with who did. Of an exporter's address nothing is told: it changes with each restart."""
        sources = ", ".join(_SOURCES)
        found = await self._compared(
            ask, lambda matchers: queries.moved(self.layout, matchers, sources, _MOVED_S), pods
        )
        moved: dict[ContainerRef, str] = {}
        for series in found:
            source = " and ".join(_value(series, label) for label in _SOURCES if label in series.labels)
            container = ContainerRef(*(series.labels.get(name, "") for name in self.layout.names))
            moved[container] = (
                f"its series are of {source or 'no job'} now, and were of another {_MOVED_S // 3600} h ago"
            )
        self.moved = MappingProxyType(moved)

    async def _find_owners(self, ask: Ask) -> None:
        """Whether earlier pods of a workload could be told from its series. It is of no use otherwise: a server that
        refuses this is asked for the rest all the same."""
        try:
            found = await ask(queries.owners(self.layout))
        except MetricsError as error:
            if not error.of_query:
                raise
        else:
            if not found:
                detail = f"{queries.OWNER} is missing: histories are limited to the names of pods that live"
                self.notes += (Problem("Prometheus", Trouble.HISTORY_LIMITED_TO_LIVE_PODS, detail),)

    async def _find_scrape_interval(self, ask: Ask, pods: AbstractSet[PodRef]) -> None:
        """Read off the samples of one series how often it is scraped; how often is in no API."""
        # not the newest series: a container that has just started has one sample
        found = await ask(queries.most_scraped(self.layout, queries.of_pods(self.layout, pods), _LOOK_BACK_S))
        for series in found[:1]:
            raw = await ask(queries.raw_samples(self.layout, series.labels, _LOOK_BACK_S))
            gaps = np.concatenate([np.diff(one.at) for one in raw] or [np.empty(0)])
            gaps = gaps[(gaps > 0) & (gaps <= _LOOK_BACK_S)]
            if len(gaps):
                self.scrape_interval_s = max(1, round(float(np.median(gaps))))
                self.interval_known = True

    async def _find_disputes(self, ask: Ask, pods: AbstractSet[PodRef]) -> None:
        """Compare copies of series. The answers are empty where copies agree."""
        least = max(2, int(0.8 * _LOOK_BACK_S / self.scrape_interval_s))
        used = await self._compared(
            ask, lambda matchers: queries.disputed_bytes(self.layout, matchers, _LOOK_BACK_S, least), pods
        )
        cores = await self._compared(
            ask, lambda matchers: queries.disputed_cores(self.layout, matchers, _LOOK_BACK_S, least), pods
        )
        disputes = {**disputes_in(used, self.layout, _mebibytes), **disputes_in(cores, self.layout, _cores)}
        self.disputed = MappingProxyType(disputes)

    async def _compared(self, ask: Ask, query: Callable[[str], str], pods: AbstractSet[PodRef]) -> list[Series]:
        """What a query finds of these pods, by matchers; asked in halves where it is too much at once."""
        try:
            return await ask(query(queries.of_pods(self.layout, pods, MOST_LETTERS // _TIMES_SELECTED)))
        except MetricsError as error:
            if len(pods) == 1 or not error.too_much:
                raise
        some = frozenset(sorted(pods)[: len(pods) // 2])
        return [*await self._compared(ask, query, some), *await self._compared(ask, query, pods - some)]


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


def disputes_in(answer: Iterable[Series], layout: Layout, shown: Callable[[float], str]) -> Mapping[ContainerRef, Gap]:
    """Why containers with different copies of a series may not be acted on.

    Names the labels that tell the copies apart, and the one of them to choose: what most of these containers have.
    """
    copies: dict[ContainerRef, list[Series]] = defaultdict(list)
    for series in answer:
        copies[ContainerRef(*(series.labels.get(name, "") for name in layout.names))].append(series)
    differing = {container: _told_apart_by(of_one) for container, of_one in copies.items()}
    votes = Counter(_value(one, differing[whose]) for whose, of_one in copies.items() for one in of_one)
    found = {}
    for container, of_one in copies.items():
        label = differing[container]
        # the most usual first; the alphabet decides between equals, so that it is the same one each time
        of_one.sort(key=lambda one: (-votes[_value(one, label)], _value(one, label)))
        says = " and ".join(f"{_value(one, label)} says {shown(float(one.values[-1]))}" for one in of_one[:_MOST_NAMED])
        reason = Reason.AMBIGUOUS_SOURCE if label in _SOURCES else Reason.DUPLICATE_SERIES
        found[container] = Gap(
            reason, f"{says}; choose in prometheus.layout.matchers, like matchers: '{_value(of_one[0], label)}'"
        )
    return found


def _told_apart_by(copies: Sequence[Series]) -> str:
    """The label to name: of those by which copies differ a usual one, else the first of the alphabet."""
    labels = sorted({name for one in copies for name in one.labels})
    differing = [name for name in labels if len({one.labels.get(name) for one in copies}) > 1]
    return next((name for name in _SOURCES if name in differing), differing[0] if differing else "instance")


def _value(series: Series, label: str) -> str:
    return f"{label}={queries.quoted(series.labels.get(label, ''))}"


def _cores(value: float) -> str:
    return f"{value:.2f} cores"


def _mebibytes(value: float) -> str:
    return f"{value / 2**20:.0f} MiB"


def _exported(layout: Layout) -> tuple[Problem, ...]:
    """A note where Prometheus was not told to honour the labels of what it scrapes."""
    if layout.names.namespace != "exported_namespace":
        return ()
    labels = ", ".join(layout.names)
    detail = f"usage is read by the labels {labels}: its scrapes do not honour labels (honorLabels: true would)"
    return (Problem("Prometheus", Trouble.EXPORTED_LABELS, detail),)


def of_cluster(layout: Layout, cluster: Mapping[str, str]) -> Layout:
    """The layout for one cluster, and for what no such label is on.

    Labels that it does not have are on no series at all then, so that a cluster which turns up later is not added.
    """
    pins = (
        f"{label}=~{queries.one_of({cluster[label], ''})}" if label in cluster else f'{label}=""'
        for label in layout.cluster_labels
    )
    return replace(layout, cluster=(*layout.cluster, *pins), cluster_labels=())


def _ambiguous(label: str, values: AbstractSet[str]) -> Gap:
    first, second, *more = (f"{label}={queries.quoted(value)}" for value in sorted(values))
    others = f" and {len(more)} more" if more else ""
    return Gap(
        Reason.CLUSTER_AMBIGUOUS,
        f"the series of these pods are of {first} and {second}{others}; say which in prometheus.layout.clusterMatcher, "
        f"like clusterMatcher: '{first}'",
    )
