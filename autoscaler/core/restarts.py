"""Containers that restart: whom a resize of ours keeps from serving, restarts that no one has explained, and containers
that have not run for long enough. Pure.

Read from `status.containerStatuses` and the dates of our asks in `managedFields`, so that nothing has to be remembered.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from autoscaler.core import kubelet
from autoscaler.core.actions import OURS, AskKind
from autoscaler.core.guards import Hold
from autoscaler.core.model import ANNOTATION_PREFIX, Container, ContainerKind, Pod, Resource, Termination
from autoscaler.core.policy import Policy
from autoscaler.core.preconditions import unavailable
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import Phase, phase_of

ACKNOWLEDGED = f"{ANNOTATION_PREFIX}acknowledged"
WINDOW = timedelta(minutes=1)
"""For how long after an ask a restart is put down to it, and after a restart the pod is not counted on."""

STEADY_AFTER = timedelta(minutes=10)
"""How long a container runs until its restart is forgotten, as the kubelet then forgets its back-off."""

OOM_LASTS = timedelta(hours=1)
"""For how long an OOM kill speaks against less memory: what was wanted then is in no sample of usage."""

_OOM = "OOMKilled"
_BACKS_OFF = "CrashLoopBackOff"
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


def crash_loop(pod: Pod, policy: Policy, now: datetime) -> Hold | None:
    """The hold of a pod with a container that the kubelet waits to start again, or that it would if it ended now.

    One that is killed for lack of memory is left out while it runs: more memory is what helps it.
    """
    for container in policy.sized(pod):
        last = container.last_terminated
        if last is None or _by_resize(pod, container, last) or _asked_since(pod, container, last):
            continue
        if last.reason == _OOM and container.waiting != _BACKS_OFF:
            continue
        words = f"container {container.name} has restarted {container.restart_count} times, last after {_words(last)}"
        if container.waiting == _BACKS_OFF:
            return Hold(Reason.CRASH_LOOP, f"{words}; the kubelet waits before it starts it again")
        if not container.running or container.started_at is None:
            continue
        steady_at = container.started_at + STEADY_AFTER
        if now < steady_at and _short(last):
            return Hold(Reason.CRASH_LOOP, f"{words}; left alone until it has run for 10 minutes", steady_at)
    return None


class Recovery(NamedTuple):
    """Why a container gets no less of a resource, in words, and when that is over, if it is only a matter of time."""

    words: str
    until: datetime | None = None


def recovery(pod: Pod, container: Container, resource: Resource, now: datetime) -> Recovery | None:
    """What speaks against less of a resource for a container, or None."""
    last = container.last_terminated
    if last is not None and last.finished_at is not None and not _by_resize(pod, container, last):
        oom = last.reason == _OOM and resource is Resource.MEMORY
        until = last.finished_at + (OOM_LASTS if oom else STEADY_AFTER)
        if now < until:
            return Recovery(f"restarted after {_words(last)}", until)
    return None if pod.ready else Recovery("the pod is not ready")


def _by_resize(pod: Pod, container: Container, last: Termination) -> bool:
    """Whether a container ended because a resize restarts it: right after an ask, whoever asked."""
    if not container.restart_on or last.finished_at is None or last.reason == _OOM:
        return False
    return any(timedelta(0) <= last.finished_at - ask.at <= WINDOW for ask in pod.asks)


def _asked_since(pod: Pod, container: Container, last: Termination) -> bool:
    """Whether this controller has asked for more since a container ended that a resize may restart. Then the end was
    explained at that time, by an ask whose date is gone: only the newest of each kind is dated."""
    if not container.restart_on or last.finished_at is None:
        return False
    return any(a.at > last.finished_at for a in pod.asks if a.manager in OURS and a.manager != AskKind.REVERT)


def _short(last: Termination) -> bool:
    if last.started_at is None or last.finished_at is None:
        return False
    return last.finished_at - last.started_at < STEADY_AFTER


def _words(last: Termination) -> str:
    moment = "" if last.finished_at is None else f" at {last.finished_at.isoformat(timespec='seconds')}"
    return f"{last.reason or 'an end'} (exit code {last.exit_code}){moment}"


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
    if container.last_terminated is not None and container.last_terminated.reason == _OOM:
        return True
    entry = policy.container_policy(container)
    return entry is not None and bool(container.restart_on & entry.controlled)


def _instant(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment
