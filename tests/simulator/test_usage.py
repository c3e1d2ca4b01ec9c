"""Recordings, demand cut by limits, and what the measurements make of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pytest

from autoscaler.core.history import ContainerRef, Gap, History
from autoscaler.core.model import PodRef, Resource
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Abstain, Grid, Samples, Situation, Target, WindowRecommender
from autoscaler.simulator.cluster import SimulatedCluster
from autoscaler.simulator.metrics import SimulatedMetrics, sampled
from autoscaler.simulator.traces import Demand, Series, recorded
from tests.simulator.builders import START, after, ask, both, cluster, container, demand, node, pod

START_S = int(START.timestamp())
REF = ContainerRef("sim", "a", "app")


class Window(WindowRecommender):
    """Keeps what it is given."""

    name: ClassVar[str] = "window"
    Parameters: ClassVar[type[Any]] = dict

    def recommend(self, state: Samples, situation: Situation) -> Target | Abstain:
        return Abstain("only keeps")


def _policy(lookback: int = 86400, fine: int = 7200) -> Policy:
    return Policy("p", Window({}), grid=Grid(60, lookback, fine))


def _history(metrics: SimulatedMetrics) -> History:
    found = metrics.latest().of(REF)
    assert isinstance(found, History)
    return found


def test_a_recording_is_held_scaled_shifted_and_repeated() -> None:
    plain = recorded("nezha_tt_gateway_0129", Resource.MEMORY, starts_at=START)
    scaled = recorded("nezha_tt_gateway_0129", Resource.MEMORY, starts_at=START - timedelta(minutes=2), scale=2)

    assert plain.at(np.asarray([START_S, START_S + 59, START_S + 60])).tolist() == [783695872, 783695872, 780480512]
    assert scaled.at(np.asarray([START_S])).tolist() == [2 * 781524992]
    assert plain.at(np.asarray([START_S + 919 * 60, START_S - 918 * 60])).tolist() == [783695872, 780480512]


@pytest.mark.parametrize("trace", ["nezha_tt_basic_0129", "nezha_tt_gateway_0129", "alibaba18_c12104"])
def test_every_recording_has_cpu(trace: str) -> None:
    assert (recorded(trace, Resource.CPU, starts_at=START).values >= 0).all()


def test_a_recording_without_memory_and_an_unknown_one_say_so() -> None:
    with pytest.raises(ValueError, match="alibaba18_c12104 has no memory"):
        recorded("alibaba18_c12104", Resource.MEMORY, starts_at=START)
    with pytest.raises(FileNotFoundError):
        recorded("nothing", Resource.CPU, starts_at=START)


def test_cpu_is_cut_by_the_limit_in_force_and_not_by_the_limit_asked_for() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))), usage=demand(cpu=3))
    after(sim, 600)
    ask(sim, "a", both("2", None))
    after(sim, 600)
    record = sim.usage_of(REF)
    assert record is not None

    cpu, memory = record.at(np.asarray([START_S - 1, START_S, START_S + 600, START_S + 601, START_S + 1200]))

    assert np.isnan(cpu[0])
    assert np.isnan(memory[0])
    assert cpu[1:].tolist() == [1, 1, 2, 2]
    assert memory[1:].tolist() == [64 << 20] * 4


def test_nothing_is_used_while_a_container_does_not_run() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))))
    after(sim, 60)
    sim.delete_pod(PodRef("sim", "a"))
    after(sim, 60)
    record = sim.usage_of(REF)
    assert record is not None

    assert np.isnan(record.at(np.asarray([START_S + 30, START_S + 61, START_S + 63, START_S + 100]))[0]).tolist() == [
        False,
        False,
        True,
        True,
    ]


def test_samples_are_the_mean_of_cpu_over_the_rate_window_and_the_maximum_of_memory_over_the_step() -> None:
    usage = demand(cpu=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], memory=["10Mi", "30Mi", "20Mi", "20Mi", "20Mi", "20Mi"])
    sim = cluster(pod("a", container(both("1", "256Mi"))), usage=usage)
    after(sim, 400)
    record = sim.usage_of(REF)
    assert record is not None

    samples = sampled(record, START_S - 120, START_S + 360, 60, 300)

    assert samples.end_at.tolist() == [START_S + 60 * n for n in range(1, 7)]
    # the first values would be low: their window is not covered yet
    assert np.isnan(samples.cpu[:3]).all()
    np.testing.assert_allclose(samples.cpu[3:], [0.25, 0.3, 0.4], rtol=1e-6)
    # an instant on the grid belongs to the step that it ends
    assert (samples.memory / (1 << 20)).tolist() == [30, 30, 20, 20, 20, 20]


def _measured(sim: SimulatedCluster, metrics: SimulatedMetrics, wanted: Mapping[ContainerRef, Policy]) -> None:
    metrics.follow(wanted)
    for _ in range(40):
        after(sim, 60)
        metrics.latest()


def test_folding_as_time_goes_by_and_all_at_once_give_the_same() -> None:
    usage = Demand(
        recorded("nezha_tt_gateway_0129", Resource.CPU, starts_at=START, scale=20),
        recorded("nezha_tt_gateway_0129", Resource.MEMORY, starts_at=START),
    )
    policy = _policy(lookback=14 * 86400, fine=1200)
    sim = SimulatedCluster(START)
    sim.add_node(node())
    sim.add_pod(pod("a", container(both("1", "1Gi"))), {"app": usage}, since=START - timedelta(hours=6))
    live, late = SimulatedMetrics(sim), SimulatedMetrics(sim)
    _measured(sim, live, {REF: policy})
    late.follow({REF: policy})

    one, other = _history(live), _history(late)

    assert (one.folded_until, one.newest_at) == (other.folded_until, other.newest_at)
    np.testing.assert_array_equal(one.state.end_at, other.state.end_at)
    np.testing.assert_array_equal(one.state.cpu, other.state.cpu)
    np.testing.assert_array_equal(one.state.memory, other.state.memory)
    np.testing.assert_array_equal(one.recent.cpu, other.recent.cpu)
    assert len(one.state) == (6 * 60 + 40) // 5 - 1
    # two scrapes late, as a scraped value would be
    assert one.newest_at == START_S + 39 * 60


def test_measurements_are_new_values_and_a_changed_recommender_starts_anew() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))))
    metrics = SimulatedMetrics(sim)
    metrics.follow({REF: _policy()})
    after(sim, 600)
    first = metrics.latest()
    seen = _history(metrics)
    after(sim, 600)
    second = _history(metrics)
    metrics.follow({REF: _policy(lookback=300)})
    third = _history(metrics)

    assert first.measured_at == START + timedelta(seconds=600)
    assert (len(seen.state), len(second.state)) == (9, 19)
    assert (third.first_at, third.newest_at) == (second.newest_at - 240, second.newest_at)


def test_missing_usage_is_a_gap_with_a_reason() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))))
    metrics = SimulatedMetrics(sim)
    other = ContainerRef("sim", "b", "app")
    metrics.follow({REF: _policy(), other: _policy()})

    found = metrics.latest()

    assert isinstance(gap := found.of(REF), Gap)
    assert gap.reason is Reason.NO_DATA
    assert isinstance(found.of(other), Gap)


def test_a_single_value_is_constant_usage() -> None:
    assert Series.of([2.5]).at(np.asarray([0, START_S])).tolist() == [2.5, 2.5]
