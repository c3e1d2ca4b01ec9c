"""What happens on the API server between the proof of a move and its eviction. The loop is the real one, over the real
cluster; only the moment is chosen, and the watch cache has heard of it before the loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.adapters.kubernetes.connection import Answer, Connection
from autoscaler.adapters.kubernetes.credentials import Kubeconfig
from autoscaler.core.actions import Move, Outcome, OutcomeKind, Resize
from autoscaler.core.model import ClusterSnapshot, Pod, PodRef
from autoscaler.core.policy import Fallback, FallbackAction, Migration, Mode, Policy, Selector
from autoscaler.core.reasons import Reason
from autoscaler.loop import Loop
from autoscaler.ports import Turn, Wake, WakeKind
from tests import build
from tests.e2e.moving import Stage, Staged, uid_of
from tests.e2e.test_budgets import Later, Never, Silent, Wishes

pytestmark = pytest.mark.rig

PATIENCE_S = 60


class Moment(Enum):
    """Where in a turn that moves a pod."""

    DECIDED = "after the plan, before the pod is looked at again"
    LOOKED = "after the pod was looked at again, before anything is sent"
    TRIED = "after the dry run of the eviction, before the eviction"


@dataclass
class Happening:
    """Something that happens once, at its moment."""

    at: Moment | None = None
    what: Callable[[], Awaitable[None]] | None = None
    times: int = 0

    async def come(self, moment: Moment) -> None:
        if moment is self.at and self.what is not None and not self.times:
            self.times += 1
            await self.what()


class Interrupted(Connection):
    """The connection, on which something may happen right after an eviction was tried."""

    happening = Happening()

    async def request(self, method: str, path: str, **more: Any) -> Answer:
        answer = await super().request(method, path, **more)
        if path.endswith("/eviction") and ("dryRun", "All") in more["query"]:
            await self.happening.come(Moment.TRIED)
        return answer


class Asked(NamedTuple):
    """An eviction that the API server was asked for, and the HTTP status of its answer."""

    dry_run: bool
    code: int


@dataclass
class Race:
    """The real cluster of a stage, and turns of one loop over it."""

    stage: Stage
    cluster: KubernetesCluster
    happening: Happening
    moves: list[Move] = field(default_factory=list)
    looks: int = 0

    def __post_init__(self) -> None:
        wishes = Wishes(Later(self.cluster, self.stage.namespace))
        policy = movable(self.stage.namespace)
        self.loop = Loop(self, wishes, Never(), Silent(), lambda: build.config(policy))

    # autoscaler.ports.Cluster

    async def observe(self) -> ClusterSnapshot:
        self.looks += 1
        if self.looks == 2:
            await self.happening.come(Moment.DECIDED)
        return await self.cluster.observe()

    async def perform(self, action: Resize) -> Outcome:
        return await self.cluster.perform(action)

    async def move(self, move: Move) -> Outcome:
        self.moves.append(move)
        await self.happening.come(Moment.LOOKED)
        return await self.cluster.move(move)

    # what a test does

    async def turn(self) -> tuple[Turn, Reason | None]:
        """One turn, and what it says of the one pod; None while there is none."""
        self.looks = 0
        turn = await self.loop.turn(Wake(WakeKind.TICK))
        assert turn.plan is not None
        return turn, next((decision.reason for decision in turn.plan.decisions), None)

    async def turns(self, until: Reason) -> Turn:
        """Turn after turn, until one says this."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                turn, reason = await self.turn()
                if reason is until:
                    return turn
                await asyncio.sleep(0.1)

    async def seen(self, holds: Callable[[Mapping[PodRef, Pod]], bool]) -> None:
        """Wait until the watch cache has heard of it."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds((await self.cluster.observe()).pods):
                await asyncio.sleep(0.02)

    async def replaced(self, uid: str) -> None:
        """Somebody deletes the pod; the StatefulSet makes another of its name, which serves."""
        stage = self.stage
        await self._kubectl("delete", "pod", "sim-0", f"--namespace={stage.namespace}", "--now")
        ref = PodRef(stage.namespace, "sim-0")
        await self.seen(lambda pods: ref in pods and pods[ref].uid != uid and pods[ref].ready)

    async def touched(self) -> None:
        """Somebody writes to the pod."""
        await self._kubectl("label", "pod", "sim-0", f"--namespace={self.stage.namespace}", "touched=yes")

    async def filled(self, node: str, cpu: str) -> None:
        """Somebody else's pod takes so much of a node."""
        filler = self.stage.neighbour(node, cpu)
        await asyncio.to_thread(self.stage.apply, filler)
        await self.seen(lambda pods: PodRef("default", filler["metadata"]["name"]) in pods)

    async def emptied(self, node: str) -> None:
        """It goes."""
        await self._kubectl("delete", "pod", f"on-{node}", "--namespace=default", "--now")
        await self.seen(lambda pods: PodRef("default", f"on-{node}") not in pods)

    async def _kubectl(self, *arguments: str) -> None:
        await asyncio.to_thread(self.stage.rig.kubectl, *arguments)  # the watches go on meanwhile

    def asked(self) -> list[Asked]:
        """The evictions that the API server was asked for, oldest first, those that it refused as well."""
        return [
            Asked("dryRun" in parse_qs(urlsplit(record["requestURI"]).query), record["responseStatus"]["code"])
            for record in self.stage.rig.audit()
            if (of := record.get("objectRef") or {}).get("namespace") == self.stage.namespace
            and of.get("subresource") == "eviction"
        ]


def movable(namespace: str) -> Policy:
    """Whatever has waited for a second is moved."""
    second = timedelta(seconds=1)
    fallback = Fallback(after=second, action=FallbackAction.MIGRATE, fit=False, migration=Migration(min_pod_age=second))
    return build.policy(selector=Selector(frozenset({namespace})), mode=Mode.RESIZE_OR_MIGRATE, fallback=fallback)


@asynccontextmanager
async def racing(stage: Stage) -> AsyncIterator[Race]:
    connection = await Interrupted.open(Kubeconfig((stage.rig.kubeconfig,)))
    assert isinstance(connection, Interrupted)
    connection.happening = Happening()
    cluster = KubernetesCluster(connection)
    try:
        await cluster.start()
        yield Race(stage, cluster, connection.happening)
    finally:
        await cluster.close()
        await connection.close()


async def test_room_that_vanishes_between_the_proof_and_the_eviction_stops_it_until_it_is_back(staged: Staged) -> None:
    stage = staged("vanishing")
    stage.place(stage.workload())
    other = stage.node("other")
    old = uid_of(stage.pod())
    async with racing(stage) as race:
        # what is left takes the next pod as its template has it, and has no room for its size
        race.happening.at, race.happening.what = Moment.DECIDED, lambda: race.filled(other, "3")
        turn = await race.turns(until=Reason.MIGRATE)
        assert (race.happening.times, turn.done, race.moves) == (1, (), [])
        assert (await race.turn())[1] is Reason.NEEDS_NEW_NODE
        assert race.asked() == []
        assert uid_of(stage.pod()) == old

        await race.emptied(other)
        turn, reason = await race.turn()
        assert (reason, [done.outcome.kind for done in turn.done]) == (Reason.MIGRATE, [OutcomeKind.ACCEPTED])
        await race.turns(until=Reason.AT_TARGET)
        assert stage.landed(other)()
        assert uid_of(stage.pod()) != old
        assert race.asked() == [Asked(True, 201), Asked(False, 201)]


@pytest.mark.parametrize(
    ("moment", "outcomes", "asked"),
    [
        (Moment.DECIDED, [], []),
        (Moment.LOOKED, [OutcomeKind.GONE], []),
        # the watch has nothing to do with it any more: the API server compares
        (Moment.TRIED, [OutcomeKind.GONE], [Asked(True, 201), Asked(False, 409)]),
    ],
    ids=["before it is looked at again", "before anything is sent", "after the dry run"],
)
async def test_a_pod_that_was_replaced_by_another_of_its_name_meanwhile_is_not_mistaken_for_it(
    staged: Staged, moment: Moment, outcomes: list[OutcomeKind], asked: list[Asked]
) -> None:
    stage = staged("replaced")
    stage.place(stage.workload())
    other = stage.node("other")
    old = uid_of(stage.pod())
    async with racing(stage) as race:
        race.happening.at, race.happening.what = moment, lambda: race.replaced(old)
        turn = await race.turns(until=Reason.MIGRATE)
        assert race.happening.times == 1
        assert [done.outcome.kind for done in turn.done] == outcomes
        new = uid_of(stage.pod())
        assert new != old
        await race.turns(until=Reason.AT_TARGET)
        assert stage.landed(other)()
        assert uid_of(stage.pod()) == new
        assert race.asked() == asked


async def test_a_pod_that_is_written_to_after_the_dry_run_is_decided_about_anew(staged: Staged) -> None:
    stage = staged("touched")
    stage.place(stage.workload())
    other = stage.node("other")
    old = uid_of(stage.pod())
    async with racing(stage) as race:
        race.happening.at, race.happening.what = Moment.TRIED, race.touched
        turn = await race.turns(until=Reason.MIGRATE)
        assert [done.outcome.kind for done in turn.done] == [OutcomeKind.CONFLICT]
        assert race.asked() == [Asked(True, 201), Asked(False, 409)]
        assert uid_of(stage.pod()) == old
        await race.turns(until=Reason.AT_TARGET)
        assert stage.landed(other)()
        assert stage.evicted() == ["sim-0"]
