"""Who was told to take no new sessions, and who has to be told that they may again.

Nothing of it outlives the process. A predecessor may have told a pod to drain: one that should not drain, though its
deadline has passed, is therefore told so once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from autoscaler.adapters.sessions.http import REFUSED, Failure, PodHttp
from autoscaler.core.model import PodRef, Problem
from autoscaler.core.plan import Drain
from autoscaler.core.policy import PodEndpoint
from autoscaler.core.problems import Trouble

BY = "bridge-autoscaler"
_LONGEST = timedelta(minutes=10)
_MOST_REFUSALS = 3


class Addressee(NamedTuple):
    """One incarnation of a pod, and where it is told."""

    pod: PodRef
    uid: str
    ip: str
    endpoint: PodEndpoint


class Told(NamedTuple):
    """A notice that was sent. `telling`: that the pod should take no new sessions; False: that it may again."""

    pod: PodRef
    telling: bool
    answered: bool


@dataclass(slots=True)
class _State:
    """What an addressee was last sent, and whether it answered. `drain` None: it is followed no longer. `told_at`: when
    it was first sent that it should drain, unless that was called off since."""

    drain: Drain | None
    sent: bool | None = None
    heard: bool = False
    told_at: datetime | None = None
    failing: str = ""
    failing_since: datetime | None = None
    refusals: int = 0
    given_up: bool = False

    def wanted(self, now: datetime) -> bool | None:
        """What has to be sent now, if anything."""
        if self.drain is not None and self.drain.telling:
            return None if self.sent is True and self.heard else True
        if self.sent is None:
            return False if self.drain is not None and self.drain.due_at <= now else None
        return None if self.sent is False and (self.heard or self.given_up) else False


class Notices:
    """Sends what has to be sent, again until it is answered. `now`: the API server's time. `warn` hears of failures,
    once each time they change; `told` of each notice, when it was first tried and when it was answered."""

    def __init__(
        self,
        http: PodHttp,
        now: Callable[[], datetime],
        warn: Callable[[Problem], None],
        told: Callable[[Told], None],
    ) -> None:
        self._http = http
        self._now = now
        self._warn = warn
        self._told = told
        self._states: dict[Addressee, _State] = {}

    def follow(self, drains: Iterable[Drain]) -> None:
        """From now on these pods have to know; those that were told before and are not among them are called off."""
        followed = {addressee: drain for drain in drains if (addressee := _addressee(drain)) is not None}
        for addressee, state in self._states.items():
            state.drain = followed.get(addressee)
        for addressee in followed.keys() - self._states.keys():
            self._states[addressee] = _State(followed[addressee])

    def forget(self) -> None:
        """Tell nobody anything more: someone else does."""
        self._states.clear()

    def told_at(self, drain: Drain) -> datetime | None:
        """When a pod was first told, or tried to be told, to take no new sessions; None: not yet, or called off since.
        API server's time."""
        addressee = _addressee(drain)
        state = None if addressee is None else self._states.get(addressee)
        return None if state is None else state.told_at

    def fresh(self) -> bool:
        """Whether something has to be sent that has not been tried yet."""
        now = self._now()
        return any(state.wanted(now) not in (None, state.sent) for state in self._states.values())

    @property
    def orphaned(self) -> bool:
        """Whether someone is to be called off without being followed. They may be gone."""
        return any(state.drain is None for state in self._states.values())

    async def send(self, there: Container[tuple[PodRef, str, str]] | None, *, again: bool) -> None:
        """Send what has to be sent, to each once; with `again` also what was tried before.

        `there`: pods that exist and are to stay, with uid and IP; None: not known. Another pod may have got the address
        of one that is gone, so that those who are not followed are told nothing unless they are among them.
        """
        now = self._now()
        if there is not None:
            for one in [one for one, s in self._states.items() if s.drain is None and one[:3] not in there]:
                del self._states[one]
        async with asyncio.TaskGroup() as tasks:
            for addressee, state in self._states.items():
                draining = state.wanted(now)
                known = state.drain is not None or there is not None
                if draining is not None and known and (again or draining is not state.sent):
                    tasks.create_task(self._send(addressee, state, draining))
        for one in [one for one, s in self._states.items() if s.drain is None and s.wanted(now) is None]:
            del self._states[one]

    async def _send(self, addressee: Addressee, state: _State, draining: bool) -> None:
        if self._states.get(addressee) is not state:
            return  # forgotten meanwhile
        if first := state.sent is not draining:
            state.sent, state.heard, state.given_up = draining, False, False
            state.told_at = self._now() if draining else None
            state.failing, state.failing_since, state.refusals = "", None, 0
        try:
            await self._http.tell(addressee.ip, addressee.endpoint, _body(addressee, draining))
        except Failure as failure:
            self._failed(addressee, state, failure)
            if first:
                self._told(Told(addressee.pod, draining, answered=False))
        else:
            state.heard, state.failing = True, ""
            self._told(Told(addressee.pod, draining, answered=True))

    def _failed(self, addressee: Addressee, state: _State, failure: Failure) -> None:
        now = self._now()
        state.failing_since = state.failing_since or now
        state.refusals = state.refusals + 1 if failure.kind == REFUSED else 0
        if not state.sent:
            state.given_up = state.refusals >= _MOST_REFUSALS or now - state.failing_since >= _LONGEST
        kind = "given up" if state.given_up else failure.kind
        if kind != state.failing:
            state.failing = kind
            what = "to take no new sessions" if state.sent else "that it may take new sessions again"
            how = "given up" if state.given_up else "tried again"
            self._warn(Problem(f"{addressee.pod}", Trouble.NOT_TOLD, f"not told {what}: {failure.text}; {how}"))


def _addressee(drain: Drain) -> Addressee | None:
    endpoint = drain.how.notify
    return None if endpoint is None else Addressee(drain.pod, drain.uid, drain.ip, endpoint)


def _body(addressee: Addressee, draining: bool) -> Mapping[str, object]:
    pod = addressee.pod
    return {"drain": draining, "namespace": pod.namespace, "pod": pod.name, "uid": addressee.uid, "by": BY}
