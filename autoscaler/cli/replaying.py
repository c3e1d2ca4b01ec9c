"""Replays as the commands run them: in how many processes, and with progress on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from autoscaler.backtest.farm import Task, perform
from autoscaler.backtest.running import Outcome
from autoscaler.cli.progress import MeasuringProgress

jobs_option = click.option(
    "--jobs", type=click.IntRange(min=1), default=None, show_default="one a CPU", help="Processes to use."
)


def replayed(tasks: Sequence[Task], turns: int, jobs: int | None) -> list[Outcome]:
    """The outcomes in the order of the tasks, which take so many turns in all. Raises as `perform` does."""
    done = 0
    with MeasuringProgress(sys.stderr, doing="replaying", what="turns") as progress:

        def tell(count: int) -> None:
            nonlocal done
            done += count
            progress(done, turns)

        return perform(tasks, jobs or os.cpu_count() or 1, tell)
