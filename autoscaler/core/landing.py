"""Where a pod can land: the proof that another node takes it at its new size. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from autoscaler.core.model import ClusterSnapshot, Pod, Resource, Resources


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found about all nodes but the pod's own.

    `nodes`: those that take the pod at its new size, the one with most room first. `cuts`: how many nodes each
    predicate ruled out; a node counts once, for the first that it fails. `too_small`: nodes, the pod's own among them,
    on which the pod may land at the size at which it is created, and that have no room for its new size. `roomless`:
    nodes that take it but for room.
    """

    nodes: tuple[str, ...] = ()
    cuts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    too_small: tuple[str, ...] = ()
    roomless: tuple[str, ...] = ()


class Landings:
    """The nodes of one snapshot and what is free on them, counted once a turn."""

    def __init__(
        self, snapshot: ClusterSnapshot, static: Mapping[str, frozenset[Resource]] = MappingProxyType({})
    ) -> None:
        self._snapshot = snapshot
        self._static = static

    def prove(
        self, pod: Pod, created: Mapping[str, Resources], target: Mapping[str, Resources], *, stays: bool
    ) -> Proof:
        """Where a replacement of `pod` lands that is created with resources `created` and resized to `target` then.

        Both by container name; what they do not name is as in the pod's spec. `stays`: the pod itself is still there
        when its replacement is scheduled (a surge).
        """
        raise NotImplementedError

    def promise(self, pod: Pod, target: Mapping[str, Resources]) -> None:
        """Count a replacement of `pod` that is on its way: it will take room, nobody knows where."""
        raise NotImplementedError
