"""The section `prometheus`: whence its values come, what cannot be meant, and that no secret is taken from a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from autoscaler.adapters.prometheus.access import Basic, Bearer, OAuth2, Secret, SigV4, Tls
from autoscaler.cli.access import access_of
from autoscaler.settings import load_settings
from autoscaler.settings_prometheus import FILES, SECRETS, VARIABLES, PrometheusSection
from autoscaler.strictyaml import Refused
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
    monkeypatch.setenv(f"{PREFIX}BACKFILL_SAMPLES", "2000000")
    assert load_settings(config=file).prometheus.backfill_samples == 2_000_000
    for most in (10**12, 10**12 + 1):  # a variable says no more than the file may, and no less
        monkeypatch.setenv(f"{PREFIX}BACKFILL_SAMPLES", f"{most}")
        if most == 10**12:
            assert load_settings(config=file).prometheus.backfill_samples == most
        else:
            assert "from 1000000 to 1000000000000" in refusal(config=file)[0]


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
            {"BACKFILL_SAMPLES": "1e9"},
            "BRIDGE_AUTOSCALER_PROMETHEUS_BACKFILL_SAMPLES: must be a whole number from 1000000 to 1000000000000, like "
            "100000000",
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
        (
            {"auth": {"oauth2": {"tokenUrl": "https://t", "clientId": "c"}, "sigv4": {"region": "r"}}},
            {},
            "{file}:6: spec.prometheus.auth: prometheus.auth.oauth2 and prometheus.auth.sigv4 exclude each other",
        ),
        (
            {"auth": {"oauth2": {"tokenUrl": "https://t", "clientId": "c"}}},
            {},
            "{file}:7: spec.prometheus.auth.oauth2: has no client secret: set clientSecretFile "
            "(BRIDGE_AUTOSCALER_PROMETHEUS_OAUTH2_CLIENT_SECRET_FILE) or",
        ),
        (
            {"auth": {"oauth2": {"tokenUrl": "https://t", "clientId": "c", "parameters": {"scope": "x"}}}},
            {"OAUTH2_CLIENT_SECRET": SECRET},
            "{file}:11: spec.prometheus.auth.oauth2.parameters.scope: the parameter scope is this program's to set",
        ),
        (
            {},
            {"OAUTH2_TOKEN_URL": "login", "OAUTH2_CLIENT_ID": "c", "OAUTH2_CLIENT_SECRET": SECRET},
            "BRIDGE_AUTOSCALER_PROMETHEUS_OAUTH2_TOKEN_URL: 'login' is not an address; write it like https://login",
        ),
        (
            {},
            {"URL": f"http://p/?token={SECRET}"},
            "BRIDGE_AUTOSCALER_PROMETHEUS_URL: must end with its path, without ? and #; write it like http://prom",
        ),
        (
            {},
            {"OAUTH2_TOKEN_URL": f"//t?{SECRET}", "OAUTH2_CLIENT_ID": "c", "OAUTH2_CLIENT_SECRET": SECRET},
            "BRIDGE_AUTOSCALER_PROMETHEUS_OAUTH2_TOKEN_URL: '//t' is not an address; write it like https://login",
        ),
        (
            {},
            {"OAUTH2_TOKEN_URL": "http://t", "OAUTH2_CLIENT_ID": " ", "OAUTH2_CLIENT_SECRET": SECRET},
            "BRIDGE_AUTOSCALER_PROMETHEUS_OAUTH2_CLIENT_ID: is empty, or holds a line break or another control",
        ),
        (
            {},
            {"USERNAME": "ann\n", "PASSWORD": SECRET},
            "BRIDGE_AUTOSCALER_PROMETHEUS_USERNAME: is empty, or holds a line break or another control character",
        ),
        (
            {},
            {"SIGV4_REGION": "eu central 1"},
            "BRIDGE_AUTOSCALER_PROMETHEUS_SIGV4_REGION: is letters, digits and hyphens, like eu-central-1",
        ),
        (
            {},
            {"HEADERS": f"X-A: {SECRET}\nX-A: other"},
            "BRIDGE_AUTOSCALER_PROMETHEUS_HEADERS: line 2 gives 'X-A' again; keep one",
        ),
        (
            {},
            {"HEADERS": f"X-A: b\x0b{SECRET}: c"},
            "BRIDGE_AUTOSCALER_PROMETHEUS_HEADERS: X-A: cannot stand in a header",
        ),
        (
            {"url": "HTTP://p", "tls": {"caFile": "c"}},
            {},
            "{file}:6: spec.prometheus.tls: has no effect on an address that starts with http://; write https:// in ",
        ),
        (
            {},
            {"OAUTH2_CLIENT_ID": "c", "OAUTH2_CLIENT_SECRET": SECRET},
            "{file}:4: spec.prometheus.auth.oauth2.tokenUrl: is missing, and has no default",
        ),
        (
            {"url": "https://p", "tls": {"certFile": "c"}},
            {},
            "{file}:6: spec.prometheus.tls: a certificate and its key go together; set keyFile "
            "(BRIDGE_AUTOSCALER_PROMETHEUS_KEY_FILE), too",
        ),
        (
            {},
            {"CA_FILE": "/ca.crt"},
            "{file}:4: spec.prometheus.tls: has no effect on an address that starts with http://; write https:// in "
            "prometheus.url",
        ),
        (
            {"headers": {"X-Api-Token": SECRET}},
            {},
            "{file}:7: spec.prometheus.headers.X-Api-Token: looks like a secret, which is not taken from this file; "
            "name a file that holds it under headerFiles, or set BRIDGE_AUTOSCALER_PROMETHEUS_HEADERS",
        ),
        (
            {"headers": {"X-Number": 1}},
            {},
            "{file}:7: spec.prometheus.headers.X-Number: is not text; put it in quotes",
        ),
        (
            {"headers": {"X Y": "z"}},
            {},
            "{file}:7: spec.prometheus.headers[\"X Y\"]: 'X Y' is not the name of a header",
        ),
        (
            {"headerFiles": {"Host": "z"}},
            {},
            "{file}:7: spec.prometheus.headerFiles.Host: the header Host is this program's to set",
        ),
        (
            {},
            {"HEADERS": f"X-A: b\n{SECRET}"},
            "BRIDGE_AUTOSCALER_PROMETHEUS_HEADERS: line 2 is not like name: value, one a line",
        ),
        (
            {"headerFiles": {"x-key": "f"}},
            {"HEADERS": f"X-Key: {SECRET}"},
            "BRIDGE_AUTOSCALER_PROMETHEUS_HEADERS: the header x-key is given twice, under headers or headerFiles",
        ),
        (
            {"headers": {"X-Scope-OrgID": "a"}, "tenant": "b"},
            {},
            "{file}:6: spec.prometheus.headers: X-Scope-OrgID is what prometheus.tenant is sent as; keep one",
        ),
        (
            {"auth": {"bearer": {"tokenFile": "t"}}},
            {"HEADERS": f"authorization: {SECRET}"},
            "BRIDGE_AUTOSCALER_PROMETHEUS_HEADERS: Authorization is what prometheus.auth is sent as; keep one",
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
    assert SECRET not in line


@pytest.mark.parametrize(
    "url",
    [
        *(" http://p", "http://p ", "http://p/ ", "http://p\n", "http://p\n:9090", "http://p/a\tb", "http://p\\x"),
        *("http://.p", "http://a..b", f"http://{'a' * 64}.com", "http://a b", "http://*", "http://p,q", "http://[::1"),
        *("http://p:0", "http://p:99999", "unix:///run/p.sock", "http:///p", "http://p\u200b"),
    ],
)
def test_what_no_address_is_like_is_refused(url: str) -> None:
    (line,) = refusal({"prometheus_url": url})
    assert line.startswith(f"--prometheus-url: {url!r} is not the address of a Prometheus; write it like")


@pytest.mark.parametrize(
    "url",
    ["http://p", "HTTP://P:9090/a/", "http://[::1]:9090", "http://10.0.0.1", "https://a_b.c-d.e.:1", "http://ü.de"],
)
def test_addresses_of_all_kinds(url: str) -> None:
    assert load_settings({"prometheus_url": url}).prometheus.url == url.rstrip("/")


@pytest.mark.parametrize("name", ["", " ", ".p", "a..b", "*.p", "p:1", "a b", "x\0y", "a" * 64])
def test_what_no_host_is_called_is_refused(file: Path, name: str) -> None:
    config = write(file, {"url": "https://p", "tls": {"serverName": name}})
    with pytest.raises(Refused, match=r"tls\.serverName: .* is not a name of a host; write it like prom"):
        load_settings({}, config)


def test_a_section_has_no_variable_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGE_AUTOSCALER_PROMETHEUS", f'{{"auth": "{SECRET}"}}')
    (line,) = refusal()
    assert line.startswith("BRIDGE_AUTOSCALER_PROMETHEUS: no such variable (did you mean")
    assert SECRET not in line


def test_every_key_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    written = {
        "URL": "https://p",
        "OAUTH2_TOKEN_URL": "https://login.example.com/token?tenant=1",
        "OAUTH2_CLIENT_ID": "client",
        "OAUTH2_CLIENT_SECRET_FILE": "/secret",
        "OAUTH2_SCOPES": "a, b c",
        "OAUTH2_PARAMETERS": "audience: https://p:1",
        "OAUTH2_CA_FILE": "/their-ca",
        "HEADERS": f"X-Forwarded: http://a:1|b\n\nX-Api-Key: {SECRET}\n",
        "HEADER_FILES": "X-More: /more",
        "CA_FILE": "/ca",
        "CERT_FILE": "/cert",
        "KEY_FILE": "/key",
        "SERVER_NAME": "prometheus",
    }
    for name, text in written.items():
        monkeypatch.setenv(PREFIX + name, text)
    settings = load_settings()
    access = access_of(settings.prometheus)
    assert access.auth == OAuth2(
        "https://login.example.com/token?tenant=1",
        "client",
        Secret("prometheus.auth.oauth2.clientSecretFile", Path("/secret")),
        ("a", "b", "c"),
        (("audience", "https://p:1"),),
        Path("/their-ca"),
    )
    assert access.tls == Tls(Path("/ca"), Path("/cert"), Path("/key"), "prometheus")
    assert access.headers == (
        ("X-Forwarded", Secret(f"{PREFIX}HEADERS", value="http://a:1|b")),
        ("X-Api-Key", Secret(f"{PREFIX}HEADERS", value=SECRET)),
        ("X-More", Secret("prometheus.headerFiles.X-More", Path("/more"))),
    )
    assert SECRET not in f"{settings!r} {access!r}"
    for name in written:
        monkeypatch.delenv(PREFIX + name)
    for name, text in {"URL": "https://p", "SIGV4_REGION": "r", "SIGV4_SERVICE": "s", "SIGV4_PROFILE": "p"}.items():
        monkeypatch.setenv(PREFIX + name, text)
    assert access_of(load_settings().prometheus).auth == SigV4("r", "s", "p")


def test_files_of_headers_start_at_the_settings_files_folder(file: Path) -> None:
    write(file, {"url": "https://p", "headerFiles": {"X-Api-Key": "key"}, "tls": {"caFile": "/ca"}})
    access = access_of(load_settings(config=file).prometheus)
    assert access.headers == (("X-Api-Key", Secret("prometheus.headerFiles.X-Api-Key", file.parent / "key")),)
    assert access.tls.ca_file == Path("/ca")


def test_signing_for_aws_without_its_library_names_the_extra(file: Path) -> None:
    write(file, {"url": "https://p", "auth": {"sigv4": {"region": "eu-central-1"}}})
    code = (
        "import sys; sys.modules['botocore'] = None; sys.path_importer_cache.clear()\n"
        "from pathlib import Path; from autoscaler.cli.access import access_of; from autoscaler.settings import *\n"
        f"access_of(load_settings(config=Path({str(file)!r})).prometheus)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "prometheus.auth.sigv4: needs the extra sigv4: pip install 'bridge-autoscaler[sigv4]'" in done.stderr
