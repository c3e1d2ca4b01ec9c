"""The PromQL that a policy may write, and what is asked for of a drain gate. Pure text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from autoscaler.adapters.prometheus.queries import in_cluster
from autoscaler.core.history import Gap
from autoscaler.core.reasons import Reason

_PAIRS = {")": "(", "]": "[", "}": "{"}
_STRING = re.compile(r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`""")
_REGEX = re.compile(rf"=~\s*(?P<text>{_STRING.pattern})")
_COMMENT = re.compile(r"#[^\n]*")
_PLACEHOLDER = re.compile(r"\$(?:\{[A-Za-z_]\w*\}?|[A-Za-z_]\w*)")  # not $1 of label_replace
_PLACEHOLDERS = ("$pod", "$namespace", "$cluster")


def checked_query(query: str, placeholders: Sequence[str] = _PLACEHOLDERS) -> str:
    """A query that can be asked for many pods at once: it selects them by `$pod`, and by the other placeholders if it
    likes. Raises `ValueError`. Of PromQL's grammar only quotes and brackets are looked at: servers have dialects, and
    `doctor` asks the one that it is for."""
    rest = _COMMENT.sub("", _STRING.sub('""', query))
    if re.search("[\"'`]", rest.replace('""', "")):
        raise ValueError("a quote is not closed")
    for found in _PLACEHOLDER.findall(query):
        if found not in placeholders:
            known = f"{', '.join(placeholders[:-1])} and {placeholders[-1]}"
            raise ValueError(f"{found[:40]!r} is not known; there are {known}")
    if any("$cluster" in found[0] for found in _STRING.finditer(query)):
        raise ValueError('$cluster stands for whole matchers; write it without quotes, like {pod=~"$pod",$cluster}')
    if not any("$pod" in found["text"] for found in _REGEX.finditer(query)):
        raise ValueError(
            'does not select pods; write pod=~"$pod", like sum by (namespace, pod) (bridge_sessions{pod=~"$pod"})'
        )
    opened: list[str] = []
    for letter in rest:
        if letter in _PAIRS.values():
            opened.append(letter)
        elif letter in _PAIRS and (not opened or opened.pop() != _PAIRS[letter]):
            raise ValueError(f"{letter!r} closes no bracket")
    if opened:
        raise ValueError(f"{opened[-1]!r} is not closed")
    return query


def asked(query: str, namespace: str, pods: Iterable[str], cluster: Collection[str] = ()) -> str:
    """The query for these pods of a namespace. `cluster`: the matchers that select the cluster; none: there is one."""
    named = query.replace("$pod", _one_of(pods)).replace("$namespace", _one_of([namespace]))
    return in_cluster(named, cluster)


NOT_SAID = (
    "it does not say of which cluster, though prometheus.layout.clusterMatcher is set: write $cluster among its "
    'matchers, like {pod=~"$pod",$cluster}'
)


class ClusterUnknown(Exception):
    """It is not known of which cluster the series are that a query would find. The text says why."""


def matchers_for(query: str, cluster: tuple[str, ...] | Gap, chosen: Sequence[str] = ()) -> tuple[str, ...]:
    """The matchers of the cluster, for `asked`. Raises `ClusterUnknown`: pods of another cluster may have these names.

    `chosen`: the matchers by which settings choose one of several clusters; none: they do not. A query that does not
    say which is asked as long as there are not known to be several.
    """
    if not says_cluster(query, chosen):
        raise ClusterUnknown(NOT_SAID)
    if not isinstance(cluster, Gap):
        return cluster
    if names_cluster(query) or cluster.reason is Reason.CLUSTER_AMBIGUOUS:
        raise ClusterUnknown(cluster.detail)
    return ()


def names_cluster(query: str) -> bool:
    """Whether the query says itself which cluster it is for."""
    return "$cluster" in query


def says_cluster(query: str, chosen: Sequence[str]) -> bool:
    """Whether a query is for one cluster where settings choose one by these matchers: by `$cluster`, or as they do."""
    labels = (matcher.partition("=")[0].rstrip("!") for matcher in chosen)
    return names_cluster(query) or all(re.search(rf"\b{re.escape(label)}\s*[=!]", query) for label in labels)


def names_namespace(query: str) -> bool:
    """Whether the query itself is for one namespace, so that its answer need not say which."""
    return "$namespace" in query


def _one_of(names: Iterable[str]) -> str:
    # of RE2's special characters names of pods have the dot alone; a class is read the same in all kinds of quotes
    return f"(?:{'|'.join(name.replace('.', '[.]') for name in sorted(names))})"
