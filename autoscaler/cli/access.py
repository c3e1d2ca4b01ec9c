"""How Prometheus is reached, made of settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from autoscaler.adapters.prometheus.access import Access, Auth, Basic, Bearer, Secret
from autoscaler.settings_prometheus import VARIABLES, KeyPath, PrometheusSection, dotted
from autoscaler.strictyaml import Fault, Refused


def access_of(prometheus: PrometheusSection) -> Access:
    """The settings as the adapters take them. Raises `Refused` without an address."""
    if prometheus.url is None:
        raise Refused([Fault("--prometheus-url", 0, "", "not given; write it like http://prometheus:9090")])
    return Access(prometheus.url, _auth(prometheus), prometheus.tenant, prometheus.timeout.total_seconds())


def _auth(prometheus: PrometheusSection) -> Auth | None:
    auth = prometheus.auth
    if (basic := auth.basic) is not None:
        return Basic(
            _secret(("auth", "basic", "username"), basic.username, basic.username_file),
            _secret(("auth", "basic", "password"), basic.password, basic.password_file),
        )
    if (bearer := auth.bearer) is not None:
        return Bearer(_secret(("auth", "bearer", "token"), bearer.token, bearer.token_file))
    return None


def _secret(key: KeyPath, value: str | SecretStr | None, file: Path | None) -> Secret:
    if file is not None:
        return Secret(dotted((*key[:-1], f"{key[-1]}File")), file)
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    return Secret(VARIABLES[key] if isinstance(value, SecretStr) else dotted(key), value=text or "")
