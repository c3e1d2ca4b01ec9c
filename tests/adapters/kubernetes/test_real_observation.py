"""What a migration is proved with, as a real API server, its scheduler and its controllers write it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import yaml

from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.adapters.kubernetes.watch import Timing
from autoscaler.core.labels import LabelSelector
from autoscaler.core.model import Capability, ClusterSnapshot, PodRef, ResourceList, Resources, WorkloadRef
from autoscaler.core.scheduling import (
    DisruptionBudget,
    HostPort,
    NodeRequirement,
    NodeTerm,
    StorageClass,
    Taint,
    Toleration,
    Volume,
    VolumeClaim,
)
from autoscaler.core.units import Bytes, Millicores
from tests.adapters.kubernetes.objects import Json
from tests.rig.observer import cluster_of
from tests.rig.rig import ROOT, Rig

pytestmark = pytest.mark.rig

MIB = 1 << 20
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SIZE = {"cpu": "100m", "memory": "64Mi"}
AMOUNTS = ResourceList(Millicores(100), Bytes(64 * MIB))


async def until(cluster: KubernetesCluster, holds: Callable[[ClusterSnapshot], bool]) -> ClusterSnapshot:
    async with asyncio.timeout(30):
        while not holds(snapshot := await cluster.observe()):
            await asyncio.sleep(0.02)
    return snapshot


def container(**more: Any) -> Json:
    return {"name": "app", "image": "bridge", "resources": {"requests": SIZE, "limits": SIZE}, **more}


def template(namespace: str, kind: str, replicas: int = 2, **spec: Any) -> Json:
    """A Deployment or StatefulSet `bridge`."""
    labels = {"app": "bridge"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "bridge", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container()], "terminationGracePeriodSeconds": 0},
            },
            **({"serviceName": "bridge"} if kind == "StatefulSet" else {}),
            **spec,
        },
    }


async def test_what_a_pod_asks_of_a_node_comes_through(rig: Rig) -> None:
    ref = PodRef(rig.namespace(), "bridge")
    selector = {"matchLabels": {"app": "bridge"}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
        "matchLabelKeys": ["generation"],
    }
    zone = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    wanted = container(ports=[{"containerPort": 8080}])
    wanted["resources"] = {
        side: SIZE | {"example.com/gpu": "2", "ephemeral-storage": "1Gi"} for side in ("requests", "limits")
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": ref.name, "namespace": ref.namespace, "labels": {"app": "bridge", "generation": "7"}},
        "spec": {
            "hostNetwork": True,
            "nodeSelector": {"disk": "fast"},
            "affinity": {
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
                "podAntiAffinity": {
                    REQUIRED: [
                        {
                            "labelSelector": selector,
                            "topologyKey": "kubernetes.io/hostname",
                            "matchLabelKeys": ["generation"],
                        }
                    ]
                },
            },
            "topologySpreadConstraints": [
                spread,
                spread | {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
            ],
            "containers": [wanted],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-bridge"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}},
            ],
            "terminationGracePeriodSeconds": 0,
        },
    }
    async with cluster_of(rig.kubeconfig) as cluster:
        rig.apply(yaml.safe_dump(pod))
        seen = await until(cluster, lambda s: ref in s.pods and s.pods[ref].unscheduled is not None)
        # the controller of ephemeral volumes gives the claim its name
        await until(cluster, lambda s: (ref.namespace, "bridge-scratch") in s.storage.claims)
    found = seen.pods[ref]
    assert "data-bridge" in (found.unscheduled or "")
    assert found.created_at is not None
    assert abs(seen.taken_at - found.created_at) < timedelta(seconds=30)
    asked = found.scheduling
    assert asked.scheduler == "default-scheduler"
    assert asked.node_selector == (("disk", "fast"),)
    assert asked.node_terms == (NodeTerm((NodeRequirement("zone", "In", ("a", "b")),)),)
    ((term,), (constraint,)) = asked.anti_affinity, asked.spread
    assert (term.topology_key, term.namespaces) == ("kubernetes.io/hostname", frozenset())
    # the server merges matchLabelKeys into selectors
    for merged in (term.selector, constraint.selector):
        assert merged is not None
        assert merged.matches({"app": "bridge", "generation": "7"})
        assert not merged.matches({"app": "bridge", "generation": "8"})
    assert (constraint.max_skew, constraint.min_domains, constraint.match_label_keys) == (1, 1, ("generation",))
    assert (constraint.honors_affinity, constraint.honors_taints) == (True, False)
    assert asked.tolerations == tuple(
        Toleration(f"node.kubernetes.io/{what}", "Exists", "", "NoExecute") for what in ("not-ready", "unreachable")
    )
    assert asked.host_ports == (HostPort(8080),)  # of the host's network: the server makes it a port of the node
    assert asked.extended == {"example.com/gpu": 2, "ephemeral-storage": 2**30}
    assert asked.claims == ("data-bridge", "bridge-scratch")


async def test_what_a_node_offers_and_refuses_comes_through(rig: Rig) -> None:
    rig.agent.add_node("node-shown", labels={"topology.kubernetes.io/zone": "a"}, pods=7)
    try:
        rig.kubectl("cordon", "node-shown")
        rig.kubectl("taint", "node", "node-shown", "gpu=yes:NoSchedule")
        async with cluster_of(rig.kubeconfig) as cluster:
            seen = await until(cluster, lambda s: len(s.nodes["node-shown"].taints) == 2)
    finally:
        rig.agent.remove_node("node-shown")
    node = seen.nodes["node-shown"]
    assert node.labels["topology.kubernetes.io/zone"] == "a"
    assert (node.unschedulable, node.pods) == (True, 7)
    assert set(node.taints) == {Taint("gpu", "yes"), Taint("node.kubernetes.io/unschedulable")}


async def test_budgets_and_volumes_are_seen_as_their_controllers_fill_them_in(rig: Rig) -> None:
    namespace = rig.namespace()
    only_here = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
    storage = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
    name = f"pv-{namespace}"
    documents: list[Json] = [
        template(namespace, "StatefulSet"),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep", "namespace": namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "bridge"}}},
        },
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "Immediate",
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "a"}},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": name,
                "nodeAffinity": {"required": only_here},
                "csi": {"driver": "csi.example.com", "volumeHandle": "vol-7"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": namespace},
            "spec": storage | {"storageClassName": name},
        },
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": "node-a"},
            "spec": {"drivers": [{"name": "csi.example.com", "nodeID": "a", "allocatable": {"count": 3}}]},
        },
    ]
    key = (namespace, "data")

    def complete(snapshot: ClusterSnapshot) -> bool:
        budgets = [one for one in snapshot.disruption_budgets if one.namespace == namespace]
        storage = snapshot.storage
        claim = storage.claims.get(key)
        known = name in storage.volumes and name in storage.classes and bool(storage.limits)
        return bool(budgets and budgets[0].allowed and claim and claim.volume and known)

    async with cluster_of(rig.kubeconfig) as cluster:
        rig.apply(yaml.safe_dump_all(documents))
        seen = await until(cluster, complete)
    rig.kubectl("delete", "csinode", "node-a")
    assert seen.capabilities == frozenset(Capability)
    (budget,) = [one for one in seen.disruption_budgets if one.namespace == namespace]
    selector = LabelSelector((("app", "bridge"),))
    assert budget == DisruptionBudget(
        namespace, "keep", selector, allowed=1, healthy=2, desired=1, expected=2, min_available="1"
    )
    assert seen.storage.claims[key] == VolumeClaim(namespace, "data", name, name, frozenset({"ReadWriteOnce"}))
    terms = (NodeTerm((NodeRequirement("zone", "In", ("a",)),)),)
    zone = {"topology.kubernetes.io/zone": "a"}
    assert seen.storage.volumes[name] == Volume(name, terms, "csi.example.com", "vol-7", zone)
    assert seen.storage.classes[name] == StorageClass(name, provisioner="kubernetes.io/no-provisioner")
    assert seen.storage.limits == {("node-a", "csi.example.com"): 3}


async def test_a_rollout_of_a_deployment_is_seen_from_its_beginning_to_its_end(rig: Rig) -> None:
    namespace = rig.namespace()
    deployment = WorkloadRef(namespace, "Deployment/bridge")
    manifest = template(namespace, "Deployment")
    async with cluster_of(rig.kubeconfig) as cluster:
        rig.apply(yaml.safe_dump(manifest))
        await until(cluster, lambda s: deployment in s.workloads and s.workloads[deployment].settled)
        # each kind has a watch of its own
        seen = await until(cluster, lambda s: sum(pod.namespace == namespace for pod in s.pods.values()) == 2)
        first = seen.workloads[deployment]
        assert (first.replicas, first.template) == (2, {"app": Resources(AMOUNTS, AMOUNTS)})
        (owner,) = {one.owner for one in seen.pods.values() if one.namespace == namespace}
        replica_set = seen.workloads[WorkloadRef(namespace, owner or "")]
        assert (replica_set.template, replica_set.owned, replica_set.replicas) == (first.template, True, 2)
        assert {one.workload for one in seen.pods.values() if one.owner == owner} == {"Deployment/bridge"}

        manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "50m"}}
        rig.apply(yaml.safe_dump(manifest))
        changed = Resources(ResourceList(Millicores(50)))
        seen = await until(cluster, lambda s: s.workloads[deployment].template == {"app": changed})
        assert not seen.workloads[deployment].settled
        seen = await until(cluster, lambda s: s.workloads[deployment].settled)
        owners = {one.owner for one in seen.pods.values() if one.namespace == namespace and not one.deleting}
        assert owner not in owners
        # the old one wants no pods any more: a link to its Deployment and no more
        await until(cluster, lambda s: replica_set.ref not in s.workloads)

        rig.kubectl("rollout", "pause", "deployment/bridge", f"-n={namespace}")
        await until(cluster, lambda s: not s.workloads[deployment].settled)


@pytest.mark.parametrize(
    ("strategy", "settled"),
    [({"type": "OnDelete"}, True), ({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}, False)],
)
async def test_of_which_revision_the_next_pod_of_a_stateful_set_will_be(
    strategy: Json, settled: bool, rig: Rig
) -> None:
    namespace = rig.namespace()
    ref, oldest = WorkloadRef(namespace, "StatefulSet/bridge"), PodRef(namespace, "bridge-0")
    manifest = template(namespace, "StatefulSet", updateStrategy=strategy)
    async with cluster_of(rig.kubeconfig) as cluster:
        rig.apply(yaml.safe_dump(manifest))
        seen = await until(cluster, lambda s: ref in s.workloads and s.workloads[ref].settled and oldest in s.pods)
        first = seen.workloads[ref]
        assert seen.pods[oldest].labels["controller-revision-hash"] == first.revision

        manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "50m"}}
        rig.apply(yaml.safe_dump(manifest))
        seen = await until(cluster, lambda s: s.workloads[ref].revision != first.revision)
        if not settled:  # bridge-1 is replaced, and nothing else
            seen = await until(
                cluster,
                lambda s: (
                    (replaced := s.pods.get(PodRef(namespace, "bridge-1"))) is not None  # between the two there is none
                    and replaced.labels["controller-revision-hash"] == s.workloads[ref].revision
                ),
            )
        assert seen.workloads[ref].settled is settled
        newest = seen.workloads[ref].revision
        assert seen.pods[oldest].labels["controller-revision-hash"] == first.revision
        uid = seen.pods[oldest].uid
        rig.kubectl("delete", "pod", "bridge-0", f"-n={namespace}", "--now")
        seen = await until(cluster, lambda s: oldest in s.pods and s.pods[oldest].uid != uid)
        assert seen.pods[oldest].labels["controller-revision-hash"] == (newest if settled else first.revision)


async def test_who_scaled_a_deployment_last_is_seen(rig: Rig) -> None:
    namespace = rig.namespace()
    ref = WorkloadRef(namespace, "Deployment/bridge")
    surge, back = (f"bridge-autoscaler-{what}@2026-11-29T10:00:0{n}Z" for n, what in enumerate(("surge", "surge-back")))

    def scale(replicas: int, manager: str) -> None:
        body = json.dumps({"spec": {"replicas": replicas}})
        patch = ("--subresource=scale", "--type=merge", f"--patch={body}", f"--field-manager={manager}")
        rig.kubectl("patch", "deployment", "bridge", f"-n={namespace}", *patch)

    def entries() -> list[tuple[str, bool]]:
        """Managers of scale, and whether a moment is noted."""
        answer = rig.kubectl("get", "deployment", "bridge", f"-n={namespace}", "-o=json", "--show-managed-fields")
        found = json.loads(answer)["metadata"]["managedFields"]
        return [(one["manager"], "time" in one) for one in found if one.get("subresource") == "scale"]

    async with cluster_of(rig.kubeconfig) as cluster:
        rig.apply(yaml.safe_dump(template(namespace, "Deployment", 1)))
        await until(cluster, lambda s: ref in s.workloads and s.workloads[ref].settled)
        assert entries() == []
        scale(2, surge)
        seen = await until(cluster, lambda s: s.workloads[ref].replicas == 2)
        ask = seen.workloads[ref].scaled
        assert ask is not None
        assert (ask.manager, ask.at.isoformat()) == ("bridge-autoscaler-surge", "2026-11-29T10:00:00+00:00")
        assert entries() == [(surge, False)]
        scale(1, back)
        seen = await until(cluster, lambda s: s.workloads[ref].replicas == 1)
        ask = seen.workloads[ref].scaled
        assert ask is not None
        assert (ask.manager, ask.at.second) == ("bridge-autoscaler-surge-back", 1)
        assert entries() == [(back, False)]  # nobody owns the value of before any more
        rig.kubectl("scale", "deployment", "bridge", f"-n={namespace}", "--replicas=3")
        seen = await until(cluster, lambda s: s.workloads[ref].replicas == 3)
        assert seen.workloads[ref].scaled is None
        assert entries() == [("kubectl", False)]
        scale(4, surge)
        await until(cluster, lambda s: s.workloads[ref].scaled is not None)
        rig.apply(yaml.safe_dump(template(namespace, "Deployment", 2)))
        await until(cluster, lambda s: (s.workloads[ref].replicas, s.workloads[ref].scaled) == (2, None))
        assert entries() == []


async def test_a_right_to_evict_that_is_taken_away_and_granted_again_is_noticed(rig: Rig) -> None:
    def migrates(snapshot: ClusterSnapshot) -> bool:
        return Capability.MIGRATE in snapshot.capabilities

    async with cluster_of(rig.kubeconfig, timing=Timing(relist_s=0.5)) as cluster:
        assert migrates(await cluster.observe())
        rig.kubectl("delete", "clusterrolebinding", "bridge-autoscaler-migrate")
        try:
            seen = await until(cluster, lambda s: not migrates(s))
            assert Capability.SURGE in seen.capabilities
            assert (seen.disruption_budgets, seen.problems) == ((), ())
        finally:
            rig.kubectl("apply", "-k", str(ROOT / "rbac" / "migrate"))
        await until(cluster, migrates)
