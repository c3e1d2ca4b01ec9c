"""Pods that take the place of one that was evicted: what keeps them from serving, by name. Pure.

Nothing tells a replacement from a pod that starts for another reason, so that every pod whose policy may move it counts
as one until it is ready. While it is not, nothing of its workload is evicted (siblings, in preconditions.py).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from autoscaler.core.guards import Hold
from autoscaler.core.model import Pod
from autoscaler.core.policy import Mode, Policy
from autoscaler.core.reasons import Reason

UNSCHEDULED_AFTER = timedelta(minutes=1)
"""How long the scheduler may take before a person should look."""


def replacing(pod: Pod, policy: Policy, hold: Hold, now: datetime) -> Hold:
    """The hold of a pod that is not running, more closely if it may be a replacement; any other hold as it is."""
    if policy.mode is not Mode.RESIZE_OR_MIGRATE:
        return hold
    if hold.reason is Reason.DELETING and pod.disrupted:
        return _stopping(pod, policy, now)
    if hold.reason not in (Reason.NOT_RUNNING, Reason.CRASH_LOOP) or pod.ready or pod.created_at is None:
        return hold
    if pod.node is None:
        late, patience = Reason.REPLACEMENT_UNSCHEDULED, UNSCHEDULED_AFTER
        words = pod.unscheduled or "the scheduler has not looked at it"
    else:
        late, patience = Reason.REPLACEMENT_NOT_READY, policy.fallback.migration.ready_within
        words = f"on {pod.node}: {hold.detail}"
    # a pod that has served for long and restarts is none, until it has been away for as long
    since = max(pod.created_at, pod.ready_changed_at or pod.created_at)
    due_at = since + patience
    words = f"not ready since {since.isoformat(timespec='seconds')}; {words}"
    return Hold(late, words) if now >= due_at else Hold(Reason.REPLACING, words, due_at)


def _stopping(pod: Pod, policy: Policy, now: datetime) -> Hold:
    """One that was evicted. While it is there, a StatefulSet makes no other."""
    if pod.gone_by is None:
        return Hold(Reason.REPLACING, "it was evicted and stops; another pod takes its place")
    due_at, words = pod.gone_by + policy.fallback.migration.ready_within, pod.gone_by.isoformat(timespec="seconds")
    if now >= due_at:
        return Hold(Reason.REPLACEMENT_NOT_READY, f"it was evicted, should have stopped at {words}, and is still there")
    return Hold(Reason.REPLACING, f"it was evicted and stops by {words}; another pod takes its place", due_at)
