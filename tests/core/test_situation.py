"""What a recommender is told of how its container ended and began: recorded scenarios (PRM-…) among them."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

from autoscaler.core.decide import decide
from autoscaler.core.history import History, Measurements, advance
from autoscaler.core.model import Pod, Resources, Termination
from autoscaler.core.plan import Plan
from autoscaler.core.recommender import EMPTY, OomKill, Samples, Signal, Situation, Target
from autoscaler.recommenders.percentile import Percentile, PercentileParameters
from tests.build import (
    HOURS,
    NOW,
    Fixed,
    both,
    config,
    container,
    history,
    measurements,
    one,
    pod,
    policy,
    snapshot,
    with_resize,
)

GIB = float(1 << 30)
STEP_S = 60


def samples(until: datetime, memory: list[float], filled: list[float] | None = None) -> Samples:
    """A sample a minute, the last of which ends then."""
    newest = int(until.timestamp()) // STEP_S * STEP_S
    ends = [newest - STEP_S * (len(memory) - 1 - i) for i in range(len(memory))]
    made = Samples.of(ends, [0.4] * len(memory), memory)
    if filled is None:
        return made
    return Samples(made.end_at, made.cpu, made.memory, {Signal.GPU_MEMORY_FILLED: np.asarray(filled, np.float32)})


def situation(past: Samples = EMPTY, **changes: Any) -> Situation:
    made = Situation(NOW, past, past, Resources(), STEP_S, 300, pod_uid="u", container="app")
    return replace(made, **changes)


class AfterKills(Fixed):
    """A quarter more than was used until the last kill, else what was used."""

    def recommend(self, state: Any, situation: Situation) -> Target:
        kill, past = situation.oom_kill, situation.recent
        until = past[: int(past.end_at.searchsorted(kill.finished_at.timestamp(), side="right"))] if kill else past
        used = float(until.memory.max()) if len(until) else None
        return Target(None, None if used is None else used * (1.25 if kill else 1))


def planned(one_pod: Pod, past: Samples, recommender: Fixed, at: datetime) -> Plan:
    known: History = replace(history(), recent=past, newest_at=int(at.timestamp()))
    found = measurements([one_pod], known)
    return decide(
        snapshot(one_pod, at=at), Measurements(at, found.histories, in_use=found.in_use), config(policy(recommender))
    )


def test_prm_01_a_kill_is_acted_on_once() -> None:
    """It was five days ago, the limit was raised without a restart, and it is still reported."""
    killed_at = NOW - timedelta(minutes=100)
    killed = container(both("500m", "1Gi"), restart_count=1, last_terminated=Termination("OOMKilled", 137, killed_at))
    sim = pod(killed)
    past = samples(killed_at, [GIB] * 10) + samples(NOW, [0.7 * GIB] * 90)
    asked = []
    for turn in range(10):
        at = NOW + timedelta(minutes=turn)
        decision = one(planned(sim, past, AfterKills(), at))
        if decision.action is not None:
            (resized,) = with_resize(sim, decision.action).containers
            # in place: what the kubelet says of the last end stays
            sim = pod(replace(resized, restart_count=1, last_terminated=killed.last_terminated))
            (proposal,) = decision.proposals
            asked.append(proposal.proposed.limits.memory)
    assert asked == [1280 << 20]


def test_a_kill_is_known_by_pod_container_and_time() -> None:
    at = NOW - timedelta(hours=1)
    known = situation(last_terminated=Termination("OOMKilled", 137, at))
    assert known.oom_kill == OomKill("u", "app", at)
    for other in (Termination("OOMKilled", 137, None), Termination("Error", 137, at), None):
        assert situation(last_terminated=other).oom_kill is None


@pytest.mark.parametrize(("reason", "code"), [("Error", 1), ("OOMKilled", 137)])
def test_prm_02_gpu_memory_that_ran_out_does_not_raise_memory(reason: str, code: int) -> None:
    """By a recommender that raises memory after a kill, as the second end shows. Memory is used to 40 % of the limit,
    and that of the GPU was full just before."""
    ended = Termination(reason, code, NOW - timedelta(minutes=20))
    sim = pod(container(both("500m", "1Gi"), restart_count=1, last_terminated=ended))
    learner = Percentile(PercentileParameters.model_validate({"oom": {"hold": "1h"}, "minHistory": "10m"}))
    past = samples(NOW, [0.4 * GIB] * 120, [0.5] * 85 + [23.9 / 24] * 15 + [0.1] * 20)
    past = replace(past, signals={**past.signals, Signal.MEMORY_LIMIT: np.full(120, GIB, np.float32)})
    known = advance(None, past, learner, HOURS, sample_s=STEP_S)
    assert known is not None
    rules = policy(learner, grid=HOURS)
    (proposal,) = one(decide(snapshot(sim), measurements([sim], known), config(rules))).proposals
    limit = proposal.proposed.limits.memory
    assert limit is not None
    if reason == "Error":
        assert limit <= GIB
        assert [step.because for step in proposal.trail if step.name == "lastEnd"] == [
            "looks like GPU memory: it was full when the program failed; more memory of the container is no help"
        ]
    else:
        assert limit >= 1.2 * GIB
        assert not [step for step in proposal.trail if step.name == "lastEnd"]


@pytest.mark.parametrize(
    ("reason", "code", "filled", "expected"),
    [
        ("Error", 1, 0.99, True),
        ("Error", 1, 0.9, False),
        ("Error", 1, float("nan"), False),
        ("Error", 137, 0.99, False),
        ("OOMKilled", 137, 0.99, False),
        ("Completed", 0, 0.99, False),
    ],
)
def test_what_looks_like_gpu_memory(reason: str, code: int, filled: float, expected: bool) -> None:
    at = NOW - timedelta(minutes=20)
    past = samples(at, [GIB] * 5, [filled] * 5)
    told = situation(past, last_terminated=Termination(reason, code, at))
    assert told.out_of_gpu_memory is expected
    for other in (samples(at - timedelta(hours=1), [GIB] * 5, [0.99] * 5), samples(NOW, [GIB] * 5, [0.99] * 5)):
        assert not replace(told, recent=other).out_of_gpu_memory
    assert not situation(past).out_of_gpu_memory


def test_the_peak_of_a_start() -> None:
    start = int(NOW.timestamp()) // STEP_S * STEP_S - 600
    past = samples(NOW, [9, 9, 9, 9, 9, 5, 7, float("nan"), 6, 6, 6, 8, 8, 8, 8])
    assert situation(started_at=start).startup_peak(past, 300) == 7
    assert situation(started_at=start).startup_peak(past, 600) == 8
    assert situation(started_at=start).startup_peak(EMPTY, 600) is None
    assert situation().startup_peak(past, 600) is None


def test_a_recommender_is_told_who_it_is_and_when_it_started() -> None:
    seen: list[Situation] = []

    class Looks(Fixed):
        def recommend(self, state: Any, situation: Situation) -> Target:
            seen.append(situation)
            return Target(None, None)

    planned(pod(container(restart_count=3)), samples(NOW, [GIB] * 5), Looks(), NOW)
    (told,) = seen
    assert (told.pod_uid, told.container, told.restarts) == ("uid-sim-0", "app", 3)
    assert told.started_at == int((NOW - timedelta(days=1)).timestamp())
