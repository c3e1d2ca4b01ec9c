"""Whole policies on the simulated cluster: bounds, nodes, kubelets and moves count."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from autoscaler.backtest.demand import Replayed, ReplayError
from autoscaler.backtest.modelled import Room
from autoscaler.backtest.playback import STARTS_AT
from autoscaler.backtest.running import Terms, policy_demands, run_policy
from autoscaler.core.model import Resource, ResourceList
from autoscaler.core.policy import (
    Care,
    ContainerPolicy,
    Fallback,
    FallbackAction,
    Landing,
    Migration,
    Mode,
    Policy,
    Selector,
)
from autoscaler.core.recommender import Grid, Signal, Situation, Target
from autoscaler.recommenders.bridge import Bridge
from autoscaler.recommenders.bridge_parameters import BridgeParameters
from autoscaler.traces.trace import Column, Trace
from tests.backtest.test_replay import BLANK, Scripted
from tests.build import FREE, amounts

MINUTES = 60
GIB = 2.0**30


def policy(wanted: object, **changes: object) -> Policy:
    made = Policy(
        "p",
        Scripted(wanted),
        selector=Selector(namespaces=frozenset({"elsewhere"})),
        stability=FREE,
        grid=Grid(60, 7200),
        rate_window=timedelta(minutes=1),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def usage(cpu: float = 1.0, memory: float = GIB, minutes: int = MINUTES) -> Trace:
    return Trace.of("t", 60, {Column.CPU: [cpu] * minutes, Column.MEMORY: [memory] * minutes})


def terms(replayed: Replayed = Replayed.CPU, **changes: object) -> Terms:
    return replace(Terms(replayed, warmup_s=600), **changes)  # type: ignore[arg-type]


def always(cpu: float | None = None, memory: float | None = None) -> object:
    def wanted(_: Situation) -> Target:
        return Target(cpu, memory)

    return wanted


def test_a_policy_that_only_recommends_is_tried_as_if_it_acted_and_its_bounds_and_units_count() -> None:
    bounds = (ContainerPolicy("engine", max_allowed=amounts("3")),)
    found = run_policy(usage(), policy(always(2.001)), terms(), Room())
    assert found.replay.limit[-1] == 2.01
    assert run_policy(usage(), policy(always(9.0), containers=bounds), terms(), Room()).replay.limit[-1] == 3
    assert found.replay.limit[:10].tolist() == [2.0] * 10  # twice the peak, until something is decided


def test_what_a_node_has_no_room_for_is_deferred_and_then_given_up() -> None:
    room = Room(amounts("4", "8Gi"), amounts("1", "1Gi"))
    found = run_policy(usage(), policy(always(3.5), fallback=Fallback(fit=False)), terms(), room)
    assert (found.replay.limit == 2.0).all()
    assert found.replay.deferred > 0
    assert found.replay.migrations == 0


def test_a_policy_that_may_move_the_pod_moves_it_to_the_empty_node() -> None:
    room = Room(amounts("4", "8Gi"), amounts("1", "1Gi"))
    fallback = Fallback(
        fit=False, action=FallbackAction.MIGRATE, migration=Migration(min_pod_age=timedelta(0), landing=Landing.SOME)
    )
    moving = policy(always(3.5), mode=Mode.RESIZE_OR_MIGRATE, fallback=fallback)
    found = run_policy(usage(), moving, terms(), room)
    assert found.replay.migrations == 1
    assert found.replay.limit[-1] == 3.5


def test_memory_stays_above_what_was_used_lately_and_a_kill_ends_the_container() -> None:
    kept = run_policy(usage(), policy(always(memory=0.5 * GIB)), terms(Replayed.MEMORY), Room())
    assert kept.replay.limit[-1] == pytest.approx(1.1 * GIB, rel=1e-3)
    rising = Trace.of("t", 60, {Column.MEMORY: [GIB] * 30 + [3 * GIB] * 3 + [GIB] * 27})
    scripted = Scripted(always(memory=1.5 * GIB))
    killed = run_policy(rising, replace(policy(None), recommender=scripted), terms(Replayed.MEMORY), Room())
    assert killed.scores.oom_episodes == 1
    assert scripted.seen[-1].restarts == killed.scores.oom_kills == 3


def test_what_is_not_recorded_is_not_taken_for_nothing() -> None:
    """A kubelet refuses a memory limit below what is in use, and in a gap it is not known that nothing is."""
    gap = STARTS_AT + timedelta(minutes=30)

    def wanted(situation: Situation) -> Target:
        return Target(None, (0.5 if situation.now > gap else 1.5) * GIB)

    trace = Trace.of("t", 60, {Column.MEMORY: [BLANK] * 5 + [GIB] * 25 + [BLANK] * 10 + [GIB] * 20})
    careless = policy(wanted, care=Care(memory_floor=False))
    found = run_policy(trace, careless, terms(Replayed.MEMORY), Room())
    assert found.replay.limit.min() > GIB
    assert found.scores.oom_episodes == 0
    assert found.scores.days == pytest.approx(40 / 1440)


def test_cpu_and_throttling_are_means_over_the_rate_window_and_cut_by_the_limit() -> None:
    scripted = Scripted(always(2.0), signals=frozenset({Signal.THROTTLED}))
    spiky = Trace.of("t", 60, {Column.CPU: [1.0] * 58 + [9.0, 1.0]})
    made = replace(policy(None), recommender=scripted, rate_window=timedelta(minutes=5))
    run_policy(spiky, made, terms(today=2.0), Room())
    assert scripted.past.cpu[-1] == pytest.approx((1 + 1 + 1 + 2 + 1) / 5)
    assert scripted.past.signal(Signal.THROTTLED)[-2:].tolist() == pytest.approx([0, 1 / 5])
    assert scripted.seen[-1].rate_window_s == 300


def test_one_burst_raises_once_under_a_policy() -> None:
    """The rate shows it for four minutes more."""
    burst = Trace.of("t", 60, {Column.CPU: [0.6] * 30 + [1.1] + [0.6] * 29})
    made = replace(policy(None), recommender=Bridge(BridgeParameters()), rate_window=timedelta(minutes=5))
    limit = run_policy(burst, made, terms(today=1.0), Room()).replay.limit
    assert sorted(set(limit.tolist())) == [1.0, 1.7]


def test_a_soft_limit_leaves_the_pod_without_one() -> None:
    scripted = Scripted(always(2.0))
    found = run_policy(usage(5.0), replace(policy(None), recommender=scripted), terms(soft=True), Room())
    assert scripted.past.cpu[-1] == 5
    assert scripted.seen[-1].in_force.limits.cpu is None
    assert found.replay.limit[-1] == 2


def test_what_a_policy_leaves_alone_cannot_be_scored() -> None:
    cpu_alone = (ContainerPolicy(controlled=frozenset({Resource.CPU})),)
    with pytest.raises(ReplayError, match="policy p leaves memory alone"):
        policy_demands(usage(), policy(None, containers=cpu_alone), terms(Replayed.MEMORY))
    with pytest.raises(ReplayError, match="replay gpu_memory with --recommender"):
        policy_demands(usage(), policy(None), terms(Replayed.GPU_MEMORY))
    assert set(policy_demands(usage(), policy(None), terms())) == set(Resource)
    assert Room().node == ResourceList()
