"""Several replays, in this process or in several."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import active_children, get_context

from autoscaler.backtest.entrants import Entrant, PolicyFile
from autoscaler.backtest.modelled import Room
from autoscaler.backtest.running import Outcome, Terms, demand_for, policy_demands, run, run_policy
from autoscaler.plugins import discover
from autoscaler.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Task:
    """One trace, and who is replayed on it."""

    trace: Trace
    entrant: Entrant | PolicyFile
    terms: Terms
    room: Room = Room()


Done = Callable[[int], None]
"""Is told of turns that were done since it was told last."""


def perform(tasks: Sequence[Task], jobs: int, done: Done) -> list[Outcome]:
    """The outcomes in the order of the tasks, which have to be good: what is wrong with one raises as it comes."""
    if jobs == 1 or len(tasks) < 2:
        return [_alone(task, done) for task in tasks]
    # a fresh process has no threads and no locks of this one
    with ProcessPoolExecutor(min(jobs, len(tasks)), get_context("spawn")) as pool:
        # the processes begin here and inherit it: a Ctrl-C is this process' alone to deal with
        unmasked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            futures: list[Future[Outcome]] = [pool.submit(_alone, task) for task in tasks]
            pending = set(futures)
            signal.pthread_sigmask(signal.SIG_SETMASK, unmasked)
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for one in finished:
                    done(one.result().demand.turns)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():  # or their replays would be waited for
                process.terminate()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unmasked)
        return [future.result() for future in futures]


def turns(tasks: Sequence[Task]) -> int:
    """How many turns they take. Raises what is wrong with their traces."""
    return sum(map(_turns, tasks))


def _turns(task: Task) -> int:
    terms = task.terms
    if isinstance(task.entrant, Entrant):
        return demand_for(task.trace, terms).turns
    demand = policy_demands(task.trace, task.entrant.policy(discover()), terms)[terms.replayed.resource]
    return demand.turns * demand.interval_s // terms.interval_s


def _alone(task: Task, done: Done | None = None) -> Outcome:
    catalog = discover()
    if isinstance(task.entrant, PolicyFile):
        return run_policy(task.trace, task.entrant.policy(catalog), task.terms, task.room, done)
    return run(task.trace, task.entrant.recommender(catalog), task.terms, done)
