from datetime import UTC, datetime, timedelta

import pytest

from autoscaler.core.history import History
from autoscaler.core.quality import aged, unfit
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import EMPTY, Grid

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(("age_s", "fit"), [(0, True), (300, True), (301, False), (-300, True), (-301, False)])
def test_samples_must_be_of_this_time(age_s: int, fit: bool) -> None:
    newest = int(NOW.timestamp()) - age_s
    hold = unfit(History(None, EMPTY, newest, newest, newest), "app", Grid(), NOW, timedelta(minutes=5))
    assert (hold is None) is fit
    if hold is not None:
        assert (hold.reason, hold.detail) == (Reason.STALE_DATA, f"container app: newest sample is {aged(age_s)}")


def test_a_sample_from_the_future_says_so() -> None:
    assert aged(301) == "301 s old"
    assert aged(-301) == "301 s in the future; compare the clocks"
