"""How the loop moves pods: one after the other, each decided again right before, and what it says of sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from autoscaler.core.actions import Evict, Move, Outcome, OutcomeKind, Scale
from autoscaler.core.model import ClusterSnapshot, PodRef
from autoscaler.core.plan import Drain, Gate
from autoscaler.core.policy import Strategy
from autoscaler.core.reasons import Reason
from autoscaler.loop import Loop
from autoscaler.ports import Turn, Unavailable, Wake, WakeKind
from tests.build import NOW, config, container, measurements, node
from tests.core.migrations import (
    SCENE,
    WANTED,
    WEB,
    Scene,
    drained,
    filler,
    gate,
    moving,
    newcomer,
    overdue,
    surged,
    surging,
    web,
    workload,
)
from tests.test_loop import TICK, FakeClock, FakeCluster, FakeJournal, FakeMetrics


@dataclass
class MovingCluster(FakeCluster):
    """Notes what is moved. `answers`: one for each move, the last for ever."""

    answers: list[Outcome] = field(default_factory=lambda: [Outcome(OutcomeKind.ACCEPTED)])
    moved: list[Move] = field(default_factory=list)

    async def move(self, move: Move) -> Outcome:
        self.moved.append(move)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@dataclass
class FakeSessions:
    """Knows what it is told to know, and notes what is followed."""

    known: Mapping[PodRef, Gate] = field(default_factory=dict)
    followed: list[tuple[Mapping[PodRef, Drain], bool]] = field(default_factory=list)

    def follow(self, drains: Mapping[PodRef, Drain], *, telling: bool) -> None:
        self.followed.append((drains, telling))

    def latest(self) -> Mapping[PodRef, Gate]:
        return self.known


class Following:
    """Another replica leads."""

    def leading(self) -> bool:
        return False


class Stage:
    """A loop over what scenes show, one after the other."""

    def __init__(
        self, scene: Scene, *, shows: Sequence[ClusterSnapshot | Unavailable] = (), wakes: Sequence[Wake] = ()
    ):
        self.cluster = MovingCluster(list(shows) or [scene.snapshot()])
        self.clock, self.journal, self.sessions = FakeClock(list(wakes)), FakeJournal(), FakeSessions(scene.gates)
        self.parts = (self.cluster, FakeMetrics(measurements(scene.pods)), self.clock, self.journal)
        self.config: Callable[[], object] = scene.settings
        self.loop = Loop(*self.parts, scene.settings, sessions=self.sessions)

    async def run(self) -> list[Turn]:
        await self.loop.run()
        return self.journal.turns


async def test_a_move_is_made_and_recorded() -> None:
    stage = Stage(SCENE)
    (turn,) = await stage.run()
    assert stage.cluster.moved == [Evict(overdue().ref, "uid-sim-0", "7", ("node-b",))]
    assert [(done.move, done.outcome.kind) for done in turn.done] == [(True, OutcomeKind.ACCEPTED)]


async def test_room_that_vanishes_between_the_plan_and_the_eviction_stops_it() -> None:
    full = replace(SCENE, pods=(*SCENE.pods, filler("node-b"))).snapshot()
    stage = Stage(SCENE, shows=[SCENE.snapshot(), full])
    (turn,) = await stage.run()
    assert (stage.cluster.moved, turn.done) == ([], ())


async def test_a_cluster_that_goes_out_of_sight_stops_it() -> None:
    stage = Stage(SCENE, shows=[SCENE.snapshot(), Unavailable("away")])
    await stage.run()
    assert stage.cluster.moved == []


async def test_a_pod_that_has_been_resized_meanwhile_stays() -> None:
    grown = replace(SCENE, pods=(overdue(conditions=(), generation=2), filler(cpu="1"))).snapshot()
    stage = Stage(SCENE, shows=[SCENE.snapshot(), grown])
    await stage.run()
    assert stage.cluster.moved == []


async def test_what_one_move_has_done_counts_for_the_next() -> None:
    """Both fit the budget of one when they are looked at alone."""
    pods = tuple(overdue(f"s{i}-0", workload=f"StatefulSet/s{i}", owner=f"StatefulSet/s{i}") for i in range(2))
    sets = tuple(workload(f"StatefulSet/s{i}") for i in range(2))
    scene = Scene((*pods, filler(cpu="12")), (node(), node("node-b", "32", "128Gi")), sets)
    leaving = scene.but(pods=(replace(pods[0], deleting=True, disrupted=True), *scene.pods[1:]))
    both = Stage(scene)
    await both.run()
    assert len(both.cluster.moved) == 2
    strict = replace(config().budgets, max_disruptions_per_namespace=1, max_disruptions_cluster=1)
    one = Stage(scene.but(config={"budgets": strict}), shows=[scene.snapshot(), scene.snapshot(), leaving.snapshot()])
    await one.run()
    assert len(one.cluster.moved) == 1


async def test_a_blocked_eviction_is_looked_at_again_when_its_time_has_come() -> None:
    stage = Stage(SCENE, wakes=[TICK])
    stage.cluster.answers = [Outcome(OutcomeKind.BLOCKED, "pdb needs 1 healthy pods and has 1 currently")]
    first, second = await stage.run()
    assert stage.clock.deadlines[0] == NOW + timedelta(seconds=5)
    assert len(stage.cluster.moved) == 1
    assert first.plan is not None
    assert second.plan is not None
    assert [decision.reason for decision in second.plan.decisions if decision.pod.name == "sim-0"] == [
        Reason.EVICTION_BLOCKED
    ]


async def test_a_replica_that_stands_by_moves_nothing_and_tells_nobody() -> None:
    scene = SCENE.but(policies=(moving(drain=drained()),), gates=gate(overdue(), is_open=True))
    stage = Stage(scene)
    stage.loop = Loop(*stage.parts, scene.settings, Following(), stage.sessions)
    await stage.run()
    assert stage.cluster.moved == []
    ((drains, telling),) = stage.sessions.followed
    assert (set(drains), telling) == ({overdue().ref}, False)


async def test_who_has_lost_the_lead_while_deciding_moves_nothing() -> None:
    class Losing:
        """Leads until the turn is about to act."""

        asked = 0

        def leading(self) -> bool:
            self.asked += 1
            return self.asked <= 2

    stage, losing = Stage(SCENE), Losing()
    stage.loop = Loop(*stage.parts, SCENE.settings, losing, stage.sessions)
    await stage.run()
    assert (stage.cluster.moved, losing.asked >= 3) == ([], True)


async def test_the_pod_is_followed_whose_sessions_matter_whoever_the_decision_is_about() -> None:
    """The newest pod of a surge that is over is to go, and the decision is about the first of its pods."""
    newest = newcomer("web-1-zzz", created=3600)
    grown = surging(conditions=(), containers=(container(WANTED),))
    policies = (moving(strategy=Strategy.SURGE, drain=drained()),)
    scene = WEB.but(pods=(grown, newest, filler()), workloads=web(2, surged(3600)), policies=policies)
    stage = Stage(scene)
    await stage.run()
    ((drains, _),) = stage.sessions.followed
    assert {ref: drain.pod for ref, drain in drains.items()} == {newest.ref: newest.ref}


async def test_sessions_are_followed_until_a_turn_says_otherwise() -> None:
    scene = SCENE.but(policies=(moving(drain=drained()),), gates=gate(overdue(), is_open=False))
    gone = scene.but(pods=(filler(),)).snapshot()
    other = Wake(WakeKind.CHANGED, frozenset({filler().ref}))
    self_ = Wake(WakeKind.CHANGED, frozenset({overdue().ref}))
    stage = Stage(scene, shows=[scene.snapshot(), scene.snapshot(), gone], wakes=[other, self_])
    await stage.run()
    assert [set(drains) for drains, _ in stage.sessions.followed] == [{overdue().ref}, {overdue().ref}, set()]
    assert all(telling for _, telling in stage.sessions.followed)
    assert stage.cluster.moved == []


async def test_the_end_of_a_surge_follows_the_eviction_at_once() -> None:
    going = WEB.but(
        pods=(surging(), newcomer(), filler()),
        workloads=web(2, surged()),
        policies=(moving(strategy=Strategy.SURGE),),
    )
    evicted = going.but(pods=(surging(deleting=True, disrupted=True), newcomer(), filler()))
    stage = Stage(going, shows=[going.snapshot(), going.snapshot(), evicted.snapshot()])
    (turn,) = await stage.run()
    assert [type(move) for move in stage.cluster.moved] == [Evict, Scale]
    assert [done.decision.reason for done in turn.done] == [Reason.MIGRATE, Reason.SURGE_BACK]


async def test_a_surge_that_cannot_be_ended_costs_one_pod_and_not_one_in_each_turn() -> None:
    newest = newcomer("web-1-zzz", created=3600)
    grown = surging(conditions=(), containers=(container(WANTED),))
    scene = WEB.but(
        pods=(grown, newest, filler()),
        workloads=web(2, surged(3600)),
        policies=(moving(strategy=Strategy.SURGE),),
    )
    gone = scene.but(pods=(grown, filler())).snapshot()
    there = scene.snapshot()
    stage = Stage(scene, shows=[there, there, gone, there], wakes=[TICK, TICK])
    stage.cluster.answers = [Outcome(OutcomeKind.ACCEPTED), Outcome(OutcomeKind.CONFLICT)]
    first, second, third = await stage.run()
    assert [type(move) for move in stage.cluster.moved] == [Evict, Scale]
    assert [len(turn.done) for turn in (first, second, third)] == [2, 0, 0]
    assert third.plan is not None
    assert Reason.SURGING in {one.reason for one in third.plan.decisions}


async def test_nothing_is_evicted_twice_in_a_turn() -> None:
    """Even if the cluster does not show what was done."""
    stage = Stage(SCENE)
    await stage.run()
    assert len(stage.cluster.moved) == 1
