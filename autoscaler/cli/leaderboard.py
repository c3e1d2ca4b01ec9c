"""`bridge-autoscaler leaderboard`: all recommenders on all traces there are, ranked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path

import click

from autoscaler.backtest.demand import Replayed, ReplayError
from autoscaler.backtest.entrants import Entrant
from autoscaler.backtest.farm import Task
from autoscaler.backtest.running import Terms, demand_for
from autoscaler.cli.flagtypes import NewFile
from autoscaler.cli.rendering.backtest import Result
from autoscaler.cli.rendering.leaderboard import Board, as_markdown
from autoscaler.cli.replaying import jobs_option, replayed
from autoscaler.scenarios.catalog import SCENARIOS
from autoscaler.scenarios.generator import generate
from autoscaler.traces.judging import TraceError
from autoscaler.traces.reading import read_trace
from autoscaler.traces.trace import Trace

SHIPPED = ("bridge", "forecast", "histogram", "percentile", "window")
"""The recommenders of this program; the plug-ins of others take part by name."""

_PUBLIC_S, _MADE_UP_S = 60, 5  # between two decisions
_SUFFIXES = (".csv", ".parquet")


@click.command(short_help="Rank all recommenders on all traces there are.")
@click.option(
    "--traces",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="More public traces than those that ship, .csv or .parquet (docs/traces.md).",
)
@click.option(
    "--recommender",
    "names",
    metavar="NAME",
    multiple=True,
    default=SHIPPED,
    show_default="all that ship",
    help="Who takes part, with its defaults. Repeatable.",
)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    type=click.Choice(tuple(SCENARIOS)),
    default=tuple(SCENARIOS),
    show_default="all",
    help="A made-up life of a bridge to take. Repeatable.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Which lives of the scenarios.")
@jobs_option
@click.option(
    "-o",
    "--output",
    type=NewFile(),
    metavar="FILE",
    help="Where to write it. Not said: stdout.",
)
def leaderboard(
    folder: Path | None,
    names: tuple[str, ...],
    scenarios: tuple[str, ...],
    seed: int,
    jobs: int | None,
    output: Path | None,
) -> None:
    """Replay public traces and made-up lives of bridges under each recommender, and print who is best as Markdown.

    Replays are neutral and open, as those of backtest, with request and limit equal and a hard CPU limit. The same
    traces, seed and version give the same page. It takes minutes.
    """
    with as_file(files("autoscaler.simulator") / "traces") as shipped:
        try:
            public = [read_trace(path) for path in _public(shipped, folder)]
            with redirect_stdout(sys.stderr):  # plug-ins may print
                text = page(public, scenarios, seed, names, jobs)
        except (TraceError, ReplayError) as error:
            raise click.ClickException(str(error)) from None
    put(text, output)


def page(public: Sequence[Trace], scenarios: Sequence[str], seed: int, names: Sequence[str], jobs: int | None) -> str:
    """All recommenders of these names on all of these. Raises `ReplayError`."""
    bridges = [replace(generate(name, seed), name=name) for name in scenarios]
    plans = [
        *(_plan("public traces", public, Terms(each, _PUBLIC_S)) for each in Replayed),
        *(_plan("scenarios", bridges, Terms(each, _MADE_UP_S, 0)) for each in (Replayed.CPU, Replayed.MEMORY)),
    ]
    boards = _held([plan for plan in plans if plan[2]], names, jobs)
    return as_markdown(boards, [trace.name for trace in public], scenarios, seed)


def put(text: str, output: Path | None) -> None:
    """Write the page to a file, or stdout. Raises `click.ClickException`."""
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"--output {output}: cannot be written: {error.strerror or error}") from None


def _public(shipped: Path, folder: Path | None) -> list[Path]:
    """The traces that ship, and those of a folder that are others, by name."""
    found = {path.stem: path for path in shipped.iterdir() if path.suffix in _SUFFIXES}
    if folder is not None:
        more = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
        found = {**{path.stem: path for path in more}, **found}
    return [found[name] for name in sorted(found)]


_Plan = tuple[str, Terms, list[Trace], int]


def _plan(title: str, traces: Sequence[Trace], terms: Terms) -> _Plan:
    """Those of the traces that recorded the resource, and the turns that one recommender has on them."""
    found = [trace for trace in traces if terms.replayed.column in trace.columns]
    return title, terms, found, sum(demand_for(trace, terms).turns for trace in found)


def _held(plans: Sequence[_Plan], names: Sequence[str], jobs: int | None) -> list[Board]:
    tasks = [Task(trace, Entrant(name), terms) for _, terms, found, _ in plans for name in names for trace in found]
    outcomes = iter(replayed(tasks, len(names) * sum(turns for *_, turns in plans), jobs))
    return [
        Board(title, [Result(name, terms, [next(outcomes) for _ in found]) for name in names])
        for title, terms, found, _ in plans
    ]
