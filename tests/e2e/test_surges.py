"""Pods that are moved by a surge of their Deployment, also when the controller is killed in the middle of it."""

from __future__ import annotations

import math
import signal

import pytest

from tests.e2e.moving import Json, Stage, Staged, cpu_of, reasons, serving, uid_of
from tests.rig.rig import eventually

pytestmark = pytest.mark.rig

OWN = {"patch pods/resize", "create pods/eviction", "patch deployments/scale", "create events"}
SURGE, BACK = "bridge-autoscaler-surge", "bridge-autoscaler-surge-back"


def scales(stage: Stage, app: str = "sim", namespace: str | None = None) -> list[str]:
    """Who scaled the Deployment, as field managers name them, without their moment."""
    writes = stage.writes(namespace)
    return [one.manager.partition("@")[0] for one in writes if (one.what, one.name) == ("patch deployments/scale", app)]


def replicas(stage: Stage, app: str = "sim", namespace: str | None = None) -> int:
    found: int = stage.get("deployment", app, namespace)["spec"]["replicas"]
    return found


def autoscaler(stage: Stage, app: str) -> Json:
    """Somebody else's, which goes by memory in use and leaves CPU alone."""
    metric = {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
    }
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": app}
    spec = {"scaleTargetRef": target, "maxReplicas": 3, "metrics": [metric]}
    return stage.made("autoscaling/v2", "HorizontalPodAutoscaler", app, spec)


def test_a_new_pod_serves_at_its_size_before_the_old_one_goes_or_the_surge_is_undone_or_refused(staged: Staged) -> None:
    stage = staged("surge")
    apart = stage.new_namespace()
    stage.place(
        stage.workload("sim", "Deployment"),
        stage.workload("stuck", "Deployment", namespace=apart),
        stage.workload("scaled", "Deployment"),
        stage.workload("set"),
    )
    stage.apply(stage.budget("sim", minAvailable=1), autoscaler(stage, "scaled"))
    others = {app: stage.node(f"{app}-other", app=app) for app in ("sim", "stuck", "scaled", "set")}
    stage.rig.agent.ready_after_s |= {stage.namespace: 1, apart: math.inf}
    stage.policy(namespaces=[stage.namespace, apart], strategy="Surge", readyWithin="6s")
    before = {app: uid_of(stage.pod(app)) for app in ("sim", "scaled", "set")}
    stuck = uid_of(stage.pod("stuck", apart))
    with serving(stage) as counts, stage.controller() as controller:
        eventually("it is moved", stage.landed(others["sim"]), 60)
        eventually("its surge is over", lambda: replicas(stage) == 1)
        eventually("the other surge is undone", lambda: scales(stage, "stuck", apart) == [SURGE, BACK], 30)
        eventually("its pod has gone", lambda: [uid_of(pod) for pod in stage.pods("stuck", apart)] == [stuck])
        wanted = {"AtTarget": 1, "SurgeFailed": 1, "SurgeRefused": 2}
        eventually("the rest is held", lambda: reasons(controller) == wanted, 30)
        plan = {name.split("-")[0]: item for name, item in stage.planned().items()}
        fewest = min(counts()[2:])
    assert fewest == 3  # of one that is moved and two that are not
    words = {app: item["detail"] for app, item in plan.items()}
    assert "HorizontalPodAutoscaler scaled sets the number of replicas" in words["scaled"]
    assert "only a Deployment can surge, this is StatefulSet/set" in words["set"]
    assert "the last surge ended at" in words["stuck"]
    assert scales(stage) == [SURGE, BACK]
    assert len(stage.evicted()) == 1
    assert stage.evicted(apart) == []
    assert {app for app, uid in before.items() if uid != uid_of(stage.pod(app))} == {"sim"}
    assert {one.what for one in stage.writes()} | {one.what for one in stage.writes(apart)} == OWN


def test_a_leader_killed_after_each_step_is_followed_by_one_that_goes_on_from_there(staged: Staged) -> None:
    stage = staged("steps")
    stage.place(stage.workload("sim", "Deployment"))
    stage.apply(stage.budget("sim", minAvailable=1), *no_fewer(stage))
    other = stage.node("other")
    stage.policy(strategy="Surge", readyWithin="2m", retryAfter="1s")
    old = uid_of(stage.pod())
    elected = ("--leader-elect=true",)
    with stage.controller("first", *elected) as first:
        leads = "it leads", lambda: any(line["event"] == "leader" and line["leading"] for line in first.lines())
        eventually(*leads, 30)
        with stage.controller("second", *elected) as second:
            with stage.rig.control_plane.hold("kube-scheduler"):
                eventually("there is one more", lambda: scales(stage) == [SURGE], 60)
                first.signal(signal.SIGKILL)
            eventually("the other one goes on", lambda: stage.evicted(), 60)
            eventually("it may not scale back", lambda: refused(stage))
            second.signal(signal.SIGKILL)
    assert (replicas(stage), scales(stage)) == (2, [SURGE])
    (new,) = [pod for pod in stage.ready("sim") if cpu_of(pod) == "2"]
    assert (uid_of(new) != old, new["spec"]["nodeName"]) == (True, other)
    stage.rig.kubectl("delete", "validatingadmissionpolicybinding", stage.namespace)
    eventually("there are two", lambda: len(stage.ready("sim")) == 2)
    before = len(stage.evicted())
    with stage.controller("third"):
        eventually("the surge is over", lambda: replicas(stage) == 1, 60)
        eventually("one is left", lambda: len(stage.pods("sim")) == 1)
    assert uid_of(stage.pod()) == uid_of(new)
    assert scales(stage) == [SURGE, BACK]
    assert len(stage.evicted()) - before <= 2  # one, and another one if the first one's successor was very quick
    assert {one.what for one in stage.writes()} == OWN
    stage.rig.kubectl("delete", "validatingadmissionpolicy", stage.namespace)
    stage.rig.kubectl("delete", "lease", "bridge-autoscaler", "-n=bridge-autoscaler", "--ignore-not-found")


def no_fewer(stage: Stage) -> list[Json]:
    """A rule by which no Deployment of the story may be scaled down: so that a surge stops after its eviction."""
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments/scale"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": here},
        "validations": [{"expression": "object.spec.replicas >= oldObject.spec.replicas", "message": "not now"}],
    }
    binding = {"policyName": stage.namespace, "validationActions": ["Deny"]}
    made = [
        stage.made("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", stage.namespace, spec),
        stage.made("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", stage.namespace, binding),
    ]
    for one in made:
        del one["metadata"]["namespace"]
    return made


def refused(stage: Stage) -> bool:
    """Whether the API server has refused to scale a Deployment of the story."""
    return any(
        (of.get("namespace"), of.get("subresource")) == (stage.namespace, "scale")
        and record["verb"] == "patch"
        and record["responseStatus"]["code"] >= 400
        for record in stage.rig.audit()
        if (of := record.get("objectRef"))
    )
