"""The seams: everything the loop touches besides the core. Fakes and real things stand behind the same six."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from autoscaler.core.actions import Move, Outcome, Resize
from autoscaler.core.history import ContainerRef, Measurements
from autoscaler.core.model import ClusterSnapshot, PodRef
from autoscaler.core.plan import Decision, Drain, Gate, Plan
from autoscaler.core.policy import Policy


class Unavailable(Exception):
    """The other side cannot be asked now. The only error that crosses a port; the turn is skipped, nothing is done."""


class Cluster(Protocol):
    """The pods, and what can be done to them."""

    async def observe(self) -> ClusterSnapshot:
        """The newest state, from the watch cache. Raises `Unavailable` when it is too old to act on."""

    async def perform(self, action: Resize) -> Outcome:
        """Check the action against the pod's newest state, then do it. Failures are outcomes, never exceptions."""

    async def move(self, move: Move) -> Outcome:
        """Evict a pod, or scale its Deployment, if the newest state is still the one that was decided on. Failures are
        outcomes. What has been done shows in the next `observe`."""


class Metrics(Protocol):
    """The usage of containers, measured by a task of its own."""

    def follow(self, wanted: Mapping[ContainerRef, Policy]) -> None:
        """From now on measure these containers, each as its policy says. Returns at once."""

    def latest(self) -> Measurements:
        """The newest measurements, with their age. Never waits."""


class Sessions(Protocol):
    """The users' sessions on pods that are going to be moved, looked at by a task of its own."""

    def follow(self, drains: Mapping[PodRef, Drain], *, telling: bool) -> None:
        """From now on look at these pods and no others. With `telling`, also tell them whether to take new sessions;
        those that were told so and are no longer among them are told that they may again. Returns at once."""

    def latest(self) -> Mapping[PodRef, Gate]:
        """The newest that is known. Never waits."""


class WakeKind(StrEnum):
    """Why the loop woke."""

    TICK = "tick"  # decide everything
    CHANGED = "changed"  # decide these pods
    DEADLINE = "deadline"  # something is due: decide the pods that are
    STOP = "stop"  # finish and leave


@dataclass(frozen=True, slots=True)
class Wake:
    """Why the loop woke, and about which pods (empty: all)."""

    kind: WakeKind
    pods: frozenset[PodRef] = frozenset()


class Clock(Protocol):
    """Time, and the only place where the loop waits."""

    async def wait(self, until: datetime | None) -> Wake:
        """Sleep until the tick, a change or `until` (the API server's time), whichever comes first."""

    async def until(self, moment: datetime) -> None:
        """Sleep until this moment (the API server's time), whatever else happens. Where a turn takes no time, as in a
        simulation, that is for ever."""


class Leadership(Protocol):
    """Which one of several replicas acts."""

    def leading(self) -> bool:
        """Whether an action may begin now. Cheap: asked right before each one."""


@dataclass(frozen=True, slots=True)
class Done:
    """A decision that was acted on, what came of it, and how long the call took. `move`: it was the decision's move,
    not its resize."""

    decision: Decision
    outcome: Outcome
    took: timedelta
    move: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the loop. `plan` is None when the cluster could not be observed; `unavailable` then says why.

    Not `leading`: the plan's actions were left to another replica.
    """

    number: int
    wake: Wake
    took: timedelta
    plan: Plan | None = None
    done: tuple[Done, ...] = ()
    unavailable: str = ""
    leading: bool = True


class Journal(Protocol):
    """Where turns are recorded: log lines, metrics, events, a table on a terminal."""

    def record(self, turn: Turn) -> None:
        """Take note of a finished turn. Never raises, never waits."""
