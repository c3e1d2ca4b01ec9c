"""The checks of `doctor` that look at Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime

from autoscaler.adapters.prometheus import probe, queries, ranges, signals
from autoscaler.adapters.prometheus.answers import MetricsError, Series
from autoscaler.adapters.prometheus.session import PrometheusApi
from autoscaler.adapters.prometheus.signals import Reading
from autoscaler.adapters.prometheus.survey import Survey
from autoscaler.adapters.prometheus.thread import in_thread
from autoscaler.adapters.prometheus.tracked import Asked
from autoscaler.adapters.sessions import gates
from autoscaler.adapters.sessions.query import ClusterUnknown, asked, matchers_for, names_namespace
from autoscaler.cli.access import access_of
from autoscaler.cli.checkup import ANSWER_S, Blocked, Known, Step, need
from autoscaler.core.history import ContainerRef, Gap
from autoscaler.core.model import PodRef, Resource
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import GPU_SIGNALS
from autoscaler.diagnosis import past, usage
from autoscaler.diagnosis.findings import Check, Finding, Status, failed
from autoscaler.diagnosis.selection import Selection
from autoscaler.diagnosis.usage import Seen, Wanted
from autoscaler.settings_prometheus import PrometheusSection

_NO_CLUSTER = Gap(
    Reason.NO_DATA, f"of which cluster series are is not known, as the check {Check.LABELS} did not succeed"
)


class PrometheusChecks:
    """Uses what is `known` of the cluster, and what it finds out itself."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._api: PrometheusApi | None = None
        self._ahead_s = 0.0  # of Prometheus' clock before this machine's
        self._survey: Survey | None = None
        self._partial: list[str] = []

    def steps(self) -> tuple[Step, ...]:
        """In the order in which they need each other."""
        return (
            Step(Check.PROMETHEUS, self._address),
            Step(Check.CLOCKS, self._clocks),
            Step(Check.LABELS, self._labels),
            Step(Check.CLUSTERS, self._clusters),
            Step(Check.SCRAPES, self._scrapes),
            Step(Check.METRICS, self._metrics),
            Step(Check.SIGNALS, self._signals),
            Step(Check.SESSIONS, self._sessions),
            Step(Check.CGROUPS, self._cgroups),
        )

    async def _address(self) -> Iterable[Finding]:
        access = access_of(self._known.settings.prometheus)
        access = replace(access, timeout_s=min(access.timeout_s, ANSWER_S))
        api = PrometheusApi(access, self._known.traffic)
        self._known.closing.callback(api.close)
        before = time.time()
        try:
            server = await in_thread(api.server_time)
        except MetricsError as error:
            return [failed(Check.PROMETHEUS, f"{api.address} {error.text}", _remedy(error))]
        self._api, self._ahead_s = api, server - (before + time.time()) / 2
        return [
            Finding(
                Check.PROMETHEUS, Status.OK, f"{api.address} answers, asked {_who(self._known.settings.prometheus)}"
            )
        ]

    async def _clocks(self) -> Iterable[Finding]:
        need(self._api, Check.PROMETHEUS)
        need(self._known.user, Check.SERVER)
        server, local = need(self._known.connection, Check.SERVER).now(), time.time()
        return usage.clocks(server, datetime.fromtimestamp(local, UTC), datetime.fromtimestamp(self._now(), UTC))

    def _now(self) -> float:
        return time.time() + self._ahead_s

    async def _labels(self) -> Iterable[Finding]:
        need(self._api, Check.PROMETHEUS)
        started = self._started()
        pods = {container.pod_ref for container in started}
        survey = Survey(self._known.settings.prometheus.layout.layout())
        gpus = any(policy.recommender.signals & GPU_SIGNALS for policy in self._policies())
        await survey.renew(self._ask, pods, 0.0, gpus=gpus)
        layout = survey.layout
        if survey.ambiguous is None:
            found = {container.pod_ref for container in await self._newest(survey, layout.memory)} & pods
            if not found:
                return [usage.unlabelled(layout.memory, self._now() - min(started.values()).timestamp())]
        self._survey = survey
        return usage.labels(layout.names, survey.notes)

    def _started(self) -> Mapping[ContainerRef, datetime]:
        chosen: Selection = need(self._known.selection, Check.PODS)
        if not chosen.started:
            raise Blocked("no container that is to be sized runs")
        return chosen.started

    async def _clusters(self) -> Iterable[Finding]:
        survey = need(self._survey, Check.LABELS)
        if survey.ambiguous is not None:
            return [failed(Check.CLUSTERS, survey.ambiguous.detail)]
        return [Finding(Check.CLUSTERS, Status.OK, "the series of the selected pods are of one cluster")]

    def _usable(self) -> Survey:
        survey = need(self._survey, Check.LABELS)
        return need(survey if survey.ambiguous is None else None, Check.CLUSTERS)

    async def _scrapes(self) -> Iterable[Finding]:
        survey = self._usable()
        return usage.scrapes(survey.scrape_interval_s if survey.interval_known else None, self._policies())

    def _policies(self) -> tuple[Policy, ...]:
        return need(self._known.config, Check.POLICIES).policies

    async def _metrics(self) -> Iterable[Finding]:
        survey, started = self._usable(), self._started()
        layout = survey.layout
        every = (
            Wanted(layout.cpu, "no CPU is sized", Status.ERROR),
            Wanted(layout.memory, "no memory is sized", Status.ERROR),
            Wanted(layout.in_use, "no memory limit is lowered", Status.WARNING),
        )
        newest = await asyncio.gather(*(self._newest(survey, wanted.metric) for wanted in every))
        now, interval_s = self._now(), survey.scrape_interval_s
        return [
            *(usage.coverage(one, Seen(at, now, interval_s), started) for one, at in zip(every, newest, strict=True)),
            *usage.disputes({str(one.pod_ref): gap.detail for one, gap in survey.disputed.items() if one in started}),
            *usage.partial(self._partial),
            *self._past(started),
        ]

    def _past(self, started: Mapping[ContainerRef, datetime]) -> Iterable[Finding]:
        """What it takes to read all look-backs, as a controller does when it starts."""
        chosen: Selection = need(self._known.selection, Check.PODS)
        samples = 0
        for policy in self._policies():
            pods = {pod.ref for pod in chosen.of[policy.name]}
            number = sum(container.pod_ref in pods for container in started)
            samples += number * Asked.of(policy).queries * ranges.instants(policy.grid)
        return past.cost(len(started), samples, self._known.settings.prometheus.backfill_samples)

    async def _newest(self, survey: Survey, metric: str) -> Mapping[ContainerRef, float]:
        layout, pods = survey.layout, {container.pod_ref for container in self._started()}
        answer = await self._ask(probe.newest(layout, metric, queries.of_pods(layout, pods)))
        return probe.by_container(answer, layout)

    async def _signals(self) -> Iterable[Finding]:
        survey, started = self._usable(), self._started()
        chosen: Selection = need(self._known.selection, Check.PODS)
        findings = []
        for policy in self._policies():
            pods = {pod.ref for pod in chosen.of[policy.name]}
            containers = {container for container in started if container.pod_ref in pods}
            if containers:
                findings += [
                    await self._signal(policy, one, containers) for one in _readings(policy, survey, containers)
                ]
        return findings

    async def _signal(self, policy: Policy, reading: Reading, containers: AbstractSet[ContainerRef]) -> Finding:
        try:
            answer = await self._ask(reading.query(policy.grid.step))
        except MetricsError as error:
            text = f"it is missing: Prometheus {error.text}"
            return replace(failed(Check.SIGNALS, text), subject=f"{policy.name}/{reading.name}")
        return usage.signal(policy, reading.name, probe.having(reading, answer, containers), containers)

    async def _sessions(self) -> Iterable[Finding]:
        need(self._api, Check.PROMETHEUS)
        chosen = need(self._known.selection, Check.PODS)
        findings = []
        for policy in self._policies():
            pods = [pod.ref for pod in chosen.of[policy.name]]
            drain = policy.fallback.migration.drain if policy.moves else None
            if drain is not None and drain.query is not None and pods:
                findings.append(await self._drain(policy.name, drain.query, pods))
        return findings

    async def _drain(self, policy: str, query: str, pods: list[PodRef]) -> Finding:
        lacking = []
        try:
            chosen = self._known.settings.prometheus.layout.layout().cluster
            which = matchers_for(query, self._survey.cluster if self._survey is not None else _NO_CLUSTER, chosen)
        except ClusterUnknown as error:
            return replace(failed(Check.SESSIONS, f"fallback.drain.query: {error}"), subject=policy)
        for namespace, names in _by_namespace(pods).items():
            try:
                answer = await self._ask(asked(query, namespace, names, which))
            except MetricsError as error:
                return replace(failed(Check.SESSIONS, f"fallback.drain.query: Prometheus {error.text}"), subject=policy)
            found = gates.of_series(answer, namespace, names, "Prometheus", namespaced=names_namespace(query))
            lacking += [str(pod) for pod, reading in found.items() if reading.sessions is None]
        return usage.sessions(policy, lacking, len(pods))

    async def _cgroups(self) -> Iterable[Finding]:
        found = need(self._known.nodes, Check.NODES)
        told: Mapping[str, int] = {}
        pressed: set[str] = set()
        if self._survey is not None and self._survey.ambiguous is None:
            layout, chosen = self._survey.layout, need(self._known.selection, Check.PODS)
            told = probe.by_node(await self._ask(probe.cgroup_versions(layout)))
            on = {pod.ref: pod.node for pods in chosen.of.values() for pod in pods if pod.node is not None}
            answer = await self._ask(probe.pressed(layout, queries.of_pods(layout, on.keys())))
            pressed = {on[one.pod_ref] for one in probe.by_container(answer, layout) if one.pod_ref in on}
        return usage.cgroups(found, told, pressed)

    async def _ask(self, query: str) -> list[Series]:
        answer = await in_thread(need(self._api, Check.PROMETHEUS).instant, query)
        self._partial += answer.missing
        return answer.result


def _readings(policy: Policy, survey: Survey, containers: AbstractSet[ContainerRef]) -> list[Reading]:
    """What is asked for besides CPU and memory, and what the policy defines, read by its recommender or not."""
    found = signals.readings(
        survey.layout,
        {container.pod_ref for container in containers},
        {container.container for container in containers},
        round(policy.rate_window.total_seconds()),
        policy.recommender.signals,
        policy.signals,
    )
    return [reading for reading in found if reading.name not in set(Resource)]


def _by_namespace(pods: Iterable[PodRef]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for pod in pods:
        found[pod.namespace].append(pod.name)
    return found


def _remedy(error: MetricsError) -> str:
    """What to do about an error that does not say so itself."""
    if error.error_type == "credentials" or error.status in (401, 403):
        return "correct what it names (docs/settings.md)"
    if error.passing or error.too_much or error.error_type == "hang" or (error.status or 0) >= 500:
        return "see the log of that server, and whether it is overloaded"
    return "check --prometheus-url"


def _who(prometheus: PrometheusSection) -> str:
    auth, tenant = prometheus.auth, prometheus.tenant
    modes = [str(field.alias) for name, field in type(auth).model_fields.items() if getattr(auth, name) is not None]
    who = f"with prometheus.auth.{modes[0]}" if modes else "without credentials"
    return who if tenant is None else f"{who}, for the tenant {tenant}"
