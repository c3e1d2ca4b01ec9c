"""How Prometheus is reached, made of settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from pydantic import SecretStr

from autoscaler.adapters.prometheus.access import Access, Auth, Basic, Bearer, OAuth2, Secret, SigV4, Tls
from autoscaler.settings_prometheus import VARIABLES, KeyPath, PrometheusSection, dotted
from autoscaler.strictyaml import Fault, Refused


def access_of(prometheus: PrometheusSection) -> Access:
    """The settings as the adapters take them. Raises `Refused` without an address, and where
    what it takes is not installed."""
    if prometheus.url is None:
        raise Refused([Fault("--prometheus-url", 0, "", "not given; write it like http://prometheus:9090")])
    return Access(
        prometheus.url,
        _auth(prometheus),
        prometheus.tenant,
        prometheus.timeout.total_seconds(),
        tls=Tls(prometheus.tls.ca_file, prometheus.tls.cert_file, prometheus.tls.key_file, prometheus.tls.server_name),
        headers=(
            *((name, Secret(VARIABLES["headers",], value=text)) for name, text in _shown(prometheus.headers)),
            *((name, Secret(dotted(("headerFiles", name)), file)) for name, file in prometheus.header_files.items()),
        ),
        params=prometheus.layout.layout().params,
    )


def _shown(headers: Mapping[str, SecretStr]) -> Iterator[tuple[str, str]]:
    return ((name, value.get_secret_value()) for name, value in headers.items())


def _auth(prometheus: PrometheusSection) -> Auth | None:
    auth = prometheus.auth
    if (basic := auth.basic) is not None:
        return Basic(
            _secret(("auth", "basic", "username"), basic.username, basic.username_file),
            _secret(("auth", "basic", "password"), basic.password, basic.password_file),
        )
    if (bearer := auth.bearer) is not None:
        return Bearer(_secret(("auth", "bearer", "token"), bearer.token, bearer.token_file))
    if (oauth2 := auth.oauth2) is not None:
        return OAuth2(
            oauth2.token_url,
            oauth2.client_id,
            _secret(("auth", "oauth2", "clientSecret"), oauth2.client_secret, oauth2.client_secret_file),
            oauth2.scopes,
            tuple(oauth2.parameters.items()),
            oauth2.ca_file,
        )
    if (sigv4 := auth.sigv4) is not None:
        if find_spec("botocore") is None:
            remedy = "needs the extra sigv4: pip install 'bridge-autoscaler[sigv4]'"
            raise Refused([Fault(dotted(("auth", "sigv4")), 0, "", remedy)])
        return SigV4(sigv4.region, sigv4.service, sigv4.profile)
    return None


def _secret(key: KeyPath, value: str | SecretStr | None, file: Path | None) -> Secret:
    if file is not None:
        return Secret(dotted((*key[:-1], f"{key[-1]}File")), file)
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    return Secret(VARIABLES[key] if isinstance(value, SecretStr) else dotted(key), value=text or "")
