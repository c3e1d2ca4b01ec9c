"""Pods that wait for a node, or soon will, and what they may take before another pod comes. Pure.

Nobody knows where such a pod goes, so each is counted on every node that it fits on: one that fits nowhere takes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from autoscaler.core import kubelet
from autoscaler.core.model import ClusterSnapshot, Pod, WorkloadRef
from autoscaler.core.occupancy import Column, Need, Occupancy, larger
from autoscaler.core.predicates import collide
from autoscaler.core.spreading import Mask

_COMES_BACK = "StatefulSet/"  # other controllers make the next pod at once, and it is seen


class Rival(NamedTuple):
    """A pod that waits: what it is placed by, what it may take in the end, and the nodes that it fits on."""

    pod: Pod
    placed_by: Need
    takes: Need
    places: Mask


class Competition:
    """What is taken of the nodes of a snapshot, and what pods that wait may take besides."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.on = Occupancy(snapshot)
        self.rivals: dict[str, Rival] = {}
        self._workloads = snapshot.workloads
        self._taking: dict[str, Column] = {}
        for pod in snapshot.pods.values():
            if _waits(pod):
                need = Need(kubelet.footprint(pod, kubelet.desired), pod.scheduling.extended)
                self._add(pod, need, need)
            elif _returns(pod):
                self.promise(pod, Need(kubelet.reserved(pod), pod.scheduling.extended))

    def promise(self, pod: Pod, need: Need) -> None:
        """Count the next pod in place of this one: it is placed by its template's size, and takes this much then."""
        self._add(pod, self._created(pod, need), need)

    def taking(self, name: str, but: Pod) -> Column:
        """How much of a resource the waiting pods may take of each node, all but one."""
        taken = self._taking.get(name)
        if taken is None:
            return self.on.column()
        own = self.rivals.get(but.uid)
        return taken if own is None else taken - own.places * own.takes.amounts().get(name, 0)

    def taking_instead(self, number: int, leaving: Pod) -> Mapping[str, int]:
        """The same of one node, if a pod left it first."""
        taken: dict[str, int] = {}
        for rival in self.rivals.values():
            if rival.pod.uid == leaving.uid or not self.on.suits(rival.pod.scheduling, doubt=True)[number]:
                continue
            if rival.placed_by.at_most(lambda name: self.on.free(name, without=leaving, doubt=True))[number]:
                for name, amount in rival.takes.amounts().items():
                    taken[name] = taken.get(name, 0) + amount
        return taken

    def in_the_way(self, pod: Pod) -> Mask:
        """Nodes that a waiting pod which goes there first keeps the pod from, by a host port or by anti-affinity."""
        found = self.on.mask(False)
        for rival in self.rivals.values():
            other = rival.pod
            if other.uid == pod.uid:
                continue
            if collide(pod.scheduling.host_ports, other.scheduling.host_ports):
                found |= rival.places
            if pod.scheduling.anti_affinity or other.scheduling.anti_affinity:
                found |= self.on.neighbours.repelled_by(pod, other, rival.places)
        return found

    def _add(self, pod: Pod, placed_by: Need, takes: Need) -> None:
        places = self.on.suits(pod.scheduling, doubt=True) & placed_by.at_most(
            lambda name: self.on.free(name, doubt=True)
        )
        if (known := self.rivals.get(pod.uid)) is not None:
            self._tally(known, -1)
            takes, places = larger(takes, known.takes), places | known.places
        self.rivals[pod.uid] = rival = Rival(pod, placed_by, takes, places)
        self._tally(rival, 1)

    def _tally(self, rival: Rival, sign: int) -> None:
        for name, amount in rival.takes.amounts().items():
            column = self._taking.setdefault(name, self.on.column())
            column += sign * amount * rival.places

    def _created(self, pod: Pod, need: Need) -> Need:
        """What the template of the pod's owner asks for; without a template that is known, the size it ends with."""
        owner = self._workloads.get(WorkloadRef(pod.namespace, pod.owner or ""))
        if owner is None:
            return need
        return Need(kubelet.proposed_footprint(pod, owner.template), pod.scheduling.extended)


def _waits(pod: Pod) -> bool:
    """Whether the scheduler may give the pod a node any moment."""
    return pod.node is None and not pod.deleting and pod.gated is None and pod.phase not in kubelet.FINISHED_PHASES


def _returns(pod: Pod) -> bool:
    """Whether the pod was evicted, and its controller makes it again once it has gone."""
    return pod.deleting and pod.disrupted and (pod.owner or "").startswith(_COMES_BACK)
