"""Settings: which source wins, how each is written, and whom a message blames."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from autoscaler.core.policy import Budgets
from autoscaler.settings import ENV_PREFIX, Address, Settings, flag_of, load_settings, variable_of
from autoscaler.strictyaml import Refused

HEAD = "apiVersion: bridge-autoscaler.dev/v1alpha1\nkind: BridgeConfig\nspec:\n"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(ENV_PREFIX):
            monkeypatch.delenv(name)


def refusal(flags: dict[str, Any] | None = None, config: Path | None = None) -> list[str]:
    with pytest.raises(Refused) as raised:
        load_settings(flags, config)
    return str(raised.value).splitlines()


def test_defaults() -> None:
    settings = load_settings()
    assert settings.interval == timedelta(seconds=60)
    assert settings.metrics_address == Address("127.0.0.1", 8080)
    assert (settings.policies, settings.namespaces) == ((), ())
    assert (settings.leader_elect, settings.lease_namespace) == (True, None)
    assert settings.budgets.core() == Budgets()
    assert (settings.kubeconfig, settings.context, settings.prometheus.url, settings.log_format) == (None,) * 4


def test_flags_win_over_environment_over_file_over_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(HEAD + "  context: file\n  interval: 2m\n  prometheus: {url: http://file:9090/}\n")
    monkeypatch.setenv("BRIDGE_AUTOSCALER_CONTEXT", "variable")
    monkeypatch.setenv("BRIDGE_AUTOSCALER_INTERVAL", "3m")
    monkeypatch.setenv("BRIDGE_AUTOSCALER_LOG_FORMAT", "")
    settings = load_settings({"context": "flag", "interval": None, "policies": ()}, config)
    assert settings.context == "flag"
    assert settings.interval == timedelta(minutes=3)
    assert settings.prometheus.url == "http://file:9090"
    assert settings.log_format is None


def test_every_setting_can_be_given_in_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {
        "kubeconfig": "/k",
        "context": "c",
        "prometheus_url": "https://prometheus.example.com/base",
        "policies": "/a,/b",
        "namespaces": "sim, staging",
        "log_format": "json",
        "interval": "1m30s",
        "metrics_address": ":9000",
        "leader_elect": "false",
        "lease_namespace": "control",
        "budgets": "maxInFlightPerNode=2, maxInFlightPerWorkload=3,maxDisruptionsCluster=0",
    }
    assert {*written, "prometheus"} == {*Settings.model_fields, "prometheus_url"}
    by_flag = load_settings(written)
    config = tmp_path / "config.yaml"
    keys: dict[str, object] = {to_camel(field): text for field, text in written.items()}
    keys["prometheus"] = {"url": keys.pop("prometheusUrl")}
    config.write_text(HEAD + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in keys.items()))
    monkeypatch.setenv("BRIDGE_AUTOSCALER_CONFIG", str(config))
    by_file = load_settings()
    monkeypatch.delenv("BRIDGE_AUTOSCALER_CONFIG")
    for field, text in written.items():
        monkeypatch.setenv(variable_of(field), text)
    assert load_settings() == by_flag == by_file
    assert by_flag.policies == (Path("/a"), Path("/b"))
    assert by_flag.namespaces == ("sim", "staging")
    assert by_flag.interval == timedelta(seconds=90)
    assert by_flag.metrics_address == Address(None, 9000)
    assert (by_flag.leader_elect, by_flag.lease_namespace) == (False, "control")
    assert by_flag.budgets.core() == Budgets(2, 3, max_disruptions_cluster=0)


def test_paths_of_a_file_start_at_its_folder(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(HEAD + "  kubeconfig: kube\n  policies: [policies, /etc/p]\n  namespaces: [sim]\n")
    settings = load_settings(config=config)
    assert settings.kubeconfig == tmp_path / "kube"
    assert settings.policies == (tmp_path / "policies", Path("/etc/p"))


def test_messages_blame_the_flag_the_variable_or_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(HEAD + "  context: x\n  logFormat: jsn\n")
    monkeypatch.setenv("BRIDGE_AUTOSCALER_INTERVAL", "60")
    assert refusal({"prometheus_url": "prometheus:9090", "namespaces": ("Sim",)}, config) == [
        "--prometheus-url: 'prometheus:9090' is not the address of a Prometheus; write it like http://prometheus:9090",
        "--namespace: 'Sim' is not a namespace; write names in full, or \"*\" alone for all",
        f"{config}:5: spec.logFormat: 'jsn' is not allowed (did you mean json?); allowed: json, console",
        "BRIDGE_AUTOSCALER_INTERVAL: '60' is not a duration; write a number with its unit, like 90s, 1h30m or 14d",
    ]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("interval", "500ms", "must be between 1s and 1h"),
        ("interval", "2h", "must be between 1s and 1h"),
        ("metrics_address", "8080", "'8080' is not an address; write :8080, 127.0.0.1:8080 or [::1]:8080"),
        ("metrics_address", "::1:80", "'::1:80' is not an address; write :8080, 127.0.0.1:8080 or [::1]:8080"),
        ("metrics_address", "a:70000", "'a:70000' is not an address; write :8080, 127.0.0.1:8080 or [::1]:8080"),
        ("namespaces", ["*"], "leave it out to look at every namespace"),
        ("leader_elect", "maybe", "'maybe' is not allowed; allowed: true, false"),
        ("lease_namespace", "Control", "'Control' is not a namespace"),
        ("lease_namespace", "*", "is one namespace, not all"),
        ("budgets", "maxInFlightPerNode", "'maxInFlightPerNode' is not a budget; write budgets like maxInFlight"),
        ("budgets", "maxInFlightPerNode=-1", "'maxInFlightPerNode=-1' is not a budget; write budgets like"),
        ("budgets", "maxInFlightPerWorkload=0", "maxInFlightPerWorkload: 0: input should be greater than or equal"),
        ("budgets", "maxInFlightPerNod=1", "maxInFlightPerNod: unknown key (did you mean maxInFlightPerNode?); allow"),
        ("prometheus_url", "ftp://p", "'ftp://p' is not the address of a Prometheus; write it like"),
        ("prometheus_url", "http://p:x", "'http://p:x' is not the address of a Prometheus; write it like"),
        ("prometheus_url", "http://p?x=1", "must end with its path, without ? and #; write it like"),
    ],
)
def test_refused(field: str, value: object, expected: str) -> None:
    (line,) = refusal({field: value})
    assert line.startswith(f"{flag_of(field)}: {expected}")


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    (line,) = refusal({"prometheus_url": "http://user:hunter2@prometheus:9090"})
    assert line.startswith("--prometheus-url: must not hold credentials")
    assert "hunter2" not in line


def test_addresses() -> None:
    for text, address in (
        ("[::1]:80", Address("::1", 80)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        (":1", Address(None, 1)),
    ):
        assert load_settings({"metrics_address": text}).metrics_address == address
        assert str(address) == text


def test_misspelt_variables_are_refused_and_those_of_kubernetes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGE_AUTOSCALER_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("BRIDGE_AUTOSCALER_PORT_8080_TCP", "tcp://10.0.0.1:8080")
    load_settings()
    monkeypatch.setenv("BRIDGE_AUTOSCALER_PROMETEUS_URL", "http://p")
    assert refusal() == [
        "BRIDGE_AUTOSCALER_PROMETEUS_URL: no such variable (did you mean BRIDGE_AUTOSCALER_PROMETHEUS_URL?)"
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "{file}: has 0 documents; expected one BridgeConfig"),
        ("kind: BridgePolicy", "{file}:1: kind: found 'BridgePolicy'; expected BridgeConfig"),
        (
            HEAD + "  intervall: 1m",
            "{file}:4: spec.intervall: unknown key (did you mean interval?); allowed: kubeconfig",
        ),
        (HEAD.replace("spec", "specs"), "{file}:3: specs: unknown key (did you mean spec?); allowed: apiVersion, kind"),
        (HEAD + "- a", "{file}:3: spec: expected a mapping (key: value)"),
        (
            HEAD + "  budgets:\n    maxDisruptionsCluster: many",
            "{file}:5: spec.budgets.maxDisruptionsCluster: 'many': input should be a valid integer",
        ),
        (HEAD + "  budgets: [1]", "{file}:4: spec.budgets: is a list; expected a mapping (key: value)"),
        (HEAD + "  interval: 1m\n  interval: 2m", "{file}:5: spec.interval: appears twice; first in line 4"),
    ],
)
def test_config_files_are_read_strictly(tmp_path: Path, content: str, expected: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content)
    (line,) = refusal(config=file)
    assert line.startswith(expected.format(file=file))


def test_a_config_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "no.yaml"
    assert refusal(config=file) == [f"--config: {file} cannot be read: No such file or directory"]
    monkeypatch.setenv("BRIDGE_AUTOSCALER_CONFIG", str(file))
    assert refusal() == [f"BRIDGE_AUTOSCALER_CONFIG: {file} cannot be read: No such file or directory"]


def test_the_former_key_is_refused_with_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(HEAD + "  prometheusUrl: http://prometheus:9090\n")
    assert refusal(config=file) == [
        f"{file}:4: spec.prometheusUrl: is now a key of the section prometheus: write prometheus: {{url: …}}"
    ]
