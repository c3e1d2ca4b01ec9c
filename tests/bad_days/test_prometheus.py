"""An hour of virtual time with a Prometheus that is dead, slow, half dead, or lies."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from datetime import timedelta

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.source import PrometheusMetrics
from autoscaler.adapters.telemetry.journal import MetricsJournal
from autoscaler.core.history import ContainerRef
from autoscaler.core.policy import Config
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid
from autoscaler.loop import Loop
from autoscaler.ports import Turn, Wake, WakeKind
from autoscaler.recommenders.percentile import Percentile, PercentileParameters
from autoscaler.simulator.clock import VirtualClock
from tests.adapters.prometheus.servers import FakePrometheus, serve
from tests.build import policy
from tests.properties.storm import POLICY
from tests.simulator import builders

GIB = 2.0**30
REF = ContainerRef("sim", "a", "app")
WARM = builders.START + timedelta(hours=3)
AGE = "bridge_autoscaler_measurement_age_seconds"


def dead(path: str, form: Mapping[str, str]) -> web.Response:
    return web.Response(status=500, text="gone")


async def slow(path: str, form: Mapping[str, str]) -> web.Response:
    await asyncio.sleep(0.4)
    return web.Response(status=500)


def half_dead(path: str, form: Mapping[str, str]) -> web.Response | None:
    """It knows the time, and has no samples."""
    return web.Response(status=500, text="no store") if path.endswith("query_range") else None


def lies(path: str, form: Mapping[str, str]) -> web.Response:
    return web.Response(text="<html>Please log in</html>", content_type="text/html")


class _Kept:
    def __init__(self, journal: MetricsJournal) -> None:
        self.turns: list[Turn] = []
        self._journal = journal

    def record(self, turn: Turn) -> None:
        self.turns.append(turn)
        self._journal.record(turn)


@pytest.mark.parametrize("trouble", [dead, slow, half_dead, lies])
async def test_prm_13_an_hour_without_usage_changes_nothing_and_ends_by_itself(trouble: object) -> None:
    """No patch in any of 20 turns; ages are shown and can be alerted on; nothing is restarted for the recovery."""
    sim = builders.cluster(builders.pod("a", builders.container(builders.both("1", "2Gi"))))
    sim.advance(WARM)
    server = FakePrometheus(WARM.timestamp(), {REF: (lambda at: 0.9, lambda at: 1.5 * GIB)})
    wants = policy(Percentile(PercentileParameters()), grid=Grid(60, 7200), selector=POLICY.selector)
    registry = CollectorRegistry()
    async with serve(server.handle) as url:
        metrics = PrometheusMetrics(Access(url, timeout_s=0.2), now=lambda: sim.now)
        kept = _Kept(MetricsJournal(registry))
        loop = Loop(sim, metrics, VirtualClock(sim, timedelta(hours=9), sim.now), kept, lambda: Config((wants,)))

        async def turn(later: timedelta) -> Turn:
            sim.advance(sim.now + later)
            server.now = sim.now.timestamp()
            await metrics.measure_once()
            return await loop.turn(Wake(WakeKind.TICK))

        await loop.turn(Wake(WakeKind.TICK))
        assert (await turn(timedelta(minutes=1))).done, "usage is asked for and acted on"
        await turn(timedelta(minutes=1))
        usual = server.intercept
        server.usage[REF] = (lambda at: 0.1, lambda at: 0.1 * GIB)
        server.intercept = trouble  # type: ignore[assignment]
        for number in range(1, 21):
            seen = await turn(timedelta(minutes=3))
            assert seen.plan is not None
            assert seen.done == ()
            (decision,) = seen.plan.decisions
            if number > 2:
                assert decision.reason is Reason.STALE_DATA
                assert decision.detail == f"container app: newest sample is {180 * number + 60} s old"
                assert [problem.reason for problem in seen.plan.problems] == [Reason.METRICS_UNAVAILABLE]
            age = registry.get_sample_value(AGE)
            assert age is not None
            assert math.isclose(age, 180 * number, abs_tol=1)
        server.intercept = usual
        server.usage[REF] = (lambda at: 1.6, lambda at: 3 * GIB)
        recovered = await turn(timedelta(minutes=3))
        metrics.close()
    assert [one.decision.reason for one in recovered.done] == [Reason.INCREASE]
    assert registry.get_sample_value(AGE) == 0
