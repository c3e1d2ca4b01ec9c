"""What the nodes of a snapshot have, what the pods on them hold, and which of them suit a pod: a column each. Pure.

A scheduler keeps for a pod the largest of what its spec asks for, what is allocated and what is in force, until it has
gone or finished; a spec that its kubelet has called infeasible does not count. Source: PodRequests in
k8s.io/component-helpers/resource, and kubernetes#140047 for servers before 1.37. Millicores and bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autoscaler.core import kubelet
from autoscaler.core.model import RESOURCES, ClusterSnapshot, Container, Node, Pod, Resource, ResourceList
from autoscaler.core.predicates import (
    Predicate,
    VolumeNeeds,
    admits,
    collide,
    matches_any,
    reaches,
    selects,
    tolerated,
    volume_needs,
)
from autoscaler.core.resize import PENDING
from autoscaler.core.scheduling import HostPort, Scheduling
from autoscaler.core.spreading import Mask, Neighbours, Placed
from autoscaler.core.units import Bytes, Millicores

Column = npt.NDArray[np.int64]
"""One amount a node."""

PODS = "pods"
_POD_MAXIMUM_SINCE = 37  # the minor version since which a scheduler takes the largest of sums, not of each container


class Need(NamedTuple):
    """What a pod takes of a node: CPU and memory, and each other resource by its name."""

    size: ResourceList
    extended: Mapping[str, int]

    def amounts(self) -> Mapping[str, int]:
        """All of it by name, the pod itself among it; a resource of which nothing is asked is never lacking."""
        own = {resource.value: self.size.get(resource) or 0 for resource in RESOURCES}
        return {name: amount for name, amount in {PODS: 1, **self.extended, **own}.items() if amount > 0}

    def at_most(self, free: Callable[[str], Column]) -> Mask:
        """Nodes on which nothing of it is lacking."""
        fits = [amount <= free(name) for name, amount in self.amounts().items()]
        found: Mask = np.logical_and.reduce(fits)
        return found


def larger(one: Need, other: Need) -> Need:
    """What is enough for either size."""
    return Need(_larger(one.size, other.size), one.extended)


class Occupancy:
    """The nodes by name, and the pods that are on them. Counted once for a snapshot."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.nodes: tuple[Node, ...] = tuple(snapshot.nodes[name] for name in sorted(snapshot.nodes))
        self.at: Mapping[str, int] = {node.name: number for number, node in enumerate(self.nodes)}
        self._storage = snapshot.storage
        self._by_sums = snapshot.server_minor is not None and snapshot.server_minor >= _POD_MAXIMUM_SINCE
        self._taken: defaultdict[str, Column] = defaultdict(self.column)
        self._disputed: defaultdict[str, Column] = defaultdict(self.column)
        self._allocatable: dict[str, Column] = {}
        self._suiting: dict[object, Mask] = {}
        self._ports: defaultdict[int, list[tuple[str, HostPort]]] = defaultdict(list)
        self._claiming: list[Placed] = []
        self._users: Mapping[tuple[str, str], list[Placed]] | None = None
        self._attached: Mapping[int, Set[tuple[str, str]]] | None = None
        self.neighbours = Neighbours(self.nodes, self._place(snapshot))

    def column(self) -> Column:
        """Nothing of something, on every node."""
        return np.zeros(len(self.nodes), np.int64)

    def mask(self, answer: bool) -> Mask:
        """The same answer for every node."""
        return np.full(len(self.nodes), answer, np.bool_)

    def allocatable(self, name: str) -> Column:
        """What each node has of a resource in all; what it does not say is nothing, as it is to the scheduler."""
        if (known := self._allocatable.get(name)) is None:
            known = self._allocatable[name] = np.fromiter(
                (_allocatable(node, name) for node in self.nodes), np.int64, len(self.nodes)
            )
        return known

    def free(self, name: str, *, without: Pod | None = None, doubt: bool = False) -> Column:
        """What is not taken of it. `without`: a pod that will have left its node. `doubt`: as much as a scheduler might
        see."""
        column = self.allocatable(name) - self._taken[name]
        if doubt and name in self._disputed:
            column += self._disputed[name]
        if (
            without is not None
            and kubelet.holds_room(without)
            and (number := self.at.get(without.node or "")) is not None
        ):
            column[number] += self.held(without).amounts().get(name, 0)
            if doubt:
                column[number] -= _disputed(without, self.held(without)).get(name, 0)
        return column

    def held(self, pod: Pod) -> Need:
        """What a scheduler keeps for a pod that has a node."""
        size = kubelet.reserved(pod) if self._by_sums else kubelet.footprint(pod, _largest)
        return Need(size, pod.scheduling.extended)

    def suits(self, scheduling: Scheduling, *, doubt: bool) -> Mask:
        """Nodes that are not cordoned and that taints, selector and node affinity leave over."""
        return (
            self.admitting(scheduling, doubt=doubt)
            & self.tolerating(scheduling, doubt=doubt)
            & self.selected(scheduling)
            & self.attracted(scheduling)
        )

    def admitting(self, scheduling: Scheduling, *, doubt: bool) -> Mask:
        """Nodes that are not cordoned, or whose cordon the pod does not mind."""
        tolerations = scheduling.tolerations
        return self._remembered(
            (Predicate.UNSCHEDULABLE, tolerations, doubt), lambda node: admits(node, tolerations, doubt=doubt)
        )

    def tolerating(self, scheduling: Scheduling, *, doubt: bool) -> Mask:
        """Nodes whose taints the pod tolerates."""
        tolerations = scheduling.tolerations
        return self._remembered(
            (Predicate.TAINTS, tolerations, doubt), lambda node: tolerated(node.taints, tolerations, doubt=doubt)
        )

    def selected(self, scheduling: Scheduling) -> Mask:
        """Nodes that the pod's node selector allows."""
        selector = scheduling.node_selector
        return self._remembered((Predicate.NODE_SELECTOR, selector), lambda node: selects(selector, node))

    def attracted(self, scheduling: Scheduling) -> Mask:
        """Nodes that the pod's required node affinity allows."""
        terms = scheduling.node_terms
        return self._remembered(
            (Predicate.NODE_AFFINITY, terms), lambda node: terms is None or matches_any(terms, node)
        )

    def ready(self) -> Mask:
        """Nodes that are ready."""
        return self._remembered(Predicate.READY, lambda node: node.ready)

    def on_linux(self) -> Mask:
        """Nodes on which a running pod can be resized at all."""
        return self._remembered("linux", lambda node: node.os == "linux")

    def with_free_ports(self, pod: Pod, gone: str | None) -> Mask:
        """Nodes on which no pod has taken a host port that the pod wants. `gone`: uid of a pod that will have left."""
        found = self.mask(True)
        if pod.scheduling.host_ports:
            for number, taken in self._ports.items():
                ports = [port for uid, port in taken if uid != gone]
                found[number] = not collide(pod.scheduling.host_ports, ports)
        return found

    def volume_needs(self, pod: Pod) -> VolumeNeeds:
        """What the pod's claims ask of a node."""
        return volume_needs(pod, self._storage)

    def reaching(self, needs: VolumeNeeds) -> Mask:
        """Nodes that can use the volumes."""
        found = self.mask(True)
        for volume in needs.volumes:
            found &= self._each(partial(reaches, volume))
        return found

    def providing(self, needs: VolumeNeeds) -> Mask:
        """Nodes for which the volumes can be made that are not there yet."""
        found = self.mask(True)
        for terms in needs.places:
            found &= self._each(partial(matches_any, terms))
        return found

    def unused(self, pod: Pod, needs: VolumeNeeds, gone: str | None, *, doubt: bool) -> Mask:
        """Nodes on which no other pod keeps the pod from its volumes.

        A scheduler looks only at claims of ReadWriteOncePod. A volume that one node can use at a time is, if a pod
        uses it, not to be had on any other: the pod would be placed, and wait for it (`doubt`: it may be placed).
        """
        found = self.mask(True)
        for names, everywhere in ((needs.single_pod, True), (() if doubt else needs.single_node, False)):
            for name in names:
                for user in self._users_of(pod.namespace, name):
                    if user.pod.uid == gone:
                        continue
                    kept = found[user.at] and not everywhere
                    found[:] = False
                    found[user.at] = kept
        return found

    def attachable(self, needs: VolumeNeeds) -> Mask:
        """Nodes whose limits of volumes leave room for the pod's; one that is attached already is not a further one."""
        found = self.mask(True)
        for (name, driver), limit in self._storage.limits.items():
            wanted = {volume for volume in needs.attached if volume[0] == driver}
            if not wanted or (number := self.at.get(name)) is None:
                continue
            there = {volume for volume in self._attached_to(number) if volume[0] == driver}
            found[number] &= wanted <= there or len(there | wanted) <= limit
        return found

    def _place(self, snapshot: ClusterSnapshot) -> list[Placed]:
        placed = []
        for pod in snapshot.pods.values():
            if not kubelet.holds_room(pod) or (number := self.at.get(pod.node or "")) is None:
                continue
            placed.append(Placed(pod, number))
            self._take(pod, number)
            for port in pod.scheduling.host_ports:
                self._ports[number].append((pod.uid, port))
            if pod.scheduling.claims:
                self._claiming.append(placed[-1])
        return placed

    def _take(self, pod: Pod, number: int) -> None:
        held = self.held(pod)
        for name, amount in held.amounts().items():
            self._taken[name][number] += amount
        for name, amount in _disputed(pod, held).items():
            self._disputed[name][number] += amount

    def _users_of(self, namespace: str, claim: str) -> list[Placed]:
        if self._users is None:
            users: defaultdict[tuple[str, str], list[Placed]] = defaultdict(list)
            for one in self._claiming:
                for name in one.pod.scheduling.claims:
                    users[one.pod.namespace, name].append(one)
            self._users = users
        return self._users.get((namespace, claim), [])

    def _attached_to(self, number: int) -> Set[tuple[str, str]]:
        if self._attached is None:
            attached: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
            for one in self._claiming:
                attached[one.at].update(self.volume_needs(one.pod).attached)
            self._attached = attached
        return self._attached.get(number, frozenset())

    def _remembered(self, key: object, suits: Callable[[Node], bool]) -> Mask:
        if (known := self._suiting.get(key)) is None:
            known = self._suiting[key] = self._each(suits)
        return known

    def _each(self, suits: Callable[[Node], bool]) -> Mask:
        return np.fromiter((suits(node) for node in self.nodes), np.bool_, len(self.nodes))


def _allocatable(node: Node, name: str) -> int:
    if name == PODS:
        return node.pods or 0
    if name in (Resource.CPU, Resource.MEMORY):
        return node.allocatable.get(Resource(name)) or 0
    return node.extended.get(name, 0)


def _disputed(pod: Pod, held: Need) -> Mapping[str, int]:
    """What is held only for a spec that the pod's kubelet has called infeasible."""
    pending = pod.condition(PENDING)
    if pending is None or pending.reason != "Infeasible":
        return {}
    kept = kubelet.footprint(pod, _granted)
    return {resource.value: (held.size.get(resource) or 0) - (kept.get(resource) or 0) for resource in RESOURCES}


def _largest(container: Container) -> ResourceList:
    return _larger(kubelet.desired(container), _granted(container))


def _granted(container: Container) -> ResourceList:
    return _larger(kubelet.allocated(container), kubelet.actual(container))


def _larger(one: ResourceList, other: ResourceList) -> ResourceList:
    return ResourceList(Millicores(max(one.cpu or 0, other.cpu or 0)), Bytes(max(one.memory or 0, other.memory or 0)))
