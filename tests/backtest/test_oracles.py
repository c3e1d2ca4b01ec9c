"""The oracles against brute force on small series, and against the published rows on the public traces."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.backtest import oracles
from autoscaler.backtest.oracles import Values
from tests.backtest.public import DAY_SAMPLES, MEMORY, scored, trace

demands = st.lists(st.integers(0, 9), min_size=1, max_size=9).map(lambda values: np.asarray(values, np.float64))


def cost(demand: Values, cuts: tuple[int, ...]) -> float:
    ends = [0, *cuts, len(demand)]
    return sum(float(demand[a:b].max()) * (b - a) for a, b in pairwise(ends))


def least(demand: Values, shortest: int, most: int) -> float:
    """By trying every set of moments at which the limit may change."""
    found = [
        cost(demand, cuts)
        for count in range(min(most, len(demand) - 1) + 1)
        for cuts in combinations(range(1, len(demand)), count)
        if min(np.diff([0, *cuts, len(demand)])) >= shortest or not cuts
    ]
    return min(found)


@given(demands, st.integers(1, 4))
def test_pieces_of_a_least_length_match_brute_force(demand: Values, shortest: int) -> None:
    found = oracles.with_pieces(demand, shortest)
    assert (found.limit >= demand).all()
    assert found.limit.sum() == pytest.approx(least(demand, shortest, len(demand)))
    lengths = np.diff([0, *(np.flatnonzero(np.diff(found.limit)) + 1), len(demand)])
    assert min(lengths) >= min(shortest, len(demand))


@given(demands, st.integers(0, 5))
def test_a_budget_of_changes_is_kept_and_nobody_does_better_with_as_many(demand: Values, most: int) -> None:
    found = oracles.with_changes(demand, most, 60)
    assert (found.limit >= demand).all()
    assert found.changes <= most
    assert found.limit.sum() == pytest.approx(least(demand, 1, found.changes))
    assert found.limit.sum() >= least(demand, 1, most) - 1e-9


def test_long_series_are_searched_in_maxima_of_five_minutes() -> None:
    demand = np.ones(7000)
    demand[3003] = 5.0
    found = oracles.with_changes(demand, 2, 60)
    assert found.changes == 2
    assert found.limit.sum() == pytest.approx(7000 + 4 * 5)


def test_a_constant_needs_no_change() -> None:
    found = oracles.with_changes(np.full(50, 2.0), 10, 60)
    assert (found.changes, found.slack_percent(np.full(50, 2.0))) == (0, 0)


@pytest.mark.parametrize(("name", "slack"), [("nezha_tt_basic_0129", 87), ("nezha_tt_gateway_0129", 33)])
def test_an_hour_at_least_as_published(name: str, slack: float) -> None:
    demand = scored(trace(name), "cpu_cores")
    found = oracles.with_pieces(demand, 60)
    assert found.slack_percent(demand) == pytest.approx(slack, abs=0.5)
    assert found.changes / (len(demand) / DAY_SAMPLES) == pytest.approx(18.4, abs=0.05)


@pytest.mark.parametrize(
    ("shortest", "slack", "changes"), [(360, 33.2, 2.5), (60, 18.1, 19.9), (None, 51.5, 0)], ids=str
)
def test_the_mean_over_the_memory_of_all_public_traces_as_published(
    shared: Path, shortest: int | None, slack: float, changes: float
) -> None:
    found = []
    for name in MEMORY:
        demand = scored(trace(name, shared), "memory_bytes")
        best = oracles.perfect_constant(demand) if shortest is None else oracles.with_pieces(demand, shortest)
        found.append((best.slack_percent(demand), best.changes / (len(demand) / DAY_SAMPLES)))
    assert np.mean(found, axis=0) == pytest.approx([slack, changes], abs=0.06)
