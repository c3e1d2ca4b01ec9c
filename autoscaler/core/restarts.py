"""Containers that restart: whom a resize of ours keeps from serving, and restarts that no one has explained. Pure.

Read from `status.containerStatuses` and the dates of our asks in `managedFields`, so that nothing has to be remembered.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from autoscaler.core import kubelet
from autoscaler.core.actions import OURS, AskKind
from autoscaler.core.guards import Hold
from autoscaler.core.model import ANNOTATION_PREFIX, Container, ContainerKind, Pod
from autoscaler.core.policy import Policy
from autoscaler.core.preconditions import unavailable
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import Phase, phase_of

ACKNOWLEDGED = f"{ANNOTATION_PREFIX}acknowledged"
WINDOW = timedelta(minutes=1)
"""For how long after an ask a restart is put down to it, and after a restart the pod is not counted on."""

_GOING_ON = frozenset({Phase.SETTLED, Phase.DELETING})


class Disruption(NamedTuple):
    """A pod that does not serve. `until`: when it is over, if it is only a matter of time."""

    pod: Pod
    until: datetime | None = None


def disrupted(pod: Pod, now: datetime) -> Disruption | None:
    """The restart that a resize of ours has caused or is going to cause by `resizePolicy`, until it is over."""
    if not any(container.restart_on for container in pod.containers) or pod.phase in kubelet.FINISHED_PHASES:
        return None
    asks = [ask.at for ask in pod.asks if ask.manager in OURS and ask.manager != AskKind.REVERT]
    if not asks:
        return None
    asked_at = max(asks)
    if phase_of(pod).phase not in _GOING_ON and kubelet.restarted_by(pod, {}):
        return Disruption(pod)
    restarted = [c.started_at for c in pod.containers if c.restart_on and c.restart_count and c.started_at is not None]
    newest = max((at for at in restarted if at >= asked_at), default=None)
    if newest is not None and unavailable(pod):
        return Disruption(pod)
    until = (newest or asked_at) + WINDOW
    return Disruption(pod, until) if until > now else None


def unexplained(pod: Pod, policy: Policy) -> Hold | None:
    """The hold of a pod that restarted right after a resize of ours, for no reason that is known, until it is replaced
    or a person says that it is all right."""
    if not pod.asks:
        return None
    for container in pod.containers:
        if (moment := _ended_after(pod, container)) is None or _explains(container, policy):
            continue
        value = pod.annotations.get(ACKNOWLEDGED)
        acknowledged_at = None if value is None else _instant(value)
        if acknowledged_at is not None and acknowledged_at > moment:
            continue
        words = f"container {container.name} restarted at {moment.isoformat(timespec='seconds')}"
        if value is not None and acknowledged_at is None:
            words += f"; the annotation {ACKNOWLEDGED} is {value[:40]!r}, write a time like 2026-11-29T12:00:00Z"
        elif acknowledged_at is not None:
            words += f"; acknowledged was what happened before {acknowledged_at.isoformat(timespec='seconds')}"
        return Hold(Reason.UNEXPLAINED_RESTART, words)
    return None


def _ended_after(pod: Pod, container: Container) -> datetime | None:
    """When a container ended for the last time, if that was right after an ask of ours."""
    if container.kind is ContainerKind.INIT or not container.restart_count:
        return None
    last = container.last_terminated
    moment = container.started_at if last is None or last.finished_at is None else last.finished_at
    if moment is None:
        return None
    ours = (ask.at for ask in pod.asks if ask.manager in OURS)
    return moment if any(timedelta(0) <= moment - at <= WINDOW for at in ours) else None


def _explains(container: Container, policy: Policy) -> bool:
    if container.last_terminated is not None and container.last_terminated.reason == "OOMKilled":
        return True
    entry = policy.container_policy(container)
    return entry is not None and bool(container.restart_on & entry.controlled)


def _instant(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment
