"""A recorded demand behind the ports of the loop: one pod of one container, in virtual time.

At each turn the interval that has just ended is known, and what is decided is in force for the whole of the next one.
Nothing else is modelled here: no node, no kubelet, no delay. In the open loop the recording goes on whatever is
decided, and a container that is killed for lack of memory is back within the step; pressure.py has the closed one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import cast

import numpy as np
from numpy.typing import NDArray

from autoscaler.backtest.demand import Demand, Replayed
from autoscaler.backtest.observing import Observations
from autoscaler.core.actions import Move, Outcome, OutcomeKind, Resize
from autoscaler.core.foreign import told
from autoscaler.core.history import ContainerRef, History, Measurements, MemoryInUse, advance
from autoscaler.core.model import ClusterSnapshot, Container, Node, Pod, PodRef, ResourceList, Resources, Termination
from autoscaler.core.policy import Policy
from autoscaler.core.units import Bytes, Millicores
from autoscaler.ports import Wake, WakeKind
from autoscaler.simulator.admission import merged

STARTS_AT = datetime(2026, 1, 5, tzinfo=UTC)
"""When a trace begins: a Monday at midnight. Its `timestamp_s` 0 is the start of a day."""

POD = PodRef("backtest", "pod-0")
CONTAINER = ContainerRef(*POD, "app")

_NODE = Node("node", ResourceList())  # without bounds
_NODES = MappingProxyType({_NODE.name: _NODE})
_KILLED = 137  # by SIGKILL


class Playback:
    """The pod, what it uses, and the time: `ports.Cluster`, `ports.Metrics` and `ports.Clock` at once, as all three
    have to speak of one moment.

    `soft`: CPU has a request and no limit, so that all demand is seen. `idle`: turns at the start in which nobody is
    asked, at least one.
    """

    def __init__(
        self, demand: Demand, policy: Policy, *, soft: bool = False, closed: bool = False, idle: int = 1
    ) -> None:
        self._demand = demand
        self._policy = policy
        self._soft = soft and demand.replayed is Replayed.CPU
        self._size = demand.start
        self._pod = self._first()
        self._limit = np.empty(demand.turns)
        self._turn = 0  # turns that have passed
        self._now, self._interval = STARTS_AT, timedelta(seconds=demand.interval_s)
        self._starts_s = int(STARTS_AT.timestamp())
        self._seen = Observations(
            demand, self._starts_s, soft=self._soft, signals=policy.recommender.signals, closed=closed
        )
        self._plain = policy.min_coverage == 0 and policy.grid.block == policy.grid.step and not demand.blank.any()
        self._history: History | None = None
        self._folded = 0
        self._used = 0.0
        for _ in range(min(max(idle, 1), demand.turns)):
            self._pass()

    @property
    def limit(self) -> NDArray[np.float64]:
        """The limits that have been in force so far, one for each step of the demand."""
        return np.repeat(self._limit[: self._turn], self._demand.per_turn)

    @property
    def wanted(self) -> NDArray[np.float64]:
        """What was wanted at each step of the demand: what is recorded, if the loop is open."""
        return self._seen.wanted

    # ---- the ports

    async def observe(self) -> ClusterSnapshot:
        """The pod at the end of the interval."""
        return ClusterSnapshot(self._now, MappingProxyType({POD: self._pod}), _NODES, server_minor=37)

    async def perform(self, action: Resize) -> Outcome:
        """Have another size in force from now on."""
        (container,) = self._pod.containers
        spec = merged(container.spec, action.containers[0].change)
        self._resize(spec)
        return Outcome(OutcomeKind.ACCEPTED)

    async def move(self, move: Move) -> Outcome:
        """There is nowhere to go."""
        return Outcome(OutcomeKind.REFUSED, "a replay has no second node")

    def follow(self, wanted: Mapping[ContainerRef, Policy]) -> None:
        """There is one container, and it is followed."""

    def latest(self) -> Measurements:
        """All that has been seen, folded up to the end of the interval."""
        if self._folded < self._turn:
            self._history = self._followed() if self._plain else self._advanced()
            self._folded = self._turn
        return Measurements(
            self._now,
            MappingProxyType({} if self._history is None else {CONTAINER: self._history}),
            in_use=MemoryInUse(self._now, MappingProxyType({CONTAINER: Bytes(int(self._used))})),
        )

    async def wait(self, until: datetime | None) -> Wake:
        """Let the next interval pass."""
        if self._turn == self._demand.turns:
            return Wake(WakeKind.STOP)
        self._pass()
        return Wake(WakeKind.TICK)

    async def until(self, moment: datetime) -> None:
        """For ever: no virtual time passes during a turn."""
        await asyncio.Event().wait()

    def _advanced(self) -> History | None:
        new, grid = self._seen.between(self._folded, self._turn), self._policy.grid
        return advance(self._history, new, self._policy.recommender, grid, sample_s=grid.step)

    def _followed(self) -> History:
        """The same, where each sample is a block and none is blank. What a turn costs is what a back-test lasts, so
        that nothing is copied: all samples lie in one place."""
        recommender, grid, step = self._policy.recommender, self._policy.grid, self._policy.grid.step
        state, failure = (None, "") if self._history is None else (self._history.state, self._history.failure)
        try:
            if self._history is None:
                state = recommender.start()
            if not failure:
                state = recommender.fold(state, self._seen.between(self._folded, self._turn), grid.block)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plug-in may raise anything
            failure = told(error)
        recent = self._seen.between(max(0, self._turn - grid.fine // step), self._turn)
        first_at, newest_at = self._starts_s + step, self._starts_s + step * self._turn
        return History(state, recent, newest_at, first_at, newest_at, failure)

    # ---- the time in between

    def _pass(self) -> None:
        self._limit[self._turn] = self._size
        found = self._seen.see(self._turn, self._size)
        self._turn += 1
        self._now += self._interval
        if found.used == found.used:  # else it goes on as it was last seen
            self._used = found.used
        if found.over and self._demand.replayed is not Replayed.CPU:
            self._kill()

    def _kill(self) -> None:
        (container,) = self._pod.containers
        ended = Termination("OOMKilled", _KILLED, self._now, container.started_at)
        again = replace(
            container, started_at=self._now, restart_count=container.restart_count + 1, last_terminated=ended
        )
        self._pod = replace(self._pod, containers=(again,))
        self._seen.restarted()

    def _first(self) -> Pod:
        amounts = _amounts(self._demand.replayed, self._size)
        spec = Resources(amounts, ResourceList() if self._soft else amounts)
        container = Container(
            CONTAINER.container, spec=spec, allocated=amounts, actual=spec, running=True, started_at=STARTS_AT
        )
        return Pod(*POD, uid="1", node=_NODE.name, containers=(container,))

    def _resize(self, spec: Resources) -> None:
        (container,) = self._pod.containers
        sized = replace(container, spec=spec, allocated=spec.requests, actual=spec)
        self._pod = replace(self._pod, generation=self._pod.generation + 1, containers=(sized,))
        amount = spec.requests.get(self._demand.replayed.resource)
        if amount is not None:
            self._size = amount / 1000 if self._demand.replayed is Replayed.CPU else float(amount)


def _amounts(replayed: Replayed, size: float) -> ResourceList:
    """A size (cores, bytes) as exactly as `core.bounds.amount_of` has it where nothing is rounded."""
    if replayed is Replayed.CPU:
        return ResourceList(cpu=Millicores(cast(int, size * 1000)))
    return ResourceList(memory=Bytes(math.ceil(size)))
