"""What a pod asks of a node, by value."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.adapters.kubernetes.wire import decode_pod
from autoscaler.core.labels import LabelSelector, Operator, Requirement
from autoscaler.core.scheduling import HostPort, NodeRequirement, NodeTerm, PodTerm, Scheduling, Spread, Toleration
from tests.adapters.kubernetes.objects import Json, broken, decoded, pod, raw

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
# what the API server gives to every pod
DEFAULTS = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for what in ("not-ready", "unreachable")
]
APP: Json = {"matchLabels": {"app": "bridge"}}
SELECTOR = LabelSelector((("app", "bridge"),))


def asking(**spec: Any) -> Json:
    item = pod()
    item["spec"] |= spec
    return item


def asked(**spec: Any) -> Scheduling:
    return decoded(asking(**spec)).scheduling


def containers(*requests: Json, **fields: Any) -> list[Json]:
    return [{"name": f"c{n}", "resources": {"requests": one}, **fields} for n, one in enumerate(requests)]


def test_most_pods_ask_for_nothing_and_share_that() -> None:
    one = asked(schedulerName="default-scheduler", tolerations=DEFAULTS)
    tolerations = tuple(
        Toleration(f"node.kubernetes.io/{what}", "Exists", "", "NoExecute") for what in ("not-ready", "unreachable")
    )
    assert one == Scheduling(tolerations=tolerations)
    assert asked(schedulerName="default-scheduler", tolerations=DEFAULTS) is one
    assert asked() == Scheduling()


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"zone": "a"}},
        {"affinity": {"podAntiAffinity": {REQUIRED: [{"labelSelector": APP, "topologyKey": "host"}]}}},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
        {"containers": containers({"cpu": "1", "example.com/gpu": "1"})},
    ],
)
def test_equal_constraints_are_held_once(spec: Json) -> None:
    assert asked(**spec) is asked(**spec)
    assert asked(**spec) != Scheduling()


def test_scheduler_and_node_selector_are_read() -> None:
    one = asked(schedulerName="other", nodeSelector={"zone": "a", "disk": "fast"})
    assert (one.scheduler, one.node_selector) == ("other", (("disk", "fast"), ("zone", "a")))


def test_only_required_node_affinity_counts() -> None:
    terms = [
        {
            "matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["a", "b"]},
                {"key": "gen", "operator": "Gt", "values": ["3"]},
                {"key": "disk", "operator": "Exists"},
            ]
        },
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-a"]}]},
        {},
    ]
    assert asked(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}).node_terms == (
        NodeTerm(
            (
                NodeRequirement("zone", "In", ("a", "b")),
                NodeRequirement("gen", "Gt", ("3",)),
                NodeRequirement("disk", "Exists"),
            )
        ),
        NodeTerm((), (NodeRequirement("metadata.name", "NotIn", ("node-a",)),)),
        NodeTerm(),
    )
    preferred = [{"weight": 1, "preference": terms[0]}]
    assert asked(affinity={"nodeAffinity": {PREFERRED: preferred}}).node_terms is None
    assert asked(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}}).node_terms == ()


def test_an_unknown_operator_on_nodes_is_kept_as_it_is() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["a"]}]}]
    assert asked(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}).node_terms == (
        NodeTerm((NodeRequirement("zone", "Near", ("a",)),)),
    )


def test_required_pod_affinity_and_anti_affinity_are_read() -> None:
    expression = {"key": "tier", "operator": "NotIn", "values": ["x", "y"]}
    terms = [
        {"labelSelector": APP, "topologyKey": "host"},
        {
            "labelSelector": {"matchExpressions": [expression]},
            "topologyKey": "zone",
            "namespaces": ["sim", "other"],
            "namespaceSelector": {},
        },
        {"labelSelector": None, "topologyKey": "zone"},
    ]
    expected = (
        PodTerm("host", SELECTOR),
        PodTerm(
            "zone",
            LabelSelector((), (Requirement("tier", Operator.NOT_IN, frozenset({"x", "y"})),)),
            frozenset({"sim", "other"}),
            LabelSelector(),
        ),
        PodTerm("zone"),
    )
    preferred = [{"weight": 1, "podAffinityTerm": terms[0]}]
    one = asked(affinity={"podAffinity": {REQUIRED: terms}, "podAntiAffinity": {PREFERRED: preferred}})
    assert (one.affinity, one.anti_affinity) == (expected, ())
    two = asked(affinity={"podAffinity": {PREFERRED: preferred}, "podAntiAffinity": {REQUIRED: terms}})
    assert (two.affinity, two.anti_affinity) == ((), expected)


def test_an_unknown_operator_on_pods_is_a_problem() -> None:
    """Whoever guesses it wrong takes a node for one that the pod may be put on."""
    selector = {"matchExpressions": [{"key": "tier", "operator": "Near", "values": ["x"]}]}
    terms = [{"labelSelector": selector, "topologyKey": "host"}]
    one = decode_pod(raw(asking(affinity={"podAffinity": {REQUIRED: terms}})))
    assert one.value is None
    assert one.problem is not None
    assert "operator 'Near'" in one.problem.detail


def test_tolerations_are_read_with_the_apis_defaults() -> None:
    found = [{"operator": "Exists"}, {"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "a", "value": ""}]
    assert asked(tolerations=found).tolerations == (
        Toleration("", "Exists"),
        Toleration("gpu", "Equal", "yes", "NoSchedule"),
        Toleration("a"),
    )


def test_only_spread_that_blocks_is_read() -> None:
    one: Json = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APP}
    two = one | {
        "maxSkew": 2,
        "minDomains": 3,
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
        "matchLabelKeys": ["pod-template-hash"],
    }
    soft = one | {"whenUnsatisfiable": "ScheduleAnyway"}
    unknown = one | {"whenUnsatisfiable": "Perhaps", "labelSelector": None}
    assert asked(topologySpreadConstraints=[one, soft, two, unknown]).spread == (
        Spread(1, "zone", SELECTOR),
        Spread(
            2, "zone", SELECTOR, 3, honors_affinity=False, honors_taints=True, match_label_keys=("pod-template-hash",)
        ),
        Spread(1, "zone"),
    )


def test_host_ports_of_containers_and_sidecars_are_read() -> None:
    main = {"name": "app", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]}
    udp = {"containerPort": 82, "hostPort": 8082, "protocol": "UDP", "hostIP": "127.0.0.1"}
    sidecar = {"name": "proxy", "restartPolicy": "Always", "ports": [udp]}
    init = {"name": "setup", "ports": [{"containerPort": 83, "hostPort": 8083}]}
    assert set(asked(containers=[main], initContainers=[sidecar, init]).host_ports) == {
        HostPort(8081),
        HostPort(8082, "UDP", "127.0.0.1"),
    }


def test_claims_of_persistent_and_of_ephemeral_volumes_are_read() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-bridge-0", "readOnly": True}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "kube-api-access-x", "projected": {"sources": []}},
    ]
    assert asked(volumes=volumes).claims == ("data-bridge-0", "bridge-0-scratch")


def test_claims_of_devices_are_noticed() -> None:
    assert asked(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}]).devices
    assert not asked(resourceClaims=[]).devices


GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("spec", "extended"),
    [
        ({"containers": containers({"cpu": "1", "memory": "1Gi"})}, {}),
        ({"containers": containers({"cpu": "1", GPU: "0"})}, {}),
        (
            {"containers": containers({GPU: "1"}, {GPU: "2", "ephemeral-storage": "1Gi"})},
            {GPU: 3, "ephemeral-storage": 2**30},
        ),
        ({"containers": containers({GPU: "1"}), "initContainers": containers({GPU: "3"}, {GPU: "2"})}, {GPU: 3}),
        ({"containers": containers({GPU: "4"}), "initContainers": containers({GPU: "3"})}, {GPU: 4}),
        (
            {
                "containers": containers({GPU: "4"}),
                "initContainers": [
                    *containers({GPU: "7"}),  # before the sidecar: alone
                    *containers({GPU: "2"}, restartPolicy="Always"),
                    *containers({GPU: "4"}),  # beside it: 6
                ],
            },
            {GPU: 7},
        ),
        (
            {
                "containers": containers({GPU: "1"}),
                "initContainers": [*containers({GPU: "2"}, restartPolicy="Always"), *containers({GPU: "4"})],
            },
            {GPU: 6},
        ),
        (
            {
                "containers": containers({GPU: "5"}),
                "initContainers": [*containers({GPU: "2"}, {GPU: "1"}, restartPolicy="Always")],
            },
            {GPU: 8},
        ),
        ({"containers": containers({GPU: "1"}), "initContainers": containers({"cpu": "9"})}, {GPU: 1}),
        (
            {
                "containers": containers({"ephemeral-storage": "1500m"}),
                "overhead": {"cpu": "1", "ephemeral-storage": "1Ki"},
            },
            {"ephemeral-storage": 1026},
        ),
        (
            {
                "containers": containers({"hugepages-2Mi": "2Mi", GPU: "1"}),
                "resources": {"requests": {"cpu": "1", "hugepages-2Mi": "8Mi", GPU: "9"}},
            },
            {"hugepages-2Mi": 2**23, GPU: 1},
        ),
    ],
)
def test_extended_resources_are_summed_as_the_scheduler_does(spec: Json, extended: dict[str, int]) -> None:
    assert asked(**spec).extended == extended


EVERYTHING = asking(
    schedulerName="default-scheduler",
    nodeSelector={"zone": "a"},
    tolerations=DEFAULTS[:1],
    affinity={
        "nodeAffinity": {
            REQUIRED: {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
                        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}],
                    }
                ]
            }
        },
        "podAffinity": {REQUIRED: [{"labelSelector": APP, "topologyKey": "zone", "namespaces": ["x"]}]},
        "podAntiAffinity": {
            REQUIRED: [
                {
                    "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]},
                    "topologyKey": "zone",
                    "namespaceSelector": {"matchLabels": {"a": "b"}},
                }
            ]
        },
    },
    topologySpreadConstraints=[
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": APP,
            "minDomains": 2,
            "matchLabelKeys": ["x"],
            "nodeTaintsPolicy": "Honor",
        }
    ],
    volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "ephemeral": {}}],
    resourceClaims=[{"name": "gpu"}],
    initContainers=containers({GPU: "1"}, restartPolicy="Always", ports=[{"hostPort": 80, "protocol": "TCP"}]),
    overhead={"cpu": "1", GPU: "1"},
)


def test_whatever_stands_in_a_spec_is_read_or_a_problem() -> None:
    assert decode_pod(raw(EVERYTHING)).problem is None
    read = [decode_pod(raw(EVERYTHING | {"spec": spec})) for spec in broken(EVERYTHING["spec"])]
    assert all((one.value is None) == (one.problem is not None) for one in read)
    assert {one.value is None for one in read} == {True, False}
