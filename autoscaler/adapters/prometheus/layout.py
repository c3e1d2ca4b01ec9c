"""How a shop's Prometheus names what is read from it: metrics, labels, matchers, clusters. Pure values.

A layout comes from settings (`prometheus.layout`). What settings leave open is found out by `survey.py`, which makes a
further layout of it; queries are built from one that leaves nothing open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

CPU = "container_cpu_usage_seconds_total"  # counter, core-seconds (kubelet /metrics/cadvisor and /metrics/resource)
MEMORY = "container_memory_working_set_bytes"  # gauge, bytes (both)
IN_USE = "container_memory_usage_bytes"  # gauge, bytes, page cache included (kubelet /metrics/cadvisor alone)
# the rest only where a recommender reads it; of the kubelet's /metrics/cadvisor, counters
THROTTLED_PERIODS = "container_cpu_cfs_throttled_periods_total"  # exists with a CPU limit alone
PERIODS = "container_cpu_cfs_periods_total"  # as well
CPU_PRESSURE = "container_pressure_cpu_waiting_seconds_total"  # PSI "some"; cgroup v2, kubelet 1.34 or newer
MEMORY_PRESSURE = "container_pressure_memory_waiting_seconds_total"  # as well
MEMORY_PEAK = "container_memory_max_usage_bytes"  # gauge, since the container started; cgroup v2 and kernel 5.19, or v1
MEMORY_LIMIT = "container_spec_memory_limit_bytes"  # gauge; 0 is none
# and of dcgm-exporter, gauges
GPU_MEMORY = "DCGM_FI_DEV_FB_USED"  # MiB
GPU_MEMORY_FREE = "DCGM_FI_DEV_FB_FREE"  # MiB
GPU_ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"  # 0..1, of parts of a GPU (MIG) as well
GPU_UTILISATION = "DCGM_FI_DEV_GPU_UTIL"  # 0..100; missing or 0 of parts of a GPU

CLUSTER_LABELS = (
    *("cluster", "cluster_name", "cluster_id", "k8s_cluster", "k8s_cluster_name", "kubernetes_cluster"),
    "__tenant_id__",  # Mimir, Cortex and Loki put it on what is asked of several tenants at once
)
"""Labels that tell clusters apart in the shops that have several behind one endpoint."""

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RESERVED = frozenset(  # words of PromQL, in any case, that are no names in some place of a query
    {"anchored", "atan2", "bool", "group_left", "group_right", "ignoring", "inf", "nan", "on", "smoothed", "without"}
)
# strings by Go's rules, of which the escapes that matchers need: backslash, quotes, and those of control characters
_MATCHER = re.compile(
    r"""\s*(?P<label>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<operator>=~|!~|!=|=)\s*"""
    r"""(?P<value>"(?:[^"\\\n]|\\[\\"nrt])*"|'(?:[^'\\\n]|\\[\\'nrt])*')\s*"""
)

_EXAMPLE = 'job="kubelet",metrics_path="/metrics/cadvisor"'


class Names(NamedTuple):
    """The labels that say whose a series is."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to label containers. `without`: labels that its series have not, where they would be of another one."""

    names: Names
    without: tuple[str, ...] = ()


KUBELET = Names("namespace", "pod", "container")
EXPORTED = Names("exported_namespace", "exported_pod", "exported_container")

VARIANTS = (
    # what the kubelet says, read with honorLabels
    Variant(KUBELET, ("exported_namespace", "exported_pod")),
    # read without, from a target that has a pod itself: `pod` is the exporter
    Variant(EXPORTED),
    # and from one that has a namespace only
    Variant(Names("exported_namespace", "pod", "container"), ("exported_pod",)),
    # kubelets before 1.16, and what was made to look like theirs
    Variant(Names("namespace", "pod_name", "container_name")),
    # a cAdvisor of its own
    Variant(
        Names(
            "container_label_io_kubernetes_pod_namespace",
            "container_label_io_kubernetes_pod_name",
            "container_label_io_kubernetes_container_name",
        )
    ),
)
"""Tried in this order, until one has series of the pods that are followed."""


def whose(labels: Mapping[str, str]) -> tuple[Names, bool]:
    """Of which container a series is that a query of a policy's own has found; empty: not said. And whether, if that
    container is none of the pod's, it is of all of them.

    Where a scrape did not honour labels, plain ones are the exporter's: what kube-state-metrics says of a pod is then
    in `exported_…`, and `container` may be either's.
    """
    namespace, pod, container = (
        labels.get(exported) or labels.get(plain, "") for exported, plain in zip(EXPORTED, KUBELET, strict=True)
    )
    of_exporter = EXPORTED.pod in labels and EXPORTED.container not in labels
    return Names(namespace, pod, container), of_exporter or not container


@dataclass(frozen=True, slots=True)
class Layout:
    """Which series are read, and by which labels.

    `matchers`: further label matchers of every query, each a text like `job="kubelet"`. `variants`: how containers may
    be labelled; settings give one, otherwise it is found out. `cluster_labels`: what may tell clusters apart; none
    where one is selected. `cluster`: the matchers that select it, in the series of every exporter. `gpu`: how those of
    GPUs are labelled, which is found out. `params`: sent with every request, for servers that want to be told.
    """

    cpu: str = CPU
    memory: str = MEMORY
    in_use: str = IN_USE
    variants: tuple[Variant, ...] = VARIANTS
    matchers: tuple[str, ...] = ()
    cluster_labels: tuple[str, ...] = CLUSTER_LABELS
    params: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cluster: tuple[str, ...] = ()
    gpu: Names = KUBELET
    throttled_periods: str = THROTTLED_PERIODS
    periods: str = PERIODS
    cpu_pressure: str = CPU_PRESSURE
    memory_pressure: str = MEMORY_PRESSURE
    memory_peak: str = MEMORY_PEAK
    memory_limit: str = MEMORY_LIMIT
    gpu_memory: str = GPU_MEMORY
    gpu_memory_free: str = GPU_MEMORY_FREE
    gpu_engine: str = GPU_ENGINE
    gpu_utilisation: str = GPU_UTILISATION

    @property
    def names(self) -> Names:
        """The labels that queries go by."""
        return self.variants[0].names

    @property
    def all_matchers(self) -> tuple[str, ...]:
        """What every query selects by, beside the names of containers."""
        return (*(f'{label}=""' for label in self.variants[0].without), *self.matchers, *self.cluster)

    def labelled(self, variant: Variant) -> Layout:
        """The same with containers labelled in this way."""
        return replace(self, variants=(variant,))

    def of_gpus(self) -> Layout:
        """The same for series of GPUs, which are another exporter's."""
        without = () if self.gpu != KUBELET else (EXPORTED.pod,)
        return replace(self, variants=(Variant(self.gpu, without),), matchers=())


ANY = Layout()
"""Of which everything is found out."""

PRESETS: Mapping[str, Layout] = MappingProxyType(
    {
        # of the kubelet's two endpoints the one that has all three metrics (its ServiceMonitor sets both labels)
        "kube-prometheus-stack": replace(
            ANY, variants=VARIANTS[:1], matchers=('job="kubelet"', 'metrics_path="/metrics/cadvisor"')
        ),
        # replicas once; a store that is down is an error, not a gap; no downsampled data, which have lost their peaks
        # (https://thanos.io/tip/components/query.md/)
        "thanos": replace(
            ANY,
            params=MappingProxyType({"dedup": "true", "partial_response": "false", "max_source_resolution": "0s"}),
        ),
        "mimir": replace(ANY, cluster_labels=("cluster", "__tenant_id__")),
        # with its cache it moves the instants of answers with 50 points or more
        # (https://github.com/VictoriaMetrics/VictoriaMetrics/issues/563)
        "victoriametrics": replace(ANY, params=MappingProxyType({"nocache": "1"})),
        "amazon-managed-prometheus": ANY,
        # a cluster's name is unique in its project and location alone
        "google-managed-prometheus": replace(ANY, cluster_labels=("project_id", "location", "cluster")),
    }
)
"""What shops run, by name. Limits that some have are kept to with all: whole seconds, and ranges of at most 31 days."""


def checked_metric(name: str) -> str:
    """The name of a metric, as every Prometheus reads it. Raises `ValueError`."""
    if not _METRIC.fullmatch(name) or name.lower() in _RESERVED:
        raise ValueError(f"{name[:80]!r} cannot be the name of a metric; use letters, digits, _ and :")
    return name


def checked_label(name: str) -> str:
    """The name of a label, as every Prometheus reads it. Raises `ValueError`."""
    if not _LABEL.fullmatch(name) or name == "__name__" or name.lower() in _RESERVED:
        raise ValueError(f"{name[:80]!r} cannot be the name of a label; use letters, digits and _")
    return name


def matchers_of(text: str) -> tuple[str, ...]:
    """Label matchers as they stand between the braces of a selector, one by one. Raises `ValueError`.

    Their grammar is looked at here; whether a regular expression is one only the server can say, which refuses queries
    with its own words if it is not.
    """
    found: list[str] = []
    at = 0
    while at < len(text):
        one = _MATCHER.match(text, at)
        if one is None or one["label"] == "__name__":
            raise ValueError(f"{text[at : at + 80].strip()!r} is not a matcher; write them like {_EXAMPLE}")
        found.append(one["label"] + one["operator"] + one["value"])
        at = one.end()
        if at < len(text):
            if text[at] != "," or not text[at + 1 :].strip():
                raise ValueError(
                    f"{text[at : at + 80].strip()!r} does not follow a matcher; write them like {_EXAMPLE}"
                )
            at += 1
    return tuple(found)
