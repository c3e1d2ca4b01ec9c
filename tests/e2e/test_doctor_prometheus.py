"""What `doctor` says of a Prometheus: the rig's, one with series written by hand, and servers that are none."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.adapters.prometheus.servers import refusal, result, serve
from tests.cli.conftest import write_policy
from tests.e2e.cli import command, run
from tests.rig.prometheus_server import PrometheusServer
from tests.rig.rig import Rig, eventually

Findings = dict[str, list[dict[str, Any]]]

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: sim-0, namespace: {namespace}}}
spec:
  containers:
  - name: app
    image: sim
    resources: {{requests: {{cpu: 100m, memory: 64Mi}}, limits: {{cpu: 200m, memory: 128Mi}}}}
"""


@pytest.fixture(scope="module")
def namespace(rig: Rig) -> Iterator[str]:
    name = rig.namespace("doctor")
    rig.apply(POD.format(namespace=name))
    eventually("it runs", lambda: rig.pod(name, "sim-0")["status"]["phase"] == "Running")
    yield name
    rig.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def policies(namespace: str, tmp_path: Path) -> Path:
    write_policy(tmp_path, namespace=namespace)
    return tmp_path


@pytest.fixture
def own(tmp_path: Path) -> Iterator[PrometheusServer]:
    """A Prometheus with nothing in it."""
    folder = tmp_path / "prometheus"
    folder.mkdir()
    server = PrometheusServer(folder, out_of_order="1h")
    yield server
    server.stop()


def doctor(rig: Rig, policies: Path, url: str, *arguments: str) -> tuple[int, Findings]:
    line = command(
        rig, "doctor", f"--policies={policies / 'bridges.yaml'}", "-o", "json", *arguments, prometheus_url=url
    )
    done = run(*line)
    assert re.search(r"^Prometheus: \d+ quer(y|ies), \d+ samples in the answers$", done.stderr, re.MULTILINE)
    found: Findings = {}
    for finding in json.loads(done.stdout)["findings"]:
        found.setdefault(finding["check"], []).append(finding)
    return done.returncode, found


def statuses(found: Findings, check: str) -> list[str]:
    return [finding["status"] for finding in found[check]]


def write(
    server: PrometheusServer, labels: Mapping[str, str], *, every_s: int = 15, until: float | None = None
) -> None:
    """The three series of a container, for ten minutes."""
    end = time.time() if until is None else until
    instants = [end - 600 + every_s * n for n in range(1 + 600 // every_s)]
    server.write(
        ({"__name__": name, **labels}, [(at, 1e8 if "memory" in name else 0.5 * (at - instants[0])) for at in instants])
        for name in (
            "container_cpu_usage_seconds_total",
            "container_memory_usage_bytes",
            "container_memory_working_set_bytes",
        )
    )


def names(namespace: str) -> dict[str, str]:
    return {"namespace": namespace, "pod": "sim-0", "container": "app"}


def test_all_of_the_rigs_is_well(rig: Rig, policies: Path, namespace: str) -> None:
    query = f'container_cpu_usage_seconds_total{{namespace="{namespace}",container="app"}}[20s]'
    eventually("it is scraped", lambda: rig.prometheus.query(f"count_over_time({query}) > 3"), 30)
    status, found = doctor(rig, policies, rig.prometheus_url, "--strict")
    assert status == 0, found
    assert statuses(found, "metrics") == ["Ok", "Ok", "Ok"]
    assert found["metrics"][0]["detail"].startswith("1 of 1 container, at most ")
    assert found["scrapes"][0]["detail"] == "every 1 s"
    assert found["labels"][0]["detail"].endswith("namespace, pod, container")
    assert found["cgroups"][0]["status"] == "Note"  # the rig's kubelets are played, and say nothing of it


def test_labels_that_are_exported(rig: Rig, policies: Path, namespace: str, own: PrometheusServer) -> None:
    exported = {f"exported_{name}": value for name, value in names(namespace).items()}
    write(own, {**exported, "namespace": "monitoring", "pod": "exporter-x", "container": "exporter"})
    status, found = doctor(rig, policies, own.url)
    assert status == 0, found
    assert statuses(found, "labels") == ["Ok", "Note", "Note"]  # and there are no kube-state-metrics
    assert found["labels"][0]["detail"].endswith("exported_namespace, exported_pod, exported_container")
    assert statuses(found, "metrics") == ["Ok", "Ok", "Ok"]
    assert found["scrapes"][0]["detail"] == "every 15 s"


def test_two_clusters_are_named_with_the_setting(
    rig: Rig, policies: Path, namespace: str, own: PrometheusServer
) -> None:
    for cluster in ("eu", "us"):
        write(own, {**names(namespace), "cluster": cluster})
    status, found = doctor(rig, policies, own.url)
    assert status == 1
    (ambiguous,) = found["clusters"]
    assert ambiguous["status"] == "Error"
    assert 'cluster="eu" and cluster="us"' in ambiguous["detail"]
    assert "prometheus.layout.clusterMatcher" in ambiguous["remedy"]
    assert statuses(found, "metrics") == ["Skipped"]
    (policies / "config").write_text(
        "apiVersion: bridge-autoscaler.dev/v1alpha1\nkind: BridgeConfig\n"
        "spec: {prometheus: {layout: {clusterMatcher: 'cluster=\"eu\"'}}}\n"
    )
    status, found = doctor(rig, policies, own.url, f"--config={policies / 'config'}")
    assert status == 0, found
    assert statuses(found, "clusters") == ["Ok"]
    assert statuses(found, "metrics") == ["Ok", "Ok", "Ok"]


def test_a_rate_window_shorter_than_four_scrapes(
    rig: Rig, policies: Path, namespace: str, own: PrometheusServer
) -> None:
    write(own, names(namespace), every_s=60)
    path = policies / "bridges.yaml"
    path.write_text(path.read_text().replace("lookback: 14d", "lookback: 14d, rateWindow: 100s, step: 60s"))
    status, found = doctor(rig, policies, own.url)
    assert status == 1
    assert statuses(found, "scrapes") == ["Ok", "Error"]
    assert "write rateWindow: 240s" in found["scrapes"][1]["remedy"]


def test_a_series_that_is_old_and_one_that_is_not_there(
    rig: Rig, policies: Path, namespace: str, own: PrometheusServer
) -> None:
    write(own, names(namespace), until=time.time() - 200)
    own.write([({"__name__": "kubelet_cgroup_version", "node": "node-a"}, [(time.time(), 1.0)])])
    status, found = doctor(rig, policies, own.url)
    assert status == 1
    assert statuses(found, "metrics") == ["Error", "Error", "Warning"]
    assert f"missing of {namespace}/sim-0; newest sample 2" in found["metrics"][0]["detail"]
    assert ("Warning", "cgroup v1 on node-a") in [
        (one["status"], one["detail"].partition(":")[0]) for one in found["cgroups"]
    ]


async def test_an_empty_server_whose_clock_is_ahead(rig: Rig, policies: Path) -> None:
    async def ahead(request: web.Request) -> web.StreamResponse:
        form = await request.post()
        now = time.time() + 3600
        return result("scalar", [now, f"{now}"]) if form["query"] == "time()" else result("vector", [])

    async with serve(ahead) as url:
        status, found = await asyncio.to_thread(doctor, rig, policies, url)
    assert status == 1
    assert statuses(found, "clocks") == ["Warning"]
    assert "s ahead of the API server's" in found["clocks"][0]["detail"]
    assert statuses(found, "labels") == ["Error"]
    assert "/metrics/cadvisor" in found["labels"][0]["remedy"]
    for check in ("clusters", "scrapes", "metrics"):
        assert found[check][0]["detail"] == "the check labels did not succeed"


@pytest.mark.parametrize(
    ("answer", "detail", "remedy"),
    [
        (
            lambda: web.Response(text="<html>Sign in</html>", content_type="text/html"),
            "answered with an HTML page (HTTP 200)",
            "--prometheus-url",
        ),
        (lambda: web.Response(status=401, text="no"), "refuses access (HTTP 401)", "prometheus.auth"),
        (lambda: web.Response(status=401, text="no org id"), "no org id", "prometheus.tenant"),
        (lambda: web.Response(status=302, headers={"Location": "https://sso/"}), "redirects to https://sso", "--"),
        (lambda: web.Response(status=404), "has no query API", "--prometheus-url"),
        (lambda: web.Response(), "sent an empty answer", "--prometheus-url"),
        (lambda: refusal(503, "unavailable", "starting"), "starting", "the log of that server"),
        (lambda: result("vector", []), "gave no time", "it does not seem to be Prometheus"),
    ],
    ids=["html", "401", "tenant", "redirect", "404", "empty", "503", "no-time"],
)
async def test_servers_that_are_none(rig: Rig, policies: Path, answer: Any, detail: str, remedy: str) -> None:
    async def handle(_: web.Request) -> web.StreamResponse:
        response: web.StreamResponse = answer()
        return response

    async with serve(handle) as url:
        status, found = await asyncio.to_thread(doctor, rig, policies, url)
    assert status == 1
    (finding,) = found["prometheus"]
    assert finding["status"] == "Error"
    assert finding["detail"].startswith(url)
    assert detail in finding["detail"]
    assert remedy in finding["remedy"] + finding["detail"]
    for check in ("clocks", "labels", "sessions"):
        assert found[check][0]["detail"] == "the check prometheus did not succeed"


def test_a_prometheus_that_is_not_there(rig: Rig, policies: Path) -> None:
    status, found = doctor(rig, policies, "http://127.0.0.1:1")
    assert status == 1
    assert "cannot be reached: Connection refused" in found["prometheus"][0]["detail"]
    assert found["prometheus"][0]["remedy"].startswith("check --prometheus-url")


def test_the_query_of_a_drain_gate(rig: Rig, policies: Path, namespace: str, own: PrometheusServer) -> None:
    path = policies / "bridges.yaml"
    moving = "mode: ResizeOrMigrate\n  fallback: {{action: Migrate, drain: {{query: '{query}'}}}}"
    plain = path.read_text()

    def asked(query: str) -> dict[str, Any]:
        path.write_text(plain.replace("mode: Resize", moving.format(query=query)))
        (finding,) = doctor(rig, policies, own.url)[1]["sessions"]
        return finding

    query = 'sum by (namespace, pod) (bridge_sessions{pod=~"$pod"})'
    missing = asked(query)
    assert (missing["status"], missing["subject"]) == ("Warning", "bridges")
    assert f"no number for 1 of 1 pod: {namespace}/sim-0" in missing["detail"]
    own.write([({"__name__": "bridge_sessions", "namespace": namespace, "pod": "sim-0"}, [(time.time(), 3.0)])])
    assert asked(query)["status"] == "Ok"
    refused = asked('sum sum (bridge_sessions{pod=~"$pod"})')
    assert refused["status"] == "Error"
    assert "parse error" in refused["detail"] + refused["remedy"]


def test_a_signal_of_a_policys_own(rig: Rig, policies: Path, namespace: str, own: PrometheusServer) -> None:
    write(own, names(namespace))
    path = policies / "bridges.yaml"
    plain = path.read_text()

    def asked(query: str) -> dict[str, Any]:
        path.write_text(plain.replace("14d", f"14d, signals: {{frameTime: {{query: '{query}'}}}}"))
        found = doctor(rig, policies, own.url)[1]["signals"]
        return next(one for one in found if one["subject"] == "bridges/frameTime")

    query = 'max by (namespace, pod) (frame_seconds{namespace=~"$namespace",pod=~"$pod"})'
    missing = asked(query)
    assert missing["status"] == "Warning"
    assert missing["detail"] == f"0 of 1 container; missing of {namespace}/sim-0"
    assert str(path) in missing["remedy"]
    own.write([({"__name__": "frame_seconds", "namespace": namespace, "pod": "sim-0"}, [(time.time(), 0.02)])])
    assert asked(query)["status"] == "Ok"
    refused = asked('sum sum (frame_seconds{pod=~"$pod"})')
    assert refused["status"] == "Error"
    assert "parse error" in refused["detail"] + refused["remedy"]


def test_who_asks_is_named_and_no_secret_is(rig: Rig, policies: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    (tmp_path / "token").write_text("very-secret-token")
    config.write_text(
        "apiVersion: bridge-autoscaler.dev/v1alpha1\nkind: BridgeConfig\n"
        "spec: {prometheus: {tenant: a|b, auth: {bearer: {tokenFile: token}}}}\n"
    )
    _, found = doctor(rig, policies, rig.prometheus_url, f"--config={config}")
    assert found["prometheus"][0]["detail"].endswith("answers, asked with prometheus.auth.bearer, for the tenant a|b")
    assert "very-secret" not in json.dumps(found)
