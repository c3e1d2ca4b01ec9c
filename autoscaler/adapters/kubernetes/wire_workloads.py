"""JSON of the controllers of pods to the core's values. Pure.

Source: apps/v1, and what their controllers do with it (kube-controller-manager, and `kubectl rollout status`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from sys import intern
from types import MappingProxyType

import msgspec

from autoscaler.adapters.kubernetes import schema
from autoscaler.adapters.kubernetes.decoded import Decoded, Owned, read
from autoscaler.adapters.kubernetes.scaled import last_scaled
from autoscaler.adapters.kubernetes.wire_parts import SHARED, amounts, amounts_among, controller, labels
from autoscaler.core.model import ResourceList, Resources, Workload, WorkloadRef

STATEFULSET, DEPLOYMENT, REPLICASET, JOB = "StatefulSet", "Deployment", "ReplicaSet", "Job"

_objects = msgspec.json.Decoder(schema.Object)
_workloads = msgspec.json.Decoder(schema.Workload)


@dataclass(frozen=True, slots=True)
class Controller:
    """What controls pods. `above`: its own controller, "Kind/name". `workload` None: it makes no pods that move."""

    above: str | None = None
    workload: Workload | None = None


def decode_job(raw: msgspec.Raw | bytes) -> Decoded[Owned, Controller]:
    """A Job, of which the metadata is enough."""
    return read(JOB, raw, _objects, lambda wire: Controller(controller(wire.metadata)))


def decode_replica_set(raw: msgspec.Raw | bytes) -> Decoded[Owned, Controller]:
    """A ReplicaSet. One that wants no pods, as a Deployment keeps many, is a link to its Deployment and no more."""
    return read(REPLICASET, raw, _workloads, _replica_set)


def decode_deployment(raw: msgspec.Raw | bytes) -> Decoded[Owned, Controller]:
    """A Deployment."""
    return read(DEPLOYMENT, raw, _workloads, partial(_controller, DEPLOYMENT, _is_rolled_out))


def decode_stateful_set(raw: msgspec.Raw | bytes) -> Decoded[Owned, Controller]:
    """A StatefulSet."""
    return read(STATEFULSET, raw, _workloads, partial(_controller, STATEFULSET, _is_up_to_date))


def _replica_set(wire: schema.Workload) -> Controller:
    if wire.spec.replicas == 0:
        return Controller(controller(wire.metadata))
    return _controller(REPLICASET, lambda _: True, wire)  # it never replaces a pod because its template has changed


def _controller(kind: str, is_rolled_out: Callable[[schema.Workload], bool], wire: schema.Workload) -> Controller:
    meta, template, status = wire.metadata, wire.spec.template, wire.status
    above = controller(meta)
    workload = Workload(
        ref=WorkloadRef(intern(meta.namespace), intern(f"{kind}/{meta.name}")),
        uid=meta.uid,
        resource_version=meta.resource_version,
        replicas=_replicas(wire),
        labels=labels(template.metadata.labels),
        template=_template(template.spec),
        # one that is being deleted, and kept by a finalizer, makes no pods any more
        settled=meta.deletion_timestamp is None
        and status.observed_generation >= meta.generation
        and is_rolled_out(wire),
        # a StatefulSet is its pods' workload, whoever made it
        owned=kind == REPLICASET and above is not None,
        revision=status.update_revision,
        scaled=last_scaled(meta.managed_fields or ()),
    )
    return Controller(above, workload)


def _replicas(wire: schema.Workload) -> int:
    return 1 if wire.spec.replicas is None else wire.spec.replicas


def _is_rolled_out(wire: schema.Workload) -> bool:
    """Whether all pods of a Deployment, and only those, are of its newest template, and the next one will be too."""
    updated = wire.status.updated_replicas
    return not wire.spec.paused and updated == _replicas(wire) == wire.status.replicas


def _is_up_to_date(wire: schema.Workload) -> bool:
    """Whether the next pod of a StatefulSet, whichever it is, gets the newest template, and none is being replaced.

    Below a partition, pods are made of `currentRevision`. With OnDelete nothing is ever replaced, and each next pod is
    of `updateRevision`: a pod that is not tells so by its label.
    """
    strategy, status = wire.spec.update_strategy, wire.status
    if status.current_revision == status.update_revision or strategy.type == "OnDelete":
        return True
    partition = strategy.rolling_update.partition if strategy.rolling_update is not None else None
    return not partition and status.updated_replicas == _replicas(wire) == status.replicas


def _template(spec: schema.PodSpec) -> Mapping[str, Resources]:
    every = (*(spec.init_containers or ()), *(spec.containers or ()))
    return _shared(tuple((intern(one.name), _created(one.resources)) for one in every))


def _created(wire: schema.WantedResources | None) -> Resources:
    """The size of a new pod: where a template has a limit and no request, the pod's request is the limit."""
    if wire is None:
        return Resources()
    asked, limits = amounts_among(wire.requests), amounts(wire.limits)
    cpu = limits.cpu if asked.cpu is None else asked.cpu
    memory = limits.memory if asked.memory is None else asked.memory
    return Resources(ResourceList(cpu, memory), limits)


@lru_cache(maxsize=SHARED)
def _shared(sizes: tuple[tuple[str, Resources], ...]) -> Mapping[str, Resources]:
    return MappingProxyType(dict(sizes))
