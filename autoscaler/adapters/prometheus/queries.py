"""The PromQL that is asked for. Pure text.

Shape of the queries: filters drop pod cgroups and pause containers, `max by` collapses duplicates (two scrape jobs, an
HA pair, kubelet and cAdvisor exporting the same names), so that nothing is counted twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

CPU = "container_cpu_usage_seconds_total"  # counter, core-seconds (kubelet /metrics/cadvisor and /metrics/resource)
MEMORY = "container_memory_working_set_bytes"  # gauge, bytes
IN_USE = "container_memory_usage_bytes"  # gauge, bytes, page cache included (kubelet /metrics/cadvisor alone)

_BY = "namespace, pod, container"
_RE2_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def selector(namespaces: Collection[str], pods: Collection[str] = ()) -> str:
    """The label matchers for containers in these namespaces; without pods: all of them."""
    matchers = [f"namespace=~{_one_of(namespaces)}"]
    if pods:
        matchers.append(f"pod=~{_one_of(pods)}")
    return ",".join((*matchers, 'container!=""', 'container!="POD"'))


def cpu(matchers: str, rate_window_s: int) -> str:
    """Cores used by each container: the mean over the window that ends at the instant asked for."""
    return f"max by ({_BY}) (sum without (cpu) (rate({CPU}{{{matchers}}}[{rate_window_s}s])))"


def memory(matchers: str, step_s: int) -> str:
    """Working set of each container in bytes: the maximum since the previous step."""
    return f"max by ({_BY}) (max_over_time({MEMORY}{{{matchers}}}[{step_s}s]))"


def in_use(matchers: str, range_s: int) -> str:
    """Memory of each container with page cache, in bytes: the greatest of its newest samples."""
    return f"max by ({_BY}) (max_over_time({IN_USE}{{{matchers}}}[{range_s}s]))"


def newest_series(matchers: str) -> str:
    """The memory series that was scraped last; its value is the unix time of that scrape."""
    return f"topk(1, timestamp({MEMORY}{{{matchers}}}))"


def raw_samples(labels: Mapping[str, str], range_s: int) -> str:
    """The samples of the memory series with these labels, as they were scraped.

    Labels whose names need the quoting of Prometheus 3 are left out: older servers would refuse the query.
    """
    matchers = (f"{name}={_quote(value)}" for name, value in sorted(labels.items()) if _LABEL_NAME.fullmatch(name))
    return f"{MEMORY}{{{','.join(matchers)}}}[{range_s}s]"


def _one_of(values: Collection[str]) -> str:
    return _quote("|".join(_RE2_SPECIAL.sub(r"\\\g<0>", value) for value in sorted(values)))


def _quote(text: str) -> str:
    # PromQL reads double-quoted strings by Go's rules, of which JSON's escapes are a part
    return json.dumps(text, ensure_ascii=False)
