"""Where a pod's last resize stands: derived from the pod each time, never stored.

The table `PHASES` is the state machine. Source: KEP-1287 and pod status of Kubernetes 1.33 to 1.37; precedence and
patience are this project's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from autoscaler.core.model import Container, ContainerKind, Pod, ResourceList
from autoscaler.core.reasons import Reason

# The systemd cgroup driver rounds CPU quota up to 10m, so what is read back may differ by that much.
_CPU_TOLERANCE_M = 10

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
    """A phase, the words behind it, and when the resize was asked for (None: nobody has)."""

    phase: Phase
    detail: str = ""
    asked_at: datetime | None = None


HOLDS: dict[Phase, Reason] = {
    Phase.DELETING: Reason.DELETING,
    Phase.UNKNOWN: Reason.RESIZE_UNKNOWN,
    Phase.DEFERRED: Reason.RESIZE_DEFERRED,
    Phase.INFEASIBLE: Reason.RESIZE_INFEASIBLE,
    Phase.ERROR: Reason.RESIZE_ERROR,
    Phase.IN_PROGRESS: Reason.RESIZE_IN_PROGRESS,
    Phase.PROPOSED: Reason.RESIZE_PROPOSED,
}
"""Every phase but Settled holds the pod, under this reason."""


_PENDING = {"Deferred": Phase.DEFERRED, "Infeasible": Phase.INFEASIBLE}
_PROGRESS = {"": Phase.IN_PROGRESS, "Error": Phase.ERROR}


def phase_of(pod: Pod) -> PhaseReport:
    """The phase of the pod's newest resize."""
    asked_at = ask.at if (ask := pod.newest_ask) is not None else None
    if pod.deleting:
        return PhaseReport(Phase.DELETING, asked_at=asked_at)
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
        return PhaseReport(_PROGRESS[progress.reason], progress.message, asked_at)
    if (difference := _difference(pod)) is not None:
        return PhaseReport(Phase.PROPOSED, difference, asked_at)
    return PhaseReport(Phase.SETTLED, asked_at=asked_at)


def hold_of(pod: Pod, now: datetime, kubelet_patience: timedelta) -> tuple[Reason, str, datetime | None] | None:
    """The hold that an unfinished resize means, with its detail and when to look again; None when Settled."""
    report = phase_of(pod)
    if report.phase is Phase.SETTLED:
        return None
    if report.phase is not Phase.PROPOSED or report.asked_at is None:
        return HOLDS[report.phase], report.detail, None
    due_at = report.asked_at + kubelet_patience
    if now < due_at:
        return HOLDS[report.phase], report.detail, due_at
    return Reason.KUBELET_SILENT, f"{report.detail} for {_seconds(now - report.asked_at)} s", None


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds())


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
    return _same(container.spec.requests, container.actual.requests, _CPU_TOLERANCE_M) and _same(
        container.spec.limits, container.actual.limits, _CPU_TOLERANCE_M
    )


def _same(wanted: ResourceList, found: ResourceList, cpu_tolerance: int) -> bool:
    """By value. An amount that the kubelet does not report is not compared."""
    memory = wanted.memory is None or found.memory is None or wanted.memory == found.memory
    cpu = wanted.cpu is None or found.cpu is None or abs(wanted.cpu - found.cpu) <= cpu_tolerance
    return memory and cpu
