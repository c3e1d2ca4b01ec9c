"""What must hold before a pod is moved, each by itself and with a reason of its own. Pure.

Source: policy/v1 (Eviction, PodDisruptionBudget), apps/v1 (who makes another pod), and this project's caution.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from autoscaler.core import kubelet
from autoscaler.core.guards import away
from autoscaler.core.model import (
    RESOURCES,
    Capability,
    ClusterSnapshot,
    ContainerKind,
    Node,
    Pod,
    Resources,
    Workload,
    WorkloadRef,
)
from autoscaler.core.plan import Check, Gate
from autoscaler.core.policy import DrainPolicy, Mode, Policy, Strategy
from autoscaler.core.reasons import Reason
from autoscaler.core.scheduling import DisruptionBudget

REPLACED_BY = frozenset({"StatefulSet", "ReplicaSet"})
"""Kinds of controllers that make another pod for one that was evicted, wherever there is room."""

GATE_LASTS = timedelta(seconds=30)
"""For how long what was last heard of a pod's sessions is believed."""

_NUMBER = re.compile("[0-9]{1,10}%?")
_REVISION = "controller-revision-hash"
_KEEPS = {  # annotation: the value with which it says that a pod must stay
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
_NOBODY = "no controller would make another one"


def mode(policy: Policy) -> Check:
    """Whether the policy lets pods be moved; one that only recommends shows how they would be."""
    allowed = policy.mode in (Mode.RESIZE_OR_MIGRATE, Mode.RECOMMEND)
    return Check("mode", Reason.MIGRATION_NOT_ENABLED, allowed, f"the policy has mode {policy.mode}")


def permission(snapshot: ClusterSnapshot, strategy: Strategy) -> Check:
    """Whether the roles are there, and what an eviction is proved with can be read now."""
    return permitted(snapshot, Capability.MIGRATE, *([Capability.SURGE] if strategy is Strategy.SURGE else []))


def permitted(snapshot: ClusterSnapshot, *needed: Capability) -> Check:
    """Whether these are there now."""
    missing = [f"rbac/{one}" for one in needed if one not in snapshot.capabilities]
    words = f"{' and '.join(missing)} is not granted, or its objects cannot be read now" if missing else ""
    return Check("permission", Reason.MIGRATION_NOT_PERMITTED, not missing, words)


def replaceable(pod: Pod) -> Check:
    """Whether somebody makes another pod that may go elsewhere. A bare pod would not come back; a DaemonSet's belongs
    to its node, and a Job's pod has done work that would be lost."""
    kind = (pod.owner or "").partition("/")[0]
    words = "a static pod belongs to its node" if pod.static else f"{pod.owner}" if pod.owner else _NOBODY
    holds = kind in REPLACED_BY and not pod.static
    return Check("controller", Reason.NOT_REPLACEABLE, holds, words)


def evictable(pod: Pod) -> Check:
    """Whether a person has said that the pod must stay."""
    found = [f"{key}: {value}" for key, value in _KEEPS.items() if pod.annotations.get(key, "").lower() == value]
    return Check("annotations", Reason.NOT_SAFE_TO_EVICT, not found, ", ".join(found))


def ready(pod: Pod, node: Node | None) -> Check:
    """Whether the pod itself serves, as far as is known. One that does not may have been moved a short time ago, and
    would not be helped by being moved again. One on a node that does not answer could not be stopped there."""
    if (hold := away(pod, node)) is not None:
        return Check("ready", hold.reason, False, hold.detail)
    return Check("ready", Reason.REPLACEMENT_NOT_READY, pod.ready, "" if pod.ready else f"{pod.name} is not ready")


def settled(pod: Pod, owner: Workload | None, topmost: Workload | None) -> Check:
    """Whether the next pod will be like this one: no rollout is going on, and the pod is of the newest revision."""

    def check(holds: bool, words: str = "") -> Check:
        return Check("workload", Reason.WORKLOAD_CHANGING, holds, words)

    if owner is None or topmost is None:
        return check(False, f"{pod.owner if owner is None else pod.workload} is not known")
    for one in (owner, topmost):
        if not one.settled:
            return check(False, f"{one.ref.object} is being rolled out or deleted")
        if not one.replicas:
            return check(False, f"{one.ref.object} wants no pods")
    if owner.revision and pod.labels.get(_REVISION) != owner.revision:
        return check(False, f"the next pod of {owner.ref.object} will be of revision {owner.revision}")
    return check(True)


def budget(pod: Pod, snapshot: ClusterSnapshot, *, ready: bool = True) -> Check:
    """Whether PodDisruptionBudgets let the Eviction API evict the pod now. The API server's own answer decides in the
    end. `ready` False: whether they will once the pod has one sibling more, and that is healthy."""

    def check(holds: bool, words: str) -> Check:
        return Check("disruption budget", Reason.EVICTION_BLOCKED, holds, words)

    found = [
        one
        for one in snapshot.disruption_budgets
        if one.namespace == pod.namespace and one.selector is not None and one.selector.matches(pod.labels)
    ]
    if Capability.MIGRATE not in snapshot.capabilities:
        return check(False, "which budgets match the pod is not known")
    if len(found) > 1:
        names = " and ".join(sorted(one.name for one in found))
        return check(False, f"{len(found)} budgets match the pod, and the Eviction API accepts one: {names}")
    if not found:
        return check(True, "none matches the pod")
    (one,) = found
    words = f"{one.name} needs {one.desired} healthy of {one.expected}, and has {one.healthy}"
    if not ready:
        desired = desired_for(one, one.expected + 1)
        if desired is None:
            return check(one.healthy + 1 > one.desired, words)
        words = f"{one.name} will need {desired} healthy of {one.expected + 1}, and have {one.healthy + 1}"
        return check(one.healthy + 1 > desired, words)
    if not one.current:
        return check(False, f"{one.name} is still being processed by its controller")
    return check(one.allowed > 0, words)


def desired_for(budget: DisruptionBudget, expected: int) -> int | None:
    """How many healthy pods a budget would want if so many were expected; None if it does not say so in a way that is
    known. Percentages are rounded up (pkg/controller/disruption, getExpectedPodCount)."""
    if budget.max_unavailable:
        most = _share(budget.max_unavailable, expected)
        return None if most is None else max(expected - most, 0)
    return _share(budget.min_available, expected)


def _share(text: str, total: int) -> int | None:
    """An IntOrString, of a total."""
    if not _NUMBER.fullmatch(text):
        return None
    return -(-int(text[:-1]) * total // 100) if text.endswith("%") else int(text)


def old_enough(pods: Iterable[Pod], policy: Policy, now: datetime) -> Check:
    """Whether all of these pods, those of the workload, have lived for long enough: this ends every loop of moves."""
    least = policy.fallback.migration.min_pod_age
    youngest: Pod | None = None
    for pod in pods:
        if pod.created_at is None:
            return Check("age", Reason.POD_TOO_YOUNG, False, f"{pod.name}: its age is not known")
        if youngest is None or youngest.created_at is None or pod.created_at > youngest.created_at:
            youngest = pod
    if youngest is None or youngest.created_at is None:
        return Check("age", Reason.POD_TOO_YOUNG, True)
    due_at = youngest.created_at + least
    words = f"{youngest.name} was created at {youngest.created_at.isoformat(timespec='seconds')}"
    return Check("age", Reason.POD_TOO_YOUNG, now >= due_at, words, None if now >= due_at else due_at)


def gate(
    pod: Pod,
    how: DrainPolicy,
    heard: Gate | None,
    due_at: datetime,
    now: datetime,
    *,
    called_off_at: datetime | None = None,
    calls_off: bool = True,
) -> Check:
    """Whether the pod has no sessions, or was waited for as long as the policy says and may be moved regardless.

    Where the pod is told to take no new sessions, the wait begins with that, else at `due_at`. `called_off_at`: when
    it was over, if that still counts. `calls_off` False: nothing comes of its end but by `then_force`.
    """
    if heard is not None and heard.uid != pod.uid:
        heard = None
    until = _waited_until(how, heard, due_at, called_off_at)
    over = until is not None and now >= until
    words, reason = "its sessions are being asked for", Reason.DRAINING
    if heard is not None:
        # the API server's clock may have been set back since
        believed = abs(now - heard.measured_at) <= GATE_LASTS
        words = heard.detail if believed else "its sessions are not known any more"
        if believed and heard.open:
            return Check("sessions", Reason.DRAINING, True, words)
        reason = Reason.DRAINING if believed and heard.known else Reason.GATE_UNKNOWN
    if how.then_force and over:
        return Check("sessions", Reason.DRAINING, True, f"{words}; maxWait is over, and thenForce is set")
    if not how.then_force and not calls_off:
        return Check("sessions", reason, False, f"{words}; waited for until they have ended")
    then = "evicted all the same" if how.then_force else "called off"
    if until is None:
        words += f"; {then} once maxWait has passed since it was told to take no new ones"
    else:
        words += f"; {'maxWait was over' if over else then} at {until.isoformat(timespec='seconds')}"
    return Check("sessions", reason, False, words, until)


def _waited_until(
    how: DrainPolicy, heard: Gate | None, due_at: datetime, called_off_at: datetime | None
) -> datetime | None:
    """None: the wait has not begun."""
    if how.notify is None:
        return due_at + how.max_wait
    if called_off_at is not None and not how.then_force:
        return called_off_at
    return None if heard is None or heard.told_at is None else heard.told_at + how.max_wait


def smaller(created: Mapping[str, Resources], target: Mapping[str, Resources]) -> str:
    """Which requests a new pod would not have at first, in words; empty if it has them all."""
    short = [
        f"{name} {resource} {resource.quantity(had)} of {resource.quantity(wanted)}"
        for name, resources in created.items()
        for resource in RESOURCES
        if (wanted := target[name].requests.get(resource) if name in target else None) is not None
        and (had := resources.requests.get(resource) or 0) < wanted
    ]
    return ", ".join(short)


def owner_of(pod: Pod, snapshot: ClusterSnapshot) -> tuple[Workload | None, Workload | None]:
    """The pod's direct controller and its topmost one, as far as they are known."""
    direct, topmost = (
        None if one is None else snapshot.workloads.get(WorkloadRef(pod.namespace, one))
        for one in (pod.owner, pod.workload)
    )
    return direct, topmost


def unavailable(pod: Pod) -> bool:
    """Whether a pod that has not finished is not ready, is being deleted, or has a container that does not run."""
    if pod.phase in kubelet.FINISHED_PHASES:
        return False
    return (
        pod.deleting
        or not pod.ready
        or pod.phase != "Running"
        or any(not c.running and not c.ended for c in pod.containers if c.kind is not ContainerKind.INIT)
    )


def alive(pod: Pod) -> bool:
    """Whether a pod counts for its controller: it has not finished, and is not on its way out."""
    return not pod.deleting and pod.phase not in kubelet.FINISHED_PHASES
