"""Who asks: the headers that say so, made anew for each request from secrets that may change meanwhile."""

from __future__ import annotations

from base64 import b64decode, b64encode
from contextlib import suppress
from typing import Protocol

import requests
from requests.auth import AuthBase

from autoscaler.adapters.prometheus.access import Access, Basic, Bearer, OAuth2, SigV4
from autoscaler.adapters.prometheus.secrets import hide, in_a_header, in_basic, token

TENANT_HEADER = "X-Scope-OrgID"


class Scheme(Protocol):
    """One way to say who asks. Safe to use from several threads; all methods but `close` raise `MetricsError`."""

    def authorize(self, request: requests.PreparedRequest) -> None:
        """Add headers, among them Authorization."""

    def renewed(self, sent: str) -> bool:
        """Whether it is worth asking again after this value of Authorization was not accepted."""

    def check(self) -> None:
        """Read the files that the settings name."""

    def close(self) -> None:
        """Close idle connections."""


class Credentials(AuthBase):
    """Adds to a request what says who asks. Safe to use from several threads."""

    def __init__(self, access: Access) -> None:
        self._scheme = _scheme(access)
        self._tenant = access.tenant
        self._headers = access.headers

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        for name, value in self._headers:
            request.headers[name] = in_a_header(value)
        if self._tenant is not None:
            request.headers[TENANT_HEADER] = self._tenant
        self._scheme.authorize(request)  # the last, as it may sign what is there
        return request

    def renewed(self, request: requests.PreparedRequest) -> bool:
        """Whether a request that got a 401 is worth sending again, with what is there by now."""
        return self._scheme.renewed(request.headers.get("Authorization", ""))

    def hidden(self, text: str, request: requests.PreparedRequest) -> str:
        """A server's text without what was sent to it to say who asks."""
        value = request.headers.get("Authorization", "").partition(" ")[2]
        session = request.headers.get("X-Amz-Security-Token", "")
        return hide(text, value, _password(value), session, *(request.headers[name] for name, _ in self._headers))

    def check(self) -> None:
        """Read the files that the settings name. Raises `MetricsError`."""
        for _, value in self._headers:
            in_a_header(value)
        self._scheme.check()

    def close(self) -> None:
        """Close idle connections."""
        self._scheme.close()


def _password(basic: str) -> str:
    """The password of a pair as Basic has it, nothing of any other value."""
    with suppress(ValueError):
        return b64decode(basic, validate=True).decode().partition(":")[2]
    return ""


def _scheme(access: Access) -> Scheme:
    match access.auth:
        case None:
            return _Nobody()
        case Basic() as basic:
            return _Basic(basic)
        case Bearer() as bearer:
            return _Bearer(bearer)
        case OAuth2() as oauth2:
            from autoscaler.adapters.prometheus.oauth2 import OAuth2Scheme

            return OAuth2Scheme(oauth2, access)
        case SigV4() as sigv4:
            # imported here: botocore is an extra, and takes a quarter of a second
            from autoscaler.adapters.prometheus.sigv4 import SigV4Scheme

            return SigV4Scheme(sigv4, access.timeout_s)


class _Nobody:
    def authorize(self, request: requests.PreparedRequest) -> None:
        """Nothing is said."""

    def renewed(self, sent: str) -> bool:
        return False

    def check(self) -> None:
        """Nothing is read."""

    def close(self) -> None:
        """Nothing is open."""


class _FromFiles(_Nobody):
    """Reads what it sends each time: that costs nothing beside a query, and nothing can be out of date."""

    def value(self) -> str:
        raise NotImplementedError

    def authorize(self, request: requests.PreparedRequest) -> None:
        request.headers["Authorization"] = self.value()

    def renewed(self, sent: str) -> bool:
        return self.value() != sent

    def check(self) -> None:
        self.value()


class _Basic(_FromFiles):
    def __init__(self, basic: Basic) -> None:
        self._basic = basic

    def value(self) -> str:
        pair = f"{in_basic(self._basic.username, ':')}:{in_basic(self._basic.password)}"
        return "Basic " + b64encode(pair.encode()).decode()


class _Bearer(_FromFiles):
    def __init__(self, bearer: Bearer) -> None:
        self._token = bearer.token

    def value(self) -> str:
        return f"Bearer {token(self._token)}"
