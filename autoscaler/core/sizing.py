"""From one pod's targets to its proposals: bounds, stability, pairing. Pure arithmetic on values already fetched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from autoscaler.core import bounds, decreases, quality
from autoscaler.core.actions import AskKind
from autoscaler.core.foreign import shown
from autoscaler.core.guards import Hold
from autoscaler.core.history import History
from autoscaler.core.model import Container, Pod, Resource, ResourceList, Resources
from autoscaler.core.pairing import Blocked, Wish
from autoscaler.core.plan import PredictedOutcome, Prediction, Proposal
from autoscaler.core.policy import Config, ContainerPolicy, Policy
from autoscaler.core.quality import NO_DOUBTS, Doubts, Effect
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Samples, Step, Target
from autoscaler.core.restarts import Recovery, recovery
from autoscaler.core.rivals import NO_CLAIMS, Claims

_FLOOR_WINDOW_S = 15 * 60  # the memory floor looks at the working sets of this long


@dataclass(frozen=True, slots=True)
class Sized:
    """Proposals for every container of a pod, or the reason why there is nothing to propose."""

    proposals: tuple[Proposal, ...]
    hold: Hold | None = None
    prediction: Prediction = Prediction(PredictedOutcome.UNKNOWN)  # of what is held

    @property
    def resources(self) -> dict[str, Resources]:
        return {p.container.name: p.proposed for p in self.proposals if p.changed}


class _Stability:
    """What keeps one pod's size from flapping, and what it left out, to name the hold if nothing else is left."""

    def __init__(self, pod: Pod, policy: Policy, config: Config, now: datetime, claims: Claims, doubts: Doubts) -> None:
        self._claims = claims
        self._rules = policy.stability
        self._heeds_recovery = policy.care.recovery
        self._oldest_s = quality.oldest(policy.grid, config.max_sample_age)
        self._now = now
        self._now_s = now.timestamp()
        self._ask = pod.newest_ask
        self._pod = pod
        self._recovering: list[tuple[str, Recovery]] = []
        self._stale: list[str] = []
        self._small: list[str] = []
        self._cooling: list[datetime] = []
        self._left: list[str] = []
        self._doubts = doubts
        self._doubted: list[tuple[Reason, str]] = []

    def leaves(self, where: str, recent: Samples, wanted: int, current: int, resource: Resource) -> Step | None:
        """The step that leaves a resource as it is because it is an HPA's business, or its samples will not do."""
        if (words := self._claims.get((where, resource))) is not None:
            if wanted != current:
                self._left.append(f"container {where}: {resource}: {words}")
            return Step(resource, "hpa", wanted, current, words, cap=True)
        if (kept := self._doubted_as(Effect.HOLD, where, resource, wanted, current)) is not None:
            return kept
        age = quality.newest_age(recent, resource, self._now_s)
        if abs(age) <= self._oldest_s:
            return None
        because = f"newest sample is {quality.aged(age)}" if age < math.inf else "no recent sample"
        self._stale.append(f"container {where}: {resource}: {because}")
        return Step(resource, "stale", wanted, current, because, cap=True)

    def keeps(
        self, container: Container, entry: ContainerPolicy, resource: Resource, wanted: int, current: int
    ) -> Step | None:
        """The step that leaves a resource as it is because of the dead band, because its container has not recovered,
        or because of the cooldown of its direction."""
        where, grows = container.name, wanted > current
        least = self._rules.min_change.increase if grows else self._rules.min_change.decrease
        change = (wanted - current) / current
        if abs(change) < least and not bounds.outside(resource, current, entry):
            because = f"{change:+.1%} is less than {least:.0%}"
            self._small.append(f"{where} {resource} {because}")
            return Step(resource, "minChange", wanted, current, because, cap=True)
        found = None if grows or not self._heeds_recovery else recovery(self._pod, container, resource, self._now)
        if found is not None:
            self._recovering.append((f"container {where}: {resource}: {found.words}", found))
            return Step(resource, "recovering", wanted, current, found.words, cap=True)
        cooldown = self._rules.cooldown.increase if grows else self._rules.cooldown.decrease
        # the full target follows a fit at once, so that room which appears is reserved; so do increases that had to
        # wait for the decreases of the same change
        exempt = {AskKind.FIT, AskKind.FIRST} if grows else {AskKind.FIT}
        if self._ask is None or self._ask.manager in exempt or self._now >= self._ask.at + cooldown:
            return None
        self._cooling.append(self._ask.at + cooldown)
        because = f"{_seconds(self._now - self._ask.at)} s after the last resize, cooldown is {_seconds(cooldown)} s"
        return Step(resource, "cooldown", wanted, current, because, cap=True)

    def doubts(self, where: str, resource: Resource, wanted: int, current: int) -> Step | None:
        """The step that leaves a resource as it is because its measurements are no reason to lower it."""
        return self._doubted_as(Effect.NO_DOWN, where, resource, wanted, current) if wanted < current else None

    def _doubted_as(self, effect: Effect, where: str, resource: Resource, wanted: int, current: int) -> Step | None:
        found = next((d for d in self._doubts.get(where, ()) if d.resource is resource and d.effect is effect), None)
        if found is None:
            return None
        self._doubted.append((found.reason, f"container {where}: {resource}: {found.words}"))
        return Step(resource, found.step, wanted, current, found.words, cap=True)

    def hold(self) -> Hold:
        """Why there is nothing to change."""
        if self._cooling:
            due_at = min(self._cooling)
            return Hold(Reason.COOLDOWN, f"until {due_at.isoformat(timespec='seconds')}", due_at)
        if self._recovering:
            until = min((found.until for _, found in self._recovering if found.until is not None), default=None)
            return Hold(Reason.RECOVERING, "; ".join(words for words, _ in self._recovering), until)
        if self._doubted:
            reason = self._doubted[0][0]
            return Hold(reason, "; ".join(words for each, words in self._doubted if each is reason))
        if self._stale:
            return Hold(Reason.STALE_DATA, "; ".join(self._stale))
        if self._small:
            return Hold(Reason.CHANGE_TOO_SMALL, "; ".join(self._small))
        if self._left:
            return Hold(Reason.LEFT_TO_HPA, "; ".join(self._left))
        for name, doubts in self._doubts.items():  # what is not known is not at its target
            if (held := next((one for one in doubts if one.effect is Effect.HOLD), None)) is not None:
                return Hold(held.reason, f"container {name}: {held.resource}: {held.words}")
        return Hold(Reason.AT_TARGET)


def size(
    pod: Pod,
    policy: Policy,
    targets: Mapping[str, Target],
    histories: Mapping[str, History],
    config: Config,
    known: decreases.Known,
    claims: Claims = NO_CLAIMS,
    doubts: Doubts = NO_DOUBTS,
) -> Sized:
    """Proposals from the targets of the pod's containers (keyed by name), but for what others have a claim on, and for
    what their measurements are no reason for."""
    wishes: dict[str, Wish] = {}
    trails: dict[str, list[Step]] = {}
    stability = _Stability(pod, policy, config, known.at, claims, doubts)
    floor_since = int(known.at.timestamp()) - _FLOOR_WINDOW_S
    for container in pod.containers:
        name, target, entry = container.name, targets.get(container.name), policy.container_policy(container)
        if target is None or entry is None:
            continue
        trail = trails[name] = list(target.trail)
        recent = histories[name].recent
        floor = bounds.memory_floor(_greatest_recent(recent, floor_since)) if policy.care.memory_floor else 0
        in_force, requests = container.in_force.requests, dict[Resource, int]()
        for resource, value in ((Resource.CPU, target.cpu), (Resource.MEMORY, target.memory)):
            current = in_force.get(resource)
            trail += (doubt.note for doubt in doubts.get(name, ()) if doubt.resource is resource)
            if value is None or not current or resource not in entry.controlled:
                continue
            if (wanted := bounds.amount_of(resource, value, whole=policy.care.whole_units)) is None:
                hold = Hold(Reason.RECOMMENDER_INVALID, f"container {name}: {resource} target is {shown(value)}")
                return Sized(_unchanged(pod, trails), hold)
            if (kept := stability.leaves(name, recent, wanted, current, resource)) is not None:
                trail.append(kept)
                continue
            wanted, steps = bounds.bound(
                resource, wanted, current, entry, policy.stability, floor, whole=policy.care.whole_units
            )
            trail += steps
            if wanted == current:
                continue
            if (kept := stability.keeps(container, entry, resource, wanted, current)) is not None:
                trail.append(kept)
                continue
            if (kept := stability.doubts(name, resource, wanted, current)) is not None:
                trail.append(kept)
                continue
            requests[resource] = wanted
        if requests:
            wishes[name] = Wish(ResourceList.of(requests), entry.limits, entry.max_allowed, floor)
    if not wishes:
        return Sized(_unchanged(pod, trails), stability.hold())
    return _paired(pod, wishes, trails, stability, known)


def _paired(
    pod: Pod,
    wishes: Mapping[str, Wish],
    trails: Mapping[str, list[Step]],
    stability: _Stability,
    known: decreases.Known,
) -> Sized:
    paired, withheld = decreases.pair_safely(pod, wishes, known)
    if isinstance(paired, Blocked):
        return Sized(_unchanged(pod, trails), Hold(Reason.QOS_WOULD_CHANGE, paired.because))
    resources, more = paired
    proposals = tuple(
        Proposal(c, resources.get(c.name, c.spec), (*trails.get(c.name, ()), *more.get(c.name, ())))
        for c in pod.containers
    )
    if any(p.changed for p in proposals):
        return Sized(proposals)
    hold = stability.hold()
    if not withheld:
        return Sized(proposals, hold)
    why = withheld[0]
    details = dict.fromkeys(one.detail for one in withheld if one.reason is why.reason)
    return Sized(proposals, Hold(why.reason, "; ".join(details), hold.due_at), why.prediction)


def _greatest_recent(recent: Samples, since: int) -> float | None:
    return quality.greatest(recent.memory[recent.end_at.searchsorted(since, side="right") :])


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds())


def _unchanged(pod: Pod, trails: Mapping[str, list[Step]]) -> tuple[Proposal, ...]:
    return tuple(Proposal(c, c.spec, tuple(trails.get(c.name, ()))) for c in pod.containers)


def unchanged(pod: Pod) -> tuple[Proposal, ...]:
    """Proposals that leave every container as its spec has it, without a trail."""
    return _unchanged(pod, {})
