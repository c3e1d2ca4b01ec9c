"""The model is asked: the simulator's API server and kubelet, which are core.kubelet in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from autoscaler.core.actions import ContainerResize, OutcomeKind
from autoscaler.core.history import ContainerRef
from autoscaler.core.model import Container, ContainerKind, Node, Pod, PodRef, Resources
from autoscaler.core.resize import IN_PROGRESS
from autoscaler.simulator.cluster import SimulatedCluster
from autoscaler.simulator.traces import Demand, Series
from tests.kubelet.asking import (
    NAMESPACE,
    Actor,
    Ask,
    Delete,
    Hold,
    Question,
    Seen,
    Site,
    Step,
    at_rest,
    parsed,
    refused,
    room,
    state_of,
    written,
)

PRIORITY = 1000  # of pods that are prior
_ANSWERS = timedelta(seconds=4)  # it says by then what comes of an ask, and does it, with restarts
_TELLS = timedelta(seconds=14)  # it says by then why it has not, or stops a pod
_START = datetime(2026, 3, 2, 8, tzinfo=UTC)
_MIB = 1 << 20


class ModelKubelet:
    """A node with these pods, anew for each question."""

    def __init__(self, site: Site, actors: Sequence[Actor]) -> None:
        self._site = site
        self._pods = [at_rest(actor, PRIORITY) for actor in actors]
        self._room = room(site, self._pods)

    def answer(self, question: Question) -> list[Seen]:
        """What comes of each step."""
        cluster = self._cluster()
        before = {name: cluster.state.pods[PodRef(NAMESPACE, name)] for name in question.pods}
        return [self._step(cluster, step, before) for step in question.steps]

    def _cluster(self) -> SimulatedCluster:
        cluster = SimulatedCluster(_START, timedelta(hours=1))
        cluster.add_node(Node("node", self._site.allocatable), static_cpu=self._site.static)
        others = Container("app", spec=Resources(self._site.others))
        for pod in (*self._pods, Pod("others", "others", "uid-others", node="node", containers=(others,))):
            idle = Demand(Series.of((0.001,)), Series.of((float(_MIB),)))
            cluster.add_pod(replace(pod, phase="Running"), {container.name: idle for container in pod.containers})
            cluster.state.put(_as_it_is(cluster.state.pods[pod.ref], pod.phase))
        return cluster

    def _step(self, cluster: SimulatedCluster, step: Step, before: dict[str, Pod]) -> Seen:
        states = {name: [_state(cluster, pod)] for name, pod in before.items()}
        said = self._do(cluster, step)
        for _ in () if step.at_once else _moments(cluster):
            for name, pod in before.items():
                if (now := _state(cluster, pod)) != states[name][-1]:
                    states[name].append(now)
        return Seen(said, states)

    def _do(self, cluster: SimulatedCluster, step: Step) -> str:
        ref = PodRef(NAMESPACE, step.pod)
        if isinstance(step, Delete):
            cluster.delete_pod(ref)
            return "deleted"
        if isinstance(step, Hold):
            container = ContainerRef(*ref, "app")
            memory = Series.of((float(step.mib * _MIB),))
            record = cluster.state.usage[container]
            cluster.state.usage[container] = replace(record, demand=replace(record.demand, memory=memory))
            return "held"
        return self._ask(cluster, ref, step)

    def _ask(self, cluster: SimulatedCluster, ref: PodRef, step: Ask) -> str:
        pod = cluster.state.pods[ref]
        kinds = {container.name: container.kind for container in pod.containers}
        changes = tuple(
            ContainerResize(name, kinds.get(name, pod.containers[-1].kind), parsed(resources))
            for name, resources in written(step.resources, self._room).items()
        )
        outcome = cluster.resize(ref, changes, "questions")
        if outcome.kind is OutcomeKind.ACCEPTED:
            return f"generation +{cluster.state.pods[ref].generation - pod.generation}"
        causes = [outcome.cause] if outcome.cause else []
        return refused(403 if causes else 422, causes, outcome.detail)


def _as_it_is(pod: Pod, phase: str) -> Pod:
    """The pod that was started, in its phase. One that waits for its init container is Running here: the simulator
    would start what is Pending."""
    if phase == "Running":
        return pod
    if phase != "Pending":
        return replace(pod, phase=phase, containers=tuple(replace(one, running=False) for one in pod.containers))
    waiting = [replace(one, running=False, allocated=None, actual=None, started_at=None) for one in pod.containers]
    running = [replace(one, running=True) for one in pod.containers]
    pairs = zip(pod.containers, running, waiting, strict=True)
    containers = tuple(r if one.kind is ContainerKind.INIT else w for one, r, w in pairs)
    return replace(pod, containers=containers)


def _state(cluster: SimulatedCluster, before: Pod) -> str:
    return state_of(cluster.state.pods.get(before.ref), before)


def _moments(cluster: SimulatedCluster) -> Iterator[None]:
    """Every moment at which something happens, until the answer to a step must be there."""
    since = cluster.now
    while cluster.next_event_at <= since + _within(cluster):
        cluster.advance(cluster.next_event_at)
        yield
    cluster.advance(max(cluster.now, since + _ANSWERS))


def _within(cluster: SimulatedCluster) -> timedelta:
    pods = cluster.state.pods.values()
    return _TELLS if any(pod.deleting or pod.condition(IN_PROGRESS) for pod in pods) else _ANSWERS
