"""Moves on a real API server, with the real controllers of Deployments, StatefulSets and PodDisruptionBudgets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.core.actions import Evict, OutcomeKind, Scale, ScaleKind
from autoscaler.core.model import Pod, Workload, WorkloadRef
from tests.rig.observer import cluster_of
from tests.rig.rig import Rig, eventually

pytestmark = pytest.mark.rig

NODE = "evictions"
Json = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def node(rig: Rig) -> Iterator[None]:
    rig.agent.add_node(NODE, labels={"only-for": NODE})
    yield
    rig.agent.remove_node(NODE)


@dataclass(frozen=True)
class Bridges:
    """The pods of one namespace, as the adapter sees them."""

    rig: Rig
    cluster: KubernetesCluster
    namespace: str

    async def pods(self) -> list[Pod]:
        found = (await self.cluster.observe()).pods.values()
        return sorted((pod for pod in found if pod.namespace == self.namespace), key=lambda pod: pod.name)

    async def until(self, holds: Callable[[list[Pod]], bool]) -> list[Pod]:
        async with asyncio.timeout(20):
            while not holds(found := await self.pods()):
                await asyncio.sleep(0.02)
        return found

    async def serving(self, count: int) -> list[Pod]:
        """So many pods, all of them ready and settled, and their budgets counted."""
        found = await self.until(lambda pods: len(pods) == count and all(p.ready and not p.deleting for p in pods))
        budgets = ("get", "poddisruptionbudgets", f"--namespace={self.namespace}", "--output=json")
        eventually(
            "the budgets are counted",
            lambda: all(
                budget["status"].get("currentHealthy") == count
                for budget in json.loads(self.rig.kubectl(*budgets))["items"]
            ),
        )
        return found

    async def deployment(self, *, available: int | None = None) -> Workload:
        """The Deployment, when so many of its pods (all, unless said otherwise) are available, and it says so."""
        ref = WorkloadRef(self.namespace, "Deployment/sim")
        async with asyncio.timeout(20):
            while True:
                there = json.loads(self.rig.kubectl("get", "deployment", "sim", f"-n{self.namespace}", "-ojson"))
                known = (await self.cluster.observe()).workloads.get(ref)
                wanted = there["spec"]["replicas"] if available is None else available
                settled = there["status"].get("availableReplicas") == wanted
                if known is not None and settled and known.resource_version == there["metadata"]["resourceVersion"]:
                    return known
                await asyncio.sleep(0.05)

    def budget(self, name: str, *, selector: Json | None = None, **spec: int | str) -> None:
        chosen = {"matchLabels": {"app": "sim"}} if selector is None else selector
        meta = {"name": name, "namespace": self.namespace}
        made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta}
        self.rig.apply(yaml.safe_dump(made | {"spec": {"selector": chosen, **spec}}))

    def owners(self) -> dict[str, str]:
        """Who owns the Deployment's replicas: field manager to subresource."""
        show = ("get", "deployment", "sim", f"--namespace={self.namespace}", "--show-managed-fields", "--output=json")
        entries = json.loads(self.rig.kubectl(*show))["metadata"]["managedFields"]
        return {
            entry["manager"]: entry.get("subresource", "")
            for entry in entries
            if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
        }


def manifest(kind: str, namespace: str, replicas: int | None) -> str:
    size = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "app", "image": "bridge", "resources": {"requests": size, "limits": size}}
    made: Json = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "sim", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": "sim"}},
            "template": {
                "metadata": {"labels": {"app": "sim"}},
                "spec": {"containers": [container], "nodeSelector": {"only-for": NODE}},
            },
        },
    }
    if kind == "StatefulSet":
        made["spec"] |= {"serviceName": "sim", "podManagementPolicy": "Parallel"}
    if replicas is not None:
        made["spec"]["replicas"] = replicas
    return yaml.safe_dump(made)


@asynccontextmanager
async def bridges(rig: Rig, kind: str = "StatefulSet", replicas: int = 1) -> AsyncIterator[Bridges]:
    namespace = rig.namespace("evictions")
    rig.apply(manifest(kind, namespace, replicas))
    try:
        async with cluster_of(rig.kubeconfig) as cluster:
            made = Bridges(rig, cluster, namespace)
            await made.serving(replicas)
            yield made
    finally:
        rig.kubectl("delete", kind.lower(), "sim", f"--namespace={namespace}", "--wait=false")


def evict(pod: Pod) -> Evict:
    return Evict(pod.ref, pod.uid, pod.resource_version)


def scale(workload: Workload, replicas: int, kind: ScaleKind, pod: Pod) -> Scale:
    undoes = workload.scaled if kind is ScaleKind.BACK else None
    return Scale(workload.ref, workload.uid, workload.resource_version, replicas, kind, pod.ref, undoes)


@pytest.mark.parametrize(
    ("selector", "spec"),
    [(None, {"minAvailable": 1}), ({}, {"minAvailable": "100%"}), ({}, {"maxUnavailable": 0})],
    ids=["one of one", "all of the namespace", "none unavailable"],
)
async def test_a_budget_that_never_allows_it_blocks_an_eviction(rig: Rig, selector: Json | None, spec: Json) -> None:
    async with bridges(rig) as made:
        made.budget("never", selector=selector, **spec)
        (pod,) = await made.serving(1)
        outcome = await made.cluster.move(evict(pod))
        assert (outcome.kind, outcome.cause) == (OutcomeKind.BLOCKED, "DisruptionBudget")
        assert "disruption budget never needs 1 healthy pods and has 1" in outcome.detail
        assert await made.pods() == [pod]
        assert rig.pod(*pod.ref)["metadata"]["uid"] == pod.uid


async def test_pods_are_evicted_one_after_the_other_as_the_budget_allows(rig: Rig) -> None:
    async with bridges(rig, replicas=2) as made:
        made.budget("one", maxUnavailable=1)
        first, second = await made.serving(2)
        rig.kubectl("cordon", NODE)  # the replacement has to wait
        try:
            outcome = await made.cluster.move(evict(first))
            assert outcome.kind is OutcomeKind.ACCEPTED
            # what was done shows at once, until there is a new pod
            of_first = [pod for pod in await made.pods() if pod.name == first.name]
            assert all(pod.uid != first.uid or (pod.deleting and pod.disrupted) for pod in of_first)
            await made.until(lambda pods: any(p.name == first.name and p.uid != first.uid for p in pods))
            outcome = await made.cluster.move(evict(second))
            assert outcome.kind is OutcomeKind.BLOCKED, outcome
        finally:
            rig.kubectl("uncordon", NODE)
        _, second = await made.serving(2)
        outcome = await made.cluster.move(evict(second))
        assert outcome.kind is OutcomeKind.ACCEPTED
        await made.until(lambda pods: len(pods) == 2 and pods[1].uid != second.uid)


async def test_two_budgets_for_one_pod_are_explained(rig: Rig) -> None:
    async with bridges(rig) as made:
        made.budget("mine", maxUnavailable=1)
        made.budget("everybodys", selector={}, maxUnavailable=1)
        (pod,) = await made.serving(1)
        outcome = await made.cluster.move(evict(pod))
        assert (outcome.kind, outcome.cause) == (OutcomeKind.REFUSED, "SeveralBudgets")
        assert "leave one PodDisruptionBudget that selects the pod" in outcome.detail
        assert await made.pods() == [pod]


async def test_a_pod_that_is_not_the_one_that_was_decided_on_stays(rig: Rig) -> None:
    async with bridges(rig) as made, cluster_of(rig.kubeconfig, watch=False) as frozen:
        (seen,) = await replace(made, cluster=frozen).pods()
        rig.kubectl("label", "pod", seen.name, f"--namespace={seen.namespace}", "touched=yes")
        outcome = await frozen.move(evict(seen))
        assert outcome.kind is OutcomeKind.CONFLICT
        assert "ResourceVersion" in outcome.detail
        rig.kubectl("delete", "pod", seen.name, f"--namespace={seen.namespace}", "--now")
        await made.until(lambda pods: bool(pods) and pods[0].uid != seen.uid)
        (new,) = await made.serving(1)
        outcome = await frozen.move(evict(seen))
        assert outcome.kind is OutcomeKind.GONE
        assert "replaced" in outcome.detail
        outcome = await made.cluster.move(evict(seen))
        assert outcome.kind is OutcomeKind.GONE
        assert [pod.uid for pod in await made.pods()] == [new.uid]


async def test_a_pod_that_was_deleted_meanwhile_is_gone(rig: Rig) -> None:
    async with bridges(rig, "Deployment") as made, cluster_of(rig.kubeconfig, watch=False) as frozen:
        (seen,) = await replace(made, cluster=frozen).pods()
        rig.kubectl("delete", "pod", seen.name, f"--namespace={seen.namespace}", "--now")
        outcome = await frozen.move(evict(seen))
        assert outcome.kind is OutcomeKind.GONE
        assert "not found" in outcome.detail


async def test_a_server_dry_run_moves_nothing(rig: Rig) -> None:
    async with bridges(rig, "Deployment") as made:
        (pod,) = await made.serving(1)
        known = await made.deployment()
        async with cluster_of(rig.kubeconfig, watch=False, server_dry_run=True) as dry:
            assert (await dry.move(evict(pod))).kind is OutcomeKind.ACCEPTED
            assert (await dry.move(scale(known, 2, ScaleKind.SURGE, pod))).kind is OutcomeKind.ACCEPTED
        assert rig.pod(*pod.ref)["metadata"]["resourceVersion"] == pod.resource_version
        assert await made.deployment() == known


async def test_a_missing_rule_names_its_folder(rig: Rig, tmp_path: Path) -> None:
    async with bridges(rig, "Deployment") as made:
        (pod,) = await made.serving(1)
        known = await made.deployment()
        kubeconfig = only_base(rig, made.namespace, tmp_path)
        async with cluster_of(kubeconfig, watch=False) as cluster:
            outcome = await cluster.move(evict(pod))
            assert (outcome.kind, outcome.cause) == (OutcomeKind.FORBIDDEN, "MissingRule")
            assert "kubectl apply -k rbac/migrate" in outcome.detail
            outcome = await cluster.move(scale(known, 2, ScaleKind.SURGE, pod))
            assert (outcome.kind, outcome.cause) == (OutcomeKind.FORBIDDEN, "MissingRule")
            assert "kubectl apply -k rbac/surge" in outcome.detail


def only_base(rig: Rig, namespace: str, folder: Path) -> Path:
    """A kubeconfig of a service account that has nothing but what rbac/base grants."""
    there = f"--namespace={namespace}"
    rig.kubectl("create", "serviceaccount", "base", there)
    account = f"--serviceaccount={namespace}:base"
    rig.kubectl("create", "clusterrolebinding", namespace, "--clusterrole=bridge-autoscaler-base", account)
    config = yaml.safe_load(rig.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": rig.kubectl("create", "token", "base", there).strip()}
    path = folder / "base.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def test_a_surge_moves_a_pod_that_its_budget_would_never_let_go(rig: Rig) -> None:
    async with bridges(rig, "Deployment") as made:
        made.budget("never", minAvailable=1)
        (old,) = await made.serving(1)
        assert (await made.cluster.move(evict(old))).kind is OutcomeKind.BLOCKED
        began_at = (await made.cluster.observe()).taken_at.replace(microsecond=0)

        before = await made.deployment()
        assert before.scaled is None
        outcome = await made.cluster.move(scale(before, 2, ScaleKind.SURGE, old))
        assert outcome.kind is OutcomeKind.ACCEPTED, outcome
        known = (await made.cluster.observe()).workloads[before.ref]  # at once
        assert known.replicas == 2
        assert known.scaled is not None
        assert known.scaled.manager == ScaleKind.SURGE
        assert abs((known.scaled.at - began_at).total_seconds()) <= 5
        assert [name.partition("@")[0] for name in made.owners()] == [ScaleKind.SURGE]
        assert (await made.cluster.move(scale(before, 2, ScaleKind.SURGE, old))).kind is OutcomeKind.SUPERSEDED

        pods = await made.serving(2)
        (new,) = [pod for pod in pods if pod.uid != old.uid]
        (old,) = [pod for pod in pods if pod.uid == old.uid]
        assert new.created_at is not None
        assert new.created_at >= known.scaled.at
        assert old.created_at is not None
        # of two ready pods that are about as old as each other a ReplicaSet keeps either, but one that is ready before
        # one that is not: so the third pod has to wait here
        rig.kubectl("cordon", NODE)
        try:
            outcome = await made.cluster.move(evict(old))
            assert outcome.kind is OutcomeKind.ACCEPTED, outcome
            await made.until(lambda pods: len(pods) == 2 and all(pod.uid != old.uid for pod in pods))
            outcome = await made.cluster.move(scale(await made.deployment(available=1), 1, ScaleKind.BACK, old))
            assert outcome.kind is OutcomeKind.ACCEPTED, outcome
        finally:
            rig.kubectl("uncordon", NODE)
        known = (await made.cluster.observe()).workloads[before.ref]
        assert known.replicas == 1
        assert known.scaled is not None
        assert known.scaled.manager == ScaleKind.BACK
        assert made.owners() == {f"{ScaleKind.BACK}@{known.scaled.at:%Y-%m-%dT%H:%M:%SZ}": "scale"}
        assert [pod.uid for pod in await made.serving(1)] == [new.uid]

        rig.kubectl("scale", "deployment", "sim", "--replicas=2", f"--namespace={made.namespace}")
        await made.serving(2)
        assert (await made.deployment()).scaled is None  # now it is somebody else's number


async def test_the_server_refuses_a_scale_of_another_deployment_or_an_older_one(rig: Rig) -> None:
    async with bridges(rig, "Deployment") as made:
        known = await made.deployment()
        patch = ("patch", "deployment", "sim", f"--namespace={made.namespace}", "--subresource=scale", "--type=merge")

        def send(uid: str, version: str) -> str:
            body = {"metadata": {"uid": uid, "resourceVersion": version}, "spec": {"replicas": 2}}
            return rig.kubectl(*patch, f"--patch={json.dumps(body)}")

        with pytest.raises(AssertionError, match="UID in precondition"):
            send("00000000-0000-0000-0000-000000000000", known.resource_version)
        with pytest.raises(AssertionError, match="the object has been modified"):
            send(known.uid, "1")
        assert (await made.deployment()).replicas == 1
        (pod,) = await made.serving(1)
        moved = scale(known, 2, ScaleKind.SURGE, pod)
        assert (await made.cluster.move(replace(moved, uid="another"))).kind is OutcomeKind.GONE
        assert (await made.cluster.move(replace(moved, resource_version="1"))).kind is OutcomeKind.SUPERSEDED


async def test_a_deployment_that_would_not_show_its_surge_is_not_scaled(rig: Rig) -> None:
    """Nobody owns the replicas of one that was applied without them: then the server notes no scale either."""
    namespace = rig.namespace("evictions")
    apply = ("apply", "--server-side", "--filename=-")
    rig.kubectl(*apply, stdin=manifest("Deployment", namespace, None))
    async with cluster_of(rig.kubeconfig) as cluster:
        made = Bridges(rig, cluster, namespace)
        (pod,) = await made.serving(1)
        known = await made.deployment()
        assert made.owners() == {}
        outcome = await cluster.move(scale(known, 2, ScaleKind.SURGE, pod))
        assert (outcome.kind, outcome.cause) == (OutcomeKind.REFUSED, "ReplicasNotOwned")
        rig.kubectl("scale", "deployment", "sim", "--replicas=2", f"--namespace={namespace}")
        await made.serving(2)
        assert made.owners() == {}  # as it would have been with ours
        # what the outcome says helps
        rig.kubectl(*apply, stdin=manifest("Deployment", namespace, 2))
        outcome = await cluster.move(scale(await made.deployment(), 3, ScaleKind.SURGE, pod))
        assert outcome.kind is OutcomeKind.ACCEPTED, outcome
        assert [name.partition("@")[0] for name in made.owners()] == [ScaleKind.SURGE]
    rig.kubectl("delete", "deployment", "sim", f"--namespace={namespace}", "--wait=false")
