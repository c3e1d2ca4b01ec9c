"""What `doctor` asks of Prometheus beside what every turn asks for, and what it reads in the answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import promql_parser
import pytest

from autoscaler.adapters.prometheus import probe, queries
from autoscaler.adapters.prometheus.answers import Series
from autoscaler.adapters.prometheus.layout import ANY, PRESETS, VARIANTS, Layout
from autoscaler.core.history import ContainerRef
from autoscaler.core.model import PodRef

LAYOUTS = [*(ANY.labelled(variant) for variant in VARIANTS), *PRESETS.values()]


@pytest.mark.parametrize("layout", LAYOUTS, ids=range(len(LAYOUTS)))
def test_every_query_is_promql(layout: Layout) -> None:
    matchers = queries.of_pods(layout, {PodRef("sim", "sim-0.x")})
    for query in (
        probe.newest(layout, layout.cpu, matchers),
        probe.pressed(layout, matchers),
        probe.cgroup_versions(layout),
    ):
        promql_parser.parse(query)


def test_kubelets_are_asked_at_whichever_endpoint_says() -> None:
    assert probe.cgroup_versions(PRESETS["kube-prometheus-stack"]) == "min by (node) (kubelet_cgroup_version{})"
    eu = replace(PRESETS["kube-prometheus-stack"], matchers=('job="kubelet"', 'cluster="eu"'))
    assert probe.cgroup_versions(eu) == 'min by (node) (kubelet_cgroup_version{cluster="eu"})'


def series(value: float, **labels: str) -> Series:
    return Series(labels, np.array([100.0]), np.array([value]))


def test_values_are_told_by_container() -> None:
    layout = ANY.labelled(VARIANTS[1])
    found = probe.by_container(
        [
            series(90, exported_namespace="sim", exported_pod="sim-0", exported_container="app", pod="exporter"),
            Series({}, np.empty(0), np.empty(0)),
            *(series(value, exported_namespace="sim", exported_pod="sim-1") for value in (np.nan, np.inf)),
        ],
        layout,
    )
    assert found == {ContainerRef("sim", "sim-0", "app"): 90}


def test_versions_are_told_by_node() -> None:
    answer = [series(2, node="a"), series(1, node="b"), series(2), series(float("nan"), node="c"), series(3, node="d")]
    assert probe.by_node(answer) == {"a": 2, "b": 1}
