"""Small clusters for stories in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from autoscaler.core.actions import ContainerResize, Outcome
from autoscaler.core.model import (
    Container,
    ContainerKind,
    Node,
    Pod,
    PodRef,
    Resource,
    ResourceList,
    Resources,
)
from autoscaler.core.pairing import qos_class
from autoscaler.core.units import parse_cpu, parse_memory
from autoscaler.simulator.cluster import SimulatedCluster
from autoscaler.simulator.traces import Demand, Series

START = datetime(2026, 3, 2, 8, tzinfo=UTC)


def amounts(cpu: str | None, memory: str | None) -> ResourceList:
    return ResourceList(None if cpu is None else parse_cpu(cpu), None if memory is None else parse_memory(memory))


def sizes(
    cpu: str | None, memory: str | None, cpu_limit: str | None = None, memory_limit: str | None = None
) -> Resources:
    return Resources(amounts(cpu, memory), amounts(cpu_limit, memory_limit))


def both(cpu: str | None, memory: str | None) -> Resources:
    """Request = limit."""
    return sizes(cpu, memory, cpu, memory)


def node(name: str = "n1", cpu: str = "4", memory: str = "8Gi") -> Node:
    return Node(name, amounts(cpu, memory), pods=110)


def container(
    resources: Resources,
    name: str = "app",
    kind: ContainerKind = ContainerKind.CONTAINER,
    restart_on: frozenset[Resource] = frozenset(),
) -> Container:
    return Container(name, kind, resources, restart_on=restart_on)


def pod(name: str, *containers: Container, node: str = "n1", workload: str | None = None) -> Pod:
    made = Pod("sim", name, f"{name}#1", workload=workload, node=node, containers=containers)
    return replace(made, qos_class=qos_class(made, {}))


def demand(cpu: float | Sequence[float] = 0.1, memory: str | Sequence[str] = "64Mi") -> Demand:
    """Usage in cores and bytes, each value for a minute from START on."""
    cores = [cpu] if isinstance(cpu, int | float) else cpu
    texts = [memory] if isinstance(memory, str) else memory
    return Demand(
        Series.of(cores, starts_at=START), Series.of([float(parse_memory(text)) for text in texts], starts_at=START)
    )


def cluster(*pods: Pod, nodes: Sequence[Node] = (), usage: Demand | None = None) -> SimulatedCluster:
    """Pods on nodes at START, all with the same usage."""
    made = SimulatedCluster(START)
    for each in nodes or (node(),):
        made.add_node(each)
    for each_pod in pods:
        made.add_pod(each_pod, {c.name: usage or demand() for c in each_pod.containers})
    return made


def ask(
    on: SimulatedCluster, name: str, resources: Resources, container: str = "app", manager: str = "tester"
) -> Outcome:
    change = ContainerResize(container, ContainerKind.CONTAINER, resources)
    return on.resize(PodRef("sim", name), (change,), manager)


def after(on: SimulatedCluster, seconds: float) -> frozenset[PodRef]:
    return on.advance(on.now + timedelta(seconds=seconds))


async def get(on: SimulatedCluster, name: str) -> Pod:
    return (await on.observe()).pods[PodRef("sim", name)]
