"""What speaks against acting on what was measured of a pod, by itself and beside its workload's others. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from autoscaler.core import quality
from autoscaler.core.consult import Candidate, own_from
from autoscaler.core.history import ContainerRef, Gap, History, Measurements
from autoscaler.core.model import RESOURCES, ClusterSnapshot, Container, Pod, Resource, WorkloadRef
from autoscaler.core.policy import Config, Policy
from autoscaler.core.problems import Trouble
from autoscaler.core.quality import MOST_MISSING, Doubt, Doubts, Effect, Window
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import GPU_SIGNALS, Signal
from autoscaler.core.siblings import Siblings

_GPU_RESOURCES = "nvidia.com/"  # of NVIDIA's device plugin: gpu, gpu.shared, mig-1g.5gb, …


class Doubted:
    """The doubts of one turn. What pods of a workload share is worked out once."""

    def __init__(
        self, snapshot: ClusterSnapshot, measurements: Measurements, config: Config, siblings: Siblings
    ) -> None:
        self._now = snapshot.taken_at
        self._measurements = measurements
        self._config = config
        self._siblings = siblings
        self._gpus_unattributed = any(one.reason is Trouble.GPU_UNATTRIBUTED for one in measurements.problems)
        self._measured: dict[tuple[WorkloadRef, str], tuple[int, int]] = {}

    def of(self, candidate: Candidate) -> Doubts:
        """Those of a pod, by container, strongest first."""
        pod, policy = candidate.pod, candidate.policy
        there, all_of_them = self._pods_measured(pod, policy)
        thin = all_of_them > 0 and there / all_of_them < policy.min_coverage
        words = f"{there} of {all_of_them} pods of {pod.workload} have samples"
        shared = f"{words}: {there / all_of_them:.0%} below {policy.min_coverage:.0%}" if thin else ""
        found, gpus = {}, self._gpus(pod, policy, candidate.histories)
        for container in pod.containers:
            history, entry = candidate.histories.get(container.name), policy.container_policy(container)
            if history is None or entry is None:
                continue
            doubts = [
                one for one in self._of_container(pod, policy, container, history) if one.resource in entry.controlled
            ]
            if (unknown := gpus.get(container.name)) is not None:
                doubts[:0] = (Doubt(unknown[0], r, Effect.HOLD, unknown[1]) for r in RESOURCES if r in entry.controlled)
            if shared:
                doubts += (
                    Doubt(Reason.LOW_COVERAGE, r, Effect.NO_DOWN, shared) for r in RESOURCES if r in entry.controlled
                )
            if doubts:
                found[container.name] = tuple(doubts)
        return found

    def _of_container(self, pod: Pod, policy: Policy, container: Container, history: History) -> list[Doubt]:
        window = Window(
            policy.grid,
            policy.rate_window.total_seconds(),
            policy.min_coverage,
            _began_at(pod, container),
            self._measurements.scrape_interval_s,
        )
        doubts = []
        if (short := quality.rate_window_doubt(window, history.recent)) is not None:
            doubts.append(short)
        if (reset := self._restarts(pod, policy, container)) is not None:
            doubts.append(reset)
        if (coarse := quality.resolution_doubt(policy.grid, window.rate_window_s)) is not None:
            doubts.append(coarse)
        unread = quality.range_words(history.unread_before, history.newest_at, policy.grid)
        created_at = -math.inf if pod.created_at is None else pod.created_at.timestamp()
        if history.unread_before <= created_at <= history.first_at:
            unread = ""  # there was no pod of this name, as far as is known
        partial_s = history.newest_at - history.partial_at
        own_at = own_from(pod, policy)
        moved = self._measurements.moved.get(ContainerRef(pod.namespace, pod.name, container.name))
        for resource in RESOURCES:
            if moved is not None:
                doubts.append(Doubt(Reason.SOURCE_CHANGED, resource, Effect.NO_DOWN, moved))
            if history.unread_before and unread:
                doubts.append(Doubt(Reason.RANGE_TRUNCATED, resource, Effect.NO_DOWN, unread))
            if history.partial_at and partial_s < policy.grid.lookback:
                words = f"an answer was partial {partial_s} s before the newest sample, within {policy.grid.lookback} s"
                doubts.append(Doubt(Reason.PARTIAL_RESPONSE, resource, Effect.NO_DOWN, words))
            if history.first_at < created_at and history.newest_at < own_at:
                words = f"samples may be of an earlier pod of this name for another {own_at - history.newest_at} s"
                doubts.append(Doubt(Reason.INSUFFICIENT_HISTORY, resource, Effect.NO_DOWN, words))
            if history.seen is not None:
                doubts += quality.gaps(history.seen, resource, history.first_at, window)
        return doubts

    def _restarts(self, pod: Pod, policy: Policy, container: Container) -> Doubt | None:
        """After each restart CPU reads too low for a rate's window."""
        count, since = container.restart_count, pod.created_at
        if not count or since is None or container.started_at is None:
            return None
        if (self._now - container.started_at).total_seconds() > min(policy.grid.fine, policy.grid.lookback):
            return None
        lived_s = max(1.0, (self._now - since).total_seconds())
        low = min(1.0, count * policy.rate_window.total_seconds() / lived_s)
        words = f"{count} restarts in {lived_s:.0f} s: {low:.1%} of CPU usage may read too low; allowed are"
        words = f"{words} {MOST_MISSING:.0%}"
        if low > MOST_MISSING:
            return Doubt(Reason.COUNTER_RESET_STORM, Resource.CPU, Effect.NO_DOWN, words)
        return Doubt(Reason.COUNTER_RESET, Resource.CPU, Effect.NOTE, words)

    def _gpus(self, pod: Pod, policy: Policy, histories: Mapping[str, History]) -> dict[str, tuple[Reason, str]]:
        """Of a pod with GPUs: containers whose recommender reads of GPUs what nobody knows."""
        reads = policy.recommender.signals & GPU_SIGNALS
        if not reads:
            return {}
        has = {name for name, history in histories.items() if any(map(history.knows, GPU_SIGNALS))}
        asks = sum(amount for name, amount in pod.scheduling.extended.items() if name.startswith(_GPU_RESOURCES))
        if not has and asks and self._gpus_unattributed:
            words = f"the pod asks for {asks} GPUs or parts of one, and no series of a GPU names it"
            return dict.fromkeys(histories, (Reason.GPU_UNATTRIBUTED, words))
        if Signal.GPU_UTILISATION not in reads:
            return {}
        words = "there are no samples of how busy its part of a GPU is"
        unknown = [name for name in has if not histories[name].knows(Signal.GPU_UTILISATION)]
        return dict.fromkeys(unknown, (Reason.GPU_UTILIZATION_UNKNOWN, words))

    def _pods_measured(self, pod: Pod, policy: Policy) -> tuple[int, int]:
        """Of how many running pods of the workload, under this policy, usage is known, and how many there are."""
        if pod.workload is None:
            return 0, 0
        key = WorkloadRef(pod.namespace, pod.workload), policy.name
        if key not in self._measured:
            known = [
                self._known(one, policy)
                for one in self._siblings.of(key[0])
                if self._counts(one) and self._config.policies_of(one) == [policy]
            ]
            self._measured[key] = sum(known), len(known)
        return self._measured[key]

    def _counts(self, pod: Pod) -> bool:
        """Whether samples of a pod should be there by now."""
        started = [c.started_at for c in pod.containers if c.running and c.started_at is not None]
        old = started and self._now - max(started) > self._config.max_sample_age
        return pod.phase == "Running" and not pod.deleting and bool(old)

    def _known(self, pod: Pod, policy: Policy) -> bool:
        return all(self._fresh(pod, policy, container) for container in policy.sized(pod))

    def _fresh(self, pod: Pod, policy: Policy, container: Container) -> bool:
        found = self._measurements.of(ContainerRef(pod.namespace, pod.name, container.name))
        if isinstance(found, Gap):
            return found.reason is Reason.NOT_MEASURED_YET
        return abs(self._now.timestamp() - found.newest_at) <= quality.oldest(policy.grid, self._config.max_sample_age)


def _began_at(pod: Pod, container: Container) -> float:
    began: datetime | None = pod.created_at if container.restart_count else container.started_at
    return 0.0 if began is None else began.timestamp()
