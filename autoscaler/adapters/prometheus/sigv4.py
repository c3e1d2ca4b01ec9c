"""Requests signed for AWS, by botocore: it knows every way in which a pod, a machine or a person has credentials.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import logging

import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.session import Session

from autoscaler.adapters.prometheus.access import SigV4
from autoscaler.adapters.prometheus.answers import MetricsError, foreign
from autoscaler.adapters.prometheus.failures import CONNECT_TIMEOUT_S

# it writes tracebacks of failures, which are told here, and at a lower level session tokens
logging.getLogger("botocore").setLevel(logging.ERROR)

_MOST_WORDS = 200
_SIGNED = ("Content-Type", "X-Scope-OrgID")  # no others: proxies add to them and change them


class SigV4Scheme:
    """Signs each request."""

    def __init__(self, sigv4: SigV4, timeout_s: float) -> None:
        self._sigv4 = sigv4
        self._session = Session(profile=sigv4.profile)
        # of the servers that give credentials: its own patience is five times a minute
        patience = Config(connect_timeout=CONNECT_TIMEOUT_S, read_timeout=timeout_s, retries={"total_max_attempts": 1})
        self._session.set_default_client_config(patience)

    def authorize(self, request: requests.PreparedRequest) -> None:
        """Add the signature. Raises `MetricsError`."""
        try:
            found = self._session.get_credentials()
            credentials = None if found is None else found.get_frozen_credentials()
        # not those of botocore alone: of files, of programs that give credentials, of what these write
        except Exception as error:
            raise _without(foreign(f"{type(error).__name__}: {error}", _MOST_WORDS)) from None
        if credentials is None:
            raise _without("no AWS credentials are found; give the pod a role, or set prometheus.auth.sigv4.profile")
        headers = {name: request.headers[name] for name in _SIGNED if name in request.headers}
        signed = AWSRequest(request.method, request.url, headers, request.body or b"")
        SigV4Auth(credentials, self._sigv4.service, self._sigv4.region).add_auth(signed)
        request.headers.update({name: value for name, value in signed.headers.items() if name not in headers})

    def renewed(self, sent: str) -> bool:
        """Never: botocore renews by itself before credentials expire."""
        return False

    def check(self) -> None:
        """Nothing is a file of ours."""

    def close(self) -> None:
        """Nothing is held open."""


def _without(why: str) -> MetricsError:
    return MetricsError(None, "credentials", f"is not asked: prometheus.auth.sigv4: {why}")
