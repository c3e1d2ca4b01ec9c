"""What is behind the endpoint, found out by a few cheap queries every ten minutes.

How containers are labelled, which cluster the pods that are followed are in, how often they are scraped, and whether
copies of a series agree. Usage is then asked of that one cluster by name: what another one has under the same names is
never added to it, averaged with it, or taken for it.

The queries take turns: in each turn as many as there is room for beside those for usage.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from autoscaler.adapters.prometheus import queries, signals
from autoscaler.adapters.prometheus.answers import MetricsError, Series, amount
from autoscaler.adapters.prometheus.clusters import ambiguous, clusters_of, exported, of_cluster, pod_of
from autoscaler.adapters.prometheus.copies import SOURCES, cores, disputes_in, matcher, mebibytes
from autoscaler.adapters.prometheus.layout import EXPORTED, KUBELET, Layout, Variant
from autoscaler.adapters.prometheus.population import Population
from autoscaler.adapters.prometheus.ranges import MOST_LETTERS, MOST_POINTS, NAMED_LETTERS
from autoscaler.core.history import ContainerRef, Gap
from autoscaler.core.model import PodRef, Problem
from autoscaler.core.problems import Trouble
from autoscaler.core.quality import SCRAPES_IN_A_WINDOW
from autoscaler.core.reasons import Reason

Ask = Callable[[str], Awaitable[list[Series]]]
"""The answer to an instant query. Raises `MetricsError`."""

VALID_S = 600.0
"""For how long what was found is believed."""

_SOON_S = 10.0  # the same, while there are no series, or none has the samples to tell how often it is scraped
_GAPS = 6  # between samples: from fewer of a young series nothing is believed for long, the first may be far apart

_UNKNOWN_INTERVAL_S = 60
_LOOK_BACK_S = 600  # of samples that are looked at
_COVERED = 0.8  # of a span, by the samples of what is judged over it
_TIMES_SELECTED = 6  # a query that compares copies or sources holds its matchers so often, at most
_MOST_COPIES = 4  # of one series, that are counted on
_NO_CLUSTER_YET = Gap(Reason.NO_DATA, "no series of the pods has been found yet that says of which cluster they are")
_MOVED_S = 7200  # for so long a change of the source is told


@dataclass(slots=True)
class _Question:
    """One that takes its turn. `put` asks it, and returns for how many seconds the answer is believed: `_UNFINISHED`
    where it goes on at once, `_UNKNOWN` where without an answer nothing else can be asked. `due_s`: when it is to be
    put again, `tried_s`: when it was last."""

    put: Callable[[Ask, AbstractSet[PodRef]], Awaitable[float]]
    of_cluster: bool = True  # asked of one cluster alone
    due_s: float = -math.inf
    tried_s: float = -math.inf


_UNFINISHED = -1.0
_UNKNOWN = 0.0


class Survey:
    """What is known of the endpoint.

    `layout`: what queries are built from; it leaves nothing open. `usable`: whether it is for one cluster.
    `ambiguous`: why nothing that is read may be acted on, if so. `disputed`: the same of single containers.
    `moved`: containers whose series have lately come from another source, and from which now.
    `scrape_interval_s`: of the series with the most samples, as far as `interval_known`. `notes`: what is worth
    knowing. `population`: how many containers queries find.
    """

    def __init__(self, layout: Layout) -> None:
        self._open = layout
        self._found = layout.variants[0]
        self._untried: tuple[Variant, ...] = ()
        self._cluster: Mapping[str, str] | None = None
        self._noted: dict[Callable[..., object], tuple[Problem, ...]] = {}
        self._most_scraped: Mapping[str, str] | None = None
        self._bytes: Mapping[ContainerRef, Gap] = MappingProxyType({})
        self._cores: Mapping[ContainerRef, Gap] = MappingProxyType({})
        self._comparisons = (_Question(self._compare_bytes), _Question(self._compare_cores))
        self._of_gpus = (_Question(self._find_gpus), _Question(self._count_gpus), _Question(self._count_blanks))
        self._blanks = 0
        self._questions = (
            _Question(self._find_labels, of_cluster=False),
            _Question(self._find_scrape_interval, of_cluster=False),
            *self._of_gpus,
            *self._comparisons,
            _Question(self._count_copies),
            _Question(self._find_moves),
            _Question(self._find_owners),
        )
        self.population = Population()
        self.layout = of_cluster(layout.labelled(layout.variants[0]), {})
        self.usable = False
        self.ambiguous: Gap | None = None
        self.moved: Mapping[ContainerRef, str] = MappingProxyType({})
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

    @property
    def disputed(self) -> Mapping[ContainerRef, Gap]:
        return MappingProxyType({**self._bytes, **self._cores})

    @property
    def notes(self) -> tuple[Problem, ...]:
        return tuple(note for question in self._questions for note in self._noted.get(question.put, ()))

    async def renew(
        self, ask: Ask, pods: AbstractSet[PodRef], now_s: float, *, gpus: bool = False, room: float = math.inf
    ) -> None:
        """Put the questions whose time it is, those about GPUs where these are asked for; `now_s` is of a monotonic
        clock. `room`: for so many queries, and one at least; until the cluster is known there is no bound.

        Raises `MetricsError`; what was known and has not been found anew is then still known.
        """
        left = room if self.usable else math.inf

        async def counted(query: str) -> list[Series]:
            nonlocal left
            left -= 1
            return await ask(query)

        if not gpus:
            for question in self._of_gpus:
                question.due_s = -math.inf
                self._noted.pop(question.put, None)
        asked = 0
        while pods and (not asked or left >= 1) and (one := self._next(now_s, gpus)) is not None:
            asked += 1
            one.tried_s = now_s
            valid_s = await one.put(counted, pods)
            one.due_s = now_s + valid_s
            if valid_s in (_UNFINISHED, _UNKNOWN):
                one.tried_s = -math.inf  # it is the first again
            if valid_s == _UNKNOWN:
                return

    def _next(self, now_s: float, gpus: bool) -> _Question | None:
        """Of those whose time it is the one that was not tried for longest: one that fails lets the others be put."""
        passed_over = () if gpus else self._of_gpus
        due = (
            one
            for one in self._questions
            if one.due_s <= now_s and (self.usable or not one.of_cluster) and one not in passed_over
        )
        return min(due, key=lambda one: one.tried_s, default=None)

    async def _find_labels(self, ask: Ask, pods: AbstractSet[PodRef]) -> float:
        """How containers are labelled, and in which cluster they are. One way of labelling is tried at a time: first
        the one that was found before."""
        variant, *untried = self._untried or dict.fromkeys((self._found, *self._open.variants))
        self._untried = ()  # after a failure from the beginning
        found = self._open.labelled(variant)
        query = queries.clusters(found, queries.of_pods(found, pods, NAMED_LETTERS))
        series = await ask(query)
        if not any(pod_of(one, found) in pods for one in series):
            self._untried = tuple(untried)
            if untried:
                return _UNFINISHED
            return _SOON_S if self.usable else _UNKNOWN
        if any(amount(one) is None for one in series):
            # how much may be asked for at once goes by it
            raise MetricsError(200, "not_json", "does not say how many containers there are").about(query)
        self._found = variant
        values = clusters_of((one for one in series if pod_of(one, found) in pods), found)
        several = next(((label, seen) for label, seen in values.items() if len(seen) > 1), None)
        for label, value in (self._cluster or {}).items():
            if several is None and not values.get(label, frozenset()) <= {value}:
                several = label, {value, *values[label]}
        self.ambiguous = None if several is None else ambiguous(*several)
        if several is None:
            # a label that no series has now is still that of the cluster
            self._cluster = {**(self._cluster or {}), **{label: value for label, (value,) in values.items()}}
            self.layout, self.usable = replace(of_cluster(found, self._cluster), gpu=self.layout.gpu), True
        counted: Counter[PodRef] = Counter()
        for one in series:
            counted[pod_of(one, found)] += amount(one) or 0
        self.population = Population(counted)
        self._noted[self._find_labels] = exported(found)
        return VALID_S

    async def _find_gpus(self, ask: Ask, pods: AbstractSet[PodRef]) -> float:
        """How GPUs are labelled."""
        self._noted[self._find_gpus] = ()
        query = signals.gpus_attributed(self.layout, {pod.namespace for pod in pods})
        if (exported := await self._of_any_gpu(ask, query)) is not None:
            self.layout = replace(self.layout, gpu=EXPORTED if exported else KUBELET)
        return VALID_S

    async def _count_gpus(self, ask: Ask, pods: AbstractSet[PodRef]) -> float:
        """How many GPUs are of no pod that is known."""
        self._noted[self._count_gpus] = ()
        for one in await self._of_any_gpu(ask, signals.gpus_unattributed(self.layout)) or ():
            detail = f"{_many(amount(one))} GPUs, or parts of one, are of no pod by the label {self.layout.gpu.pod}"
            note = Problem("Prometheus", Trouble.GPU_UNATTRIBUTED, f"{detail}: what they do is not known")
            self._noted[self._count_gpus] = (note,)
        return VALID_S

    async def _count_blanks(self, ask: Ask, pods: AbstractSet[PodRef]) -> float:
        """How many samples of GPUs say that there is none. They are left out of all that is read."""
        self._noted[self._count_blanks] = ()
        query = signals.gpu_blanks(self.layout, round(VALID_S), self.scrape_interval_s)
        for one in await self._of_any_gpu(ask, query) or ():
            number = amount(one)
            self._blanks += number or 0
            detail = f"{_many(number)} samples of GPUs in {VALID_S / 60:.0f} minutes are DCGM's numbers for none"
            self._noted[self._count_blanks] = (Problem("Prometheus", Trouble.SENTINEL_SAMPLES, f"{detail}: left out"),)
        return VALID_S

    def take_blanks(self) -> int:
        """How many samples said so since this was last called."""
        found, self._blanks = self._blanks, 0
        return found

    async def _of_any_gpu(self, ask: Ask, query: str) -> list[Series] | None:
        """The answer; None, with a note, where the server refuses: it is asked for the rest all the same."""
        try:
            return await ask(query)
        except MetricsError as error:
            if not error.refused:
                raise
            detail = f"of which pods GPUs are is not known: the server {error.text}"
            self._noted[self._find_gpus] = (Problem("Prometheus", Trouble.SIGNAL_UNAVAILABLE, detail),)
            return None

    async def _count_copies(self, ask: Ask, pods: AbstractSet[PodRef]) -> float:
        """Say that there are copies. Those that differ are another matter, so that it is done without where the server
        refuses this."""
        try:
            found = await self._compared(
                ask, lambda matchers: queries.copied(self.layout, matchers, ", ".join(SOURCES)), pods
            )
        except MetricsError as error:
            if not error.of_query:
                raise
            detail = f"whether containers are there several times is not known: the server {error.text}"
            self._noted[self._count_copies] = (Problem("Prometheus", Trouble.DUPLICATE_SERIES, detail),)
            return VALID_S
        sources, series = _sum(found, "sources"), _sum(found, "series")
        # those that other labels tell apart
        others = None if sources is None or series is None else series - sources
        self._noted[self._count_copies] = tuple(
            Problem("Prometheus", reason, f"{_many(of)} containers {words}: of each the greatest counts, once")
            for of, reason, words in (
                (sources, Trouble.AMBIGUOUS_SOURCE, f"are scraped by several of {' and '.join(SOURCES)}"),
                (others, Trouble.DUPLICATE_SERIES, "are there several times"),
            )
            if of is None or of > 0
        )
        return VALID_S

    async def _find_moves(self, ask: Ask, pods: AbstractSet[PodRef]) -> float:
        """Compare who scrapes with who did. Of an exporter's address nothing is told: it changes with each restart."""
        sources = ", ".join(SOURCES)
        found = await self._compared(
            ask, lambda matchers: queries.moved(self.layout, matchers, sources, _MOVED_S), pods
        )
        moved: dict[ContainerRef, str] = {}
        for series in found:
            source = " and ".join(matcher(series, label) for label in SOURCES if label in series.labels)
            container = ContainerRef(*(series.labels.get(name, "") for name in self.layout.names))
            moved[container] = (
                f"its series are of {source or 'no job'} now, and were of another {_MOVED_S // 3600} h ago"
            )
        self.moved = MappingProxyType(moved)
        return VALID_S

    async def _find_owners(self, ask: Ask, pods: AbstractSet[PodRef]) -> float:
        """Whether earlier pods of a workload could be told from its series. It is of no use otherwise: a server that
        refuses this is asked for the rest all the same."""
        self._noted[self._find_owners] = ()
        try:
            found = await ask(queries.owners(self.layout))
        except MetricsError as error:
            if not error.of_query:
                raise
        else:
            if not found:
                detail = f"{queries.OWNER} is missing: histories are limited to the names of pods that live"
                note = Problem("Prometheus", Trouble.HISTORY_LIMITED_TO_LIVE_PODS, detail)
                self._noted[self._find_owners] = (note,)
        return VALID_S

    async def _find_scrape_interval(self, ask: Ask, pods: AbstractSet[PodRef]) -> float:
        """Read off the samples of one series how often it is scraped; how often is in no API."""
        labels, self._most_scraped = self._most_scraped, None
        if labels is None:
            # not the newest series: a container that has just started has one sample
            for series in await ask(
                queries.most_scraped(self.layout, queries.of_pods(self.layout, pods), _LOOK_BACK_S)
            ):
                self._most_scraped = series.labels
                return _UNFINISHED
        else:
            raw = await ask(queries.raw_samples(self.layout, labels, _LOOK_BACK_S))
            gaps = np.concatenate([np.diff(one.at) for one in raw] or [np.empty(0)])
            gaps = gaps[(gaps > 0) & (gaps <= _LOOK_BACK_S)]
            if len(gaps):
                self._scraped_every(max(1, round(float(np.median(gaps)))))
            return VALID_S if len(gaps) >= _GAPS or gaps.sum() >= _LOOK_BACK_S / 2 else _SOON_S
        return VALID_S if self.interval_known else _SOON_S

    def _scraped_every(self, seconds: int) -> None:
        if not self.interval_known or seconds != self.scrape_interval_s:
            for question in self._comparisons:  # how many samples a copy has to have is another number now
                question.due_s = -math.inf
        self.scrape_interval_s, self.interval_known = seconds, True

    async def _compare_bytes(self, ask: Ask, pods: AbstractSet[PodRef]) -> float:
        """Compare copies of memory series. The answer is empty where copies agree."""
        found = await self._compared(
            ask, lambda matchers: queries.disputed_bytes(self.layout, matchers, _LOOK_BACK_S, self._least), pods
        )
        self._bytes = disputes_in(found, self.layout, mebibytes)
        return VALID_S

    async def _compare_cores(self, ask: Ask, pods: AbstractSet[PodRef]) -> float:
        """The same of CPU."""
        found = await self._compared(
            ask, lambda matchers: queries.disputed_cores(self.layout, matchers, _LOOK_BACK_S, self._least), pods
        )
        self._cores = disputes_in(found, self.layout, cores)
        return VALID_S

    @property
    def _least(self) -> int:
        """Samples that a copy has to have, to be compared."""
        return max(2, int(_COVERED * _LOOK_BACK_S / self.scrape_interval_s))

    async def _compared(self, ask: Ask, query: Callable[[str], str], pods: AbstractSet[PodRef]) -> list[Series]:
        """What a query finds of these pods, by matchers; asked in halves where it is too much at once."""
        letters = MOST_LETTERS // _TIMES_SELECTED
        if len(pods) == 1 or _MOST_COPIES * self.population.selected(pods, letters) <= MOST_POINTS:
            try:
                return await ask(query(queries.of_pods(self.layout, pods, letters)))
            except MetricsError as error:
                if len(pods) == 1 or not error.too_much:
                    raise
        some = frozenset(sorted(pods)[: len(pods) // 2])
        return [*await self._compared(ask, query, some), *await self._compared(ask, query, pods - some)]


def _many(number: int | None) -> str:
    return "an unknown number of" if number is None else f"{number:,}"


def _sum(found: list[Series], of: str) -> int | None:
    amounts = [amount(one) for one in found if one.labels.get("of") == of]
    known = [number for number in amounts if number is not None]
    return sum(known) if len(known) == len(amounts) else None
