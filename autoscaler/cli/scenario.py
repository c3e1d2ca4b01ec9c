"""`bridge-autoscaler scenario`: a made-up life of a bridge as a trace, for a backtest or for tests."""

from __future__ import annotations

import json
from pathlib import Path

import click

from autoscaler.scenarios.catalog import SCENARIOS
from autoscaler.scenarios.generator import compose
from autoscaler.scenarios.sidefile import side_document
from autoscaler.traces.csvfile import csv_text
from autoscaler.traces.judging import TraceError
from autoscaler.traces.writing import write_trace

_LONGEST_S = 30 * 24 * 3600


class _WithScenarios(click.Command):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Scenarios"):
            hours = {each.name: f"{each.seconds / 3600:g} h: " for each in SCENARIOS.values()}
            formatter.write_dl([(each.name, hours[each.name] + each.purpose) for each in SCENARIOS.values()])


@click.command(cls=_WithScenarios)
@click.argument("name", metavar="NAME", type=click.Choice(tuple(SCENARIOS)))
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Which of its lives.")
@click.option(
    "--seconds",
    type=click.IntRange(2, _LONGEST_S),
    help="How long it is, as long as the scenario if not said. A longer one begins with the shorter.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write it, .csv or .parquet, and beside it as .json what it is made of. Not said: CSV on stdout.",
)
def scenario(name: str, seed: int, seconds: int | None, output: Path | None) -> None:
    """Make up one-second usage of a simulation bridge.

    CPU, memory, GPU memory, sessions, frame times and events, as they would be without a limit. The same name, seed and
    version give the same bytes everywhere. Nothing is measured: docs/scenarios.md says what is assumed.
    """
    chosen = SCENARIOS[name]
    demand = compose(chosen, seed, seconds)
    if output is None:
        click.echo(csv_text(demand.trace), nl=False)
        return
    beside = output.with_suffix(".json")
    try:
        write_trace(demand.trace, output)
        beside.write_text(json.dumps(side_document(chosen, demand), indent=1) + "\n", encoding="utf-8")
    except TraceError as error:
        raise click.ClickException(f"--output {error}") from None
    except OSError as error:
        raise click.ClickException(f"--output {beside}: cannot be written: {error.strerror or error}") from None
    click.echo(f"{output}: {len(demand.trace)} rows; {beside}: what they are made of", err=True)
