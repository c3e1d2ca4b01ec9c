"""How many containers a query selects: those of pods that nobody follows count as well. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from autoscaler.adapters.prometheus import queries, ranges
from autoscaler.core.model import PodRef

_NOBODY: Mapping[PodRef, int] = MappingProxyType({})


class Population:
    """The number of containers of each pod, as far as known; of whole namespaces, where many pods are followed."""

    def __init__(self, of: Mapping[PodRef, int] = _NOBODY) -> None:
        self._of = of
        self._in: Counter[str] = Counter()
        for pod, number in of.items():
            self._in[pod.namespace] += number

    def of_namespaces(self, namespaces: AbstractSet[str]) -> int:
        """In all pods of these namespaces."""
        return sum(self._in[namespace] for namespace in namespaces)

    def selected(self, pods: AbstractSet[PodRef], most_letters: int = ranges.NAMED_LETTERS) -> int:
        """By the matchers for these pods: `queries.of_pods`. One for each pod at least."""
        namespaces = {pod.namespace for pod in pods}
        if not queries.few(pods, most_letters):
            return max(len(pods), self.of_namespaces(namespaces))
        # of each namespace all the names
        names = {pod.name for pod in pods}
        each = (self._of.get(PodRef(namespace, name), 0) for namespace in namespaces for name in names)
        return max(len(pods), sum(each))
