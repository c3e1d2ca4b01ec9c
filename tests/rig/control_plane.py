"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler, with an audit log and one token per role."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.rig.build import binary
from tests.rig.process import Process, free_ports

CONTROLLER = "system:serviceaccount:bridge-autoscaler:bridge-autoscaler"
NOBODY = "nobody"  # authenticated, bound to no role

# Reads of the control plane's own parts would bury what matters.
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "None",
            "users": ["kube-controller-manager", "kube-scheduler", "kubelet", "system:apiserver"],
            "verbs": ["get", "list", "watch"],
        },
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True)
class Identity:
    """A user of the API server, its token and its groups."""

    user: str
    token: str
    groups: Sequence[str] = ()


class ControlPlane:
    """A running control plane in a folder of its own; the constructor returns when the API server is ready.

    `node_grace`: how long a node may be silent before it counts as not ready; by default for ever, as nobody renews
    the leases of the nodes that are played.
    """

    def __init__(self, folder: Path, *, node_grace: str = "24h") -> None:
        self.folder = folder
        self._processes: list[Process] = []
        admins = ("admin", "kube-controller-manager", "kube-scheduler", "kubelet")
        self._identities = {name: Identity(name, secrets.token_hex(16), ["system:masters"]) for name in admins}
        groups = ["system:serviceaccounts", "system:serviceaccounts:bridge-autoscaler"]
        self._identities["controller"] = Identity(CONTROLLER, secrets.token_hex(16), groups)
        self._identities["nobody"] = Identity(NOBODY, secrets.token_hex(16))
        etcd, peer, api, controllers, scheduler = free_ports(5)
        self.url = f"https://127.0.0.1:{api}"
        self._audit_log = folder / "audit.log"
        try:
            self._start_etcd(etcd, peer)
            self._start_api_server(api, etcd)
            self.certificate = (folder / "certs" / "apiserver.crt").read_bytes()
            common = ["--leader-elect=false", "--bind-address=127.0.0.1", "--kube-api-qps=200", "--kube-api-burst=400"]
            self._start(
                "kube-controller-manager",
                *common,
                f"--kubeconfig={self.kubeconfig('kube-controller-manager')}",
                f"--service-account-private-key-file={folder / 'sa.key'}",
                f"--secure-port={controllers}",
                f"--cert-dir={folder / 'certs'}",
                f"--node-monitor-grace-period={node_grace}",
            )
            self._start(
                "kube-scheduler",
                *common,
                f"--kubeconfig={self.kubeconfig('kube-scheduler')}",
                f"--secure-port={scheduler}",
                f"--cert-dir={folder / 'certs'}",
            )
        except BaseException:
            self.stop()
            raise

    def _start(self, name: str, *arguments: str) -> Process:
        process = Process(name, [binary(name), *arguments], self.folder / f"{name}.log")
        self._processes.append(process)
        return process

    def _start_etcd(self, port: int, peer: int) -> None:
        client, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
        etcd = self._start(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        etcd.wait_ready(f"{client}/health")

    def _start_api_server(self, port: int, etcd: int) -> None:
        (self.folder / "sa.key").write_text(_signing_key())
        (self.folder / "audit.yaml").write_text(yaml.safe_dump(_AUDIT_POLICY))
        (self.folder / "tokens.csv").write_text(
            "".join(f'{i.token},{i.user},{i.user},"{",".join(i.groups)}"\n' for i in self._identities.values())
        )
        server = self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",  # where there is no route to guess one from
            f"--secure-port={port}",
            f"--cert-dir={self.folder / 'certs'}",
            "--endpoint-reconciler-type=none",  # it refuses to publish a loopback address
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'sa.key'}",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--allow-privileged",
            "--kubelet-preferred-address-types=InternalIP",
            "--disable-admission-plugins=ServiceAccount",
            f"--audit-policy-file={self.folder / 'audit.yaml'}",
            f"--audit-log-path={self._audit_log}",
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=10000",  # MiB: at 100, the default, a whole suite would lose what came first
        )
        # The server makes its certificate while it starts; until then nothing can be checked against it.
        unchecked = ssl.create_default_context()
        unchecked.check_hostname = False
        unchecked.verify_mode = ssl.CERT_NONE
        authorization = {"Authorization": f"Bearer {self.token('admin')}"}
        server.wait_ready(f"{self.url}/readyz", headers=authorization, context=unchecked)

    def token(self, role: str) -> str:
        """The bearer token of `admin`, `controller`, `nobody`, `kubelet`, ..."""
        return self._identities[role].token

    def kubeconfig(self, role: str) -> Path:
        """A kubeconfig file for that role."""
        path = self.folder / f"{role}.kubeconfig"
        if not path.exists():
            certificate = base64.b64encode(self.certificate).decode()
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "rig",
                "clusters": [
                    {"name": "rig", "cluster": {"server": self.url, "certificate-authority-data": certificate}}
                ],
                "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": role}}],
                "users": [{"name": role, "user": {"token": self.token(role)}}],
            }
            path.write_text(yaml.safe_dump(config))
            path.chmod(0o600)
        return path

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Let one of the servers stand still meanwhile, `kube-scheduler` for instance: it sees afterwards what came."""
        process = next(one for one in self._processes if one.name == name)
        os.kill(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process.pid, signal.SIGCONT)

    def audit(self) -> list[dict[str, Any]]:
        """The audit records so far (audit.k8s.io/v1 Event), oldest first."""
        records = []
        for line in self._audit_log.read_text().splitlines():
            with suppress(json.JSONDecodeError):  # the last line may still be in writing
                records.append(json.loads(line))
        return records

    def stop(self) -> None:
        """Stop everything, etcd last: the others complain without it."""
        while self._processes:
            self._processes.pop().stop()


def _signing_key() -> str:
    """A fresh P-256 private key for service account tokens (RFC 5915; Go derives the public half)."""
    scalar = b"\x00" + secrets.token_bytes(31)  # below the curve's order
    der = bytes.fromhex("30310201010420") + scalar + bytes.fromhex("a00a06082a8648ce3d030107")
    return "-----BEGIN EC PRIVATE KEY-----\n" + base64.encodebytes(der).decode() + "-----END EC PRIVATE KEY-----\n"
