"""A replay without the loop: a recommender's answers are in force as they come, by the rules of a neutral replay. What
the loop adds is the same each turn, so that long replays are told by this one, and both are compared on short ones."""

from __future__ import annotations

import asyncio
from typing import Any

from autoscaler.backtest.demand import Demand, Replayed
from autoscaler.backtest.playback import CONTAINER, Playback
from autoscaler.backtest.replay import Replay, neutral
from autoscaler.backtest.running import Outcome, Terms, demand_for, judged
from autoscaler.core.actions import ContainerResize, Resize
from autoscaler.core.bounds import amount_of
from autoscaler.core.history import History
from autoscaler.core.model import ContainerKind, ResourceList, Resources
from autoscaler.core.policy import Policy
from autoscaler.core.recommender import Recommender, Situation, Target
from autoscaler.ports import WakeKind
from autoscaler.traces.trace import Trace


def run_plainly(trace: Trace, recommender: Recommender[Any], terms: Terms) -> Outcome:
    """Replay and score one trace under a hard limit."""
    demand = demand_for(trace, terms)
    return judged(demand, replayed_plainly(demand, recommender, terms), terms)


def replayed_plainly(demand: Demand, recommender: Recommender[Any], terms: Terms) -> Replay:
    """Replay one demand."""
    policy = neutral(recommender, demand)
    playback = Playback(demand, policy, idle=terms.idle(demand))
    asyncio.run(_play(demand, policy, playback))
    return Replay(playback.limit, playback.wanted, {}, {})


async def _play(demand: Demand, policy: Policy, playback: Playback) -> None:
    resource, is_cpu = demand.replayed.resource, demand.replayed is Replayed.CPU
    while True:
        measured = playback.latest()
        history, in_use = measured.of(CONTAINER), measured.in_use.of[CONTAINER]
        snapshot = await playback.observe()
        (pod,) = snapshot.pods.values()
        (container,) = pod.containers
        assert isinstance(history, History)
        situation = Situation(
            snapshot.taken_at,
            history.recent,
            history.open,
            container.in_force,
            policy.grid.step,
            policy.grid.block,
            container.last_terminated,
            0,
            pod.uid,
            container.name,
            container.restart_count,
            0 if container.started_at is None else int(container.started_at.timestamp()),
        )
        answer = policy.recommender.recommend(history.state, situation)
        if isinstance(answer, Target):
            wanted = answer.cpu if is_cpu else answer.memory
            amount = None if wanted is None else amount_of(resource, wanted, whole=False)
            current = container.in_force.requests.get(resource)
            if amount is not None and amount != current and (is_cpu or amount > in_use or amount > (current or 0)):
                amounts = ResourceList.of({resource: amount})
                change = ContainerResize(container.name, ContainerKind.CONTAINER, Resources(amounts, amounts))
                await playback.perform(Resize(pod.ref, pod.uid, pod.generation, (change,)))
        if (await playback.wait(None)).kind is WakeKind.STOP:
            return
