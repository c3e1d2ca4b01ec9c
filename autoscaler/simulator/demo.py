"""The world of `bridge-autoscaler demo`: three nodes, nine bridges, hours of recorded usage.

The usage is real in shape and not in size: each bridge plays a recording **scaled** by a factor and started at a row of
its own (traces/README.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from types import MappingProxyType

from autoscaler.core.model import Container, ContainerKind, Node, Pod, Resource, ResourceList, Resources
from autoscaler.core.pairing import qos_class
from autoscaler.core.units import parse_cpu, parse_memory
from autoscaler.simulator.cluster import SimulatedCluster
from autoscaler.simulator.traces import Demand, Series, recorded

STARTS_AT = datetime(2026, 3, 2, 8, tzinfo=UTC)
LASTS = timedelta(hours=6)
POLICY_FILE = "demo-policy.yaml"
_HISTORY = timedelta(hours=1)

_GATEWAY, _BASIC, _ALIBABA = "nezha_tt_gateway_0129", "nezha_tt_basic_0129", "alibaba18_c12104"


@dataclass(frozen=True, slots=True)
class _Play:
    """A column of a recording, its values times `scale`, `row` (minutes into it) falling on the start of the demo."""

    trace: str
    scale: float
    row: int = 60

    def series(self, resource: Resource) -> Series:
        return recorded(self.trace, resource, starts_at=STARTS_AT - timedelta(minutes=self.row), scale=self.scale)


@dataclass(frozen=True, slots=True)
class _Sized:
    """A container: its size as `request` or `request/limit`, and what it plays."""

    name: str
    cpu: str
    memory: str
    plays_cpu: _Play
    plays_memory: _Play
    kind: ContainerKind = ContainerKind.CONTAINER

    def container(self) -> Container:
        cpu, memory = self.cpu.partition("/"), self.memory.partition("/")
        return Container(
            self.name,
            self.kind,
            Resources(_amounts(cpu[0], memory[0]), _amounts(cpu[2] or cpu[0], memory[2] or memory[0])),
        )

    def demand(self) -> Demand:
        return Demand(self.plays_cpu.series(Resource.CPU), self.plays_memory.series(Resource.MEMORY))


def _amounts(cpu: str, memory: str) -> ResourceList:
    return ResourceList(parse_cpu(cpu) if cpu else None, parse_memory(memory) if memory else None)


_RECORDER = _Sized("recorder", "100m/200m", "384Mi/768Mi", _Play(_BASIC, 10), _Play(_BASIC, 0.5), ContainerKind.SIDECAR)

_NODES = {"node-a": "8", "node-b": "4800m", "node-c": "4"}

_BRIDGES: tuple[tuple[str, str, str, tuple[_Sized, ...]], ...] = (
    # Guaranteed and oversized: both sides come down together, and up again with the load
    ("lidar", "bridge", "node-a", (_Sized("app", "3", "6Gi", _Play(_ALIBABA, 0.15, 420), _Play(_GATEWAY, 3)),)),
    # Burstable, starved by its limit: the ratio of limit to request stays
    ("camera", "bridge", "node-a", (_Sized("app", "400m/800m", "2Gi/3Gi", _Play(_GATEWAY, 20), _Play(_GATEWAY, 2)),)),
    # a sidecar that is sized as well
    (
        "physics",
        "bridge",
        "node-a",
        (_RECORDER, _Sized("app", "1/2", "1Gi/2Gi", _Play(_GATEWAY, 30, 200), _Play(_BASIC, 3, 180))),
    ),
    # memory that creeps up towards its limit
    (
        "traffic",
        "bridge",
        "node-b",
        (_Sized("app", "300m/600m", "2Gi/4Gi", _Play(_BASIC, 20), _Play(_GATEWAY, 3, 400)),),
    ),
    # two on one node: replay is deferred until map has given back what it no longer needs
    ("map", "bridge", "node-b", (_Sized("app", "2500m/3", "2Gi/3Gi", _Play(_ALIBABA, 0.22, 500), _Play(_BASIC, 2)),)),
    ("replay", "bridge", "node-b", (_Sized("app", "900m", "1Gi", _Play(_ALIBABA, 0.12, 440), _Play(_BASIC, 1.5)),)),
    # needs more than its full node can spare, for as long as the demo lasts
    ("world", "bridge", "node-c", (_Sized("app", "1200m", "2Gi", _Play(_ALIBABA, 0.16, 440), _Play(_GATEWAY, 2)),)),
    # looked at, not touched
    ("scratch", "bridge", "node-a", (_Sized("app", "", "", _Play(_BASIC, 5), _Play(_BASIC, 0.5)),)),
    ("rookie", "newcomer", "node-b", (_Sized("app", "500m/1", "512Mi/1Gi", _Play(_GATEWAY, 4), _Play(_BASIC, 0.5)),)),
    # somebody else's, which no policy selects
    ("solver", "solver", "node-c", (_Sized("app", "2500m", "4Gi", _Play(_ALIBABA, 0.2), _Play(_GATEWAY, 3)),)),
)


def policy_document() -> bytes:
    """The demo's policies, as YAML."""
    return files("autoscaler.simulator").joinpath(POLICY_FILE).read_bytes()


def world() -> SimulatedCluster:
    """The cluster at the start of the demo; its bridges have run for an hour."""
    cluster = SimulatedCluster(STARTS_AT)
    for name, cpu in _NODES.items():
        cluster.add_node(Node(name, _amounts(cpu, "16Gi")))
    for name, component, node, containers in _BRIDGES:
        cluster.add_pod(
            _pod(name, component, node, containers),
            {sized.name: sized.demand() for sized in containers},
            since=STARTS_AT - _HISTORY,
        )
    return cluster


def _pod(name: str, component: str, node: str, containers: tuple[_Sized, ...]) -> Pod:
    labels: Mapping[str, str] = MappingProxyType({"app.kubernetes.io/component": component})
    pod = Pod(
        "sim",
        f"{name}-0",
        f"{name}-0#1",
        labels=labels,
        workload=f"StatefulSet/{name}",
        node=node,
        containers=tuple(sized.container() for sized in containers),
    )
    return replace(pod, qos_class=qos_class(pod, {}))
