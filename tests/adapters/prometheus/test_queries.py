import inspect
import re
from collections.abc import Collection

import promql_parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.adapters.prometheus import clusters, queries, ranges, survey
from autoscaler.adapters.prometheus.layout import (
    PRESETS,
    VARIANTS,
    Layout,
    Names,
    Variant,
    checked_label,
    checked_metric,
    matchers_of,
)
from autoscaler.adapters.prometheus.population import Population
from autoscaler.core.model import PodRef
from tests.rig.prometheus_server import PrometheusServer

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1, max_size=20)
PLAIN = Layout(variants=VARIANTS[:1])
NAMES = st.lists(TEXT, min_size=1, max_size=4, unique=True)


def parsed_matchers(selector: str) -> dict[str, list[tuple[str, str]]]:
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


def built(layout: Layout, namespaces: Collection[str] = ("sim", "lab"), pods: Collection[str] = ("a.b-0",)) -> set[str]:
    """Every query that can be built."""
    found = set()
    for variant in layout.variants:
        one = clusters.of_cluster(layout.labelled(variant), {"cluster": "eu"})
        cluster = one.cluster
        for selector in (queries.selector(one, namespaces), queries.selector(one, namespaces, pods)):
            found |= {
                queries.cpu(one, selector, 300),
                queries.memory(one, selector, 60),
                queries.in_use(one, selector, 60),
                queries.most_scraped(one, selector, 600),
                queries.raw_samples(one, dict(zip(namespaces, pods, strict=False)), 600),
                queries.clusters(layout.labelled(variant), selector),
                queries.disputed_cores(one, selector, 600, 16),
                queries.disputed_bytes(one, selector, 600, 16),
                queries.moved(one, selector, "job, metrics_path", 7200),
                queries.owners(one),
                queries.copied(one, selector, "job, metrics_path"),
                queries.at_most(queries.in_cluster("max by (namespace, pod) (frames{$cluster})", cluster), 1000),
            }
    return found


def test_all_that_is_asked_for_is_in_the_list_above() -> None:
    parts = {"selector", "of_pods", "few", "one_of", "quoted"}
    public = {name for name, one in vars(queries).items() if inspect.isfunction(one) and not name.startswith("_")}
    assert public - parts == set(re.findall(r"queries\.(\w+)", inspect.getsource(built))) - parts


@pytest.mark.parametrize("preset", PRESETS)
def test_every_query_of_a_preset_is_promql(preset: str) -> None:
    for query in built(PRESETS[preset]):
        promql_parser.parse(query)


@pytest.mark.rig
@pytest.mark.parametrize("preset", PRESETS)
def test_every_query_of_a_preset_is_answered(prometheus: PrometheusServer, preset: str) -> None:
    for query in built(PRESETS[preset]):
        prometheus.query(query)


# keywords of PromQL among them
LABELS = st.one_of(
    st.sampled_from(
        ["by", "on", "bool", "and", "or", "offset", "without", "inf", "nan", "group_left", "sum", "smoothed", "AtAn2"]
    ),
    st.text(max_size=9),
)
METRICS = st.one_of(LABELS, st.from_regex("[a-z_:0-9]{1,9}", fullmatch=True))
MATCHERS = st.lists(
    st.tuples(LABELS, st.sampled_from(["=", "!=", "=~", "!~", "~"]), st.text("ab\\\"'.|,{}n \n", max_size=5)),
    max_size=3,
)


@settings(max_examples=500)
@given(METRICS, st.tuples(LABELS, LABELS, LABELS), MATCHERS, st.sampled_from("\"'"))
def test_whatever_settings_accept_is_promql(
    metric: str, labels: tuple[str, str, str], matchers: list[tuple[str, str, str]], quote: str
) -> None:
    text = ", ".join(f"{label}{operator}{quote}{value}{quote}" for label, operator, value in matchers)
    try:
        metric = checked_metric(metric)
        variant = Variant(Names(*map(checked_label, labels)))
        layout = Layout(metric, metric, metric, (variant,), matchers_of(text))
    except ValueError:
        return
    for query in built(layout):
        try:
            promql_parser.parse(query)
        except ValueError as error:
            if "regex" not in str(error):  # of which only a server is the judge
                raise


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('job="kubelet"', ('job="kubelet"',)),
        (" job = 'a,b' ,x!~\"c|d\"", ("job='a,b'", 'x!~"c|d"')),
        (r'x=~"a\\.b"', (r'x=~"a\\.b"',)),
        ("", ()),
    ],
)
def test_matchers_are_read_one_by_one(text: str, found: tuple[str, ...]) -> None:
    assert matchers_of(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "job=kubelet",
        'job="a" x="b"',
        'job="a",',
        '{job="a"}',
        'job="a"}) or vector(1',
        '__name__="x"',
        '"job"="a"',
        'job="a\n"',
    ],
)
def test_what_is_no_matcher_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="matcher"):
        matchers_of(text)


@given(NAMES, NAMES)
def test_any_name_can_be_asked_for(namespaces: list[str], pods: list[str]) -> None:
    selector = queries.selector(PLAIN, namespaces, pods)
    for query in (
        queries.cpu(PLAIN, selector, 300),
        queries.memory(PLAIN, selector, 60),
        queries.most_scraped(PLAIN, selector, 600),
    ):
        promql_parser.parse(query)
    promql_parser.parse(queries.raw_samples(PLAIN, dict(zip(namespaces, pods, strict=False)), 600))


@given(NAMES, TEXT)
def test_a_selector_matches_its_names_and_nothing_else(names: list[str], other: str) -> None:
    ((operator, pattern),) = parsed_matchers(queries.selector(PLAIN, names))["namespace"]
    assert operator == "MatchOp.Re"
    # Python's and RE2's readings agree on escaped punctuation and on literals
    assert all(re.fullmatch(pattern, name) for name in names)
    assert bool(re.fullmatch(pattern, other)) == (other in names)


def test_containers_that_a_query_selects_are_counted_with_those_that_nobody_follows() -> None:
    followed = {PodRef("a", "sim-0"), PodRef("b", "sim-1")}
    counted = {**dict.fromkeys(followed, 2), PodRef("a", "sim-1"): 3, PodRef("a", "other"): 5, PodRef("c", "sim-0"): 7}
    population = Population(counted)
    assert population.selected(followed) == 2 + 2 + 3  # by the names of both in both namespaces
    assert population.selected(followed, most_letters=1) == population.of_namespaces({"a", "b"}) == 2 + 2 + 3 + 5
    assert Population().selected(followed) == 2


@pytest.mark.parametrize("query", ["frames", "a or b", "sum by (pod) (a) > 3 # of all pods"])
def test_what_bounds_an_answer_is_promql_around_any_query(query: str) -> None:
    promql_parser.parse(queries.at_most(query, 100))


def test_no_query_is_longer_than_any_server_reads() -> None:
    """VictoriaMetrics' limit, which is the narrowest, for names of any length."""
    for letters, count in ((63, 190), (63, 30), (10, 249), (10, 2000), (200, 59)):
        pods = {PodRef("sim", f"{i:0{letters}}") for i in range(count)}
        some = queries.of_pods(PLAIN, pods)
        copies = queries.of_pods(PLAIN, pods, ranges.MOST_LETTERS // survey._TIMES_SELECTED)
        for query in (queries.cpu(PLAIN, some, 300), queries.disputed_cores(PLAIN, copies, 600, 16)):
            assert len(query) <= 16 << 10
            assert copies.count("|") <= some.count("|")
