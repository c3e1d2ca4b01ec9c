"""The journal of the controller: one log line a turn, one an action or move, and the metrics of turns."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from autoscaler import __version__
from autoscaler.adapters.telemetry.migrations import move_word
from autoscaler.core.actions import Evict, OutcomeKind, Resize, Scale
from autoscaler.core.model import Problem, Resource
from autoscaler.core.plan import Check
from autoscaler.core.problems import NOTES
from autoscaler.core.reasons import Reason
from autoscaler.core.trail import sentence
from autoscaler.ports import Done, Journal, Turn, WakeKind

_PAST = {"Evict": "migrated", "Surge": "surged", "SurgeBack": "scaled back"}
_FINE = frozenset({OutcomeKind.ACCEPTED, OutcomeKind.SUPERSEDED, OutcomeKind.GONE})


class LogJournal:
    """Writes turns and actions to a structured logger. A problem is written when it appears, not every turn."""

    def __init__(self, logger: structlog.stdlib.BoundLogger) -> None:
        self._logger = logger
        self._known: frozenset[Problem] = frozenset()

    def record(self, turn: Turn) -> None:
        for done in turn.done:
            (self._move if done.move else self._action)(done)
        problems = frozenset(turn.plan.problems if turn.plan else ())
        for problem in sorted(problems - self._known, key=lambda p: (p.source, p.reason, p.detail)):
            self._logger.warning("problem", source=problem.source, reason=problem.reason, detail=problem.detail)
        if turn.plan is not None:
            # a turn about a few pods does not see every problem there is
            self._known = problems if turn.wake.kind is WakeKind.TICK else self._known | problems
        self._turn(turn)

    def _turn(self, turn: Turn) -> None:
        facts: dict[str, object] = {
            "turn": turn.number,
            "wake": turn.wake.kind.value,
            "leading": turn.leading,
            "took_s": round(turn.took.total_seconds(), 3),
        }
        if turn.plan is None:
            self._logger.warning("turn", sentence=f"nothing is done: {turn.unavailable}", **facts)
            return
        reasons = Tally(decision.reason.value for decision in turn.plan.decisions)
        outcomes = Tally(done.outcome.kind.value for done in turn.done)
        age = turn.plan.measurement_age
        self._logger.info(
            "turn",
            sentence=summary(turn),
            **facts,
            measurement_age_s=None if age is None else round(age.total_seconds(), 3),
            pods=len(turn.plan.decisions),
            reasons=dict(sorted(reasons.items())),
            outcomes=dict(sorted(outcomes.items())),
            problems=len(turn.plan.problems),
        )

    def _action(self, done: Done) -> None:
        decision = done.decision
        self._done(
            "resize",
            done,
            predicted=decision.prediction.outcome.value,
            changes=changes(decision.action) if decision.action else {},
            because={p.container.name: [sentence(s) for s in p.trail] for p in decision.proposals if p.changed},
        )

    def _move(self, done: Done) -> None:
        move, report = done.decision.move, done.decision.migration
        self._done(
            "migrate",
            done,
            move=None if move is None else move_word(move),
            replicas=move.replicas if isinstance(move, Scale) else None,
            landing=list(move.landing if isinstance(move, Evict) else report.landing if report else ()),
            checks={check.name: in_short(check) for check in (report.checks if report else ())},
        )

    def _done(self, event: str, done: Done, **facts: object) -> None:
        decision, outcome = done.decision, done.outcome
        write = self._logger.info if outcome.kind in _FINE else self._logger.warning
        write(
            event,
            namespace=decision.pod.namespace,
            pod=decision.pod.name,
            uid=decision.pod.uid,
            node=decision.pod.node,
            policy=decision.policy,
            outcome=outcome.kind.value,
            answer=outcome.detail,
            cause=outcome.cause,
            reason=decision.reason.value,
            detail=decision.detail,
            **facts,
            took_s=round(done.took.total_seconds(), 3),
        )


def in_short(check: Check) -> str:
    """`ok: 3 of 4 nodes`, or the reason for which it does not hold: `EvictionBlocked: budget sim allows 0`."""
    return ": ".join(filter(None, ("ok" if check.holds else check.reason.value, check.detail)))


def summary(turn: Turn) -> str:
    """A turn in one sentence: `2 of 12 pods resized, 1 migrated; 9 AtTarget, 1 NoData`."""
    decisions = turn.plan.decisions if turn.plan else ()
    accepted = [done for done in turn.done if done.outcome.kind is OutcomeKind.ACCEPTED]
    rest = Tally(decision.reason.value for decision in decisions if decision.action is None and decision.move is None)
    failed = Tally(done.outcome.kind.value for done in turn.done if done.outcome.kind is not OutcomeKind.ACCEPTED)
    head = f"{sum(not done.move for done in accepted)} of {len(decisions)} pods resized"
    moved = Tally(move_word(done.decision.move) for done in accepted if done.move and done.decision.move is not None)
    head += "".join(f", {moved[word]} {past}" for word, past in _PAST.items() if moved[word])
    if not turn.leading:
        wanted = sum(decision.action is not None for decision in decisions)
        head = f"standing by, the leader is left to resize {wanted} of {len(decisions)} pods"
        if moving := sum(decision.move is not None for decision in decisions):
            head += f" and to move {moving}"
    words = [f"{count} {word}" for word, count in sorted(failed.items()) + sorted(rest.items())]
    return head + (f"; {', '.join(words)}" if words else "")


def changes(action: Resize) -> dict[str, dict[str, str]]:
    """The amounts that an action sets, by container: `{"bridge": {"requests.cpu": "1500m"}}`."""
    return {
        container.name: {
            f"{field}.{resource}": resource.quantity(amount)
            for field, amounts in (("requests", container.change.requests), ("limits", container.change.limits))
            for resource in Resource
            if (amount := amounts.get(resource)) is not None
        }
        for container in action.containers
    }


class MetricsJournal:
    """Counts turns in a registry of its own. Series of closed sets exist from the start, at zero.

    The age of the measurement is NaN until there has been one, for missing is never zero. `leading` is asked when
    metrics are read.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        def named(name: str) -> str:
            return f"bridge_autoscaler_{name}"

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(named(name), text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(named(name), text, labels, registry=registry)

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(named(f"{name}_duration_seconds"), text, registry=registry)

        self._turns = counter("turns", "Turns of the loop, by what woke it.", "wake")
        self._unavailable = counter("turns_unavailable", "Turns in which the cluster could not be observed.")
        self._decisions = counter("decisions", "Decisions about pods, by reason.", "reason")
        self._actions = counter("actions", "Resizes sent, by what came of them.", "outcome")
        self._turn_s = seconds("turn", "How long turns last, actions included.")
        self._action_s = seconds("action", "How long the API server takes to answer a resize.")
        self._age_s = gauge("measurement_age_seconds", "Age of the newest measurement of usage; NaN before the first.")
        self._pods = gauge("pods", "Pods that each policy selects, at the last tick.", "policy")
        self._problems = gauge("problems", "Problems that belong to no single pod, notes left out, at the last tick.")
        gauge("leader", "1 while this replica acts, 0 while it stands by.").set_function(leading)
        gauge("build_info", "Always 1.", "version").labels(__version__).set(1)
        self._age_s.set(float("nan"))
        for kind in WakeKind:
            if kind is not WakeKind.STOP:
                self._turns.labels(kind.value)
        for reason in Reason:
            self._decisions.labels(reason.value)
        for outcome in OutcomeKind:
            self._actions.labels(outcome.value)

    def record(self, turn: Turn) -> None:
        self._turns.labels(turn.wake.kind.value).inc()
        self._turn_s.observe(turn.took.total_seconds())
        for done in turn.done:
            if done.move:
                continue
            self._actions.labels(done.outcome.kind.value).inc()
            self._action_s.observe(done.took.total_seconds())
        if turn.plan is None:
            self._unavailable.inc()
            return
        for decision in turn.plan.decisions:
            self._decisions.labels(decision.reason.value).inc()
        if (age := turn.plan.measurement_age) is not None:
            self._age_s.set(age.total_seconds())
        if turn.wake.kind is WakeKind.TICK:
            self._pods.clear()
            for policy, count in Tally(d.policy for d in turn.plan.decisions if d.policy is not None).items():
                self._pods.labels(policy).set(count)
            self._problems.set(sum(problem.reason not in NOTES for problem in turn.plan.problems))


class Journals:
    """Several journals as one."""

    def __init__(self, *journals: Journal) -> None:
        self._journals = journals

    def record(self, turn: Turn) -> None:
        for journal in self._journals:
            journal.record(turn)
