"""From one pod's targets to its proposals: bounds, stability, pairing. Pure arithmetic on values already fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from autoscaler.core import bounds, quality
from autoscaler.core.guards import Hold
from autoscaler.core.history import History
from autoscaler.core.model import Container, Pod, Resource, ResourceList, Resources
from autoscaler.core.pairing import Blocked, Wish, pair
from autoscaler.core.plan import Proposal
from autoscaler.core.policy import Config, ContainerPolicy, Policy
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Step, Target

_FLOOR_WINDOW_S = 15 * 60  # the memory floor looks at the working sets of this long


@dataclass(frozen=True, slots=True)
class Sized:
    """Proposals for every container of a pod, or the reason why there is nothing to propose."""

    proposals: tuple[Proposal, ...]
    hold: Hold | None = None

    @property
    def resources(self) -> dict[str, Resources]:
        return {p.container.name: p.proposed for p in self.proposals if p.changed}


class _Dropped:
    """What stability left out of one pod's wishes, to name the hold if nothing else is left."""

    def __init__(self) -> None:
        self.small: list[str] = []
        self.cooling: list[datetime] = []

    def hold(self) -> Hold:
        if self.cooling:
            due_at = min(self.cooling)
            return Hold(Reason.COOLDOWN, f"until {due_at.isoformat(timespec='seconds')}", due_at)
        if self.small:
            return Hold(Reason.CHANGE_TOO_SMALL, "; ".join(self.small))
        return Hold(Reason.AT_TARGET)


def size(
    pod: Pod,
    policy: Policy,
    targets: Mapping[str, Target],
    histories: Mapping[str, History],
    config: Config,
    now: datetime,
) -> Sized:
    """Proposals from the targets of the pod's containers (keyed by name)."""
    wishes: dict[str, Wish] = {}
    trails: dict[str, list[Step]] = {}
    dropped = _Dropped()
    for container in pod.containers:
        target = targets.get(container.name)
        entry = policy.container_policy(container)
        if target is None or entry is None:
            continue
        trail = trails[container.name] = list(target.trail)
        history = histories[container.name]
        floor = bounds.memory_floor(_greatest_recent(history, now))
        requests = ResourceList()
        for resource, value in ((Resource.CPU, target.cpu), (Resource.MEMORY, target.memory)):
            current = container.in_force.requests.get(resource)
            if value is None or not current or resource not in entry.controlled:
                continue
            if (wanted := bounds.amount_of(resource, value)) is None:
                hold = Hold(Reason.RECOMMENDER_INVALID, f"container {container.name}: {resource} target is {value}")
                return Sized(_unchanged(pod, trails), hold)
            age = quality.newest_age(history.recent, resource, now)
            if age > quality.oldest(policy.grid, config.max_sample_age):
                trail.append(Step(resource, "stale", wanted, current, f"newest sample is {age:.0f} s old", cap=True))
                continue
            wanted, steps = bounds.bound(resource, wanted, current, entry, policy.stability, floor)
            trail += steps
            if _worth_it(pod, container, entry, resource, wanted, current, policy, now, trail, dropped):
                requests = requests.with_amount(resource, wanted)
        if requests != ResourceList():
            wishes[container.name] = Wish(requests, entry.limits, entry.max_allowed, floor)
    if not wishes:
        return Sized(_unchanged(pod, trails), dropped.hold())
    paired = pair(pod, wishes)
    if isinstance(paired, Blocked):
        return Sized(_unchanged(pod, trails), Hold(Reason.QOS_WOULD_CHANGE, paired.because))
    resources, more = paired
    proposals = tuple(
        Proposal(c, resources.get(c.name, c.spec), (*trails.get(c.name, ()), *more.get(c.name, ())))
        for c in pod.containers
    )
    return Sized(proposals, None if any(p.changed for p in proposals) else dropped.hold())


def _greatest_recent(history: History, now: datetime) -> float | None:
    return quality.greatest(history.recent.after(int(now.timestamp()) - _FLOOR_WINDOW_S).memory)


def _worth_it(
    pod: Pod,
    container: Container,
    entry: ContainerPolicy,
    resource: Resource,
    wanted: int,
    current: int,
    policy: Policy,
    now: datetime,
    trail: list[Step],
    dropped: _Dropped,
) -> bool:
    """Whether a change passes the dead band and the cooldown of its direction; notes it where it does not."""
    if wanted == current:
        return False
    grows = wanted > current
    least = policy.stability.min_change.increase if grows else policy.stability.min_change.decrease
    change = (wanted - current) / current
    if abs(change) < least and not bounds.outside(resource, current, entry):
        trail.append(Step(resource, "minChange", wanted, current, f"{change:+.1%} is less than {least:.0%}", cap=True))
        dropped.small.append(f"{container.name} {resource} {change:+.1%} is less than {least:.0%}")
        return False
    cooldown = policy.stability.cooldown.increase if grows else policy.stability.cooldown.decrease
    if (ask := pod.newest_ask) is not None and now < ask.at + cooldown:
        because = f"{_seconds(now - ask.at)} s after the last resize, cooldown is {_seconds(cooldown)} s"
        trail.append(Step(resource, "cooldown", wanted, current, because, cap=True))
        dropped.cooling.append(ask.at + cooldown)
        return False
    return True


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds())


def _unchanged(pod: Pod, trails: Mapping[str, list[Step]]) -> tuple[Proposal, ...]:
    return tuple(Proposal(c, c.spec, tuple(trails.get(c.name, ()))) for c in pod.containers)


def unchanged(pod: Pod) -> tuple[Proposal, ...]:
    """Proposals that leave every container as its spec has it, without a trail."""
    return _unchanged(pod, {})
