"""Where other pods let a pod go: pod affinity, anti-affinity and topology spread, for all nodes at once. Pure.

Source: plugins InterPodAffinity and PodTopologySpread of Kubernetes 1.37. Labels of namespaces are not read: a
`namespaceSelector` other than the empty one, which means all of them, cannot be evaluated. `doubt` as in `predicates`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autoscaler.core.labels import LabelSelector
from autoscaler.core.model import Node, Pod
from autoscaler.core.scheduling import PodTerm, Spread

Mask = npt.NDArray[np.bool_]
"""One answer a node."""

_EVERY_NAMESPACE = None
_EVERYTHING = LabelSelector()


class Placed(NamedTuple):
    """A pod and the number of its node."""

    pod: Pod
    at: int


class _Domains(NamedTuple):
    """A topology key: the domain of each node, -1 for a node without the label, and how many domains there are."""

    of: npt.NDArray[np.intp]
    total: int


class Neighbours:
    """The pods that have a node and have not finished, and how they keep a pod from nodes or draw it to them."""

    def __init__(self, nodes: Sequence[Node], placed: Iterable[Placed]) -> None:
        self._nodes = nodes
        self._placed = tuple(placed)
        self._by_namespace: defaultdict[str, list[Placed]] = defaultdict(list)
        self._repelling: defaultdict[tuple[str, PodTerm], list[Placed]] = defaultdict(list)
        for one in self._placed:
            self._by_namespace[one.pod.namespace].append(one)
            for term in one.pod.scheduling.anti_affinity:
                self._repelling[one.pod.namespace, term].append(one)
        self._domains: dict[str, _Domains] = {}
        self._matching: dict[tuple[frozenset[str] | None, LabelSelector], Sequence[Placed]] = {}

    def drawn(self, pod: Pod, gone: str | None, *, doubt: bool) -> Mask:
        """Nodes that satisfy the pod's required affinity. `gone`: uid of a pod that does not count any more.

        A node satisfies it whose domains each hold a pod that matches all terms. Where no pod does, the first one of a
        group that is drawn to itself may go anywhere.
        """
        terms = pod.scheduling.affinity
        everywhere = np.ones(len(self._nodes), np.bool_)
        for term in terms:
            everywhere &= self._domain(term.topology_key).of >= 0
        if any(_is_unknown(term) for term in terms):
            return everywhere & doubt
        matched = self._matching_all(pod, terms, gone)
        found = everywhere.copy()
        for term in terms:
            found &= self._in_domains(term.topology_key, matched)
        counted = any(self._domain(term.topology_key).of[one.at] >= 0 for one in matched for term in terms)
        alone = not counted if doubt else not matched
        if alone and all(_applies(term, pod.namespace, pod, doubt=doubt) for term in terms):
            return everywhere
        return found

    def repelled(self, pod: Pod, gone: str | None, *, doubt: bool) -> Mask:
        """Nodes that the pod's required anti-affinity, or that of a pod that is there, rules out."""
        found = np.zeros(len(self._nodes), np.bool_)
        for term in pod.scheduling.anti_affinity:
            matched = self._matching_term(pod.namespace, term, everywhere=_is_unknown(term) and not doubt)
            found |= self._in_domains(term.topology_key, [one for one in matched if one.pod.uid != gone])
        for (namespace, term), placed in self._repelling.items():
            if _applies(term, namespace, pod, doubt=not doubt):
                found |= self._in_domains(term.topology_key, [one for one in placed if one.pod.uid != gone])
        return found

    def repelled_by(self, pod: Pod, other: Pod, places: Mask) -> Mask:
        """Nodes that anti-affinity would rule out for a pod if `other` were on any of `places`."""
        found = np.zeros(len(self._nodes), np.bool_)
        for one, its in ((pod, other), (other, pod)):
            for term in one.scheduling.anti_affinity:
                if _applies(term, one.namespace, its, doubt=True):
                    domains = self._domain(term.topology_key)
                    found |= (domains.of >= 0) & np.isin(domains.of, domains.of[places])
        return found

    def spread(self, pod: Pod, gone: str | None, matching: Mask, tolerated: Mask) -> Mask:
        """Nodes on which the pod would not break a constraint of its own on how evenly it is spread.

        `matching`: nodes that satisfy its selector and affinity; `tolerated`: nodes whose taints it tolerates.
        """
        found = np.ones(len(self._nodes), np.bool_)
        labelled = found.copy()
        for constraint in pod.scheduling.spread:
            labelled &= self._domain(constraint.topology_key).of >= 0
        for constraint in pod.scheduling.spread:
            counted = labelled.copy()
            if constraint.honors_affinity:
                counted &= matching
            if constraint.honors_taints:
                counted &= tolerated
            found &= self._evens(pod, constraint, gone, counted)
        return found

    def _evens(self, pod: Pod, constraint: Spread, gone: str | None, counted: Mask) -> Mask:
        domains, selector = self._domain(constraint.topology_key), _merged(constraint, pod)
        numbers = np.zeros(domains.total, np.intp)
        if selector is not None and selector != _EVERYTHING:  # the plugin counts nobody for a selector of everything
            for one in self._matching_pods(frozenset((pod.namespace,)), selector):
                if counted[one.at] and not one.pod.deleting and one.pod.uid != gone:
                    numbers[domains.of[one.at]] += 1
        eligible = np.unique(domains.of[counted])
        least = int(numbers[eligible].min()) if len(eligible) >= max(constraint.min_domains, 1) else 0
        own = int(selector is not None and selector.matches(pod.labels))
        within = numbers + own - least <= constraint.max_skew
        return (domains.of >= 0) & within[domains.of] if domains.total else np.zeros(len(self._nodes), np.bool_)

    def _matching_all(self, pod: Pod, terms: Sequence[PodTerm], gone: str | None) -> Sequence[Placed]:
        first, *others = terms
        matched = [one for one in self._matching_term(pod.namespace, first) if one.pod.uid != gone]
        for term in others:
            also = {one.pod.uid for one in self._matching_term(pod.namespace, term)}
            matched = [one for one in matched if one.pod.uid in also]
        return matched

    def _matching_term(self, namespace: str, term: PodTerm, *, everywhere: bool = False) -> Sequence[Placed]:
        if term.selector is None:
            return ()
        every = everywhere or term.namespace_selector == _EVERYTHING
        return self._matching_pods(_EVERY_NAMESPACE if every else _namespaces(term, namespace), term.selector)

    def _matching_pods(self, namespaces: frozenset[str] | None, selector: LabelSelector) -> Sequence[Placed]:
        key = (namespaces, selector)
        if (known := self._matching.get(key)) is None:
            among: Iterable[Placed]
            if namespaces is _EVERY_NAMESPACE:
                among = self._placed
            else:
                among = (one for name in sorted(namespaces) for one in self._by_namespace.get(name, ()))
            known = self._matching[key] = [one for one in among if selector.matches(one.pod.labels)]
        return known

    def _in_domains(self, key: str, placed: Sequence[Placed]) -> Mask:
        domains = self._domain(key)
        held = np.zeros(domains.total + 1, np.bool_)  # the last one, -1, is that of nodes without the label
        held[domains.of[[one.at for one in placed]]] = True
        held[-1] = False
        found: Mask = held[domains.of]
        return found

    def _domain(self, key: str) -> _Domains:
        if (known := self._domains.get(key)) is None:
            numbers: dict[str, int] = {}
            of = np.fromiter(
                (
                    -1 if (value := node.labels.get(key)) is None else numbers.setdefault(value, len(numbers))
                    for node in self._nodes
                ),
                np.intp,
                len(self._nodes),
            )
            known = self._domains[key] = _Domains(of, len(numbers))
        return known


def _merged(constraint: Spread, pod: Pod) -> LabelSelector | None:
    """The constraint's selector with the values that the pod has for `matchLabelKeys`."""
    own = tuple((key, pod.labels[key]) for key in constraint.match_label_keys if key in pod.labels)
    if constraint.selector is None or not own:
        return constraint.selector
    return LabelSelector(constraint.selector.match_labels + own, constraint.selector.match_expressions)


def _namespaces(term: PodTerm, own: str) -> frozenset[str]:
    return term.namespaces if term.namespaces or term.namespace_selector is not None else frozenset((own,))


def _is_unknown(term: PodTerm) -> bool:
    return term.namespace_selector not in (None, _EVERYTHING)


def _applies(term: PodTerm, own: str, pod: Pod, *, doubt: bool) -> bool:
    """Whether a term of a pod in namespace `own` is about this pod."""
    if term.selector is None or not term.selector.matches(pod.labels):
        return False
    if term.namespace_selector == _EVERYTHING or pod.namespace in _namespaces(term, own):
        return True
    return _is_unknown(term) and doubt
