"""What measuring costs a real Prometheus: how many queries, how large, how many at a time. `bench/prometheus.py` is the
same with times."""

import math
import time

import pytest

from autoscaler.adapters.prometheus import ranges
from autoscaler.adapters.prometheus.layout import MEMORY
from bench.prometheus import AHEAD_S, DAY_S, SCRAPE_S, back_fill, containers, decoding_s, steady, write
from tests.rig.prometheus_server import PrometheusServer

pytestmark = [pytest.mark.rig, pytest.mark.slow]


async def test_a_steady_turn_for_2000_pods(prometheus: PrometheusServer) -> None:
    wanted, now = containers("turns", 2000), int(time.time())
    write(prometheus, wanted, now - 600, now + AHEAD_S, SCRAPE_S)
    turns, exchanges, _ = await steady(prometheus, wanted, 3)
    assert len(exchanges) <= 12
    assert 2000 <= max(one.samples for one in exchanges) <= ranges.MOST_POINTS
    # the goals, in time of CPU and the best of three: other programs run beside
    assert min(turn.cpu_s for turn in turns) <= 3
    assert min(decoding_s(exchanges) for _ in range(3)) <= 0.5


async def test_a_back_fill_of_two_weeks_is_read_in_portions_two_at_a_time(prometheus: PrometheusServer) -> None:
    wanted, now = containers("weeks", 260), int(time.time())
    at = range((now - 14 * DAY_S) // 300 * 300, now, 300)
    for one in wanted:
        prometheus.write([({"__name__": MEMORY, **one._asdict()}, [(t, 2.0**30) for t in at])])
    _, exchanges, most = await back_fill(prometheus, wanted, 14)
    blocks = [one for one in exchanges if one.form.get("step") == "300"]
    expected = 2 * sum(math.ceil(pods * 4008 / ranges.MOST_POINTS) for pods in (250, 10))
    assert expected <= len(blocks) <= expected + 4
    assert sum(one.samples for one in blocks) == pytest.approx(260 * 4008, rel=0.01)
    assert max(one.samples for one in exchanges) <= ranges.MOST_POINTS
    assert most == 2
