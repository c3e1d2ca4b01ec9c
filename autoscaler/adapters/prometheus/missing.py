"""Notes on signals that were asked for and are not there, each with what that means. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

import numpy as np

from autoscaler.adapters.prometheus.layout import Layout
from autoscaler.core.history import ContainerRef, History
from autoscaler.core.model import Problem
from autoscaler.core.problems import Trouble
from autoscaler.core.recommender import Signal

Followed = tuple[ContainerRef, AbstractSet[str], History | None]
"""A container, the signals that its recommender reads, and what was measured of it."""

_MOST_NAMED = 3
_SOURCE = "Prometheus"


def _throttled(layout: Layout) -> str:
    return f"no {layout.throttled_periods}, which there is with a CPU limit alone"


def _pressure(layout: Layout) -> str:
    return f"{layout.cpu_pressure} is absent or 0: their nodes do not count pressure (PSI)"


def _peak(layout: Layout) -> str:
    return f"{layout.memory_peak} is absent or 0; peaks are those of {layout.memory}"


def _utilisation(layout: Layout) -> str:
    return f"no {layout.gpu_engine}, and {layout.gpu_utilisation} tells nothing of parts of a GPU"


_MEANS: Mapping[str, tuple[Trouble, Callable[[Layout], str]]] = MappingProxyType(
    {
        Signal.THROTTLED: (Trouble.THROTTLING_NOT_APPLICABLE, _throttled),
        Signal.CPU_PRESSURE: (Trouble.PSI_UNSUPPORTED, _pressure),
        Signal.MEMORY_PRESSURE: (Trouble.PSI_UNSUPPORTED, _pressure),
        Signal.MEMORY_PEAK: (Trouble.PEAK_UNSUPPORTED, _peak),
        Signal.GPU_UTILISATION: (Trouble.GPU_UTILIZATION_UNKNOWN, _utilisation),
    }
)


def notes_on(followed: Iterable[Followed], layout: Layout) -> tuple[Problem, ...]:
    """One note for each reason, naming some of the containers. What has not been measured at all lacks nothing."""
    lacking: dict[tuple[Trouble, Callable[[Layout], str]], dict[ContainerRef, None]] = defaultdict(dict)
    for container, reads, history in followed:
        if history is None or not reads:
            continue
        for name in reads & _MEANS.keys():
            has_gpu = np.isfinite(history.recent.signal(Signal.GPU_MEMORY)).any() if _of_gpus(name, reads) else True
            if has_gpu and not np.isfinite(history.recent.signal(name)).any():
                lacking[_MEANS[name]][container] = None
    return tuple(
        Problem(_SOURCE, reason, f"{means(layout)} ({_listed(containers)})")
        for (reason, means), containers in sorted(lacking.items(), key=lambda item: item[0][0])
    )


def _of_gpus(name: str, reads: AbstractSet[str]) -> bool:
    return name == Signal.GPU_UTILISATION and Signal.GPU_MEMORY in reads


def _listed(containers: Iterable[ContainerRef]) -> str:
    names = ["/".join(container) for container in containers]
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
