"""Replays as the commands run them: in how many processes, and with progress on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from autoscaler.backtest.farm import Task, perform, turns
from autoscaler.backtest.running import Outcome, Terms
from autoscaler.cli.progress import MeasuringProgress
from autoscaler.cli.rendering.backtest import Result

jobs_option = click.option(
    "--jobs", type=click.IntRange(min=1), default=None, show_default="one a CPU", help="Processes to use."
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One of those that are tried, on each trace."""

    label: str
    tasks: Sequence[Task]


def results_of(trials: Sequence[Trial], terms: Terms, jobs: int | None, *, in_force: bool = False) -> list[Result]:
    """The results in the order of the trials. `in_force`: the sizes of today are those that were found to be in force.
    Raises as `perform` does."""
    tasks = [task for trial in trials for task in trial.tasks]
    outcomes = iter(replayed(tasks, turns(tasks), jobs))
    return [Result(trial.label, terms, [next(outcomes) for _ in trial.tasks], in_force) for trial in trials]


def replayed(tasks: Sequence[Task], turns: int, jobs: int | None) -> list[Outcome]:
    """The outcomes in the order of the tasks, which take so many turns in all. Raises as `perform` does."""
    done = 0
    with MeasuringProgress(sys.stderr, doing="replaying", what="turns") as progress:

        def tell(count: int) -> None:
            nonlocal done
            done += count
            progress(done, turns)

        return perform(tasks, jobs or os.cpu_count() or 1, tell)
