"""The section `prometheus` of the settings: where it is, who asks, which certificates count.

Each key has a variable, see `VARIABLES`. Secrets stand in variables or in files that keys name, never in the settings
file and never on the command line: both are read by more people than should know them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from autoscaler import settings_layout
from autoscaler.recommenders.parameters import STRICT
from autoscaler.settings_layout import LayoutSection
from autoscaler.settings_values import (
    AwsName,
    File,
    HeaderFiles,
    Headers,
    Parameters,
    SampleCount,
    Sendable,
    ServerName,
    Timeout,
    TokenUrl,
    Url,
    UserName,
    Word,
    Words,
)

SECTION = "prometheus"
KeyPath = tuple[str, ...]


_SECRET_HEADER = re.compile("auth|cookie|cred|key|pass|secret|token", re.IGNORECASE)
_MODEL = ConfigDict(
    **{**STRICT, "validate_by_name": False}
)  # by name too, client_secret would pass where clientSecret may not


class BasicSection(BaseModel):
    """A user name and a password."""

    model_config = _MODEL

    username: UserName | None = Field(None, description="The user name.")
    username_file: File | None = Field(None, description="A file that holds the user name.")
    password: SecretStr | None = Field(None, description="The password; in the environment only.")
    password_file: File | None = Field(None, description="A file that holds the password.")


class BearerSection(BaseModel):
    """A token."""

    model_config = _MODEL

    token: SecretStr | None = Field(None, description="The token; in the environment only.")
    token_file: File | None = Field(None, description="A file that holds the token, and may be written anew.")


class OAuth2Section(BaseModel):
    """Tokens for a client's own secret."""

    model_config = _MODEL

    token_url: TokenUrl = Field(description="Where tokens are given.")
    client_id: Word = Field(description="The client.")
    client_secret: SecretStr | None = Field(None, description="Its secret; in the environment only.")
    client_secret_file: File | None = Field(None, description="A file that holds the secret.")
    scopes: Words = Field((), description="What is asked for.")
    parameters: Parameters = Field({}, description="Sent as well.")
    ca_file: File | None = Field(None, description="Authority of the token server, if another than Prometheus'.")


class SigV4Section(BaseModel):
    """Requests signed for AWS."""

    model_config = _MODEL

    region: AwsName = Field(description="Region of the workspace.")
    service: AwsName = Field("aps", description="Name of the service.")
    profile: str | None = Field(None, description="Profile of the AWS files.")


class TlsSection(BaseModel):
    """Which certificates count."""

    model_config = _MODEL

    ca_file: File | None = Field(None, description="Whom to trust, instead of the world's authorities.")
    cert_file: File | None = Field(None, description="The client's certificate.")
    key_file: File | None = Field(None, description="The key of that certificate.")
    server_name: ServerName | None = Field(None, description="Name in the server's certificate, if not the address'.")


class AuthSection(BaseModel):
    """Who asks. At most one of these."""

    model_config = _MODEL

    basic: BasicSection | None = Field(None, description="A user name and a password.")
    bearer: BearerSection | None = Field(None, description="A token.")
    oauth2: OAuth2Section | None = Field(None, description="Tokens for a client's own secret.")
    sigv4: SigV4Section | None = Field(None, description="Requests signed for AWS.")


class PrometheusSection(BaseModel):
    """How Prometheus is reached."""

    model_config = _MODEL

    url: Url | None = Field(None, description="Address of Prometheus.")
    timeout: Timeout = Field(timedelta(seconds=20), description="For one whole answer.")
    backfill_samples: SampleCount = Field(100_000_000, description="That all look-backs together may take.")
    tenant: Sendable | None = Field(None, description="Sent as X-Scope-OrgID, as it is.")
    headers: Headers = Field({}, description="Sent as well.")
    header_files: HeaderFiles = Field({}, description="Files that hold the values of headers.")
    auth: AuthSection = Field(AuthSection(), description="Who asks.")
    tls: TlsSection = Field(TlsSection(), description="Which certificates count.")
    layout: LayoutSection = Field(LayoutSection(), description="Which series are read, and by which labels.")


VARIABLES: Mapping[KeyPath, str] = {
    path: f"BRIDGE_AUTOSCALER_PROMETHEUS_{name}"
    for name, path in {
        "URL": ("url",),
        "TIMEOUT": ("timeout",),
        "BACKFILL_SAMPLES": ("backfillSamples",),
        "TENANT": ("tenant",),
        "HEADERS": ("headers",),
        "HEADER_FILES": ("headerFiles",),
        "USERNAME": ("auth", "basic", "username"),
        "USERNAME_FILE": ("auth", "basic", "usernameFile"),
        "PASSWORD": ("auth", "basic", "password"),
        "PASSWORD_FILE": ("auth", "basic", "passwordFile"),
        "BEARER_TOKEN": ("auth", "bearer", "token"),
        "BEARER_TOKEN_FILE": ("auth", "bearer", "tokenFile"),
        "OAUTH2_TOKEN_URL": ("auth", "oauth2", "tokenUrl"),
        "OAUTH2_CLIENT_ID": ("auth", "oauth2", "clientId"),
        "OAUTH2_CLIENT_SECRET": ("auth", "oauth2", "clientSecret"),
        "OAUTH2_CLIENT_SECRET_FILE": ("auth", "oauth2", "clientSecretFile"),
        "OAUTH2_SCOPES": ("auth", "oauth2", "scopes"),
        "OAUTH2_PARAMETERS": ("auth", "oauth2", "parameters"),
        "OAUTH2_CA_FILE": ("auth", "oauth2", "caFile"),
        "SIGV4_REGION": ("auth", "sigv4", "region"),
        "SIGV4_SERVICE": ("auth", "sigv4", "service"),
        "SIGV4_PROFILE": ("auth", "sigv4", "profile"),
        "CA_FILE": ("tls", "caFile"),
        "CERT_FILE": ("tls", "certFile"),
        "KEY_FILE": ("tls", "keyFile"),
        "SERVER_NAME": ("tls", "serverName"),
        **{name: ("layout", *path) for path, name in settings_layout.VARIABLES.items()},
    }.items()
}
"""The variable of each key, by its path below `prometheus`."""

SECRETS: Mapping[KeyPath, KeyPath] = {
    ("auth", "basic", "password"): ("auth", "basic", "passwordFile"),
    ("auth", "bearer", "token"): ("auth", "bearer", "tokenFile"),
    ("auth", "oauth2", "clientSecret"): ("auth", "oauth2", "clientSecretFile"),
}
"""Keys that may not stand in a file, and the key that names a file instead."""

FILES = frozenset(path for path in VARIABLES if path[-1].endswith(("File", "Files")))
"""Keys that name a file, or a file for each of their own keys."""

_SHOWABLE = ("url", "timeout", "backfillSamples", "tls", "layout")


def at(values: Any, path: KeyPath) -> Any:
    """The value at a path of nested mappings, None if it is not there."""
    for key in path:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def put(values: dict[str, Any], path: KeyPath, value: object) -> None:
    """Set the value at a path; not where something else than a mapping is in the way, which validation refuses."""
    for key in path[:-1]:
        inner = values[key] = {} if values.get(key) is None else values[key]
        if not isinstance(inner, dict):
            return
        values = inner
    values[path[-1]] = value


def dotted(path: KeyPath) -> str:
    """The full name of a key."""
    return ".".join((SECTION, *path))


def secrets_in(values: Any) -> Iterator[tuple[KeyPath, str]]:
    """Secrets among the values of a file, with the remedy."""
    for path, file in SECRETS.items():
        if at(values, path) is not None:
            yield (
                path,
                f"secrets are not taken from this file; name a file that holds it under {file[-1]}, or set "
                f"{VARIABLES[path]}",
            )
    headers = at(values, ("headers",))
    for name in headers if isinstance(headers, Mapping) else ():
        if _SECRET_HEADER.search(name):
            yield (
                ("headers", name),
                "looks like a secret, which is not taken from this file; name a file that holds it under headerFiles, "
                f"or set {VARIABLES['headers',]}",
            )


def may_show(path: KeyPath) -> bool:
    """Whether a value may be shown in a message: some write a secret where a mapping is expected."""
    return bool(path) and path[0] in _SHOWABLE


def contradictions(section: PrometheusSection, named: Callable[[KeyPath], str]) -> Iterator[tuple[KeyPath, str]]:
    """What cannot be meant, with the key to blame. `named`: where the value of a key came from."""
    auth = section.auth
    modes = {("auth", mode): model for mode in AuthSection.model_fields if (model := getattr(auth, mode)) is not None}
    if len(modes) > 1:
        yield ("auth",), f"{' and '.join(map(named, modes))} exclude each other; keep one"
        return
    if (basic := auth.basic) is not None:
        yield from _one_of(("auth", "basic"), basic, "username", named)
        yield from _one_of(("auth", "basic"), basic, "password", named)
    if auth.bearer is not None:
        yield from _one_of(("auth", "bearer"), auth.bearer, "token", named)
    if auth.oauth2 is not None:
        yield from _one_of(("auth", "oauth2"), auth.oauth2, "client_secret", named)
    yield from _of_headers(section, bool(modes), named)
    yield from _of_tls(section, named)


def _of_headers(
    section: PrometheusSection, with_auth: bool, named: Callable[[KeyPath], str]
) -> Iterator[tuple[KeyPath, str]]:
    given = [(name.lower(), key) for key in ("headers", "headerFiles") for name in getattr(section, _FIELDS[key])]
    names = [name for name, _ in given]
    if twice := [name for name in names if names.count(name) > 1]:
        yield ("headers",), f"the header {twice[0]} is given twice, under headers or headerFiles; keep one"
    for name, key in given:
        if name == "x-scope-orgid" and section.tenant is not None:
            yield (key,), f"X-Scope-OrgID is what {named(('tenant',))} is sent as; keep one"
        if name == "authorization" and with_auth:
            yield (key,), "Authorization is what prometheus.auth is sent as; keep one"


def _of_tls(section: PrometheusSection, named: Callable[[KeyPath], str]) -> Iterator[tuple[KeyPath, str]]:
    tls = section.tls
    if (tls.cert_file is None) != (tls.key_file is None):
        missing = "certFile" if tls.cert_file is None else "keyFile"
        yield ("tls",), f"a certificate and its key go together; set {missing} ({VARIABLES['tls', missing]}), too"
    if tls != TlsSection() and section.url is not None and section.url.lower().startswith("http://"):
        yield ("tls",), f"has no effect on an address that starts with http://; write https:// in {named(('url',))}"


_FIELDS = {"headers": "headers", "headerFiles": "header_files"}


def _one_of(
    path: KeyPath, section: BaseModel, name: str, named: Callable[[KeyPath], str]
) -> Iterator[tuple[KeyPath, str]]:
    """A value is given once: itself, or as a file that holds it."""
    fields = type(section).model_fields
    given = [
        (*path, str(fields[field].alias)) for field in (name, f"{name}_file") if getattr(section, field) is not None
    ]
    if len(given) == 2:
        yield path, f"{' and '.join(map(named, given))} exclude each other; keep one"
    elif not given:
        key, file = (str(fields[field].alias) for field in (name, f"{name}_file"))
        yield (
            path,
            f"has no {name.replace('_', ' ')}: set {file} ({VARIABLES[*path, file]}) or {VARIABLES[*path, key]}",
        )
