"""Looks at an API server once, for `doctor`: reads, and asks for what it would answer. Changes nothing.

The user needs no permission beyond those that are looked at: versions, discovery and reviews of its own access are
open to everyone who has logged in.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from autoscaler.adapters.kubernetes import access, schema
from autoscaler.adapters.kubernetes.answers import differences, refusal
from autoscaler.adapters.kubernetes.cache import Cache
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.decoded import Decoded, name_of, unreadable
from autoscaler.adapters.kubernetes.errors import Unreachable
from autoscaler.adapters.kubernetes.watch import Kind, Timing, Watch
from autoscaler.adapters.kubernetes.wire import decode_minor, decode_pod, patch_body, pod_path
from autoscaler.core.actions import AskKind, ContainerResize, Outcome, OutcomeKind, Resize
from autoscaler.core.model import ContainerKind, Pod, PodRef, Problem
from autoscaler.diagnosis.cluster import NodeFacts, Server
from autoscaler.diagnosis.rights import Right

K = TypeVar("K")
T = TypeVar("T")

_STRATEGIC_MERGE = {"Content-Type": "application/strategic-merge-patch+json"}
_AT_ONCE = 8  # reviews
_MINOR = re.compile(r"v?1\.([0-9]{1,4})\b")
_nodes = msgspec.json.Decoder(schema.Node)
_versions = msgspec.json.Decoder(schema.Version)
_resources = msgspec.json.Decoder(schema.ApiResources)


class Pods(NamedTuple):
    """Every pod that can be read, and those that cannot."""

    pods: Mapping[PodRef, Pod]
    problems: tuple[Problem, ...]


class Probe:
    """`within_s`: how long one answer is waited for. What is asked raises `KubernetesError`, unless said otherwise."""

    def __init__(self, connection: Connection, within_s: float) -> None:
        self._connection = connection
        self._within_s = within_s

    async def server(self) -> Server:
        """Who answers, and whom it takes this for."""
        answer = await self._connection.request("GET", "/version", within_s=self._within_s)
        try:
            version = _versions.decode(answer.body).git_version if answer.status == 200 else ""
        except schema.UNREADABLE:
            raise Unreachable(
                f"{self._connection.server} is not an API server: /version is {answer.body[:40]!r}"
            ) from None
        if answer.status >= 500:
            raise Unreachable(f"{self._connection.server} answers HTTP {answer.status}; see its own state and logs")
        return Server(
            self._connection.server,
            version,
            decode_minor(answer.body) if answer.status == 200 else None,
            await self._serves_resize(),
            await access.whoami(self._connection, within_s=self._within_s),
        )

    async def _serves_resize(self) -> bool | None:
        answer = await self._connection.request("GET", "/api/v1", within_s=self._within_s)
        try:
            served = _resources.decode(answer.body).resources if answer.status == 200 else None
        except schema.UNREADABLE:
            served = None
        return None if served is None else any(one.name == "pods/resize" for one in served)

    async def may(self, rights: Iterable[Right], namespace: str) -> Mapping[Right, bool | None]:
        """Which of these are granted; None where there is no answer. Never raises. `namespace`: the controller's."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def ask(right: Right) -> bool | None:
            async with slots:
                return await access.may(self._connection, _attributes(right, namespace), within_s=self._within_s)

        every = list(rights)
        return dict(zip(every, await asyncio.gather(*map(ask, every)), strict=True))

    async def pods(self) -> Pods:
        """All pods of the cluster."""
        found = await self._list(Kind("/api/v1/pods", "pods", decode_pod))
        return Pods(found.items, tuple(found.problems.values()))

    async def nodes(self) -> list[NodeFacts]:
        """All nodes, those that cannot be read left out."""
        return list((await self._list(Kind("/api/v1/nodes", "nodes", _decode_node))).items.values())

    async def _list(self, kind: Kind[K, T]) -> Cache[K, T]:
        cache: Cache[K, T] = Cache(lambda _key, _old, new: new)
        await Watch(self._connection, kind, cache, Timing(page_s=self._within_s), time.monotonic).list_once()
        return cache

    async def try_resize(self, pod: Pod) -> Outcome:
        """What the server says to the size that the pod has, sent with dryRun=All: nothing is stored."""
        same = tuple(
            ContainerResize(container.name, container.kind, container.spec)
            for container in pod.containers
            if container.kind is not ContainerKind.INIT
        )
        action = Resize(pod.ref, pod.uid, pod.generation, same)
        answer = await self._connection.request(
            "PATCH",
            f"{pod_path(pod.ref)}/resize",
            query=[("fieldManager", AskKind.TARGET), ("dryRun", "All")],
            headers=_STRATEGIC_MERGE,
            body=patch_body(action, pod.resource_version),
            within_s=self._within_s,
        )
        if answer.status != 200:
            return refusal(answer.status, answer.body, answer.headers.get("Retry-After"))
        stored = decode_pod(answer.body).value
        if stored is None:
            raise Unreachable(f"{self._connection.server}: the answer to the resize of {pod.ref} is not a pod")
        foreign = differences(pod, action, stored)
        if foreign:
            return Outcome(OutcomeKind.ALTERED, f"admission changes the resize: {'; '.join(foreign)}")
        return Outcome(OutcomeKind.ACCEPTED)


def _attributes(right: Right, namespace: str) -> dict[str, str]:
    """`resourceAttributes` of a review. Empty texts mean all, as they do where they are absent."""
    return {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "name": right.name,
        "namespace": namespace if right.namespaced else "",
    }


def _decode_node(raw: msgspec.Raw | bytes) -> Decoded[str, NodeFacts]:
    try:
        wire = _nodes.decode(raw)
    except schema.UNREADABLE as error:
        name = name_of(raw)
        return Decoded(name.name, name.resource_version, None, unreadable(f"node {name.name}", error))
    info = wire.status.node_info or schema.NodeInfo()
    minor = _MINOR.match(info.kubelet_version)
    facts = NodeFacts(
        wire.metadata.name,
        info.kubelet_version,
        None if minor is None else int(minor[1]),
        info.operating_system or "linux",
        frozenset(wire.status.declared_features or ()),
    )
    return Decoded(facts.name, wire.metadata.resource_version, facts)
