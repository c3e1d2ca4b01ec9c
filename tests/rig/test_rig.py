"""The rig is what the other tests take it for: identities, audit, usage that arrives in Prometheus, remote write."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

import pytest
import yaml

from tests.rig.control_plane import CONTROLLER, NOBODY
from tests.rig.prometheus_server import STALE, PrometheusServer
from tests.rig.rig import Rig, eventually
from tests.rig.usage import Usage

MIB = 2**20


def bridges(namespace: str, **limits: str) -> str:
    app = {"name": "app", "image": "bridge", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}
    app["resources"]["limits"] = limits  # type: ignore[index]
    return yaml.safe_dump(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "sim", "namespace": namespace},
            "spec": {
                "serviceName": "sim",
                "selector": {"matchLabels": {"app": "sim"}},
                "template": {"metadata": {"labels": {"app": "sim"}}, "spec": {"containers": [app]}},
            },
        }
    )


@pytest.fixture(scope="module")
def namespace(rig: Rig) -> str:
    """A namespace with a running StatefulSet `sim` that wants 2 cores and may use half of one."""
    name = rig.namespace("rig")
    rig.agent.usage[name, "sim", "app"] = Usage(cpu=2.0, memory=100 * MIB, cache=50 * MIB)
    rig.apply(bridges(name, cpu="500m"))
    rig.kubectl("rollout", "status", "statefulset/sim", f"--namespace={name}", "--timeout=30s")
    return name


def patch(rig: Rig, role: str, path: str, body: dict[str, Any]) -> int:
    """The status of a strategic merge patch sent under an identity of the rig."""
    control_plane = rig.control_plane
    request = urllib.request.Request(
        f"{control_plane.url}{path}",
        json.dumps(body).encode(),
        {
            "Authorization": f"Bearer {control_plane.token(role)}",
            "Content-Type": "application/strategic-merge-patch+json",
        },
        method="PATCH",
    )
    context = ssl.create_default_context(cadata=control_plane.certificate.decode())
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_the_controller_may_resize_a_pod_and_nothing_else_and_the_audit_log_shows_it(rig: Rig, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/sim-0"
    resize = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "400m"}}}]}}
    assert patch(rig, "controller", f"{path}/resize", resize) == 200
    assert patch(rig, "controller", path, {"metadata": {"labels": {"x": "y"}}}) == 403
    assert patch(rig, "nobody", f"{path}/resize", resize) == 403
    found = [
        (
            record["user"]["username"],
            record["verb"],
            record["objectRef"].get("subresource"),
            record["responseStatus"]["code"],
        )
        for record in rig.audit()
        if record["requestURI"].startswith(path) and record["user"]["username"] in (CONTROLLER, NOBODY)
    ]
    assert found == [
        (CONTROLLER, "patch", "resize", 200),
        (CONTROLLER, "patch", None, 403),
        (NOBODY, "patch", "resize", 403),
    ]


def test_a_user_without_permission_sees_nothing(rig: Rig) -> None:
    with pytest.raises(AssertionError, match="Forbidden"):
        rig.kubectl("get", "pods", "--all-namespaces", kubeconfig=rig.nobody_kubeconfig)


def test_a_manifest_with_an_unknown_field_is_refused(rig: Rig) -> None:
    with pytest.raises(AssertionError, match="unknown field"):
        rig.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: default}, dataa: {}}")


def test_usage_arrives_in_prometheus_as_a_kubelet_exports_it(rig: Rig, namespace: str) -> None:
    selector = f'{{namespace="{namespace}",container="app"}}'

    def throttled_rate() -> bool:
        found = rig.prometheus.query(f"rate(container_cpu_usage_seconds_total{selector}[10s])")
        return bool(found) and found[0][1] == pytest.approx(0.5, rel=0.05)

    eventually("a rate of half a core: the limit, not the demand", throttled_rate, within_s=30)
    rows = rig.prometheus.query(f'{{__name__=~"container_.+",{selector[1:]}')
    values = {labels["__name__"]: value for labels, value in rows}
    assert values["container_memory_working_set_bytes"] == 100 * MIB
    assert values["container_memory_usage_bytes"] == 150 * MIB
    assert values["container_spec_cpu_quota"] == 50000
    assert values["container_spec_memory_limit_bytes"] == 0
    assert 0 < values["container_cpu_cfs_throttled_periods_total"] <= values["container_cpu_cfs_periods_total"]
    rows = rig.prometheus.query(f'container_memory_working_set_bytes{{namespace="{namespace}"}}')
    # the empty label of the pod's and the pause container's rows is no label in Prometheus
    assert sorted(labels.get("container", "") for labels, _ in rows) == ["", "", "app"]


def test_kube_state_metrics_show_owners_and_sizes(rig: Rig, namespace: str) -> None:
    def owners() -> list[tuple[dict[str, str], float]]:
        return rig.prometheus.query(f'kube_pod_owner{{namespace="{namespace}"}}')

    ((labels, _),) = eventually("the owner is there", owners)
    assert (labels["pod"], labels["owner_kind"], labels["owner_name"]) == ("sim-0", "StatefulSet", "sim")
    limits = rig.prometheus.query(f'kube_pod_container_resource_limits{{namespace="{namespace}"}}')
    assert [(labels["resource"], labels["unit"], value) for labels, value in limits] == [("cpu", "core", 0.5)]


def test_remote_write_takes_samples_of_any_time_and_stale_markers(prometheus: PrometheusServer) -> None:
    for at in (1_760_000_000.0, 1_700_000_000.0, 1_750_000_000.0):
        labels = {"__name__": "written", "namespace": "rig-remote-write", "at": str(int(at))}
        prometheus.write([(labels, [(at, 1.5), (at + 30, 2.5), (at + 60, STALE)])])
        name = f'written{{namespace="rig-remote-write",at="{int(at)}"}}'
        assert [value for _, value in prometheus.query(name, at + 31)] == [2.5]
        assert prometheus.query(name, at + 61) == []


def test_a_refused_write_says_why(rig: Rig) -> None:
    eventually("it has scraped something, and so knows what is old", lambda: rig.prometheus.query("up"))
    with pytest.raises(AssertionError, match=r"remote write refused: .*(old|bounds)"):
        rig.prometheus.write([({"__name__": "written"}, [(1_700_000_000.0, 1.0)])])  # the rig's own is at now
