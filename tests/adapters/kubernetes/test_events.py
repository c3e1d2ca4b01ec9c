"""The journal that writes events: what it writes, and what happens when it cannot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from autoscaler.adapters.kubernetes.backoff import Backoff
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.events import EventJournal
from autoscaler.core.actions import Evict, Outcome, OutcomeKind
from autoscaler.core.model import Pod, Problem
from autoscaler.core.plan import Decision, Plan, Proposal, resize_of
from autoscaler.core.reasons import Reason
from autoscaler.ports import Done, Turn, Wake, WakeKind
from tests.adapters.kubernetes.api_server import ApiServer, Handler, always, hang, lose
from tests.build import NOW, pod, sizes

PATH = "/apis/events.k8s.io/v1/namespaces/bridge/events"
POST = f"POST {PATH}"
CREATED = always(201, {"kind": "Event"})
NO_RULE = (
    'events.events.k8s.io is forbidden: User "system:serviceaccount:a:b" cannot create resource "events" in API group '
    '"events.k8s.io" in the namespace "bridge"'
)


def held(sized: Pod, reason: Reason = Reason.RESIZE_DEFERRED, detail: str = "no room: cpu 1200") -> Decision:
    return Decision(sized, "bridges", reason, detail, tuple(Proposal(c, c.spec) for c in sized.containers))


def turn(*decisions: Decision, at: float = 0, kind: WakeKind = WakeKind.TICK, done: tuple[Done, ...] = ()) -> Turn:
    plan = Plan(NOW + timedelta(seconds=at), decisions)
    return Turn(1, Wake(kind), timedelta(0), plan, done)


@asynccontextmanager
async def writing(
    connection: Connection, told: list[Problem] | None = None, **options: Any
) -> AsyncIterator[EventJournal]:
    quick: dict[str, Any] = {"per_s": 1000, "backoff": Backoff(0.01, limit_s=0.05), "instance": "here"}
    journal = EventJournal(connection, (told if told is not None else []).append, **{**quick, **options})
    journal.start()
    yield journal
    await journal.close(1)


def results(journal: EventJournal) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(journal)
    family = next(iter(registry.collect()))
    assert family.name == "bridge_autoscaler_events"
    return {sample.labels["result"]: sample.value for sample in family.samples}


def written(api: ApiServer) -> list[dict[str, Any]]:
    return [seen.body for seen in api.seen if seen.method == "POST" and seen.path == PATH]


def answers(api: ApiServer, *handlers: Handler) -> None:
    api.next_answers[POST].extend(handlers)


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_resize_and_a_hold_are_written(api: ApiServer, connection: Connection) -> None:
    answers(api, CREATED, CREATED)
    sized = pod(name="sim-1")
    grown = tuple(Proposal(c, sizes("800m", "1Gi", "1600m", "2Gi")) for c in sized.containers)
    asked = Decision(sized, "bridges", Reason.INCREASE, "", grown, resize_of(sized, grown))
    acted = Done(asked, Outcome(OutcomeKind.ACCEPTED), timedelta(0))
    async with writing(connection) as journal:
        journal.record(turn(held(pod()), asked, done=(acted,)))
    first, second = written(api)
    assert (first["reason"], first["regarding"]["name"], first["type"]) == ("Increase", "sim-1", "Normal")
    assert (second["reason"], second["regarding"]["name"], second["type"]) == ("ResizeDeferred", "sim-0", "Warning")
    assert results(journal) == {"written": 2, "known": 0, "failed": 0, "dropped": 0}


async def test_a_hold_is_written_when_it_begins_and_not_again(api: ApiServer, connection: Connection) -> None:
    answers(api, *[CREATED] * 9)
    deferred, settled = held(pod()), held(pod(), Reason.AT_TARGET)
    async with writing(connection) as journal:
        journal.record(turn(deferred))
        journal.record(turn(deferred, at=30))
        journal.record(turn(settled, at=60))
        journal.record(turn(held(pod(), detail="no room: cpu 1300"), at=90))  # the same, with other numbers
        journal.record(turn(settled, at=120))
        journal.record(turn(deferred, at=3600))
        journal.record(turn(deferred, at=9000))  # it never ended: it began once
    assert [body["eventTime"] for body in written(api)] == [
        "2026-11-29T12:00:00.000000Z",
        "2026-11-29T13:00:00.000000Z",
    ]


async def test_an_eviction_that_is_blocked_again_and_again_is_told_once_an_hour(
    api: ApiServer, connection: Connection
) -> None:
    answers(api, *[CREATED] * 9)
    sized = pod()
    evict = Evict(sized.ref, sized.uid, sized.resource_version)
    tried = replace(held(sized, Reason.MIGRATE, "to node-b"), move=evict)
    blocked = Done(tried, Outcome(OutcomeKind.BLOCKED, "sim needs 1 healthy"), timedelta(0), move=True)
    async with writing(connection) as journal:
        for n in range(13):
            journal.record(turn(tried, at=600 * n, done=(blocked,)))
            waits = held(sized, Reason.EVICTION_BLOCKED, f"sim needs 1 healthy; no room for {600 * n} s")
            journal.record(turn(waits, at=600 * n + 1))
    assert [(body["reason"], body["eventTime"][11:16]) for body in written(api)] == [
        ("EvictionBlocked", "12:00"),
        ("EvictionBlocked", "13:00"),
        ("EvictionBlocked", "14:00"),
    ]


async def test_a_turn_about_other_pods_forgets_nothing(api: ApiServer, connection: Connection) -> None:
    answers(api, *[CREATED] * 9)
    other = held(pod(name="other"), Reason.AT_TARGET)
    async with writing(connection) as journal:
        journal.record(turn(held(pod())))
        journal.record(turn(other, at=1, kind=WakeKind.CHANGED))
        journal.record(turn(held(pod()), other, at=7200))
    assert len(written(api)) == 1


async def test_what_nobody_needs_to_know_is_not_written(api: ApiServer, connection: Connection) -> None:
    async with writing(connection) as journal:
        journal.record(turn(*(held(pod(name=f"sim-{r.value.lower()}"), r) for r in Reason if not r.notify)))
        journal.record(Turn(2, Wake(WakeKind.TICK), timedelta(0), unavailable="down"))
    assert written(api) == []


async def test_an_event_that_is_there_already_is_no_failure(api: ApiServer, connection: Connection) -> None:
    answers(api, always(409, {"kind": "Status", "code": 409}))
    async with writing(connection) as journal:
        journal.record(turn(held(pod())))
    assert results(journal) == {"written": 0, "known": 1, "failed": 0, "dropped": 0}


async def test_a_missing_permission_switches_it_off_and_is_told_once(api: ApiServer, connection: Connection) -> None:
    answers(api, always(403, {"kind": "Status", "message": NO_RULE, "code": 403}), CREATED)
    told: list[Problem] = []
    async with writing(connection, told) as journal:
        journal.record(turn(*(held(pod(name=f"sim-{i}")) for i in range(5))))
        await eventually(lambda: bool(told))
        journal.record(turn(held(pod(name="later"))))
    assert len(written(api)) == 1
    (problem,) = told
    assert problem.reason == "CapabilityMissing"
    assert "kubectl apply -k rbac/events" in problem.detail
    assert results(journal) == {"written": 0, "known": 0, "failed": 1, "dropped": 4}


async def test_a_namespace_that_is_being_deleted_does_not_switch_it_off(api: ApiServer, connection: Connection) -> None:
    message = "events is forbidden: unable to create new content in namespace bridge because it is being terminated"
    answers(api, always(403, {"kind": "Status", "message": message, "code": 403}), CREATED)
    told: list[Problem] = []
    async with writing(connection, told) as journal:
        journal.record(turn(held(pod(name="a")), held(pod(name="b"))))
    assert told == []
    assert results(journal) == {"written": 1, "known": 0, "failed": 1, "dropped": 0}


async def test_nothing_is_tried_twice(api: ApiServer, connection: Connection) -> None:
    answers(api, lose, always(500, "no"), always(429, {"kind": "Status", "code": 429}), CREATED)
    async with writing(connection) as journal:
        journal.record(turn(*(held(pod(name=f"sim-{i}")) for i in range(4))))
    assert results(journal) == {"written": 1, "known": 0, "failed": 3, "dropped": 0}
    assert len({body["metadata"]["name"] for body in written(api)}) == 4


async def test_a_server_that_hangs_delays_nobody_and_the_oldest_give_way(
    api: ApiServer, connection: Connection
) -> None:
    answers(api, hang)
    async with writing(connection, capacity=3) as journal:
        journal.record(turn(held(pod(name="first"))))
        await eventually(lambda: len(written(api)) == 1)
        began = time.monotonic()
        journal.record(turn(*(held(pod(name=f"sim-{i}")) for i in range(500))))
        assert time.monotonic() - began < 0.5
        assert results(journal)["dropped"] == 497
        began = time.monotonic()
        await journal.close(0.2)
        assert time.monotonic() - began < 1
        assert results(journal)["dropped"] == 500


async def test_what_waits_is_written_at_the_end_and_not_too_fast(api: ApiServer, connection: Connection) -> None:
    answers(api, *[CREATED] * 10)
    began = time.monotonic()
    async with writing(connection, per_s=20) as journal:
        journal.record(turn(*(held(pod(name=f"sim-{i}")) for i in range(6))))
    assert time.monotonic() - began >= 0.2
    assert results(journal)["written"] == 6


async def test_a_pod_that_was_made_anew_is_another(api: ApiServer, connection: Connection) -> None:
    answers(api, CREATED, CREATED)
    async with writing(connection) as journal:
        journal.record(turn(held(pod())))
        journal.record(turn(held(replace(pod(), uid="new")), at=30))
    assert [body["regarding"]["uid"] for body in written(api)] == ["uid-sim-0", "new"]
