"""PodDisruptionBudgets of a simulated cluster: their status, and what the Eviction API says because of them. Pure.

Source: pkg/controller/disruption and pkg/registry/core/pod/storage/eviction.go of Kubernetes 1.37. Of a budget
`minAvailable` as a number is modelled, and of its controller that it is never behind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from autoscaler.core.actions import Outcome, OutcomeKind
from autoscaler.core.model import Pod
from autoscaler.core.scheduling import DisruptionBudget

_NOT_CHARGED = frozenset({"Pending", "Succeeded", "Failed"})


def counted(budget: DisruptionBudget, pods: Iterable[Pod]) -> DisruptionBudget:
    """The budget with the status that its controller gives it; `desired` stays, which is its `minAvailable`."""
    mine = [pod for pod in pods if _matches(budget, pod) and pod.phase not in ("Succeeded", "Failed")]
    healthy = sum(pod.ready and not pod.deleting for pod in mine)
    allowed = max(healthy - budget.desired, 0) if mine else 0
    return replace(budget, allowed=allowed, healthy=healthy, expected=len(mine))


def objection(pod: Pod, budgets: Iterable[DisruptionBudget], pods: Collection[Pod]) -> Outcome | None:
    """What the Eviction API answers where it does not evict a pod."""
    if pod.phase in _NOT_CHARGED or pod.deleting:
        return None
    match [counted(budget, pods) for budget in budgets if _matches(budget, pod)]:
        case []:
            return None
        case [budget]:
            return _refused(pod, budget)
        case _:
            words = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            return Outcome(OutcomeKind.REFUSED, words, "SeveralBudgets")


def _refused(pod: Pod, budget: DisruptionBudget) -> Outcome | None:
    if not pod.ready and (budget.always_allow or budget.healthy >= budget.desired > 0):
        return None
    if not budget.current:
        words = f"The disruption budget {budget.name} is still being processed by the server."
        return Outcome(OutcomeKind.BLOCKED, words, "DisruptionBudget", 10)
    if budget.allowed > 0:
        return None
    words = (
        f"The disruption budget {budget.name} needs {budget.desired} healthy pods and has {budget.healthy} currently"
    )
    return Outcome(OutcomeKind.BLOCKED, words, "DisruptionBudget")


def _matches(budget: DisruptionBudget, pod: Pod) -> bool:
    return budget.namespace == pod.namespace and budget.selector is not None and budget.selector.matches(pod.labels)
