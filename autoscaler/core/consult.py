"""Asking recommenders about the pods that no guard objects to. What they do wrong is a hold of the pod concerned."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any

import numpy as np

from autoscaler.core.bounds import amount_of
from autoscaler.core.foreign import shown, told, words
from autoscaler.core.guards import Hold
from autoscaler.core.history import History, MemoryInUse
from autoscaler.core.model import ClusterSnapshot, Container, Pod, Resource
from autoscaler.core.policy import Config, Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Abstain, Recommender, Situation, Step, Target
from autoscaler.core.rivals import NO_CLAIMS, Claims
from autoscaler.core.units import MAX_AMOUNT

# a plug-in that works on samples has numpy's numbers in hand
_NUMBERS = (float, np.floating, int, np.integer, NoneType)

_GPU_END = "looks like GPU memory: it was full when the program failed; more memory of the container is no help"


@dataclass(slots=True)
class Candidate:
    """A pod that no guard objects to, on its way to a decision."""

    pod: Pod
    policy: Policy
    claims: Claims = field(default_factory=lambda: NO_CLAIMS)
    histories: dict[str, History] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    hold: Hold | None = None
    in_use: MemoryInUse = MemoryInUse()


def consult(
    candidates: Sequence[Candidate], snapshot: ClusterSnapshot, config: Config, tick: Callable[[], float]
) -> None:
    """Ask each recommender once for all of its containers, and once more one by one if that fails."""
    groups: defaultdict[int, list[tuple[Candidate, Container, Situation]]] = defaultdict(list)
    recommenders: dict[int, Recommender[Any]] = {}
    for candidate in candidates:
        if candidate.hold is not None:
            continue
        recommender, grid = candidate.policy.recommender, candidate.policy.grid
        recommenders[id(recommender)] = recommender
        containers = {container.name: container for container in candidate.pod.containers}
        ask = candidate.pod.newest_ask
        for name, history in candidate.histories.items():
            container = containers[name]
            situation = Situation(
                snapshot.taken_at,
                history.recent,
                history.open,
                container.in_force,
                grid.step,
                grid.block,
                container.last_terminated,
                own_from(candidate.pod, candidate.policy),
                candidate.pod.uid,
                name,
                container.restart_count,
                0 if container.started_at is None else int(container.started_at.timestamp()),
                0 if ask is None else int(ask.at.timestamp()),
                int(candidate.policy.rate_window.total_seconds()),
            )
            groups[id(recommender)].append((candidate, container, situation))
    patience = config.recommender_patience.total_seconds()
    for key, members in groups.items():
        answers = _ask(recommenders[key], members, patience, tick)
        for (candidate, container, situation), answer in zip(members, answers, strict=True):
            if isinstance(answer, Target):
                candidate.targets[container.name] = _explained(answer, recommenders[key].name, situation)
            elif candidate.hold is None:
                hold = _abstained(answer) if isinstance(answer, Abstain) else answer
                candidate.hold = Hold(hold.reason, f"container {container.name}: {hold.detail}")


def own_from(pod: Pod, policy: Policy) -> int:
    """When the first sample ends that no pod of the same name before this one had a part in, unix seconds."""
    if pod.created_at is None:
        return 0
    # a sample stands for the time before it: CPU for the rate's window, memory for a block at most
    longest_s = max(policy.rate_window.total_seconds(), policy.grid.block)
    return math.ceil(pod.created_at.timestamp() + longest_s)


def _ask(
    recommender: Recommender[Any],
    members: Sequence[tuple[Candidate, Container, Situation]],
    patience: float,
    tick: Callable[[], float],
) -> list[Target | Abstain | Hold]:
    if type(recommender).recommend_many is not Recommender.recommend_many:
        states = [candidate.histories[container.name].state for candidate, container, _ in members]
        started = tick()
        try:
            many = list(recommender.recommend_many(states, [situation for _, _, situation in members]))
        except KeyboardInterrupt:
            raise
        except BaseException:  # the culprit is found by asking one by one
            many = []
        if len(many) == len(members):
            slow = _slow((tick() - started) / len(members), patience)
            return [slow or _checked(answer) for answer in many]
    return [_ask_one(recommender, member, patience, tick) for member in members]


def _ask_one(
    recommender: Recommender[Any],
    member: tuple[Candidate, Container, Situation],
    patience: float,
    tick: Callable[[], float],
) -> Target | Abstain | Hold:
    candidate, container, situation = member
    started = tick()
    try:
        answer = recommender.recommend(candidate.histories[container.name].state, situation)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plug-in may raise anything; it costs this pod alone
        return Hold(Reason.RECOMMENDER_FAILED, f"{recommender.name} raised {told(error)}")
    return _slow(tick() - started, patience) or _checked(answer)


def _slow(took: float, patience: float) -> Hold | None:
    return Hold(Reason.RECOMMENDER_SLOW, f"took {took:.1f} s, allowed are {patience:g} s") if took > patience else None


def _checked(answer: object) -> Target | Abstain | Hold:
    if isinstance(answer, Abstain):
        if isinstance(answer.because, str) and isinstance(answer.insufficient_history, (bool, np.bool_)):
            return answer
        return Hold(Reason.RECOMMENDER_INVALID, "abstained without saying why in words")
    if not isinstance(answer, Target):
        return Hold(Reason.RECOMMENDER_INVALID, f"answered {type(answer).__name__}, not Target or Abstain")
    for name, value in (("cpu", answer.cpu), ("memory", answer.memory)):
        if not isinstance(value, _NUMBERS) or isinstance(value, bool):
            return Hold(Reason.RECOMMENDER_INVALID, f"{name} target is {shown(value)}, not a number")
    if not isinstance(answer.trail, tuple) or not all(map(_readable, answer.trail)):
        return Hold(Reason.RECOMMENDER_INVALID, "its trail is not a tuple of Step with words and whole amounts or None")
    return answer


def _readable(step: object) -> bool:
    return (
        isinstance(step, Step)
        and isinstance(step.resource, Resource)
        and isinstance(step.name, str)
        and isinstance(step.because, str)
        and _amount(step.before)
        and _amount(step.after)
    )


def _amount(value: object) -> bool:
    return value is None or (isinstance(value, (int, np.integer)) and bool(0 <= value <= MAX_AMOUNT))


def _explained(target: Target, name: str, situation: Situation) -> Target:
    """The target with a step for each amount that its trail is silent about, so that every trail has a beginning, and
    with what is known of the container's last end."""
    told_of = {step.resource for step in target.trail}
    missing = tuple(
        Step(resource, "recommender", None, amount, name)
        for resource, value in ((Resource.CPU, target.cpu), (Resource.MEMORY, target.memory))
        if value is not None and resource not in told_of and (amount := amount_of(resource, value)) is not None
    )
    if situation.out_of_gpu_memory:
        missing += (Step(Resource.MEMORY, "lastEnd", None, None, _GPU_END),)
    return replace(target, trail=(*target.trail, *missing)) if missing else target


def _abstained(answer: Abstain) -> Hold:
    reason = Reason.INSUFFICIENT_HISTORY if answer.insufficient_history else Reason.RECOMMENDER_ABSTAINED
    return Hold(reason, words(answer.because))
