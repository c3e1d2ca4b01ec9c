"""Resizes that are not over, as metrics: how many in each phase, and for each such pod what is in force and what is
asked for. Pods that are settled have no series, so that there are never many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from autoscaler.core.model import RESOURCES, Container, PodRef, Resource
from autoscaler.core.plan import Decision
from autoscaler.core.resize import Phase, phase_of
from autoscaler.ports import Turn, WakeKind

_PREFIX = "bridge_autoscaler_unfinished_resize"
_PER_CORE = 1000


class UnfinishedResizes(Collector):
    """A journal, and the collector of what it knows."""

    def __init__(self) -> None:
        self._decisions: dict[PodRef, tuple[Phase, Decision]] = {}

    def record(self, turn: Turn) -> None:
        if turn.plan is None:
            return
        if turn.wake.kind is WakeKind.TICK:
            self._decisions = {}
        for decision in turn.plan.decisions:
            self._decisions.pop(decision.pod.ref, None)
            phase = phase_of(decision.pod).phase
            if phase not in (Phase.SETTLED, Phase.DELETING):
                self._decisions[decision.pod.ref] = phase, decision

    def collect(self) -> Iterator[Metric]:
        known = list(self._decisions.values())
        count = GaugeMetricFamily(f"{_PREFIX}s", "Resizes that are not over, by phase.", labels=["phase"])
        tally = Counter(phase for phase, _ in known)
        for phase in Phase:
            if phase not in (Phase.SETTLED, Phase.DELETING):
                count.add_metric([phase], tally[phase])
        yield count
        labels = ["namespace", "pod", "container", "resource", "side", "state"]
        amount = GaugeMetricFamily(f"{_PREFIX}_amount", "Cores or bytes, asked for and in force.", labels=labels)
        due = GaugeMetricFamily(
            f"{_PREFIX}_due_timestamp_seconds", "When it is looked at next.", labels=["namespace", "pod"]
        )
        for _, decision in known:
            for container in decision.pod.containers:
                for series, value in _amounts(container):
                    amount.add_metric([*decision.pod.ref, container.name, *series], value)
            if decision.due_at is not None:
                due.add_metric(decision.pod.ref, decision.due_at.timestamp())
        yield amount
        yield due


def _amounts(container: Container) -> Iterator[tuple[tuple[str, str, str], float]]:
    for state, resources in (("asked", container.spec), ("in_force", container.in_force)):
        for side, amounts in (("request", resources.requests), ("limit", resources.limits)):
            for resource in RESOURCES:
                if (value := amounts.get(resource)) is not None:
                    unit = _PER_CORE if resource is Resource.CPU else 1
                    yield (resource, side, state), value / unit
