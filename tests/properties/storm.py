"""A small simulated cluster to which a history happens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from autoscaler.core import kubelet
from autoscaler.core.actions import ContainerResize
from autoscaler.core.model import ContainerKind, Node, Pod, PodRef, Resource, ResourceList, Resources
from autoscaler.core.policy import Budgets, ByDirection, Config, Fallback, Mode, Policy, Selector, Stability
from autoscaler.core.scheduling import DisruptionBudget
from autoscaler.core.units import Bytes, Millicores
from autoscaler.simulator.cluster import SimulatedCluster
from autoscaler.simulator.traces import Demand, Series
from tests.build import Fixed
from tests.properties import events, moving
from tests.properties.events import Event, Kind
from tests.simulator.builders import both, container, pod, sizes
from tests.simulator.sessions import ScriptedSessions

START = datetime(2026, 3, 2, 8, tzinfo=UTC)
QUIET = timedelta(seconds=200)  # what is waited for after the last event
POLICY = Policy(
    "bridges",
    Fixed(),
    Selector(frozenset({"sim"})),
    Mode.RESIZE,
    stability=Stability(
        ByDirection(0.05, 0.10),
        ByDirection(1.0, 0.5),
        ByDirection(timedelta(seconds=10), timedelta(seconds=50)),
        timedelta(seconds=90),
    ),
    fallback=Fallback(
        after=timedelta(seconds=40),
        infeasible_after=timedelta(seconds=20),
        error_after=timedelta(minutes=2),
        retry_after=timedelta(minutes=2),
    ),
)
CONFIG = Config((POLICY,), budgets=Budgets(max_disruptions_per_namespace=1))
MIB = 1 << 20


def amounts(cpu: int, memory: int) -> ResourceList:
    """From millicores and MiB."""
    return ResourceList(Millicores(cpu), Bytes(memory * MIB))


def moment(event: Event) -> datetime:
    return START + timedelta(seconds=event.at)


def config_of(history: events.History) -> Config:
    """The policy of a history."""
    return moving.config(history, POLICY) if history.moving else CONFIG


def workload_of(pod: Pod) -> str:
    """The name by which events know a pod."""
    return (pod.workload or "").partition("/")[2]


class Storm(SimulatedCluster):
    """The simulated cluster, with the events of a history happening to it as time goes by."""

    def __init__(self, history: events.History) -> None:
        super().__init__(START)
        self.history = history
        self._neighbours: list[PodRef] = []
        self._arrived = 0
        self._pending = list(reversed(history.events))
        odd = 0 if history.calm else history.seed // 2 % 3
        self.add_node(Node("n1", amounts(6000, 10 * 1024), pods=110))
        self.add_node(Node("n2", amounts(5000, 8 * 1024), pods=110), static_cpu=odd == 1, swap=odd == 2)
        self.sessions = _Sessions(self)
        if history.moving:
            self.add_node(Node("n3", amounts(7000, 14 * 1024), pods=110))
        for workload, template, pods in moving.workloads() if history.moving else ():
            demand = self._demand(workload.ref.name)
            self.add_workload(workload, template, {c.name: demand for c in template.containers})
            for each in pods:
                self.add_pod(each, {c.name: demand for c in each.containers})
        for each in () if history.moving else _bridges():
            self.add_pod(each, {c.name: self._demand(each.name) for c in each.containers})

    def budgets(self) -> Sequence[DisruptionBudget]:
        return list(self._budgets.values())

    def pods(self) -> Sequence[Pod]:
        """The pods that the policy selects."""
        return [pod for pod in self.state.pods.values() if pod.namespace == "sim"]

    def pod(self, ref: PodRef) -> Pod | None:
        return self.state.pods.get(ref)

    def _pods_of(self, name: str) -> list[Pod]:
        """The pods of a workload, those first that are not being deleted."""
        found = [one for one in self.pods() if workload_of(one) == name]
        return sorted(found, key=lambda one: (one.deleting, one.ref))

    def too_small(self, pod: Pod) -> bool:
        """Whether the pod's node can allocate less than the pod has."""
        has, room = kubelet.footprint(pod, kubelet.allocated), self.state.nodes[pod.node or ""].allocatable
        return any((has.get(resource) or 0) > (room.get(resource) or 0) for resource in Resource)

    def sessions_at(self, name: str, at: datetime) -> int | None:
        """How many sessions each pod of a workload has; None: it does not answer."""
        gates = [e for e in self.history.events if e.kind is Kind.GATE and e.who == name and moment(e) <= at]
        return None if gates and gates[-1].number < 0 else gates[-1].number if gates else 0

    def _demand(self, name: str) -> Demand:
        """CPU that never matters, and memory as the history has it."""
        minutes = int((events.LASTS_S + QUIET.total_seconds()) // 60) + 60
        memory = [100.0 * MIB] * minutes
        for event in self.history.events:
            if event.kind is Kind.USAGE and event.who == name:
                since = event.at // 60
                memory[since:] = [float(event.memory * MIB)] * (minutes - since)
        return Demand(Series.of([0.1]), Series.of(memory, starts_at=START))

    @property
    def next_event_at(self) -> datetime:
        own = super().next_event_at
        return min(own, moment(self._pending[-1])) if self._pending else own

    def advance(self, until: datetime) -> frozenset[PodRef]:
        changed: frozenset[PodRef] = frozenset()
        while self._pending and moment(self._pending[-1]) <= until:
            event = self._pending.pop()
            changed |= super().advance(moment(event))
            self._happen(event)
        return changed | super().advance(until)

    def _happen(self, event: Event) -> None:
        pods = self._pods_of(event.who)
        match event.kind:
            case Kind.ARRIVE:
                self._arrive(event)
            case Kind.LEAVE if self._neighbours:
                self.delete_pod(self._neighbours.pop(event.number % len(self._neighbours)))
            case Kind.ALLOCATABLE:
                kubelets, has = self.kubelets, amounts(event.cpu, event.memory)
                node = replace(self.state.nodes[event.who], allocatable=has)
                self.add_node(node, static_cpu=node.name in kubelets.static_cpu, swap=node.name in kubelets.swap)
            case Kind.SILENT:
                self.silence(event.who, self.now + timedelta(seconds=event.seconds))
            case Kind.USER if pods:
                self._kubectl(pods[0].ref, amounts(event.cpu, event.memory))
            case Kind.DELETE if pods and not pods[0].deleting:
                self.scheduler.preferred = pods[0].node  # it comes back to its own node if that will do
                self.delete_pod(pods[0].ref)
            case Kind.CORDON:
                self.cordon(event.who)
            case Kind.UNCORDON:
                self.uncordon(event.who)
            case Kind.BUDGET if event.number >= 0:
                self.add_budget(moving.budget(event))
            case Kind.BUDGET:
                self.remove_budget("sim", moving.budget(event).name)

    def _arrive(self, event: Event) -> None:
        self._arrived += 1
        made = pod(f"x{self._arrived}", container(Resources(amounts(event.cpu, event.memory))), node=event.who)
        neighbour = replace(made, namespace="others")
        if self.scheduler.has_room(self.state.nodes[event.who], neighbour):
            self.add_pod(neighbour, {"app": Demand(Series.of([0.1]), Series.of([1.0]))})
            self._neighbours.append(neighbour.ref)

    def _kubectl(self, ref: PodRef, wanted: ResourceList) -> None:
        app = next(c for c in self.state.pods[ref].containers if c.name == "app")
        limits = ResourceList()
        if app.spec.limits != limits:
            times = 1 if app.spec.limits == app.spec.requests else 2
            limits = ResourceList(Millicores((wanted.cpu or 0) * times), Bytes((wanted.memory or 0) * times))
        self.resize(ref, (ContainerResize("app", ContainerKind.CONTAINER, Resources(wanted, limits)),), "kubectl")


class _Sessions(ScriptedSessions):
    def __init__(self, storm: Storm) -> None:
        super().__init__(storm)
        self._storm = storm

    def sessions(self, ref: PodRef) -> int | None:
        pod = self._storm.pod(ref)
        return None if pod is None else self._storm.sessions_at(workload_of(pod), self._storm.now)


def _bridges() -> Iterable[Pod]:
    memory = frozenset({Resource.MEMORY})
    restarting = container(sizes("500m", "512Mi", "1", "1Gi"), restart_on=memory)
    return (
        pod("a", container(both("500m", "512Mi"), restart_on=memory), workload="StatefulSet/a"),
        pod("b", restarting, container(both("100m", "256Mi"), "side"), workload="StatefulSet/b"),
        pod("c", container(both("1", "1Gi")), node="n2", workload="StatefulSet/c"),
        pod("d", container(sizes("1", "1Gi")), node="n2", workload="StatefulSet/d"),
    )
