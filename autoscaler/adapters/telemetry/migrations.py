"""Migrations as metrics: steps that were made, pods that wait to be moved, and what became of replacements. No pod has
a series of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from autoscaler.core.actions import Evict, Move, OutcomeKind, ScaleKind
from autoscaler.core.model import PodRef
from autoscaler.core.plan import Decision
from autoscaler.core.reasons import Reason
from autoscaler.ports import Turn, WakeKind

_PREFIX = "bridge_autoscaler"
_STATES = {
    Reason.REPLACING: "replacing",
    Reason.REPLACEMENT_UNSCHEDULED: "unscheduled",
    Reason.REPLACEMENT_NOT_READY: "not_ready",
}
MOVES = ("Evict", "Surge", "SurgeBack")
"""The steps of a migration, as `move_word` calls them."""


def move_word(move: Move) -> str:
    """Which step of a migration it is."""
    if isinstance(move, Evict):
        return "Evict"
    return "Surge" if move.kind is ScaleKind.SURGE else "SurgeBack"


class _Known(NamedTuple):
    """What the newest decision about a pod says of its migration."""

    waits_for: Reason | None
    state: str | None
    draining: bool


_NOTHING = _Known(None, None, False)


class Migrations(Collector):
    """A journal, and the collector of what it knows."""

    def __init__(self) -> None:
        self._moves = Counter({(move, outcome.value): 0 for move in MOVES for outcome in OutcomeKind})
        self._known: dict[PodRef, _Known] = {}

    def record(self, turn: Turn) -> None:
        for done in turn.done:
            if done.move and done.decision.move is not None:
                self._moves[move_word(done.decision.move), done.outcome.kind.value] += 1
        if turn.plan is None:
            return
        if turn.wake.kind is WakeKind.TICK:
            self._known = {}
        for ref in turn.wake.pods:
            self._known.pop(ref, None)  # of one that has gone there is no decision
        for decision in turn.plan.decisions:
            self._known.pop(decision.pod.ref, None)
            if (known := _known(decision, turn.plan.taken_at)) != _NOTHING:
                self._known[decision.pod.ref] = known

    def collect(self) -> Iterator[Metric]:
        moves = CounterMetricFamily(
            f"{_PREFIX}_moves", "Steps of migrations, by what came of them.", labels=["kind", "outcome"]
        )
        for labels, count in self._moves.items():
            moves.add_metric(labels, count)
        yield moves
        known = list(self._known.values())
        waiting = GaugeMetricFamily(
            f"{_PREFIX}_migrations_waiting",
            "Pods past the deadline of their resize that are not moved, by the reason.",
            labels=["reason"],
        )
        for reason, count in Counter(one.waits_for for one in known if one.waits_for is not None).items():
            waiting.add_metric([reason], count)
        yield waiting
        replacements = GaugeMetricFamily(
            f"{_PREFIX}_replacements", "Pods that replace another and are not ready, by state.", labels=["state"]
        )
        states = Counter(one.state for one in known)
        for state in _STATES.values():
            replacements.add_metric([state], states[state])
        yield replacements
        yield GaugeMetricFamily(
            f"{_PREFIX}_draining_pods",
            "Pods that should take no new sessions because they are going to be moved.",
            value=sum(one.draining for one in known),
        )


def _known(decision: Decision, now: datetime) -> _Known:
    draining = decision.drain is not None and decision.drain.telling
    return _Known(_waits_for(decision, now), _STATES.get(decision.reason), draining)


def _waits_for(decision: Decision, now: datetime) -> Reason | None:
    report = decision.migration
    if report is None or now < report.due_at or decision.action is not None or decision.move is not None:
        return None
    blocked = report.blocked
    return decision.reason if blocked is None else blocked.reason
