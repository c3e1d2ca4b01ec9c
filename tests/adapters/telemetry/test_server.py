"""The HTTP endpoints on a free port, and what a turn that never ends does to them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from autoscaler.adapters.telemetry.health import LONGEST_TURN_S, Readiness, stuck
from autoscaler.adapters.telemetry.journal import MetricsJournal
from autoscaler.adapters.telemetry.server import CannotListen, serving
from autoscaler.core.policy import Config, Mode, Policy
from autoscaler.core.recommender import Abstain, Samples, Situation, Target, WindowRecommender
from autoscaler.loop import Loop
from autoscaler.ports import Wake, WakeKind
from tests.cli.fakes import FakeClock, FakeCluster, FakeMetrics


def well() -> None:
    return None


async def get(port: int, path: str, **headers: str) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as response,
    ):
        return response.status, response.content_type, await response.text()


async def test_metrics_in_both_formats() -> None:
    registry = CollectorRegistry()
    MetricsJournal(registry)
    async with serving("127.0.0.1", 0, registry, well, well) as port:
        status, kind, text = await get(port, "/metrics")
        assert (status, kind) == (200, "text/plain")
        assert 'bridge_autoscaler_decisions_total{reason="AtTarget"} 0.0' in text
        _, kind, text = await get(port, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert kind == "application/openmetrics-text"
        assert text.endswith("# EOF\n")


async def test_probes_say_why() -> None:
    async with serving("127.0.0.1", 0, CollectorRegistry(), lambda: "stuck", well) as port:
        assert (await get(port, "/healthz"))[::2] == (503, "stuck\n")
        assert (await get(port, "/readyz"))[::2] == (200, "ok\n")
        assert (await get(port, "/nothing"))[0] == 404


async def test_a_port_that_is_taken_is_named() -> None:
    async with serving("127.0.0.1", 0, CollectorRegistry(), well, well) as port:
        with pytest.raises(CannotListen, match=f"127.0.0.1 port {port}.*--metrics-address"):
            async with serving("127.0.0.1", port, CollectorRegistry(), well, well):
                pass


def test_a_turn_is_stuck_after_its_time() -> None:
    assert stuck("turn", None, 1e9) is None
    assert stuck("turn", 100.0, 100.0 + LONGEST_TURN_S) is None
    assert "121 s" in (stuck("turn", 100.0, 221.0) or "")


@dataclass
class Hanging:
    """Lets a recommender hang until the test lets it go."""

    entered: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


class NeverReturns(WindowRecommender):
    name = "never-returns"
    Parameters = Hanging

    def recommend(self, state: Samples, situation: Situation) -> Target | Abstain:
        self.params.entered.set()
        self.params.release.wait(30)
        return Abstain("at last")

    def recommend_many(self, states: Sequence[Samples], situations: Sequence[Situation]) -> Sequence[Target | Abstain]:
        return [self.recommend(*pair) for pair in zip(states, situations, strict=True)]


async def test_a_plug_in_that_never_returns_makes_the_health_check_fail() -> None:
    hanging = Hanging()
    config = Config((Policy("p", NeverReturns(hanging), mode=Mode.RESIZE),))
    cluster, readiness = FakeCluster(), Readiness()
    loop = Loop(cluster, FakeMetrics(measured=True), FakeClock(), readiness, lambda: config)

    def healthy() -> str | None:
        return stuck("turn", loop.busy_since, time.monotonic(), longest_s=0.2)

    async with serving("127.0.0.1", 0, CollectorRegistry(), healthy, readiness.unready) as port:
        assert (await get(port, "/healthz"))[0] == 200
        turn = asyncio.create_task(loop.turn(Wake(WakeKind.TICK)))
        try:
            assert await asyncio.to_thread(hanging.entered.wait, 10)
            await asyncio.sleep(0.3)
            assert (await get(port, "/healthz"))[0] == 503
            assert (await get(port, "/readyz"))[0] == 503
        finally:
            hanging.release.set()
        await turn
        assert (await get(port, "/healthz"))[0] == 200
        assert (await get(port, "/readyz"))[0] == 200
        assert cluster.performed == []
