"""Of which pod and of which cluster series are, as their labels tell. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType

from autoscaler.adapters.prometheus import queries
from autoscaler.adapters.prometheus.answers import Series
from autoscaler.adapters.prometheus.copies import said
from autoscaler.adapters.prometheus.layout import Layout
from autoscaler.core.history import Gap
from autoscaler.core.model import PodRef, Problem
from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason


def pod_of(series: Series, layout: Layout) -> PodRef:
    """Whose series it is."""
    return PodRef(series.labels.get(layout.names.namespace, ""), series.labels.get(layout.names.pod, ""))


def clusters_of(answer: Iterable[Series], layout: Layout) -> Mapping[str, AbstractSet[str]]:
    """The values of each label that tells clusters apart. Series without it are of the same cluster as the others."""
    found: dict[str, set[str]] = defaultdict(set)
    for series in answer:
        for label in layout.cluster_labels:
            if value := series.labels.get(label):
                found[label].add(value)
    return MappingProxyType(found)


def exported(layout: Layout) -> tuple[Problem, ...]:
    """A note where Prometheus was not told to honour the labels of what it scrapes."""
    if layout.names.namespace != "exported_namespace":
        return ()
    labels = ", ".join(layout.names)
    detail = f"usage is read by the labels {labels}: its scrapes do not honour labels (honorLabels: true would)"
    return (Problem("Prometheus", Trouble.EXPORTED_LABELS, detail),)


def of_cluster(layout: Layout, cluster: Mapping[str, str]) -> Layout:
    """The layout for one cluster, and for what no such label is on.

    Labels that it does not have are on no series at all then, so that a cluster which turns up later is not added.
    """
    pins = (
        f"{label}=~{queries.one_of({cluster[label], ''})}" if label in cluster else f'{label}=""'
        for label in layout.cluster_labels
    )
    return replace(layout, cluster=(*layout.cluster, *pins), cluster_labels=())


def ambiguous(label: str, values: AbstractSet[str]) -> Gap:
    """Why nothing is read where a label has several values."""
    first, second, *more = (said(label, value) for value in sorted(values))
    others = f" and {len(more)} more" if more else ""
    return Gap(
        Reason.CLUSTER_AMBIGUOUS,
        f"the series of these pods are of {first} and {second}{others}; say which in prometheus.layout.clusterMatcher, "
        f"like clusterMatcher: '{first}'",
    )
