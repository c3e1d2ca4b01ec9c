"""Where the size of a live pod differs from what its owner's template would give the next pod.

A resize in place changes the pod alone (KEP-1287): a pod that is made anew begins with the size in the template.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from autoscaler.core.model import RESOURCES, Container, Pod, Resource, ResourceList, Resources, Workload
from autoscaler.core.resize import CPU_TOLERANCE_M


class Side(StrEnum):
    """One of the two amounts that a container has of a resource."""

    REQUEST = "request"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Drift:
    """One amount, in the resource's base unit: millicores or bytes. `live`: None where the pod has none."""

    container: str
    resource: Resource
    side: Side
    template: int
    live: int | None


def drifts(pod: Pod, owner: Workload | None) -> tuple[Drift, ...]:
    """Every amount in force that is not the template's: containers as in the pod, CPU first, requests first.

    None where the owner is not known, and none of a container that its template has not, such as an injected one. Where
    the template leaves an amount open it is admission that decides what the next pod gets, so nothing is said.
    """
    if owner is None:
        return ()
    return tuple(
        drift
        for container in pod.containers
        if (template := owner.template.get(container.name)) is not None
        for drift in _of(container, template)
    )


def _of(container: Container, template: Resources) -> Iterator[Drift]:
    spec, in_force = container.spec, container.in_force
    for resource in RESOURCES:
        for side, created, asked, has in (
            (Side.REQUEST, template.requests, spec.requests, in_force.requests),
            (Side.LIMIT, template.limits, spec.limits, in_force.limits),
        ):
            wanted = created.get(resource)
            if wanted is not None and _differs(resource, wanted, asked, has):
                yield Drift(container.name, resource, side, wanted, has.get(resource))


def _differs(resource: Resource, wanted: int, asked: ResourceList, has: ResourceList) -> bool:
    spec, live = asked.get(resource), has.get(resource)
    if live is None:
        return spec is None  # else it is there, and not reported
    # what was asked for as the template has it may be read back rounded
    rounded = resource is Resource.CPU and spec == wanted and abs(live - wanted) <= CPU_TOLERANCE_M
    return live != wanted and not rounded
