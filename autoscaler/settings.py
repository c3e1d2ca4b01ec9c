"""Where things are and how often they are done; never how to size. That is what policies are for.

Each setting is looked for on the command line, then in the environment (`BRIDGE_AUTOSCALER_…`), then in the file that
`--config` names, then it has its default. Messages name the place that a bad value came from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainValidator, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from autoscaler import settings_prometheus
from autoscaler.core.foreign import shown
from autoscaler.core.policy import Budgets
from autoscaler.names import checked_namespace
from autoscaler.recommenders.parameters import STRICT, Duration
from autoscaler.settings_prometheus import FILES, SECTION, VARIABLES, PrometheusSection
from autoscaler.strictyaml import Document, Fault, Refused, did_you_mean, load_documents, message

API_VERSION = "bridge-autoscaler.dev/v1alpha1"
KIND = "BridgeConfig"
ENV_PREFIX = "BRIDGE_AUTOSCALER_"
CONFIG_VARIABLE = f"{ENV_PREFIX}CONFIG"
_NEAR = 0.85


class Address(NamedTuple):
    """Where to listen; host None: on every interface."""

    host: str | None
    port: int

    def __str__(self) -> str:
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def _address(value: object) -> Address:
    if isinstance(value, Address):
        return value
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"{shown(value)} is not an address; write :8080, 127.0.0.1:8080 or [::1]:8080")
    return Address(host or None, int(port))


def _listed(value: object) -> object:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _namespace(value: str) -> str:
    if value == "*":
        raise ValueError("leave it out to look at every namespace")
    return checked_namespace(value)


def _lease_namespace(value: str) -> str:
    if value == "*":
        raise ValueError("is one namespace, not all")
    return checked_namespace(value)


def _truth(value: object) -> object:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"{shown(value)} is not allowed; allowed: true, false")


def _interval(value: timedelta) -> timedelta:
    if not timedelta(seconds=1) <= value <= timedelta(hours=1):
        raise ValueError("must be between 1s and 1h")
    return value


_BUDGETS = Budgets()


class BudgetsSection(BaseModel):
    """How much may be going on at once."""

    model_config = STRICT

    max_in_flight_per_node: int = Field(
        _BUDGETS.max_in_flight_per_node, ge=0, description="Resizes of a node's pods that wait for room."
    )
    max_in_flight_per_workload: int | None = Field(
        _BUDGETS.max_in_flight_per_workload, ge=1, description="Pods of a workload whose resize is not over."
    )
    max_disruptions_per_workload: int = Field(
        _BUDGETS.max_disruptions_per_workload, ge=0, description="Pods of a workload that are not available."
    )
    max_disruptions_per_namespace: int = Field(
        _BUDGETS.max_disruptions_per_namespace, ge=0, description="Pods of a namespace that resizes restart."
    )
    max_disruptions_cluster: int = Field(
        _BUDGETS.max_disruptions_cluster, ge=0, description="Pods that resizes restart."
    )

    def core(self) -> Budgets:
        return Budgets(**self.model_dump())


def _counts(value: object) -> object:
    """`key=2,other=3`, as a flag or a variable has it, as a mapping."""
    if not isinstance(value, str):
        return value
    counts: dict[str, int] = {}
    for part in filter(None, map(str.strip, value.split(","))):
        key, _, count = map(str.strip, part.partition("="))
        if not (count.isascii() and count.isdigit()):
            raise ValueError(f"{shown(part)} is not a budget; write budgets like maxInFlightPerNode=2,…")
        counts[key] = int(count)
    return counts


Paths = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_listed)]
Namespaces = Annotated[tuple[Annotated[str, AfterValidator(_namespace)], ...], NoDecode, BeforeValidator(_listed)]


class Settings(BaseSettings):
    """What the program needs to know about its surroundings. Build with `load_settings`."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    kubeconfig: Path | None = Field(None, description="kubeconfig file. Default: in-cluster, else kubectl's rules.")
    context: str | None = Field(None, description="Context of the kubeconfig. Default: its current one.")
    prometheus: Annotated[PrometheusSection, NoDecode] = Field(
        PrometheusSection(), description="How Prometheus is reached."
    )
    policies: Paths = Field((), description="Policy files and folders.")
    namespaces: Namespaces = Field((), description="Namespaces that are looked at. Default: all.")
    log_format: Literal["json", "console"] | None = Field(
        None, description="Default: console on a terminal, else json."
    )
    interval: Annotated[Duration, AfterValidator(_interval)] = Field(
        timedelta(seconds=60), description="Time between two turns that decide everything."
    )
    metrics_address: Annotated[Address, NoDecode, PlainValidator(_address)] = Field(
        Address("127.0.0.1", 8080),
        description="Where /metrics, /healthz and /readyz listen; :8080 for every interface.",
    )
    leader_elect: Annotated[bool, BeforeValidator(_truth)] = Field(
        True, description="Whether `run` acts only while it is the leader of its replicas."
    )
    lease_namespace: Annotated[str, AfterValidator(_lease_namespace)] | None = Field(
        None, description="Namespace of the leader's Lease. Default: the pod's own, else bridge-autoscaler."
    )
    budgets: Annotated[BudgetsSection, NoDecode, BeforeValidator(_counts)] = Field(
        BudgetsSection(), description="How much may be going on at once."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)  # load_settings merges the sources, as it has to know where each value came from


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a value came from: a flag or variable by name, or a key of the config file."""

    name: str
    document: Document | None = None

    def fault(self, text: str, inner: tuple[str, ...] = ()) -> Fault:
        """`inner`: the keys below the setting at which the value stands."""
        if self.document is not None:
            return self.document.fault(("spec", self.name, *inner), text)
        return Fault(self.name, 0, ".".join(inner), text)


FLAGS = {"namespaces": "--namespace"}
_INNER_FLAGS = {"prometheus_url": (SECTION, "url")}
_FORMER = {"prometheusUrl": "is now a key of the section prometheus: write prometheus: {url: …}"}


def flag_of(field: str) -> str:
    """The command-line flag of a setting."""
    return FLAGS.get(field, "--" + field.replace("_", "-"))


def variable_of(field: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + field.upper()


class _Values:
    """Values from several places, and where each came from."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._origins: dict[tuple[str, ...], _Origin] = {}

    def put(self, path: tuple[str, ...], value: object, origin: _Origin) -> None:
        """Set the value of a setting, or of one key of a section."""
        settings_prometheus.put(self.values, path, value)
        self._origins[path] = origin

    def fault(self, path: tuple[str, ...], text: str) -> Fault:
        """A fault of the value at a path, at the place which it came from."""
        known = next((path[:n] for n in range(len(path), 0, -1) if path[:n] in self._origins), path[:1])
        if known not in self._origins:
            return Fault(".".join(path), 0, "", text)
        return self._origins[known].fault(text, path[len(known) :])

    def named(self, path: tuple[str, ...]) -> str:
        """Where the value at a path came from: a variable, a flag or a key; of a section the first of its keys."""
        inside = [origin.name for inner, origin in self._origins.items() if inner[: len(path)] == path]
        return inside[0] if inside else ".".join(path)


def load_settings(flags: Mapping[str, Any] | None = None, config: Path | None = None) -> Settings:
    """Settings from all sources. `flags` by field name; None and empty lists count as not given.

    `config`: the file that --config names. Raises `Refused` with every fault.
    """
    found = _Values()
    variable = os.environ.get(CONFIG_VARIABLE)
    faults = _misspelt()
    if config is not None or variable:
        path, named_by = (config, "--config") if config is not None else (Path(str(variable)), CONFIG_VARIABLE)
        document, values = _config_file(path, named_by)
        faults += [
            document.fault(("spec", SECTION, *key), text)
            for key, text in settings_prometheus.secrets_in(values.get(SECTION))
        ]
        for field, value in values.items():
            found.put((field,), value, _Origin(to_camel(field), document))
    for field, value in EnvSettingsSource(Settings)().items():
        if field != SECTION:  # whose keys have variables of their own
            found.put((field,), value, _Origin(variable_of(field)))
    for key, name in VARIABLES.items():
        if text := os.environ.get(name):
            found.put((SECTION, *key), text, _Origin(name))
    for field, value in (flags or {}).items():
        if value not in (None, (), []):
            found.put(_INNER_FLAGS.get(field, (field,)), value, _Origin(flag_of(field)))
    settings, more = _validated(found)
    if settings is None or faults or more:
        raise Refused([*faults, *more])
    return settings


def _validated(found: _Values) -> tuple[Settings | None, list[Fault]]:
    try:
        settings = Settings(**found.values)
    except ValidationError as error:
        schema = Settings.model_json_schema()
        faults = []
        for details in error.errors(include_url=False):
            path = tuple(key for key in details["loc"] if isinstance(key, str) and key != "[key]")
            if path[:1] == (SECTION,) and not settings_prometheus.may_show(path[1:]):
                details["input"] = "(not shown)"
                if details["type"] == "string_type":
                    faults.append(found.fault(path, "is not text; put it in quotes"))
                    continue
            faults.append(found.fault(path, message(details, schema)))
        return None, faults
    contradictions = settings_prometheus.contradictions(settings.prometheus, lambda key: found.named((SECTION, *key)))
    return settings, [found.fault((SECTION, *key), text) for key, text in contradictions]


def _misspelt() -> list[Fault]:
    """Variables that are nearly one of ours. Others may share the prefix: Kubernetes sets *_SERVICE_HOST and *_PORT."""
    known = {CONFIG_VARIABLE, *VARIABLES.values(), *map(variable_of, Settings.model_fields)} - {variable_of(SECTION)}
    return [
        Fault(name, 0, "", f"no such variable{near}")
        for name in sorted(os.environ)
        if name.startswith(ENV_PREFIX) and name not in known and (near := did_you_mean(name, known, _NEAR))
    ]


def _config_file(path: Path, named_by: str) -> tuple[Document, dict[str, Any]]:
    """The one document of a config file, and its values by field name."""
    try:
        documents = load_documents(path.read_bytes(), str(path))
    except OSError as error:
        raise Refused([Fault(named_by, 0, "", f"{path} cannot be read: {error.strerror}")]) from None
    if len(documents) != 1:
        raise Refused([Fault(str(path), 0, "", f"has {len(documents)} documents; expected one {KIND}")])
    (document,) = documents
    document.require_kind(API_VERSION, KIND)
    fields = {to_camel(field): field for field in Settings.model_fields}
    spec = document.data.get("spec", {})
    if not isinstance(spec, dict):
        raise Refused([document.fault(("spec",), "expected a mapping (key: value)")])
    unknown = [
        document.fault(
            place,
            _FORMER.get(place[-1]) or f"unknown key{did_you_mean(place[-1], allowed)}; allowed: {', '.join(allowed)}",
        )
        for parent, part, allowed in (
            ((), document.data, ("apiVersion", "kind", "metadata", "spec")),
            (("spec",), spec, tuple(fields)),
        )
        for place in ((*parent, key) for key in part)
        if place[-1] not in allowed
    ]
    if unknown:
        raise Refused(unknown)
    values = {fields[key]: value for key, value in deepcopy(spec).items()}
    for key_path in (("policies",), ("kubeconfig",), *((SECTION, *key) for key in FILES)):
        if (value := settings_prometheus.at(values, key_path)) is not None:
            settings_prometheus.put(values, key_path, _beside(path, value))
    return document, values


def _beside(config: Path, value: Any) -> Any:
    """Relative paths of a config file start at its folder, wherever the program is started."""
    if isinstance(value, list):
        return [_beside(config, item) for item in value]
    if isinstance(value, dict):
        return {key: _beside(config, item) for key, item in value.items()}
    return str(config.parent / value) if isinstance(value, str) else value
