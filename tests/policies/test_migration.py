"""What a policy says about moving pods, what it becomes, and what is refused or warned about with which words."""

from __future__ import annotations

from datetime import timedelta

import promql_parser
import pytest

from autoscaler.adapters.sessions.query import asked, names_namespace
from autoscaler.core.policy import DrainPolicy, FallbackAction, Landing, Migration, PodEndpoint, Strategy
from tests.policies.documents import faults, read

SIM = "selector: {namespaces: [sim]}\n"
MOVING = SIM + "mode: ResizeOrMigrate\n"
QUERY = 'sum by (namespace, pod) (bridge_sessions{pod=~"$pod"})'


@pytest.mark.parametrize(
    ("mode", "action"),
    [
        ("Off", FallbackAction.REVERT),
        ("Recommend", FallbackAction.REVERT),
        ("Resize", FallbackAction.REVERT),
        ("ResizeOrMigrate", FallbackAction.MIGRATE),
    ],
)
def test_what_follows_a_deadline_depends_on_the_mode_unless_it_is_said(mode: str, action: FallbackAction) -> None:
    assert read(f"{SIM}mode: {mode}").policy.fallback.action is action
    assert read(f"{SIM}mode: {mode}\nfallback: {{action: Hold}}").policy.fallback.action is FallbackAction.HOLD


def test_moving_has_the_defaults_of_the_core() -> None:
    loaded = read(MOVING)
    assert loaded.policy.fallback.migration == Migration()
    assert loaded.warnings == ()


def test_everything_about_moving_arrives_in_the_core() -> None:
    loaded = read(f"""
        selector: {{namespaces: [sim]}}
        mode: ResizeOrMigrate
        fallback:
          action: Migrate
          strategy: Surge
          landing: Some
          minPodAge: 2h
          readyWithin: 3m
          drain:
            query: {QUERY}
            notify: {{port: 9000, path: "/drain?by=size"}}
            maxWait: 30m
            thenForce: true
        """)
    assert loaded.policy.fallback.migration == Migration(
        strategy=Strategy.SURGE,
        landing=Landing.SOME,
        min_pod_age=timedelta(hours=2),
        ready_within=timedelta(minutes=3),
        drain=DrainPolicy(
            query=QUERY,
            notify=PodEndpoint(9000, "/drain?by=size"),
            max_wait=timedelta(minutes=30),
            then_force=True,
        ),
    )
    assert [warning.path for warning in loaded.warnings] == ["spec.fallback.landing"]  # which a surge does not need


def test_an_endpoint_has_a_path_of_its_own_or_none() -> None:
    migration = read(MOVING + "fallback: {drain: {endpoint: {port: 80}}}").policy.fallback.migration
    assert migration.drain == DrainPolicy(endpoint=PodEndpoint(80, "/"))


@pytest.mark.parametrize(
    ("fallback", "expected"),
    [
        ("drain: {}", "drain: does not say how sessions are counted; give it query or endpoint"),
        (
            "drain: {notify: {port: 80}, maxWait: 1m}",
            "drain: does not say how sessions are counted; give it query or endpoint",
        ),
        (
            f"drain: {{query: '{QUERY}', endpoint: {{port: 80}}}}",
            "drain.endpoint: sessions are counted by query already; leave one of the two out",
        ),
        ("drain: {endpoint: {path: /}}", "drain.endpoint.port: is missing, and has no default"),
        ("drain: {endpoint: {port: 0}}", "drain.endpoint.port: 0 is not a port; write a number from 1 to 65535"),
        (
            "drain: {endpoint: {port: 65536}}",
            "drain.endpoint.port: 65536 is not a port; write a number from 1 to 65535",
        ),
        (
            "drain: {endpoint: {port: http}}",
            "drain.endpoint.port: 'http' is not a port; write a number from 1 to 65535",
        ),
        ("drain: {endpoint: {port: true}}", "drain.endpoint.port: True is not a port; write a number from 1 to 65535"),
        (
            "drain: {endpoint: {port: 80, path: sessions}}",
            "drain.endpoint.path: 'sessions' is not a path; write it like /sessions, without spaces and #",
        ),
        (
            'drain: {endpoint: {port: 80}, notify: {port: 80, path: "/a b"}}',
            "drain.notify.path: '/a b' is not a path; write it like /sessions, without spaces and #",
        ),
        (
            'drain: {endpoint: {port: 80, path: "/a\\r\\nHost: b"}}',
            "drain.endpoint.path: '/a\\r\\nHost: b' is not a path; write it like /sessions, without spaces and #",
        ),
        (
            'drain: {endpoint: {port: 80, path: "/#top"}}',
            "drain.endpoint.path: '/#top' is not a path; write it like /sessions, without spaces and #",
        ),
        (
            "drain: {endpoint: {port: 80, host: example.com}}",
            "drain.endpoint.host: unknown key; allowed: port, path",
        ),
        ("drain: {endpoint: {port: 80}, maxWait: 31d}", "drain.maxWait: 31d is out of range; write 0s to 30d"),
        ("drain: {endpoint: {port: 80}, maxWait: 60}", None),
        ("minPodAge: 31d", "minPodAge: 31d is out of range; write 0s to 30d"),
        ("strategy: Surge, readyWithin: 0s", "readyWithin: 0s is out of range; write 1s to 30d"),
        ("strategy: evict", "strategy: 'evict' is not allowed (did you mean Evict?); allowed: Evict, Surge, None"),
        ("landing: All", "landing: 'All' is not allowed; allowed: Every, Some"),
    ],
)
def test_what_cannot_be_meant_is_refused(fallback: str, expected: str | None) -> None:
    expected = expected or "drain.maxWait: 60 is not a duration; write a number with its unit, like 90s, 1h30m or 14d"
    assert faults(f"{MOVING}fallback: {{{fallback}}}") == [f"p.yaml:7: spec.fallback.{expected}"]


_SELECTS = 'does not select pods; write pod=~"$pod", like ' + QUERY


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sum by (pod) (bridge_sessions)", _SELECTS),
        ('bridge_sessions{pod="$pod"}', _SELECTS),
        ('bridge_sessions{pod!~"$pod"}', _SELECTS),
        ("bridge_sessions{pod=~$pod}", _SELECTS),
        ("", _SELECTS),
        (
            'rate(a{pod=~"$pod"}[$__rate_interval])',
            "'$__rate_interval' is not known; there are $pod, $namespace and $cluster",
        ),
        ('a{pod=~"${pod}"}', "'${pod}' is not known; there are $pod, $namespace and $cluster"),
        (
            'a{pod=~"$pod",cluster="$cluster"}',
            '$cluster stands for whole matchers; write it without quotes, like {pod=~"$pod",$cluster}',
        ),
        ('a{pod=~"$pods"}', "'$pods' is not known; there are $pod, $namespace and $cluster"),
        ('sum(a{pod=~"$pod"}', "'(' is not closed"),
        ('sum(a{pod=~"$pod")', "')' closes no bracket"),
        ('a{pod=~"$pod"}]', "']' closes no bracket"),
        ('a{pod=~"$pod}', "a quote is not closed"),
    ],
)
def test_a_query_is_looked_at_before_it_is_asked(query: str, expected: str) -> None:
    spec = f"{MOVING}fallback:\n  drain:\n    query: |-\n      {query}\n"
    assert faults(spec) == [f"p.yaml:9: spec.fallback.drain.query: {expected}"]


@pytest.mark.parametrize(
    "query",
    [
        QUERY,
        "bridge_sessions{pod=~'$pod'}",
        "bridge_sessions{pod =~ `$pod`}",
        'label_replace(a{exported_pod=~"$pod",b!~"(.*)$"}, "pod", "$1", "exported_pod", "(.*)")',
        'a{pod=~"$pod", namespace=~"$namespace", text="( [ \\" \'"} # (not closed',
    ],
)
def test_a_query_for_some_pods_is_promql(query: str) -> None:
    assert faults(f"{MOVING}fallback:\n  drain:\n    query: |-\n      {query}\n") == []
    written = asked(query, "sim", ["b.1", "a-0"])
    promql_parser.parse(written)
    assert "(?:a-0|b[.]1)" in written
    assert ("(?:sim)" in written) is names_namespace(query)


@pytest.mark.parametrize(
    ("mode", "fallback", "expected"),
    [
        ("Recommend", "action: Migrate, drain: {endpoint: {port: 80}}", []),
        (
            "Resize",
            "action: Migrate",
            [
                "7: spec.fallback.action: Migrate moves no pod in mode Resize: the resize waits on; "
                "write mode: ResizeOrMigrate"
            ],
        ),
        (
            "ResizeOrMigrate",
            "action: Revert",
            [
                "6: spec.mode: ResizeOrMigrate moves no pod, as fallback.action is Revert; leave that out, "
                "or write mode: Resize"
            ],
        ),
        (
            "Recommend",
            "strategy: None, landing: Some, minPodAge: 1h, readyWithin: 1m, drain: {endpoint: {port: 80}}",
            [
                f"7: spec.fallback.{key}: has no effect, as fallback.action is Revert"
                for key in ("strategy", "landing", "minPodAge", "readyWithin", "drain")
            ],
        ),
        ("ResizeOrMigrate", "readyWithin: 1m", ["7: spec.fallback.readyWithin: has no effect, as strategy is Evict"]),
        ("ResizeOrMigrate", "strategy: Surge, readyWithin: 1m", []),
        (
            "ResizeOrMigrate",
            "strategy: Surge, landing: Some",
            ["7: spec.fallback.landing: has no effect, as strategy is Surge"],
        ),
        (
            "ResizeOrMigrate",
            "strategy: None, drain: {endpoint: {port: 80}, notify: {port: 80}}",
            ["7: spec.fallback.drain.notify: has no effect, as strategy is None"],
        ),
        (
            "ResizeOrMigrate",
            "drain: {endpoint: {port: 80}, maxWait: 0s, thenForce: true}",
            ["7: spec.fallback.drain: has no effect, as maxWait is 0s and thenForce is true"],
        ),
        ("ResizeOrMigrate", "drain: {endpoint: {port: 80}, maxWait: 0s}", []),
    ],
)
def test_what_has_no_effect_is_warned_about(mode: str, fallback: str, expected: list[str]) -> None:
    loaded = read(f"{SIM}mode: {mode}\nfallback: {{{fallback}}}")
    assert [str(warning) for warning in loaded.warnings] == [f"p.yaml:{line}" for line in expected]
