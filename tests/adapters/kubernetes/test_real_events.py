"""Events on a real API server, as the controller's own service account under the shipped role."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.credentials import Kubeconfig
from autoscaler.adapters.kubernetes.events import EventJournal
from autoscaler.core.model import Problem
from autoscaler.core.plan import Decision, Plan
from autoscaler.core.reasons import Reason
from autoscaler.ports import Turn, Wake, WakeKind
from tests.adapters.kubernetes.test_events import held, results, turn
from tests.build import pod
from tests.rig.rig import Rig

pytestmark = pytest.mark.rig


@asynccontextmanager
async def journal_of(kubeconfig: Path, told: list[Problem]) -> AsyncIterator[EventJournal]:
    connection = await Connection.open(Kubeconfig((kubeconfig,)))
    try:
        journal = EventJournal(connection, told.append)
        journal.start()
        yield journal
        await journal.close()
    finally:
        await connection.close()


def now(decision: Decision) -> Turn:
    """A turn of this moment."""
    made = turn(decision)
    return Turn(1, Wake(WakeKind.TICK), made.took, Plan(datetime.now(UTC), (decision,)))


async def test_an_event_is_on_the_pod_once_and_survives_a_restart_once(rig: Rig) -> None:
    namespace = rig.namespace("events")
    told: list[Problem] = []
    hold = held(pod(namespace=namespace, name="bridge-0"), Reason.RESIZE_DEFERRED, "words " * 400)
    recorded = now(hold)
    for expected in ({"written": 1}, {"known": 1}):
        async with journal_of(rig.kubeconfig, told) as journal:
            journal.record(recorded)
        assert {result: count for result, count in results(journal).items() if count} == expected
    assert told == []

    def listed(kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(rig.kubectl("get", kind, f"-n={namespace}", "-o=json"))["items"]
        return found

    (event,) = listed("events.events.k8s.io")
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "ResizeDeferred", "Hold")
    assert (event["regarding"]["name"], event["regarding"]["uid"]) == ("bridge-0", "uid-bridge-0")
    assert event["reportingController"] == "bridge-autoscaler"
    assert len(event["note"]) == 1024
    (seen,) = listed("events")  # what kubectl describe shows
    assert (seen["involvedObject"]["uid"], seen["reason"]) == ("uid-bridge-0", "ResizeDeferred")


async def test_without_the_role_nothing_is_written_and_the_folder_is_named(rig: Rig) -> None:
    told: list[Problem] = []
    async with journal_of(rig.nobody_kubeconfig, told) as journal:
        journal.record(now(held(pod(namespace="default"))))
    (problem,) = told
    assert (
        'nobody lacks the rule {apiGroups: ["events.k8s.io"], resources: [events], verbs: [create]}' in problem.detail
    )
    assert "rbac/events" in problem.detail
