"""The section `prometheus` of the settings: where it is, who asks, which certificates count.

Each key has a variable, see `VARIABLES`. Secrets stand in variables or in files that keys name, never in the settings
file and never on the command line: both are read by more people than should know them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from autoscaler.core.foreign import shown
from autoscaler.recommenders.parameters import STRICT, Duration

SECTION = "prometheus"
KeyPath = tuple[str, ...]


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        port_is_bad = parts.port == 0
    except ValueError:
        parts, port_is_bad = urlsplit(""), True
    if "@" in value:  # not shown: it may hold a password
        raise ValueError("must not hold credentials, which would end in logs; prometheus.auth.basic takes them")
    if parts.scheme not in ("http", "https") or not parts.hostname or port_is_bad or parts.query or parts.fragment:
        raise ValueError(f"{shown(value)} is not the address of a Prometheus; write it like http://prometheus:9090")
    return value.rstrip("/")


def _path(value: object) -> object:
    return Path(value) if isinstance(value, str) and value else value


def _in_a_header(value: str) -> str:
    if not value or value != value.strip() or not (value.isascii() and value.isprintable()):
        raise ValueError("cannot stand in a header: it is empty, starts or ends with a space, or is not plain ASCII")
    return value


def _username(value: str) -> str:
    if ":" in value:
        raise ValueError("must not hold a colon, which ends the user name (RFC 7617)")
    return value


def _timeout(value: timedelta) -> timedelta:
    if not timedelta(seconds=1) <= value <= timedelta(minutes=5):
        raise ValueError("must be between 1s and 5m")
    return value


File = Annotated[Path, BeforeValidator(_path)]
_MODEL = ConfigDict(
    **{**STRICT, "validate_by_name": False}
)  # by name too, client_secret would pass where clientSecret may not


class BasicSection(BaseModel):
    """A user name and a password."""

    model_config = _MODEL

    username: Annotated[str, AfterValidator(_username)] | None = Field(None, description="The user name.")
    username_file: File | None = Field(None, description="A file that holds the user name.")
    password: SecretStr | None = Field(None, description="The password; in the environment only.")
    password_file: File | None = Field(None, description="A file that holds the password.")


class BearerSection(BaseModel):
    """A token."""

    model_config = _MODEL

    token: SecretStr | None = Field(None, description="The token; in the environment only.")
    token_file: File | None = Field(None, description="A file that holds the token, and may be written anew.")


class AuthSection(BaseModel):
    """Who asks. At most one of these."""

    model_config = _MODEL

    basic: BasicSection | None = Field(None, description="A user name and a password.")
    bearer: BearerSection | None = Field(None, description="A token.")


class PrometheusSection(BaseModel):
    """How Prometheus is reached."""

    model_config = _MODEL

    url: Annotated[str, AfterValidator(_url)] | None = Field(None, description="Address of Prometheus.")
    timeout: Annotated[Duration, AfterValidator(_timeout)] = Field(
        timedelta(seconds=20), description="For one whole answer."
    )
    tenant: Annotated[str, AfterValidator(_in_a_header)] | None = Field(
        None, description="Sent as X-Scope-OrgID, as it is."
    )
    auth: AuthSection = Field(AuthSection(), description="Who asks.")


VARIABLES: Mapping[KeyPath, str] = {
    path: f"BRIDGE_AUTOSCALER_PROMETHEUS_{name}"
    for name, path in {
        "URL": ("url",),
        "TIMEOUT": ("timeout",),
        "TENANT": ("tenant",),
        "USERNAME": ("auth", "basic", "username"),
        "USERNAME_FILE": ("auth", "basic", "usernameFile"),
        "PASSWORD": ("auth", "basic", "password"),
        "PASSWORD_FILE": ("auth", "basic", "passwordFile"),
        "BEARER_TOKEN": ("auth", "bearer", "token"),
        "BEARER_TOKEN_FILE": ("auth", "bearer", "tokenFile"),
    }.items()
}
"""The variable of each key, by its path below `prometheus`."""

SECRETS: Mapping[KeyPath, KeyPath] = {
    ("auth", "basic", "password"): ("auth", "basic", "passwordFile"),
    ("auth", "bearer", "token"): ("auth", "bearer", "tokenFile"),
}
"""Keys that may not stand in a file, and the key that names a file instead."""

FILES = frozenset(path for path in VARIABLES if path[-1].endswith("File"))
"""Keys that name a file."""

_SHOWABLE = ("url", "timeout", "tls")


def at(values: Any, path: KeyPath) -> Any:
    """The value at a path of nested mappings, None if it is not there."""
    for key in path:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def put(values: dict[str, Any], path: KeyPath, value: object) -> None:
    """Set the value at a path; not where something else than a mapping is in the way, which validation refuses."""
    for key in path[:-1]:
        inner = values.setdefault(key, {})
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
