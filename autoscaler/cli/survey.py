"""One look at everything: what `plan` and `explain` print. Reads only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from autoscaler.adapters.sessions.source import LOOKS
from autoscaler.cli.document import Document, document
from autoscaler.core.actions import Outcome
from autoscaler.core.decide import decide, select
from autoscaler.core.model import ClusterSnapshot, Pod, PodRef
from autoscaler.core.plan import Plan, resize_of
from autoscaler.core.policy import Config
from autoscaler.core.reasons import Reason

if TYPE_CHECKING:
    from autoscaler.cli.progress import MeasuringProgress
    from autoscaler.cli.wiring import Parts


@dataclass(frozen=True, slots=True)
class Filter:
    """Which pods are looked at: names or NAMESPACE/NAME, with wildcards, and policies by name. Empty: all."""

    pods: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pods or self.policies)

    def matches(self, pod: Pod, config: Config) -> bool:
        named = any(fnmatchcase(str(pod.ref) if "/" in want else pod.name, want) for want in self.pods)
        chosen = any(policy.name in self.policies for policy in config.policies_of(pod))
        return (named or not self.pods) and (chosen or not self.policies)


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found."""

    plan: Plan
    config: Config
    answers: Mapping[PodRef, Outcome] = field(default_factory=dict)

    def document(self) -> Document:
        return document(self.plan, self.config.policies, self.answers)


async def survey(parts: Parts, chosen: Filter, progress: MeasuringProgress, *, ask_server: bool = False) -> Survey:
    """Observe, measure, decide; with `ask_server` also what the API server says to each patch or move (dryRun=All).

    Raises `Unavailable` when the cluster cannot be observed.
    """
    config = parts.config()
    snapshot = await parts.cluster.observe()
    scope = _scope(snapshot, chosen, config)
    wanted = select(snapshot, config)
    if scope is not None:
        wanted = {container: policy for container, policy in wanted.items() if container.pod_ref in scope}
    parts.metrics.follow(wanted)
    with progress:
        measurements = await parts.metrics.measure_once(progress)
    # time has passed: ages are told as of now, and where the cluster is watched the state is the newest
    snapshot = await parts.cluster.observe()
    plan = decide(snapshot, measurements, config, scope, tick=time.monotonic)
    if await look_at_sessions(parts, plan, telling=False):
        gates, snapshot = parts.sessions.latest(), await parts.cluster.observe()
        plan = decide(snapshot, measurements, config, scope, tick=time.monotonic, gates=gates)
    answers = await _ask(parts, plan) if ask_server else {}
    return Survey(plan, config, answers)


async def look_at_sessions(parts: Parts, plan: Plan, *, telling: bool) -> bool:
    """Look at the users' sessions on the pods of a plan as often as it takes to know; whether there were any pods."""
    drains = {one.drain.pod: one.drain for one in plan.decisions if one.drain is not None}
    parts.sessions.follow(drains, telling=telling)
    for _ in range(LOOKS if drains else 0):
        await parts.sessions.look_once()
    return bool(drains)


def _scope(snapshot: ClusterSnapshot, chosen: Filter, config: Config) -> frozenset[PodRef] | None:
    if not chosen:
        return None
    return frozenset(ref for ref, pod in snapshot.pods.items() if chosen.matches(pod, config))


async def _ask(parts: Parts, plan: Plan) -> dict[PodRef, Outcome]:
    """The server's answer to every change, also to those that a policy only recommends."""
    answers = {}
    for decision in plan.decisions:
        if decision.move is not None:
            answers[decision.pod.ref] = await parts.cluster.move(decision.move)
        elif decision.action is not None or decision.reason is Reason.RECOMMEND_ONLY:
            action = decision.action or resize_of(decision.pod, decision.proposals)
            if action.containers:  # a move that is only recommended has nothing to patch
                answers[decision.pod.ref] = await parts.cluster.perform(action)
    return answers
