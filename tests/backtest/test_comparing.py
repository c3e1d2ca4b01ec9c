"""The counterfactual, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from autoscaler.backtest.comparing import against


def test_kills_avoided_and_caused_and_what_is_reserved() -> None:
    demand = np.array([9.0, 5.0, 5.0, 1.0, 3.0, 1.0, 6.0, 6.0, 2.0])
    limit = np.array([1.0, 6.0, 6.0, 2.0, 2.0, 2.0, 5.0, 7.0, 2.0])
    found = against(demand, limit, 4.0, 60, unscored=1)
    # today's 4 is too little at 5 5 and at 6 6; the new limits at 3, and at the first 6
    assert (found.oom_avoided, found.oom_caused) == (1, 1)
    assert found.scores.oom_episodes == 2
    assert found.reserved_change_percent == pytest.approx(0)
    assert found.scores.reserved_hours == pytest.approx(32 / 60)


def test_cpu_kills_nobody_and_half_is_fifty_percent_less() -> None:
    found = against(np.ones(4), np.full(4, 0.5), 1.0, 60, kills=False)
    assert (found.oom_avoided, found.oom_caused) == (0, 0)
    assert found.reserved_change_percent == pytest.approx(-50)
