"""From a target to a legal pair of requests and limits. The QoS class and the presence of fields never change.

Works on a whole pod, since the class is a property of all its containers together. Source: KEP-1287 and
pkg/apis/core/v1/helper/qos; rounding of limits is up, so that a kept ratio never loses to the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoscaler.core.model import RESOURCES, Container, Pod, QoSClass, Resource, ResourceList, Resources
from autoscaler.core.policy import LimitMode
from autoscaler.core.recommender import Step
from autoscaler.core.units import MAX_AMOUNT


@dataclass(frozen=True, slots=True)
class Wish:
    """Requests wanted for one container, and how its limits may follow. An amount of None is left alone."""

    requests: ResourceList
    limits: LimitMode = LimitMode.KEEP
    max_limits: ResourceList = ResourceList()  # maxAllowed: limits do not grow beyond it
    memory_floor: int = 0  # bytes below which a memory limit is never lowered


@dataclass(frozen=True, slots=True)
class Blocked:
    """No legal pair reaches the wish; why, naming the container."""

    because: str


Paired = tuple[dict[str, Resources], dict[str, list[Step]]]


def pair(pod: Pod, wishes: Mapping[str, Wish]) -> Paired | Blocked:
    """New resources for the containers that have a wish, and the steps in which pairing changed a number.

    Guaranteed: both sides of every pair move together. Burstable: at least one pair of the pod stays unequal.
    BestEffort: blocked. A field that is absent stays absent.
    """
    if pod.qos_class is QoSClass.BEST_EFFORT:
        return Blocked("a BestEffort pod can never gain requests or limits")
    resources: dict[str, Resources] = {}
    steps: dict[str, list[Step]] = {}
    for container in pod.containers:
        wish = wishes.get(container.name)
        if wish is None:
            continue
        paired = _pair_container(container, wish, pod.qos_class)
        if isinstance(paired, Blocked):
            return paired
        resources[container.name], steps[container.name] = paired
    found = qos_class(pod, resources)
    if found is QoSClass.GUARANTEED and pod.qos_class is QoSClass.BURSTABLE:
        _leave_one_below(pod, wishes, resources, steps)
        found = qos_class(pod, resources)
    if found is not pod.qos_class:
        return Blocked(f"the pod would become {found} instead of {pod.qos_class}")
    return resources, steps


def _pair_container(container: Container, wish: Wish, qos: QoSClass) -> tuple[Resources, list[Step]] | Blocked:
    requests, limits = container.spec.requests, container.spec.limits
    steps: list[Step] = []
    for resource in RESOURCES:
        wanted, request, limit = wish.requests.get(resource), requests.get(resource), limits.get(resource)
        if wanted is None or not request:
            continue  # an absent field stays absent
        if wanted == request:
            continue
        if limit is None:
            requests = requests.with_amount(resource, wanted)
            continue
        if qos is QoSClass.GUARANTEED:
            if wish.limits is LimitMode.REQUESTS_ONLY:
                return Blocked(
                    f"container {container.name}: {resource} has request = limit (Guaranteed) and the policy says"
                    " limits: RequestsOnly"
                )
            requests, limits = requests.with_amount(resource, wanted), limits.with_amount(resource, wanted)
            continue
        new_request, new_limit = _follow(wanted, request, limit, wish, resource, steps)
        requests = requests.with_amount(resource, new_request)
        limits = limits.with_amount(resource, new_limit)
    return Resources(requests, limits), steps


def _follow(
    wanted: int, request: int, limit: int, wish: Wish, resource: Resource, steps: list[Step]
) -> tuple[int, int]:
    """Request and limit of a Burstable container's resource that has both."""
    if wish.limits is LimitMode.REQUESTS_ONLY:
        if wanted > limit:
            because = "limits: RequestsOnly; a request cannot exceed its limit"
            steps.append(Step(resource, "limit", wanted, limit, because, cap=True))
        return min(wanted, limit), limit
    new = wanted if wish.limits is LimitMode.EQUAL else -(-wanted * limit // request)
    if new > MAX_AMOUNT:
        steps.append(Step(resource, "limit", new, MAX_AMOUNT, "the largest amount there is", cap=True))
        new = MAX_AMOUNT
    highest = wish.max_limits.get(resource)
    # a limit that is above already is not lowered for it: that would pass by all that holds decreases back
    if highest is not None and new > (capped := max(highest, wanted, limit)):
        steps.append(Step(resource, "limit", new, capped, "maxAllowed; the ratio to the request is not kept", cap=True))
        new = capped
    lowest = min(limit, wish.memory_floor)
    if resource is Resource.MEMORY and new < lowest:
        steps.append(Step(resource, "limit", new, lowest, "memory floor: not below recent usage", cap=True))
        new = lowest
    return wanted, new


def _leave_one_below(
    pod: Pod, wishes: Mapping[str, Wish], resources: dict[str, Resources], steps: dict[str, list[Step]]
) -> None:
    """Where a cap or `Equal` would make a Burstable pod Guaranteed, put one wished request just below its limit."""
    for container in pod.containers:
        new = resources.get(container.name)
        if new is None:
            continue
        for resource in RESOURCES:
            request = new.requests.get(resource)
            if request is None or request <= 1 or wishes[container.name].requests.get(resource) is None:
                continue
            lowered = request - 1
            resources[container.name] = replace(new, requests=new.requests.with_amount(resource, lowered))
            steps[container.name].append(
                Step(resource, "qos", request, lowered, "a Burstable pod keeps one request below its limit", cap=True)
            )
            return


def qos_class(pod: Pod, resources: Mapping[str, Resources]) -> QoSClass:
    """The QoS class of the pod with new resources for some containers; pod-level resources decide where set."""
    if pod.pod_level is not None:
        every = [pod.pod_level]
    else:
        every = [resources.get(container.name, container.spec) for container in pod.containers]
    amounts = [(r.requests.get(resource) or 0, r.limits.get(resource) or 0) for r in every for resource in RESOURCES]
    if not any(request or limit for request, limit in amounts):
        return QoSClass.BEST_EFFORT
    if all(limit and request == limit for request, limit in amounts):
        return QoSClass.GUARANTEED
    return QoSClass.BURSTABLE
