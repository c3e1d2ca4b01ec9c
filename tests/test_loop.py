"""The loop, with fakes behind its ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from autoscaler.core.actions import AskKind, Move, Outcome, OutcomeKind, Resize
from autoscaler.core.history import ContainerRef, Measurements
from autoscaler.core.model import Ask, ClusterSnapshot, Condition, Pod, PodRef
from autoscaler.core.policy import ByDirection, Config, Fallback, Mode, Policy, Selector
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Situation, Target
from autoscaler.core.resize import PENDING
from autoscaler.loop import Loop
from autoscaler.ports import Turn, Unavailable, Wake, WakeKind
from tests.build import FREE, NOW, Fixed, both, config, container, fixed, measurements, node, pod, policy, snapshot

ACCEPTED = Outcome(OutcomeKind.ACCEPTED)
TICK, STOP = Wake(WakeKind.TICK), Wake(WakeKind.STOP)


def changed(*pods: Pod) -> Wake:
    return Wake(WakeKind.CHANGED, frozenset(each.ref for each in pods))


@dataclass
class FakeCluster:
    """Shows its snapshots one after the other, the last for ever, and notes what is performed."""

    shows: list[ClusterSnapshot | Unavailable]
    answer: Callable[[Resize], Outcome] = lambda action: ACCEPTED
    busy: Callable[[], asyncio.Future[None] | None] = lambda: None
    performed: list[PodRef] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    async def observe(self) -> ClusterSnapshot:
        shown = self.shows.pop(0) if len(self.shows) > 1 else self.shows[0]
        if isinstance(shown, Unavailable):
            raise shown
        return shown

    async def move(self, move: Move) -> Outcome:
        raise AssertionError(f"nothing is moved here: {move}")

    async def perform(self, action: Resize) -> Outcome:
        self.performed.append(action.pod)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        if (wait := self.busy()) is not None:
            await wait
        self.running -= 1
        return self.answer(action)


@dataclass
class FakeMetrics:
    """Gives out the same measurements and notes what is to be followed."""

    measured: Measurements
    followed: list[Mapping[ContainerRef, Policy]] = field(default_factory=list)

    def follow(self, wanted: Mapping[ContainerRef, Policy]) -> None:
        self.followed.append(wanted)

    def latest(self) -> Measurements:
        return self.measured


@dataclass
class FakeClock:
    """Wakes as it is told, then stops; notes the deadlines that it was given."""

    wakes: list[Wake]
    deadlines: list[datetime | None] = field(default_factory=list)

    async def until(self, moment: datetime) -> None:
        await asyncio.Event().wait()

    async def wait(self, until: datetime | None) -> Wake:
        self.deadlines.append(until)
        return self.wakes.pop(0) if self.wakes else STOP


@dataclass
class FakeJournal:
    """Keeps the turns."""

    turns: list[Turn] = field(default_factory=list)

    def record(self, turn: Turn) -> None:
        self.turns.append(turn)


class Stage:
    """A loop and the fakes around it."""

    def __init__(
        self,
        pods: Iterable[Pod],
        *,
        shows: Sequence[ClusterSnapshot | Unavailable] = (),
        wakes: Sequence[Wake] = (),
        settings: Config | None = None,
    ) -> None:
        pods = list(pods)
        self.cluster = FakeCluster(list(shows) or [snapshot(*pods, nodes=[node(cpu="64")])])
        self.metrics = FakeMetrics(measurements(pods))
        self.clock = FakeClock(list(wakes))
        self.journal = FakeJournal()
        self.config = settings or config(policy(fixed("800m", None)))
        self.loop = Loop(self.cluster, self.metrics, self.clock, self.journal, lambda: self.config)

    async def run(self) -> list[Turn]:
        await self.loop.run()
        return self.journal.turns


def many(count: int) -> list[Pod]:
    return [pod(name=f"sim-{index:02}") for index in range(count)]


def decided(turn: Turn) -> list[str]:
    assert turn.plan is not None
    return [decision.pod.name for decision in turn.plan.decisions]


async def test_a_turn_observes_decides_acts_and_records() -> None:
    stage = Stage(many(3))
    (turn,) = await stage.run()
    assert (turn.number, turn.wake, turn.unavailable) == (1, TICK, "")
    assert decided(turn) == ["sim-00", "sim-01", "sim-02"]
    assert stage.cluster.performed == [each.ref for each in many(3)]
    assert [done.decision.pod.name for done in turn.done] == decided(turn)
    assert {done.outcome for done in turn.done} == {ACCEPTED}
    assert all(timedelta(0) <= done.took <= turn.took for done in turn.done)
    assert stage.metrics.followed == [
        {ContainerRef("bridge", each.name, "app"): stage.config.policies[0] for each in many(3)}
    ]


async def test_what_only_recommends_is_not_performed() -> None:
    stage = Stage(many(2), settings=config(policy(fixed("800m", None), mode=Mode.RECOMMEND)))
    (turn,) = await stage.run()
    assert (turn.done, stage.cluster.performed) == ((), [])
    assert decided(turn) == ["sim-00", "sim-01"]


async def test_a_cluster_that_cannot_be_observed_costs_a_turn_and_nothing_else() -> None:
    stage = Stage(many(1), shows=[Unavailable("cache is 90 s old"), snapshot(*many(1))], wakes=[TICK])
    first, second = await stage.run()
    assert (first.plan, first.done, first.unavailable) == (None, (), "cache is 90 s old")
    assert (second.number, second.unavailable, len(second.done)) == (2, "", 1)
    assert len(stage.metrics.followed) == 1


async def test_a_change_decides_about_the_pods_named_and_no_others() -> None:
    pods = many(3)
    stage = Stage(pods, wakes=[changed(pods[1])])
    _, turn = await stage.run()
    assert decided(turn) == ["sim-01"]
    assert stage.cluster.performed[3:] == [pods[1].ref]
    assert len(stage.metrics.followed) == 1


async def test_a_change_of_pods_that_nobody_selects_is_no_turn() -> None:
    pods, other = many(2), pod(name="other", namespace="elsewhere")
    mine = policy(fixed("800m", None), selector=Selector(frozenset({"bridge"})))
    stage = Stage([*pods, other], wakes=[changed(other), changed(pods[0])], settings=config(mine))
    assert [(turn.number, decided(turn)) for turn in await stage.run()] == [(1, ["sim-00", "sim-01"]), (2, ["sim-00"])]


async def test_a_deadline_decides_about_the_pods_that_are_due() -> None:
    """And not about the others: deciding about 5,000 takes longer than a deadline should wait."""
    pods = [cooling("due", 0), cooling("early", 10), *many(2)]
    stage = Stage(
        pods,
        shows=[snapshot(*pods, at=NOW - timedelta(seconds=1)), snapshot(*pods, at=NOW)],
        wakes=[Wake(WakeKind.DEADLINE)],
        settings=config(policy(fixed("800m", None), stability=COOLDOWN)),
    )
    _, turn = await stage.run()
    assert decided(turn) == ["due"]


COOLDOWN = replace(FREE, cooldown=ByDirection(timedelta(minutes=1), timedelta(minutes=10)))


def cooling(name: str, seconds: int) -> Pod:
    """A pod whose cooldown ends that many seconds after NOW."""
    return pod(name=name, asks=(Ask("kubectl", NOW + timedelta(seconds=seconds - 60)),))


async def test_deadlines_outlast_turns_that_did_not_decide_about_their_pods() -> None:
    early, late = cooling("early", 10), cooling("late", 40)
    over = replace(early, asks=())
    stage = Stage(
        [early, late],
        shows=[snapshot(early, late)] * 2 + [snapshot(over, late), snapshot(over)],
        wakes=[changed(late), changed(early), TICK],
        settings=config(policy(fixed("800m", None), stability=COOLDOWN)),
    )
    await stage.run()
    at = [None if each is None else (each - NOW).total_seconds() for each in stage.clock.deadlines]
    assert at == [10, 10, 40, None]


@pytest.mark.parametrize("wake", ["its change", "its deadline"])
async def test_the_deadline_of_a_pod_that_has_gone_goes_with_it(wake: str) -> None:
    early, late = cooling("early", 10), cooling("late", 40)
    after = NOW + timedelta(seconds=10)
    stage = Stage(
        [early, late],
        shows=[snapshot(early, late), snapshot(late, at=after)],
        wakes=[changed(early) if wake == "its change" else Wake(WakeKind.DEADLINE)],
        settings=config(policy(fixed("800m", None), stability=COOLDOWN)),
    )
    await stage.run()
    assert stage.clock.deadlines == [after, NOW + timedelta(seconds=40)]


async def test_an_overdue_deadline_is_acted_on_as_soon_as_the_cluster_is_seen_again() -> None:
    """Not at the next tick; and the turns in between, one a second, fill no log."""
    early = cooling("early", 10)
    due = NOW + timedelta(seconds=10)
    stage = Stage(
        [early],
        shows=[snapshot(early), *[Unavailable("gone")] * 3, snapshot(early, at=due)],
        wakes=[Wake(WakeKind.DEADLINE)] * 4,
        settings=config(policy(fixed("800m", None), stability=COOLDOWN)),
    )
    turns = await stage.run()
    assert stage.clock.deadlines == [due, due, due, due, None]
    assert stage.cluster.performed == [early.ref]
    assert [(turn.number, turn.unavailable) for turn in turns] == [(1, ""), (2, "gone"), (3, "")]


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind is not OutcomeKind.ACCEPTED])
async def test_whatever_came_of_an_action_is_recorded(kind: OutcomeKind) -> None:
    stage = Stage(many(3))
    stage.cluster.answer = lambda action: Outcome(kind, "words") if action.pod.name == "sim-01" else ACCEPTED
    (turn,) = await stage.run()
    assert [done.outcome.kind for done in turn.done] == [OutcomeKind.ACCEPTED, kind, OutcomeKind.ACCEPTED]


@pytest.mark.parametrize(
    ("outcome", "seconds"),
    [
        (Outcome(OutcomeKind.UNKNOWN), 5),
        (Outcome(OutcomeKind.CONFLICT), 5),
        (Outcome(OutcomeKind.SUPERSEDED), 5),
        (Outcome(OutcomeKind.THROTTLED, retry_after_s=2), 2),
        (Outcome(OutcomeKind.THROTTLED, retry_after_s=0), 1),
        (Outcome(OutcomeKind.REFUSED), None),
        (Outcome(OutcomeKind.REFUSED, "not yet ready", retry_after_s=10), 10),
        (Outcome(OutcomeKind.ACCEPTED), None),
    ],
)
async def test_a_passing_trouble_is_made_up_for_before_the_next_tick(outcome: Outcome, seconds: int | None) -> None:
    stage = Stage(many(1))
    stage.cluster.answer = lambda action: outcome
    await stage.run()
    assert stage.clock.deadlines == [None if seconds is None else NOW + timedelta(seconds=seconds)]


@pytest.mark.parametrize(
    ("outcome", "waits"),
    [
        (Outcome(OutcomeKind.UNKNOWN, "HTTP 500: failed calling webhook", "InternalError"), [5, 10, 20, 30, 30]),
        (Outcome(OutcomeKind.CONFLICT), [5, 10, 20, 30, 30]),
        (Outcome(OutcomeKind.THROTTLED, retry_after_s=1), [1, 10, 20, 30, 30]),
        (Outcome(OutcomeKind.UNKNOWN, "cannot be reached"), [5, 5, 5, 5, 5]),
    ],
)
async def test_a_trouble_that_does_not_pass_is_not_met_more_and_more(outcome: Outcome, waits: list[int]) -> None:
    """A webhook that is down answers each resize with 500, for as long as it is down."""
    at, shows = NOW, []
    for wait in waits:
        shows.append(snapshot(*many(1), at=at))
        at += timedelta(seconds=wait)
    stage = Stage(many(1), shows=shows, wakes=[changed(*many(1))] * 4)
    stage.cluster.answer = lambda action: outcome
    await stage.run()
    found = [due for due in stage.clock.deadlines if due is not None]
    assert found == [each.taken_at + timedelta(seconds=wait) for each, wait in zip(shows, waits, strict=True)]


async def test_at_most_eight_actions_are_under_way() -> None:
    stage = Stage(many(40))
    (turn,) = await stage.run()
    assert (len(turn.done), stage.cluster.most_running) == (40, 8)


async def test_stop_ends_the_actions_in_hand_and_begins_no_other() -> None:
    stage = Stage(many(40), wakes=[TICK] * 3)

    def answer(action: Resize) -> Outcome:
        stage.loop.stop()
        return ACCEPTED

    stage.cluster.answer = answer
    (turn,) = await stage.run()
    assert len(turn.done) == len(stage.cluster.performed) == 8
    assert turn.plan is not None
    assert stage.clock.deadlines == []


async def test_stop_before_the_first_turn_does_nothing() -> None:
    stage = Stage(many(1))
    stage.loop.stop()
    assert await stage.run() == []


async def test_stop_while_waiting_ends_at_the_next_wake() -> None:
    stage = Stage(many(1), wakes=[TICK])
    waited = stage.clock.wait

    class Stopping(FakeClock):
        async def wait(self, until: datetime | None) -> Wake:
            stage.loop.stop()
            return await waited(until)

    loop = Loop(stage.cluster, stage.metrics, Stopping([]), stage.journal, lambda: stage.config)
    stage.loop = loop
    await loop.run()
    assert len(stage.journal.turns) == 1


async def test_a_running_turn_shows_since_when() -> None:
    stage = Stage(many(1))
    release: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stage.cluster.busy = lambda: release
    assert stage.loop.busy_since is None
    running = asyncio.create_task(stage.loop.run())
    while not stage.cluster.performed:
        await asyncio.sleep(0.001)
    assert stage.loop.busy_since is not None
    release.set_result(None)
    await running
    assert stage.loop.busy_since is None


async def test_a_turn_of_many_slow_actions_is_not_stuck() -> None:
    stage = Stage(many(9))
    answers: list[asyncio.Future[None]] = []

    def busy() -> asyncio.Future[None]:
        answers.append(asyncio.get_running_loop().create_future())
        return answers[-1]

    stage.cluster.busy = busy
    running = asyncio.create_task(stage.loop.run())
    while len(answers) < 8:
        await asyncio.sleep(0.001)
    began_at = stage.loop.busy_since
    assert began_at is not None
    answers[0].set_result(None)
    while len(answers) < 9:
        await asyncio.sleep(0.001)
    assert stage.loop.busy_since is not None
    assert stage.loop.busy_since > began_at
    for answer in answers[1:]:
        answer.set_result(None)
    await running


async def test_the_event_loop_goes_on_while_policies_are_read() -> None:
    stage = Stage(many(1))
    loop = asyncio.get_running_loop()
    reading, enough = asyncio.Event(), asyncio.Event()

    def read() -> Config:
        loop.call_soon_threadsafe(reading.set)
        asyncio.run_coroutine_threadsafe(enough.wait(), loop).result()
        return stage.config

    stage.loop = Loop(stage.cluster, stage.metrics, stage.clock, stage.journal, read)
    running = asyncio.create_task(stage.loop.run())
    await reading.wait()
    assert stage.loop.busy_since is not None
    enough.set()
    await running
    assert len(stage.cluster.performed) == 1


async def test_the_event_loop_goes_on_while_a_recommender_thinks() -> None:
    thinking, enough = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Slow(Fixed):
        def recommend(self, state: object, situation: Situation) -> Target:
            loop.call_soon_threadsafe(thinking.set)
            asyncio.run_coroutine_threadsafe(enough.wait(), loop).result()
            return self.target

    stage = Stage(many(1), settings=config(policy(Slow(0.8, None))))
    running = asyncio.create_task(stage.loop.run())
    await thinking.wait()
    enough.set()
    await running
    assert len(stage.cluster.performed) == 1


@pytest.mark.parametrize("ours", [True, False])
async def test_what_falls_due_while_a_turn_lasts_is_given_up_beside_it(ours: bool) -> None:
    """A full turn takes a second with 5,000 pods, and a recommender may never return. Reverts need neither."""
    waits, other = deferred("late"), pod(name="other")
    pods = (waits, other, pod(container(both("14", "1Gi")), name="neighbour", static=True))
    gone_on, enough = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Slow(Fixed):
        calls = 0

        def recommend(self, state: object, situation: Situation) -> Target:
            Slow.calls += 1
            if Slow.calls > 1:
                loop.call_soon_threadsafe(gone_on.set)
                asyncio.run_coroutine_threadsafe(enough.wait(), loop).result()
            return Target(0.5, None)

    class Beside(FakeClock):
        async def until(self, moment: datetime) -> None:
            assert moment == NOW + timedelta(seconds=10)
            await gone_on.wait()

    stage = Stage(
        [waits, other],
        shows=[
            snapshot(*pods),
            snapshot(*pods, at=NOW + timedelta(seconds=10)),
        ],
        settings=config(policy(Slow(), fallback=Fallback(after=timedelta(seconds=40), fit=False))),
    )
    leadership = FakeLeadership(1000 if ours else 0)
    clock = Beside([TICK])
    running = asyncio.create_task(
        Loop(stage.cluster, stage.metrics, clock, stage.journal, lambda: stage.config, leadership).run()
    )
    await gone_on.wait()
    for _ in range(100):
        await asyncio.sleep(0.002)
    during = list(stage.cluster.performed)
    enough.set()
    await running
    assert during == ([waits.ref] if ours else [])
    beside = [turn for turn in stage.journal.turns if turn.wake.kind is WakeKind.DEADLINE]
    assert [[d.decision.reason for d in turn.done] for turn in beside] == ([[Reason.REVERT]] if ours else [])
    assert [turn.number for turn in stage.journal.turns] == list(range(1, len(stage.journal.turns) + 1))


@pytest.mark.parametrize("wake", [TICK, Wake(WakeKind.DEADLINE)])
@pytest.mark.parametrize("kind", [OutcomeKind.ACCEPTED, OutcomeKind.CONFLICT])
async def test_what_is_due_when_a_turn_begins_is_given_up_once(wake: Wake, kind: OutcomeKind) -> None:
    """By the turn, or beside it, but not by both: the second would be a conflict, or sent in vain."""
    waits = deferred("late")
    pods = (waits, pod(container(both("14", "1Gi")), name="neighbour", static=True))
    due = NOW + timedelta(seconds=10)
    stage = Stage(
        [waits],
        shows=[snapshot(*pods), snapshot(*pods, at=due)],
        wakes=[wake],
        settings=config(policy(fixed("4", None), fallback=Fallback(after=timedelta(seconds=40), fit=False))),
    )
    stage.cluster.answer = lambda action: Outcome(kind)

    class Due(FakeClock):
        async def until(self, moment: datetime) -> None:
            assert moment == due

    clock = Due([wake])
    await Loop(stage.cluster, stage.metrics, clock, stage.journal, lambda: stage.config).run()
    assert stage.cluster.performed == [waits.ref]
    # what did not work is tried again before the next tick, whoever it was
    assert clock.deadlines == [due, due + timedelta(seconds=5) if kind is OutcomeKind.CONFLICT else None]


def deferred(name: str) -> Pod:
    """A pod that has been waiting for 30 s at NOW."""
    has = both("500m", "1Gi")
    app = container(both("4", "1Gi"), allocated=has.requests, actual=has)
    conditions = (Condition(PENDING, "True", "Deferred", "no room", 1),)
    return pod(app, name=name, conditions=conditions, asks=(Ask(AskKind.TARGET, NOW - timedelta(seconds=30)),))


async def test_a_reloaded_policy_takes_effect_at_the_next_turn() -> None:
    stage = Stage(many(1), wakes=[TICK])
    first = stage.config
    stage.cluster.answer = lambda action: _reload(stage)
    one, two = await stage.run()
    assert one.plan is not None
    assert two.plan is not None
    assert [turn.plan.decisions[0].reason for turn in (one, two) if turn.plan] == [Reason.INCREASE, Reason.POLICY_OFF]
    assert stage.config is not first


def _reload(stage: Stage) -> Outcome:
    stage.config = config(policy(fixed("800m", None), mode=Mode.OFF))
    return ACCEPTED


@dataclass
class FakeLeadership:
    """Leads for so many questions."""

    for_questions: int

    def leading(self) -> bool:
        self.for_questions -= 1
        return self.for_questions >= 0


async def test_standing_by_everything_is_done_but_the_actions() -> None:
    stage = Stage(many(3))
    stage.loop = Loop(stage.cluster, stage.metrics, stage.clock, stage.journal, lambda: stage.config, FakeLeadership(0))
    (turn,) = await stage.run()
    assert turn.plan is not None
    assert [decision.reason for decision in turn.plan.decisions] == [Reason.INCREASE] * 3
    assert (turn.leading, turn.done, stage.cluster.performed) == (False, (), [])
    assert len(stage.metrics.followed) == 1


async def test_leadership_is_asked_for_right_before_each_action() -> None:
    stage = Stage(many(20))
    leadership = FakeLeadership(1 + 10)  # once for the turn
    stage.loop = Loop(stage.cluster, stage.metrics, stage.clock, stage.journal, lambda: stage.config, leadership)
    (turn,) = await stage.run()
    assert len(turn.done) == len(stage.cluster.performed) == 10
    assert turn.leading
