"""The PromQL that is asked for. Pure text.

Shape of the queries: filters drop pod cgroups and pause containers, `max by` collapses duplicates (two scrape jobs, an
HA pair, kubelet and cAdvisor exporting the same names, nested cgroups), so that nothing is counted twice. What tells
copies apart (`image`, `id`, `name`, replica labels) is never required, as it is often dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from autoscaler.adapters.prometheus import ranges
from autoscaler.adapters.prometheus.layout import Layout
from autoscaler.core.model import PodRef

_RE2_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OF_A_CGROUP = "id, name, image"
"""Labels by which cAdvisor tells the cgroups of one container apart: nested ones, and those before a restart."""

OWNER = "kube_pod_owner"
"""kube-state-metrics' series of each pod's owner."""

TOO_MANY = "bridge_autoscaler_too_many"
"""A label that only the number has with which `at_most` is answered in place of too many series."""

_ANY_CLUSTER = 'cluster=~".*"'  # as there is no empty matcher


def selector(layout: Layout, namespaces: Collection[str], pods: Collection[str] = ()) -> str:
    """The label matchers for containers in these namespaces; without pods: all of them."""
    names = layout.names
    matchers = [f"{names.namespace}=~{one_of(namespaces)}"]
    if pods:
        matchers.append(f"{names.pod}=~{one_of(pods)}")
    matchers += (f'{names.container}!=""', f'{names.container}!="POD"', *layout.all_matchers)
    return ",".join(matchers)


def of_pods(layout: Layout, pods: AbstractSet[PodRef], most_letters: int = ranges.MOST_LETTERS) -> str:
    """The label matchers for these pods; of many, or with more letters in their names, for their whole namespaces."""
    named = {pod.name for pod in pods} if few(pods, most_letters) else ()
    return selector(layout, {pod.namespace for pod in pods}, named)


def few(pods: AbstractSet[PodRef], most_letters: int = ranges.MOST_LETTERS) -> bool:
    """Whether a query names these pods."""
    names = {pod.name for pod in pods}
    return len(names) <= ranges.MOST_PODS and sum(map(len, names)) <= most_letters


def cpu(layout: Layout, matchers: str, rate_window_s: int, least: int = 0) -> str:
    """Cores used by each container: the mean over the window that ends at the instant asked for.

    `least`: where fewer samples are in the window there is no value, as it would be too low. 0: not asked.
    """
    if not least:
        return f"max by ({_by(layout)}) ({_cores(layout, matchers, rate_window_s)})"
    series = f"{layout.cpu}{{{matchers}}}[{rate_window_s}s]"
    return f"max by ({_by(layout)}) (sum without (cpu) (rate({series}) and count_over_time({series}) >= {least}))"


def memory(layout: Layout, matchers: str, step_s: int) -> str:
    """Working set of each container in bytes: the maximum since the previous step."""
    return f"max by ({_by(layout)}) (max_over_time({layout.memory}{{{matchers}}}[{step_s}s]))"


def in_use(layout: Layout, matchers: str, range_s: int) -> str:
    """Memory of each container with page cache, in bytes: the greatest of its newest samples."""
    return f"max by ({_by(layout)}) (max_over_time({layout.in_use}{{{matchers}}}[{range_s}s]))"


def most_scraped(layout: Layout, matchers: str, range_s: int) -> str:
    """The memory series with the most samples; its value is their number."""
    return f"topk(1, count_over_time({layout.memory}{{{matchers}}}[{range_s}s]))"


def raw_samples(layout: Layout, labels: Mapping[str, str], range_s: int) -> str:
    """The samples of the memory series with these labels, as they were scraped.

    Labels whose names need the quoting of Prometheus 3 are left out: older servers would refuse the query.
    """
    named = sorted((name, value) for name, value in labels.items() if _LABEL_NAME.fullmatch(name))
    matchers = (f"{name}={quoted(value)}" for name, value in named if name != "__name__")
    return f"{layout.memory}{{{','.join(matchers)}}}[{range_s}s]"


def clusters(layout: Layout, matchers: str) -> str:
    """How many containers each pod has now, in each cluster as far as labels tell."""
    names = layout.names
    by = ", ".join(dict.fromkeys((*layout.cluster_labels, names.namespace, names.pod)))
    return f"count by ({by}) (count by ({by}, {names.container}) ({layout.memory}{{{matchers}}}))"


def disputed_cores(layout: Layout, matchers: str, window_s: int, least: int) -> str:
    """The means of CPU over a window, of containers of which copies differ by more than a tenth and 0.05 cores.

    Copies are what scrape jobs and replicas make. Only those count that have at least so many samples in the window:
    a mean over a part of it rightly differs.
    """
    whole = (
        f"rate({layout.cpu}{{{matchers}}}[{window_s}s]) and count_over_time({layout.cpu}{{{matchers}}}[{window_s}s])"
    )
    return _disputed(layout, f"sum without (cpu) ({whole} >= {least})", "0.05")


def disputed_bytes(layout: Layout, matchers: str, window_s: int, least: int) -> str:
    """The same of memory, where copies differ by more than a tenth and 16 MiB."""
    series = f"{layout.memory}{{{matchers}}}[{window_s}s]"
    return _disputed(layout, f"avg_over_time({series}) and count_over_time({series}) >= {least}", "16777216")


def copied(layout: Layout, matchers: str, sources: str) -> str:
    """How many containers are there several times, by what made the copies: `of="sources"` where these labels differ,
    `of="series"` where any do. Empty where each is there once."""
    by = _by(layout)
    each = f"{layout.memory}{{{matchers}}}"
    counts = (
        f"count(count by ({by}) (count by ({by}, {sources}) ({each})) > 1)",
        f"count(count by ({by}) (max without ({_OF_A_CGROUP}) ({each})) > 1)",
    )
    named = zip(counts, ("sources", "series"), strict=True)
    return " or ".join(f'label_replace({count}, "of", "{of}", "", "")' for count, of in named)


def moved(layout: Layout, matchers: str, sources: str, before_s: int) -> str:
    """Memory series that come from another source than so long ago, by container and `sources`: labels that say which.

    Empty for a container that has been scraped by one of them at both times, or was not there before.
    """
    by = _by(layout)
    now = f"count by ({by}, {sources}) ({layout.memory}{{{matchers}}})"
    before = f"count by ({by}, {sources}) ({layout.memory}{{{matchers}}} offset {before_s}s)"
    return f"{now} and on ({by}) {before} unless on ({by}) ({now} and {before})"


def owners(layout: Layout) -> str:
    """How many pods kube-state-metrics names the owners of, in this cluster, however it is scraped."""
    return f"count({OWNER}{{{','.join(layout.cluster)}}})"


def at_most(query: str, series: int) -> str:
    """The query where it finds no more than so many series. Where it finds more, their number alone, with the label
    `TOO_MANY`: the answer is small either way."""
    # on lines of their own, as a query may end with a comment
    number = f'label_replace(count(\n{query}\n) > {series}, "{TOO_MANY}", "series", "", "")'
    return f"((\n{query}\n) and on () (count(\n{query}\n) <= {series})) or {number}"


def in_cluster(query: str, cluster: Collection[str]) -> str:
    """A policy's query with the matchers of the cluster in place of `$cluster`. None: there is one cluster alone."""
    return query.replace("$cluster", ",".join(cluster) or _ANY_CLUSTER)


def one_of(values: Collection[str]) -> str:
    """A quoted regular expression that matches these values and nothing else."""
    return quoted("|".join(_RE2_SPECIAL.sub(r"\\\g<0>", value) for value in sorted(values)))


def quoted(text: str) -> str:
    """The text as a PromQL string."""
    # PromQL reads double-quoted strings by Go's rules, of which JSON's escapes are a part
    return json.dumps(text, ensure_ascii=False)


def _by(layout: Layout) -> str:
    return ", ".join(layout.names)


def _disputed(layout: Layout, means: str, tolerance: str) -> str:
    by = _by(layout)
    copies = f"max without ({_OF_A_CGROUP}) ({means})"
    return f"{copies} and on ({by}) (0.9 * max by ({by}) ({copies}) - {tolerance} > min by ({by}) ({copies}))"


def _cores(layout: Layout, matchers: str, window_s: int) -> str:
    return f"sum without (cpu) (rate({layout.cpu}{{{matchers}}}[{window_s}s]))"
