"""Usage that Prometheus has recorded, as a trace: what is asked for, and what becomes of the samples. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.history import History
from autoscaler.core.policy import Policy
from autoscaler.core.recommender import Abstain, Grid, Recommender, Samples, Signal, Situation
from autoscaler.recommenders.bridge_cpu import FRAME_TIME, SESSIONS
from autoscaler.recommenders.kills import KillParameters, raised
from autoscaler.traces.trace import Column, Event, EventKind, Trace

KILLED, RESTARTS = "killed", "restarts"
"""The names of what is read of kube-state-metrics: whether the last end was for lack of memory, and how many starts."""

RESTARTS_METRIC = "kube_pod_container_status_restarts_total"
_ENDED_METRIC = "kube_pod_container_status_last_terminated_reason"
_BY = "namespace, pod, container, exported_namespace, exported_pod, exported_container"

_KILL = KillParameters()
_SECONDS_TO_MS = 1000.0
_COLUMNS: tuple[tuple[str, Column, float], ...] = (
    (Signal.GPU_MEMORY, Column.GPU_MEMORY, 1.0),
    (Signal.GPU_UTILISATION, Column.GPU_UTILISATION, 1.0),
    (SESSIONS, Column.SESSIONS, 1.0),
    (FRAME_TIME, Column.FRAME_TIME, _SECONDS_TO_MS),
)


class _Recorder(Recommender[None]):
    """Has samples read, and wants nothing. `params`: the signals."""

    name = "recorder"
    Parameters = frozenset

    @property
    def signals(self) -> frozenset[str]:
        signals: frozenset[str] = self.params
        return signals

    def start(self) -> None:
        return None

    def fold(self, state: None, samples: Samples, block_s: int) -> None:
        return None

    def recommend(self, state: None, situation: Situation) -> Abstain:
        return Abstain("nothing is wanted")


def recording(policy: Policy, step_s: int, length_s: int, window_s: int, reads: Iterable[str]) -> Policy:
    """What has the usage of containers read: `length_s` of it, `step_s` apart, CPU as means over `window_s`.

    `reads`: signals by name that recommenders which are tried read; of them what a trace can hold is read too, users
    and frame times by the queries that `policy` has for them.
    """
    own = {name: query for name, query in policy.signals.items() if name in (SESSIONS, FRAME_TIME)}
    gpu = {Signal.GPU_MEMORY, Signal.GPU_UTILISATION} & set(reads)
    signals = frozenset({Signal.MEMORY_LIMIT, KILLED, RESTARTS, *gpu, *own})
    return Policy(
        policy.name,
        _Recorder(signals),
        grid=Grid(step_s, length_s, length_s),
        rate_window=timedelta(seconds=window_s),
        signals={**own, KILLED: _of_kube_state_metrics(_ENDED_METRIC, 'reason="OOMKilled",'), **_RESTARTS},
    )


def _of_kube_state_metrics(metric: str, matchers: str = "") -> str:
    """A query of one of its series, whether its scrapes honour labels or not."""
    arms = (
        f'{metric}{{{matchers}{label}namespace=~"$namespace",{label}pod=~"$pod",$cluster}}'
        for label in ("", "exported_")
    )
    return f"max by ({_BY}) ({' or '.join(arms)})"


_RESTARTS: Mapping[str, str] = {RESTARTS: _of_kube_state_metrics(RESTARTS_METRIC)}


def trace_of(name: str, history: History, step_s: int) -> Trace | None:
    """The trace of what was read, from the first sample to the newest; steps without a sample are blank. None where
    there are fewer than two rows.

    A restart is an event. One for lack of memory stands for demand above the limit of then, as much above it as
    recommenders take such a kill for by default: how much more was wanted is in no recording.
    """
    samples = history.recent
    if len(samples) < 2:
        return None
    first = int(samples.end_at[0])
    rows = (samples.end_at - first) // step_s
    count = int(rows[-1]) + 1

    def placed(values: NDArray[np.float32]) -> NDArray[np.float64]:
        column = np.full(count, np.nan)
        column[rows] = np.where(np.isfinite(values) & (values >= 0), values, np.nan)  # queries may answer anything
        return column

    columns = {Column.CPU: placed(samples.cpu), Column.MEMORY: placed(samples.memory)}
    columns |= {column: placed(samples.signals[one]) * unit for one, column, unit in _COLUMNS if one in samples.signals}
    limits, killed = placed(samples.signal(Signal.MEMORY_LIMIT)), placed(samples.signal(KILLED))
    events = []
    for row in restarted(placed(samples.signal(RESTARTS))):
        events.append(Event(row, EventKind.RESTART))
        if killed[row] == 1:
            around = slice(max(row - 1, 0), row + 1)  # kube-state-metrics may tell of it a step later
            columns[Column.MEMORY][row] = _demand_at_a_kill(columns[Column.MEMORY][around], limits[around])
    return Trace.of(name, step_s, columns, events, starts_s=first - step_s)


def restarted(counts: NDArray[np.float64]) -> list[int]:
    """The rows in which a count of restarts is higher than it was when it was last known. A pod of the same name that
    begins anew begins at 0."""
    known = np.flatnonzero(np.isfinite(counts))
    return known[1:][np.diff(counts[known]) > 0].tolist() if len(known) else []


def _demand_at_a_kill(memory: NDArray[np.float64], limits: NDArray[np.float64]) -> float:
    """More than the limit of then, or, if that is not known, than what was used; NaN if neither is."""
    known = limits[np.isfinite(limits)]
    used = float(known[0]) if len(known) else float(np.fmax.reduce(memory))
    return raised(used, _KILL.bump, float(_KILL.least_bump))
