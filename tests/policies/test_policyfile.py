"""What a policy may say, what it becomes, and what is refused with which words."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import timedelta
from typing import ClassVar

import pytest

from autoscaler.core.labels import LabelSelector, Operator, Requirement
from autoscaler.core.model import Resource, ResourceList
from autoscaler.core.policy import (
    ByDirection,
    ContainerPolicy,
    LimitMode,
    Mode,
    Policy,
    Selector,
    Stability,
)
from autoscaler.core.recommender import Abstain, Grid, Samples, Situation, WindowRecommender
from autoscaler.core.units import Bytes, Millicores
from autoscaler.plugins import Catalog
from autoscaler.policyfile import read_policy
from autoscaler.recommenders.bridge import Bridge
from autoscaler.recommenders.bridge_parameters import BridgeParameters
from autoscaler.recommenders.parameters import Parameters
from autoscaler.strictyaml import Refused, load_documents
from tests.policies.documents import CATALOG, faults, policy_text, read

ALL = 'selector: {namespaces: ["*"]}\n'
SIM = "selector: {namespaces: [sim]}\n"


def test_defaults_are_those_of_the_core() -> None:
    policy = read(ALL).policy
    default = Policy("bridges", policy.recommender, source="p.yaml:1")
    assert policy == default
    assert isinstance(policy.recommender, Bridge)
    assert policy.recommender.params == BridgeParameters()


def test_everything_arrives_in_the_core() -> None:
    policy = read("""
        selector:
          namespaces: [sim, staging]
          matchLabels: {app.kubernetes.io/component: bridge}
          matchExpressions:
          - {key: tier, operator: NotIn, values: [test]}
          - {key: gpu, operator: Exists}
        mode: Resize
        recommender: {name: percentile, parameters: {cpu: {target: p99.9, margin: 0.2}, minHistory: 1h}}
        containers:
        - {name: recorder, mode: Off}
        - name: "*"
          controlledResources: [memory]
          minAllowed: {memory: 256Mi}
          maxAllowed: {memory: 16Gi}
          limits: RequestsOnly
        metrics: {lookback: 8d, step: 30s, rateWindow: 10m}
        stability:
          minChange: {increase: 1%}
          maxStep: {increase: 150%, decrease: 0.5}
          cooldown: {decrease: 1h30m}
        """).policy
    assert policy.selector == Selector(
        frozenset({"sim", "staging"}),
        LabelSelector(
            (("app.kubernetes.io/component", "bridge"),),
            (Requirement("tier", Operator.NOT_IN, frozenset({"test"})), Requirement("gpu", Operator.EXISTS)),
        ),
    )
    assert policy.mode is Mode.RESIZE
    assert policy.containers == (
        ContainerPolicy("recorder", managed=False),
        ContainerPolicy(
            "*",
            controlled=frozenset({Resource.MEMORY}),
            min_allowed=ResourceList(memory=Bytes(256 << 20)),
            max_allowed=ResourceList(memory=Bytes(16 << 30)),
            limits=LimitMode.REQUESTS_ONLY,
        ),
    )
    assert policy.grid == Grid(step=30, lookback=8 * 86400)
    assert policy.rate_window == timedelta(minutes=10)
    assert policy.stability == Stability(
        ByDirection(0.01, 0.1), ByDirection(1.5, 0.5), ByDirection(timedelta(seconds=30), timedelta(minutes=90))
    )
    assert policy.recommender.params.cpu.target.text == "p99.9"
    assert policy.recommender.params.cpu.margin == 0.2


@pytest.mark.parametrize(
    ("written", "millicores"), [("2", 2000), ("0.5", 500), ("100m", 100), ('"1.5"', 1500), ("1e1", 10000)]
)
def test_numbers_count_as_quantities(written: str, millicores: int) -> None:
    policy = read(f'{SIM}containers: [{{name: "*", minAllowed: {{cpu: {written}}}}}]').policy
    assert policy.containers[0].min_allowed.cpu == Millicores(millicores)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("mode: Recommend", ["p.yaml:4: spec.selector: is missing, and has no default"]),
        (
            "selector: {}",
            ['p.yaml:5: spec.selector: selects every pod of the cluster; if that is meant, write namespaces: ["*"]'],
        ),
        (
            "selector: {matchLabels: {}}",
            ['p.yaml:5: spec.selector: selects every pod of the cluster; if that is meant, write namespaces: ["*"]'],
        ),
        (
            'selector: {namespaces: ["*", sim]}',
            ['p.yaml:5: spec.selector.namespaces: "*" already means every namespace; leave the others out'],
        ),
        (
            "selector: {namespaces: [sim-*]}",
            [
                "p.yaml:5: spec.selector.namespaces[0]: 'sim-*' is not a namespace; write names in full, "
                'or "*" alone for all'
            ],
        ),
        (
            "selector: {matchLables: {a: b}}",
            [
                "p.yaml:5: spec.selector.matchLables: unknown key (did you mean matchLabels?); "
                "allowed: namespaces, matchLabels, matchExpressions"
            ],
        ),
        (
            "selector: {matchLabels: {version: 1.1}}",
            ["p.yaml:5: spec.selector.matchLabels.version: is the number 1.1; expected text; put it in quotes"],
        ),
        (
            "selector: {matchLabels: {a b: c}}",
            [
                "p.yaml:5: spec.selector.matchLabels[\"a b\"]: 'a b' is not a label key; "
                "write it like component or app.kubernetes.io/component"
            ],
        ),
        (
            "selector: {matchLabels: {a: -}}",
            ["p.yaml:5: spec.selector.matchLabels.a: '-' is not a label value; at most 63 letters, digits, -, _ and ."],
        ),
        (
            "selector: {matchExpressions: [{key: a, operator: In}, {key: b, operator: Exists, values: [c]}]}",
            [
                "p.yaml:5: spec.selector.matchExpressions[0].values: operator In needs at least one value",
                "p.yaml:5: spec.selector.matchExpressions[1].values: operator Exists takes no values; leave them out",
            ],
        ),
        (
            SIM + "mode: resize",
            [
                "p.yaml:6: spec.mode: 'resize' is not allowed (did you mean Resize?); "
                "allowed: Off, Recommend, Resize, ResizeOrMigrate"
            ],
        ),
        (
            SIM + "fallback: {after: 0s, infeasibleAfter: 31d, action: Evict}",
            ["p.yaml:6: spec.fallback.action: 'Evict' is not allowed; allowed: Revert, Hold, Migrate"],
        ),
        (
            SIM + "fallback: {after: 0s, infeasibleAfter: 31d}",
            [
                "p.yaml:6: spec.fallback.after: 0s is out of range; write 1s to 30d",
                "p.yaml:6: spec.fallback.infeasibleAfter: 31d is out of range; write 1s to 30d",
            ],
        ),
        (
            SIM + "schedule: {}",
            [
                "p.yaml:6: spec.schedule: unknown key; "
                "allowed: selector, mode, recommender, containers, metrics, stability, fallback"
            ],
        ),
        (
            SIM + "recommender: {name: percentil}",
            [
                "p.yaml:6: spec.recommender.name: no recommender 'percentil' is installed (did you mean percentile?); "
                "installed: bridge, percentile"
            ],
        ),
        (
            SIM + "recommender:\n  name: percentile\n  parameters:\n    cpu: {target: p101}\n    memori: {}\n",
            [
                "p.yaml:9: spec.recommender.parameters.cpu.target: 'p101' is not a percentile; "
                "write it like p95 or p99.9, or max",
                "p.yaml:10: spec.recommender.parameters.memori: unknown key (did you mean memory?); "
                "allowed: cpu, memory, minHistory, deadBand, oom",
            ],
        ),
        (
            SIM + "recommender: {name: percentile, parameters: {cpu: {halfLife: 0s}}}",
            ["p.yaml:6: spec.recommender.parameters.cpu.halfLife: 0s is out of range; write 1s to 365d"],
        ),
        (
            SIM + "metrics: {lookback: 10m}",
            [
                "p.yaml:6: spec.metrics.lookback: 10m is shorter than the 1h of history that recommender bridge "
                "needs; write at least 1h"
            ],
        ),
        (
            SIM + "containers: []",
            ['p.yaml:6: spec.containers: is empty: no container would be sized; leave the key out, or use name: "*"'],
        ),
        (SIM + "containers: {}", ["p.yaml:6: spec.containers: is a mapping; expected a list"]),
        (SIM + "containers:", ["p.yaml:6: spec.containers: has no value; give it one, or leave the key out"]),
        (SIM + "containers: [{}]", ["p.yaml:6: spec.containers[0].name: is missing, and has no default"]),
        (
            SIM + "containers: [{name: A}]",
            [
                "p.yaml:6: spec.containers[0].name: 'A' is not a container name; use lower-case letters, digits and -, "
                "or a pattern with * and ?"
            ],
        ),
        (
            SIM + 'containers:\n- name: "*"\n- name: a-*\n- name: b\n- name: b\n',
            [
                'p.yaml:8: spec.containers[1].name: a-* is never reached: "*" comes first; move it up',
                "p.yaml:10: spec.containers[3].name: b has an entry already: containers[2]",
            ],
        ),
        (
            SIM + "containers: [{name: a, controlledResources: []}]",
            [
                "p.yaml:6: spec.containers[0].controlledResources: is empty; "
                "to leave the container alone write mode: Off"
            ],
        ),
        (
            SIM + "containers: [{name: a, minAllowed: {memory: true, cpu: 0}}]",
            [
                "p.yaml:6: spec.containers[0].minAllowed.cpu: 0 is no bound; leave the key out",
                "p.yaml:6: spec.containers[0].minAllowed.memory: True is not a quantity; write it like 256Mi or 4Gi",
            ],
        ),
        (
            SIM + "metrics: {step: 30}",
            ["p.yaml:6: spec.metrics.step: 30 is not a duration; write a number with its unit, like 90s, 1h30m or 14d"],
        ),
        (
            SIM + "metrics: {step: 7s}",
            [
                "p.yaml:6: spec.metrics.step: 7s: write a step that divides 5m (15s, 30s, 1m), "
                "or a multiple of 5m up to 1h"
            ],
        ),
        (
            SIM + "metrics: {step: 2h, rateWindow: 2h}",
            [
                "p.yaml:6: spec.metrics.step: 2h: write a step that divides 5m (15s, 30s, 1m), "
                "or a multiple of 5m up to 1h"
            ],
        ),
        (SIM + "metrics: {step: 500ms}", ["p.yaml:6: spec.metrics.step: 500ms: write whole seconds, at least 1s"]),
        (
            SIM + "metrics: {rateWindow: 30s}",
            ["p.yaml:6: spec.metrics.rateWindow: 30s is shorter than the step 1m: usage in between would not be seen"],
        ),
        (
            SIM + "metrics: {lookback: 5y, step: 30s}",
            [
                "p.yaml:6: spec.metrics.lookback: 1825d at 300 s are 525,600 samples a container; at most 30,000: "
                "shorten lookback or lengthen step"
            ],
        ),
        (
            SIM + "stability: {minChange: {decrease: 50%}}",
            [
                "p.yaml:6: spec.stability.maxStep.decrease: 30% is below minChange.decrease 50%: "
                "no decrease could be made"
            ],
        ),
        (
            SIM + "stability: {maxStep: {increase: 0, decrease: 120%}}",
            [
                "p.yaml:6: spec.stability.maxStep.decrease: more than 100% cannot be taken away",
                "p.yaml:6: spec.stability.maxStep.increase: 0 forbids every increase; raise it",
            ],
        ),
        (
            SIM + "stability: {minChange: 5%}",
            ["p.yaml:6: spec.stability.minChange: is the text '5%'; expected a mapping (key: value)"],
        ),
        (
            SIM + "stability: {minChange: {increase: 15}}",
            [
                "p.yaml:6: spec.stability.minChange.increase: 15 is not a ratio; write 15%, or 0.15 (at most 1000%)",
            ],
        ),
    ],
)
def test_refused(spec: str, expected: list[str]) -> None:
    assert faults(spec) == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            "minAllowed: {cpu: 2}, maxAllowed: {cpu: 1}",
            "minAllowed.cpu: 2 is above maxAllowed.cpu 1; lower one or raise the other",
        ),
        ("minAllowed: {cpu: 1500u}", "minAllowed.cpu: '1500u' is a fraction of a millicore; write it like 500m or 2"),
        (
            "maxAllowed: {memory: 500m}",
            "maxAllowed.memory: '500m' is a fraction of a byte (the suffix m means thousandths); "
            "write it like 256Mi or 4Gi",
        ),
        ("mode: Sometimes", "mode: 'Sometimes' is not allowed; allowed: Auto, Off"),
    ],
)
def test_what_vpa_refuses_at_admission_is_refused(entry: str, expected: str) -> None:
    assert faults(f"{SIM}containers: [{{name: a, {entry}}}]") == [f"p.yaml:6: spec.containers[0].{expected}"]


def test_all_faults_of_a_document_come_at_once() -> None:
    found = faults(SIM + "mode: On\ncontainers: [{name: a, limits: keep}]\nmetrics: {step: 1}\nunknown: 1\n")
    assert [fault.split(": ")[1] for fault in found] == [
        "spec.mode",
        "spec.containers[0].limits",
        "spec.metrics.step",
        "spec.unknown",
    ]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            SIM + "containers: [{name: a, mode: Off, limits: Keep, minAllowed: {cpu: 1}}]",
            [
                "p.yaml:6: spec.containers[0].minAllowed: has no effect, as mode is Off",
                "p.yaml:6: spec.containers[0].limits: has no effect, as mode is Off",
            ],
        ),
        (
            SIM + "containers: [{name: a, controlledResources: [cpu], maxAllowed: {memory: 1Gi}}]",
            ["p.yaml:6: spec.containers[0].maxAllowed.memory: has no effect, as controlledResources leaves memory out"],
        ),
        (
            SIM + "metrics: {rateWindow: 2m}",
            [
                "p.yaml:6: spec.metrics.rateWindow: 2m is shorter than the 300 s to which a look-back of this length "
                "is reduced: CPU peaks in between are not seen"
            ],
        ),
        (
            SIM + "metrics: {lookback: 7d}",
            [
                "p.yaml:6: spec.metrics.lookback: 7d is shorter than the 14d that recommender bridge remembers: "
                "a restart forgets some"
            ],
        ),
        (SIM, []),
    ],
)
def test_settings_without_effect_are_warned_about(spec: str, expected: list[str]) -> None:
    assert [str(warning) for warning in read(spec).warnings] == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("kind: Deployment\n", "p.yaml:1: kind: found 'Deployment'; expected BridgePolicy"),
        ("a: 1\n", "p.yaml:1: kind: is missing; expected BridgePolicy"),
        ("- a\n", "p.yaml:1: this is a list; expected a mapping with kind: BridgePolicy"),
        (
            "\nkind: BridgePolicy\napiVersion: v1\n",
            "p.yaml:3: apiVersion: found 'v1'; expected bridge-autoscaler.dev/v1alpha1",
        ),
    ],
)
def test_documents_of_another_kind(content: str, expected: str) -> None:
    (document,) = load_documents(content.encode(), "p.yaml")
    with pytest.raises(Refused) as raised:
        read_policy(document, CATALOG)
    assert str(raised.value) == expected


def test_the_source_of_a_policy_is_its_file_and_line() -> None:
    _, second = load_documents((policy_text() + "---\n" + policy_text(name="two")).encode(), "p.yaml")
    assert read_policy(second, CATALOG).policy.source == "p.yaml:7"


class Touchy(WindowRecommender):
    """A recommender whose constructor accepts nothing."""

    name: ClassVar[str] = "touchy"
    Parameters = Parameters

    def __init__(self, params: object) -> None:
        raise KeyError("oops")

    def recommend(self, state: Samples, situation: Situation) -> Abstain:
        return Abstain("never")


class Keyless(Touchy):
    """A recommender that can be built, and not asked what its states depend on."""

    name: ClassVar[str] = "keyless"

    def __init__(self, params: object) -> None:
        pass

    @property
    def fold_key(self) -> Hashable:
        return [1]  # type: ignore[return-value]


def test_a_plugin_whose_key_cannot_be_had_is_a_fault_of_the_policy() -> None:
    assert faults(SIM + "recommender: {name: keyless}", Catalog({"keyless": Keyless}, {})) == [
        "p.yaml:6: spec.recommender.parameters: recommender keyless refuses them: TypeError: unhashable type: 'list'"
    ]


def test_a_plugin_that_cannot_be_built_is_a_fault_of_the_policy() -> None:
    catalog = Catalog({"touchy": Touchy}, {"rusty": "ImportError: no module"})
    assert faults(SIM + "recommender: {name: touchy}", catalog) == [
        "p.yaml:6: spec.recommender.parameters: recommender touchy refuses them: KeyError: 'oops'"
    ]
    assert faults(SIM + "recommender: {name: rusty}", catalog) == [
        "p.yaml:6: spec.recommender.name: 'rusty' is installed but cannot be used: ImportError: no module"
    ]
