"""The loop over the real adapter, against a local server that has its bad days."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.core.actions import AskKind, OutcomeKind
from autoscaler.core.history import ContainerRef, Measurements
from autoscaler.core.model import PodRef
from autoscaler.core.policy import Fallback, Policy
from autoscaler.core.reasons import Reason
from autoscaler.loop import Loop
from autoscaler.ports import Turn, Wake, WakeKind
from tests import build as made
from tests.adapters.kubernetes.api_server import NODES, PODS, ApiServer, always
from tests.adapters.kubernetes.conftest import Build
from tests.adapters.kubernetes.objects import Json, node, pod
from tests.test_loop import FakeClock, FakeJournal

REF = PodRef("sim", "bridge-0")
RESIZE = "PATCH /api/v1/namespaces/sim/pods/bridge-0/resize"
CONFLICT = {"kind": "Status", "reason": "Conflict", "message": "the object has been modified", "code": 409}


class Wishes:
    """Every container wants two cores, by samples that are a minute old."""

    def follow(self, wanted: Mapping[ContainerRef, Policy]) -> None:
        self.wanted = wanted

    def latest(self) -> Measurements:
        age_s = 60 - int((datetime.now(UTC) - made.NOW).total_seconds())
        return Measurements(datetime.now(UTC), dict.fromkeys(self.wanted, made.history(age_s=age_s)))


def loop_over(cluster: KubernetesCluster, fallback: Fallback | None = None) -> Loop:
    rules = made.policy(made.fixed("2"), fallback=fallback or Fallback())
    return Loop(cluster, Wishes(), FakeClock([]), FakeJournal(), lambda: made.config(rules))


async def turned(loop: Loop) -> Turn:
    return await loop.turn(Wake(WakeKind.TICK))


async def generation(cluster: KubernetesCluster, wanted: int) -> None:
    async with asyncio.timeout(5):
        while (await cluster.observe()).pods[REF].generation != wanted:
            await asyncio.sleep(0.01)


async def test_after_two_conflicts_the_third_ask_is_computed_from_the_fresh_pod(api: ApiServer, build: Build) -> None:
    """RSZ-09."""
    api.objects[NODES], api.objects[PODS] = [node()], [pod(version=1)]
    cluster = await build()
    loop = loop_over(cluster)
    for count in (1, 2):
        api.next_answers[RESIZE].append(always(409, CONFLICT))
        (done,) = (await turned(loop)).done
        assert done.outcome.kind is OutcomeKind.CONFLICT
        # meanwhile someone has given it more memory
        api.send(PODS, "MODIFIED", pod(version=10 * count, generation=count + 1, memory=f"{count + 1}Gi"))
        await generation(cluster, count + 1)
    api.next_answers[RESIZE].append(always(200, pod(version=40, generation=4, cpu="2", memory="3Gi")))
    (done,) = (await turned(loop)).done
    assert done.outcome.kind is OutcomeKind.ACCEPTED
    patches = [seen.body for seen in api.seen if seen.method == "PATCH"]
    assert [patch["metadata"]["resourceVersion"] for patch in patches] == ["1", "10", "20"]
    assert patches[2]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}


def waiting(asked_at: datetime) -> Json:
    """A pod that was asked to grow, at a moment by the server's clock."""
    item = pod(version=1)
    item["spec"]["containers"][0]["resources"] = {
        side: {"cpu": "3", "memory": "1Gi"} for side in ("requests", "limits")
    }
    words = "Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000"
    item["status"]["conditions"] = [
        {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": words, "observedGeneration": 1}
    ]
    item["metadata"]["managedFields"] = [
        {"manager": str(AskKind.TARGET), "subresource": "resize", "time": f"{asked_at:%Y-%m-%dT%H:%M:%SZ}"}
    ]
    return item


@pytest.mark.parametrize("skew", [timedelta(minutes=2), timedelta(minutes=-2)], ids=["ahead", "behind"])
async def test_a_deadline_goes_by_the_servers_clock_however_wrong_ours_is(
    skew: timedelta, api: ApiServer, build: Build
) -> None:
    """Asked 25 s ago with 30 s of patience: neither given up two minutes early, nor two minutes late."""

    api.skew = skew
    asked_at = api.now() - timedelta(seconds=25)
    api.objects[NODES], api.objects[PODS] = [node(cpu="1900m")], [waiting(asked_at)]
    cluster = await build(watch=False)
    assert abs((await cluster.observe()).taken_at - api.now()) < timedelta(seconds=2)
    loop = loop_over(cluster, Fallback(after=timedelta(seconds=30), fit=False))
    plan = (await turned(loop)).plan
    assert plan is not None
    (decision,) = plan.decisions
    assert decision.reason is Reason.RESIZE_DEFERRED
    assert decision.due_at == asked_at.replace(microsecond=0) + timedelta(seconds=30)
