"""One leader among replicas, by a Lease (coordination.k8s.io/v1), to the rules of client-go's leaderelection.

Verbs: leases get, create, update. rbac/leader grants exactly these.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import msgspec

from autoscaler.adapters.kubernetes.answers import missing_rule, read_status
from autoscaler.adapters.kubernetes.connection import Answer
from autoscaler.adapters.kubernetes.errors import BadConfiguration, KubernetesError, PermissionMissing, Unreachable
from autoscaler.ports import Unavailable

LEASE = "bridge-autoscaler"
"""The name of the Lease."""

_ALONE = "or, if this is the only controller of the cluster, pass --leader-elect=false"


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds, client-go's defaults.

    `lease_s`: for how long others leave an unchanged lease alone. `renew_s`: how long after the sending of its last
    renewal a leader stops; less than `lease_s`, and what lies between is all that differing clock rates and requests
    in flight may cost. `retry_s`: between two attempts.
    """

    lease_s: int = 15
    renew_s: float = 10.0
    retry_s: float = 2.0


class Requests(Protocol):
    """What is needed of a `Connection`; one of its own, so that a long list does not delay a renewal."""

    @property
    def server(self) -> str:
        """The address that is talked to."""

    def now(self) -> datetime:
        """The API server's time."""

    async def request(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, within_s: float = 30.0
    ) -> Answer:
        """One request and its whole answer. Raises `KubernetesError`."""


def own_identity() -> str:
    """Who this process is in a lease: the pod's name, which is its host name, and what no earlier container had."""
    return f"{socket.gethostname()}_{secrets.token_hex(8)}"


class Election:
    """`ports.Leadership`. Call `start`, then `run` in a task until it is cancelled, then `release`.

    `changed` hears of the first attempt's result and of every change after it, and why. `failed` hears of the first of
    a row of failures of one sort. Times in a lease are never compared with a clock: another's lease is over when our
    own monotonic clock has seen no change of it for as long as it lasts.
    """

    def __init__(
        self,
        requests: Requests,
        namespace: str,
        identity: str,
        *,
        changed: Callable[[bool, str], None],
        failed: Callable[[str], None],
        timing: LeaseTiming | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests = requests
        self._namespace = namespace
        self._identity = identity
        self._changed = changed
        self._failed = failed
        self._timing = timing or LeaseTiming()
        self._monotonic = monotonic
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._lease: dict[str, Any] | None = None  # as the server last had it; None: to be read, or not there
        self._spec: dict[str, Any] = {}  # the record that was seen last
        self._leads_until_s = -math.inf
        self._free_at_s = -math.inf  # when another's record is over; also when the lease has been deleted since
        self._told: bool | None = None
        self._failure: KubernetesError | Unavailable | None = None

    def leading(self) -> bool:
        return self._monotonic() < self._leads_until_s

    async def start(self) -> None:
        """The first attempt. Raises `PermissionMissing`, `BadConfiguration`: what trying again does not help."""
        try:
            await self._contend()
        except (Unreachable, Unavailable) as error:
            self._note(error)
        self._tell()

    async def run(self) -> None:
        """Renew the lease or try to get it, for ever."""
        while True:
            now_s = self._monotonic()
            ends = [end_s - now_s for end_s in (self._leads_until_s, self._free_at_s) if end_s > now_s]
            await asyncio.sleep(min([self._timing.retry_s, *ends]))
            self._tell()
            try:
                await self._contend()
                self._failure = None
            except (KubernetesError, Unavailable) as error:
                self._note(error)
            self._tell()

    async def release(self) -> None:
        """Stop leading, and let another replica begin at once. Failures are left to the end of the lease."""
        self._leads_until_s = -math.inf
        try:
            async with asyncio.timeout(self._timing.renew_s / 2):
                for _ in range(2):  # a renewal that was cancelled may have been stored: then the first conflicts
                    if self._holder() != self._identity:
                        return
                    if (await self._ask("PUT", f"{self._path}/{LEASE}", self._released())).status != 409:
                        return
                    await self._read()
        except (KubernetesError, Unavailable, TimeoutError):
            return

    async def _contend(self) -> None:
        for _ in range(2):  # a holder renews without reading; if that conflicts it reads, and may write once more
            if self._holder() != self._identity:
                await self._read()
            if self._monotonic() < self._free_at_s or await self._write():
                return

    async def _read(self) -> None:
        answer = await self._ask("GET", f"{self._path}/{LEASE}")
        if answer.status == 404:
            self._lease = None
        else:
            self._see(answer.body)

    async def _write(self) -> bool:
        """Create or update the lease with us as holder. False: someone else was faster."""
        sent_at_s = self._monotonic()
        if self._lease is None:
            answer = await self._ask("POST", self._path, self._claimed())
            if answer.status == 404:
                raise BadConfiguration(
                    f"{self._requests.server}: the namespace {self._namespace} for the Lease {LEASE} does not exist; "
                    f"name another with --lease-namespace, {_ALONE}"
                )
        else:
            answer = await self._ask("PUT", f"{self._path}/{LEASE}", self._claimed())
        if answer.status in (404, 409):
            self._lease = None
            return False
        self._see(answer.body)
        # from the sending: when it was stored cannot be known, and others may count from then
        self._leads_until_s = sent_at_s + self._timing.renew_s
        return True

    def _see(self, body: bytes) -> None:
        try:
            lease = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise Unreachable(f"{self._requests.server}: the answer about a Lease is not a Lease ({error})") from None
        self._lease = lease
        holder, spec = self._holder(), lease.get("spec") or {}
        if holder != self._identity:
            self._leads_until_s = -math.inf
        if holder in ("", self._identity):
            self._free_at_s = -math.inf
        elif spec != self._spec:
            # from the receipt: it may have been stored that late
            self._free_at_s = self._monotonic() + (spec.get("leaseDurationSeconds") or self._timing.lease_s)
        self._spec = spec

    def _holder(self) -> str:
        return ((self._lease or {}).get("spec") or {}).get("holderIdentity") or ""

    def _claimed(self) -> dict[str, Any]:
        now = _micro_time(self._requests.now())
        lease = self._lease or {"metadata": {"name": LEASE, "namespace": self._namespace}, "spec": {}}
        spec = lease.get("spec") or {}
        claim = {"holderIdentity": self._identity, "leaseDurationSeconds": self._timing.lease_s, "renewTime": now}
        if self._holder() != self._identity:
            transitions = (spec.get("leaseTransitions") or 0) + (self._lease is not None)
            # an int32, which anyone may have edited: one more than the server takes, and nobody would lead ever again
            claim |= {"acquireTime": now, "leaseTransitions": transitions if transitions < 1 << 31 else 0}
        return {**lease, "spec": {**spec, **claim}}

    def _released(self) -> dict[str, Any]:
        assert self._lease is not None
        now = _micro_time(self._requests.now())
        # one second, for those who look at the times of a lease that nobody holds
        free = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
        return {**self._lease, "spec": {**self._lease["spec"], **free}}

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """A 2xx, 404 or 409. Everything else, and no answer, is an error."""
        left_s = self._leads_until_s - self._monotonic()
        within_s = self._timing.renew_s / 2  # so that one hanging connection does not cost the leadership
        if left_s > 0:
            within_s = min(within_s, left_s)
        server = self._requests.server
        try:
            # reading the credentials again takes time too, which the request's own timeout does not count
            async with asyncio.timeout(within_s):
                answer = await self._requests.request(method, path, body=body, within_s=within_s)
        except TimeoutError:
            raise Unreachable(f"{server} did not answer within {within_s:.1f} s") from None
        if answer.status in (200, 201, 404, 409):
            return answer
        message = read_status(answer.body).message
        if answer.status == 403:
            rule = missing_rule(message, "rbac/leader") or message
            raise PermissionMissing(f"leader election in the namespace {self._namespace}: {rule}; {_ALONE}")
        text = f"{server}: {method} of the Lease {self._namespace}/{LEASE} was answered with {answer.status}: {message}"
        if answer.status >= 500 or answer.status == 429:
            raise Unreachable(text)
        raise KubernetesError(text)

    def _note(self, error: KubernetesError | Unavailable) -> None:
        if type(error) is not type(self._failure):
            self._failure = error
            self._failed(str(error))

    def _tell(self) -> None:
        leading = self.leading()
        if leading is self._told:
            return
        self._told = leading
        self._changed(leading, self._why(leading))

    def _why(self, leading: bool) -> str:
        lease, holder = f"the Lease {self._namespace}/{LEASE}", self._holder()
        if leading:
            return f"holds {lease}"
        if holder not in ("", self._identity):
            return f"{holder} holds {lease}"
        lapsed = f"{lease} was not renewed for {self._timing.renew_s:g} s"
        reason = lapsed if holder else f"{lease} could not be taken"
        return f"{reason}: {self._failure}" if self._failure else reason


def _micro_time(moment: datetime) -> str:
    """metav1.MicroTime: the server takes exactly six digits."""
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
