"""`bridge-autoscaler backtest`: try recommenders on recorded usage."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from autoscaler.backtest.demand import Replayed, ReplayError
from autoscaler.backtest.entrants import Entrant, PolicyFile, parse_entrant, policies_of
from autoscaler.backtest.farm import Task, turns
from autoscaler.backtest.limits import Condition, parse_condition
from autoscaler.backtest.modelled import Room
from autoscaler.backtest.running import Terms
from autoscaler.cli.output import terminal
from autoscaler.cli.rendering.backtest import Result, as_data, as_table
from autoscaler.cli.replaying import jobs_option, replayed
from autoscaler.core.model import Resource, ResourceList
from autoscaler.core.reasons import Reason
from autoscaler.core.units import QuantityError, parse_cpu, parse_memory
from autoscaler.plugins import discover
from autoscaler.recommenders.parameters import parse_duration
from autoscaler.strictyaml import Refused
from autoscaler.traces.judging import TraceError
from autoscaler.traces.reading import read_trace

FAILED = 3
"""Exit status when a `--fail-if` holds."""

_FAILURES = frozenset({Reason.RECOMMENDER_FAILED, Reason.RECOMMENDER_INVALID, Reason.RECOMMENDER_SLOW})


class _Duration(click.ParamType[timedelta]):
    """A duration as policies have it, in whole seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        try:
            duration = parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if duration % timedelta(seconds=1):
            self.fail(f"{value} is not a whole number of seconds", param, ctx)
        return duration


class _Condition(click.ParamType[Condition]):
    name = "condition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Condition:
        try:
            return value if isinstance(value, Condition) else parse_condition(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Today(click.ParamType[dict[Replayed, float]]):
    """`cpu=4,memory=8Gi` in cores and bytes."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[Replayed, float]:
        if isinstance(value, dict):
            return value
        found: dict[Replayed, float] = {}
        for item in value.split(","):
            name, _, quantity = item.strip().partition("=")
            if name not in list(Replayed):
                self.fail(f"{item!r} is no size; write cpu=4,memory=8Gi,gpu_memory=20Gi, or some of them", param, ctx)
            try:
                is_cpu = name == Replayed.CPU
                found[Replayed(name)] = parse_cpu(quantity) / 1000 if is_cpu else float(parse_memory(quantity))
            except QuantityError as error:
                self.fail(str(error), param, ctx)
            if not found[Replayed(name)]:
                self.fail(f"{item!r} is nothing; write what runs today", param, ctx)
        return found


class _Amounts(click.ParamType[ResourceList]):
    """`cpu=16,memory=64Gi`."""

    name = "amounts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ResourceList:
        if isinstance(value, ResourceList):
            return value
        amounts = ResourceList()
        for item in value.split(","):
            name, _, quantity = item.strip().partition("=")
            try:
                if name == Resource.CPU:
                    amounts = replace(amounts, cpu=parse_cpu(quantity))
                elif name == Resource.MEMORY:
                    amounts = replace(amounts, memory=parse_memory(quantity))
                else:
                    self.fail(f"{item!r} is no amount; write cpu=16,memory=64Gi, or one of them", param, ctx)
            except QuantityError as error:
                self.fail(str(error), param, ctx)
        return amounts


_AMOUNTS = "cpu=16,memory=64Gi"


@dataclass(frozen=True, slots=True)
class _Asked:
    """The command line, read."""

    traces: tuple[Path, ...]
    entrants: tuple[Entrant | PolicyFile, ...]
    terms: Terms
    room: Room
    jobs: int | None


@click.command(
    short_help="Try recommenders on recorded usage.",
    epilog="Exit status: 0 done, 1 error, 3 a --fail-if holds, 130 interrupted. docs/backtest.md says more.",
)
@click.option(
    "--trace",
    "traces",
    metavar="FILE",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="Recorded usage, .csv or .parquet (docs/traces.md). Repeatable.",
)
@click.option(
    "--recommender",
    "recommenders",
    metavar="NAME[:K=V,…]",
    multiple=True,
    help="What is tried, with its parameters; bridge if nothing is given. Repeatable.",
)
@click.option("--parameters", metavar="K=V,…", default="", help="Parameters of the only recommender.")
@click.option(
    "--policy",
    "policies",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Policies to try on a simulated node, with all that they say. Repeatable.",
)
@click.option("--node", type=_Amounts(), metavar=_AMOUNTS, help="What the node of a policy's pod can give.")
@click.option("--others", type=_Amounts(), metavar=_AMOUNTS, help="What other pods hold of it.")
@click.option("--resource", type=click.Choice([one.value for one in Replayed]), required=True, help="What is sized.")
@click.option(
    "--limit",
    type=click.Choice(["hard", "soft"]),
    default="hard",
    show_default=True,
    help="Whether a limit cuts CPU, or there is only a request and all demand shows.",
)
@click.option(
    "--replay",
    "mode",
    type=click.Choice(["open", "closed"]),
    default="open",
    show_default=True,
    help="open: what is recorded is wanted, whatever was decided. closed: work that was not done is done later, and who"
    " is killed takes time to start again.",
)
@click.option("--interval", type=_Duration(), default="60s", show_default=True, help="Time between two decisions.")
@click.option("--warmup", type=_Duration(), default="1h", show_default=True, help="Not scored, at the start.")
@click.option(
    "--today",
    type=_Today(),
    metavar="cpu=4,memory=8Gi",
    default={},
    show_default="twice the peak of the first hour",
    help="The size that runs now: where the replay starts, and what it is compared with.",
)
@click.option(
    "--fail-if",
    "conditions",
    type=_Condition(),
    metavar="CONDITION",
    multiple=True,
    help="Exit with 3 if this holds of the mean, like 'oom_per_day > 0.4'. Repeatable.",
)
@jobs_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write a page with plots too: usage and limit over time, and who reserves least for how little harm.",
)
def backtest(
    traces: tuple[Path, ...],
    recommenders: tuple[str, ...],
    parameters: str,
    policies: tuple[Path, ...],
    node: ResourceList | None,
    others: ResourceList | None,
    resource: str,
    limit: str,
    mode: str,
    interval: timedelta,
    warmup: timedelta,
    today: dict[Replayed, float],
    conditions: tuple[Condition, ...],
    jobs: int | None,
    output: str,
    page: Path | None,
) -> int:
    """Replay recorded usage in virtual time through the loop of `run`, and score what recommenders make of it.

    With --recommender nothing else interferes: sizes are neither bounded nor rounded, and what is decided is in force
    at the next sample. With --policy all that it says counts, on a simulated node with its kubelet.

    \b
    Examples:
      bridge-autoscaler backtest --trace usage.csv --resource memory
      bridge-autoscaler backtest --trace a.csv --trace b.csv --resource cpu --today cpu=4 \\
        --recommender bridge --recommender percentile:cpu.target=p99,cpu.margin=20%
      bridge-autoscaler backtest --trace usage.csv --resource cpu --policy policy.yaml --node cpu=16,memory=64Gi
      bridge-autoscaler backtest --trace usage.csv --resource memory --fail-if 'oom_per_day > 0.4' -o json
    """
    if not interval:
        raise click.BadParameter("0 s is no interval; write 5s or more", param_hint="'--interval'")
    replayed = Replayed(resource)
    terms = Terms(
        replayed,
        int(interval.total_seconds()),
        int(warmup.total_seconds()),
        soft=limit == "soft",
        closed=mode == "closed",
        today=today.get(replayed),
    )
    if parameters and len(recommenders) > 1:
        remedy = "write them behind each name, like percentile:cpu.margin=20%"
        raise click.BadParameter(f"there are several recommenders; {remedy}", param_hint="'--parameters'")
    if (node or others) and not policies:
        raise click.BadParameter("a node counts for policies alone; give a --policy", param_hint="'--node'")
    try:
        with redirect_stdout(sys.stderr):  # plug-ins may print
            entrants = _entrants(recommenders or (() if policies else ("bridge",)), parameters, policies)
            room = Room(node or ResourceList(), others or ResourceList())
            results = _run(_Asked(traces, entrants, terms, room, jobs))
    except Refused as refused:
        raise click.ClickException("\n".join(map(str, refused.faults))) from None
    except (TraceError, ReplayError) as error:
        raise click.ClickException(str(error)) from None
    if page is not None:
        _write(page, results)
    if output == "json":
        click.echo(json.dumps(as_data(results), indent=2))
    else:
        click.echo(as_table(results, terminal()[0]), nl=False)
    return _verdict(results, conditions)


def _entrants(
    recommenders: tuple[str, ...], parameters: str, policies: tuple[Path, ...]
) -> tuple[Entrant | PolicyFile, ...]:
    """What is wrong with them is said before anything takes long."""
    catalog = discover()
    entrants = [parse_entrant(text, parameters) for text in recommenders]
    for entrant in entrants:
        entrant.recommender(catalog)
    return (*entrants, *(one for path in policies for one in policies_of(path, catalog)))


def _run(asked: _Asked) -> list[Result]:
    traces = [read_trace(path) for path in asked.traces]
    tasks = [Task(trace, entrant, asked.terms, asked.room) for entrant in asked.entrants for trace in traces]
    outcomes = replayed(tasks, turns(tasks), asked.jobs)
    each = len(asked.traces)
    return [
        Result(entrant.label, asked.terms, outcomes[index * each : (index + 1) * each])
        for index, entrant in enumerate(asked.entrants)
    ]


def _write(page: Path, results: list[Result]) -> None:
    from autoscaler.cli.rendering.report.page import as_page

    try:
        page.write_text(as_page(results), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"--html {page}: cannot be written: {error.strerror or error}") from None


def _verdict(results: list[Result], conditions: tuple[Condition, ...]) -> int:
    """Say what went wrong on stderr, and give the exit status."""
    for result in results:
        for one in result.outcomes:
            for reason in sorted(_FAILURES & one.held.keys()):
                words = f"{one.held[reason]} turns {reason}, first: {one.replay.first_hold[reason]}"
                click.echo(f"warning: {result.label} on {one.trace}: {words}", err=True)
    status = 0
    for result in results:
        mean = result.mean
        for condition in conditions:
            if condition.holds(mean):
                value = getattr(mean, condition.figure)
                click.echo(
                    f"failed: {result.label}: {condition.figure} is {value:.4g}; --fail-if '{condition}'", err=True
                )
                status = FAILED
    return status
