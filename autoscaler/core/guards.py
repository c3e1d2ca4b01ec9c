"""Reasons not to touch a pod at all, whatever its usage. Pure, in order: the first objection names the hold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from autoscaler.core.model import ContainerKind, Node, Pod, QoSClass
from autoscaler.core.policy import Mode, Policy
from autoscaler.core.reasons import Reason

_CRITICAL = 2_000_000_000  # system-cluster-critical and above (pkg/apis/scheduling, SystemCriticalPriority)


class Hold(NamedTuple):
    """Why nothing is done about a pod, and when to look again even if nothing changes."""

    reason: Reason
    detail: str = ""
    due_at: datetime | None = None


Guard = Callable[[Pod, Policy], Hold | None]


def _off(pod: Pod, policy: Policy) -> Hold | None:
    return Hold(Reason.POLICY_OFF, f"policy {policy.name}") if policy.mode is Mode.OFF else None


def _deleting(pod: Pod, policy: Policy) -> Hold | None:
    return Hold(Reason.DELETING) if pod.deleting else None


def _gated(pod: Pod, policy: Policy) -> Hold | None:
    return Hold(Reason.GATED, pod.gated) if pod.gated is not None else None


def _critical(pod: Pod, policy: Policy) -> Hold | None:
    return Hold(Reason.CRITICAL_POD, f"priority {pod.priority}") if pod.priority >= _CRITICAL else None


def _running(pod: Pod, policy: Policy) -> Hold | None:
    if pod.node is None:
        return Hold(Reason.NOT_RUNNING, f"phase {pod.phase}, not bound to a node")
    return Hold(Reason.NOT_RUNNING, f"phase {pod.phase}") if pod.phase != "Running" else None


def _static(pod: Pod, policy: Policy) -> Hold | None:
    return Hold(Reason.STATIC_POD) if pod.static else None


def _best_effort(pod: Pod, policy: Policy) -> Hold | None:
    return Hold(Reason.BEST_EFFORT) if pod.qos_class is QoSClass.BEST_EFFORT else None


def _pod_level(pod: Pod, policy: Policy) -> Hold | None:
    return Hold(Reason.POD_LEVEL_RESOURCES) if pod.pod_level is not None else None


def away(pod: Pod, node: Node | None) -> Hold | None:
    """Why nothing is asked of the pod's node now. What is asked for nonetheless would wait, and nobody would see for
    what."""
    if node is None or node.ready:
        return None
    return Hold(Reason.NODE_NOT_READY, f"node {node.name} is not ready")


def unsizable(pod: Pod, policy: Policy) -> Hold | None:
    """Why a settled pod cannot be sized now. An ask that is not over is followed, and given up, all the same."""
    sized = policy.sized(pod)
    if not sized:
        names = ", ".join(c.name for c in pod.containers if c.kind is not ContainerKind.INIT)
        return Hold(Reason.NO_CONTAINER_SELECTED, f"policy {policy.name} sizes none of: {names}")
    for container in sized:
        if not container.running:
            return Hold(Reason.NOT_RUNNING, f"container {container.name} is not running")
        if container.actual is None:
            return Hold(Reason.RESIZE_UNSUPPORTED, f"container {container.name} has no resources in its status")
    if not any(
        container.in_force.requests.get(resource)
        for container in sized
        if (entry := policy.container_policy(container)) is not None
        for resource in entry.controlled
    ):
        return Hold(Reason.NO_REQUESTS, f"no request of {', '.join(c.name for c in sized)} that the policy controls")
    return None


GUARDS: tuple[Guard, ...] = (_off, _deleting, _gated, _running, _static, _critical, _best_effort, _pod_level)


def objection(pod: Pod, policy: Policy) -> Hold | None:
    """The first reason to leave a pod alone; None when there is none."""
    return next((hold for guard in GUARDS if (hold := guard(pod, policy)) is not None), None)
