"""What the API server and a kubelet answer to a resize: one model for prediction, simulator and the test rig's agent.

Source: pkg/kubelet/allocation and plugin/pkg/admission/podresize of Kubernetes 1.36 and 1.37, and answers recorded from
a real kubelet 1.37.2. Amounts are millicores and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from autoscaler.core.model import (
    RESOURCES,
    Container,
    ContainerKind,
    Node,
    Pod,
    QoSClass,
    Resource,
    ResourceList,
    Resources,
)
from autoscaler.core.plan import PredictedOutcome, Prediction
from autoscaler.core.units import Bytes, Millicores

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})
_MANAGER = {Resource.CPU: "CPU Manager", Resource.MEMORY: "Memory Manager"}
_STATIC_MANAGER = 'Resize is infeasible for Guaranteed Pods alongside {} policy "static"'


class Verdict(StrEnum):
    """The kubelet's decision about a new spec."""

    ACCEPTED = "Accepted"
    DEFERRED = "Deferred"
    INFEASIBLE = "Infeasible"


@dataclass(frozen=True, slots=True)
class Answer:
    """A verdict, the kubelet's words for it, and the first resource that lacks, with how much of it is missing."""

    verdict: Verdict
    message: str = ""
    resource: Resource | None = None
    missing: int = 0


def footprint(pod: Pod, requests_of: Callable[[Container], ResourceList]) -> ResourceList:
    """What a pod takes of its node, by one of its containers' amounts (see `desired`, `allocated`, `actual`).

    The larger of what runs together (containers and sidecars) and what the start of any init container needs, plus
    `overhead`; a pod-level request replaces the sum (k8s.io/component-helpers/resource, PodRequests).
    """
    cpu = memory = starting_cpu = starting_memory = sidecar_cpu = sidecar_memory = 0
    for container in pod.containers:
        requests = requests_of(container)
        own_cpu, own_memory = requests.cpu or 0, requests.memory or 0
        if container.kind is ContainerKind.INIT:
            starting_cpu = max(starting_cpu, own_cpu + sidecar_cpu)
            starting_memory = max(starting_memory, own_memory + sidecar_memory)
            continue
        cpu, memory = cpu + own_cpu, memory + own_memory
        if container.kind is ContainerKind.SIDECAR:
            sidecar_cpu, sidecar_memory = sidecar_cpu + own_cpu, sidecar_memory + own_memory
    whole = pod.pod_level.requests if pod.pod_level is not None else ResourceList()
    cpu = max(cpu, starting_cpu) if whole.cpu is None else whole.cpu
    memory = max(memory, starting_memory) if whole.memory is None else whole.memory
    return ResourceList(Millicores(cpu + (pod.overhead.cpu or 0)), Bytes(memory + (pod.overhead.memory or 0)))


def desired(container: Container) -> ResourceList:
    """Requests in the spec."""
    return container.spec.requests


def allocated(container: Container) -> ResourceList:
    """Requests that the node has set aside; the spec's where the kubelet does not say."""
    return container.spec.requests if container.allocated is None else container.allocated


def actual(container: Container) -> ResourceList:
    """Requests in force in the cgroup; the allocated ones where the kubelet does not say."""
    return allocated(container) if container.actual is None else container.actual.requests


def reserved(pod: Pod) -> ResourceList:
    """What the scheduler keeps for a pod: the largest of desired, allocated and actual."""
    sums = [footprint(pod, amounts) for amounts in (desired, allocated, actual)]
    return _with_overhead_again(pod, max(one.cpu or 0 for one in sums), max(one.memory or 0 for one in sums))


def counted(pod: Pod) -> ResourceList:
    """What a pod takes of its node in its kubelet's eyes when another one asks for room: what is allocated, and CPU
    that is still in force. Its wishes and its usage play no part."""
    granted, in_force = footprint(pod, allocated), footprint(pod, actual)
    return _with_overhead_again(pod, max(granted.cpu or 0, in_force.cpu or 0), granted.memory or 0)


def _with_overhead_again(pod: Pod, cpu: int, memory: int) -> ResourceList:
    """Sums of the whole pod, where its kubelet reports them, hold the overhead; a scheduler and a kubelet that read
    them add it once more (k8s.io/component-helpers/resource, PodRequests with UseStatusResources; seen on 1.37.2)."""
    again = pod.overhead if pod.sums_reported else ResourceList()
    return ResourceList(Millicores(cpu + (again.cpu or 0)), Bytes(memory + (again.memory or 0)))


def proposed_footprint(pod: Pod, proposed: Mapping[str, Resources]) -> ResourceList:
    """The footprint that new resources for the named containers would give a pod."""
    return footprint(pod, lambda container: proposed.get(container.name, container.spec).requests)


def grows(pod: Pod, proposed: Mapping[str, Resources]) -> bool:
    """Whether these resources, and the pod's spec for the other containers, ask for more than is allocated."""
    return any(
        (proposed.get(c.name, c.spec).requests.get(resource) or 0) > (allocated(c).get(resource) or 0)
        for c in pod.containers
        for resource in RESOURCES
    )


def holds_room(pod: Pod) -> bool:
    """Whether a pod takes room on its node at all: it is bound and has not finished."""
    return pod.node is not None and pod.phase not in FINISHED_PHASES


def allocated_on(pods: Iterable[Pod]) -> ResourceList:
    """Σ of what the pods of one node take of it, as its kubelet counts it."""
    cpu = memory = 0
    for pod in pods:
        if holds_room(pod):
            taken = counted(pod)
            cpu, memory = cpu + (taken.cpu or 0), memory + (taken.memory or 0)
    return ResourceList(Millicores(cpu), Bytes(memory))


def refused_by_api_server(pod: Pod, node: Node) -> str | None:
    """The 403 with cause NodeCapacity that a spec beyond the node's allocatable gets (1.36 and newer), or None."""
    return _beyond(footprint(pod, desired), node)


def _beyond(wanted: ResourceList, node: Node) -> str | None:
    over = [
        f"{resource}, requested: {wanted.get(resource)}, allocatable: {node.allocatable.get(resource)}"
        for resource in RESOURCES
        if _exceeds(wanted.get(resource), node.allocatable.get(resource))
    ]
    return "node didn't have enough allocatable resources: " + "; ".join(over) if over else None


def _exceeds(wanted: int | None, available: int | None) -> bool:
    return available is not None and (wanted or 0) > available


def admit(pod: Pod, node: Node, others: ResourceList, static: frozenset[Resource] = frozenset()) -> Answer:
    """The kubelet's decision about the pod's spec. `others`: Σ allocated of the other pods on the node.

    All containers are accepted together or not at all; only the first lacking resource is named. `static`: resources
    whose manager has the policy static, which no field of the node shows.
    """
    if (refusal := refused_by_static_manager(pod, {}, static)) is not None:
        return Answer(Verdict.INFEASIBLE, refusal)
    return _fit(footprint(pod, desired), node, others)


def _fit(wanted: ResourceList, node: Node, others: ResourceList) -> Answer:
    for resource in RESOURCES:
        asked, capacity = wanted.get(resource) or 0, node.allocatable.get(resource)
        used = others.get(resource) or 0
        if capacity is None or not asked or asked + used <= capacity:
            continue  # nothing fits however much is taken
        message = (
            f"Node didn't have enough resource: {resource}, requested: {asked}, used: {used}, capacity: {capacity}"
        )
        return Answer(Verdict.DEFERRED, message, resource, asked + used - capacity)
    return Answer(Verdict.ACCEPTED)


def memory_decrease_error(pod: Pod, usage: Mapping[str, Bytes]) -> str | None:
    """Why the kubelet will not lower memory limits now (condition reason Error), or None.

    `usage`: memory of each container, page cache included, which is what the kubelet compares (1.34 and newer). Those
    that the resize restarts are stopped before it looks.
    """
    stopped = restarted_by(pod, {})
    total = sum(used for name, used in usage.items() if name not in stopped)
    refusals: list[str] = []
    limits = [
        (c.spec.limits.memory, c.in_force.limits.memory) for c in pod.containers if c.kind is not ContainerKind.INIT
    ]
    if limits and all(new is not None for new, _ in limits):
        whole = sum(new or 0 for new, _ in limits)
        shrinks = any(old is None for _, old in limits) or whole < sum(old or 0 for _, old in limits)
        if shrinks and total >= whole:
            refusals.append(f"attempting to set pod memory limit ({whole}) below current usage ({total})")
    for container in pod.containers:
        if container.name in stopped:
            continue
        new, old = container.spec.limits.memory, container.in_force.limits.memory
        shrinks = new is not None and (old is None or new < old)
        if new is not None and shrinks and usage.get(container.name, 0) >= new:
            refusals.append(
                f'attempting to set container "{container.name}" memory limit ({new}) below current usage ({total})'
            )
    if not refusals:
        return None
    listed = refusals[0] if len(refusals) == 1 else f"[{', '.join(refusals)}]"
    return f"cannot decrease memory limits: {listed}"


def restarts(before: Pod, after: Pod) -> tuple[str, ...]:
    """Names of the containers that a resize restarts by their resizePolicy."""
    return restarted_by(before, {container.name: container.spec for container in after.containers})


def restarted_by(pod: Pod, specs: Mapping[str, Resources]) -> tuple[str, ...]:
    """Names of the containers that these resources, and the pod's spec for the others, restart by resizePolicy."""
    return tuple(
        c.name
        for c in pod.containers
        if any(_amounts(c.in_force, one) != _amounts(specs.get(c.name, c.spec), one) for one in c.restart_on)
    )


def _amounts(resources: Resources, resource: Resource) -> tuple[int | None, int | None]:
    return resources.requests.get(resource), resources.limits.get(resource)


def retry_order(pending: Iterable[tuple[Pod, datetime]]) -> list[Pod]:
    """Deferred resizes in the order in which a kubelet tries them again; each comes with since when it is pending.

    Those that raise nothing, then higher priority, then Guaranteed before others, then the longest pending, whatever
    has become of the ask meanwhile.
    """

    def key(item: tuple[Pod, datetime]) -> tuple[bool, int, bool, datetime]:
        pod, since = item
        wanted, has = footprint(pod, desired), footprint(pod, allocated)
        raises = any((wanted.get(r) or 0) > (has.get(r) or 0) for r in RESOURCES)
        return (raises, -pod.priority, pod.qos_class is not QoSClass.GUARANTEED, since)

    return [pod for pod, _ in sorted(pending, key=key)]


def resized(pod: Pod, proposed: Mapping[str, Resources]) -> Pod:
    """The pod as its spec would be with new resources for the named containers."""
    return replace(
        pod,
        containers=tuple(
            replace(c, spec=proposed[c.name]) if c.name in proposed and c.spec != proposed[c.name] else c
            for c in pod.containers
        ),
    )


def refused_by_static_manager(pod: Pod, proposed: Mapping[str, Resources], static: frozenset[Resource]) -> str | None:
    """The kubelet's words if a static manager of its node would never let the pod have these resources, or None."""
    if pod.qos_class is not QoSClass.GUARANTEED:
        return None
    for resource in RESOURCES:
        if resource in static and any(
            proposed.get(c.name, c.spec).requests.get(resource) != allocated(c).get(resource) for c in pod.containers
        ):
            return _STATIC_MANAGER.format(_MANAGER[resource])
    return None


def predict(
    pod: Pod,
    proposed: Mapping[str, Resources],
    node: Node | None,
    others: ResourceList,
    static: frozenset[Resource] = frozenset(),
) -> Prediction:
    """What will come of asking for new resources. `others`: Σ allocated of the other pods on the node. `static`: as
    for `admit`."""
    if node is None:
        return Prediction(PredictedOutcome.UNKNOWN, f"node {pod.node} is not known")
    if node.os != "linux":
        return Prediction(
            PredictedOutcome.INFEASIBLE, f'pod resize is only supported on linux nodes, this is "{node.os}"'
        )
    wanted = proposed_footprint(pod, proposed)
    if (refusal := _beyond(wanted, node)) is not None:
        return Prediction(PredictedOutcome.INFEASIBLE, refusal)
    if (refusal := refused_by_static_manager(pod, proposed, static)) is not None:
        return Prediction(PredictedOutcome.INFEASIBLE, refusal)
    answer = _fit(wanted, node, others)
    if answer.verdict is Verdict.DEFERRED and answer.resource is not None:
        short = answer.resource.quantity(answer.missing)
        return Prediction(PredictedOutcome.DEFERRED, f"short of {short} {answer.resource}. {answer.message}")
    if restarting := restarted_by(pod, proposed):
        return Prediction(PredictedOutcome.RESTART, f"resizePolicy restarts {', '.join(restarting)}")
    return Prediction(PredictedOutcome.IN_PLACE)
