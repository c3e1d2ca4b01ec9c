"""The landing proof: on which nodes the scheduler would place a replacement that then has room to grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.labels import LabelSelector, Operator, Requirement
from autoscaler.core.landing import Landings, Proof
from autoscaler.core.model import Condition, Node, Pod, Resource, Resources, Workload, WorkloadRef
from autoscaler.core.scheduling import (
    HostPort,
    NodeRequirement,
    NodeTerm,
    PodTerm,
    Scheduling,
    Spread,
    Storage,
    StorageClass,
    Taint,
    Toleration,
    Volume,
    VolumeClaim,
)
from tests.build import both, container, init, node, pod, sidecar, sizes, snapshot

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SMALL, BIG = {"app": sizes("1", "1Gi")}, {"app": sizes("4", "4Gi")}
BRIDGES = LabelSelector((("app", "bridge"),))
APART = (PodTerm(HOST, BRIDGES),)


def at(name: str, zone: str = "a", cpu: str = "16", memory: str = "64Gi", **changes: Any) -> Node:
    return node(name, cpu, memory, **{"labels": {HOST: name, ZONE: zone}, **changes})


def moved(**changes: Any) -> Pod:
    """The pod that is to move away from node-a; `changes` are fields of `Scheduling`."""
    return pod(container(sizes("1", "1Gi")), labels={"app": "bridge"}, scheduling=Scheduling(**changes))


def other(name: str, on: str | None, cpu: str = "1", memory: str = "1Gi", **changes: Any) -> Pod:
    """Somebody else's pod on a node; None: it waits for one."""
    return pod(
        container(sizes(cpu, memory)),
        **{"name": name, "node": on, "phase": "Running" if on else "Pending", "workload": None, **changes},
    )


def prove(
    what: Pod,
    *others: Pod,
    nodes: Sequence[Node] = (),
    created: Mapping[str, Resources] = SMALL,
    target: Mapping[str, Resources] = BIG,
    stays: bool = False,
    static: Mapping[str, frozenset[Resource]] | None = None,
    **changes: Any,
) -> Proof:
    """The proof for a pod on node-a, which is cordoned unless `nodes` has one of that name."""
    if all(one.name != "node-a" for one in nodes):
        nodes = (at("node-a", unschedulable=True), *nodes)
    seen = replace(snapshot(what, *others, nodes=nodes), **changes)
    return Landings(seen, static or {}).prove(what, created, target, stays=stays)


# What a scheduler asks of a node


def test_another_node_with_room_takes_the_pod() -> None:
    found = prove(moved(), nodes=[at("node-b"), at("node-c", cpu="2")])
    assert found.nodes == ("node-b",)
    assert found.cuts == {"Cpu": 1}
    assert found.roomless == ("node-c",)


def test_the_node_with_most_room_comes_first_and_names_break_ties() -> None:
    nodes = [at("node-d", cpu="8"), at("node-c"), at("node-b"), at("node-e", memory="6Gi")]
    assert prove(moved(), nodes=nodes).nodes == ("node-b", "node-c", "node-d", "node-e")


def test_the_pods_own_node_is_no_landing() -> None:
    assert prove(moved(), nodes=[at("node-a")]) == Proof()


@pytest.mark.parametrize(
    ("predicate", "changes", "ruled_out"),
    [
        ("Ready", {}, {"ready": False}),
        ("Unschedulable", {}, {"unschedulable": True}),
        ("Taints", {}, {"taints": (Taint("gpu"),)}),
        ("NodeSelector", {"node_selector": (("disk", "ssd"),)}, {}),
        ("NodeAffinity", {"node_terms": (NodeTerm((NodeRequirement("disk", "In", ("ssd",)),)),)}, {}),
        ("Scheduler", {"scheduler": "volcano"}, {}),
        ("Devices", {"devices": True}, {}),
        ("VolumeBinding", {"claims": ("data",)}, {}),
        ("PodAffinity", {"affinity": (PodTerm(ZONE, LabelSelector((("app", "hub"),))),)}, {}),
        ("nvidia.com/gpu", {"extended": {"nvidia.com/gpu": 1}}, {}),
        ("Resizable", {}, {"os": "windows"}),
    ],
)
def test_each_predicate_rules_out_under_its_name(
    predicate: str, changes: dict[str, Any], ruled_out: dict[str, Any]
) -> None:
    found = prove(moved(**changes), nodes=[at("node-b", **ruled_out)])
    assert (found.nodes, found.cuts, found.roomless) == ((), {predicate: 1}, ())


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Cpu", {"cpu": "3"}),
        ("Memory", {"memory": "3Gi"}),
        ("Pods", {"pods": 0}),
        ("Pods", {"pods": None}),  # a node that does not say how many it takes is given none by the scheduler
        ("nvidia.com/gpu", {"extended": {"nvidia.com/gpu": 1}}),
    ],
)
def test_a_node_that_lacks_only_room_is_said_to(name: str, changes: dict[str, Any]) -> None:
    asking = moved(extended={"nvidia.com/gpu": 2}) if "extended" in changes else moved()
    found = prove(asking, nodes=[at("node-b", **changes)])
    assert (found.nodes, found.cuts, found.roomless) == ((), {name: 1}, ("node-b",))


def test_a_node_is_counted_once_for_the_first_predicate_that_it_fails() -> None:
    found = prove(moved(), nodes=[at("node-b", ready=False, unschedulable=True, taints=(Taint("x"),), cpu="1")])
    assert found.cuts == {"Ready": 1}


def test_tolerations_are_those_of_the_pod() -> None:
    nodes = [at("node-b", taints=(Taint("gpu"),)), at("node-c", unschedulable=True)]
    assert prove(moved(tolerations=(Toleration("gpu", "Exists"),)), nodes=nodes).nodes == ("node-b",)
    assert prove(moved(tolerations=(Toleration(operator="Exists"),)), nodes=nodes).nodes == ("node-b", "node-c")


def test_the_only_gpu_node_is_the_pods_own() -> None:
    """Scenario MIG-01."""
    gpu = {"nvidia.com/gpu": 1}
    found = prove(moved(extended=gpu), nodes=[at("node-a", cpu="2", extended=gpu), at("node-b"), at("node-c")])
    assert found.nodes == ()
    assert found.cuts == {"nvidia.com/gpu": 2}
    assert found.roomless == ()


def test_a_gpu_that_is_taken_leaves_a_node_without_room() -> None:
    gpu = {"nvidia.com/gpu": 1}
    taken = other("o", "node-b", scheduling=Scheduling(extended=gpu))
    found = prove(moved(extended=gpu), taken, nodes=[at("node-b", extended=gpu)])
    assert (found.cuts, found.roomless) == ({"nvidia.com/gpu": 1}, ("node-b",))


# Room


def test_room_is_what_the_largest_of_desired_allocated_and_actual_leaves() -> None:
    """Scenario MIG-04: a shrink that is pending still takes its old size, so 1 core of 8 is free."""
    shrinking = pod(
        container(sizes("2", "1Gi"), allocated=sizes("4", "1Gi").requests, actual=sizes("4", "1Gi")),
        name="o-1",
        node="node-b",
    )
    taken = other("o-2", "node-b", cpu="3")
    for cpu, nodes in (("1", ("node-b",)), ("1001m", ())):
        found = prove(moved(), shrinking, taken, nodes=[at("node-b", cpu="8")], target={"app": sizes(cpu, "1Gi")})
        assert found.nodes == nodes


def mixed(minor: int | None) -> tuple[str, ...]:
    """A pod of two containers, one of which is to grow by as much as the other is to shrink."""
    growing = container(sizes("3", "1Gi"), "x", allocated=sizes("1", "1Gi").requests, actual=sizes("1", "1Gi"))
    shrinking = container(sizes("1", "1Gi"), "y", allocated=sizes("3", "1Gi").requests, actual=sizes("3", "1Gi"))
    changing = pod(growing, shrinking, name="o", node="node-b")
    return prove(moved(), changing, nodes=[at("node-b", cpu="8")], server_minor=minor).nodes


def test_schedulers_before_1_37_keep_the_largest_of_each_container() -> None:
    assert mixed(37) == ("node-b",)
    assert mixed(36) == mixed(None) == ()


def test_pods_that_have_finished_take_nothing_and_those_that_go_still_do() -> None:
    nodes = [at("node-b", cpu="5")]
    assert prove(moved(), other("o", "node-b", "4", phase="Succeeded"), nodes=nodes).nodes == ("node-b",)
    assert prove(moved(), other("o", "node-b", "4", deleting=True), nodes=nodes).nodes == ()


def test_both_sizes_have_to_fit() -> None:
    nodes = [at("node-b", cpu="3")]
    assert prove(moved(), nodes=nodes, created=BIG, target=SMALL).cuts == {"Cpu": 1}
    mixed_up = {"app": sizes("1", "4Gi")}
    found = prove(moved(), nodes=[at("node-b", memory="3Gi")], created={"app": sizes("4", "1Gi")}, target=mixed_up)
    assert found.cuts == {"Memory": 1}


def test_sidecars_init_containers_and_overhead_count() -> None:
    heavy = pod(
        init(sizes("3", "1Gi")), sidecar(sizes("1", "1Gi")), container(sizes("1", "1Gi")),
        overhead=sizes("500m").requests,
    )  # fmt: skip
    for cpu, nodes in (("2500m", ()), ("5499m", ()), ("5500m", ("node-b",))):
        assert prove(heavy, nodes=[at("node-b", cpu=cpu)]).nodes == nodes
    start = replace(heavy, containers=(init(sizes("6", "1Gi")), container(sizes("1", "1Gi"))))
    assert prove(start, nodes=[at("node-b", cpu="6")]).nodes == ()
    assert prove(start, nodes=[at("node-b", cpu="6500m")]).nodes == ("node-b",)


def test_what_is_not_named_is_as_in_the_pods_spec() -> None:
    two = pod(container(sizes("1", "1Gi")), container(sizes("2", "1Gi"), "log"))
    assert prove(two, nodes=[at("node-b", cpu="5999m")]).nodes == ()
    assert prove(two, nodes=[at("node-b", cpu="6")]).nodes == ("node-b",)


def test_where_nothing_is_asked_for_nothing_can_lack() -> None:
    nothing = pod(container(Resources()), labels={})
    found = prove(nothing, other("o", "node-b", "20"), nodes=[at("node-b")], created={}, target={})
    assert found.nodes == ("node-b",)


# Host ports and volumes


def test_host_ports_that_are_taken() -> None:
    port = (HostPort(8080),)
    taken = other("o", "node-b", scheduling=Scheduling(host_ports=port))
    found = prove(moved(host_ports=port), taken, nodes=[at("node-b"), at("node-c")])
    assert (found.nodes, found.cuts) == (("node-c",), {"HostPorts": 1})


def stored(claim: VolumeClaim, volume: Volume | None = None, *classes: StorageClass, **changes: Any) -> Storage:
    return Storage(
        {(claim.namespace, claim.name): claim},
        {volume.name: volume} if volume else {},
        {one.name: one for one in classes},
        **changes,
    )


def test_a_volume_ties_the_pod_to_its_zone() -> None:
    volume = Volume("v", (NodeTerm((NodeRequirement(ZONE, "In", ("a",)),)),))
    storage = stored(VolumeClaim("bridge", "data", "v", access_modes=frozenset({"ReadWriteOnce"})), volume)
    found = prove(moved(claims=("data",)), nodes=[at("node-b", "b"), at("node-c", "a")], storage=storage)
    assert (found.nodes, found.cuts) == (("node-c",), {"VolumeAffinity": 1})


def test_a_volume_that_is_still_to_be_made_is_made_where_its_class_allows_it() -> None:
    places = (NodeTerm((NodeRequirement(ZONE, "In", ("b",)),)),)
    ebs = StorageClass("ebs", True, places, "ebs.csi")
    storage = stored(VolumeClaim("bridge", "data", storage_class="ebs"), None, ebs)
    found = prove(moved(claims=("data",)), nodes=[at("node-b", "b"), at("node-c", "a")], storage=storage)
    assert (found.nodes, found.cuts) == (("node-b",), {"VolumeBinding": 1})
    anywhere = stored(VolumeClaim("bridge", "data", storage_class="ebs"), None, replace(ebs, topologies=None))
    assert len(prove(moved(claims=("data",)), nodes=[at("node-b"), at("node-c")], storage=anywhere).nodes) == 2


@pytest.mark.parametrize(
    ("mode", "user_on", "stays", "nodes"),
    [
        ("ReadWriteOncePod", None, False, ("node-b", "node-c")),
        ("ReadWriteOncePod", "node-b", False, ()),
        ("ReadWriteOncePod", None, True, ()),
        ("ReadWriteOnce", "node-b", False, ("node-b",)),  # elsewhere it would wait for the volume to be detached
        ("ReadWriteOnce", None, True, ()),
        ("ReadWriteMany", "node-b", True, ("node-b", "node-c")),
    ],
)
def test_a_volume_in_use(mode: str, user_on: str | None, stays: bool, nodes: tuple[str, ...]) -> None:
    storage = stored(VolumeClaim("bridge", "data", "v", access_modes=frozenset({mode})), Volume("v"))
    user = other("o", user_on or "node-b", scheduling=Scheduling(claims=("data",) if user_on else ()))
    found = prove(
        moved(claims=("data",)), user, nodes=[at("node-b", cpu="32"), at("node-c")], storage=storage, stays=stays
    )
    assert found.nodes == nodes
    assert set(found.cuts) <= {"VolumeInUse"}


def attached(*users: tuple[str, str], limit: int, mine: tuple[str, ...] = ("mine",)) -> Proof:
    """A pod with volumes, and users of others on node-b; all volumes count for one driver."""
    handles = {*mine, *(handle for _, handle in users)}
    storage = Storage(
        {
            ("bridge", handle): VolumeClaim("bridge", handle, handle, "", frozenset({"ReadWriteMany"}))
            for handle in handles
        },
        {handle: Volume(handle, None, "ebs.csi", handle) for handle in handles},
        {},
        {("node-b", "ebs.csi"): limit, ("node-b", "nfs.csi"): 0},
    )
    others = [other(name, "node-b", scheduling=Scheduling(claims=(handle,))) for name, handle in users]
    return prove(moved(claims=mine), *others, nodes=[at("node-b")], storage=storage)


def test_a_driver_attaches_so_many_volumes_to_a_node() -> None:
    assert attached(("o-1", "x"), limit=2).nodes == ("node-b",)
    assert attached(("o-1", "x"), ("o-2", "x"), limit=2).nodes == ("node-b",)
    full = attached(("o-1", "x"), ("o-2", "y"), limit=2)
    assert (full.cuts, full.roomless) == ({"VolumeLimit": 1}, ("node-b",))
    assert attached(("o-1", "x"), ("o-2", "mine"), limit=2).nodes == ("node-b",)
    assert attached(("o-1", "x"), ("o-2", "mine"), limit=1).nodes == ("node-b",)  # it is over the limit as it is
    assert attached(("o-1", "x"), limit=2, mine=("mine", "more")).nodes == ()
    assert attached(("o-1", "x"), limit=3, mine=("mine", "more")).nodes == ("node-b",)


# Other pods: affinity, anti-affinity, spread


def test_affinity_draws_the_pod_to_the_zone_of_others() -> None:
    hub = LabelSelector((("app", "hub"),))
    nodes = [at("node-b", "a"), at("node-c", "b"), node("node-d")]
    there = other("hub", "node-b", labels={"app": "hub"})
    nodes[0] = replace(nodes[0], unschedulable=True)
    found = prove(moved(affinity=(PodTerm(ZONE, hub),)), there, nodes=[*nodes, at("node-e", "a")])
    assert (found.nodes, found.cuts) == (("node-e",), {"Unschedulable": 1, "PodAffinity": 2})
    elsewhere = replace(there, namespace="elsewhere")
    assert prove(moved(affinity=(PodTerm(ZONE, hub),)), elsewhere, nodes=nodes).nodes == ()
    for term in (
        PodTerm(ZONE, hub, frozenset({"elsewhere"})),
        PodTerm(ZONE, hub, namespace_selector=LabelSelector()),
    ):
        assert prove(moved(affinity=(term,)), elsewhere, nodes=[at("node-b")]).nodes == ("node-b",)


def test_one_pod_has_to_match_all_terms_of_affinity() -> None:
    terms = (PodTerm(ZONE, LabelSelector((("app", "hub"),))), PodTerm(HOST, LabelSelector((("tier", "x"),))))
    apart = [other("h", "node-b", labels={"app": "hub"}), other("t", "node-b", labels={"tier": "x"})]
    assert prove(moved(affinity=terms), *apart, nodes=[at("node-b")]).nodes == ()
    both_at_once = other("h", "node-b", labels={"app": "hub", "tier": "x"})
    found = prove(moved(affinity=terms), both_at_once, nodes=[at("node-b"), at("node-c")])
    assert found.nodes == ("node-b",)


def test_the_first_pod_of_a_group_may_go_anywhere() -> None:
    together = (PodTerm(ZONE, BRIDGES),)
    nodes = [at("node-b", "b"), at("node-c", "c"), node("node-d")]
    assert prove(moved(affinity=together), nodes=nodes).nodes == ("node-b", "node-c")
    sibling = other("sim-1", "node-b", labels={"app": "bridge"})
    assert prove(moved(affinity=together), sibling, nodes=nodes).nodes == ("node-b",)
    assert prove(moved(affinity=together), nodes=nodes, stays=True).nodes == ()
    unlabelled = replace(sibling, node="node-d")
    assert prove(moved(affinity=together), unlabelled, nodes=nodes).nodes == ()


def test_anti_affinity_of_the_pod_and_of_others() -> None:
    nodes = [at("node-b"), at("node-c")]
    sibling = other("sim-1", "node-b", labels={"app": "bridge"})
    found = prove(moved(anti_affinity=APART), sibling, nodes=nodes)
    assert (found.nodes, found.cuts) == (("node-c",), {"PodAntiAffinity": 1})
    shy = other("shy", "node-b", scheduling=Scheduling(anti_affinity=APART))
    assert prove(moved(), shy, nodes=nodes).nodes == ("node-c",)
    assert len(prove(moved(), replace(shy, namespace="elsewhere"), nodes=nodes).nodes) == 2
    abroad = (PodTerm(HOST, BRIDGES, frozenset({"bridge"})),)
    shy = replace(shy, namespace="elsewhere", scheduling=Scheduling(anti_affinity=abroad))
    assert prove(moved(), shy, nodes=nodes).nodes == ("node-c",)


def test_the_pod_itself_keeps_its_replacement_away_only_if_it_stays() -> None:
    per_zone = (PodTerm(ZONE, BRIDGES),)
    nodes = [at("node-b", "a"), at("node-c", "b")]
    assert prove(moved(anti_affinity=per_zone), nodes=nodes).nodes == ("node-b", "node-c")
    assert prove(moved(anti_affinity=per_zone), nodes=nodes, stays=True).nodes == ("node-c",)


def test_nodes_without_the_label_are_in_no_domain() -> None:
    sibling = other("sim-1", "node-b", labels={"app": "bridge"})
    assert prove(moved(anti_affinity=APART), sibling, nodes=[node("node-b")]).nodes == ("node-b",)


TEAM = LabelSelector((("team", "sim"),))


def test_namespaces_by_label_are_not_known_and_count_against_a_node() -> None:
    nodes = [at("node-b"), at("node-c")]
    there = other("o", "node-b", labels={"app": "bridge"}, namespace="elsewhere")
    term = PodTerm(HOST, BRIDGES, namespace_selector=TEAM)
    assert prove(moved(affinity=(term,)), there, nodes=nodes).nodes == ()
    assert prove(moved(anti_affinity=(term,)), there, nodes=nodes).nodes == ("node-c",)
    shy = replace(there, scheduling=Scheduling(anti_affinity=(term,)))
    assert prove(moved(), shy, nodes=nodes).nodes == ("node-c",)


def spread(*zones: str, labels: Mapping[str, str] | None = None, **changes: Any) -> tuple[str, ...]:
    """Zones a, b and c with a node each, and pods in the zones that are named."""
    pods = [other(f"s-{i}", f"node-{zone}{zone}", labels=labels or {"app": "bridge"}) for i, zone in enumerate(zones)]
    constraint = replace(Spread(1, ZONE, BRIDGES), **changes)
    nodes = [at(f"node-{zone}{zone}", zone) for zone in "abc"]
    what = moved(spread=(constraint,))
    nodes.append(at("node-a", "a", unschedulable=True))
    return tuple(name[-1] for name in sorted(prove(what, *pods, nodes=nodes).nodes))


def test_pods_are_spread_evenly_over_zones() -> None:
    assert spread() == ("a", "b", "c")
    assert spread("a") == ("b", "c")
    assert spread("a", "b") == ("c",)
    assert spread("a", "b", "c") == ("a", "b", "c")
    assert spread("a", "a", "b", max_skew=2) == ("b", "c")
    assert spread("a", labels={"app": "else"}) == ("a", "b", "c")


def test_too_few_zones_count_as_an_empty_one_more() -> None:
    assert spread("a", "b", "c", min_domains=3) == ("a", "b", "c")
    assert spread("a", "b", "c", min_domains=4) == ()


def test_a_pod_that_its_own_constraint_does_not_count() -> None:
    assert spread("a", labels={"app": "hub"}, selector=LabelSelector((("app", "hub"),))) == ("a", "b", "c")
    assert spread("a", "a", labels={"app": "hub"}, selector=LabelSelector((("app", "hub"),))) == ("b", "c")


def test_a_selector_of_everything_counts_nobody_and_one_that_is_absent_matches_nobody() -> None:
    assert spread("a", "a", selector=LabelSelector()) == ("a", "b", "c")
    assert spread("a", "a", selector=None) == ("a", "b", "c")


def test_pods_of_other_revisions_do_not_count() -> None:
    old = {"app": "bridge", "rev": "1"}
    assert spread("a", labels=old, match_label_keys=("absent",)) == ("b", "c")
    what = replace(moved(spread=(Spread(1, ZONE, BRIDGES, match_label_keys=("rev",)),)), labels={**old, "rev": "2"})
    nodes = [at("node-b", "b"), at("node-c", "c")]
    for rev, found in (("1", ("node-b", "node-c")), ("2", ("node-c",))):
        sibling = other("s", "node-b", labels={"app": "bridge", "rev": rev})
        assert tuple(sorted(prove(what, sibling, nodes=nodes).nodes)) == found


def test_pods_that_go_and_the_pod_itself_do_not_count_for_the_spread() -> None:
    what = moved(spread=(Spread(1, ZONE, BRIDGES),))
    nodes = [at("node-b", "b"), at("node-c", "c")]
    going = other("s", "node-b", labels={"app": "bridge"}, deleting=True)
    assert prove(what, going, nodes=nodes).nodes == ("node-c", "node-b")
    assert prove(what, nodes=[*nodes, at("node-d", "a")]).nodes == ("node-b", "node-c", "node-d")
    assert prove(what, nodes=[*nodes, at("node-d", "a")], stays=True).nodes == ("node-b", "node-c")


def test_which_nodes_make_up_a_domain() -> None:
    """Zone d is empty, so that nothing else can be used, unless it does not count."""
    siblings = [other("s-1", "node-b", labels={"app": "bridge"}), other("s-2", "node-a", labels={"app": "bridge"})]

    def found(empty: Node, **changes: Any) -> tuple[str, ...]:
        constraint = Spread(1, ZONE, BRIDGES, **changes)
        selector = NodeTerm((NodeRequirement("pool", "DoesNotExist"),))
        return prove(
            moved(spread=(constraint,), node_terms=(selector,)), *siblings, nodes=[at("node-b", "b"), empty]
        ).nodes

    pooled = at("node-d", labels={HOST: "node-d", ZONE: "d", "pool": "x"})
    tainted = at("node-d", "d", taints=(Taint("x"),))
    assert found(pooled) == ("node-b",)
    assert found(pooled, honors_affinity=False) == ()
    assert found(tainted) == ()
    assert found(tainted, honors_taints=True) == ("node-b",)


def test_nodes_without_a_topology_label_are_not_used() -> None:
    found = prove(moved(spread=(Spread(1, "rack", BRIDGES),)), nodes=[at("node-b")])
    assert (found.nodes, found.cuts) == ((), {"TopologySpread": 1})


def test_expressions_select_pods_too() -> None:
    either = LabelSelector(match_expressions=(Requirement("app", Operator.IN, frozenset({"hub", "bridge"})),))
    assert spread("a", selector=either) == ("b", "c")


# Competition


def test_a_pod_that_waits_may_take_the_room_first() -> None:
    nodes = [at("node-b", cpu="8"), at("node-c", cpu="20")]
    found = prove(moved(), other("w", None, "5"), nodes=nodes)
    assert (found.nodes, found.cuts, found.roomless) == (("node-c",), {"Competition": 1}, ("node-b",))


@pytest.mark.parametrize(
    "changes",
    [
        {"containers": (container(sizes("9", "1Gi")),)},  # fits nowhere
        {"scheduling": Scheduling(node_selector=(("pool", "other"),))},
        {"gated": "scheduling gates quota"},
        {"phase": "Failed"},
        {"deleting": True},
    ],
)
def test_a_pod_that_cannot_come_takes_nothing(changes: dict[str, Any]) -> None:
    waiting = replace(other("w", None, "5"), **changes)
    assert prove(moved(), waiting, nodes=[at("node-b", cpu="8")]).nodes == ("node-b",)


def test_every_resource_is_competed_for() -> None:
    waiting = other("w", None, "1", "62Gi", scheduling=Scheduling(extended={"gpu": 1}))
    assert prove(moved(), waiting, nodes=[at("node-b", extended={"gpu": 1})]).cuts == {"Competition": 1}
    wanting = moved(extended={"gpu": 1})
    waiting = other("w", None, scheduling=Scheduling(extended={"gpu": 1}))
    assert prove(wanting, waiting, nodes=[at("node-b", extended={"gpu": 1})]).cuts == {"Competition": 1}
    assert prove(moved(), other("w", None), nodes=[at("node-b", pods=1)]).cuts == {"Competition": 1}


def test_a_pod_that_waits_may_take_a_host_port_or_its_distance() -> None:
    port = Scheduling(host_ports=(HostPort(80),))
    assert prove(moved(host_ports=port.host_ports), other("w", None, scheduling=port), nodes=[at("node-b")]).cuts == {
        "Competition": 1
    }
    shy = other("w", None, scheduling=Scheduling(anti_affinity=(PodTerm(ZONE, BRIDGES),), node_selector=(("x", "y"),)))
    place = at("node-b", labels={HOST: "node-b", ZONE: "b", "x": "y"})
    found = prove(moved(), shy, nodes=[place, at("node-c", "b"), at("node-d", "d")])
    assert (found.nodes, found.cuts) == (("node-d",), {"Competition": 2})


def evicted(name: str = "sim-1", owner: str = "StatefulSet/sim", **changes: Any) -> Pod:
    return replace(other(name, "node-x", "5", deleting=True, disrupted=True, owner=owner), **changes)


def test_an_evicted_pod_of_a_stateful_set_comes_back() -> None:
    nodes = [at("node-b", cpu="8"), at("node-x")]
    assert prove(moved(), evicted(), nodes=nodes).nodes == ("node-x",)
    for gone in (evicted(owner="ReplicaSet/sim"), evicted(disrupted=False), evicted(deleting=False)):
        assert set(prove(moved(), gone, nodes=nodes).nodes) == {"node-b", "node-x"}


def test_a_pod_that_comes_back_is_placed_by_its_template_and_takes_its_size_then() -> None:
    owner = Workload(WorkloadRef("bridge", "StatefulSet/sim"), "u", template={"app": sizes("1", "1Gi")})
    nodes = [at("node-b", cpu="4"), at("node-x", cpu="5")]
    found = prove(moved(), evicted(), nodes=nodes, workloads={owner.ref: owner})
    assert found.cuts == {"Cpu": 1, "Competition": 1}
    assert prove(moved(), evicted(), nodes=nodes).nodes == ("node-b",)  # no template known: it fits on neither


def test_what_is_promised_is_taken() -> None:
    first, second = moved(), replace(moved(), name="sim-1", uid="uid-2")
    nodes = [at("node-a", cpu="2"), at("node-b", cpu="7")]
    landings = Landings(snapshot(first, second, nodes=nodes))
    assert landings.prove(second, SMALL, BIG, stays=False).nodes == ("node-b",)
    landings.promise(first, BIG)
    assert landings.prove(second, SMALL, BIG, stays=False).cuts == {"Competition": 1}
    assert landings.prove(first, SMALL, BIG, stays=False).nodes == ("node-b",)  # it does not stand in its own way


def test_what_is_promised_twice_is_taken_once() -> None:
    first, second = moved(), replace(moved(), name="sim-1", uid="uid-2")
    landings = Landings(snapshot(first, second, nodes=[at("node-a", cpu="2"), at("node-b", cpu="8")]))
    landings.promise(first, SMALL)
    landings.promise(first, BIG)
    landings.promise(first, SMALL)
    assert landings.prove(second, SMALL, BIG, stays=False).nodes == ("node-b",)
    assert landings.prove(second, SMALL, {"app": sizes("4001m", "1Gi")}, stays=False).nodes == ()


def test_a_pod_that_may_be_placed_at_less_than_was_promised_still_takes_its_room() -> None:
    waiting, nodes = other("w", None, "2"), [at("node-b", cpu="5")]
    landings = Landings(snapshot(moved(), waiting, nodes=[at("node-a"), *nodes]))
    landings.promise(waiting, {"app": sizes("6", "1Gi")})
    assert landings.prove(moved(), SMALL, BIG, stays=False).cuts == {"Competition": 1}


# Landing where the replacement cannot grow


def test_the_old_node_takes_the_replacement_back_at_its_first_size() -> None:
    found = prove(moved(), nodes=[at("node-a", cpu="2"), at("node-b"), at("node-c", cpu="2")])
    assert found.nodes == ("node-b",)
    assert found.too_small == ("node-a", "node-c")


def test_the_old_node_is_not_too_small_if_leaving_it_makes_room_or_it_is_closed() -> None:
    neighbour = other("o", "node-a", "3")
    big = pod(container(sizes("4", "4Gi")), labels={"app": "bridge"})
    nodes = [at("node-a", cpu="7"), at("node-b")]
    assert prove(big, neighbour, nodes=nodes).too_small == ()
    assert prove(big, neighbour, nodes=nodes, target={"app": sizes("4001m", "4Gi")}).too_small == ("node-a",)
    assert prove(big, neighbour, nodes=[at("node-a", cpu="7", unschedulable=True), at("node-b")]).too_small == ()


def test_the_old_node_keeps_what_the_pod_holds_if_it_stays() -> None:
    what, nodes = moved(), [at("node-a", cpu="4"), at("node-b")]
    assert prove(what, nodes=nodes).too_small == ()
    assert prove(what, nodes=nodes, stays=True).too_small == ("node-a",)
    assert prove(what, nodes=[at("node-a", cpu="1"), at("node-b")], stays=True).too_small == ()


def test_room_that_another_pod_may_take_does_not_count_for_growing() -> None:
    nodes = [at("node-a", cpu="4"), at("node-b", cpu="6")]
    assert prove(moved(), nodes=nodes).too_small == ()
    waiting = other("w", None, "4")  # on node-a it fits once the pod has left
    assert prove(moved(), waiting, nodes=nodes).too_small == ("node-a", "node-b")


def test_what_shrinks_needs_no_room_to_grow() -> None:
    waiting, nodes = other("w", None, "6"), [at("node-b", cpu="6")]
    created, target = {"app": sizes("2", "1Gi")}, {"app": sizes("1", "4Gi")}
    assert prove(moved(), waiting, nodes=nodes, created=created, target=target).too_small == ()


def test_the_pods_own_port_and_volume_are_free_again_on_its_node() -> None:
    claim = VolumeClaim("bridge", "data", "v", access_modes=frozenset({"ReadWriteOncePod"}))
    storage = stored(claim, Volume("v", None, "ebs.csi", "h"), limits={("node-a", "ebs.csi"): 1})
    nodes = [at("node-a", cpu="2")]
    what = moved(host_ports=(HostPort(80),), claims=("data",), anti_affinity=APART)
    assert prove(what, nodes=nodes, storage=storage).too_small == ("node-a",)
    assert prove(what, nodes=nodes, storage=storage, stays=True).too_small == ()


def test_a_replacement_that_is_large_enough_is_never_too_small() -> None:
    nodes = [at("node-a", cpu="2"), at("node-b", cpu="2")]
    for created in (BIG, {"app": sizes("4", "5Gi")}):
        assert prove(moved(), nodes=nodes, created=created).too_small == ()


def test_an_ask_that_was_called_infeasible_holds_no_room_in_the_eyes_of_the_scheduler() -> None:
    asked = container(sizes("8", "1Gi"), allocated=sizes("1", "1Gi").requests, actual=sizes("1", "1Gi"))
    infeasible = (Condition("PodResizePending", "True", "Infeasible"),)
    hopeful = pod(asked, name="o", node="node-b", conditions=infeasible)
    found = prove(moved(), hopeful, nodes=[at("node-b", cpu="4")])
    assert (found.nodes, found.too_small) == ((), ("node-b",))
    assert prove(moved(), replace(hopeful, conditions=()), nodes=[at("node-b", cpu="4")]).too_small == ()
    itself = replace(moved(), containers=(asked,), conditions=infeasible)
    crowd = other("o", "node-a", "4")
    assert prove(itself, crowd, nodes=[at("node-a", cpu="4"), at("node-b")]).too_small == ()
    assert prove(itself, crowd, nodes=[at("node-a", cpu="5"), at("node-b")]).too_small == ("node-a",)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({}, {"ready": False}),
        ({"tolerations": (Toleration("load", "Gt", "1"),)}, {"taints": (Taint("load", "2"),)}),
        ({"anti_affinity": (PodTerm(HOST, BRIDGES, namespace_selector=TEAM),)}, {}),
        ({"affinity": (PodTerm(HOST, BRIDGES, namespace_selector=TEAM),)}, {}),
        ({"claims": ("lost",)}, {}),
    ],
)
def test_what_is_not_known_does_not_keep_the_scheduler_from_a_node(
    changes: dict[str, Any], place: dict[str, Any]
) -> None:
    there = other("o", "node-b", labels={"app": "bridge"}, namespace="elsewhere")
    found = prove(moved(**changes), there, nodes=[at("node-b", cpu="3", **place)])
    assert (found.nodes, found.too_small) == ((), ("node-b",))


def test_a_pod_that_is_still_going_draws_its_replacement_to_where_it_was() -> None:
    what = moved(affinity=(PodTerm(ZONE, BRIDGES),))
    sibling = other("s", "node-c", labels={"app": "bridge"})
    nodes = [at("node-a", "a", cpu="1"), at("node-b", "a", cpu="2"), at("node-c", "c")]
    found = prove(what, sibling, nodes=nodes)
    assert (found.nodes, found.too_small) == (("node-c",), ("node-a", "node-b"))


# Landing where the replacement would not start


def test_a_node_that_is_not_ready_may_take_a_pod_that_tolerates_its_taint() -> None:
    dead: dict[str, Any] = {"ready": False, "taints": (Taint("node.kubernetes.io/not-ready"),)}
    nodes = [at("node-a", cpu="2", **dead), at("node-b", **dead), at("node-c"), at("node-d", cpu="1m", **dead)]
    anywhere = moved(tolerations=(Toleration(operator="Exists"),))
    found = prove(anywhere, nodes=nodes)
    assert (found.nodes, found.astray) == (("node-c",), ("node-a", "node-b"))
    assert prove(anywhere, nodes=nodes, created=BIG).astray == ("node-b",)
    assert prove(moved(), nodes=nodes).astray == ()
    assert prove(moved(), nodes=[at("node-b", ready=False)]).astray == ("node-b",)  # its taint comes later


def test_a_volume_that_one_node_can_use_leads_astray_while_another_pod_uses_it() -> None:
    storage = stored(VolumeClaim("bridge", "data", "v", access_modes=frozenset({"ReadWriteOnce"})), Volume("v"))
    user = other("u", "node-b", scheduling=Scheduling(claims=("data",)))
    found = prove(moved(claims=("data",)), user, nodes=[at("node-b"), at("node-c")], storage=storage)
    assert (found.nodes, found.astray) == (("node-b",), ("node-c",))


# Static managers


def test_a_static_manager_lets_no_guaranteed_pod_come_to_another_size() -> None:
    what = pod(container(both("1", "1Gi")))
    created, target = {"app": both("1", "1Gi")}, {"app": both("2", "1Gi")}
    nodes, static = [at("node-b"), at("node-c")], {"node-b": frozenset({Resource.CPU}), "unseen": frozenset(Resource)}
    found = prove(what, nodes=nodes, created=created, target=target, static=static)
    assert (found.nodes, found.cuts, found.too_small) == (("node-c",), {"Resizable": 1}, ("node-b",))
    other_resource = {"app": both("1", "2Gi")}
    assert len(prove(what, nodes=nodes, created=created, target=other_resource, static=static).nodes) == 2
    assert len(prove(what, nodes=nodes, created=target, target=target, static=static).nodes) == 2
    assert len(prove(moved(), nodes=nodes, static=static).nodes) == 2  # Burstable


# Whatever the cluster

NAMES = ("node-a", "node-b", "node-c", "node-d")
cores = st.integers(1, 8).map(str)


@st.composite
def scheduled(draw: st.DrawFn) -> Scheduling:
    return Scheduling(
        node_selector=draw(st.sampled_from([(), ((ZONE, "a"),)])),
        anti_affinity=draw(st.sampled_from([(), APART, (PodTerm(ZONE, BRIDGES),)])),
        tolerations=draw(st.sampled_from([(), (Toleration("x", "Exists"),)])),
        spread=draw(st.sampled_from([(), (Spread(1, ZONE, BRIDGES),)])),
        host_ports=draw(st.sampled_from([(), (HostPort(80),)])),
        extended=draw(st.sampled_from([{}, {"gpu": 1}])),
    )


@st.composite
def placed(draw: st.DrawFn, name: str, on: st.SearchStrategy[str | None]) -> Pod:
    labels = draw(st.sampled_from([{}, {"app": "bridge"}]))
    where = draw(on)
    return other(name, where, draw(cores), labels=labels, scheduling=draw(scheduled()), deleting=draw(st.booleans()))


@st.composite
def clusters(draw: st.DrawFn, *, waiting: bool = True) -> tuple[list[Node], list[Pod], Pod]:
    nodes = [
        at(
            name,
            draw(st.sampled_from("ab")),
            draw(cores),
            ready=draw(st.booleans()) or draw(st.booleans()),
            taints=draw(st.sampled_from([(), (), (Taint("x"),)])),
            extended=draw(st.sampled_from([{}, {"gpu": 2}])),
            pods=draw(st.integers(1, 4)),
        )
        for name in NAMES
    ]
    places: st.SearchStrategy[str | None] = st.sampled_from([*NAMES, None] if waiting else NAMES)
    pods = [draw(placed(f"o-{i}", places)) for i in range(draw(st.integers(0, 5)))]
    return nodes, pods, replace(moved(), scheduling=draw(scheduled()))


def size(cpu: int) -> dict[str, Resources]:
    return {"app": sizes(str(cpu), "1Gi")}


@settings(max_examples=150, deadline=None)
@given(clusters(), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_a_larger_target_adds_no_node(
    cluster: tuple[list[Node], list[Pod], Pod], created: int, more: int, still_more: int, stays: bool
) -> None:
    nodes, pods, what = cluster
    landings = Landings(snapshot(what, *pods, nodes=nodes))
    smaller = landings.prove(what, size(created), size(created + more), stays=stays)
    larger = landings.prove(what, size(created), size(created + more + still_more), stays=stays)
    assert set(larger.nodes) <= set(smaller.nodes)
    assert set(smaller.too_small) <= set(larger.too_small) or not more


@settings(max_examples=150, deadline=None)
@given(clusters(waiting=False), placed("new", st.sampled_from(NAMES)), st.integers(1, 4), st.booleans())
def test_one_more_pod_on_a_node_never_makes_it_a_landing(
    cluster: tuple[list[Node], list[Pod], Pod], added: Pod, cpu: int, stays: bool
) -> None:
    nodes, pods, what = cluster
    before = Landings(snapshot(what, *pods, nodes=nodes)).prove(what, SMALL, size(cpu), stays=stays)
    after = Landings(snapshot(what, *pods, added, nodes=nodes)).prove(what, SMALL, size(cpu), stays=stays)
    assert added.node in before.nodes or added.node not in after.nodes


@settings(max_examples=150, deadline=None)
@given(clusters(), st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), max_size=4), st.booleans())
def test_a_promise_adds_no_node(
    cluster: tuple[list[Node], list[Pod], Pod], promises: list[tuple[int, int]], stays: bool
) -> None:
    nodes, pods, what = cluster
    landings = Landings(snapshot(what, *pods, nodes=nodes))
    before = landings.prove(what, SMALL, size(3), stays=stays)
    for number, cpu in promises:
        if number < len(pods):
            landings.promise(pods[number], size(cpu))
    after = landings.prove(what, SMALL, size(3), stays=stays)
    assert set(after.nodes) <= set(before.nodes)
    assert set(before.too_small) <= set(after.too_small)


@settings(max_examples=150, deadline=None)
@given(clusters(), st.integers(1, 4), st.integers(1, 6), st.booleans())
def test_every_node_is_accounted_for_once(
    cluster: tuple[list[Node], list[Pod], Pod], created: int, target: int, stays: bool
) -> None:
    nodes, pods, what = cluster
    found = Landings(snapshot(what, *pods, nodes=nodes)).prove(what, size(created), size(target), stays=stays)
    assert len(found.nodes) + sum(found.cuts.values()) == len(nodes) - 1
    assert not {*found.nodes} & {*found.roomless, *found.too_small, "node-a"}
    assert created < target or not found.too_small


def test_the_order_of_pods_and_nodes_does_not_matter() -> None:
    nodes = [at(name) for name in NAMES]
    pods = [other("o-1", "node-b", "3"), other("o-2", "node-c", "2"), other("w", None, "2")]
    assert prove(moved(), *pods, nodes=nodes) == prove(moved(), *reversed(pods), nodes=nodes[::-1])
