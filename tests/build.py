"""Builders of core values with sensible defaults, for tests and benchmarks. Amounts are quantities, as in YAML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from autoscaler.core.actions import Resize
from autoscaler.core.history import ContainerRef, Gap, History, Measurements, MemoryInUse, advance
from autoscaler.core.model import (
    ClusterSnapshot,
    Container,
    ContainerKind,
    Node,
    Pod,
    Resource,
    ResourceList,
    Resources,
)
from autoscaler.core.pairing import qos_class
from autoscaler.core.plan import Decision, Plan
from autoscaler.core.policy import ByDirection, Config, Mode, Policy, Stability
from autoscaler.core.recommender import Abstain, Grid, Recommender, Samples, Situation, Target
from autoscaler.core.units import Bytes, parse_cpu, parse_memory

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)

HOURS = Grid(60, 2 * 3600)
"""Two hours, of which every minute is kept."""

FREE = Stability(ByDirection(0.0, 0.0), ByDirection(1e30, 1.0), ByDirection(timedelta(0), timedelta(0)), timedelta(0))
"""Stability that keeps nothing back."""


def amounts(cpu: str | None = None, memory: str | None = None) -> ResourceList:
    return ResourceList(None if cpu is None else parse_cpu(cpu), None if memory is None else parse_memory(memory))


def sizes(
    cpu: str | None = None, memory: str | None = None, cpu_limit: str | None = None, memory_limit: str | None = None
) -> Resources:
    """Requests, and limits where they are given."""
    return Resources(amounts(cpu, memory), amounts(cpu_limit, memory_limit))


def both(cpu: str | None = None, memory: str | None = None) -> Resources:
    """Request = limit."""
    return sizes(cpu, memory, cpu, memory)


BURSTABLE = sizes("500m", "1Gi", "1", "2Gi")
GUARANTEED = both("500m", "1Gi")


def container(
    spec: Resources = BURSTABLE,
    name: str = "app",
    kind: ContainerKind = ContainerKind.CONTAINER,
    **changes: Any,
) -> Container:
    """A running container whose size is in force; `changes` are fields of `Container`."""
    running = kind is not ContainerKind.INIT
    made = Container(
        name, kind, spec, spec.requests, spec, running=running, ended=not running, started_at=NOW - timedelta(days=1)
    )
    return replace(made, **changes)


def init(spec: Resources = BURSTABLE, name: str = "init", **changes: Any) -> Container:
    return container(spec, name, ContainerKind.INIT, **changes)


def sidecar(spec: Resources = BURSTABLE, name: str = "proxy", **changes: Any) -> Container:
    return container(spec, name, ContainerKind.SIDECAR, **changes)


def pod(*containers: Container, name: str = "sim-0", **changes: Any) -> Pod:
    """A running, settled pod on `node-a`; its QoS class follows from its containers unless it is given."""
    made = Pod(
        "bridge",
        name,
        f"uid-{name}",
        resource_version="7",
        node="node-a",
        workload="StatefulSet/sim",
        observed_generation=1,
        containers=containers or (container(),),
    )
    return replace(made, **{"qos_class": qos_class(made, {}), **changes})


def node(name: str = "node-a", cpu: str = "16", memory: str = "64Gi", **changes: Any) -> Node:
    """A ready node that takes 110 pods, as a kubelet says unless it is told otherwise."""
    return replace(Node(name, amounts(cpu, memory), pods=110), **changes)


def snapshot(*pods: Pod, nodes: Sequence[Node] | None = None, at: datetime = NOW, minor: int = 37) -> ClusterSnapshot:
    nodes = (node(),) if nodes is None else nodes
    return ClusterSnapshot(
        at, {each.ref: each for each in pods}, {each.name: each for each in nodes}, server_minor=minor
    )


class Fixed(Recommender[Any]):
    """Answers with what it was made with, or with a container's state where that is an answer."""

    name = "fixed"
    Parameters = dict

    def __init__(self, cpu: float | None = 0.5, memory: float | None = float(1 << 30)) -> None:
        super().__init__({})
        self.target = Target(cpu, memory)

    def start(self) -> Any:
        return None

    def fold(self, state: Any, samples: Samples, block_s: int) -> Any:
        return state

    def recommend(self, state: Any, situation: Situation) -> Target | Abstain:
        return state if isinstance(state, (Target, Abstain)) else self.target


def target(cpu: str | None = None, memory: str | None = None) -> Target:
    """A target in quantities."""
    return Target(
        None if cpu is None else parse_cpu(cpu) / 1000, None if memory is None else float(parse_memory(memory))
    )


def fixed(cpu: str | None = None, memory: str | None = None) -> Fixed:
    made = target(cpu, memory)
    return Fixed(made.cpu, made.memory)


def policy(recommender: Recommender[Any] | None = None, name: str = "bridges", **changes: Any) -> Policy:
    """A policy that selects everything, resizes, and whose stability keeps nothing back."""
    made = Policy(name, recommender or Fixed(), mode=Mode.RESIZE, stability=FREE, source=f"policies/{name}.yaml")
    return replace(made, **changes)


def config(*policies: Policy, **changes: Any) -> Config:
    return replace(Config(policies or (policy(),)), **changes)


def history(
    cpu: Sequence[float] = (0.2,),
    memory: Sequence[float] = (float(200 << 20),),
    state: Any = None,
    age_s: int = 60,
    step: int = 60,
    failure: str = "",
) -> History:
    """The newest samples, one a step, the last of them `age_s` seconds before NOW."""
    newest = int(NOW.timestamp()) - age_s
    end_at = [newest - step * (len(cpu) - 1 - i) for i in range(len(cpu))]
    return History(state, Samples.of(end_at, cpu, memory), 0, end_at[0], newest, failure)


def grown(
    cpu: Sequence[float] = (0.2,) * 120,
    memory: Sequence[float] = (float(200 << 20),) * 120,
    recommender: Recommender[Any] | None = None,
    grid: Grid = HOURS,
    age_s: int = 60,
) -> History:
    """A history as measurements grow it: one sample a step, the last of them `age_s` seconds before NOW."""
    newest = int(NOW.timestamp()) - age_s
    end_at = [newest - grid.step * (len(cpu) - 1 - i) for i in range(len(cpu))]
    made = advance(None, Samples.of(end_at, cpu, memory), recommender or Fixed(), grid, sample_s=grid.step)
    assert made is not None
    return made


def measurements(
    pods: Iterable[Pod], default: History | Gap | None = None, **by_container: History | Gap
) -> Measurements:
    """The same history for all containers, but for those named."""
    found: dict[ContainerRef, History | Gap] = {
        ContainerRef(each.namespace, each.name, one.name): by_container.get(one.name, default or history())
        for each in pods
        for one in each.containers
    }
    return Measurements(NOW, found, in_use=in_use(found))


def in_use(found: Mapping[ContainerRef, History | Gap] | Mapping[ContainerRef, History]) -> MemoryInUse:
    """As much as the newest working set, without page cache, measured just now."""
    used: dict[ContainerRef, Bytes] = {}
    for ref, each in found.items():
        finite = each.recent.memory[np.isfinite(each.recent.memory)].tolist() if isinstance(each, History) else []
        if finite:
            used[ref] = Bytes(int(finite[-1]))
    return MemoryInUse(NOW, used)


def one(plan: Plan, name: str = "sim-0") -> Decision:
    """The only decision about a pod."""
    (found,) = (decision for decision in plan.decisions if decision.pod.name == name)
    return found


def with_resize(pod: Pod, action: Resize) -> Pod:
    """The pod after the server and its kubelet have done what was asked, and all has settled."""
    changes = {change.name: change.change for change in action.containers}
    return replace(
        pod,
        generation=pod.generation + 1,
        observed_generation=pod.generation + 1,
        containers=tuple(
            container(_merged(c.spec, changes[c.name]), c.name, c.kind) if c.name in changes else c
            for c in pod.containers
        ),
    )


def _merged(spec: Resources, change: Resources) -> Resources:
    def merged(old: ResourceList, new: ResourceList) -> ResourceList:
        kept = {resource: new.get(resource) or old.get(resource) for resource in Resource}
        made = ResourceList()
        for resource, amount in kept.items():
            made = made.with_amount(resource, amount)
        return made

    return Resources(merged(spec.requests, change.requests), merged(spec.limits, change.limits))


def specs(pod: Pod) -> Mapping[str, Resources]:
    return {each.name: each.spec for each in pod.containers}
