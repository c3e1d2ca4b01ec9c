"""What the API server's answers to an eviction and to a scale mean: HTTP status and body to an `Outcome`. Pure.

Texts and causes: read off an API server 1.37.
"""

from __future__ import annotations

from autoscaler.adapters.kubernetes.answers import Details, explained, read_status, seconds
from autoscaler.core.actions import Outcome, OutcomeKind

_BUDGET = "DisruptionBudget"  # policy/v1 DisruptionBudgetCause
_SEVERAL = "more than one PodDisruptionBudget"
_OTHER_UID = ("UID in the precondition", "UID in precondition")


def eviction_refusal(code: int, body: bytes, retry_after: str | None = None) -> Outcome:
    """The outcome of an eviction that was answered with anything but 201. `retry_after`: the header, if there is one.

    A budget that does not allow it is `BLOCKED`: it is no trouble of the server's, and passes when pods are healthy.
    """
    status = read_status(body)
    details = status.details or Details()
    blocking = next((cause.message for cause in details.causes or () if cause.reason == _BUDGET), None)
    if code == 429 and blocking is not None:
        return Outcome(OutcomeKind.BLOCKED, blocking or status.message, _BUDGET, seconds(retry_after, details))
    if code == 500 and _SEVERAL in status.message:
        remedy = "leave one PodDisruptionBudget that selects the pod: kubectl get poddisruptionbudgets"
        return Outcome(OutcomeKind.REFUSED, f"{status.message} {remedy}", "SeveralBudgets")
    if code == 404 and not details.name:
        return Outcome(OutcomeKind.REFUSED, f"{status.message}: pods/eviction is not served", "NotServed")
    if code == 409 and any(words in status.message for words in _OTHER_UID):
        return Outcome(OutcomeKind.GONE, "the pod was replaced by another of the same name")
    return explained(code, status, retry_after, folder="rbac/migrate")


def scale_refusal(code: int, body: bytes, retry_after: str | None = None) -> Outcome:
    """The outcome of a scale that was answered with anything but 200. `retry_after`: the header, if there is one."""
    status = read_status(body)
    details = status.details or Details()
    if code == 404 and not details.name:
        return Outcome(OutcomeKind.REFUSED, f"{status.message}: deployments/scale is not served", "NotServed")
    if code == 409 and any(words in status.message for words in _OTHER_UID):
        return Outcome(OutcomeKind.GONE, "the Deployment was replaced by another of the same name")
    return explained(code, status, retry_after, folder="rbac/surge")
