"""Leader election by value: what is written, who leads when, and never two at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.credentials import Kubeconfig
from autoscaler.adapters.kubernetes.errors import BadConfiguration, PermissionMissing
from autoscaler.adapters.kubernetes.lease import Election, LeaseTiming, own_identity
from tests.adapters.kubernetes.conftest import write_kubeconfig
from tests.adapters.kubernetes.leases import NAMESPACE, LeaseServer, Line, in_virtual_time

FOREIGN = {
    "holderIdentity": "other",
    "leaseDurationSeconds": 15,
    "renewTime": "2026-11-29T10:00:00.000000Z",
    "acquireTime": "2026-11-29T09:00:00.000000Z",
    "leaseTransitions": 4,
}
HANGS = (3600.0, 0.0, "")


class Replica:
    """An election with its line to the server, and what it has said."""

    def __init__(self, leases: LeaseServer, name: str = "a", *, skew_s: float = 0, uptime_s: float = 0) -> None:
        loop = asyncio.get_running_loop()
        self.line = Line(leases, timedelta(seconds=skew_s))
        self.changes: list[tuple[float, bool]] = []
        self.details: list[str] = []
        self.failures: list[str] = []
        self.election = Election(
            self.line,
            NAMESPACE,
            name,
            changed=self._changed,
            failed=self.failures.append,
            monotonic=lambda: loop.time() + uptime_s,
        )

    @property
    def leading(self) -> bool:
        return self.election.leading()

    def _changed(self, leading: bool, detail: str) -> None:
        self.changes.append((asyncio.get_running_loop().time(), leading))
        self.details.append(detail)

    async def live(self) -> None:
        await self.election.start()
        await self.election.run()


@asynccontextmanager
async def living(*replicas: Replica) -> AsyncIterator[None]:
    """Let them contend; at the end they are killed: nothing is released."""
    tasks = [asyncio.create_task(replica.live()) for replica in replicas]
    try:
        yield
    finally:
        rest = [*tasks, *(task for replica in replicas for task in replica.line.cancel())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


async def until(second: float) -> None:
    await asyncio.sleep(second - asyncio.get_running_loop().time())


def test_the_first_creates_the_lease_leads_at_once_and_renews_it() -> None:
    async def story() -> None:
        leases = LeaseServer()
        one = Replica(leases)
        async with living(one):
            await until(5)
        first, *more = leases.stored
        assert first == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-11-29T10:00:00.123456Z",
            "renewTime": "2026-11-29T10:00:00.123456Z",
            "leaseTransitions": 0,
        }
        assert [spec["renewTime"] for spec in more] == ["2026-11-29T10:00:02.123456Z", "2026-11-29T10:00:04.123456Z"]
        assert {spec["acquireTime"] for spec in more} == {first["acquireTime"]}
        assert one.line.seen == ["GET", "POST", "PUT", "PUT"]  # a holder does not read
        assert one.changes == [(0, True)]

    in_virtual_time(story)


@pytest.mark.parametrize("spec", [{**FOREIGN, "holderIdentity": ""}, {}, {"leaseTransitions": 4}])
def test_a_lease_that_nobody_holds_is_taken_at_once(spec: dict[str, Any]) -> None:
    async def story() -> None:
        leases = LeaseServer()
        leases.put_in(**spec)
        one = Replica(leases)
        async with living(one):
            await until(0.1)
            assert one.leading
        assert leases.stored[-1]["holderIdentity"] == "a"
        assert leases.stored[-1]["leaseTransitions"] == spec.get("leaseTransitions", 0) + 1
        assert leases.stored[-1]["acquireTime"] == leases.stored[-1]["renewTime"]

    in_virtual_time(story)


def test_a_lease_whose_count_is_at_its_end_can_be_taken() -> None:
    """By hand, or by another program. The server answers 400 to a number beyond int32."""

    async def story() -> None:
        leases = LeaseServer()
        leases.put_in(leaseTransitions=2**31 - 1)
        async with living(Replica(leases)):
            await until(0.1)
        assert leases.stored[-1]["leaseTransitions"] == 0

    in_virtual_time(story)


def test_what_others_wrote_beside_the_record_is_kept() -> None:
    async def story() -> None:
        leases = LeaseServer()
        leases.put_in(**FOREIGN, strategy="Newer")
        assert leases.lease is not None
        leases.lease["metadata"]["labels"] = {"kept": "yes"}
        async with living(Replica(leases)):
            await until(20)
        assert leases.holder == "a"
        assert leases.lease["metadata"]["labels"] == {"kept": "yes"}
        assert leases.lease["spec"]["strategy"] == "Newer"

    in_virtual_time(story)


@pytest.mark.parametrize("lasts_s", [15, 40])
@pytest.mark.parametrize("skew_s", [-120.0, 0.0, 120.0])
def test_anothers_lease_is_over_when_it_has_not_changed_for_as_long_as_it_lasts(lasts_s: int, skew_s: float) -> None:
    """By the clock of the one who waits: however old the times in the lease, and whatever the time is."""

    async def story() -> None:
        leases = LeaseServer()
        leases.put_in(**{**FOREIGN, "leaseDurationSeconds": lasts_s})
        one = Replica(leases, skew_s=skew_s, uptime_s=12345)
        async with living(one):
            await until(7)
            leases.put_in(**{**FOREIGN, "leaseDurationSeconds": lasts_s, "renewTime": "2020-01-01T00:00:00.000000Z"})
            await until(8 + lasts_s - 0.1)  # the change was seen at 8
            assert leases.holder == "other"
            await until(8 + lasts_s + 0.1)  # to the moment, not to the next retry
            assert one.leading
        assert leases.holder == "a"
        assert one.changes[0] == (0, False)
        assert one.details[0] == "other holds the Lease bridge-autoscaler/bridge-autoscaler"

    in_virtual_time(story)


def test_a_label_on_anothers_lease_is_no_renewal() -> None:
    async def story() -> None:
        leases = LeaseServer()
        leases.put_in(**FOREIGN)
        one = Replica(leases)
        async with living(one):
            for second in range(15):
                await until(second + 0.5)
                leases.put_in(**FOREIGN)  # a new version, the same record
            await until(16.1)
            assert one.leading

    in_virtual_time(story)


def test_a_lease_that_was_deleted_under_another_is_waited_for_all_the_same() -> None:
    async def story() -> None:
        leases = LeaseServer()
        leases.put_in(**FOREIGN)
        one = Replica(leases)
        async with living(one):
            await until(3)
            leases.lease = None
            await until(14.9)
            assert leases.lease is None
            await until(17)
            assert one.leading

    in_virtual_time(story)


def test_a_lease_that_was_deleted_under_us_is_made_again() -> None:
    async def story() -> None:
        leases = LeaseServer()
        one = Replica(leases)
        async with living(one):
            await until(3)
            leases.lease = None
            await until(5)
            assert leases.holder == "a"
        assert one.changes == [(0, True)]

    in_virtual_time(story)


def test_of_two_that_try_at_once_one_leads() -> None:
    async def story() -> None:
        leases = LeaseServer()
        leases.put_in(**FOREIGN)
        both = Replica(leases, "a"), Replica(leases, "b")
        async with living(*both):
            await until(60)
            assert sorted(one.leading for one in both) == [False, True]
        taken = [spec for spec in leases.stored if spec["leaseTransitions"] == 5]
        assert len({spec["holderIdentity"] for spec in taken}) == 1
        assert leases.stored[-1]["leaseTransitions"] == 5

    in_virtual_time(story)


@pytest.mark.parametrize("end", ["refused", "500", "429", "403"])
def test_renewals_that_fail_end_the_leadership_before_anyone_may_take_over(end: str) -> None:
    async def story() -> None:
        leases = LeaseServer()
        one, two = Replica(leases, "a"), Replica(leases, "b")
        async with living(one):
            await until(1)
            async with living(two):
                await until(4.5)
                one.line.always = (0.0, 0.0, end)  # the last renewal was sent at 4
                await until(13.9)
                assert one.leading
                await until(14.1)
                assert not one.leading
                assert not two.leading
                await until(21.1)
                assert two.leading
        assert one.changes == [(0, True), (14, False)]
        assert one.details[-1].startswith("the Lease bridge-autoscaler/bridge-autoscaler was not renewed for 10 s: ")
        assert len(one.failures) == 1

    in_virtual_time(story)


def test_an_api_server_that_hangs_ends_the_leadership_in_time() -> None:
    async def story() -> None:
        leases = LeaseServer()
        one = Replica(leases)
        async with living(one):
            await until(4.5)
            one.line.always = HANGS
            await until(14.1)
            assert not one.leading
            assert one.changes == [(0, True), (14, False)]  # said in time, although a request is under way
            assert "did not answer within 5.0 s" in one.details[-1]
            one.line.always = (0.0, 0.0, "")
            await until(30)
            assert one.leading
        assert leases.holder == "a"

    in_virtual_time(story)


def test_the_time_counts_from_when_a_renewal_was_sent() -> None:
    async def story() -> None:
        leases = LeaseServer()
        one = Replica(leases)
        async with living(one):
            await until(1)
            one.line.fates.append((4.0, 0.5, ""))  # sent at 2, stored at 6, answered at 6.5
            await until(7)
            one.line.always = HANGS
            assert one.leading
            await until(12.1)
            assert not one.leading

    in_virtual_time(story)


def test_a_write_whose_answer_was_lost_is_no_leadership_until_it_is_seen() -> None:
    async def story() -> None:
        leases = LeaseServer()
        one = Replica(leases)
        one.line.fates.extend([(0.0, 0.0, ""), (0.0, 0.0, "lost")])
        async with living(one):
            await until(1)
            assert leases.holder == "a"
            assert not one.leading
            await until(2.5)
            assert one.leading
        assert one.changes == [(0, False), (2, True)]
        assert {spec["leaseTransitions"] for spec in leases.stored} == {0}

    in_virtual_time(story)


def test_a_leader_that_sees_another_holder_stops_at_once() -> None:
    async def story() -> None:
        leases = LeaseServer()
        one = Replica(leases)
        async with living(one):
            await until(3)
            leases.put_in(**FOREIGN)
            await until(4.1)
            assert not one.leading
        assert one.changes == [(0, True), (4, False)]
        assert leases.holder == "other"

    in_virtual_time(story)


def test_release_lets_another_begin_within_a_retry() -> None:
    async def story() -> None:
        leases = LeaseServer()
        one, two = Replica(leases, "a"), Replica(leases, "b")
        async with living(two):
            two.line.fates.append((0.0, 0.0, "refused"))
            async with living(one):
                await until(8.5)
                assert (one.leading, two.leading) == (True, False)
            await one.election.release()
            assert not one.leading
            assert leases.stored[-1]["holderIdentity"] == ""
            assert leases.stored[-1]["leaseDurationSeconds"] == 1
            await until(10.6)
            assert two.leading
        assert leases.stored[-1]["leaseTransitions"] == 1

    in_virtual_time(story)


def test_release_after_a_renewal_that_was_cut_off() -> None:
    async def story() -> None:
        leases = LeaseServer()
        one = Replica(leases)
        one.line.fates.extend([(0.0, 0.0, ""), (0.0, 0.0, ""), (0.0, 60.0, "")])
        async with living(one):
            await until(2.5)  # stored, not answered
        await one.election.release()
        assert leases.holder == ""

    in_virtual_time(story)


def test_release_leaves_anothers_lease_alone_and_does_not_hang() -> None:
    async def story() -> None:
        leases = LeaseServer()
        leases.put_in(**FOREIGN)
        two = Replica(leases, "b")
        await two.election.start()
        await two.election.release()
        assert two.line.seen == ["GET"]
        leases.lease = None
        one = Replica(leases)
        await one.election.start()
        leases.put_in(**FOREIGN)
        await one.election.release()
        assert leases.holder == "other"
        leases.lease = None
        hung = Replica(leases)
        await hung.election.start()
        hung.line.always = HANGS
        before = asyncio.get_running_loop().time()
        await hung.election.release()
        assert asyncio.get_running_loop().time() - before <= 5
        for task in [*hung.line.cancel()]:
            with suppress(asyncio.CancelledError):
                await task

    in_virtual_time(story)


def test_a_missing_rule_or_namespace_ends_the_start_with_what_to_do() -> None:
    async def story() -> None:
        one = Replica(LeaseServer())
        one.line.always = (0.0, 0.0, "403")
        with pytest.raises(PermissionMissing, match="--leader-elect=false"):
            await one.election.start()
        one.line.always = (0.0, 0.0, "404")
        with pytest.raises(BadConfiguration, match=r"namespace bridge-autoscaler .* does not exist.*--lease-namespace"):
            await one.election.start()

    in_virtual_time(story)


def test_an_api_server_that_is_down_at_the_start_is_asked_again() -> None:
    async def story() -> None:
        one = Replica(LeaseServer())
        one.line.fates.extend([(0.0, 0.0, "refused"), (0.0, 0.0, "503")])
        async with living(one):
            await until(5)
        assert one.changes == [(0, False), (4, True)]
        assert one.failures == ["connection refused"]

    in_virtual_time(story)


def test_no_two_processes_are_the_same() -> None:
    one, two = own_identity(), own_identity()
    assert one != two
    assert re.fullmatch(r".+_[0-9a-f]{16}", one)


@asynccontextmanager
async def serving(leases: LeaseServer) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes(leases.routes())
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_over_a_real_connection_it_leads_renews_loses_and_releases(tmp_path: Path) -> None:
    leases, changes = LeaseServer(), asyncio.Queue[bool]()
    timing = LeaseTiming(lease_s=1, renew_s=0.4, retry_s=0.05)
    async with serving(leases) as url:
        connection = await Connection.open(Kubeconfig((write_kubeconfig(tmp_path, url),)))
        failures: list[str] = []
        election = Election(
            connection,
            NAMESPACE,
            "a",
            changed=lambda leading, _: changes.put_nowait(leading),
            failed=failures.append,
            timing=timing,
        )
        await election.start()
        running = asyncio.create_task(election.run())
        assert await changes.get()
        before = leases.version
        while leases.version < before + 3:
            await asyncio.sleep(0.01)
        assert election.leading()
        leases.hanging = True
        assert not await changes.get()
        assert failures == [f"{url} did not answer within 0.2 s"]
        leases.hanging = False
        assert await changes.get()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await election.release()
        assert (leases.holder, election.leading()) == ("", False)
        await connection.close()


_SECONDS = st.sampled_from([0.0, 0.0, 0.1, 1.0, 3.0, 4.9, 6.0, 9.9, 14.0, 20.0]) | st.floats(0, 25)
_FATES = st.tuples(_SECONDS, _SECONDS, st.sampled_from(["", "", "", "", "lost", "refused", "500"]))
_LIVES = st.lists(_FATES, max_size=25)
_ENDS = st.none() | st.tuples(st.floats(0, 80), st.booleans())


@settings(max_examples=200)
@given(
    st.lists(st.tuples(_LIVES, _ENDS, st.floats(-120, 120), st.floats(0, 1e6), st.floats(0, 5)), min_size=2, max_size=3)
)
def test_never_do_two_lead(
    plans: list[tuple[list[tuple[float, float, str]], tuple[float, bool] | None, float, float, float]],
) -> None:
    """Whatever is delayed, lost or refused, whenever one is killed or ends; and in the end somebody leads."""

    async def story() -> None:
        loop, leases = asyncio.get_running_loop(), LeaseServer()
        replicas = [Replica(leases, f"r{i}", skew_s=plan[2], uptime_s=plan[3]) for i, plan in enumerate(plans)]

        async def live(replica: Replica, plan: Any) -> None:
            fates, end, _, _, begins_s = plan
            replica.line.fates.extend(fates)
            await asyncio.sleep(begins_s)
            if end is None:
                await replica.live()
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(end[0]):
                    await replica.live()
            if end[1]:
                await replica.election.release()

        tasks = [asyncio.create_task(live(*each)) for each in zip(replicas, plans, strict=True)]
        quiet_after_s = 40 + max(sum(there + back for there, back, _ in plan[0]) for plan in plans) + 15 * 5
        while loop.time() < quiet_after_s:
            assert _leaders(replicas) <= 1
            await asyncio.sleep(0.23)
        survivors = [replica for replica, plan in zip(replicas, plans, strict=True) if plan[1] is None]
        if survivors and not any(replica.line.fates for replica in survivors):
            assert _leaders(survivors) == 1
        rest = [*tasks, *(task for replica in replicas for task in replica.line.cancel())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    in_virtual_time(story)


def _leaders(replicas: Iterable[Replica]) -> int:
    return sum(replica.leading for replica in replicas)
