"""`manifests/` on a real API server: applied, admitted, and the controller run as its Deployment describes it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.rig.process import free_ports
from tests.rig.rig import ROOT, Rig

pytestmark = pytest.mark.rig

NAMESPACE = "bridge-autoscaler"
USER = "system:serviceaccount:bridge-autoscaler:bridge-autoscaler"
# Where a pod finds its service account; /run, as /var/run is a symbolic link to it.
_IN_POD = "/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True)
class Deployed:
    """The Deployment and the ConfigMap of the policies, as the API server stored them."""

    deployment: dict[str, Any]
    policies: dict[str, str]

    @property
    def pod_spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.deployment["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> dict[str, Any]:
        (container,) = self.pod_spec["containers"]
        found: dict[str, Any] = container
        return found


@pytest.fixture(scope="module")
def deployed(rig: Rig) -> Iterator[Deployed]:
    rig.kubectl("apply", "--validate=strict", "-k", str(ROOT / "manifests"))

    def read(kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(rig.kubectl("get", kind, name, f"-n={NAMESPACE}", "-o=json"))
        return found

    deployment = read("deployment", "bridge-autoscaler")
    (volume,) = deployment["spec"]["template"]["spec"]["volumes"]
    yield Deployed(deployment, read("configmap", volume["configMap"]["name"])["data"])
    rig.kubectl("delete", "deployment", "bridge-autoscaler", f"-n={NAMESPACE}", "--cascade=foreground")


def test_the_namespace_admits_the_pod_under_the_restricted_pod_security_standard(rig: Rig, deployed: Deployed) -> None:
    namespace = json.loads(rig.kubectl("get", "namespace", NAMESPACE, "-o=json"))
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    pods = _eventually(lambda: json.loads(rig.kubectl("get", "pods", f"-n={NAMESPACE}", "-o=json"))["items"])
    assert {pod["spec"]["serviceAccountName"] for pod in pods} == {"bridge-autoscaler"}


def test_one_controller_stands_by_for_the_other_also_during_a_rollout(deployed: Deployed) -> None:
    spec = deployed.deployment["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (2, "RollingUpdate")
    (term,) = deployed.pod_spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["labelSelector"] == spec["selector"]


def test_its_own_container_is_confined_and_sized(deployed: Deployed) -> None:
    security = deployed.container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert deployed.container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in deployed.container["resources"]["limits"]


def test_a_changed_policy_reaches_the_running_pod(deployed: Deployed) -> None:
    """A name that follows the content, kustomize's default, would restart the controller instead."""
    (volume,) = deployed.pod_spec["volumes"]
    assert volume["configMap"]["name"] == "bridge-autoscaler-policies"


def test_probes_and_scrapes_ask_the_port_that_is_served(deployed: Deployed) -> None:
    container = deployed.container
    (port,) = container["ports"]
    listens = _environment(container)["BRIDGE_AUTOSCALER_METRICS_ADDRESS"]
    annotations = deployed.deployment["spec"]["template"]["metadata"]["annotations"]
    assert listens.rpartition(":")[2] == str(port["containerPort"]) == annotations["prometheus.io/port"]
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert (container[probe]["httpGet"]["path"], container[probe]["httpGet"]["port"]) == (path, port["name"])


def test_the_shipped_policies_change_nothing(deployed: Deployed) -> None:
    documents = [d for text in deployed.policies.values() for d in yaml.safe_load_all(text)]
    assert documents
    assert {document["spec"].get("mode", "Recommend") for document in documents} <= {"Off", "Recommend"}


def test_the_controller_runs_as_deployed(rig: Rig, deployed: Deployed, tmp_path: Path) -> None:
    seen = len(rig.audit())
    with Controller(rig, deployed, tmp_path) as controller:
        controller.wait_ready()
        assert controller.get("/healthz") == (200, "ok\n")
        metrics = controller.get("/metrics")[1].splitlines()
        turns = next(line for line in metrics if line.startswith('bridge_autoscaler_turns_total{wake="tick"}'))
        assert float(turns.split()[1]) >= 1
        _eventually(lambda: "bridge_autoscaler_leader 1.0" in controller.get("/metrics")[1].splitlines())
        took, status = controller.terminate()
    assert status == 0, controller.log()
    assert took < deployed.pod_spec["terminationGracePeriodSeconds"]
    asked = [r for r in rig.audit()[seen:] if r["user"]["username"] == USER and "objectRef" in r]
    assert {"pods", "nodes"} <= {r["objectRef"]["resource"] for r in asked}
    refused = [(r["objectRef"]["resource"], r["responseStatus"]["code"]) for r in asked if not _served(r)]
    # the first has no API here; a lease is made by whoever finds none
    assert set(refused) <= {("verticalpodautoscalers", 404), ("leases", 404)}
    reviews = {"selfsubjectaccessreviews"}  # it asks what it may do, which is no change
    assert {r["verb"] for r in asked if r["objectRef"]["resource"] not in reviews | {"leases"}} <= {"list", "watch"}
    leases = {r["objectRef"]["namespace"] for r in asked if r["objectRef"]["resource"] == "leases"}
    assert leases == {NAMESPACE}


def _served(record: Mapping[str, Any]) -> bool:
    return bool(record["responseStatus"]["code"] < 400)


class Controller:
    """The process that the Deployment describes, with the files that a kubelet would mount.

    Arguments are exactly those of the Deployment. Of the environment, what names an address is replaced by what the
    name would resolve to. The service account's token comes from the API server. Where the machine lets this test have
    mounts of its own, the token lies where it lies in a pod; elsewhere a kubeconfig names it.
    """

    def __init__(self, rig: Rig, deployed: Deployed, folder: Path) -> None:
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        self._log = folder / "controller.log"
        self._deadline_s = deployed.pod_spec["terminationGracePeriodSeconds"]
        container = deployed.container
        (mount,) = container["volumeMounts"]
        working_dir = folder / "work"
        _mount_config_map(
            working_dir / Path(mount["mountPath"]).relative_to(container["workingDir"]), deployed.policies
        )
        account = folder / "serviceaccount"
        account.mkdir()
        account_name = deployed.pod_spec["serviceAccountName"]
        (account / "token").write_text(rig.kubectl("create", "token", account_name, f"-n={NAMESPACE}").strip())
        (account / "ca.crt").write_bytes(rig.control_plane.certificate)
        (account / "namespace").write_text(NAMESPACE)
        environment = {
            **_environment(container),
            "BRIDGE_AUTOSCALER_PROMETHEUS_URL": rig.prometheus_url,
            "BRIDGE_AUTOSCALER_METRICS_ADDRESS": f"127.0.0.1:{port}",
        }
        command = [str(Path(sys.executable).with_name("bridge-autoscaler")), *container["args"]]
        server = urlsplit(rig.control_plane.url)
        if (prefix := _own_mounts(account)) is not None:
            command = [*prefix, *command]
            environment |= {
                "KUBERNETES_SERVICE_HOST": f"{server.hostname}",
                "KUBERNETES_SERVICE_PORT": f"{server.port}",
            }
        else:
            environment["BRIDGE_AUTOSCALER_KUBECONFIG"] = str(_kubeconfig(rig, account))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=working_dir,
                env={"PATH": os.environ["PATH"], **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_ready(self) -> None:
        _eventually(lambda: self._process.poll() is not None or self.get("/readyz")[0] == 200)
        assert self._process.poll() is None, self.log()

    def get(self, path: str) -> tuple[int, str]:
        """Status and text; status 0 while nobody listens."""
        try:
            with urllib.request.urlopen(self._url + path, timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def terminate(self) -> tuple[float, int]:
        """Send SIGTERM. Seconds until the end, and the exit status."""
        started = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(self._deadline_s)
        return time.monotonic() - started, status

    def log(self) -> str:
        return self._log.read_text()

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _environment(container: Mapping[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"]}


def _mount_config_map(folder: Path, data: Mapping[str, str]) -> None:
    """Files as the kubelet lays them out: links through `..data` to a folder named after the time."""
    version = folder / "..2026_01_01_00_00_00.1"
    version.mkdir(parents=True)
    (folder / "..data").symlink_to(version.name)
    for name, text in data.items():
        (version / name).write_text(text)
        (folder / name).symlink_to(f"..data/{name}")


def _own_mounts(account: Path) -> list[str] | None:
    """A command prefix under which the service account lies where a pod has it; None where mounts are not allowed."""
    unshare = shutil.which("unshare")
    if unshare is None or Path("/var/run").resolve() != Path("/run"):
        return None
    shell = f'mount -t tmpfs tmpfs /run && mkdir -p {_IN_POD} && cp "$0"/* {_IN_POD} && exec "$@"'
    options = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    prefix = [unshare, *options, "--", "sh", "-c", shell, str(account)]
    allowed = subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    return prefix if allowed else None


def _kubeconfig(rig: Rig, account: Path) -> Path:
    path = account / "kubeconfig"
    cluster = {"server": rig.control_plane.url, "certificate-authority": str(account / "ca.crt")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "pod",
        "clusters": [{"name": "pod", "cluster": cluster}],
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}],
        "users": [{"name": "pod", "user": {"tokenFile": str(account / "token")}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def _eventually(probe: Any, within_s: float = 60) -> Any:
    give_up_at = time.monotonic() + within_s
    while not (found := probe()):
        assert time.monotonic() < give_up_at, f"not within {within_s:g} s"
        time.sleep(0.1)
    return found
