import re

import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.adapters.prometheus import queries
from autoscaler.adapters.prometheus.layout import VARIANTS, Layout

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1, max_size=20)
PLAIN = Layout(variants=VARIANTS[:1])
NAMES = st.lists(TEXT, min_size=1, max_size=4, unique=True)


def matchers_of(selector: str) -> dict[str, list[tuple[str, str]]]:
    parsed = promql_parser.parse(f"m{{{selector}}}")
    assert isinstance(parsed, promql_parser.VectorSelector)
    found: dict[str, list[tuple[str, str]]] = {}
    for matcher in parsed.matchers.matchers:
        found.setdefault(matcher.name, []).append((str(matcher.op), matcher.value))
    return found


def test_cpu_query() -> None:
    assert queries.cpu(PLAIN, queries.selector(PLAIN, ["sim", "lab"]), 300) == (
        "max by (namespace, pod, container) (sum without (cpu) (rate(container_cpu_usage_seconds_total"
        '{namespace=~"lab|sim",container!="",container!="POD",exported_namespace="",exported_pod=""}[300s])))'
    )


def test_memory_query() -> None:
    assert queries.memory(PLAIN, queries.selector(PLAIN, ["sim"], ["b-0", "a.b-1"]), 60) == (
        "max by (namespace, pod, container) (max_over_time(container_memory_working_set_bytes"
        r'{namespace=~"sim",pod=~"a\\.b-1|b-0",container!="",container!="POD",exported_namespace="",exported_pod=""}[60s]))'
    )


def test_query_of_memory_in_use() -> None:
    assert queries.in_use(PLAIN, queries.selector(PLAIN, ["sim"]), 60) == (
        "max by (namespace, pod, container) (max_over_time(container_memory_usage_bytes"
        '{namespace=~"sim",container!="",container!="POD",exported_namespace="",exported_pod=""}[60s]))'
    )


def test_raw_samples_leave_out_names_that_only_prometheus_3_can_read() -> None:
    labels = {"pod": 'a"b', "k8s.node": "n", "job": "kubelet"}
    assert queries.raw_samples(PLAIN, labels, 600) == (
        r'container_memory_working_set_bytes{job="kubelet",pod="a\"b"}[600s]'
    )


@pytest.mark.parametrize(
    "query",
    [
        queries.cpu(PLAIN, queries.selector(PLAIN, ["sim"]), 1),
        queries.memory(PLAIN, queries.selector(PLAIN, ["a", "b"], ["p"]), 300),
        queries.in_use(PLAIN, queries.selector(PLAIN, ["sim"]), 60),
        queries.newest_series(PLAIN, queries.selector(PLAIN, ["sim"])),
        queries.raw_samples(PLAIN, {"namespace": "sim", "pod": "p"}, 600),
        queries.raw_samples(PLAIN, {}, 600),
    ],
)
def test_every_query_is_promql(query: str) -> None:
    promql_parser.parse(query)


@given(NAMES, NAMES)
def test_any_name_can_be_asked_for(namespaces: list[str], pods: list[str]) -> None:
    selector = queries.selector(PLAIN, namespaces, pods)
    for query in (
        queries.cpu(PLAIN, selector, 300),
        queries.memory(PLAIN, selector, 60),
        queries.newest_series(PLAIN, selector),
    ):
        promql_parser.parse(query)
    promql_parser.parse(queries.raw_samples(PLAIN, dict(zip(namespaces, pods, strict=False)), 600))


@given(NAMES, TEXT)
def test_a_selector_matches_its_names_and_nothing_else(names: list[str], other: str) -> None:
    ((operator, pattern),) = matchers_of(queries.selector(PLAIN, names))["namespace"]
    assert operator == "MatchOp.Re"
    # Python's and RE2's readings agree on escaped punctuation and on literals
    assert all(re.fullmatch(pattern, name) for name in names)
    assert bool(re.fullmatch(pattern, other)) == (other in names)
