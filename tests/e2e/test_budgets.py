"""Budgets on a real API server: what goes on is counted there, so that each turn may be another controller's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import yaml

from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.core.actions import Move, Outcome, OutcomeKind, Resize
from autoscaler.core.history import ContainerRef, Measurements
from autoscaler.core.model import ClusterSnapshot, Pod
from autoscaler.core.policy import Fallback, Policy, Selector
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import PENDING
from autoscaler.loop import Loop
from autoscaler.ports import Turn, Wake, WakeKind
from tests import build
from tests.rig.observer import cluster_of
from tests.rig.rig import Rig

pytestmark = pytest.mark.rig

NODE = "budgets"


@dataclass
class Later:
    """The real cluster, some time from now; what was asked for is kept."""

    cluster: KubernetesCluster
    namespace: str
    by: timedelta = timedelta(0)
    asked: list[str] = field(default_factory=list)

    async def observe(self) -> ClusterSnapshot:
        seen = await self.cluster.observe()
        return replace(seen, taken_at=seen.taken_at + self.by)

    async def move(self, move: Move) -> Outcome:
        return await self.cluster.move(move)

    async def perform(self, action: Resize) -> Outcome:
        outcome = await self.cluster.perform(action)
        assert outcome.kind is OutcomeKind.ACCEPTED, outcome
        self.asked.append(action.pod.name)
        return outcome

    async def pods(self) -> dict[str, Pod]:
        found = (await self.cluster.observe()).pods.values()
        return {pod.name: pod for pod in found if pod.namespace == self.namespace}

    async def until(self, holds: Callable[[dict[str, Pod]], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds(await self.pods()):
                await asyncio.sleep(0.02)

    async def turn(self, policy: Policy) -> dict[str, Reason]:
        """One turn of a controller that has just started."""
        clock, journal = Never(), Silent()
        loop = Loop(self, Wishes(self), clock, journal, lambda: build.config(policy))
        turn = await loop.turn(Wake(WakeKind.TICK))
        assert turn.plan is not None
        return {decision.pod.name: decision.reason for decision in turn.plan.decisions}


@dataclass
class Wishes:
    """Metrics by which every pod wants two cores."""

    later: Later

    def follow(self, wanted: Mapping[ContainerRef, Policy]) -> None:
        self.wanted = wanted

    def latest(self) -> Measurements:
        now = datetime.now(UTC) + self.later.by
        wants = build.history(state=build.target("2"), age_s=60 - int((now - build.NOW).total_seconds()))
        return Measurements(now, dict.fromkeys(self.wanted, wants))


class Never:
    async def until(self, moment: datetime) -> None:
        await asyncio.Event().wait()

    async def wait(self, until: datetime | None) -> Wake:
        return Wake(WakeKind.STOP)


class Silent:
    def record(self, turn: Turn) -> None:
        """Nobody listens."""


@pytest.fixture
def node(rig: Rig) -> Iterator[Callable[[str], None]]:
    yield lambda cpu: rig.agent.add_node(NODE, cpu=cpu, labels={"only-for": NODE})
    rig.agent.remove_node(NODE)


@asynccontextmanager
async def three_bridges(rig: Rig, restart_policy: str) -> AsyncIterator[Later]:
    """A StatefulSet of three pods with one core each."""
    namespace = rig.namespace(NODE)
    size = {"cpu": "1", "memory": "64Mi"}
    container = {
        "name": "app",
        "image": "bridge",
        "resources": {"requests": size, "limits": size},
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": restart_policy}],
    }
    made = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "sim", "namespace": namespace},
        "spec": {
            "serviceName": "sim",
            "replicas": 3,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "sim"}},
            "template": {
                "metadata": {"labels": {"app": "sim"}},
                "spec": {"containers": [container], "nodeSelector": {"only-for": NODE}},
            },
        },
    }
    rig.apply(yaml.safe_dump(made))
    try:
        async with cluster_of(rig.kubeconfig) as cluster:
            later = Later(cluster, namespace)
            await later.until(
                lambda pods: len(pods) == 3 and all(p.ready and p.phase == "Running" for p in pods.values())
            )
            yield later
    finally:
        rig.kubectl("delete", "statefulset", "sim", f"--namespace={namespace}", "--wait=false")


def _restarted(name: str, pods: dict[str, Pod]) -> bool:
    return pods[name].containers[0].restart_count == 1 and not pods[name].conditions


def bridges(namespace: str) -> Policy:
    patient = Fallback(after=timedelta(hours=1), fit=False)
    return build.policy(selector=Selector(frozenset({namespace})), fallback=patient)


async def test_on_a_full_node_one_pod_waits_and_the_others_wait_behind_it(
    rig: Rig, node: Callable[[str], None]
) -> None:
    node("3")
    async with three_bridges(rig, "NotRequired") as later:
        policy = bridges(later.namespace)
        for _ in range(3):
            reasons = await later.turn(policy)
            await later.until(lambda pods: any(pod.condition(PENDING) is not None for pod in pods.values()))
        assert len(later.asked) == 1
        (first,) = later.asked
        assert reasons.pop(first) is Reason.RESIZE_DEFERRED
        assert list(reasons.values()) == [Reason.NODE_FULL] * 2
        deferred = [name for name, pod in (await later.pods()).items() if pod.condition(PENDING) is not None]
        assert deferred == [first]


async def test_pods_whose_containers_restart_follow_each_other(rig: Rig, node: Callable[[str], None]) -> None:
    node("8")
    async with three_bridges(rig, "RestartContainer") as later:
        policy = bridges(later.namespace)
        for count in (1, 2, 3):
            later.by = timedelta(seconds=62 if count > 1 else 0)  # a minute after the last one was back
            assert Reason.INCREASE in (await later.turn(policy)).values()
            assert len(later.asked) == count
            last = later.asked[-1]
            await later.until(partial(_restarted, last))
            later.by = timedelta(0)
            reasons = await later.turn(policy)
            assert len(later.asked) == count
            held = [name for name in reasons if name not in later.asked]
            assert [reasons[name] for name in held] == [Reason.DISRUPTION_BUDGET] * (3 - count)
        assert sorted(later.asked) == ["sim-0", "sim-1", "sim-2"]
        # a restart that the resizePolicy explains stops nothing
        assert set((await later.turn(policy)).values()) == {Reason.AT_TARGET}
