"""Where a pod's last resize stands: derived from the pod each time, never stored.

What a phase calls for is in ladder.py. Source: KEP-1287 and pod status of Kubernetes 1.33 to 1.37; precedence and
patience are this project's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from autoscaler.core.model import Container, ContainerKind, Pod, ResourceList

CPU_TOLERANCE_M = 10
"""The systemd cgroup driver rounds CPU quota up to 10m, so what is read back may differ by that much."""

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


class Phase(StrEnum):
    """The phases of a resize, in order of precedence."""

    DELETING = "Deleting"
    UNKNOWN = "Unknown"
    DEFERRED = "Deferred"
    INFEASIBLE = "Infeasible"
    ERROR = "Error"
    IN_PROGRESS = "InProgress"
    PROPOSED = "Proposed"
    SETTLED = "Settled"


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """A phase, the words behind it, and since when its patience counts (None: nobody has asked for a size).

    That is the newest ask, whatever the conditions say of their own moments, which a kubelet restart and a flip between
    Deferred and Infeasible move. Only what the kubelet is applying counts from when it began, as it may have been
    deferred before.
    """

    phase: Phase
    detail: str = ""
    since: datetime | None = None


_PENDING = {"Deferred": Phase.DEFERRED, "Infeasible": Phase.INFEASIBLE}
_PROGRESS = {"": Phase.IN_PROGRESS, "Error": Phase.ERROR}


def phase_of(pod: Pod) -> PhaseReport:
    """The phase of the pod's newest resize."""
    asked_at = ask.at if (ask := pod.newest_ask) is not None else None
    if pod.deleting:
        return PhaseReport(Phase.DELETING, since=asked_at)
    pending, progress = pod.condition(PENDING), pod.condition(IN_PROGRESS)
    # a Pending condition of an older generation speaks of an ask that has been replaced
    if pending is not None and pending.observed_generation and pending.observed_generation < pod.generation:
        pending = None
    for kind, condition, known in ((PENDING, pending, _PENDING), (IN_PROGRESS, progress, _PROGRESS)):
        if condition is not None and condition.reason not in known:
            words = f"{kind} with reason {condition.reason or 'none'}: {condition.message}"
            return PhaseReport(Phase.UNKNOWN, words, asked_at)
    if pending is not None:
        return PhaseReport(_PENDING[pending.reason], pending.message, asked_at)
    if progress is not None:
        began_at = [moment for moment in (asked_at, progress.last_transition_at) if moment is not None]
        return PhaseReport(_PROGRESS[progress.reason], progress.message, max(began_at, default=None))
    if (difference := _difference(pod)) is not None:
        return PhaseReport(Phase.PROPOSED, difference, asked_at)
    return PhaseReport(Phase.SETTLED, since=asked_at)


def _difference(pod: Pod) -> str | None:
    """What keeps a pod without conditions from being settled, in words."""
    if pod.observed_generation and pod.observed_generation < pod.generation:
        return f"generation {pod.generation} not observed yet (kubelet is at {pod.observed_generation})"
    for container in pod.containers:
        if container.allocated is not None and not _same(container.spec.requests, container.allocated, 0):
            return f"container {container.name}: allocated differs from spec"
        if not _applied(container):
            return f"container {container.name}: in force differs from spec"
    return None


def _applied(container: Container) -> bool:
    # a container that has ended, or is not running, is judged by what is allocated alone
    if container.actual is None or not container.running or container.kind is ContainerKind.INIT:
        return True
    return _same(container.spec.requests, container.actual.requests, CPU_TOLERANCE_M) and _same(
        container.spec.limits, container.actual.limits, CPU_TOLERANCE_M
    )


def _same(wanted: ResourceList, found: ResourceList, cpu_tolerance: int) -> bool:
    """By value. An amount that the kubelet does not report is not compared."""
    memory = wanted.memory is None or found.memory is None or wanted.memory == found.memory
    cpu = wanted.cpu is None or found.cpu is None or abs(wanted.cpu - found.cpu) <= cpu_tolerance
    return memory and cpu
