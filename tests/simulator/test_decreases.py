"""Memory that is to shrink, in virtual time: page cache, errors, versions that want decreases first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from autoscaler.core.actions import AskKind
from autoscaler.core.model import Container, ContainerKind, Pod
from autoscaler.core.policy import ByDirection, Config, Fallback, Mode, Policy, Stability
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Recommender, Samples, Situation, Target
from autoscaler.core.resize import Phase, phase_of
from autoscaler.loop import Loop
from autoscaler.ports import Turn
from autoscaler.simulator.clock import VirtualClock
from autoscaler.simulator.cluster import SimulatedCluster
from autoscaler.simulator.metrics import SimulatedMetrics
from autoscaler.simulator.traces import Demand, Series
from tests.simulator.builders import START, after, ask, both, container, get, node, pod

MIB = 1 << 20
EAGER = Stability(ByDirection(0.0, 0.0), ByDirection(9.0, 0.9), ByDirection(timedelta(hours=1), timedelta(minutes=5)))


class Fixed(Recommender[None]):
    """`params`: targets by the CPU request in force, in millicores. Nothing for any other container."""

    name = "fixed"
    Parameters = dict

    def start(self) -> None:
        return None

    def fold(self, state: None, samples: Samples, block_s: int) -> None:
        return None

    def recommend(self, state: None, situation: Situation) -> Target:
        return self.params.get(situation.in_force.requests.cpu, Target(None, None))  # type: ignore[no-any-return]


class Kept:
    """A journal that keeps what was decided, and when."""

    def __init__(self) -> None:
        self.decided: list[tuple[datetime, Reason, str]] = []

    def record(self, turn: Turn) -> None:
        assert turn.plan is not None
        taken_at = turn.plan.taken_at
        self.decided += ((taken_at, decision.reason, decision.detail) for decision in turn.plan.decisions)

    def reasons(self) -> list[Reason]:
        """One after the other, without repetitions."""
        found = [reason for _, reason, _ in self.decided]
        return [r for r, before in zip(found, [None, *found], strict=False) if r is not before]


def usage(memory: Sequence[int], cache: Sequence[int] = (0,)) -> Demand:
    """MiB, a value a minute from START on."""
    return Demand(
        Series.of((0.1,)),
        Series.of([float(m * MIB) for m in memory], starts_at=START),
        Series.of([float(m * MIB) for m in cache], starts_at=START),
    )


def world(demand: Demand, *containers: Container, server_minor: int = 37) -> SimulatedCluster:
    sim = SimulatedCluster(START, server_minor=server_minor)
    sim.add_node(node())
    made: Pod = pod("a", *containers)
    sim.add_pod(made, {c.name: demand for c in containers}, since=START - timedelta(minutes=5))
    return sim


async def played(
    sim: SimulatedCluster, minutes: float, targets: dict[int, Target], fallback: Fallback | None = None
) -> Kept:
    kept = Kept()
    rules = Policy("p", Fixed(targets), mode=Mode.RESIZE, stability=EAGER, fallback=fallback or Fallback())
    clock = VirtualClock(sim, timedelta(minutes=1), sim.now + timedelta(minutes=minutes))
    await Loop(sim, SimulatedMetrics(sim), clock, kept, lambda: Config((rules,))).run()
    return kept


SMALLER = {1000: Target(1.0, 512.0 * MIB)}


async def test_page_cache_above_the_target_is_waited_for_and_nothing_refused_is_asked() -> None:
    """ACC-04: 300Mi are used and 400Mi cached for 10 minutes; then the files are dropped."""
    sim = world(usage([300], [400] * 10 + [0] * 50), container(both("1", "1Gi")))
    kept = await played(sim, 9, SMALLER)
    held = await get(sim, "a")
    assert kept.reasons() == [Reason.PAGE_CACHE_ABOVE_TARGET]
    assert kept.decided[-1][2] == "container app: limit 512Mi, in use 700Mi with page cache"
    assert (held.generation, held.asks) == (1, ())

    kept = await played(sim, 5, SMALLER)
    assert kept.reasons() == [
        Reason.PAGE_CACHE_ABOVE_TARGET,
        Reason.DECREASE,
        Reason.RESIZE_IN_PROGRESS,
        Reason.AT_TARGET,
    ]
    assert (await get(sim, "a")).containers[0].actual == both("1", "512Mi")


async def asked_too_early(falls_after_minutes: int) -> SimulatedCluster:
    """A decrease to 512Mi while 700Mi are in use."""
    sim = world(usage([300], [400] * falls_after_minutes + [0] * 50), container(both("1", "1Gi")))
    ask(sim, "a", both(None, "512Mi"), manager=AskKind.TARGET)
    after(sim, 20)
    assert phase_of(await get(sim, "a")).phase is Phase.ERROR
    return sim


async def test_an_error_ends_by_itself_when_usage_falls_in_time() -> None:
    sim = await asked_too_early(falls_after_minutes=5)
    kept = await played(sim, 8, SMALLER)
    assert Reason.RESIZE_ERROR in kept.reasons()
    assert Reason.REVERT not in kept.reasons()
    found = await get(sim, "a")
    assert (found.generation, found.containers[0].actual) == (2, both("1", "512Mi"))


async def test_an_error_past_its_deadline_is_reverted_and_asked_again_when_usage_has_fallen() -> None:
    sim = await asked_too_early(falls_after_minutes=20)
    kept = await played(sim, 11, SMALLER)
    assert kept.reasons()[:2] == [Reason.RESIZE_ERROR, Reason.REVERT]
    reverted_at = next(at for at, reason, _ in kept.decided if reason is Reason.REVERT)
    assert timedelta(minutes=10) <= reverted_at - START < timedelta(minutes=10, seconds=20)
    reverted = await get(sim, "a")
    assert reverted.containers[0].spec == both("1", "1Gi")
    assert phase_of(reverted).phase is Phase.SETTLED
    kept = await played(sim, 15, SMALLER)
    assert Reason.PAGE_CACHE_ABOVE_TARGET in kept.reasons()
    assert (await get(sim, "a")).containers[0].actual == both("1", "512Mi")


async def test_a_server_of_1_36_gets_the_decrease_first_and_the_increase_as_soon_as_that_is_done() -> None:
    both_ways = {1000: Target(0.5, None), 400: Target(0.8, None)}
    containers = container(both("1", "1Gi")), container(both("400m", "1Gi"), "side", ContainerKind.SIDECAR)
    sim = world(usage([100]), *containers, server_minor=36)
    kept = await played(sim, 3, both_ways)
    asks = [(at, reason) for at, reason, _ in kept.decided if reason in {Reason.DECREASE, Reason.INCREASE}]
    assert [reason for _, reason in asks] == [Reason.DECREASE, Reason.INCREASE]
    assert asks[1][0] - asks[0][0] < timedelta(seconds=2)
    found = await get(sim, "a")
    assert [c.actual for c in found.containers] == [both("500m", "1Gi"), both("800m", "1Gi")]
    assert {ask.manager for ask in found.asks} == {AskKind.FIRST, AskKind.TARGET}

    once = world(usage([100]), *containers)
    assert Reason.REBALANCE in (await played(once, 3, both_ways)).reasons()
    assert {ask.manager for ask in (await get(once, "a")).asks} == {AskKind.TARGET}


async def test_a_server_of_1_33_lowers_no_memory_limit() -> None:
    sim = world(usage([100]), container(both("1", "1Gi")), server_minor=33)
    assert (await played(sim, 5, SMALLER)).reasons() == [Reason.MEMORY_DECREASE_UNSUPPORTED]
    assert (await get(sim, "a")).generation == 1
