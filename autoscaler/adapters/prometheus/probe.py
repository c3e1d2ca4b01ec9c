"""Looks at a Prometheus once, for `doctor`: what is there now, beside what every turn asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from autoscaler.adapters.prometheus.answers import Series
from autoscaler.adapters.prometheus.layout import Layout
from autoscaler.core.history import ContainerRef

CGROUP = "kubelet_cgroup_version"  # gauge, 1 or 2 (kubelet 1.31 or newer, /metrics)

_ENDPOINT = re.compile(r"(?:job|metrics_path|endpoint)[=!]")


def newest(layout: Layout, metric: str, matchers: str) -> str:
    """When each container was last scraped, unix seconds."""
    return f"max by ({', '.join(layout.names)}) (timestamp({metric}{{{matchers}}}))"


def pressed(layout: Layout, matchers: str) -> str:
    """Containers that have ever waited for a CPU. A counter that stays 0 on a node means that it counts nothing."""
    return f"max by ({', '.join(layout.names)}) ({layout.cpu_pressure}{{{matchers}}}) > 0"


def cgroup_versions(layout: Layout) -> str:
    """The version of cgroups on each node, as its kubelet says; at another endpoint than what containers use."""
    matchers = (one for one in (*layout.matchers, *layout.cluster) if not _ENDPOINT.match(one))
    return f"min by (node) ({CGROUP}{{{','.join(matchers)}}})"


def by_container(answer: Iterable[Series], layout: Layout) -> Mapping[ContainerRef, float]:
    """The newest value of each container."""
    found = {}
    for series in answer:
        container = ContainerRef(*(series.labels.get(name, "") for name in layout.names))
        if len(series.values):
            found[container] = float(series.values[-1])
    return found


def by_node(answer: Iterable[Series]) -> Mapping[str, int]:
    """The value of each node that has a name."""
    return {
        name: int(series.values[-1])
        for series in answer
        if (name := series.labels.get("node")) and len(series.values) and series.values[-1] in (1, 2)
    }
