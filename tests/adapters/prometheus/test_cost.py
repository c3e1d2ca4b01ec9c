"""What measuring costs a real Prometheus: how many queries, how large, how many at a time. `bench/prometheus.py` is the
same with times."""

import asyncio
import math
import time
from contextlib import AsyncExitStack

import pytest

from autoscaler.adapters.prometheus import ranges
from autoscaler.adapters.prometheus.layout import MEMORY
from autoscaler.adapters.prometheus.survey import VALID_S
from autoscaler.core.history import ContainerRef
from autoscaler.core.policy import Policy
from autoscaler.core.recommender import Grid
from bench.prometheus import (
    BEHIND_S,
    DAY_S,
    SCRAPE_S,
    Clock,
    back_fill,
    containers,
    decoding_s,
    measuring,
    steady,
    succeed,
    write,
)
from tests.adapters.prometheus.watched import watched
from tests.adapters.prometheus.written import POLICY, SIGNALS_POLICY
from tests.rig.prometheus_server import PrometheusServer

pytestmark = [pytest.mark.rig, pytest.mark.slow]


@pytest.fixture(scope="module")
def many(prometheus: PrometheusServer) -> list[ContainerRef]:
    """2,000 pods with usage of the last minutes, and of the next."""
    wanted, now = containers("turns", 2000), int(time.time())
    write(prometheus, wanted, now - 400, now + 150, SCRAPE_S)
    return wanted


async def test_a_steady_turn_for_2000_pods(prometheus: PrometheusServer, many: list[ContainerRef]) -> None:
    turns, exchanges, _ = await steady(prometheus, many, 3)
    assert len(exchanges) <= 12
    assert 2000 <= max(one.samples for one in exchanges) <= ranges.MOST_POINTS
    # the goals, in time of CPU and the best of three: other programs run beside
    assert min(turn.cpu_s for turn in turns) <= 3
    assert min(decoding_s(exchanges) for _ in range(3)) <= 0.5


class Hurried(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


@pytest.mark.parametrize(("policy", "turns"), [(POLICY, 2), (SIGNALS_POLICY, 11)], ids=["usage", "every signal"])
def test_no_turn_makes_more_than_twelve_queries_also_when_it_is_time_to_look_around(
    prometheus: PrometheusServer, many: list[ContainerRef], policy: Policy, turns: int
) -> None:
    """Every ten minutes; here before each turn. Where there is room for few questions, they take turns."""

    async def asked(loop: Hurried) -> list[list[str]]:
        clock, found = Clock(-BEHIND_S), []
        async with watched(prometheus.url) as proxy, AsyncExitStack() as stack:
            metrics = measuring(stack, proxy.url, many, Grid(SCRAPE_S, 60), clock, policy)
            await succeed(metrics)
            for _ in range(turns):
                clock.advance(SCRAPE_S)
                loop.ahead_s += VALID_S
                proxy.forget()
                await succeed(metrics)
                found.append([one.form["query"] for one in proxy.exchanges])
        return found

    with asyncio.Runner(loop_factory=Hurried) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Hurried)
        found = runner.run(asked(loop))
    assert max(map(len, found)) <= 12
    together = "\n".join(query for of_turn in found for query in of_turn)
    for question in ("count by (cluster", "topk(1", "avg_over_time", "offset", "kube_pod_owner"):
        assert question in together
    for of_turn in found:
        assert sum("rate(" in query and " and on (" not in query for query in of_turn) >= 1
        assert sum("memory_usage_bytes" in query for query in of_turn) == 1


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


async def test_who_else_is_in_a_namespace_makes_no_answer_larger(prometheus: PrometheusServer) -> None:
    """260 pods of 560, and 350 instants: of all of them that would be 196,000 samples. Names are asked for instead."""
    everyone, now = containers("others", 560), int(time.time())
    at = range(now - 400 * SCRAPE_S, now + 30, SCRAPE_S)
    for first in range(0, len(everyone), 80):
        prometheus.write(
            ({"__name__": MEMORY, **one._asdict()}, [(t, 2.0**30) for t in at]) for one in everyone[first : first + 80]
        )
    async with watched(prometheus.url) as proxy, AsyncExitStack() as stack:
        metrics = measuring(stack, proxy.url, everyone[:260], Grid(SCRAPE_S, 350 * SCRAPE_S), Clock())
        await succeed(metrics)
    samples = [one.samples for one in proxy.exchanges]
    assert ranges.MOST_POINTS / 2 < max(samples) <= ranges.MOST_POINTS
    assert sum(samples) >= 260 * 350
