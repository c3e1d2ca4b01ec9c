"""How much of each node is taken, as its kubelet counts it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.core import kubelet
from autoscaler.core.model import RESOURCES, ClusterSnapshot, Node, Pod, PodRef, ResourceList, Resources
from autoscaler.core.order import precedence
from autoscaler.core.resize import Phase, phase_of
from autoscaler.core.units import Bytes, Millicores

_ACCEPTABLE = frozenset({Phase.PROPOSED, Phase.DEFERRED})
_PENDING = frozenset({Phase.INFEASIBLE, Phase.UNKNOWN})


@dataclass(slots=True)
class _Room:
    taken: ResourceList
    promised: dict[PodRef, ResourceList] = field(default_factory=dict)  # part of what is taken
    unaccepted: list[PodRef] = field(default_factory=list)


class Rooms:
    """Σ allocated per node, counted once a turn, with what was asked for and fits by now, which the kubelet is going to
    accept, and with what this plan adds, so that two increases cannot both count on the same room."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._pods: defaultdict[str, list[Pod]] | None = None
        self._rooms: dict[str, _Room] = {}

    def others(self, pod: Pod) -> ResourceList:
        """Σ allocated of the other pods on a pod's node, with what has been granted to them."""
        own, room = kubelet.counted(pod), self._room(pod.node or "")
        if (promised := room.promised.get(pod.ref)) is not None:
            own = _sum(own, promised)
        return ResourceList(
            Millicores((room.taken.cpu or 0) - (own.cpu or 0)), Bytes((room.taken.memory or 0) - (own.memory or 0))
        )

    def unaccepted(self, node: str) -> Sequence[PodRef]:
        """Pods of a node, anyone's, whose resize its kubelet has not accepted, or is not going to."""
        return self._room(node).unaccepted

    def grant(self, pod: Pod, proposed: Mapping[str, Resources]) -> None:
        """Count an increase that is going to be asked for; what a decrease frees is not there yet."""
        room = self._room(pod.node or "")
        room.taken = _sum(room.taken, _more(pod, kubelet.proposed_footprint(pod, proposed)))

    def _room(self, node: str) -> _Room:
        if (known := self._rooms.get(node)) is not None:
            return known
        if self._pods is None:
            self._pods = defaultdict(list)
            for pod in self._snapshot.pods.values():
                self._pods[pod.node or ""].append(pod)
        made = self._rooms[node] = _counted(self._pods[node], self._snapshot.nodes.get(node))
        return made


def _counted(pods: Sequence[Pod], node: Node | None) -> _Room:
    room, asked = _Room(kubelet.allocated_on(pods)), list[Pod]()
    for pod in pods:
        if not (pod.conditions or _differs(pod)) or not kubelet.holds_room(pod):
            continue
        phase = phase_of(pod).phase
        if phase in _PENDING:
            room.unaccepted.append(pod.ref)
        elif phase in _ACCEPTABLE:
            asked.append(pod)
    for pod in sorted(asked, key=precedence):
        more = _more(pod, kubelet.footprint(pod, kubelet.desired))
        taken = _sum(room.taken, more)
        if (more.cpu or more.memory) and node is not None and not _fits(taken, node):
            room.unaccepted.append(pod.ref)
        else:
            room.taken, room.promised[pod.ref] = taken, more
    return room


def _fits(taken: ResourceList, node: Node) -> bool:
    return all(
        (capacity := node.allocatable.get(resource)) is None or (taken.get(resource) or 0) <= capacity
        for resource in RESOURCES
    )


def _more(pod: Pod, wanted: ResourceList) -> ResourceList:
    """What a pod would take beyond what is allocated to it."""
    has = kubelet.footprint(pod, kubelet.allocated)
    return ResourceList(
        Millicores(max((wanted.cpu or 0) - (has.cpu or 0), 0)), Bytes(max((wanted.memory or 0) - (has.memory or 0), 0))
    )


def _sum(one: ResourceList, other: ResourceList) -> ResourceList:
    return ResourceList(Millicores((one.cpu or 0) + (other.cpu or 0)), Bytes((one.memory or 0) + (other.memory or 0)))


def _differs(pod: Pod) -> bool:
    return any(
        c.allocated is not None and c.allocated is not c.spec.requests and c.allocated != c.spec.requests
        for c in pod.containers
    )
