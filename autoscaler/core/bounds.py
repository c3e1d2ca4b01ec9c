"""From a recommender's number to the request that may be asked for. Each cap that bites names itself as a step."""

from __future__ import annotations

import math
from typing import cast

from autoscaler.core.model import Resource
from autoscaler.core.policy import ContainerPolicy, Stability
from autoscaler.core.recommender import Step

ROUND_TO = {Resource.CPU: 10, Resource.MEMORY: 1 << 20}
"""Requests are rounded up to 10m, below which the systemd cgroup driver cannot tell them apart, and to 1 MiB."""

HIGHEST = {Resource.CPU: 10_000_000, Resource.MEMORY: 1 << 50}
"""Beyond 10,000 cores and 1 PiB a number is not an amount of a container."""

SAMPLE_PRECISION = 2.0**-23
"""Samples are 32-bit floats, in which 0.1 core is 0.1000000015: that must not cost a rounding step."""

MEMORY_FLOOR = 1.1
"""A memory decrease stays above this times the greatest recent working set: at or below usage the kubelet refuses it,
and between its check and the write the container can be OOM-killed (kubernetes#135670)."""


def amount_of(resource: Resource, value: float, *, whole: bool = True) -> int | None:
    """A recommender's number (cores, bytes) in base units, rounded up; None if it is not an amount at all.

    Not `whole`: as finely as can be, which is bytes, and any part of a millicore.
    """
    scale = 1000 if resource is Resource.CPU else 1
    if not 0 < value <= HIGHEST[resource] / scale:  # NaN compares false
        return None
    exact = float(value) * scale
    if not whole:
        return math.ceil(exact) if resource is Resource.MEMORY else cast(int, exact)  # only compared and stored
    amount = math.ceil(exact)
    rounded = amount - amount % ROUND_TO[resource]
    return rounded if rounded and exact - rounded <= exact * SAMPLE_PRECISION else amount


def memory_floor(greatest_recent: float | None) -> int:
    """Bytes below which memory is not lowered, from the greatest working set lately (None: not known, so no floor)."""
    floor = math.ceil((greatest_recent or 0) * MEMORY_FLOOR)
    return floor + (-floor) % ROUND_TO[Resource.MEMORY]


def bound(
    resource: Resource,
    wanted: int,
    current: int,
    policy: ContainerPolicy,
    stability: Stability,
    memory_floor: int,
    *,
    whole: bool = True,
) -> tuple[int, list[Step]]:
    """The request to ask for instead of `current`. Amounts in base units.

    Order: the step limit, rounding, then min and max, which are never left, and last the memory floor, which protects
    from an OOM kill even below `maxAllowed` (see `memory_floor`). Not `whole`: without rounding.
    """
    steps: list[Step] = []
    value = wanted
    step = stability.max_step
    if value > current and value > (highest := _part(current, 1 + step.increase)):
        steps.append(Step(resource, "maxStep", value, highest, f"+{step.increase:.0%} at most", cap=True))
        value = highest
    elif value < current and value < (lowest := _part(current, 1 - step.decrease)):
        steps.append(Step(resource, "maxStep", value, lowest, f"-{step.decrease:.0%} at most", cap=True))
        value = lowest
    unit = ROUND_TO[resource]
    rounded = value + -value % unit if whole else value
    if value <= current < rounded:
        rounded = current  # rounding must not make a size grow that need not
    if rounded != value:
        steps.append(Step(resource, "round", value, rounded, f"up to {resource.quantity(unit)}"))
        value = rounded
    least, most = policy.min_allowed.get(resource), policy.max_allowed.get(resource)
    if least is not None and value < least:
        steps.append(Step(resource, "minAllowed", value, least, "lower bound of the policy", cap=True))
        value = least
    if most is not None and value > most:
        steps.append(Step(resource, "maxAllowed", value, most, "upper bound of the policy", cap=True))
        value = most
    floor = min(current, memory_floor)
    if resource is Resource.MEMORY and value < floor:
        because = f"{MEMORY_FLOOR} x the greatest recent working set"
        steps.append(Step(resource, "memoryFloor", value, floor, because, cap=True))
        value = floor
    return value, steps


def _part(current: int, factor: float) -> int:
    """`current` times `factor`, rounded up, but not for 100 * 1.1 being 110.00000000000001."""
    return math.ceil(current * factor * (1 - 1e-12))


def outside(resource: Resource, amount: int, policy: ContainerPolicy) -> bool:
    """Whether an amount breaks the policy's bounds, so that even a small change is due."""
    least, most = policy.min_allowed.get(resource), policy.max_allowed.get(resource)
    return (least is not None and amount < least) or (most is not None and amount > most)
