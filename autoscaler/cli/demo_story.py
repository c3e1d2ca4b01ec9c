"""What happened in the demo, told from its turns: a line for each event, and the summary at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from autoscaler.core.actions import OutcomeKind
from autoscaler.core.model import Pod, PodRef, Resource, Resources
from autoscaler.core.plan import Decision, PredictedOutcome
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import Phase, phase_of
from autoscaler.ports import Done, Turn

_PASSING = frozenset(
    {
        Reason.AT_TARGET,
        Reason.CHANGE_TOO_SMALL,
        Reason.COOLDOWN,
        Reason.RESIZE_PROPOSED,
        Reason.RESIZE_IN_PROGRESS,
    }
)
"""Holds that come and go with every resize: not worth a line."""


@dataclass(slots=True)
class Account:
    """What happened to one pod so far."""

    first: Pod
    settled: Pod
    decision: Decision
    reason: Reason | None = None
    phase: Phase = Phase.SETTLED
    resizes: int = 0
    deferred: list[tuple[datetime, str]] = field(default_factory=list)  # since when, and how it ended ("": not yet)

    @property
    def pod(self) -> Pod:
        return self.decision.pod


class Story:
    """Follows the turns and tells what is new in each. What is shown comes from here alone."""

    def __init__(self) -> None:
        self.accounts: dict[PodRef, Account] = {}
        self.began_at: datetime | None = None
        self.now: datetime | None = None

    def tell(self, turn: Turn) -> list[str]:
        """The lines that a turn is worth."""
        if turn.plan is None:
            return [f"turn {turn.number}: {turn.unavailable}"]
        self.now = turn.plan.taken_at
        self.began_at = self.began_at or self.now
        lines = [line for decision in turn.plan.decisions for line in self._decision(decision, self.now)]
        lines += [line for done in turn.done for line in self._action(done)]
        return [f"{self.now:%H:%M:%S} {line}" for line in lines]

    def _decision(self, decision: Decision, now: datetime) -> Iterator[str]:
        pod, name = decision.pod, decision.pod.name
        account = self.accounts.get(pod.ref)
        if account is None:
            account = self.accounts[pod.ref] = Account(pod, pod, decision)
            known, old = None, pod
        else:
            known, old = account.decision.reason, account.pod
        account.decision = decision
        for before, after in zip(old.containers, pod.containers, strict=True):
            if after.last_terminated is not None and after.last_terminated != before.last_terminated:
                yield f"{name} container {after.name} stopped: {after.last_terminated.reason}"
        phase = phase_of(pod).phase
        if phase is Phase.SETTLED and account.phase is not Phase.SETTLED:
            gave_up = account.reason is Reason.REVERT
            account.resizes += not gave_up
            how = "given up" if gave_up else _how(account, pod, now)
            yield f"{name} {account.reason or 'Resize'}: {how}: {_changes(account.settled, pod)}"
            account.settled = pod
        self._deferred(account, phase, now)
        account.phase = phase
        if decision.action is None and decision.reason is not known and decision.reason not in _PASSING:
            yield f"{name} held: {decision.reason}: {decision.detail or decision.reason.meaning}"

    def _action(self, done: Done) -> Iterator[str]:
        """A line for an ask that will not simply be done in a second; the others get theirs when they are."""
        decision, outcome = done.decision, done.outcome
        self.accounts[decision.pod.ref].reason = decision.reason
        accepted = outcome.kind is OutcomeKind.ACCEPTED
        if accepted and decision.prediction.outcome is PredictedOutcome.IN_PLACE:
            return
        result = f"asked, predicted {decision.prediction.outcome}" if accepted else f"{outcome.kind}: {outcome.detail}"
        yield f"{decision.pod.name} {decision.reason}: {result}: {decision.detail}"

    def _deferred(self, account: Account, phase: Phase, now: datetime) -> None:
        waiting = account.deferred and not account.deferred[-1][1]
        if phase is Phase.DEFERRED and not waiting:
            account.deferred.append((now, ""))
        elif phase is not Phase.DEFERRED and waiting:
            end = "until it was given up" if account.reason is Reason.REVERT else "until the node had room"
            account.deferred[-1] = (account.deferred[-1][0], f"to {now:%H:%M}, {end}")

    def summary(self) -> list[str]:
        """What was resized, deferred and held, each with its reason."""
        if self.began_at is None or self.now is None:
            return ["Nothing has happened yet."]
        accounts = [account for _, account in sorted(self.accounts.items())]
        resized = [account for account in accounts if account.resizes]
        deferred = [account for account in accounts if account.deferred]
        held = [a for a in accounts if a.decision.reason not in _PASSING and a.decision.action is None]
        held = [account for account in held if account.phase is not Phase.DEFERRED]
        resizes, restarts = sum(a.resizes for a in resized), sum(_restarts(a) for a in accounts)
        same = sum(a.pod.qos_class is a.first.qos_class and a.pod.uid == a.first.uid for a in accounts)
        span = f"{self.began_at:%H:%M} to {self.now:%H:%M}, {_span(self.now - self.began_at)}"
        return [
            f"Summary of {span} of recorded usage: {resizes} resizes in place, {restarts} container restarts,"
            f" {same} of {len(accounts)} pods with the uid and the QoS class they began with.",
            *_section("Resized", [(a, _resized(a)) for a in resized]),
            *_section("Deferred", [(a, _waited(a)) for a in deferred]),
            *_section("Held", [(a, f"{a.decision.reason}: {_why(a.decision)}") for a in held]),
        ]


def _section(title: str, entries: list[tuple[Account, str]]) -> list[str]:
    pods = "1 pod" if len(entries) == 1 else f"{len(entries)} pods"
    return [f"{title}: {pods}", *(f"  {account.pod.name:<10} {text}" for account, text in entries)]


def _resized(account: Account) -> str:
    times = "once" if account.resizes == 1 else f"{account.resizes} times"
    return f"{times}, {account.pod.qos_class}: {_changes(account.first, account.pod)}"


def _waited(account: Account) -> str:
    since, ended = account.deferred[-1]
    if ended:
        return f"from {since:%H:%M} {ended}"
    return f"since {since:%H:%M}: {phase_of(account.pod).detail}"


def _why(decision: Decision) -> str:
    return f"{decision.reason.meaning} {decision.detail}".strip()


def _how(account: Account, pod: Pod, now: datetime) -> str:
    """`resized in place in 0.8 s`."""
    counts = [sum(container.restart_count for container in each.containers) for each in (account.settled, pod)]
    way = "in place" if counts[0] == counts[1] else "by a restart"
    took = "" if pod.newest_ask is None else f" in {_span(now - pod.newest_ask.at)}"
    return f"resized {way}{took}"


def _restarts(account: Account) -> int:
    before = sum(container.restart_count for container in account.first.containers)
    return sum(container.restart_count for container in account.pod.containers) - before


def _span(span: timedelta) -> str:
    if span < timedelta(minutes=1):
        return f"{span.total_seconds():.1f} s"
    hours, minutes = divmod(round(span.total_seconds() / 60), 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m"


def _changes(old: Pod, new: Pod) -> str:
    """What is in force now instead of before, as `app cpu 1/2 -> 500m/1`."""
    changes = []
    for before, after in zip(old.containers, new.containers, strict=True):
        for resource in Resource:
            was, is_now = sides(before.in_force, resource), sides(after.in_force, resource)
            if was != is_now:
                changes.append(f"{after.name} {resource} {was} -> {is_now}")
    return ", ".join(changes) or "back at the size it had"


def sides(resources: Resources, resource: Resource) -> str:
    """`request/limit`, one number where both are equal, `-` for what is absent."""
    request, limit = resources.requests.get(resource), resources.limits.get(resource)
    texts = ["-" if amount is None else resource.quantity(amount) for amount in (request, limit)]
    return texts[0] if request == limit else "/".join(texts)
