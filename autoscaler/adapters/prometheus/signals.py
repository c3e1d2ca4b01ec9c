"""What is asked for of each container, as PromQL: CPU, memory, and the signals that recommenders declare. Pure text.

Each reading is one query for many containers. What cannot be told from nothing is left out by the query itself, so that
a back-fill and live samples come to the same: a peak of 0 (kernels before 5.19 have none), pressure on a node where
nothing has ever waited for a CPU (it counts none: kubelets before 1.36 export zeros then), shares of no CPU limit, a
memory limit that is none, and the numbers by which DCGM says that it has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from autoscaler.adapters.prometheus import queries
from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.layout import EXPORTED, KUBELET, Layout, Names
from autoscaler.adapters.prometheus.ranges import MOST_LETTERS
from autoscaler.core.bounds import HIGHEST
from autoscaler.core.model import PodRef, Resource
from autoscaler.core.recommender import Signal

_MIB = 1048576
_BLANK = 2147483632  # DCGM's least number for "none"; no memory in MiB, and no share, comes near it
_RESOLUTION = "15s"  # at which an exporter is looked at that samples every 30 s
_GPU_DEVICE = "UUID, uuid, GPU_I_ID"  # parts of a GPU have its UUID
_NODE = "node, instance"  # a kubelet is one instance; node is often added
_CORES = HIGHEST[Resource.CPU] / 1000
_BYTES = float(HIGHEST[Resource.MEMORY])
_SHARE = 1.05  # a rate is extrapolated, and may come out above the whole
PLACEHOLDERS = ("$namespace", "$pod", "$container", "$cluster")
_ANY = ".+"
_RESOURCES = frozenset(Resource)


@dataclass(frozen=True, slots=True)
class Reading:
    """One thing to ask for. `query`: for samples so many seconds apart. `names`: labels of the answer.

    `least`, `most`: other values are no usage. `share`: what is above 1 is 1. `own`: a policy's query; where its answer
    names no container it is for all of the pod's.
    """

    name: str
    query: Callable[[int], str]
    names: Names
    least: float = 0.0
    most: float = _SHARE
    share: bool = False
    own: bool = False

    def costs_itself_alone(self, error: MetricsError) -> bool:
        """Whether that failure leaves the others of a batch as they are: no history can do without CPU and memory."""
        return error.of_query if self.own else error.refused and self.name not in _RESOURCES


def readings(
    layout: Layout,
    pods: AbstractSet[PodRef],
    containers: AbstractSet[str],
    rate_window_s: int,
    wanted: AbstractSet[str] = frozenset(),
    own: Mapping[str, str] | None = None,
    least: int = 0,
) -> tuple[Reading, ...]:
    """What to ask for of these pods: CPU, memory, the signals that are wanted, and the policy's `own` queries. `least`:
    as of `queries.cpu`."""

    def selected(times: int = 1) -> str:
        return queries.of_pods(layout, pods, MOST_LETTERS // times)

    names, window = layout.names, rate_window_s
    cpu = queries.cpu(layout, selected(2 if least else 1), window, least)
    found = [
        Reading(Resource.CPU, lambda step: cpu, names, most=_CORES),
        Reading(Resource.MEMORY, lambda step: queries.memory(layout, selected(), step), names, most=_BYTES),
    ]
    if Signal.THROTTLED in wanted:
        throttled = _throttled(layout, selected(2), window)
        found.append(Reading(Signal.THROTTLED, lambda step: throttled, names, share=True))
    if Signal.CPU_PRESSURE in wanted:
        waiting = _pressure(layout, layout.cpu_pressure, selected(2), window)
        found.append(Reading(Signal.CPU_PRESSURE, lambda step: waiting, names, share=True))
    if Signal.MEMORY_PRESSURE in wanted:
        stalled = _pressure(layout, layout.memory_pressure, selected(2), window)
        found.append(Reading(Signal.MEMORY_PRESSURE, lambda step: stalled, names, share=True))
    if Signal.MEMORY_PEAK in wanted:
        found.append(Reading(Signal.MEMORY_PEAK, lambda step: _peak(layout, selected(), step), names, most=_BYTES))
    if Signal.MEMORY_LIMIT in wanted:
        limit = f"max by ({_by(names)}) ({layout.memory_limit}{{{selected()}}}) > 0"
        found.append(Reading(Signal.MEMORY_LIMIT, lambda step: limit, names, most=_BYTES))
    gpu = layout.gpu
    if Signal.GPU_MEMORY in wanted:
        found.append(
            Reading(Signal.GPU_MEMORY, lambda step: _gpu_memory(layout, _gpu(layout, pods), step), gpu, most=_BYTES)
        )
    if Signal.GPU_MEMORY_FILLED in wanted:
        found.append(
            Reading(
                Signal.GPU_MEMORY_FILLED,
                lambda step: _gpu_filled(layout, _gpu(layout, pods, 3), step),
                gpu,
                share=True,
            )
        )
    if Signal.GPU_UTILISATION in wanted:
        busy = _gpu_utilisation(layout, _gpu(layout, pods, 2), window)
        found.append(Reading(Signal.GPU_UTILISATION, lambda step: busy, gpu, share=True))
    for name, query in (own or {}).items():
        found.append(_own(name, asked(query, pods, containers, layout.cluster)))
    return tuple(found)


def _own(name: str, query: str) -> Reading:
    return Reading(name, lambda step: query, KUBELET, least=-math.inf, most=math.inf, own=True)


def asked(query: str, pods: AbstractSet[PodRef], containers: AbstractSet[str], cluster: Collection[str] = ()) -> str:
    """A policy's query for these pods, whose names are regular expressions in it, and the cluster's matchers.

    Names that would make it longer than servers read are left to be anything; answers for others are passed over.
    """
    room = MOST_LETTERS // max(1, query.count("$pod"))
    for placeholder, names in (
        ("$pod", {pod.name for pod in pods}),
        ("$namespace", {pod.namespace for pod in pods}),
        ("$container", containers),
    ):
        few = sum(map(len, names)) <= room
        # of RE2's special characters these names have the dot alone; a class is read the same in all kinds of quotes
        regex = f"(?:{'|'.join(name.replace('.', '[.]') for name in sorted(names))})" if few else _ANY
        query = query.replace(placeholder, regex)
    return queries.in_cluster(query, cluster)


def _by(names: Names) -> str:
    return ", ".join(names)


def _throttled(layout: Layout, matchers: str, window_s: int) -> str:
    throttled = f"rate({layout.throttled_periods}{{{matchers}}}[{window_s}s])"
    return f"max by ({_by(layout.names)}) ({throttled} / (rate({layout.periods}{{{matchers}}}[{window_s}s]) > 0))"


def _pressure(layout: Layout, metric: str, matchers: str, window_s: int) -> str:
    """Not where nothing on the node has ever waited; without labels that tell nodes apart, not where the container has
    not."""
    by, cpu = _by(layout.names), layout.cpu_pressure
    everything = ",".join((*layout.matchers, *layout.cluster))
    of_node = f"max by ({_NODE}) ({cpu}{{{everything}}}) == 0"
    without = ",".join(f'{label}=""' for label in _NODE.split(", "))
    of_container = f"max by ({by}) ({cpu}{{{matchers},{without}}}) == 0"
    waiting = f"rate({metric}{{{matchers}}}[{window_s}s])"
    return f"max by ({by}) ({waiting} unless on ({_NODE}) ({of_node}) unless on ({by}) ({of_container}))"


def _peak(layout: Layout, matchers: str, step_s: int) -> str:
    return f"max by ({_by(layout.names)}) (max_over_time({layout.memory_peak}{{{matchers}}}[{step_s}s])) > 0"


def _gpu(layout: Layout, pods: AbstractSet[PodRef], times: int = 1) -> str:
    """The matchers of DCGM's series, which is another exporter: of those for containers only the cluster's hold."""
    return queries.of_pods(layout.of_gpus(), pods, MOST_LETTERS // times)


def _gpu_memory(layout: Layout, matchers: str, step_s: int) -> str:
    """Of a pod with several devices the sum, of each the peak; copies of one count once."""
    used = f"max_over_time(({layout.gpu_memory}{{{matchers}}} < {_BLANK})[{step_s}s:{_RESOLUTION}])"
    by = _by(layout.gpu)
    return f"{_MIB} * sum by ({by}) (max by ({by}, {_GPU_DEVICE}) ({used}))"


def _gpu_filled(layout: Layout, matchers: str, step_s: int) -> str:
    used = f"({layout.gpu_memory}{{{matchers}}} < {_BLANK})"
    free = f"({layout.gpu_memory_free}{{{matchers}}} < {_BLANK})"
    return f"max by ({_by(layout.gpu)}) (max_over_time(({used} / ({used} + {free}))[{step_s}s:{_RESOLUTION}]))"


def _gpu_utilisation(layout: Layout, matchers: str, window_s: int) -> str:
    """What the engine says, else the share of time with any kernel, which is no number at all for a part of a GPU."""
    by = _by(layout.gpu)
    engine = f"avg_over_time(({layout.gpu_engine}{{{matchers}}} < {_BLANK})[{window_s}s:{_RESOLUTION}])"
    kernels = (
        f'avg_over_time(({layout.gpu_utilisation}{{{matchers},GPU_I_ID=""}} < {_BLANK})[{window_s}s:{_RESOLUTION}])'
    )
    return f"max by ({by}) ({engine}) or max by ({by}) ({kernels}) / 100"


def gpus_attributed(layout: Layout, namespaces: Collection[str]) -> str:
    """How many series of GPUs name a pod of these namespaces in the labels of a scrape that does not honour labels."""
    return f'count({{{_any_gpu(layout)},{EXPORTED.namespace}=~{queries.one_of(namespaces)},{EXPORTED.pod}!=""}})'


def gpus_unattributed(layout: Layout) -> str:
    """How many GPUs, or parts of one, are of no pod."""
    return f'count(count by ({_GPU_DEVICE}, Hostname) ({{{_any_gpu(layout)},{layout.gpu.pod}=""}}))'


def gpu_blanks(layout: Layout, window_s: int, every_s: int) -> str:
    """How many samples of GPUs in so long a time were DCGM's numbers for "none", if scraped so often."""
    return f"sum_over_time(count({{{_any_gpu(layout)}}} >= {_BLANK})[{window_s}s:{every_s}s])"


def _any_gpu(layout: Layout) -> str:
    metrics = (layout.gpu_memory, layout.gpu_engine, layout.gpu_utilisation)
    return ",".join((f'__name__=~"{"|".join(metrics)}"', *layout.cluster))
