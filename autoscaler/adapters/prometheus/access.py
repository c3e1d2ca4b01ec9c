"""How a Prometheus is reached: where it is, who asks, and which certificates count. Values only, without secrets in
their text; whoever has one can open as many connections as it likes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

ANSWER_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that is never shown: said by the environment, or read from a file each time that it is needed.

    `setting` names the variable or the key that it comes from, for messages.
    """

    setting: str
    file: Path | None = None
    value: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Basic:
    """A user name and a password. RFC 7617."""

    username: Secret
    password: Secret


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token. RFC 6750."""

    token: Secret


@dataclass(frozen=True, slots=True)
class OAuth2:
    """Tokens that a server gives to a client for its own secret. RFC 6749, section 4.4.

    `parameters` are sent with each request for a token. `ca_file`: of that server; without one it is trusted like
    Prometheus.
    """

    token_url: str
    client_id: str
    client_secret: Secret
    scopes: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class SigV4:
    """AWS Signature Version 4, with whatever credentials the AWS SDK finds. `profile`: of the AWS files."""

    region: str
    service: str
    profile: str | None = None


Auth = Basic | Bearer | OAuth2 | SigV4


@dataclass(frozen=True, slots=True)
class Tls:
    """Which certificates count, as PEM files. `ca_file`: whom to trust, instead of the world's authorities.

    `server_name`: of the server's certificate, where it is not the one of the address. `ca_setting` names the key of
    `ca_file`.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None
    ca_setting: str = "prometheus.tls.caFile"


@dataclass(frozen=True, slots=True)
class Access:
    """One Prometheus and how to ask it.

    `url`: without the path of the API. `tenant`: sent as X-Scope-OrgID as it is. `headers`: sent with each query.
    `timeout_s`: for one whole answer.
    `params`: sent with every query, for servers that want to be told more.
    """

    url: str
    auth: Auth | None = None
    tenant: str | None = None
    timeout_s: float = ANSWER_TIMEOUT_S
    tls: Tls = Tls()
    headers: tuple[tuple[str, Secret], ...] = ()
    params: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
