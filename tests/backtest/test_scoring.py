"""The figures, against values computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autoscaler.backtest.scoring import gap_closed, mean, score


def test_the_figures_of_six_minutes_computed_by_hand() -> None:
    demand = np.array([9.0, 1.0, 2.0, 4.0, 5.0, 1.0, 3.0])
    limit = np.array([1.0, 4.0, 4.0, 2.0, 2.0, 2.0, 4.0])
    found = score(demand, limit, 60, unscored=1)
    # used 1 2 2 2 1 3 = 11 of 18; over in the third and fourth, 2 + 3 cores of 16 wanted
    assert found.slack_percent == pytest.approx(100 * 7 / 18)
    assert found.throttled_percent == pytest.approx(100 * 2 / 6)
    assert found.unmet_percent == pytest.approx(100 * 5 / 16)
    assert (found.oom_episodes, found.oom_kills) == (1, 2)
    # 4 to 2 and 2 to 4: what came before the first scored sample is not counted
    assert found.resizes == 2
    assert found.days == pytest.approx(6 / 1440)
    assert found.oom_per_day == pytest.approx(240)
    assert found.resizes_per_day == pytest.approx(480)
    assert found.slack_hours == pytest.approx(7 / 60)
    assert found.reserved_hours == pytest.approx(18 / 60)


def test_an_episode_that_was_there_before_the_first_scored_sample_counts_once() -> None:
    found = score(np.array([2.0, 2.0, 2.0, 0.5, 2.0]), np.ones(5), 60, unscored=1)
    assert (found.oom_episodes, found.oom_kills) == (2, 3)


def test_cpu_kills_nobody() -> None:
    found = score(np.full(3, 2.0), np.ones(3), 60, kills=False)
    assert (found.oom_episodes, found.oom_kills, found.oom_per_day) == (0, 0, 0)
    assert (found.throttled_percent, found.unmet_percent) == (100, 50)


def test_frames_that_are_late_for_lack_of_cpu_alone() -> None:
    nan = float("nan")
    demand = np.array([9.0, 2.0, 2.0, 2.0, 2.0, 2.0, nan, 3.0])
    limit = np.array([1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0])
    #          unscored, in time, late (40 ms), in time (32 ms), late anyway, no frame, no demand, in time
    frames = np.array([20.0, 30.0, 20.0, 16.0, 40.0, nan, 20.0, 33.0])
    found = score(demand, limit, 1, unscored=1, kills=False, frames_ms=frames)
    assert found.late_frames_percent == pytest.approx(100 * 1 / 5)
    assert score(demand, limit, 1, kills=False).late_frames_percent is None
    assert score(demand, limit, 1, kills=False, frames_ms=np.full(8, nan)).late_frames_percent is None


def test_what_is_known_of_some_traces_is_the_mean_of_those() -> None:
    one = score(np.ones(10), np.full(10, 2.0), 60)
    known = [replace(one, late_frames_percent=2.0), replace(one, late_frames_percent=4.0)]
    assert mean([one, *known]).late_frames_percent == pytest.approx(3)
    assert mean([one]).late_frames_percent is None


def test_a_container_is_killed_once_a_minute_at_most() -> None:
    over = np.zeros(300)
    over[[10, 11, 40, 69, 70, 200]] = 2
    assert score(over, np.ones(300), 1).oom_kills == 3  # at 10, 70 and 200
    assert score(over, np.ones(300), 1).oom_episodes == 4


def test_differences_below_their_tolerance_are_none() -> None:
    found = score(np.full(3, 1 + 1e-10), np.array([1.0, 1 + 1e-7, 1.0]), 60, kills=False)
    assert (found.throttled_percent, found.resizes) == (0, 0)


def test_what_was_not_recorded_is_not_scored() -> None:
    blank = float("nan")
    found = score(np.array([1.0, blank, blank, 3.0]), np.array([2.0, 2.0, 4.0, 4.0]), 60)
    assert found.slack_percent == pytest.approx(100 * 2 / 6)
    assert found.days == pytest.approx(2 / 1440)
    assert found.resizes == 1
    with pytest.raises(ValueError, match="no sample"):
        score(np.array([1.0, blank]), np.ones(2), 60, unscored=1)


def test_nothing_wanted_of_nothing_is_no_division_by_zero() -> None:
    found = score(np.zeros(2), np.zeros(2), 60)
    assert (found.slack_percent, found.unmet_percent) == (0, 0)


def test_each_trace_counts_once_in_the_mean_and_counts_are_sums() -> None:
    one = score(np.ones(10), np.full(10, 2.0), 60)
    other = replace(one, days=9.0, slack_percent=20.0, resizes=5)
    found = mean([one, other])
    assert found.slack_percent == pytest.approx(35)
    assert found.resizes == 5
    assert isinstance(found.resizes, int)
    with pytest.raises(ValueError, match="mean"):
        mean([])


def test_the_gap_to_the_oracle() -> None:
    assert gap_closed(6, 10, 2) == pytest.approx(0.5)
    assert gap_closed(2, 10, 2) == pytest.approx(1)
    assert gap_closed(6, 2, 2) is None
    assert not math.isnan(gap_closed(12, 10, 2) or 0)
