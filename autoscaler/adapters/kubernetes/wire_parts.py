"""What several kinds have in common: owners, moments, sizes, selectors. Pure.

Few sizes, selectors and sets of labels occur in a cluster, however many its pods: the same is parsed once and held
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern
from types import MappingProxyType

from autoscaler.adapters.kubernetes import schema
from autoscaler.adapters.kubernetes.decoded import UnknownWord
from autoscaler.core.labels import LabelSelector, Operator, Requirement
from autoscaler.core.model import ResourceList, Resources
from autoscaler.core.scheduling import NodeRequirement, NodeTerm
from autoscaler.core.units import parse_cpu, parse_memory

SHARED = 8192
"""How many values of a kind are held once."""

_FAR = 9000  # a year after which nothing happens: the longest duration is 100 years
_OPERATORS = {str(word): word for word in Operator}
_PLAIN = frozenset({"cpu", "memory"})


def controller(meta: schema.Meta) -> str | None:
    """The controller of an object, "Kind/name"; other owners do not count."""
    return next((intern(f"{one.kind}/{one.name}") for one in meta.owner_references or () if one.controller), None)


def moment(found: datetime | None) -> datetime | None:
    """A moment that durations can be added to. Whoever may write a pod may make up the times in its managedFields."""
    return found if found is not None and found.year < _FAR else None


def amounts(wire: schema.Amounts | None) -> ResourceList:
    """CPU and memory. Raises `QuantityError`."""
    return _list(None, None) if wire is None else _list(wire.cpu, wire.memory)


def amounts_among(wire: Mapping[str, str] | None) -> ResourceList:
    """CPU and memory of all that is listed. Raises `QuantityError`."""
    return _list(None, None) if wire is None else _list(wire.get("cpu"), wire.get("memory"))


def resources(wire: schema.Resources | None) -> Resources:
    """CPU and memory of both sides. Raises `QuantityError`."""
    return _resources(amounts(wire.requests), amounts(wire.limits)) if wire is not None else Resources()


def wanted(wire: schema.WantedResources | None) -> Resources:
    """CPU and memory of both sides of a spec. Raises `QuantityError`."""
    return _resources(amounts_among(wire.requests), amounts(wire.limits)) if wire is not None else Resources()


def others(wire: Mapping[str, str] | None) -> dict[str, int]:
    """Every other resource, rounded up to whole units as the scheduler does. Raises `QuantityError`."""
    if wire is None or wire.keys() <= _PLAIN:
        return {}
    # devices are counted and storage is measured by the same grammar, and both are whole numbers
    return {intern(name): parse_memory(text) for name, text in wire.items() if name not in _PLAIN}


def labels(found: Mapping[str, str] | None) -> Mapping[str, str]:
    """Labels or annotations."""
    return _labels(tuple(sorted(found.items()))) if found else _labels(())


def selector(wire: schema.LabelSelector | None) -> LabelSelector | None:
    """A label selector. Raises `UnknownWord`."""
    if wire is None:
        return None
    expressions = (_requirement(one) for one in wire.match_expressions or ())
    return _selector(tuple(sorted((wire.match_labels or {}).items())), tuple(expressions))


def node_terms(wire: schema.NodeSelector | None) -> tuple[NodeTerm, ...] | None:
    """The alternatives of a node selector. Operators that are not known are kept: they match no node."""
    if wire is None:
        return None
    return tuple(
        NodeTerm(_node_requirements(one.match_expressions), _node_requirements(one.match_fields))
        for one in wire.node_selector_terms or ()
    )


def _node_requirements(wire: list[schema.SelectorRequirement] | None) -> tuple[NodeRequirement, ...]:
    return tuple(
        NodeRequirement(intern(one.key), intern(one.operator), tuple(map(intern, one.values or ())))
        for one in wire or ()
    )


def _requirement(wire: schema.SelectorRequirement) -> Requirement:
    operator = _OPERATORS.get(wire.operator)
    if operator is None:
        raise UnknownWord(f"operator {wire.operator!r} of a label selector, known are {', '.join(_OPERATORS)}")
    return Requirement(intern(wire.key), operator, frozenset(map(intern, wire.values or ())))


@lru_cache(maxsize=SHARED)
def _list(cpu: str | None, memory: str | None) -> ResourceList:
    return ResourceList(None if cpu is None else parse_cpu(cpu), None if memory is None else parse_memory(memory))


@lru_cache(maxsize=SHARED)
def _resources(requests: ResourceList, limits: ResourceList) -> Resources:
    return Resources(requests, limits)


@lru_cache(maxsize=SHARED)
def _labels(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return MappingProxyType({intern(key): intern(value) for key, value in items})


@lru_cache(maxsize=SHARED)
def _selector(items: tuple[tuple[str, str], ...], expressions: tuple[Requirement, ...]) -> LabelSelector:
    return LabelSelector(items, expressions)
