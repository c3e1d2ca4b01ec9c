"""Others who set sizes: autoscalers of the same workload, and whoever else asked for a size last. Pure.

What they are at work on is left to them, and said. Two writers of one field would undo each other for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from autoscaler.core.actions import OURS
from autoscaler.core.guards import Hold
from autoscaler.core.model import Autoscaler, ClusterSnapshot, Pod, Resource
from autoscaler.core.policy import Policy
from autoscaler.core.reasons import Reason

_OFF = "Off"  # a VerticalPodAutoscaler that only recommends

Claims = Mapping[tuple[str, Resource], str]
"""Who has a claim on a resource of a container (by name), in words."""

NO_CLAIMS: Claims = MappingProxyType({})


class Rivals:
    """The rivals in one snapshot, looked up once a turn."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._now = snapshot.taken_at
        self._by_target: dict[tuple[str, str], list[Autoscaler]] = {}
        for one in snapshot.autoscalers:
            self._by_target.setdefault((one.namespace, one.target), []).append(one)

    def objection(self, pod: Pod, policy: Policy) -> Hold | None:
        """Why the whole pod is left to someone else; None when nobody claims it."""
        for one in self._of(pod):
            if one.mode and one.mode != _OFF:
                return Hold(Reason.OTHER_AUTOSCALER, f"{_named(one)} with updateMode {one.mode} targets {one.target}")
        return self._writer(pod, policy)

    def claims(self, pod: Pod) -> Claims:
        """The resources that HorizontalPodAutoscalers scale on: another request would change the number of replicas."""
        claims: dict[tuple[str, Resource], str] = {}
        for one in self._of(pod):
            for resource, name in one.resources:
                words = f"{_named(one)} scales on its utilisation"
                for container in pod.containers:
                    if name in (None, container.name):
                        claims[container.name, resource] = words
        return claims or NO_CLAIMS

    def _of(self, pod: Pod) -> list[Autoscaler]:
        return self._by_target.get((pod.namespace, pod.workload), []) if pod.workload is not None else []

    def _writer(self, pod: Pod, policy: Policy) -> Hold | None:
        ask = pod.newest_ask
        if ask is None or ask.manager in OURS:
            return None
        due_at = ask.at + policy.stability.other_writer_hold
        if self._now >= due_at:
            return None
        asked, until = (at.isoformat(timespec="seconds") for at in (ask.at, due_at))
        return Hold(Reason.OTHER_WRITER, f"{ask.manager} asked for a size at {asked}; left to it until {until}", due_at)


def _named(one: Autoscaler) -> str:
    return f"{one.kind} {one.namespace}/{one.name}"
