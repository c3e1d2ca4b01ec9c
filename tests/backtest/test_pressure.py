"""The closed loop, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from autoscaler.backtest.pressure import Backlog, Restarts


def test_work_that_was_not_done_is_done_later() -> None:
    backlog = Backlog(60)
    assert backlog.want(np.array([3.0, 1.0]), 2.0).tolist() == [3.0, 2.0]
    assert backlog.want(np.array([1.0]), 2.0).tolist() == [1.0]


def test_what_would_take_more_than_five_minutes_is_given_up() -> None:
    backlog = Backlog(60)
    assert backlog.want(np.array([100.0, 0.0, float("nan"), 0.0]), 1.0) == pytest.approx(
        [100.0, 5.0, float("nan"), 4.0], nan_ok=True
    )


def test_who_is_killed_again_and_again_waits_longer_and_longer() -> None:
    restarts = Restarts(10)
    found = restarts.want(np.full(12, 2.0), 1.0)
    # at once, then 10 s, 20 s, 40 s
    assert found.tolist() == [2, 2, 0, 2, 0, 0, 2, 0, 0, 0, 0, 2]


def test_ten_minutes_of_running_are_forgiven() -> None:
    restarts = Restarts(60)
    assert restarts.want(np.full(6, 2.0), 1.0).tolist() == [2, 2, 2, 2, 0, 2]
    assert restarts.want(np.full(11, 0.5), 1.0)[:2].tolist() == [0, 0.5]
    assert restarts.want(np.full(2, 2.0), 1.0).tolist() == [2, 2]


def test_what_is_not_recorded_stays_unknown_while_a_container_is_away() -> None:
    restarts = Restarts(60)
    restarts.want(np.full(4, 2.0), 1.0)
    assert restarts.want(np.array([float("nan"), 0.5]), 1.0) == pytest.approx([float("nan"), 0.5], nan_ok=True)
