"""A recorded demand on the simulated cluster, under a whole policy: bounds, steps, cooldowns, nodes and kubelets count.

One pod of a StatefulSet with one container plays the trace. Its node may hold other pods, which stay as they are, and
there is a second, empty node of the same size to which a policy may move it. Kubelets take their time, refuse what does
not fit and memory limits below what is in use; who is killed for lack of memory is started again (simulator/kubelets).
Where nothing is recorded the pod goes on as it was last seen; no sample of that reaches the loop, and none is scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from autoscaler.backtest.demand import Demand
from autoscaler.backtest.observing import Observations
from autoscaler.backtest.playback import STARTS_AT
from autoscaler.core.bounds import ROUND_TO
from autoscaler.core.history import ContainerRef, Gap, History, Measurements, MemoryInUse, advance
from autoscaler.core.labels import LabelSelector
from autoscaler.core.model import Container, Node, Pod, PodRef, Resource, ResourceList, Resources
from autoscaler.core.pairing import qos_class
from autoscaler.core.policy import Mode, Policy, Selector
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Samples, Signal
from autoscaler.simulator.cluster import SimulatedCluster
from autoscaler.simulator.traces import Demand as Usage
from autoscaler.simulator.traces import Series

_LABELS = MappingProxyType({"backtest": "replayed"})
_POD, _OTHERS = PodRef("backtest", "pod-0"), PodRef("backtest", "others-0")
_SCRAPE_S = 15
_PODS = 110  # that a kubelet takes unless it is told otherwise
_NOTHING = Gap(Reason.NO_DATA, "nothing has been recorded yet")
_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Room:
    """The node of the pod: what it can give in all, and what others on it hold. None: without bound."""

    node: ResourceList = ResourceList()
    others: ResourceList = ResourceList()


def as_replayed(policy: Policy) -> Policy:
    """The policy as it would act on the replayed pod, if it only recommends so far as well."""
    mode = policy.mode if policy.mode is Mode.RESIZE_OR_MIGRATE else Mode.RESIZE
    selector = Selector(labels=LabelSelector(match_labels=tuple(_LABELS.items())))
    return replace(policy, mode=mode, selector=selector)


def container_of(policy: Policy) -> ContainerRef:
    """The container of the replayed pod, under the first name for which the policy has an entry."""
    names = [entry.name for entry in policy.containers if entry.managed]
    exact = [name for name in names if not _WILD.intersection(name)]
    return ContainerRef(*_POD, exact[0] if exact else "app")


class Modelled:
    """The cluster, and `ports.Metrics` over what the pod in it uses.

    `demands`: of CPU, of memory, or of both, with one step and interval. CPU, and how long it was throttled, are means
    over the policy's rate window, as those of a query.
    """

    def __init__(
        self, demands: Mapping[Resource, Demand], policy: Policy, room: Room, *, soft: bool, closed: bool
    ) -> None:
        self._policy = policy
        self._demands = demands
        self._any = next(iter(demands.values()))
        self._container = container_of(policy)
        starts_s = int(STARTS_AT.timestamp())
        # memory is closed as it is: the cluster kills and starts again
        self._seen = {
            resource: Observations(
                demand,
                starts_s,
                soft=soft and resource is Resource.CPU,
                signals=policy.recommender.signals,
                closed=closed and resource is Resource.CPU,
            )
            for resource, demand in demands.items()
        }
        self._limit = {resource: np.empty(len(self._any.values)) for resource in demands}
        self._rates: dict[str, NDArray[np.float32]] = {
            name: np.full(self._any.turns, np.nan, np.float32) for name in (Resource.CPU, Signal.THROTTLED)
        }
        self._window = max(1, int(policy.rate_window.total_seconds()) // self._any.interval_s)
        self._steps = self._turn = self._folded = 0
        self._history: History | None = None
        self._step = timedelta(seconds=self._any.step_s)
        self.cluster = SimulatedCluster(STARTS_AT, self._step)
        self._build(room, soft=soft)
        self.cluster.state.later(self._step, self._note)

    def limit(self, resource: Resource) -> NDArray[np.float64]:
        """What was in force at each step that has passed."""
        return self._limit[resource][: self._steps]

    def wanted(self, resource: Resource) -> NDArray[np.float64]:
        """What was wanted at each step that has passed."""
        return self._seen[resource].wanted[: self._steps]

    # ---- the port

    def follow(self, wanted: Mapping[ContainerRef, Policy]) -> None:
        """There is one container, and it is followed."""

    def latest(self) -> Measurements:
        """All intervals that have passed, folded."""
        now, grid = self.cluster.now, self._policy.grid
        if self._folded < self._turn:
            new = self._samples(self._folded, self._turn)
            self._history = advance(self._history, new, self._policy.recommender, grid, sample_s=grid.step)
            self._folded = self._turn
        record = self.cluster.usage_of(self._container)
        in_use = {} if record is None or not record.spans else {self._container: record.memory_in_use(now)}
        found = {} if self._history is None else {self._container: self._history}
        return Measurements(
            now,
            MappingProxyType(found),
            _NOTHING,
            in_use=MemoryInUse(now, MappingProxyType(in_use)),
            scrape_interval_s=_SCRAPE_S,
        )

    def _samples(self, first: int, last: int) -> Samples:
        parts = {resource: seen.between(first, last) for resource, seen in self._seen.items()}
        (any_part, *_) = parts.values()
        rates = {name: values[first:last].copy() for name, values in self._rates.items()}
        cpu = rates[Resource.CPU] if Resource.CPU in parts else any_part.cpu
        memory = parts.get(Resource.MEMORY, any_part).memory
        signals = {name: rates.get(name, values) for part in parts.values() for name, values in part.signals.items()}
        return Samples(any_part.end_at, cpu, memory, signals)

    # ---- the world

    def _note(self) -> None:
        """A step has passed: what was in force in it, and, at the end of an interval, what was used."""
        if self._steps == len(self._any.values):
            return
        pod = self.cluster.state.pods.get(_POD)
        for resource, limits in self._limit.items():
            amount = None if pod is None else _in_force(pod, self._container.container, resource)
            before = limits[self._steps - 1] if self._steps else self._demands[resource].start
            limits[self._steps] = before if amount is None else amount
        self._steps += 1
        if self._steps % self._any.per_turn == 0:
            for resource, seen in self._seen.items():
                seen.see(self._turn, float(self._limit[resource][self._steps - 1]))
            self._turn += 1
            if Resource.CPU in self._seen:
                window = self._seen[Resource.CPU].between(max(0, self._turn - self._window), self._turn)
                for name, values in ((Resource.CPU, window.cpu), (Signal.THROTTLED, window.signal(Signal.THROTTLED))):
                    known = values[np.isfinite(values)]
                    self._rates[name][self._turn - 1] = known.mean() if len(known) else np.nan
        self.cluster.state.later(self._step, self._note)

    def _build(self, room: Room, *, soft: bool) -> None:
        for name in ("node-a", "node-b"):
            self.cluster.add_node(Node(name, room.node, pods=_PODS))
        amounts = ResourceList.of(
            {resource: _whole(resource, demand.start) for resource, demand in self._demands.items()}
        )
        limits = amounts.with_amount(Resource.CPU, None) if soft else amounts
        spec = Resources(amounts, limits)
        pod = Pod(
            *_POD,
            uid="pod-0#1",
            labels=_LABELS,
            workload="StatefulSet/pod",
            node="node-a",
            containers=(Container(self._container.container, spec=spec),),
        )
        self.cluster.add_pod(
            replace(pod, qos_class=qos_class(pod, {})), {self._container.container: self._usage()}, since=STARTS_AT
        )
        if room.others != ResourceList():
            other = Container("app", spec=Resources(room.others))
            self.cluster.add_pod(
                Pod(*_OTHERS, uid="others-0#1", node="node-a", containers=(other,)),
                {"app": Usage(Series.of((0.0,)), Series.of((0.0,)))},
            )

    def _usage(self) -> Usage:
        """What the cluster compares with limits at the end of each step: the demand of that step."""
        starts_at = STARTS_AT + self._step
        series = {
            resource: Series.of(_held(demand.values).tolist(), step_s=demand.step_s, starts_at=starts_at)
            for resource, demand in self._demands.items()
        }
        nothing = Series.of((0.0,))
        return Usage(series.get(Resource.CPU, nothing), series.get(Resource.MEMORY, nothing))


def _held(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """With the value before each blank in its place, and with the first one before that."""
    known = np.flatnonzero(np.isfinite(values))
    return values[known[np.maximum(known.searchsorted(np.arange(len(values)), side="right") - 1, 0)]]


def _in_force(pod: Pod, name: str, resource: Resource) -> float | None:
    """Cores or bytes that a container is held to, or that it is promised where nothing holds it."""
    found = next(container.in_force for container in pod.containers if container.name == name)
    amount = found.limits.get(resource) or found.requests.get(resource)
    return None if amount is None else amount / 1000 if resource is Resource.CPU else float(amount)


def _whole(resource: Resource, size: float) -> int:
    """A size (cores, bytes) in base units, rounded up as sizes are."""
    amount = ceil(size * 1000 - 1e-6) if resource is Resource.CPU else ceil(size)
    return amount + -amount % ROUND_TO[resource]
