"""Looks at a Prometheus once, for `doctor`: what is there now, beside what every turn asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

import numpy as np

from autoscaler.adapters.prometheus.answers import Series
from autoscaler.adapters.prometheus.layout import Layout, whose
from autoscaler.adapters.prometheus.signals import Reading
from autoscaler.core.history import ContainerRef
from autoscaler.core.model import PodRef

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
        if len(series.values) and np.isfinite(series.values[-1]):
            found[container] = float(series.values[-1])
    return found


def having(
    reading: Reading, answer: Iterable[Series], containers: AbstractSet[ContainerRef]
) -> AbstractSet[ContainerRef]:
    """Which of the containers a reading has a value of now. What names no container counts as it does when measured."""
    named: set[ContainerRef] = set()
    whole: set[PodRef] = set()
    for series in answer:
        if len(series.values) and reading.least <= series.values[-1] <= reading.most:  # NaN compares false
            if not reading.own:
                named.add(ContainerRef(*(series.labels.get(name, "") for name in reading.names)))
                continue
            names, of_pod = whose(series.labels)
            container = ContainerRef(*names)
            named.add(container)
            if of_pod and container not in containers:
                whole.add(container.pod_ref)
    return {one for one in containers if one in named or one.pod_ref in whole}


def by_node(answer: Iterable[Series]) -> Mapping[str, int]:
    """The value of each node that has a name."""
    return {
        name: int(series.values[-1])
        for series in answer
        if (name := series.labels.get("node")) and len(series.values) and series.values[-1] in (1, 2)
    }
