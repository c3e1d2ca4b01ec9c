"""What a pod asks of a node: `spec` of its JSON to `Scheduling`. Pure.

Only what is required is read, as the scheduler's plug-ins NodeAffinity, InterPodAffinity, TaintToleration,
PodTopologySpread, NodePorts, NodeResourcesFit and VolumeBinding do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from sys import intern
from types import MappingProxyType

import msgspec

from autoscaler.adapters.kubernetes import schema
from autoscaler.adapters.kubernetes.wire_parts import SHARED, node_terms, others, selector
from autoscaler.core.scheduling import HostPort, PodTerm, Scheduling, Spread, Toleration

_affinities = msgspec.json.Decoder(schema.Affinity | None)
_tolerations = msgspec.json.Decoder(list[schema.Toleration] | None)
_spreads = msgspec.json.Decoder(list[schema.SpreadConstraint] | None)
_NULL = b"null"
_ALWAYS = "Always"
_POD_LEVEL = "hugepages-"  # besides CPU and memory, the only resources that a pod can ask for as a whole


def scheduling(pod: str, spec: schema.PodSpec) -> Scheduling:
    """What a pod of this name asks of a node. Raises one of `decoded.UNREADABLE`."""
    alike = _alike(
        spec.scheduler_name,
        tuple(sorted(spec.node_selector.items())) if spec.node_selector else (),
        bytes(spec.affinity),
        bytes(spec.tolerations),
        bytes(spec.topology_spread_constraints),
    )
    ports, claims = tuple(_host_ports(spec)), tuple(_claims(pod, spec))
    extended, devices = _extended(spec), bool(spec.resource_claims)
    if not (ports or claims or extended or devices):
        return alike
    return _with(alike, ports, tuple(sorted(extended.items())), claims, devices)


def _host_ports(spec: schema.PodSpec) -> Iterator[HostPort]:
    inits = (one for one in spec.init_containers or () if one.restart_policy == _ALWAYS)
    for container in (*inits, *(spec.containers or ())):
        for port in container.ports or ():
            if port.host_port:
                yield _host_port(port.host_port, port.protocol, port.host_ip)


def _claims(pod: str, spec: schema.PodSpec) -> Iterator[str]:
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield f"{pod}-{volume.name}"


def _extended(spec: schema.PodSpec) -> Mapping[str, int]:
    """The sum of containers and sidecars, or what one init container needs if that is more, and the overhead.

    Source: AggregateContainerRequests and PodRequests of k8s.io/component-helpers/resource.
    """
    mains = [asked for one in spec.containers or () if (asked := _requests(one))]
    inits = [(one.restart_policy == _ALWAYS, asked) for one in spec.init_containers or () if (asked := _requests(one))]
    whole, overhead = others(spec.resources.requests if spec.resources is not None else None), others(spec.overhead)
    if not (mains or inits or whole or overhead):
        return {}
    sidecars, total = Counter[str](), Counter[str]()
    for is_sidecar, asked in inits:
        if is_sidecar:
            sidecars.update(asked)
        total |= sidecars if is_sidecar else sidecars + Counter(asked)
    total |= sum(map(Counter, mains), sidecars)
    total.update({name: amount - total[name] for name, amount in whole.items() if name.startswith(_POD_LEVEL)})
    total.update(overhead)
    return {name: amount for name, amount in total.items() if amount}


def _requests(container: schema.Container) -> Mapping[str, int]:
    return others(container.resources.requests) if container.resources is not None else {}


@lru_cache(maxsize=SHARED)
def _alike(
    scheduler: str, node_selector: tuple[tuple[str, str], ...], affinity: bytes, tolerations: bytes, spread: bytes
) -> Scheduling:
    """What all pods of a template have in common."""
    found = _affinities.decode(affinity or _NULL) or schema.Affinity()
    node = found.node_affinity
    return Scheduling(
        intern(scheduler) or "default-scheduler",
        node_selector,
        node_terms(node.required) if node is not None else None,
        _pod_terms(found.pod_affinity),
        _pod_terms(found.pod_anti_affinity),
        _all_tolerations(tolerations),
        tuple(_spreads_that_bind(spread)),
    )


@lru_cache(maxsize=SHARED)
def _with(
    alike: Scheduling,
    ports: tuple[HostPort, ...],
    extended: tuple[tuple[str, int], ...],
    claims: tuple[str, ...],
    devices: bool,
) -> Scheduling:
    amounts = MappingProxyType(dict(extended))
    return replace(alike, host_ports=ports, extended=amounts, claims=claims, devices=devices)


@lru_cache(maxsize=SHARED)
def _all_tolerations(raw: bytes) -> tuple[Toleration, ...]:
    return tuple(map(_toleration, _tolerations.decode(raw or _NULL) or ()))


def _toleration(wire: schema.Toleration) -> Toleration:
    return Toleration(intern(wire.key), intern(wire.operator) or "Equal", intern(wire.value), intern(wire.effect))


@lru_cache(maxsize=SHARED)
def _host_port(port: int, protocol: str, ip: str) -> HostPort:
    return HostPort(port, protocol or "TCP", ip or "0.0.0.0")  # noqa: S104 (see HostPort)


def _pod_terms(wire: schema.PodAffinity | None) -> tuple[PodTerm, ...]:
    return tuple(
        PodTerm(
            intern(one.topology_key),
            selector(one.label_selector),
            frozenset(map(intern, one.namespaces or ())),
            selector(one.namespace_selector),
        )
        for one in (wire.required if wire is not None else None) or ()
    )


def _spreads_that_bind(raw: bytes) -> Iterator[Spread]:
    for wire in _spreads.decode(raw or _NULL) or ():
        # a word that is not known is taken for one that binds
        if wire.when_unsatisfiable != "ScheduleAnyway":
            yield Spread(
                wire.max_skew,
                intern(wire.topology_key),
                selector(wire.label_selector),
                1 if wire.min_domains is None else wire.min_domains,
                honors_affinity=wire.node_affinity_policy != "Ignore",
                honors_taints=wire.node_taints_policy == "Honor",
                match_label_keys=tuple(map(intern, wire.match_label_keys or ())),
            )
