"""Where a pod can land: the proof that another node takes it at its new size. Pure.

A node is proved if the scheduler would place the replacement there, whatever else it places first: preemption is not
counted on, and pods that wait for a node are counted on every node that they fit on. What cannot be known speaks
against a node here, and for it where the question is on which nodes the replacement may land without room to grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from autoscaler.core import kubelet
from autoscaler.core.competition import Competition
from autoscaler.core.model import RESOURCES, ClusterSnapshot, Pod, QoSClass, Resource, Resources
from autoscaler.core.occupancy import Need, Occupancy, larger
from autoscaler.core.predicates import DEFAULT_SCHEDULER, Predicate
from autoscaler.core.spreading import Mask

_NAMES = {"cpu": Predicate.CPU, "memory": Predicate.MEMORY, "pods": Predicate.PODS}


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found about all nodes but the pod's own.

    `nodes`: those that take the pod at its new size, the one with most room first. `cuts`: how many nodes each
    predicate ruled out; a node counts once, for the first that it fails. `too_small`: nodes, the pod's own among them,
    on which the pod may land at the size at which it is created, and that have no room for its new size. `roomless`:
    nodes that take it but for room. `astray`: nodes, the pod's own among them, on which it may land and does not start:
    not Ready, or not the one on which a volume of it is in use.
    """

    nodes: tuple[str, ...] = ()
    cuts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    too_small: tuple[str, ...] = ()
    roomless: tuple[str, ...] = ()
    astray: tuple[str, ...] = ()


class _Sizes(NamedTuple):
    """What the replacement takes when it is created and once it is resized, and the larger of both."""

    created: Need
    target: Need
    most: Need
    grows: bool
    changing: frozenset[Resource]


class Landings:
    """The nodes of one snapshot and what is free on them, counted once a turn."""

    def __init__(
        self, snapshot: ClusterSnapshot, static: Mapping[str, frozenset[Resource]] = MappingProxyType({})
    ) -> None:
        self._snapshot = snapshot
        self._static = static
        self._competition: Competition | None = None

    def prove(
        self, pod: Pod, created: Mapping[str, Resources], target: Mapping[str, Resources], *, stays: bool
    ) -> Proof:
        """Where a replacement of `pod` lands that is created with resources `created` and resized to `target` then.

        Both by container name; what they do not name is as in the pod's spec. `stays`: the pod itself is still there
        when its replacement is scheduled (a surge).
        """
        sizes = _sizes(pod, created, target)
        competition = self._count()
        return _Search(competition, pod, sizes, self._resizable(competition.on, pod, sizes), stays=stays).proof()

    def promise(self, pod: Pod, target: Mapping[str, Resources]) -> None:
        """Count a replacement of `pod` that is on its way: it will take room, nobody knows where."""
        self._count().promise(pod, Need(kubelet.proposed_footprint(pod, target), pod.scheduling.extended))

    def _count(self) -> Competition:
        if self._competition is None:
            self._competition = Competition(self._snapshot)
        return self._competition

    def _resizable(self, on: Occupancy, pod: Pod, sizes: _Sizes) -> Mask:
        """Nodes on which a running pod can come from the one size to the other."""
        found = on.mask(True)
        if not sizes.changing:
            return found
        found &= on.on_linux()
        if pod.qos_class is QoSClass.GUARANTEED:
            for name, resources in self._static.items():
                if resources & sizes.changing and (number := on.at.get(name)) is not None:
                    found[number] = False
        return found


class _Search:
    """One pod's question to all nodes."""

    def __init__(self, competition: Competition, pod: Pod, sizes: _Sizes, resizable: Mask, *, stays: bool) -> None:
        self._competition = competition
        self._on = competition.on
        self._pod = pod
        self._sizes = sizes
        self._resizable = resizable
        self._gone = None if stays else pod
        self._volumes = competition.on.volume_needs(pod)

    def proof(self) -> Proof:
        names = [node.name for node in self._on.nodes]
        left, cuts = self._on.mask(True), dict[str, int]()
        if (own := self._on.at.get(self._pod.node or "")) is not None:
            left[own] = False

        def ask(questions: Iterator[tuple[str, Mask]]) -> None:
            nonlocal left
            for name, answer in questions:
                if lost := int(np.count_nonzero(left & ~answer)):
                    cuts[name] = cuts.get(name, 0) + lost
                    left = left & answer
                if not left.any():
                    return

        ask(self._fitting())
        suiting = left
        ask(self._roomy())
        numbers = np.flatnonzero(left).tolist()
        spare = self._spare()
        numbers.sort(key=lambda number: (-spare[number], number))
        return Proof(
            tuple(names[number] for number in numbers),
            MappingProxyType(cuts),
            tuple(names[number] for number in np.flatnonzero(self._too_small()).tolist()),
            tuple(names[number] for number in np.flatnonzero(suiting & ~left).tolist()),
            tuple(names[number] for number in np.flatnonzero(self._astray()).tolist()),
        )

    def _fitting(self) -> Iterator[tuple[str, Mask]]:
        """What room has no part in."""
        yield from self._placing(doubt=False)
        yield Predicate.RESIZABLE, self._resizable
        for name in self._pod.scheduling.extended:
            if self._sizes.most.amounts().get(name):
                yield name, self._on.allocatable(name) > 0

    def _placing(self, *, doubt: bool) -> Iterator[tuple[Predicate, Mask]]:
        """What the scheduler asks besides room. Where nothing is asked, nothing is counted."""
        on, pod, needs = self._on, self._pod, self._volumes
        scheduling, gone = pod.scheduling, None if self._gone is None else self._gone.uid
        if scheduling.scheduler != DEFAULT_SCHEDULER:
            yield Predicate.SCHEDULER, on.mask(doubt)
        if scheduling.devices:
            yield Predicate.DEVICES, on.mask(doubt)
        if not doubt:  # a scheduler goes by taints, which come a little later
            yield Predicate.READY, on.ready()
        yield Predicate.UNSCHEDULABLE, on.admitting(scheduling, doubt=doubt)
        yield Predicate.TAINTS, on.tolerating(scheduling, doubt=doubt)
        yield Predicate.NODE_SELECTOR, on.selected(scheduling)
        yield Predicate.NODE_AFFINITY, on.attracted(scheduling)
        if scheduling.claims:
            yield Predicate.VOLUME_BINDING, on.mask(doubt or not needs.unknown)
            yield Predicate.VOLUME_BINDING, on.mask(True) if doubt else on.providing(needs)
            yield Predicate.VOLUME_AFFINITY, on.reaching(needs)
            yield Predicate.VOLUME_IN_USE, on.unused(pod, needs, gone, doubt=doubt)
        if scheduling.host_ports:
            yield Predicate.HOST_PORTS, on.with_free_ports(pod, gone)
        if scheduling.affinity:
            drawn = on.neighbours.drawn(pod, gone, doubt=doubt)
            if doubt and gone is not None:  # a pod that is still being deleted draws its replacement to itself
                drawn = drawn | on.neighbours.drawn(pod, None, doubt=doubt)
            yield Predicate.POD_AFFINITY, drawn
        yield Predicate.POD_ANTI_AFFINITY, ~on.neighbours.repelled(pod, gone, doubt=doubt)
        if scheduling.spread:
            matching = on.selected(scheduling) & on.attracted(scheduling)
            tolerated = on.tolerating(scheduling, doubt=doubt)
            yield Predicate.TOPOLOGY_SPREAD, on.neighbours.spread(pod, gone, matching, tolerated)

    def _roomy(self) -> Iterator[tuple[str, Mask]]:
        """Room at the larger of both sizes."""
        amounts = self._sizes.most.amounts()
        free = {name: self._on.free(name) for name in amounts}
        for name, amount in amounts.items():
            yield _NAMES.get(name, name), amount <= free[name]
        if self._volumes.attached:
            yield Predicate.VOLUME_LIMIT, self._on.attachable(self._volumes)
        if self._competition.rivals:
            for name, amount in amounts.items():
                yield Predicate.COMPETITION, amount <= free[name] - self._competition.taking(name, self._pod)
            yield Predicate.COMPETITION, ~self._competition.in_the_way(self._pod)

    def _too_small(self) -> Mask:
        """Nodes on which the pod may land as it is created, and cannot grow."""
        if not self._sizes.grows:
            return self._on.mask(False)
        may = self._landing()
        return may & ~self._growing() if may.any() else may

    def _astray(self) -> Mask:
        """Nodes on which the pod may land, and does not start."""
        gone = None if self._gone is None else self._gone.uid
        idle = ~(self._on.ready() & self._on.unused(self._pod, self._volumes, gone, doubt=False))
        return idle & self._landing() if idle.any() else idle

    def _landing(self) -> Mask:
        """Nodes on which the scheduler may place the pod as it is created."""
        on = self._on
        may = on.mask(True)
        for _, answer in self._placing(doubt=True):
            may = may & answer
        if self._volumes.attached:
            may = may & on.attachable(self._volumes)
        return may & self._sizes.created.at_most(lambda name: on.free(name, without=self._gone, doubt=True))

    def _growing(self) -> Mask:
        """Nodes on which the pod, once it has landed, comes to its new size."""
        on, sizes, own = self._on, self._sizes, self._on.at.get(self._pod.node or "")
        before, after = sizes.created.amounts(), sizes.target.amounts()
        found = self._resizable
        here = {} if self._gone is None or own is None else self._competition.taking_instead(own, self._gone)
        for name, amount in after.items():
            if amount <= before.get(name, 0):
                continue
            taking = self._competition.taking(name, self._pod).copy()
            if self._gone is not None and own is not None:
                taking[own] = here.get(name, 0)
            found = found & (amount <= on.free(name, without=self._gone) - taking)
        return found

    def _spare(self) -> list[float]:
        """The smallest share of CPU and memory that stays free on each node once the pod has landed."""
        least = np.full(len(self._on.nodes), np.inf)
        for resource in RESOURCES:
            name, need = resource.value, self._sizes.most.size.get(resource) or 0
            left = self._on.free(name) - self._competition.taking(name, self._pod) - need
            least = np.minimum(least, left / np.maximum(self._on.allocatable(name), 1))
        spare: list[float] = least.tolist()
        return spare


def _sizes(pod: Pod, created: Mapping[str, Resources], target: Mapping[str, Resources]) -> _Sizes:
    first = Need(kubelet.proposed_footprint(pod, created), pod.scheduling.extended)
    then = Need(kubelet.proposed_footprint(pod, target), pod.scheduling.extended)
    changes = [
        (resource, before.requests.get(resource) or 0, after.requests.get(resource) or 0)
        for container in pod.containers
        for before, after in (
            (created.get(container.name, container.spec), target.get(container.name, container.spec)),
        )
        for resource in RESOURCES
    ]
    return _Sizes(
        first,
        then,
        larger(first, then),
        any(after > before for _, before, after in changes),
        frozenset(resource for resource, before, after in changes if after != before),
    )
