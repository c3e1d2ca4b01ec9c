"""Decreases that need care: memory limits that would shrink, and what goes down in a pod while something goes up.

A kubelet refuses a whole resize as long as memory in use, page cache included, is at or above a limit that shrinks
(1.34 and newer; 1.33 refuses any such decrease). Whether it would is asked of the same model that simulates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from autoscaler.core import kubelet
from autoscaler.core.history import ContainerRef, MemoryInUse
from autoscaler.core.model import RESOURCES, Container, ContainerKind, Pod, Resource, ResourceList, Resources
from autoscaler.core.pairing import Blocked, Paired, Wish, pair, qos_class
from autoscaler.core.plan import PredictedOutcome, Prediction, Proposal
from autoscaler.core.quality import aged
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Step
from autoscaler.core.units import Bytes, format_memory

_CANNOT_SHRINK = 33  # the last minor version that refuses every decrease of a memory limit
_COUNTS_TWICE = 36  # the last one whose scheduler takes the maximum of each container: kubernetes#140047


@dataclass(frozen=True, slots=True)
class Known:
    """What a decision that is made `at` a moment knows of memory limits. `oldest_s`: seconds `in_use` may be old."""

    in_use: MemoryInUse
    oldest_s: float
    at: datetime
    server_minor: int | None = None


@dataclass(frozen=True, slots=True)
class Withheld:
    """A memory limit that is not lowered now: why, and what would come of it."""

    reason: Reason
    detail: str
    prediction: Prediction


def pair_safely(pod: Pod, wishes: Mapping[str, Wish], known: Known) -> tuple[Paired | Blocked, tuple[Withheld, ...]]:
    """As `pairing.pair`, but a memory limit that cannot be lowered now stays, and so does a request that would fall."""
    paired = pair(pod, wishes)
    if isinstance(paired, Blocked):
        return paired, ()
    resources, steps = paired
    withheld = _withheld(pod, resources, known)
    if not withheld:
        return paired, ()
    rest = {n: _without(pod, n, w) if n in withheld else w for n, w in wishes.items()}
    again = pair(pod, {name: wish for name, wish in rest.items() if wish.requests != ResourceList()})
    if isinstance(again, Blocked):
        return again, tuple(withheld.values())
    for name, why in withheld.items():
        before, after = resources[name].limits.memory, _container(pod, name).spec.limits.memory
        step = Step(Resource.MEMORY, "memoryLimit", before, after, why.detail, cap=True)
        cpu = [s for s in steps[name] if s.resource is Resource.CPU]
        again[1][name] = [*(again[1].get(name) or cpu), step]
    return again, tuple(withheld.values())


def _without(pod: Pod, name: str, wish: Wish) -> Wish:
    """The wish without the decrease of its memory limit: a request that grows may do so below the limit in force."""
    spec = _container(pod, name).spec
    if (wish.requests.memory or 0) > (spec.requests.memory or 0):
        return replace(wish, memory_floor=spec.limits.memory or 0)
    return replace(wish, requests=wish.requests.with_amount(Resource.MEMORY, None))


def _withheld(pod: Pod, resources: Mapping[str, Resources], known: Known) -> dict[str, Withheld]:
    """By container: each alone first, so that one does not hold the others back, then what is left together."""
    shrinking = {c.name: resources[c.name] for c in pod.containers if c.name in resources and _shrinks(c, resources)}
    found = {name: why for name in shrinking if (why := _refusal(pod, {name: resources[name]}, known)) is not None}
    rest = {name: resources[name] for name in shrinking if name not in found}
    if len(rest) > 1 and (why := _refusal(pod, rest, known)) is not None:
        found |= dict.fromkeys(rest, why)
    return found


def _shrinks(container: Container, resources: Mapping[str, Resources]) -> bool:
    new, old = resources[container.name].limits.memory, container.in_force.limits.memory
    return new is not None and (old is None or new < old)


def _refusal(pod: Pod, proposed: Mapping[str, Resources], known: Known) -> Withheld | None:
    """Why memory limits cannot be lowered like this now, or None. The named containers' limits shrink."""
    names = ", ".join(proposed)
    if known.server_minor is not None and known.server_minor <= _CANNOT_SHRINK:
        detail = f"container {names}: the API server is 1.{known.server_minor}, which lowers no memory limit"
        return Withheld(Reason.MEMORY_DECREASE_UNSUPPORTED, detail, Prediction(PredictedOutcome.INFEASIBLE, detail))
    # a kubelet stops a container that restarts for it before it compares; what that holds it will need again
    running_on = replace(pod, containers=tuple(replace(c, restart_on=frozenset()) for c in pod.containers))
    after = kubelet.resized(running_on, proposed)
    used = {
        c.name: amount
        for c in pod.containers
        if (amount := known.in_use.of.get(ContainerRef(pod.namespace, pod.name, c.name))) is not None
    }
    unknown = _unknown(after, proposed, used, known)
    if unknown is not None:
        return Withheld(Reason.MEMORY_USE_UNKNOWN, unknown, Prediction(PredictedOutcome.UNKNOWN, unknown))
    error = kubelet.memory_decrease_error(after, used)
    if error is None:
        return None
    words = [f"{n}: limit {format_memory(_limit(proposed[n]))}, in use {_mib(used[n])}" for n in proposed]
    return Withheld(
        Reason.PAGE_CACHE_ABOVE_TARGET,
        f"container {', '.join(words)} with page cache",
        Prediction(PredictedOutcome.ERROR, error),
    )


def _unknown(after: Pod, proposed: Mapping[str, Resources], used: Mapping[str, Bytes], known: Known) -> str | None:
    """What of the memory in use would have to be known for the kubelet's comparison and is not, in words."""
    running = [c for c in after.containers if c.kind is not ContainerKind.INIT]
    # the kubelet compares the pod's sum as well where every container has a limit
    whole = all(c.spec.limits.memory is not None for c in running)
    needed = [c.name for c in running if c.name in proposed or (whole and c.running)]
    if known.in_use.measured_at is None:
        return f"container {', '.join(proposed)}: memory in use has not been measured yet"
    age = (known.at - known.in_use.measured_at).total_seconds()
    if abs(age) > known.oldest_s:
        return f"container {', '.join(proposed)}: memory in use is {aged(age)}"
    missing = [name for name in needed if name not in used]
    return f"container {', '.join(missing)}: no samples of {known.in_use.series}" if missing else None


def _limit(resources: Resources) -> Bytes:
    return resources.limits.memory or Bytes(0)


def _mib(amount: Bytes) -> str:
    return f"{amount / (1 << 20):.0f}Mi"


def _container(pod: Pod, name: str) -> Container:
    return next(container for container in pod.containers if container.name == name)


def first_step(pod: Pod, proposals: tuple[Proposal, ...], server_minor: int | None) -> tuple[Proposal, ...] | None:
    """The decreases alone, where the increases have to wait for them; None where all can go in one patch.

    Until 1.36 the scheduler counts the maximum of desired, allocated and actual for each container instead of for the
    pod: one that shrinks and one that grows would together hold more of the node than the pod ever has.
    An unknown version counts as such a one.
    """
    if (server_minor is not None and server_minor > _COUNTS_TWICE) or not any(_mixed(proposals, r) for r in RESOURCES):
        return None
    first = tuple(_decreases(proposal) for proposal in proposals)
    resources = {p.container.name: p.proposed for p in first}
    return first if qos_class(pod, resources) is pod.qos_class else None


def _mixed(proposals: tuple[Proposal, ...], resource: Resource) -> bool:
    """Whether one container's request of a resource falls while another's rises."""
    moves = [
        (p.proposed.requests.get(resource) or 0) - (p.container.spec.requests.get(resource) or 0) for p in proposals
    ]
    return min(moves) < 0 < max(moves)


def _decreases(proposal: Proposal) -> Proposal:
    """What of a proposal goes down. Request and limit of a resource stay together."""
    spec, proposed = proposal.container.spec, proposal.proposed
    trail = list(proposal.trail)
    for resource in RESOURCES:
        was, new = _pair(spec, resource), _pair(proposed, resource)
        if new > was:  # the request decides, and the limit where the request stays
            proposed = Resources(
                proposed.requests.with_amount(resource, spec.requests.get(resource)),
                proposed.limits.with_amount(resource, spec.limits.get(resource)),
            )
            because = "asked for once the decreases in the pod are in force"
            trail.append(Step(resource, "decreaseFirst", new[0], was[0], because, cap=True))
    return Proposal(proposal.container, proposed, tuple(trail))


def _pair(resources: Resources, resource: Resource) -> tuple[int, int]:
    return resources.requests.get(resource) or 0, resources.limits.get(resource) or 0
