"""Who is told to take no new sessions, and who is told that it may again: by real connections, step by step."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from autoscaler.adapters.sessions.notices import Told
from autoscaler.core.model import PodRef
from autoscaler.core.policy import DrainPolicy, PodEndpoint
from tests.adapters.sessions.bridges import BRIDGE, NOW, bridge, drain, pod, text, watched


async def test_a_pod_is_told_to_drain_once_and_called_off_once() -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy()))
        await seen.looks()
        assert one.told == []  # it is only looked at
        for _ in range(3):
            seen.follow(drain(one.policy(), telling=True, due_in_s=0))
            await seen.looks()
        assert one.told == [
            {"drain": True, "namespace": "sim", "pod": "bridge-0", "uid": "u-1", "by": "bridge-autoscaler"}
        ]
        assert one.requests[-1] == "GET /sessions"
        for _ in range(3):
            seen.follow(drain(one.policy(), telling=False, due_in_s=0))
            await seen.looks()
        assert one.drains == [True, False]
        seen.follow(drain(one.policy(), telling=True, due_in_s=0))
        await seen.looks()
        assert one.drains == [True, False, True]
        seen.follow()
        for _ in range(3):
            await seen.sessions.look_once()
        assert one.drains == [True, False, True, False]
        assert seen.warned == []


async def test_it_is_known_since_when_a_pod_is_told_whatever_it_answers() -> None:
    async with bridge() as one, watched() as seen:

        def told_at() -> datetime | None:
            return seen.sessions.latest()[BRIDGE].told_at

        one.status, one.answer = 503, text("", status=500)
        seen.follow(drain(one.policy(), due_in_s=0))
        await seen.looks()
        assert told_at() is None
        for _ in range(3):  # the first try counts
            seen.later(minutes=1)
            seen.follow(drain(one.policy(), telling=True, due_in_s=0))
            await seen.looks()
            assert told_at() == NOW + timedelta(minutes=1)
            assert not seen.sessions.latest()[BRIDGE].known
        one.status = 200
        await seen.looks()
        seen.follow(drain(one.policy(), telling=True, due_in_s=0))
        assert told_at() == NOW + timedelta(minutes=1)
        seen.follow(drain(one.policy(), due_in_s=0))
        await seen.looks()
        assert told_at() is None
        seen.follow(drain(one.policy(), telling=True, due_in_s=0))
        await seen.looks()
        assert told_at() == NOW + timedelta(minutes=3)
        seen.follow(drain(one.policy(), telling=True, due_in_s=0), telling=False)
        assert told_at() is None  # another replica leads, and tells it anew


async def test_the_loop_hears_that_the_wait_has_begun() -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy()))
        await seen.looks(3)
        seen.changed.clear()
        for telling in (True, True, False):
            seen.follow(drain(one.policy(), telling=telling, due_in_s=0))
            await seen.looks()
            assert seen.changed == [BRIDGE]


async def test_each_notice_is_told_of_once_and_once_more_when_it_is_answered_late() -> None:
    async with bridge() as one, watched() as seen:
        for telling, status in ((True, 503), (True, 503), (True, 200), (True, 200), (False, 200), (False, 200)):
            one.status = status
            seen.follow(drain(one.policy(), telling=telling, due_in_s=0))
            await seen.looks()
        assert seen.notices == [
            Told(BRIDGE, telling=True, answered=False),
            Told(BRIDGE, telling=True, answered=True),
            Told(BRIDGE, telling=False, answered=True),
        ]


async def test_a_pod_that_comes_back_before_it_was_called_off_is_told_nothing_new() -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy(), telling=True))
        await seen.looks()
        seen.follow()
        seen.follow(drain(one.policy(), telling=True))
        await seen.looks()
        assert one.drains == [True]


async def test_a_notice_is_sent_until_it_is_answered_and_the_trouble_is_told_once() -> None:
    async with bridge() as one, watched() as seen:
        one.status = 503
        seen.follow(drain(one.policy(), telling=True))
        await seen.looks(3)
        one.status = 302
        await seen.looks(2)
        one.status = 204
        await seen.looks(3)
        assert one.drains == [True] * 6
        url = f"http://127.0.0.1:{one.port}/drain"
        assert [str(problem.detail) for problem in seen.warned] == [
            f"not told to take no new sessions: {url} answered HTTP 503; tried again",
            f"not told to take no new sessions: {url} answered HTTP 302; tried again",
        ]
        assert {(problem.source, problem.reason) for problem in seen.warned} == {("sim/bridge-0", "NotTold")}


async def test_what_may_have_arrived_is_called_off_as_well() -> None:
    async with bridge() as one, watched() as seen:
        one.status = 500
        seen.follow(drain(one.policy(), telling=True))
        await seen.looks()
        one.status = 200
        seen.follow(drain(one.policy(), telling=False))
        await seen.looks()
        assert one.drains == [True, False]


@pytest.mark.parametrize(("due_in_s", "told"), [(-1, [False]), (0, [False]), (60, [])])
async def test_after_a_restart_a_pod_that_may_have_been_told_is_called_off_once(
    due_in_s: float, told: list[bool]
) -> None:
    async with bridge() as one, watched() as seen:
        for _ in range(3):
            seen.follow(drain(one.policy(), due_in_s=due_in_s))
            await seen.looks()
        assert one.drains == told


async def test_a_deadline_that_passes_meanwhile_counts() -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy(), due_in_s=60))
        await seen.looks()
        seen.later(seconds=61)
        await seen.looks(2)
        assert one.drains == [False]


async def test_standing_by_it_measures_and_tells_nobody() -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy(), telling=True, due_in_s=-60), telling=False)
        assert (await seen.looks(2))[1][0]
        assert one.told == []
        seen.follow(drain(one.policy(), telling=True, due_in_s=-60))
        await seen.looks()
        assert one.drains == [True]
        # another replica leads: it goes on, whatever this one has said
        seen.follow(telling=False)
        await seen.sessions.look_once()
        assert one.drains == [True]
        seen.follow(drain(one.policy(), telling=False, due_in_s=-60))
        await seen.looks()
        assert one.drains == [True, False]


@pytest.mark.parametrize("how", ["gone", "another uid", "deleted", "another address"])
async def test_a_pod_that_is_gone_is_not_called_off(how: str) -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy(), telling=True))
        await seen.looks()
        seen.pods.pods = {
            "gone": [],
            "another uid": [pod(uid="u-2")],
            "deleted": [pod(deleting=True)],
            "another address": [pod(ip="127.0.0.2")],
        }[how]
        seen.follow()
        await seen.sessions.look_once()
        seen.pods.pods = [pod()]
        await seen.sessions.look_once()
        assert one.drains == [True]


async def test_while_it_is_not_known_whether_a_pod_is_gone_it_is_told_nothing() -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy(), telling=True))
        await seen.looks()
        other = PodRef("sim", "bridge-1")
        seen.follow(drain(one.policy(), other, telling=True))
        seen.pods.unavailable = True
        await seen.sessions.look_once()
        assert [(notice["pod"], notice["drain"]) for notice in one.told] == [("bridge-0", True), ("bridge-1", True)]
        seen.pods.unavailable = False
        await seen.sessions.look_once()
        assert [(notice["pod"], notice["drain"]) for notice in one.told[2:]] == [("bridge-0", False)]


async def test_calling_off_is_given_up_where_nothing_listens_any_more() -> None:
    async with bridge() as gate, watched() as seen:
        async with bridge() as one:
            how = gate.policy(notify=PodEndpoint(one.port, "/drain"))
            seen.follow(drain(how, telling=True))
            await seen.looks()
            assert one.drains == [True]
        for follow in (True, False):
            seen.follow(*([drain(how, telling=False, due_in_s=0)] if follow else []))
            for _ in range(5):
                await seen.sessions.look_once()
            url = f"http://127.0.0.1:{one.port}/drain"
            words = f"not told that it may take new sessions again: {url} cannot be reached: Connection refused"
            assert [problem.detail for problem in seen.warned] == [f"{words}; tried again", f"{words}; given up"]


async def test_calling_off_is_given_up_after_ten_minutes_and_draining_is_not() -> None:
    async with bridge() as one, watched() as seen:
        one.status = 500
        seen.follow(drain(one.policy(), telling=True))
        for _ in range(3):
            await seen.looks()
            seen.later(minutes=9)
        seen.follow()
        for _ in range(4):
            await seen.sessions.look_once()
            seen.later(minutes=6)
        assert one.drains == [True, True, True, False, False, False]
        assert [problem.detail.rpartition("; ")[2] for problem in seen.warned] == [
            "tried again",
            "tried again",
            "given up",
        ]


async def test_a_policy_that_names_another_address_calls_off_at_the_old_one() -> None:
    async with bridge() as old, bridge() as new, watched() as seen:
        how = old.policy()
        seen.follow(drain(how, telling=True))
        await seen.looks()
        seen.follow(drain(replace(how, notify=PodEndpoint(new.port, "/v2/drain")), telling=True))
        await seen.looks()
        assert (old.drains, new.drains) == ([True, False], [True])
        assert new.requests == ["POST /v2/drain"]


async def test_without_an_address_nobody_is_told() -> None:
    async with bridge() as one, watched() as seen:
        seen.follow(drain(one.policy(notify=None), telling=True))
        await seen.looks(2)
        assert one.requests == ["GET /sessions"] * 2


async def test_a_gate_by_query_has_notices_too() -> None:
    async with bridge() as one, watched() as seen:
        how = DrainPolicy(query='a{pod=~"$pod"}', notify=PodEndpoint(one.port, "/drain"))
        seen.follow(drain(how, telling=True))
        await seen.looks()
        assert one.drains == [True]


async def test_it_is_told_at_once_and_nothing_at_the_end() -> None:
    async with bridge() as one, watched(interval_s=60) as seen:
        running = asyncio.create_task(seen.sessions.run())
        seen.follow(drain(one.policy()))
        while BRIDGE not in seen.sessions.latest():
            await asyncio.sleep(0.01)
        assert one.told == []
        seen.follow(drain(one.policy(), telling=True, due_in_s=0))
        async with asyncio.timeout(5):
            while not one.told:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert one.drains == [True]


async def test_what_fails_is_tried_again_at_the_next_regular_look_and_not_with_each_turn() -> None:
    async with bridge() as one, watched(interval_s=60) as seen:
        one.status = 500
        running = asyncio.create_task(seen.sessions.run())
        for _ in range(10):
            seen.follow(drain(one.policy(), telling=True), drain(one.policy(), PodRef("sim", f"other-{_}")))
            await asyncio.sleep(0.01)
        assert 1 <= len(one.told) <= 2
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_refused_notice_says_no_more_than_the_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with watched() as seen:
            seen.follow(drain(DrainPolicy(endpoint=PodEndpoint(port), notify=PodEndpoint(port)), telling=True))
            await seen.looks(5)
            assert [problem.detail for problem in seen.warned] == [
                f"not told to take no new sessions: http://127.0.0.1:{port}/ cannot be reached: Connection refused; "
                "tried again"
            ]
