"""Where the API server is and as whom to talk to it: a kubeconfig, or the service account of the pod this runs in.

Each source can be read again, because tokens rotate. Nothing of a credential reaches a message.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml
from kubernetes_asyncio import client, config

from autoscaler.adapters.kubernetes.errors import BadConfiguration

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Credentials(Protocol):
    """A source of configuration."""

    @property
    def source(self) -> str:
        """What to name in messages."""

    @property
    def reread_after_s(self) -> float | None:
        """How long what was read may be used before it is read again; None: until the server answers 401."""

    async def read(self) -> client.Configuration:
        """Read it. Raises `BadConfiguration`."""


def find_credentials(
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Credentials:
    """The kubeconfig that was named; else, without a context, the service account of the pod this runs in; else
    KUBECONFIG; else ~/.kube/config. Raises `BadConfiguration` when there is none of them.
    """
    if kubeconfig is None and context is None and environ.get("KUBERNETES_SERVICE_HOST"):
        return InCluster(environ, service_account)
    if kubeconfig is not None:
        return Kubeconfig((Path(kubeconfig).expanduser(),), context)
    if listed := [Path(path) for path in environ.get("KUBECONFIG", "").split(os.pathsep) if path]:
        present = tuple(path for path in listed if path.exists())
        return Kubeconfig(present or tuple(listed), context)
    default = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if default.exists():
        return Kubeconfig((default,), context)
    raise BadConfiguration(
        "no cluster to talk to: --kubeconfig and KUBECONFIG are not set, ~/.kube/config does not exist, and this does "
        "not run in a pod (KUBERNETES_SERVICE_HOST is not set); pass --kubeconfig FILE"
    )


@dataclass(frozen=True, slots=True)
class InCluster:
    """The service account that Kubernetes mounts into a pod."""

    environ: Mapping[str, str]
    folder: Path = SERVICE_ACCOUNT
    reread_after_s: float | None = 60.0

    @property
    def source(self) -> str:
        return f"the service account in {self.folder}"

    def namespace(self) -> str:
        """The namespace of the pod. Raises `BadConfiguration`."""
        path = self.folder / "namespace"
        try:
            name = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadConfiguration(f"{path}: cannot be read ({_reason(error)}); pass --lease-namespace") from None
        if not name:
            raise BadConfiguration(f"{path}: is empty; pass --lease-namespace")
        return name

    async def read(self) -> client.Configuration:
        token, ca = self.folder / "token", self.folder / "ca.crt"
        host, port = self.environ.get("KUBERNETES_SERVICE_HOST"), self.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise BadConfiguration("KUBERNETES_SERVICE_HOST is not set: this does not run in a pod; pass --kubeconfig")
        try:
            text = token.read_text().strip()  # a newline at its end would break the header
        except (OSError, UnicodeDecodeError) as error:
            raise BadConfiguration(f"{token}: cannot be read ({_reason(error)}); {_MOUNT}") from None
        if not text or not ca.is_file():
            raise BadConfiguration(f"{ca if text else token}: missing or empty; {_MOUNT}")
        configuration = _configuration()
        configuration.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        configuration.ssl_ca_cert = str(ca)
        configuration.api_key["BearerToken"] = f"Bearer {text}"
        return configuration


_MOUNT = "the pod needs a service account with automountServiceAccountToken not false"


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One kubeconfig, or several merged as kubectl does: the first that says something wins."""

    paths: tuple[Path, ...]
    context: str | None = None
    reread_after_s: float | None = None

    @property
    def source(self) -> str:
        return "kubeconfig " + os.pathsep.join(map(str, self.paths))

    async def read(self) -> client.Configuration:
        context = self._check([_load(path) for path in self.paths])
        configuration = _configuration()
        try:
            await config.load_kube_config(
                config_file=os.pathsep.join(map(str, self.paths)),
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
        except Exception as error:  # the library lets anything out that a malformed entry or a login plug-in causes
            raise BadConfiguration(
                f"{self.source}: context {context!r} cannot be used ({_reason(error)}); check its cluster and user"
            ) from None
        if token := configuration.api_key.get("BearerToken"):
            configuration.api_key["BearerToken"] = token.strip()  # a token file may end in a newline
        return configuration

    def _check(self, documents: list[dict[str, Any]]) -> str:
        """The context to use. Names what is missing before the library quotes whole entries, secrets included."""
        context = self.context or next(filter(None, (document.get("current-context") for document in documents)), None)
        contexts = self._named(documents, "contexts")
        if not contexts:
            raise BadConfiguration(f"{self.source}: has no contexts; name another file by --kubeconfig")
        known = f"known: {', '.join(sorted(contexts))}"
        if not isinstance(context, str):
            raise BadConfiguration(f"{self.source}: current-context is not set; pass --context NAME ({known})")
        if context not in contexts:
            raise BadConfiguration(f"{self.source}: contexts: there is no {context!r} ({known}); pass --context NAME")
        chosen = contexts[context].get("context")
        for kind in ("cluster", "user"):
            name = chosen.get(kind) if isinstance(chosen, dict) else None
            entries = self._named(documents, f"{kind}s")
            if name is None and kind == "user":
                continue
            where = f"{self.source}: contexts[{context}].context.{kind}"
            if name not in entries:
                choices = ", ".join(sorted(entries)) or "none"
                raise BadConfiguration(f"{where}: {name!r} is not in {kind}s (known: {choices}); correct one of them")
            if not isinstance(entries[name].get(kind), dict):
                raise BadConfiguration(f"{self.source}: {kind}s[{name}].{kind} must be a mapping")
            if kind == "cluster" and not _is_url(server := entries[name]["cluster"].get("server")):
                raise BadConfiguration(f"{self.source}: clusters[{name}].cluster.server: {server!r} is not a URL")
        return context

    def _named(self, documents: list[dict[str, Any]], key: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for document in documents:
            entries = document.get(key) or []
            if not isinstance(entries, list) or not all(isinstance(e, dict) and "name" in e for e in entries):
                raise BadConfiguration(f"{self.source}: {key} must be a list of entries with a name")
            for entry in entries:
                found.setdefault(str(entry["name"]), entry)
        return found


def _load(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"kubeconfig {path}: cannot be read ({_reason(error)})") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise BadConfiguration(f"kubeconfig {path}{where}: is not YAML ({getattr(error, 'problem', None)})") from None
    if not isinstance(document, dict):
        raise BadConfiguration(f"kubeconfig {path}: must be a mapping with clusters, contexts and users")
    return document


def _configuration() -> client.Configuration:
    configuration = client.Configuration()
    # many clusters' own certificates lack the extensions that Python 3.13 began to insist on; Go clients do without
    configuration.disable_strict_ssl_verification = True
    return configuration


def _is_url(text: object) -> bool:
    return isinstance(text, str) and text.startswith(("http://", "https://"))


def _reason(error: BaseException) -> str:
    """What an error says, without what it quotes: the library's messages may hold a whole entry, token included."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text.partition("{")[0].strip(" :(") or type(error).__name__)[:300]
