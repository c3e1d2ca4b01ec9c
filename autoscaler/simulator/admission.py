"""What the API server makes of a patch to `pods/resize`: a new pod, or a refusal in its words. Pure.

Source: validation and admission of Kubernetes 1.36 and 1.37 as observed on a running API server. LimitRange,
ResourceQuota and site policies are not modelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from autoscaler.core.actions import ContainerResize
from autoscaler.core.kubelet import refused_by_api_server, resized
from autoscaler.core.model import Ask, ContainerKind, Node, Pod, Resource, ResourceList, Resources
from autoscaler.core.pairing import qos_class


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server's message, and its machine-readable cause where it gives one."""

    message: str
    cause: str = ""


def submit(
    pod: Pod, changes: Sequence[ContainerResize], node: Node | None, manager: str, now: datetime
) -> Pod | Refusal:
    """The pod as it is stored, with the ask of `manager` in it; the same pod when nothing changes."""
    specs = {container.name: container for container in pod.containers}
    if any(change.name not in specs for change in changes):
        return Refusal("spec.containers: Forbidden: containers may not be added or removed on resize")
    wanted = {change.name: merged(specs[change.name].spec, change.change) for change in changes}
    after = resized(pod, wanted)
    if after == pod:
        return pod
    refusal = _invalid(pod, after, wanted) or _not_admitted(after, node)
    if refusal is not None:
        return refusal
    asks = (*(ask for ask in pod.asks if ask.manager != manager), Ask(manager, now.replace(microsecond=0)))
    return replace(after, generation=pod.generation + 1, asks=asks)


def merged(spec: Resources, change: Resources) -> Resources:
    """A strategic merge: amounts that the change does not name stay as they are."""
    return Resources(_merged(spec.requests, change.requests), _merged(spec.limits, change.limits))


def _merged(old: ResourceList, new: ResourceList) -> ResourceList:
    return ResourceList(
        old.cpu if new.cpu is None else new.cpu,
        old.memory if new.memory is None else new.memory,
    )


def _invalid(pod: Pod, after: Pod, wanted: dict[str, Resources]) -> Refusal | None:
    if pod.static:
        return Refusal("spec: Forbidden: static pods cannot be resized")
    if errors := list(_above_limits(after)):
        return Refusal(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
    if qos_class(pod, wanted) is not pod.qos_class:
        return Refusal(f'spec: Invalid value: "{pod.qos_class}": Pod QOS Class may not change as a result of resizing')
    return None


def _above_limits(pod: Pod) -> Iterator[str]:
    """An error for each request that is above its limit. A server gives them in any order."""
    for field, containers in (
        ("initContainers", [one for one in pod.containers if one.kind is not ContainerKind.CONTAINER]),
        ("containers", [one for one in pod.containers if one.kind is ContainerKind.CONTAINER]),
    ):
        for index, container in enumerate(containers):
            for resource in Resource:
                request, limit = container.spec.requests.get(resource), container.spec.limits.get(resource)
                if request is not None and limit is not None and request > limit:
                    yield (
                        f'spec.{field}[{index}].resources.requests: Invalid value: "{resource.quantity(request)}": must'
                        f" be less than or equal to {resource} limit of {resource.quantity(limit)}"
                    )


def _not_admitted(after: Pod, node: Node | None) -> Refusal | None:
    if node is None:  # an unscheduled pod passes without a capacity check
        return None
    if node.os != "linux":
        return Refusal(
            f'pod resize is only supported on linux nodes, node "{node.name}" is "{node.os}"', "UnsupportedPlatform"
        )
    message = refused_by_api_server(after, node)
    return None if message is None else Refusal(message, "NodeCapacity")
