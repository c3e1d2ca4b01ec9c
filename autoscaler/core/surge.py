"""Deployments that have one replica more because one of their pods is being moved. Pure.

Read from the Deployment: whoever set its replicas last is named, with the moment, in the entry of `managedFields` with
subresource `scale`. So a controller that restarts goes on with a surge, or undoes it; and a number that somebody else
has set since is theirs.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from autoscaler.core.actions import Evict, Move, Scale, ScaleKind
from autoscaler.core.ladder import deadline
from autoscaler.core.model import Capability, ClusterSnapshot, Pod, Workload, WorkloadRef
from autoscaler.core.order import precedence
from autoscaler.core.plan import Check
from autoscaler.core.policy import Config, FallbackAction, Policy, Strategy
from autoscaler.core.preconditions import alive, smaller, unavailable
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import Phase, phase_of
from autoscaler.core.siblings import Siblings

NEW_POD = "new pod"
"""The precondition that the new pod of a surge serves."""

_DEPLOYMENT = "Deployment"
_HORIZONTAL = "HorizontalPodAutoscaler"
_ONE_NODE = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})
_SKEW = timedelta(seconds=2)  # between the clocks of API servers: one dates the surge, another one the pod


class Surges:
    """The surges that are going on in one snapshot."""

    def __init__(self, snapshot: ClusterSnapshot, config: Config, siblings: Siblings) -> None:
        self._snapshot = snapshot
        self._config = config
        self._siblings = siblings
        self._going = {ref: one for ref, one in snapshot.workloads.items() if _began_at(one) is not None}

    @property
    def going(self) -> Collection[Workload]:
        """The Deployments that have one replica more."""
        return self._going.values()

    def of(self, pod: Pod) -> Workload | None:
        """The pod's Deployment, if it has one replica more by our doing."""
        return self._going.get(WorkloadRef(pod.namespace, pod.workload or "")) if self._going else None

    def began_at(self, workload: Workload) -> datetime:
        """When the surge of one of those that are going on began."""
        return _began_at(workload) or self._snapshot.taken_at

    def leaving(self, workload: Workload) -> Pod | None:
        """The pod that a surge is for; None when it has gone, or need not be moved any more."""
        pods = self._siblings.of(workload.ref)
        # for an evicted pod the ReplicaSet makes a third one, which goes when the surge ends
        if len(self.newcomers(workload)) > 1 or any(pod.deleting and pod.disrupted for pod in pods):
            return None
        return min((pod for pod in pods if self._wants(pod, workload)), key=precedence, default=None)

    def newcomers(self, workload: Workload) -> list[Pod]:
        """The pods that were made since the surge began."""
        began_at = _began_at(workload)
        return [one for one in self._siblings.of(workload.ref) if alive(one) and _since(one, began_at)]

    def taken_over(self, pod: Pod) -> Pod | None:
        """The pod whose place and size a new pod takes; None if it is not the new pod of a surge."""
        workload = self.of(pod)
        if workload is None or not _since(pod, _began_at(workload)):
            return None
        return self.leaving(workload)

    def end(self, workload: Workload, pod: Pod) -> Move | None:
        """The next step towards as many replicas as before; None as long as a pod might go that must not.

        A ReplicaSet that has one pod too many removes one that is not ready, whatever else it considers: among ready
        ones it may choose any, also the pod that was just moved. So where all are ready, the newest is evicted first,
        and the number goes back while its successor starts (pkg/controller, ActivePodsWithRanks).
        """
        pods, new = [one for one in self._siblings.of(workload.ref) if alive(one)], self.newcomers(workload)
        down = [one for one in pods if unavailable(one)]
        if len(pods) < workload.replicas or (down and all(one in new for one in down)):
            return _scale(workload, workload.replicas - 1, ScaleKind.BACK, pod)
        if down:
            return None
        # without a pod that is known to be new, as API servers' clocks differ, the youngest is
        newest = max(new or pods, key=lambda one: (_created(one), one.name))
        return Evict(newest.ref, newest.uid, newest.resource_version)

    def _wants(self, pod: Pod, workload: Workload) -> bool:
        if not alive(pod) or _since(pod, _began_at(workload)):
            return False
        policies = self._config.policies_of(pod)
        if len(policies) != 1 or not (policies[0].moves and surges(policies[0])):
            return False
        due_at = deadline(pod, phase_of(pod), policies[0], self._config)
        return due_at is not None and due_at <= self._snapshot.taken_at

    def ready(self, pod: Pod, workload: Workload, within: timedelta) -> Check:
        """Whether the new pod serves at the size that the old one needs."""
        target = {container.name: container.spec for container in pod.containers}
        words, since = "the ReplicaSet has not made a new pod", self.began_at(workload)
        for new in self.newcomers(workload):
            short = smaller({c.name: c.spec for c in new.containers}, target)
            words = f"{new.name} on {new.node or 'no node'}"
            if new.unscheduled:
                words += f": {new.unscheduled}"
            elif not new.ready:
                words += " is not ready"
                # one that was ready and has users by now is not given up for a moment in which it is not
                since = max(since, new.ready_changed_at or since)
            elif (node := self._snapshot.nodes.get(new.node or "")) is None or not node.ready:
                words += ", a node that is gone or not ready"  # the pod says that it is ready for a while yet
            elif short or phase_of(new).phase is not Phase.SETTLED:
                words += f" is ready, and has not the size yet{f': {short}' if short else ''}"
            else:
                return Check(NEW_POD, Reason.SURGING, True, f"{words} is ready at its size")
        return Check(NEW_POD, Reason.SURGING, False, words, since + within)


def surges(policy: Policy) -> bool:
    """Whether a policy moves pods by a surge."""
    fallback = policy.fallback
    return fallback.action is FallbackAction.MIGRATE and fallback.migration.strategy is Strategy.SURGE


def possible(pod: Pod, deployment: Workload | None, snapshot: ClusterSnapshot) -> Check:
    """Whether the pod's Deployment can have one replica more without getting in anybody's way."""

    def check(holds: bool, words: str = "") -> Check:
        return Check("surge", Reason.SURGE_REFUSED, holds, words)

    if deployment is None or deployment.ref.kind != _DEPLOYMENT:
        return check(False, f"only a Deployment can surge, this is {pod.workload}")
    if Capability.AUTOSCALERS not in snapshot.capabilities:
        return check(False, "rbac/autoscalers is missing: whether a HorizontalPodAutoscaler scales it is not known")
    for one in snapshot.autoscalers:
        if (one.kind, one.namespace, one.target) == (_HORIZONTAL, pod.namespace, pod.workload):
            return check(False, f"HorizontalPodAutoscaler {one.name} sets the number of replicas")
    for name in pod.scheduling.claims:
        claim = snapshot.storage.claims.get((pod.namespace, name))
        if claim is None or (claim.access_modes & _ONE_NODE and not claim.of_pod):
            return check(False, f"volume claim {name} can be used on one node at a time")
    return check(True)


def rested(deployment: Workload | None, retry_after: timedelta, until: datetime | None, now: datetime) -> Check:
    """Whether the last surge of the Deployment, however it ended, lies back far enough. `until`: until when one that is
    remembered keeps the next from being begun."""
    last = None if deployment is None else deployment.scaled
    if until is not None and (last is None or last.manager != ScaleKind.BACK):
        words = "somebody else has set the number of replicas since the last surge began"
        return Check("last surge", Reason.SURGE_FAILED, False, words, until)
    if last is None or last.manager != ScaleKind.BACK or now >= (due_at := last.at + retry_after):
        return Check("last surge", Reason.SURGE_FAILED, True)
    words = f"the last surge ended at {last.at.isoformat(timespec='seconds')}"
    return Check("last surge", Reason.SURGE_FAILED, False, words, due_at)


def begin(deployment: Workload, pod: Pod) -> Scale:
    """One replica more."""
    return _scale(deployment, deployment.replicas + 1, ScaleKind.SURGE, pod)


def _scale(deployment: Workload, replicas: int, kind: ScaleKind, pod: Pod) -> Scale:
    undoes = deployment.scaled if kind is ScaleKind.BACK else None
    return Scale(deployment.ref, deployment.uid, deployment.resource_version, replicas, kind, pod.ref, undoes)


def _began_at(workload: Workload) -> datetime | None:
    last = workload.scaled
    surging = last is not None and last.manager == ScaleKind.SURGE and workload.replicas > 1
    return last.at if surging and last is not None else None


def _since(pod: Pod, began_at: datetime | None) -> bool:
    return began_at is not None and _created(pod) >= began_at - _SKEW


def _created(pod: Pod) -> datetime:
    return pod.created_at or datetime.min.replace(tzinfo=UTC)
