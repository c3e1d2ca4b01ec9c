"""Recorded usage straight from Prometheus, of the containers that policies select. Reads only."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import click
import numpy as np

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.recorded import RESTARTS, RESTARTS_METRIC, recording, trace_of
from autoscaler.cli.progress import MeasuringProgress
from autoscaler.cli.survey import Filter
from autoscaler.core.decide import select
from autoscaler.core.history import ContainerRef, Gap, History, Measurements
from autoscaler.core.model import ClusterSnapshot, Problem, Resources
from autoscaler.core.policy import Config, Mode, Policy
from autoscaler.core.quality import SCRAPES_IN_A_WINDOW
from autoscaler.core.reasons import Reason
from autoscaler.ports import Unavailable
from autoscaler.recommenders.parameters import format_duration
from autoscaler.traces.trace import Trace

if TYPE_CHECKING:
    from autoscaler.cli.wiring import Parts, Wiring
    from autoscaler.settings import Settings

_STEP_S = 60
_LOOK_S = 600  # of samples, to find out how often there are any
_USUAL_S = 60  # between two, if that is not found out
_AT_ONCE = 100  # containers whose samples are held at a time
_ENOUGH = 0.99  # of what was asked for
_NOT_THERE = "its retention is shorter, or they are younger"
_NOT_READ = "prometheus.backfillSamples allows no more: raise it if Prometheus can bear it, or take fewer with --pod"

Progress = Callable[[int, int], None]
Requested = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A container that runs: the policy that selects it, what it used, and the size in force."""

    container: ContainerRef
    policy: str
    trace: Trace
    in_force: Resources

    def sizes(self, replayed: Replayed, *, soft: bool) -> tuple[float, float] | None:
        """What holds it today and what is reserved for it, in cores or bytes; None where it has no size. Where there is
        no limit, or none that counts, that is the request."""
        if replayed is Replayed.GPU_MEMORY:
            return None
        request = self.in_force.requests.get(replayed.resource)
        limit = self.in_force.limits.get(replayed.resource)
        holds = (request or limit) if soft else (limit or request)
        unit = 1000 if replayed is Replayed.CPU else 1
        return (holds / unit, (request or holds) / unit) if holds else None


def read(
    wiring: Wiring, settings: Settings, last: timedelta, chosen: Filter, reads: AbstractSet[str]
) -> list[Recorded]:
    """The containers that the policies of the settings select, as far as Prometheus has usage of them. `reads`: the
    signals of those that are tried. What is missing is said on stderr. Raises what `wiring.explained` explains."""

    async def gather() -> list[Recorded]:
        async with wiring.open(settings, watching=False, acting=False) as parts:
            for warning in parts.warnings():
                _warn(warning)
            reading, last_s = _Reading(parts, chosen, reads), int(last.total_seconds())
            with MeasuringProgress(sys.stderr, doing="reading", what="hours of usage") as progress:
                found = await reading.recorded(last_s, progress)
            reading.say_what_is_not_there(found, last_s)
            if (cost := parts.traffic.counts()).queries:
                click.echo(cost.words, err=True)
            return found

    return asyncio.run(gather())


def _warn(text: object) -> None:
    click.echo(f"warning: {text}", err=True)


class _Reading:
    """Reads in two goes: a little of all containers, which says how often there are samples, then all of some."""

    def __init__(self, parts: Parts, chosen: Filter, reads: AbstractSet[str]) -> None:
        self._parts = parts
        self._chosen = chosen
        self._reads = reads
        self._problems: dict[Problem, None] = {}
        self._missing: dict[ContainerRef, str] = {}
        self._unread: set[str] = set()  # traces before which there is more than may be read
        self._restarts_known = False

    async def recorded(self, last_s: int, progress: Progress) -> list[Recorded]:
        """Raises `Unavailable`."""
        snapshot = await self._parts.cluster.observe()
        wanted = _wanted(snapshot, self._parts.config(), self._chosen)
        if not wanted:
            raise Unavailable("nothing to read: the policies select no container; bridge-autoscaler plan says more")
        await self._read(wanted, _STEP_S, _LOOK_S, SCRAPES_IN_A_WINDOW * _USUAL_S, None)
        every_s = self._parts.metrics.latest().scrape_interval_s or _USUAL_S
        step_s = -(-max(every_s, _STEP_S) // _STEP_S) * _STEP_S
        window_s, length_s = max(step_s, SCRAPES_IN_A_WINDOW * every_s), max(last_s // step_s, 1) * step_s
        hours, count = length_s / 3600, len(wanted)
        found: list[Recorded] = []
        for part in _parts(sorted(wanted)):
            before = len(found) + len(self._missing)

            def tell(done: int, of: int, _samples: int, before: int = before, now: int = len(part)) -> None:
                progress(int(hours * (before + now * done / max(of, 1))), max(1, int(hours * count)))

            measured = await self._read({one: wanted[one] for one in part}, step_s, length_s, window_s, tell)
            for container in part:
                history = measured.of(container)
                if isinstance(history, Gap):
                    self._missing[container] = history.detail
                elif (trace := trace_of("/".join(container), history, step_s)) is None:
                    self._missing[container] = "there is one sample of it"
                else:
                    pod = snapshot.pods[container.pod_ref]
                    in_force = next(one.in_force for one in pod.containers if one.name == container.container)
                    found.append(Recorded(container, wanted[container].name, trace, in_force))
                    if history.unread_before:
                        self._unread.add(trace.name)
        return found

    async def _read(
        self, wanted: Mapping[ContainerRef, Policy], step_s: int, length_s: int, window_s: int, tell: Requested | None
    ) -> Measurements:
        metrics = self._parts.metrics
        of = {policy.name: recording(policy, step_s, length_s, window_s, self._reads) for policy in wanted.values()}
        metrics.follow({container: of[policy.name] for container, policy in wanted.items()})
        measured = await metrics.measure_once(tell)
        self._problems |= dict.fromkeys(measured.problems)
        for container in wanted:
            match measured.of(container):
                case Gap(Reason.METRICS_UNAVAILABLE, detail):
                    raise Unavailable(detail)
                case History() as history:
                    self._restarts_known |= bool(np.isfinite(history.recent.signal(RESTARTS)).any())
        return measured

    def say_what_is_not_there(self, found: Sequence[Recorded], last_s: int) -> None:
        """Of what was asked for. Raises `Unavailable` if that is everything."""
        for problem in self._problems:
            _warn(problem.detail)
        if not found:
            container, why = next(iter(self._missing.items()))
            raise Unavailable(f"nothing to replay: {'/'.join(container)}: {why}; bridge-autoscaler doctor says more")
        for container, why in self._missing.items():
            _warn(f"{'/'.join(container)} is left out: {why}")
        if not self._restarts_known:
            _warn(f"there is no {RESTARTS_METRIC}: OOM kills and restarts of that time are not known")
        short = sorted((len(one.trace) * one.trace.step_s, one.trace.name) for one in found)
        short = [(length, name) for length, name in short if length < _ENOUGH * last_s]
        for unread, why in ((True, _NOT_READ), (False, _NOT_THERE)):
            of = [(length, name) for length, name in short if (name in self._unread) == unread]
            if of:
                _warn(f"of the last {_span(last_s)} there is {_shortest(of, len(found))}; {why}")


def _span(seconds: int) -> str:
    return format_duration(timedelta(seconds=seconds))


def _shortest(short: Sequence[tuple[int, str]], count: int) -> str:
    """How much there is, in seconds and ascending, of some of so many containers."""
    (least, first), (most, last) = short[0], short[-1]
    words = f"{_span(least)} of {first}"
    if len(short) == 1:
        return words
    return f"less of {len(short)} of {count} containers, from {words} to {_span(most)} of {last}"


def _wanted(snapshot: ClusterSnapshot, config: Config, chosen: Filter) -> dict[ContainerRef, Policy]:
    """The containers of pods that are chosen, each with the first policy that selects it, whatever its mode."""
    found: dict[ContainerRef, Policy] = {}
    for policy in config.policies:
        alone = replace(config, policies=(replace(policy, mode=Mode.RECOMMEND),))
        for container in select(snapshot, alone):
            if chosen.matches(snapshot.pods[container.pod_ref], config):
                found.setdefault(container, policy)
    return found


def _parts(containers: Sequence[ContainerRef]) -> Iterator[Sequence[ContainerRef]]:
    return (containers[first : first + _AT_ONCE] for first in range(0, len(containers), _AT_ONCE))
