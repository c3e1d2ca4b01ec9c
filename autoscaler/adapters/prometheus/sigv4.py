"""Requests signed for AWS, by botocore: it knows every way in which a pod, a machine or a person has credentials.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import logging

import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from autoscaler.adapters.prometheus.access import SigV4
from autoscaler.adapters.prometheus.answers import MetricsError

logging.getLogger("botocore.auth").setLevel(logging.INFO)  # below that it writes down session tokens

_SIGNED = ("Content-Type", "X-Scope-OrgID")  # no others: proxies add to them and change them


class SigV4Scheme:
    """Signs each request."""

    def __init__(self, sigv4: SigV4) -> None:
        self._sigv4 = sigv4
        self._session = Session(profile=sigv4.profile)

    def authorize(self, request: requests.PreparedRequest) -> None:
        """Add the signature. Raises `MetricsError`."""
        try:
            found = self._session.get_credentials()
            credentials = None if found is None else found.get_frozen_credentials()
        except BotoCoreError as error:
            raise _without(f"{type(error).__name__}: {str(error)[:200]}") from None
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
