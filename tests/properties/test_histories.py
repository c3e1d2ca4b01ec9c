"""Whatever happens in 8 minutes to a cluster and to the controller: nine promises are kept, of (a) to (i).

A failure prints the seed, and the smallest part of its history that still fails, ready to be added to `FOUND`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import zip_longest

import pytest

from autoscaler.core import kubelet
from autoscaler.core.actions import OURS, AskKind, Move, Outcome, Resize
from autoscaler.core.model import RESOURCES, ClusterSnapshot, Container, Node, Pod, QoSClass, Resource, Resources
from autoscaler.core.pairing import qos_class
from autoscaler.core.plan import Decision, PredictedOutcome
from autoscaler.core.policy import Config, Strategy
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import PENDING, Phase, phase_of
from autoscaler.core.rooms import Rooms
from autoscaler.ports import Turn
from autoscaler.simulator.admission import merged
from tests.properties.events import Event, History, Kind, history, smallest
from tests.properties.lives import TICK, Asked, Moved, Run, Troubles
from tests.properties.move_promises import Moves, left_behind
from tests.properties.storm import CONFIG, POLICY, START, Storm, config_of

HISTORIES = 1000
PARTS = 20

_SLACK = timedelta(seconds=1)
_JUST = timedelta(seconds=20)
_MAKES_UP = dict.fromkeys((Kind.BLIND, Kind.ALLOCATABLE), TICK + _SLACK) | {
    Kind.LOSE: timedelta(seconds=5) + _SLACK,
    # a server that answers with the same trouble each time is asked again after 30 s at most
    **dict.fromkeys((Kind.CONFLICT, Kind.THROTTLE), timedelta(seconds=30) + _SLACK),
}
_PATIENCE = {Phase.DEFERRED: POLICY.fallback.after, Phase.INFEASIBLE: POLICY.fallback.infeasible_after}
_ACTS = frozenset({Reason.INCREASE, Reason.DECREASE, Reason.REBALANCE, Reason.FIT, Reason.REVERT})
_REST: Mapping[Phase, Set[Reason]] = {phase: frozenset() for phase in Phase} | {
    Phase.SETTLED: frozenset(Reason) - _ACTS,
    Phase.DELETING: frozenset({Reason.REPLACING}),
    Phase.DEFERRED: frozenset(
        {Reason.RESIZE_DEFERRED, Reason.KUBELET_NOT_RETRYING, Reason.EXCEEDS_NODE, Reason.OTHER_WRITER}
    ),
    Phase.INFEASIBLE: frozenset({Reason.RESIZE_INFEASIBLE, Reason.OTHER_WRITER}),
    Phase.ERROR: frozenset({Reason.RESIZE_ERROR, Reason.OTHER_WRITER}),
}
"""How a pod may rest: settled, or waiting, with the reason why."""

_STAYS = frozenset(
    {
        *(Reason.NO_LANDING_NODE, Reason.NEEDS_NEW_NODE, Reason.REPLACEMENT_TOO_SMALL, Reason.EVICTION_BLOCKED),
        *(Reason.POD_TOO_YOUNG, Reason.SIBLING_UNAVAILABLE, Reason.DRAINING, Reason.GATE_UNKNOWN, Reason.SURGING),
        *(Reason.SURGE_REFUSED, Reason.SURGE_FAILED, Reason.DISRUPTION_BUDGET, Reason.EVICTION_REFUSED),
        *(Reason.SURGE, Reason.SURGE_BACK, Reason.MIGRATE),
    }
)
"""Why a pod may wait past its deadline that is going to be moved."""

Size = tuple[tuple[str, int | None, int | None], ...]


def _size(pod: Pod, action: Resize | None = None) -> Size:
    """The requests that a pod has in its spec, or would have."""
    changes = {} if action is None else {change.name: change.change for change in action.containers}
    requests = {
        c.name: merged(c.spec, changes[c.name]).requests if c.name in changes else c.spec.requests
        for c in pod.containers
    }
    return tuple((name, amounts.cpu, amounts.memory) for name, amounts in requests.items())


@dataclass
class Promises:
    """Notes when a promise is broken."""

    config: Config = CONFIG
    broken: list[str] = field(default_factory=list)
    classes: dict[str, QoSClass] = field(default_factory=dict)
    infeasible: dict[tuple[str, str | None, Size], int] = field(default_factory=dict)  # the deaths until then
    repeated: dict[tuple[str, str | None, Size], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.moves = Moves(self.config, self.broken)

    def moved(self, storm: Storm, snapshot: ClusterSnapshot, move: Move, outcome: Outcome) -> None:
        """(g) and (h), about moves."""
        self.moves.moved(storm, snapshot, move, outcome)

    def state(self, storm: Storm, troubles: Troubles) -> None:
        """(a) the QoS class never changes; (d) what is given up is reverted in time."""
        for pod in storm.pods():
            if (found := qos_class(pod, {})) is not self.classes.setdefault(pod.name, pod.qos_class):
                self.broken.append(f"(a) {pod.name} became {found}")
            if not pod.conditions:
                continue
            report, ask = phase_of(pod), pod.newest_ask
            if (patience := _PATIENCE.get(report.phase)) is None or ask is None or pod.deleting:
                continue
            if ask.manager not in OURS:
                patience = max(patience, POLICY.stability.other_writer_hold)
            if ask.manager == AskKind.REVERT:  # reverted already: it waits for room that a refused decrease gave up
                continue
            if storm.history.moving:  # it waits to be moved, as (c) and (g) have it
                continue
            if storm.too_small(pod):  # the server refuses to put back what is in force
                continue
            pending = pod.condition(PENDING)
            due_at = max(ask.at + patience, pending.last_transition_at or ask.at) if pending else ask.at + patience
            # after a trouble it is made up for
            spans = ((since, until + _MAKES_UP.get(kind, _SLACK)) for since, until, kind in troubles.windows)
            if storm.now > due_at + _SLACK and not any(since <= storm.now and due_at <= end for since, end in spans):
                self.broken.append(f"(d) {pod.name} is {report.phase} after its deadline {due_at:%H:%M:%S}")

    def seen(self, snapshot: ClusterSnapshot, deaths: int) -> None:
        for pod in snapshot.pods.values():
            if pod.conditions and phase_of(pod).phase is Phase.INFEASIBLE:
                self.infeasible.setdefault((pod.uid, pod.node, _size(pod)), deaths)

    def stored(self, pod: Pod, action: Resize, deaths: int) -> None:
        """(e) what was infeasible is not asked again, but for once after a restart."""
        key = pod.uid, pod.node, _size(pod, action)
        if action.kind is AskKind.REVERT or key not in self.infeasible:
            return
        self.repeated[key] = self.repeated.get(key, 0) + 1
        if self.repeated[key] > deaths - self.infeasible[key]:
            self.broken.append(f"(e) {pod.name} is asked again for {key[2]}, which was infeasible")

    def turn(self, turn: Turn, snapshot: ClusterSnapshot) -> None:
        """(b) the room of a node is granted once, and budgets are not exceeded."""
        acting = [d for d in turn.plan.decisions if d.action is not None] if turn.plan is not None else []
        asking = [d for d in acting if d.action is not None and d.action.kind is not AskKind.REVERT]
        if not asking:
            return
        for name, node in snapshot.nodes.items():
            here = [d for d in asking if d.pod.node == name]
            self._room(node, here, snapshot)
        restarting = [d.pod for d in asking if kubelet.restarted_by(d.pod, _proposed(d))]
        # what others restart, and a grant that only takes effect as a revert follows it, is not charged
        asked = [p for p in snapshot.pods.values() if p.newest_ask is not None]
        ours = [p for p in asked if p.newest_ask is not None and p.newest_ask.manager in OURS - {AskKind.REVERT}]
        down = [p for p in ours if any(map(_restarts, p.containers)) and p not in restarting]
        if restarting and len(restarting) + len(down) > self.config.budgets.max_disruptions_per_namespace:
            names = ", ".join(pod.name for pod in (*restarting, *down))
            self.broken.append(f"(b) restarted at the same time: {names}")

    def _room(self, node: Node, asking: Sequence[Decision], snapshot: ClusterSnapshot) -> None:
        waiting = len(Rooms(snapshot).unaccepted(node.name))
        more, raised = dict.fromkeys(RESOURCES, 0), [_raised(decision) for decision in asking]
        for decision, raises in zip(asking, raised, strict=True):
            if decision.prediction.outcome is PredictedOutcome.DEFERRED:
                waiting += any(raises.values())
                if any(raises.values()) and waiting > self.config.budgets.max_in_flight_per_node:
                    self.broken.append(f"(b) {decision.pod.name} waits for room as one of {waiting} on {node.name}")
            else:
                more = {resource: more[resource] + raises[resource] for resource in RESOURCES}
        taken = kubelet.allocated_on(pod for pod in snapshot.pods.values() if pod.node == node.name)
        for resource, amount in more.items():
            if amount and (taken.get(resource) or 0) + amount > (node.allocatable.get(resource) or 0):
                self.broken.append(f"(b) {node.name}: {amount} {resource} more granted than there is room for")


def _proposed(decision: Decision) -> dict[str, Resources]:
    return {proposal.container.name: proposal.proposed for proposal in decision.proposals}


def _raised(decision: Decision) -> dict[Resource, int]:
    """How much more than its node counts for it already a decision asks for."""
    wants = kubelet.proposed_footprint(decision.pod, _proposed(decision))
    has = kubelet.counted(decision.pod)
    return {resource: max((wants.get(resource) or 0) - (has.get(resource) or 0), 0) for resource in RESOURCES}


def _restarts(container: Container) -> bool:
    """Whether a resize has stopped the container, and it does not run yet."""
    ended = container.last_terminated
    return not container.running and ended is not None and ended.reason == "Completed"


def broken(found: History) -> list[str]:
    """The promises that a history breaks, in words."""
    promises = Promises(config_of(found))
    run = asyncio.run(Run(found, True, promises).live())
    # (c) in the end every pod is settled, or held with a reason; or has just been asked
    last = {d.pod.uid: d for turn in run.turns if turn.plan is not None for d in turn.plan.decisions}
    for pod in run.storm.pods():
        phase, decision = phase_of(pod).phase, last.get(pod.uid)
        asked_at = pod.newest_ask.at if pod.newest_ask is not None else pod.created_at or START
        if run.storm.now - asked_at <= _JUST:
            continue
        reason = None if decision is None else decision.reason
        stays = found.moving and phase in _PATIENCE and reason in _STAYS
        if reason not in _REST[phase] and not stays:
            promises.broken.append(f"(c) {pod.name} ends {phase}, {reason}")
    promises.broken += left_behind(run.storm, promises.config)
    if found.calm:  # (f) with restarts all is as without, where nothing was refused that a restart would ask again
        without = asyncio.run(Run(found, False, Promises(config_of(found))).live())
        for one, other in zip_longest([*_stored(run), *run.moved], [*_stored(without), *without.moved]):
            if one != other:
                promises.broken.append(f"(f) with restarts {one}, without {other}")
                break
    return promises.broken


def _stored(run: Run) -> list[Asked | Moved]:
    return sorted(run.asked, key=lambda asked: (asked.at, asked.uid))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_promises_are_kept_in_random_histories(part: int) -> None:
    for seed in range(part, HISTORIES, PARTS):
        found = history(seed)
        assert len(found.events) >= 50
        if words := broken(found):
            pytest.fail(f"seed {seed}: {words[0]}\nsmallest: {smallest(found, lambda part: bool(broken(part)))!r}")


@pytest.mark.slow
def test_pods_do_move_in_random_histories() -> None:
    """Promises about moves would be kept by moving nothing."""
    evicted, surged = Counter[Strategy](), 0
    for seed in [seed for seed in range(60) if history(seed).moving]:
        found = history(seed)
        run = asyncio.run(Run(found, True, Promises(config_of(found))).live())
        strategy = run.config.policies[0].fallback.migration.strategy
        evicted[strategy] += sum(moved.replicas is None for moved in run.moved)
        surged += sum(moved.replicas is not None for moved in run.moved)
    assert evicted[Strategy.EVICT] >= 5
    assert evicted[Strategy.SURGE] >= 5
    assert surged >= 10


FOUND = [
    History(  # a container that restarts put off the deadline
        53,
        False,
        (
            Event(207, Kind.USER, "c", 1430, 877),
            Event(225, Kind.BLIND, seconds=86),
            Event(267, Kind.TARGET, "c", 210, 1479),
            Event(339, Kind.USAGE, "c", memory=2133),
        ),
    ),
    History(  # one refusal was forgotten over another
        35, False, (Event(41, Kind.TARGET, "c", 3080, 3059), Event(130, Kind.USER, "c", 2860, 2169))
    ),
    History(  # a request above its limit was put back
        434,
        True,
        (
            Event(50, Kind.ALLOCATABLE, "n1", 7700, 15360),
            Event(91, Kind.TARGET, "a", 2310, 3417),
            Event(149, Kind.TARGET, "b", 3570, 221),
            Event(190, Kind.USAGE, "b", memory=1932),
            Event(222, Kind.TARGET, "a", 3400, 1037),
            Event(230, Kind.USER, "b", 330, 341),
            Event(262, Kind.USAGE, "b", memory=821),
        ),
    ),
    History(  # a surge that failed took its new pod away, of whose sessions nobody knew
        311,
        False,
        (
            Event(273, Kind.GATE, "c", number=-1),
            Event(358, Kind.DELETE, "c"),
            Event(473, Kind.USER, "c", 750, 1213),
        ),
        True,
    ),
    History(  # the same, with sessions
        646,
        True,
        (
            Event(30, Kind.GATE, "c", number=3),
            Event(104, Kind.TARGET, "a", 2410, 1945),
            Event(130, Kind.USAGE, "b", memory=1307),
            Event(141, Kind.ARRIVE, "n1", 800, 949),
            Event(169, Kind.USER, "a", 3110, 1610),
            Event(192, Kind.TARGET, "c", 1040, 3597),
            Event(220, Kind.TARGET, "c", 2970, 1811),
        ),
        True,
    ),
]
"""Small histories that once broke a promise, each for the reason it says."""


@pytest.mark.parametrize("found", FOUND, ids=lambda found: f"seed {found.seed}")
def test_what_once_broke_a_promise(found: History) -> None:
    assert not broken(found)
