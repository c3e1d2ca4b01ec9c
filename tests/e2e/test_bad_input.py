"""Bad input: each gets a clear message and an exit status, and nothing is written."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.cli import command, run
from tests.rig.rig import Rig

pytestmark = pytest.mark.rig

POLICY = """\
apiVersion: bridge-autoscaler.dev/v1alpha1
kind: BridgePolicy
metadata: {{name: {name}}}
spec:
  selector: {{namespaces: [{namespace}]}}
  mode: Resize
"""


@pytest.fixture(scope="module")
def namespace(rig: Rig) -> str:
    """A namespace with one running bridge."""
    name = rig.namespace("bad-input")
    rig.apply(
        f"""\
apiVersion: v1
kind: Pod
metadata: {{name: sim-0, namespace: {name}}}
spec:
  containers:
  - name: app
    image: bridge
    resources: {{requests: {{cpu: 100m, memory: 64Mi}}, limits: {{cpu: 200m, memory: 64Mi}}}}
"""
    )
    rig.kubectl("wait", "--for=jsonpath={.status.phase}=Running", f"-n={name}", "pod/sim-0", "--timeout=60s")
    return name


@pytest.fixture
def policies(tmp_path: Path, namespace: str) -> Path:
    path = tmp_path / "policies"
    path.mkdir()
    (path / "one.yaml").write_text(POLICY.format(name="one", namespace=namespace))
    return path


def test_an_empty_policy_folder_is_named(rig: Rig, tmp_path: Path) -> None:
    done = run(*command(rig, "plan", f"--policies={tmp_path}"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(tmp_path) in done.stderr
    assert "BridgePolicy" in done.stderr


def test_a_document_of_another_kind_is_refused_with_file_and_kind(rig: Rig, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
    done = run(*command(rig, "plan", f"--policies={other}"))
    assert done.returncode == 1
    assert "other.yaml:2" in done.stderr
    assert "ConfigMap" in done.stderr
    assert "BridgePolicy" in done.stderr


def test_a_policy_that_matches_nothing_is_a_named_problem(rig: Rig, tmp_path: Path) -> None:
    policy = tmp_path / "nothing.yaml"
    policy.write_text(POLICY.format(name="nothing", namespace="no-such-namespace"))
    done = run(*command(rig, "plan", f"--policies={policy}", "-o", "json", "--detailed-exitcode"))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["items"] == []
    assert [problem["reason"] for problem in document["problems"]] == ["NothingSelected"]
    assert "nothing" in document["problems"][0]["source"]


def test_two_policies_for_one_pod_are_both_named_and_the_pod_is_held(rig: Rig, policies: Path, namespace: str) -> None:
    (policies / "two.yaml").write_text(POLICY.format(name="two", namespace=namespace))
    done = run(*command(rig, "plan", f"--policies={policies}", "-o", "json", "--detailed-exitcode"))
    assert done.returncode == 0, done.stderr
    (item,) = json.loads(done.stdout)["items"]
    assert (item["action"], item["reason"]) == ("None", "AmbiguousPolicy")
    assert "one" in item["detail"]
    assert "two" in item["detail"]


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_a_kubeconfig_without_permission_names_the_missing_rule(rig: Rig, policies: Path, verb: str) -> None:
    line = command(rig, verb, f"--policies={policies}", *(["--once"] if verb == "run" else []))
    line[line.index(f"--kubeconfig={rig.kubeconfig}")] = f"--kubeconfig={rig.nobody_kubeconfig}"
    done = run(*line)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "list" in done.stderr
    assert "pods" in done.stderr
    assert "rbac/base" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_kubeconfig_that_does_not_exist_is_named(rig: Rig, policies: Path, tmp_path: Path) -> None:
    line = command(rig, "plan", f"--policies={policies}")
    line[line.index(f"--kubeconfig={rig.kubeconfig}")] = f"--kubeconfig={tmp_path / 'absent'}"
    done = run(*line)
    assert done.returncode == 1
    assert str(tmp_path / "absent") in done.stderr
    assert "Traceback" not in done.stderr


@contextmanager
def server(status: int, content_type: str, body: bytes | None) -> Iterator[str]:
    """Something that is not a healthy Prometheus. A body of None closes the connection without an answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if body is None:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815  # http.server's name

        def log_message(self, *_: object) -> None:
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


@pytest.mark.parametrize(
    ("status", "content_type", "body", "words"),
    [
        (200, "text/html", b"<html><title>Sign in</title></html>", "not Prometheus"),
        (500, "text/plain", b"internal error", "500"),
        (200, "application/json", b'{"status":"succ', "not"),
        (200, "application/json", b"", "empty"),
        (0, "", None, "connection"),
    ],
    ids=["html", "500", "garbage", "empty", "nothing"],
)
def test_a_prometheus_that_answers_nonsense_holds_every_pod(
    rig: Rig, policies: Path, status: int, content_type: str, body: bytes | None, words: str
) -> None:
    with server(status, content_type, body) as url:
        line = command(rig, "plan", f"--policies={policies}", "-o", "json", "--detailed-exitcode", prometheus_url=url)
        done = run(*line)
        assert done.returncode == 1
        document = json.loads(done.stdout)
        (item,) = document["items"]
        assert (item["action"], item["reason"]) == ("None", "MetricsUnavailable")
        (problem,) = document["problems"]
        assert url in problem["source"] + problem["detail"]
        assert words in problem["detail"]
        once = run(*command(rig, "run", "--once", f"--policies={policies}", prometheus_url=url))
        assert once.returncode == 1
        assert "MetricsUnavailable" in once.stderr


def test_a_prometheus_that_is_not_there_is_named(rig: Rig, policies: Path) -> None:
    line = command(rig, "plan", f"--policies={policies}", prometheus_url="http://127.0.0.1:1")
    done = run(*line)
    assert done.returncode == 1
    assert "http://127.0.0.1:1" in done.stderr
    assert "--prometheus-url" in done.stderr


def test_a_secret_that_cannot_be_read_is_named_at_once(rig: Rig, policies: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        "apiVersion: bridge-autoscaler.dev/v1alpha1\nkind: BridgeConfig\n"
        "spec: {prometheus: {auth: {bearer: {tokenFile: no/token}}}}\n"
    )
    for verb in ("plan", "run"):
        done = run(*command(rig, verb, f"--policies={policies}", f"--config={settings}"))
        assert done.returncode == 1
        assert done.stdout == ""
        token = f"prometheus.auth.bearer.tokenFile: {tmp_path}/no/token"
        assert f"{rig.prometheus_url}: is not asked: {token} cannot be read: No such file" in done.stderr
