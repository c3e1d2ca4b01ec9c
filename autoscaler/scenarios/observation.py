"""What Prometheus would hold of a demand: samples at scrapes, counters that begin anew, and the faults of every day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autoscaler.scenarios.draws import Stream
from autoscaler.scenarios.elementary import Floats
from autoscaler.scenarios.generator import Demand
from autoscaler.scenarios.limits import Starved
from autoscaler.scenarios.ranges import MIB
from autoscaler.traces.trace import Column

CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
PERIODS, THROTTLED = "container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total"
GPU_MEMORY, SESSIONS, FRAME_TIME = "DCGM_FI_DEV_FB_USED", "bridge_sessions", "bridge_frame_time_ms"

_GPU_SCRAPE_S = 30
_JITTER = 0.05  # of the interval, to either side
_PERIODS = 10  # of the CFS, in a second


class Scrapes(NamedTuple):
    """One series: instants in seconds, ascending, and what was seen at each."""

    at_s: Floats
    values: Floats


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong. gaps_s: (begin, length) without scrapes. resets_s: counters begin anew though nothing restarted.
    nans_s: the next scrape says NaN. first_s: nothing is scraped before. duplicated: a second scrape job sees it all,
    at instants of its own."""

    gaps_s: tuple[tuple[int, int], ...] = ()
    resets_s: tuple[int, ...] = ()
    nans_s: tuple[int, ...] = ()
    first_s: int = 0
    duplicated: bool = False


def observe(
    demand: Demand, starved: Starved, *, scrape_s: int = 15, faults: Faults | None = None
) -> Mapping[str, tuple[Scrapes, ...]]:
    """The series by name. starved: the demand under its CPU limit (limits.py), of which the counters tell."""
    faults = faults or Faults()
    columns, found = demand.trace.columns, dict[str, tuple[Scrapes, ...]]()
    throttled = np.where(starved.wanted > starved.usage, _PERIODS, 0)
    counters = {CPU: starved.usage, PERIODS: np.full(len(throttled), _PERIODS), THROTTLED: throttled}
    gauges = {MEMORY: columns[Column.MEMORY], SESSIONS: columns[Column.SESSIONS], FRAME_TIME: starved.frame_time_ms}
    restarts_s = [run.starts_s for run in demand.runs]
    jobs = (0, 1) if faults.duplicated else (0,)
    for job in jobs:
        at_s = _instants(demand.draws.stream(f"observation.{job}"), scrape_s, len(throttled), faults)
        gpu_s = _instants(demand.draws.stream(f"observation.gpu.{job}"), _GPU_SCRAPE_S, len(throttled), faults)
        seen = {name: _counter(rate, at_s, [*restarts_s, *faults.resets_s]) for name, rate in counters.items()}
        for name in (PERIODS, THROTTLED):
            seen[name] = np.floor(seen[name])
        seen |= {name: values[at_s.astype(np.int64)] for name, values in gauges.items()}
        for name, values in seen.items():
            found[name] = (*found.get(name, ()), _marred(Scrapes(at_s, values), faults))
        memory = columns[Column.GPU_MEMORY][gpu_s.astype(np.int64)] / MIB
        found[GPU_MEMORY] = (*found.get(GPU_MEMORY, ()), _marred(Scrapes(gpu_s, memory), faults))
    return found


def _instants(stream: Stream, scrape_s: int, seconds: int, faults: Faults) -> Floats:
    numbers = seconds // scrape_s + 1
    phase, *jitter = stream.uniforms(0, numbers + 1)
    at_s = scrape_s * (np.arange(numbers) + phase + _JITTER * (2 * np.array(jitter) - 1))
    kept = (at_s >= faults.first_s) & (at_s >= 0) & (at_s < seconds)
    for begin_s, length_s in faults.gaps_s:
        kept &= (at_s < begin_s) | (at_s >= begin_s + length_s)
    kept_s: Floats = at_s[kept]
    return kept_s


def _counter(rate: Floats, at_s: Floats, resets_s: list[int]) -> Floats:
    """The integral of a rate since the last reset."""
    total = np.concatenate(([0.0], np.cumsum(rate)))
    second = at_s.astype(np.int64)
    begun = np.array(sorted(resets_s))
    since = begun[np.searchsorted(begun, at_s, side="right") - 1]
    counted: Floats = total[second] - total[since] + rate[second] * (at_s - second)
    return counted


def _marred(scrapes: Scrapes, faults: Faults) -> Scrapes:
    values = scrapes.values.copy()
    for at_s in faults.nans_s:
        values[np.searchsorted(scrapes.at_s, at_s) :][:1] = np.nan
    return scrapes._replace(values=values)
