"""Several replays, in this process or in several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from autoscaler.backtest.entrants import Entrant
from autoscaler.backtest.running import Outcome, Terms, demand_for, run
from autoscaler.plugins import discover
from autoscaler.traces.reading import read_trace


@dataclass(frozen=True, slots=True)
class Task:
    """One trace, and who is replayed on it."""

    trace: Path
    entrant: Entrant
    terms: Terms


Done = Callable[[int], None]
"""Is told of turns that were done since it was told last."""


def perform(tasks: Sequence[Task], jobs: int, done: Done) -> list[Outcome]:
    """The outcomes in the order of the tasks, which have to be good: what is wrong with one raises as it comes."""
    if jobs == 1 or len(tasks) < 2:
        return [_alone(task, done) for task in tasks]
    # a fresh process has no threads and no locks of this one
    with ProcessPoolExecutor(min(jobs, len(tasks)), get_context("spawn")) as pool:
        futures: list[Future[Outcome]] = [pool.submit(_alone, task) for task in tasks]
        pending = set(futures)
        try:
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for one in finished:
                    done(one.result().demand.turns)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def turns(tasks: Sequence[Task]) -> int:
    """How many turns they take. Raises what is wrong with their traces."""
    return sum(demand_for(read_trace(task.trace), task.terms).turns for task in tasks)


def _alone(task: Task, done: Done | None = None) -> Outcome:
    recommender = task.entrant.recommender(discover())
    return run(read_trace(task.trace), recommender, task.terms, done)
