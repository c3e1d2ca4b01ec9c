"""The policies, and the pods that they select."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from autoscaler.core.guards import objection, unsizable
from autoscaler.core.history import ContainerRef
from autoscaler.core.kubelet import FINISHED_PHASES
from autoscaler.core.model import Pod, PodRef, Problem
from autoscaler.core.policy import Config, Mode, Policy
from autoscaler.core.resize import Phase, phase_of
from autoscaler.diagnosis.findings import Check, Finding, Status, counted, failed, listed


@dataclass(frozen=True, slots=True)
class Selection:
    """The pods that policies select. `of`: by policy, each pod with one policy; `twice`: those with several.

    `started`: since when each of the containers runs that are to be sized.
    """

    of: Mapping[str, tuple[Pod, ...]]
    twice: Mapping[PodRef, tuple[str, ...]]
    started: Mapping[ContainerRef, datetime]

    @property
    def nodes(self) -> frozenset[str]:
        """Where the pods run."""
        return frozenset(pod.node for pods in self.of.values() for pod in pods if pod.node is not None)


def select(pods: Iterable[Pod], config: Config) -> Selection:
    """Which policy selects which pods."""
    of: dict[str, list[Pod]] = {policy.name: [] for policy in config.policies}
    twice: dict[PodRef, tuple[str, ...]] = {}
    started: dict[ContainerRef, datetime] = {}
    for pod in sorted(pods, key=lambda pod: pod.ref):
        policies = [] if pod.phase in FINISHED_PHASES else config.policies_of(pod)
        if len(policies) > 1:
            twice[pod.ref] = tuple(policy.name for policy in policies)
        for policy in policies if len(policies) == 1 else ():
            of[policy.name].append(pod)
            if policy.mode is not Mode.OFF:
                for container in policy.sized(pod):
                    if container.running and container.started_at is not None:
                        started[ContainerRef(pod.namespace, pod.name, container.name)] = container.started_at
    return Selection({name: tuple(group) for name, group in of.items()}, twice, started)


def trial(selection: Selection, policies: Iterable[Policy]) -> Pod | None:
    """A pod on which a resize can be tried: one that could be sized now."""
    for policy in policies:
        for pod in selection.of.get(policy.name, ()):
            idle = phase_of(pod).phase is Phase.SETTLED
            if idle and objection(pod, policy) is None and unsizable(pod, policy) is None:
                return pod
    return None


def policies(found: Collection[Policy], warnings: Iterable[str], problems: Iterable[Problem]) -> Iterator[Finding]:
    """What was read, what in it has no effect, and plug-ins that cannot be used."""
    modes = listed((f"{policy.name} ({policy.mode})" for policy in found), 10)
    yield Finding(Check.POLICIES, Status.OK, f"{len(found)} valid: {modes}")
    for warning in warnings:
        yield failed(Check.POLICIES, warning, status=Status.WARNING)
    for problem in problems:
        yield Finding(
            Check.POLICIES, Status.WARNING, f"{problem.source}: {problem.detail}", "repair or remove the plug-in"
        )


def pods(selection: Selection, policies: Iterable[Policy], unreadable: Iterable[Problem]) -> Iterator[Finding]:
    """How many pods each policy selects, and which are selected by two."""
    for policy in policies:
        chosen = selection.of[policy.name]
        if not chosen:
            remedy = f"compare its selector ({policy.source}) with kubectl get pods -A --show-labels"
            yield Finding(Check.PODS, Status.WARNING, "selects no pod", remedy, policy.name)
            continue
        sized = sum(len(policy.sized(pod)) for pod in chosen)
        detail = f"{counted(len(chosen), 'pod')}, {counted(sized, 'container')} to size"
        yield Finding(Check.PODS, Status.OK, detail, subject=policy.name)
    if selection.twice:
        pairs = listed(f"{ref} ({' and '.join(names)})" for ref, names in selection.twice.items())
        detail = f"{counted(len(selection.twice), 'pod')} left alone, as two policies select them: {pairs}"
        yield Finding(Check.PODS, Status.ERROR, detail, "narrow the selector of one of the policies")
    for problem in unreadable:
        yield Finding(Check.PODS, Status.WARNING, f"{problem.source}: {problem.detail}", "upgrade this program")
