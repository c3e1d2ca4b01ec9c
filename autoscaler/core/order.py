"""Who comes first, where not everyone can: in what order room and budgets are given, and actions performed."""

from __future__ import annotations

from datetime import UTC, datetime

from autoscaler.core.model import Pod, PodRef, QoSClass

_LAST = datetime.max.replace(tzinfo=UTC)

Precedence = tuple[int, bool, datetime, PodRef]


def precedence(pod: Pod) -> Precedence:
    """Sorts pods: the higher `spec.priority`, then Guaranteed ones, then who has waited longest, then by name.

    A pod has waited since it last asked for a size, or, if it never has, since it started. The first two are a
    kubelet's own order of retrying deferred resizes.
    """
    ask = pod.newest_ask
    if ask is not None:
        since = ask.at
    else:
        since = min((c.started_at for c in pod.containers if c.started_at is not None), default=_LAST)
    return -pod.priority, pod.qos_class is not QoSClass.GUARANTEED, since, pod.ref
