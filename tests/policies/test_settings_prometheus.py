"""The section `prometheus`: whence its values come, what cannot be meant, and that no secret is taken from a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from autoscaler.adapters.prometheus.access import Basic, Bearer, Secret
from autoscaler.cli.access import access_of
from autoscaler.settings import load_settings
from autoscaler.settings_prometheus import FILES, SECRETS, VARIABLES, PrometheusSection
from tests.policies.test_settings import clean, refusal

__all__ = ["clean"]

PREFIX = "BRIDGE_AUTOSCALER_PROMETHEUS_"
SECRET = "hunter2-and-more"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "c.yaml"


def write(file: Path, prometheus: object) -> Path:
    kind = {"apiVersion": "bridge-autoscaler.dev/v1alpha1", "kind": "BridgeConfig"}
    file.write_text(yaml.safe_dump({**kind, "spec": {"prometheus": prometheus}}, sort_keys=False))
    return file


def leaves(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The keys of a model that hold no further section."""
    for field in model.model_fields.values():
        inner = [part for part in (field.annotation, *getattr(field.annotation, "__args__", ())) if _is_model(part)]
        key = (*path, str(field.alias))
        if key == ("layout",):
            continue  # which has no variables: it is a description, not a place or a secret
        if inner:
            yield from leaves(inner[0], key)
        else:
            yield key


def _is_model(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, BaseModel)


def test_every_key_has_a_variable() -> None:
    assert sorted(leaves(PrometheusSection)) == sorted(VARIABLES)
    assert set(SECRETS) | set(SECRETS.values()) < set(VARIABLES)
    assert set(SECRETS.values()) < FILES


def test_paths_of_a_file_start_at_its_folder_and_those_of_variables_do_not(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, {"url": "http://p", "auth": {"basic": {"username": "u", "passwordFile": "password"}}})
    basic = load_settings(config=file).prometheus.auth.basic
    assert basic is not None
    assert basic.password_file == file.parent / "password"
    monkeypatch.setenv(f"{PREFIX}PASSWORD_FILE", "elsewhere")
    basic = load_settings(config=file).prometheus.auth.basic
    assert basic is not None
    assert basic.password_file == Path("elsewhere")


def test_variables_complete_a_file_and_the_flag_wins(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        file, {"url": "http://file", "tenant": "sim|staging", "auth": {"basic": {"username": "ann"}}, "timeout": "5s"}
    )
    monkeypatch.setenv(f"{PREFIX}PASSWORD", SECRET)
    monkeypatch.setenv(f"{PREFIX}URL", "http://variable")
    access = access_of(load_settings({"prometheus_url": "http://flag/prometheus/"}, file).prometheus)
    assert access.url == "http://flag/prometheus"
    assert (access.tenant, access.timeout_s) == ("sim|staging", 5)
    username = Secret("prometheus.auth.basic.username", value="ann")
    assert access.auth == Basic(username, Secret(f"{PREFIX}PASSWORD", value=SECRET))
    assert SECRET not in repr(access)
    assert load_settings(config=file).prometheus.timeout == timedelta(seconds=5)


def test_a_bearer_token_by_variables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}URL", "http://p")
    monkeypatch.setenv(f"{PREFIX}BEARER_TOKEN_FILE", "/token")
    settings = load_settings()
    token = Secret("prometheus.auth.bearer.tokenFile", Path("/token"))
    assert access_of(settings.prometheus).auth == Bearer(token)


@pytest.mark.parametrize("path", SECRETS, ids=".".join)
def test_secrets_are_not_taken_from_the_file(file: Path, path: tuple[str, ...]) -> None:
    values: Any = SECRET
    for key in reversed(path):
        values = {key: values}
    lines = refusal(config=write(file, values))
    assert f"spec.prometheus.{'.'.join(path)}: secrets are not taken from this file; name a file" in lines[0]
    assert f"under {SECRETS[path][-1]}, or set {VARIABLES[path]}" in lines[0]
    assert SECRET not in "".join(lines)


@pytest.mark.parametrize(
    "values",
    [
        SECRET,
        {"auth": SECRET},
        {"auth": [SECRET]},
        {"auth": {"bearer": SECRET}},
        {"auth": {"basic": SECRET}},
        {"auth": {"basic": [SECRET]}},
        {"auth": {"basic": {"pasword": SECRET}}},
        {"auth": {"bearer": {"token": [SECRET]}}},
        {"auth": {"bearer": {"tokenFile": {"value": SECRET}}}},
        {"password": SECRET},
        {"url": f"http://user:{SECRET}@prometheus"},
        {"tenant": f"{SECRET}\n"},
    ],
    ids=str,
)
def test_secrets_in_a_wrong_place_are_refused_and_not_shown(file: Path, values: object) -> None:
    text = "\n".join(refusal(config=write(file, values)))
    assert str(file) in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("values", "variables", "expected"),
    [
        (
            {"auth": {"bearer": {"tokenFile": "t"}}},
            {"USERNAME": "ann", "PASSWORD": SECRET},
            "{file}:6: spec.prometheus.auth: BRIDGE_AUTOSCALER_PROMETHEUS_USERNAME and prometheus.auth.bearer exclude "
            "each other; keep one",
        ),
        (
            {},
            {"USERNAME": "ann", "PASSWORD": SECRET, "BEARER_TOKEN": SECRET},
            "{file}:4: spec.prometheus.auth: BRIDGE_AUTOSCALER_PROMETHEUS_USERNAME and "
            "BRIDGE_AUTOSCALER_PROMETHEUS_BEARER_TOKEN exclude each other; keep one",
        ),
        (
            {"auth": {"basic": {"username": "ann"}}},
            {},
            "{file}:7: spec.prometheus.auth.basic: has no password: set passwordFile "
            "(BRIDGE_AUTOSCALER_PROMETHEUS_PASSWORD_FILE) or BRIDGE_AUTOSCALER_PROMETHEUS_PASSWORD",
        ),
        (
            {"auth": {"basic": {"username": "ann", "passwordFile": "p"}}},
            {"PASSWORD": SECRET},
            "{file}:7: spec.prometheus.auth.basic: BRIDGE_AUTOSCALER_PROMETHEUS_PASSWORD and "
            "prometheus.auth.basic.passwordFile exclude each other; keep one",
        ),
        (
            {},
            {"TIMEOUT": "10ms"},
            "BRIDGE_AUTOSCALER_PROMETHEUS_TIMEOUT: must be between 1s and 5m",
        ),
        (
            {"tenant": "sim "},
            {},
            "{file}:6: spec.prometheus.tenant: cannot stand in a header: it is empty, starts or ends with a space",
        ),
        (
            {},
            {"USERNAME": "a:b"},
            "BRIDGE_AUTOSCALER_PROMETHEUS_USERNAME: must not hold a colon, which ends the user name",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_by_name(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: Mapping[str, Any],
    variables: Mapping[str, str],
    expected: str,
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(PREFIX + name, text)
    (line,) = refusal(config=write(file, {"url": "http://p", **values}))
    assert line.startswith(expected.format(file=file))


def test_a_section_has_no_variable_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGE_AUTOSCALER_PROMETHEUS", f'{{"auth": "{SECRET}"}}')
    (line,) = refusal()
    assert line.startswith("BRIDGE_AUTOSCALER_PROMETHEUS: no such variable (did you mean")
    assert SECRET not in line
