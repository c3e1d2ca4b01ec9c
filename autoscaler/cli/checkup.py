"""Makes the checks of `doctor` one after the other. What one finds out, the next ones use; none of them writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.errors import KubernetesError
from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.traffic import Traffic
from autoscaler.core.policy import Config
from autoscaler.diagnosis.cluster import NodeFacts
from autoscaler.diagnosis.findings import Check, Finding, failed, skipped
from autoscaler.diagnosis.selection import Selection
from autoscaler.settings import Settings
from autoscaler.strictyaml import Refused

T = TypeVar("T")

LIMIT_S = 10.0  # for a check
SLOW_S = 2.0  # from when on it is said what is waited for
ANSWER_S = 8.0  # for one answer, so that it is named before the check is given up


class Blocked(Exception):
    """A check cannot be made. The text says why: "because ..." goes before it."""


@dataclass
class Known:
    """What has been found out so far. `user`: as whom the API server takes us, once it has answered; may be empty."""

    settings: Settings
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    traffic: Traffic = field(default_factory=Traffic)
    connection: Connection | None = None
    user: str | None = None
    config: Config | None = None
    selection: Selection | None = None
    nodes: list[NodeFacts] | None = None


def need(fact: T | None, check: Check) -> T:
    """What that check should have found out. Raises `Blocked`."""
    if fact is None:
        raise Blocked(f"the check {check} did not succeed")
    return fact


class Step(NamedTuple):
    """A check, and what makes it: it may raise `Blocked`, `Refused`, `KubernetesError` and `MetricsError`."""

    check: Check
    look: Callable[[], Awaitable[Iterable[Finding]]]


class Checkup:
    """`left`: what has not been made yet. `slow` hears of a check that takes long."""

    def __init__(self, known: Known, steps: Iterable[Step], slow: Callable[[Check], None]) -> None:
        self._known = known
        self._steps = tuple(steps)
        self.left = [step.check for step in self._steps]
        self._slow = slow

    async def findings(self) -> AsyncIterator[Finding]:
        """What is found, as it is found; what belongs to one check comes together."""
        async with self._known.closing:
            for step in self._steps:
                timer = asyncio.get_running_loop().call_later(SLOW_S, self._slow, step.check)
                try:
                    found = await _made(step)
                finally:
                    timer.cancel()
                self.left.remove(step.check)
                for finding in found:
                    yield finding


async def _made(step: Step) -> list[Finding]:
    try:
        async with asyncio.timeout(LIMIT_S):
            return list(await step.look())
    except Blocked as blocked:
        return [skipped(step.check, str(blocked))]
    except Refused as refused:
        return [failed(step.check, str(fault)) for fault in refused.faults]
    except KubernetesError as error:
        return [failed(step.check, str(error))]
    except MetricsError as error:
        return [failed(step.check, f"Prometheus {error.text}")]
    except TimeoutError:
        return [
            failed(
                step.check, f"not finished within {LIMIT_S:g} s", "see whether the server that is asked is overloaded"
            )
        ]
