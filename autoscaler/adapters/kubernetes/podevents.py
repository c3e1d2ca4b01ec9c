"""What a turn says about pods, as Kubernetes events: which, in which words, and which of them are the same. Pure.

The kubelet writes its own events about a resize (ResizeStarted, ResizeCompleted, ResizeDeferred, …); these are about
what was asked, what the API server answered, and why a pod is held where a person may have to do something.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from autoscaler.core.actions import AskKind, OutcomeKind
from autoscaler.core.model import RESOURCES, Pod, PodRef, Resource, Resources
from autoscaler.core.plan import Decision, Proposal
from autoscaler.core.reasons import Reason
from autoscaler.ports import Done

CONTROLLER = "bridge-autoscaler"
_MAX_NOTE = 1024  # bytes; events.k8s.io/v1, Event.note
_MAX_NAME = 230  # a name has at most 253 characters; the rest is for the key
_NUMBERS = re.compile(r"\d[\w.:+%-]*")
_RUNGS = frozenset({AskKind.FIT, AskKind.REVERT})
_NORMAL, _WARNING = "Normal", "Warning"


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One event on one incarnation of a pod. `at` is the API server's time. `topic`: what makes it the same again."""

    pod: PodRef
    uid: str
    at: datetime
    type: str
    reason: str
    action: str
    note: str
    topic: str

    @staticmethod
    def asked(done: Done, at: datetime) -> PodEvent:
        """Another size was asked for, and the API server stored it."""
        decision = done.decision
        # of other asks the sizes are all that the detail says
        why = decision.detail if decision.action is not None and decision.action.kind in _RUNGS else ""
        words = ". ".join(filter(None, (_sizes(decision), why)))
        note = f"{words}. {decision.reason.meaning} Expected: {decision.prediction.outcome}."
        return _event(decision.pod, at, _NORMAL, str(decision.reason), "Resize", note, words)

    @staticmethod
    def moved(done: Done, at: datetime) -> PodEvent:
        """A step of the pod's move was made: for which size, where to and why, and what became of its sessions."""
        decision = done.decision
        what = ", ".join(filter(None, (_sizes(decision), decision.detail)))
        words = ". ".join(filter(None, (what, _sessions(decision), decision.reason.meaning)))
        return _event(decision.pod, at, _NORMAL, str(decision.reason), "Migrate", words, words)

    @staticmethod
    def done(done: Done, at: datetime) -> PodEvent:
        """What was decided was done."""
        return PodEvent.moved(done, at) if done.move else PodEvent.asked(done, at)

    @staticmethod
    def answered(done: Done, at: datetime) -> PodEvent:
        """The API server did something else than what it was asked for: its word and its reasons."""
        decision, outcome = done.decision, done.outcome
        note = f"{decision.reason} ({decision.detail}) was not done as asked: {outcome.detail}"
        action = "Migrate" if done.move else "Resize"
        return _event(decision.pod, at, _WARNING, str(outcome.kind), action, note, f"{outcome.cause} {note}")

    @staticmethod
    def held(decision: Decision, at: datetime) -> PodEvent:
        """Nothing is done about a pod, and a person may want to know."""
        reason = decision.reason
        note = " ".join(filter(None, (f"{decision.detail}." if decision.detail else "", reason.meaning, reason.remedy)))
        return _event(decision.pod, at, _WARNING, str(reason), "Hold", note, decision.detail)

    @property
    def key(self) -> tuple[str, str, str]:
        """Two events with the same key say the same thing: the pod, the reason, and the detail without its numbers."""
        return self.uid, self.reason, _NUMBERS.sub("#", self.topic)

    def body(self, instance: str) -> dict[str, Any]:
        """The JSON of it (events.k8s.io/v1). `instance`: who reports.

        The name follows from the key and the hour: another writer, or this one after a restart, is told that the event
        is there already.
        """
        hour = int(self.at.timestamp()) // 3600
        digest = hashlib.sha256("\0".join((*self.key, str(hour))).encode()).hexdigest()[:16]
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{self.pod.name[:_MAX_NAME].rstrip('-.')}.{digest}",
                "namespace": self.pod.namespace,
            },
            "eventTime": self.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": CONTROLLER,
            "reportingInstance": instance[:128],
            "action": self.action,
            "reason": self.reason,
            "type": self.type,
            "note": self.note,
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": self.pod.namespace,
                "name": self.pod.name,
                "uid": self.uid,
            },
        }


OUTCOMES: Mapping[OutcomeKind, Callable[[Done, datetime], PodEvent]] = {
    OutcomeKind.ACCEPTED: PodEvent.done,
    OutcomeKind.ALTERED: PodEvent.answered,
    OutcomeKind.REFUSED: PodEvent.answered,
    OutcomeKind.FORBIDDEN: PodEvent.answered,
    OutcomeKind.UNKNOWN: PodEvent.answered,
}
"""Outcomes that become an event. The others pass by themselves: the next turn decides anew. So does a Blocked eviction,
and the hold that follows, EvictionBlocked, is told like any other: once an hour at most, however often it is tried."""


def _event(pod: Pod, at: datetime, type_: str, reason: str, action: str, note: str, topic: str) -> PodEvent:
    return PodEvent(pod.ref, pod.uid, at, type_, reason, action, _cut(note), topic)


def _cut(note: str) -> str:
    raw = note.encode()
    return note if len(raw) <= _MAX_NOTE else raw[: _MAX_NOTE - 3].decode(errors="ignore") + "..."


def _sessions(decision: Decision) -> str:
    """What was known of the sessions of a pod that is evicted: none, or that they were waited for long enough."""
    checks = decision.migration.checks if decision.migration is not None and decision.reason is Reason.MIGRATE else ()
    return next((check.detail for check in checks if check.name == "sessions"), "")


def _sizes(decision: Decision) -> str:
    reverts = decision.action is not None and decision.action.kind is AskKind.REVERT
    # a pod that is moved was asked for its size long ago
    found = [one for one in decision.proposals if one.changed or decision.move is not None]
    return ", ".join(words for one in found if (words := _change(one, reverts=reverts)))


def _change(proposal: Proposal, *, reverts: bool) -> str:
    """`app: cpu 500m -> 800m (limit 1 -> 1600m)`: from what is in force to what is asked for; of a revert, from what
    was asked for to what is in force."""
    old, new = proposal.container.spec if reverts else proposal.container.in_force, proposal.proposed
    found = [words for resource in RESOURCES if (words := _amounts(old, new, resource))]
    return f"{proposal.container.name}: {', '.join(found)}" if found else ""


def _amounts(old: Resources, new: Resources, resource: Resource) -> str:
    request = _step(resource, old.requests.get(resource), new.requests.get(resource))
    limit = _step(resource, old.limits.get(resource), new.limits.get(resource))
    if request:
        return f"{resource} {request}" + (f" (limit {limit})" if limit else "")
    return f"{resource} limit {limit}" if limit else ""


def _step(resource: Resource, old: int | None, new: int | None) -> str:
    if old is None or new is None or old == new:
        return ""
    return f"{resource.quantity(old)} -> {resource.quantity(new)}"
