"""Whether a resize that waits is still wanted: usage may have fallen since it was asked for. Pure.

The recommender is asked again as if nothing had been asked for yet. A pod is not moved for a size that nobody wants any
more, nor for one of which it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autoscaler.core import kubelet
from autoscaler.core.ladder import granted
from autoscaler.core.model import RESOURCES, Container, Pod, Resource, ResourceList, Resources
from autoscaler.core.plan import Check
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Target
from autoscaler.core.resize import Phase
from autoscaler.core.sizing import Sized

WANTED = "wanted"
"""The precondition that the pod still needs more than it has."""

_UNKNOWN = frozenset({Reason.RECOMMENDER_INVALID, Reason.QOS_WOULD_CHANGE})
"""Holds of sizing that do not say that the pod has enough."""


def before(pod: Pod, phase: Phase) -> Pod:
    """The pod as it would be had nobody asked for another size: its spec is what is in force."""
    return replace(kubelet.resized(pod, granted(pod, phase)), asks=())


def larger(pod: Pod, wants: Mapping[str, Resources]) -> dict[str, Resources]:
    """The size for which there has to be room: of what was asked for and what is wanted by now the larger, each."""

    def most(container: Container) -> Resources:
        asked, wanted = container.spec, wants.get(container.name, container.spec)
        return Resources(_larger(asked.requests, wanted.requests), _larger(asked.limits, wanted.limits))

    return {container.name: most(container) for container in pod.containers}


def _larger(asked: ResourceList, wanted: ResourceList) -> ResourceList:
    return ResourceList.of(
        {
            resource: max(amount, wanted.get(resource) or 0)
            for resource in RESOURCES
            if (amount := asked.get(resource)) is not None
        }
    )


def still(
    pod: Pod, base: Pod, policy: Policy, targets: Mapping[str, Target], sized: Sized
) -> tuple[Check, Mapping[str, Resources]]:
    """Whether more is wanted for a pod than it has (`base`, see `before`), and what. `targets`: by container name."""
    hold, wants = sized.hold, sized.resources
    if hold is None and kubelet.grows(base, wants):
        return Check(WANTED, Reason.AT_TARGET, True), wants
    if (lacking := _untold(pod, base, policy, targets)) is not None:
        return Check(WANTED, Reason.INSUFFICIENT_HISTORY, False, lacking), {}
    if hold is None or hold.reason not in _UNKNOWN:
        return Check(WANTED, Reason.AT_TARGET, False, "by now the pod has what it needs"), {}
    return Check(WANTED, hold.reason, False, hold.detail, hold.due_at), {}


def _untold(pod: Pod, base: Pod, policy: Policy, targets: Mapping[str, Target]) -> str | None:
    """What is asked for and has no target: nobody knows then whether it is needed."""
    for asked, has in zip(pod.containers, base.containers, strict=True):
        target, entry = targets.get(asked.name), policy.container_policy(asked)
        if target is None or entry is None:
            continue
        for resource, value in ((Resource.CPU, target.cpu), (Resource.MEMORY, target.memory)):
            more = (asked.spec.requests.get(resource) or 0) > (has.spec.requests.get(resource) or 0)
            if more and value is None and resource in entry.controlled:
                return f"container {asked.name}: not known whether it still needs the {resource} that was asked for"
    return None
