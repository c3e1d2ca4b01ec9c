"""`bridge-autoscaler backtest`: try recommenders on recorded usage."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoscaler.backtest.demand import Replayed, ReplayError
from autoscaler.backtest.entrants import Entrant, PolicyFile, parse_entrant, policies_of
from autoscaler.backtest.farm import Task
from autoscaler.backtest.limits import Condition
from autoscaler.backtest.modelled import Room
from autoscaler.backtest.running import Terms
from autoscaler.cli.flagtypes import Amounts, ConditionType, Duration, NewFile, Sizes
from autoscaler.cli.options import common, given
from autoscaler.cli.output import terminal
from autoscaler.cli.rendering.backtest import Result, as_data, as_table
from autoscaler.cli.replaying import Trial, jobs_option, results_of
from autoscaler.core.model import ResourceList
from autoscaler.core.reasons import Reason
from autoscaler.plugins import discover
from autoscaler.strictyaml import Refused
from autoscaler.traces.judging import TraceError
from autoscaler.traces.reading import read_trace

if TYPE_CHECKING:
    from autoscaler.cli.wiring import Wiring

FAILED = 3
"""Exit status when a `--fail-if` holds."""

_FAILURES = frozenset({Reason.RECOMMENDER_FAILED, Reason.RECOMMENDER_INVALID, Reason.RECOMMENDER_SLOW})
_AMOUNTS = "cpu=16,memory=64Gi"


@click.command(
    short_help="Try recommenders on recorded usage.",
    epilog="Exit status: 0 done, 1 error, 3 a --fail-if holds, 130 interrupted. docs/backtest.md says more.",
)
@click.option(
    "--trace",
    "traces",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Recorded usage, .csv or .parquet (docs/traces.md). Repeatable.",
)
@click.option(
    "--last",
    type=Duration(),
    metavar="14d",
    help="Instead of --trace: so much usage straight from Prometheus, of the containers that --policies select (without"
    " it: those of --policy).",
)
@click.option("--pod", "pods", multiple=True, metavar="[NAMESPACE/]POD", help="Of them only these; wildcards.")
@click.option(
    "--save-traces",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep what --last has read, a CSV file for each container, for --trace.",
)
@click.option(
    "--recommender",
    "recommenders",
    metavar="NAME[:K=V,…]",
    multiple=True,
    help="What is tried, with its parameters; not said: bridge, or with --last the policies. Repeatable.",
)
@click.option("--parameters", metavar="K=V,…", default="", help="Parameters of the only recommender.")
@click.option(
    "--policy",
    "tried_policies",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Policies to try on a simulated node, with all that they say. Repeatable.",
)
@click.option("--node", type=Amounts(), metavar=_AMOUNTS, help="What the node of a policy's pod can give.")
@click.option("--others", type=Amounts(), metavar=_AMOUNTS, help="What other pods hold of it.")
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
@click.option("--interval", type=Duration(), default="60s", show_default=True, help="Time between two decisions.")
@click.option("--warmup", type=Duration(), default="1h", show_default=True, help="Not scored, at the start.")
@click.option(
    "--today",
    type=Sizes(),
    metavar="cpu=4,memory=8Gi",
    default={},
    show_default="twice the peak of the first hour",
    help="The size that runs now: where the replay starts, and what it is compared with.",
)
@click.option(
    "--as-often",
    "paced",
    is_flag=True,
    help="Show the least slack with as many resizes as each made, too: what is lost by when, not by how often. It takes"
    " seconds a trace.",
)
@click.option(
    "--fail-if",
    "conditions",
    type=ConditionType(),
    metavar="CONDITION",
    multiple=True,
    help="Exit with 3 if this holds of the mean, like 'oom_per_day > 0.4'. Repeatable.",
)
@jobs_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--html",
    "page",
    type=NewFile(),
    metavar="FILE",
    help="Where to write a page with plots too: usage and limit over time, and who reserves least for how little harm.",
)
@common
@click.pass_obj
def backtest(
    wiring: Wiring | None,
    /,
    traces: tuple[Path, ...],
    last: timedelta | None,
    pods: tuple[str, ...],
    folder: Path | None,
    recommenders: tuple[str, ...],
    parameters: str,
    tried_policies: tuple[Path, ...],
    node: ResourceList | None,
    others: ResourceList | None,
    resource: str,
    limit: str,
    mode: str,
    interval: timedelta,
    warmup: timedelta,
    today: dict[Replayed, float],
    paced: bool,
    conditions: tuple[Condition, ...],
    jobs: int | None,
    output: str,
    page: Path | None,
    **flags: Any,
) -> int:
    """Replay recorded usage in virtual time through the loop of `run`, and score what recommenders make of it.

    Usage comes from files (--trace), or with --last from the Prometheus and the cluster that `plan` would take: the
    sizes that are in force there are what it is compared with.

    With --recommender nothing else interferes: sizes are neither bounded nor rounded, and what is decided is in force
    at the next sample. With --policy all that it says counts, on a simulated node with its kubelet.

    \b
    Examples:
      bridge-autoscaler backtest --trace usage.csv --resource memory
      bridge-autoscaler backtest --trace a.csv --trace b.csv --resource cpu --today cpu=4 \\
        --recommender bridge --recommender percentile:cpu.target=p99,cpu.margin=20%
      bridge-autoscaler backtest --trace usage.csv --resource cpu --policy policy.yaml --node cpu=16,memory=64Gi
      bridge-autoscaler backtest --trace usage.csv --resource memory --fail-if 'oom_per_day > 0.4' -o json
      bridge-autoscaler backtest --last 14d --policies policies/ --resource memory \\
        --prometheus-url http://localhost:9090
    """
    _check(traces, last, given(flags), bool(pods or folder))
    _check_entrants(recommenders, parameters)
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
        paced=paced,
    )
    _check_resource(replayed, today, conditions)
    _check_node(node, others, bool(tried_policies) or last is not None)
    try:
        with redirect_stdout(sys.stderr):  # plug-ins may print
            tried = _tried(recommenders, parameters, tried_policies)
            room = Room(node or ResourceList(), others or ResourceList())
            if last is None:
                trials = _of_files(tried, traces, terms, room)
            else:
                from autoscaler.cli.lately import trials_of_the_last  # a client of Kubernetes takes a while to import

                trials = trials_of_the_last(wiring, given(flags), last, pods, folder, tried, terms, room)
            in_force = last is not None and terms.today is None
            results = results_of(trials, terms, jobs, in_force=in_force)
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


def _check(traces: tuple[Path, ...], last: timedelta | None, flags: dict[str, Any], more: bool) -> None:
    """Flags that do not go together."""
    if bool(traces) == (last is not None):
        remedy = "leave one of them out" if traces else "give --trace FILE, or --last 14d for what Prometheus has"
        raise click.UsageError(f"usage comes from files or from Prometheus; {remedy}")
    if last is None and (more or flags.keys() - {"log_format"}):
        flag = "--pod or --save-traces" if more else f"--{min(flags.keys() - {'log_format'}).replace('_', '-')}"
        raise click.UsageError(f"without --last there is no use for {flag}: files need no cluster and no Prometheus")
    if last is not None and not last:
        raise click.BadParameter("0 s is no time; write 14d", param_hint="'--last'")


def _check_entrants(recommenders: tuple[str, ...], parameters: str) -> None:
    for one in recommenders:
        if recommenders.count(one) > 1:
            raise click.BadParameter(f"{one} is given twice; leave one of them out", param_hint="'--recommender'")
    if parameters and len(recommenders) != 1:
        several = "write them behind each name, like percentile:cpu.margin=20%"
        remedy = several if recommenders else "say of which recommender, like --recommender bridge"
        raise click.BadParameter(f"there are {len(recommenders)} recommenders; {remedy}", param_hint="'--parameters'")


def _check_resource(replayed: Replayed, today: dict[Replayed, float], conditions: tuple[Condition, ...]) -> None:
    if today and replayed not in today:
        raise click.BadParameter(f"says nothing of {replayed}; add {replayed}=…", param_hint="'--today'")
    for one in conditions:
        if not one.is_of(replayed):
            raise click.BadParameter(
                f"{one.figure} says nothing of {replayed}, so it would never fail", param_hint="'--fail-if'"
            )


def _check_node(node: ResourceList | None, others: ResourceList | None, policies: bool) -> None:
    if (node or others) and not policies:
        flag = "--node" if node else "--others"
        raise click.BadParameter("a node counts for policies alone; give a --policy", param_hint=f"'{flag}'")
    if others and not node:
        raise click.BadParameter("others hold a part of a node; give --node, too", param_hint="'--others'")


def _tried(
    recommenders: tuple[str, ...], parameters: str, policies: tuple[Path, ...]
) -> tuple[Entrant | PolicyFile, ...]:
    """What is wrong with them is said before anything takes long."""
    catalog = discover()
    entrants = [parse_entrant(text, parameters) for text in recommenders]
    for entrant in entrants:
        entrant.recommender(catalog)
    return (*entrants, *(one for path in policies for one in policies_of(path, catalog)))


def _of_files(
    tried: tuple[Entrant | PolicyFile, ...], paths: tuple[Path, ...], terms: Terms, room: Room
) -> list[Trial]:
    traces = [read_trace(path) for path in paths]
    chosen = tried or (Entrant("bridge", label="bridge"),)
    return [Trial(one.label, [Task(trace, one, terms, room) for trace in traces]) for one in chosen]


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
            value = condition.value(mean)
            if value is None:
                words = "is not known; it takes a trace with frame_time_ms, and --limit hard"
            elif condition.holds(mean):
                words = f"is {value:.4g}; --fail-if '{condition}'"
            else:
                continue
            click.echo(f"failed: {result.label}: {condition.figure} {words}", err=True)
            status = FAILED
    return status
