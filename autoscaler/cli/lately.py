"""What is replayed of the usage that Prometheus has: each container with its own size of today."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoscaler.adapters.telemetry import logs
from autoscaler.backtest.demand import ReplayError
from autoscaler.backtest.entrants import Entrant, PolicyFile, policies_of
from autoscaler.backtest.farm import Task, turns
from autoscaler.backtest.modelled import Room
from autoscaler.backtest.running import Terms
from autoscaler.cli.recording import Recorded, read
from autoscaler.cli.replaying import Trial
from autoscaler.cli.survey import Filter
from autoscaler.cli.wiring import RealWiring, explained
from autoscaler.plugins import discover
from autoscaler.traces.writing import write_trace

if TYPE_CHECKING:
    from autoscaler.cli.wiring import Wiring

Tried = Sequence[Entrant | PolicyFile]


def trials_of_the_last(
    wiring: Wiring | None,
    flags: Mapping[str, Any],
    last: timedelta,
    pods: tuple[str, ...],
    folder: Path | None,
    tried: Tried,
    terms: Terms,
    room: Room,
) -> list[Trial]:
    """The trials on the containers that policies select; of nobody in particular: of the policy of each.

    `flags`: those of `plan`. `folder`: where to keep what was read. Raises `click.ClickException`, `Refused`,
    `ReplayError` and `TraceError`.
    """
    wiring, catalog = wiring or RealWiring(), discover()
    candidates = tuple(dict.fromkeys(one.path for one in tried if isinstance(one, PolicyFile)))
    with explained():
        settings = wiring.settings({**({"policies": candidates} if candidates else {}), **flags})
        logs.configure(settings.log_format, sys.stderr, debug=False)
        own = {one.name: one for path in settings.policies for one in policies_of(path, catalog)}
        reads = frozenset[str]().union(
            *(
                (one.recommender(catalog) if isinstance(one, Entrant) else one.policy(catalog).recommender).signals
                for one in tried or own.values()
            )
        )
        found = read(wiring, settings, last, Filter(pods), reads)
    if folder is not None:
        _keep(found, folder)
    labels = [one.label for one in tried] or [next(iter(own.values())).label if len(own) == 1 else "the policy of each"]
    rows = [
        tasks
        for recorded in found
        if (tasks := _tasks(tried or (own[recorded.policy],), recorded, terms, room, alone=len(found) == 1))
    ]
    if not rows:
        raise ReplayError("nothing to replay: no container is left")
    return [Trial(label, tasks) for label, tasks in zip(labels, zip(*rows, strict=True), strict=True)]


def _tasks(tried: Tried, recorded: Recorded, terms: Terms, room: Room, *, alone: bool) -> list[Task]:
    """The replays of one container, one for each that is tried; none if one of them cannot be, which is said. Raises
    `ReplayError` instead where the container is `alone`."""
    if terms.today is None and (sizes := recorded.sizes(terms.replayed, soft=terms.soft)) is not None:
        terms = replace(terms, today=sizes[0], requested=sizes[1])
    name = recorded.container.container
    whole = [replace(one, container=name) if isinstance(one, PolicyFile) else one for one in tried]
    tasks = [Task(recorded.trace, one, terms, room) for one in whole]
    try:
        turns(tasks)
    except ReplayError as error:
        if alone:
            raise
        click.echo(f"warning: {recorded.trace.name} is left out: {error}", err=True)
        return []
    return tasks


def _keep(found: Sequence[Recorded], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"--save-traces {folder}: cannot be made: {error.strerror or error}") from None
    for recorded in found:
        write_trace(recorded.trace, folder / f"{'_'.join(recorded.container)}.csv")
