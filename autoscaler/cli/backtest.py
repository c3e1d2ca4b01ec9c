"""`bridge-autoscaler backtest`: try recommenders on recorded usage."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from autoscaler.backtest.demand import Replayed, ReplayError
from autoscaler.backtest.entrants import parse_parameters, recommender_of
from autoscaler.backtest.running import Outcome, Terms, run
from autoscaler.backtest.scoring import mean
from autoscaler.plugins import discover
from autoscaler.recommenders.parameters import parse_duration
from autoscaler.strictyaml import Refused
from autoscaler.traces.judging import TraceError
from autoscaler.traces.reading import read_trace


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


@click.command(short_help="Try recommenders on recorded usage.")
@click.option(
    "--trace",
    "traces",
    metavar="FILE",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="Recorded usage, .csv or .parquet. Repeatable.",
)
@click.option("--recommender", metavar="NAME", required=True, help="The recommender to try.")
@click.option("--parameters", metavar="K=V,…", default="", help="Its parameters, like cpu.margin=15%.")
@click.option("--resource", type=click.Choice([one.value for one in Replayed]), required=True, help="What is sized.")
@click.option(
    "--limit",
    type=click.Choice(["hard", "soft"]),
    default="hard",
    show_default=True,
    help="Whether a CPU limit cuts what is used, or there is none and all demand shows.",
)
@click.option("--replay", "mode", type=click.Choice(["open"]), default="open", show_default=True, help="The model.")
@click.option("--interval", type=_Duration(), default="60s", show_default=True, help="Time between two decisions.")
@click.option("--warmup", type=_Duration(), default="1h", show_default=True, help="Not scored, at the start.")
@click.option("-o", "--output", type=click.Choice(["json"]), default="json", show_default=True)
def backtest(
    traces: tuple[Path, ...],
    recommender: str,
    parameters: str,
    resource: str,
    limit: str,
    mode: str,
    interval: timedelta,
    warmup: timedelta,
    output: str,
) -> int:
    """Replay recorded usage through the loop of `run`, and score what a recommender makes of it."""
    terms = Terms(Replayed(resource), int(interval.total_seconds()), int(warmup.total_seconds()), limit == "soft")
    try:
        with redirect_stdout(sys.stderr):  # plug-ins may print
            entrant = recommender_of(recommender, parse_parameters(parameters), discover())
            outcomes = [run(read_trace(path), entrant, terms) for path in traces]
    except Refused as refused:
        raise click.ClickException("\n".join(map(str, refused.faults))) from None
    except (TraceError, ReplayError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(json.dumps(_document(outcomes, terms), indent=2))
    return 0


def _document(outcomes: list[Outcome], terms: Terms) -> dict[str, Any]:
    return {
        "traces": [
            {"trace": one.trace, "resource": terms.replayed.value, **asdict(one.scores), "held": one.held}
            for one in outcomes
        ],
        "mean": asdict(mean([one.scores for one in outcomes])),
    }
