"""A recommender that misbehaves costs its own pods, and says why."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pytest

from autoscaler.core.decide import decide
from autoscaler.core.history import Measurements
from autoscaler.core.model import Resource
from autoscaler.core.plan import Decision, Plan
from autoscaler.core.policy import Selector
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Abstain, Samples, Situation, Step, Target
from tests.build import NOW, Fixed, config, container, fixed, history, measurements, one, pod, policy, snapshot

BAD, GOOD = pod(name="bad", namespace="bad"), pod(name="good", namespace="good")
Answer = Callable[[Any, Situation], Any]


class Scripted(Fixed):
    """Runs the state of a container, or answers as `Fixed` does."""

    name = "scripted"

    def recommend(self, state: Any, situation: Situation) -> Target | Abstain:
        return cast("Target", state(situation)) if callable(state) else super().recommend(state, situation)


class Batched(Scripted):
    """Asks itself for all containers at once, and counts how."""

    def __init__(self, many: Callable[[list[Target | Abstain]], Any] = lambda answers: answers) -> None:
        super().__init__(0.8, None)
        self.many = many
        self.calls: list[int] = []
        self.single = 0

    def recommend(self, state: Any, situation: Situation) -> Target | Abstain:
        self.single += 1
        return super().recommend(state, situation)

    def recommend_many(self, states: Sequence[Any], situations: Sequence[Situation]) -> Sequence[Target | Abstain]:
        self.calls.append(len(states))
        answers = [super(Batched, self).recommend(*each) for each in zip(states, situations, strict=True)]
        return cast("Sequence[Target | Abstain]", self.many(answers))


def planned(recommender: Fixed, state: Any = None, **settings: Any) -> Plan:
    """A plan of two pods, of which one has this state."""
    histories = {**measurements([GOOD]).histories, **measurements([BAD], history(state=state)).histories}
    return decide(snapshot(BAD, GOOD), Measurements(NOW, histories), config(policy(recommender)), **settings)


def raising(error: BaseException) -> Callable[[Situation], Target]:
    def answer(situation: Situation) -> Target:
        raise error

    return answer


def assert_only_bad_holds(plan: Plan, reason: Reason, words: str) -> None:
    bad, good = one(plan, "bad"), one(plan, "good")
    assert (bad.action, bad.reason) == (None, reason)
    assert bad.detail.startswith("container app: ")
    assert words in bad.detail
    assert not any(each.changed for each in bad.proposals)
    assert good.reason is Reason.INCREASE


@pytest.mark.parametrize("recommender", [lambda: Scripted(0.8, None), Batched], ids=["one by one", "at once"])
def test_one_that_raises(recommender: Callable[[], Fixed]) -> None:
    plan = planned(recommender(), raising(ZeroDivisionError("division by zero")))
    assert_only_bad_holds(plan, Reason.RECOMMENDER_FAILED, "scripted raised ZeroDivisionError: division by zero")


class Unprintable(Exception):
    """Cannot even say what is wrong."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SystemExit(3), "scripted raised SystemExit: 3"),
        (CancelledError("late"), "scripted raised CancelledError: late"),
        (GeneratorExit(), "scripted raised GeneratorExit"),
        (Unprintable(), "scripted raised Unprintable: an unprintable Unprintable"),
    ],
    ids=["ends the program", "cancelled", "generator", "unprintable"],
)
@pytest.mark.parametrize("recommender", [lambda: Scripted(0.8, None), Batched], ids=["one by one", "at once"])
def test_one_that_raises_what_nobody_expects(
    recommender: Callable[[], Fixed], error: BaseException, words: str
) -> None:
    assert_only_bad_holds(planned(recommender(), raising(error)), Reason.RECOMMENDER_FAILED, words)


@pytest.mark.parametrize("state", [raising(ValueError("x" * 10**6)), lambda situation: Abstain("x" * 10**6)])
def test_one_that_says_too_much_is_cut_short(state: Callable[[Situation], Any]) -> None:
    assert len(one(planned(Scripted(0.8, None), state), "bad").detail) < 400


NONSENSE = [
    (Target(float("nan"), None), "cpu target is nan"),
    (Target(float("inf"), None), "cpu target is inf"),
    (Target(float("-inf"), None), "cpu target is -inf"),
    (Target(-1.0, None), "cpu target is -1.0"),
    (Target(0.0, None), "cpu target is 0.0"),
    (Target(1e30, None), "cpu target is 1e+30"),
    (Target(1e306, None), "cpu target is 1e+306"),
    (Target(10**400, None), "cpu target is 1000"),
    (Target(10**5000, None), "cpu target is an unprintable int"),
    (Target(10_000.001, None), "cpu target is 10000.001"),
    (Target(None, 0.0), "memory target is 0.0"),
    (Target(None, -5.0), "memory target is -5.0"),
    (Target(None, 1e30), "memory target is 1e+30"),
    (Target(None, float(np.float32("nan"))), "memory target is nan"),
    (Target(cast("float", "500m"), None), "cpu target is '500m', not a number"),
    (Target(cast("float", "x" * 1000), None), "x..., not a number"),
    (Target(True, None), "cpu target is True, not a number"),
    (Target(cast("float", np.bool_(True)), None), "not a number"),
    (Target(None, cast("float", [1.0])), "memory target is [1.0], not a number"),
    (Target(cast("float", Decimal("0.5")), None), "not a number"),
    (Target(0.5, None, cast("Any", None)), "its trail is not a tuple of Step"),
    (Target(0.5, None, cast("Any", [1])), "its trail is not a tuple of Step"),
    (Target(0.5, None, cast("Any", ("p95",))), "its trail is not a tuple of Step"),
    (Target(0.5, None, (Step(cast("Resource", "cpu"), "p95", None, 1, ""),)), "its trail is not a tuple of Step"),
    (Target(0.5, None, (Step(Resource.CPU, "p95", cast("int", 0.5), 1, ""),)), "with words and whole amounts"),
    (
        Target(0.5, None, (Step(Resource.CPU, "p95", None, cast("int", 0.5), ""),)),
        "with words and whole amounts",
    ),
    (Target(0.5, None, (Step(Resource.CPU, "p95", None, 10**5000, ""),)), "with words and whole amounts"),
    (Target(0.5, None, (Step(Resource.CPU, "p95", -1, 1, ""),)), "with words and whole amounts"),
    (Target(0.5, None, (Step(Resource.CPU, cast("str", None), None, 1, ""),)), "with words and whole amounts"),
    (Target(0.5, None, (Step(Resource.CPU, "p95", None, 1, cast("str", None)),)), "with words and whole amounts"),
    (cast("Target", Abstain(cast("str", None))), "abstained without saying why in words"),
    (cast("Target", Abstain("too few", cast("bool", [0]))), "abstained without saying why in words"),
    (cast("Target", 0.5), "answered float, not Target or Abstain"),
    (cast("Target", None), "answered NoneType, not Target or Abstain"),
    (cast("Target", (0.5, 1.0)), "answered tuple, not Target or Abstain"),
]


@pytest.mark.parametrize("recommender", [lambda: Scripted(0.8, None), Batched], ids=["one by one", "at once"])
@pytest.mark.parametrize(("answer", "words"), NONSENSE)
def test_one_that_answers_nonsense(recommender: Callable[[], Fixed], answer: Target, words: str) -> None:
    assert_only_bad_holds(planned(recommender(), lambda situation: answer), Reason.RECOMMENDER_INVALID, words)


@pytest.mark.parametrize(
    "number", [1, np.float32(1.0), np.float64(1.0), np.int64(1)], ids=lambda each: type(each).__name__
)
def test_any_real_number_is_one(number: float) -> None:
    trail = (Step(Resource.CPU, "p95", cast("int", np.int64(900)), 1000, ""),)
    found = one(planned(Scripted(0.8, None), lambda situation: Target(number, None, trail)), "bad")
    assert found.reason is Reason.INCREASE
    assert found.proposals[0].proposed.requests.cpu == 1000
    assert found.proposals[0].trail == trail


def slow(per_call: float) -> Callable[[], float]:
    """A clock of which every reading is that much later."""
    now = [0.0]

    def tick() -> float:
        now[0] += per_call
        return now[0]

    return tick


def test_one_that_is_slow_is_told_when_it_returns() -> None:
    times = iter([0.0, 1.001, 2.0, 3.0])
    plan = planned(Scripted(0.8, None), tick=times.__next__)
    assert_only_bad_holds(plan, Reason.RECOMMENDER_SLOW, "took 1.0 s, allowed are 1 s")


def test_a_batch_counts_as_equally_slow_for_all() -> None:
    assert {each.reason for each in planned(Batched(), tick=slow(2.5)).decisions} == {Reason.RECOMMENDER_SLOW}
    assert {each.reason for each in planned(Batched(), tick=slow(1.9)).decisions} == {Reason.INCREASE}


def test_patience_is_a_setting() -> None:
    settings = config(policy(Scripted(0.8, None)), recommender_patience=timedelta(seconds=5))
    plan = decide(snapshot(GOOD), measurements([GOOD]), settings, tick=slow(4.0))
    assert one(plan, "good").reason is Reason.INCREASE


def test_a_batch_is_asked_once_and_nobody_one_by_one() -> None:
    recommender = Batched()
    assert {each.reason for each in planned(recommender).decisions} == {Reason.INCREASE}
    assert (recommender.calls, recommender.single) == ([2], 0)


@pytest.mark.parametrize(
    "many",
    [
        lambda answers: answers[:-1],
        lambda answers: [*answers, answers[0]],
        lambda answers: None,
        lambda answers: 1 / 0,
        lambda answers: (each / 0 for each in answers),
    ],
    ids=["too few", "too many", "none at all", "raises", "raises while it is read"],
)
def test_a_batch_that_fails_is_asked_one_by_one(many: Callable[[list[Target | Abstain]], Any]) -> None:
    recommender = Batched(many)
    assert {each.reason for each in planned(recommender).decisions} == {Reason.INCREASE}
    assert (recommender.calls, recommender.single) == ([2], 2)


def test_each_recommender_is_asked_for_its_own_pods_alone() -> None:
    first, second = Batched(), Batched(lambda answers: 1 / 0)
    rules = config(
        policy(first, "good", selector=Selector(frozenset({"good"}))),
        policy(second, "bad", selector=Selector(frozenset({"bad"}))),
    )
    plan = decide(snapshot(BAD, GOOD), measurements([BAD, GOOD]), rules)
    assert {each.reason for each in plan.decisions} == {Reason.INCREASE}
    assert (first.calls, first.single, second.calls, second.single) == ([1], 0, [1], 1)


def test_nobody_is_asked_about_a_pod_that_holds() -> None:
    recommender = Batched()
    deleting = pod(name="bad", deleting=True)
    decide(snapshot(deleting), measurements([deleting]), config(policy(recommender)))
    assert recommender.calls == []


def test_the_first_container_that_fails_names_the_hold() -> None:
    made = pod(container(name="a"), container(name="b"))
    measured = measurements([made], a=history(state=Abstain("first")), b=history(state=Abstain("second")))
    found: Decision = one(decide(snapshot(made), measured, config(policy(fixed("1", None)))))
    assert (found.reason, found.detail) == (Reason.RECOMMENDER_ABSTAINED, "container a: first")


def test_a_recommender_sees_the_moment_the_size_in_force_and_what_is_not_folded() -> None:
    seen: list[Situation] = []

    def answer(situation: Situation) -> Target:
        seen.append(situation)
        return Target(0.8, None)

    measured = history((0.1, 0.2, 0.3), (1.0, 1.0, 1.0), state=answer)
    folded = type(measured)(
        answer, measured.recent, int(measured.recent.end_at[1]), measured.first_at, measured.newest_at
    )
    decide(snapshot(GOOD), measurements([GOOD], folded), config(policy(Scripted())))
    (situation,) = seen
    assert situation.now == snapshot().taken_at
    assert situation.in_force == GOOD.containers[0].spec
    assert len(situation.recent) == 3
    assert situation.open.end_at.tolist() == [measured.newest_at]
    assert (situation.sample_s, situation.block_s) == (60, 300)


def test_samples_of_a_pod_that_had_the_name_before_are_told_from_its_own() -> None:
    """A window of CPU that began before the pod was created has a part of the one before it."""
    created_at = NOW - timedelta(minutes=10)
    minutes = [int((NOW - timedelta(minutes=ago)).timestamp()) for ago in range(20, -1, -1)]
    past = Samples.of(minutes, [0.4] * len(minutes), [1e9] * len(minutes))
    own: list[Samples] = []

    def answer(situation: Situation) -> Target:
        own.append(situation.own(past))
        return Target(0.5, None)

    for each in (replace(BAD, uid="new", created_at=created_at), replace(BAD, created_at=None)):
        decide(snapshot(each), measurements([each], history(state=answer)), config(policy(Scripted(0.8, None))))
    assert own[0].end_at.tolist() == minutes[15:]
    assert own[1].end_at.tolist() == minutes
