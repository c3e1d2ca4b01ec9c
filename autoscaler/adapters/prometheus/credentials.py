"""Who asks: the headers that say so, made anew for each request from secrets that may change meanwhile."""

from __future__ import annotations

from base64 import b64encode
from typing import Protocol

import requests
from requests.auth import AuthBase

from autoscaler.adapters.prometheus.access import Access, Auth, Basic, Bearer, Secret
from autoscaler.adapters.prometheus.answers import MetricsError

_MOST_BYTES = 64 << 10  # a header of 64 KiB is more than any server takes
_SHORTEST_HIDDEN = 4  # less than that occurs in any text
_HIDDEN = "(hidden)"


def read(secret: Secret) -> str:
    """The value, without the newline that a file ends with. Raises `MetricsError`, which names setting and file."""
    text = secret.value
    if secret.file is not None:
        try:
            with secret.file.open("rb") as file:
                text = file.read(_MOST_BYTES + 1).decode().strip()
        except OSError as error:
            raise _unusable(secret, f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise _unusable(secret, "is not UTF-8 text") from None
    if not text:
        raise _unusable(secret, "is empty")
    if len(text) > _MOST_BYTES:
        raise _unusable(secret, f"is larger than {_MOST_BYTES >> 10} KiB")
    if not text.isprintable():  # the libraries below would show the value in their error
        raise _unusable(secret, "holds a line break or another control character in its value")
    return text


def _unusable(secret: Secret, why: str) -> MetricsError:
    where = "" if secret.file is None else f" {secret.file}"
    return MetricsError(None, "credentials", f"cannot be asked: {secret.setting}:{where} {why}")


def _header(secret: Secret) -> str:
    """A value that can stand in a header."""
    text = read(secret)
    if not text.isascii():
        raise _unusable(secret, "holds characters that cannot stand in a header")
    return text


class _Scheme(Protocol):
    def authorization(self) -> str:
        """The value of the header Authorization."""

    def renewed(self, sent: str) -> bool:
        """Whether another value than the one that was sent, and not accepted, is there by now."""


class _Basic:
    def __init__(self, basic: Basic) -> None:
        self._basic = basic

    def authorization(self) -> str:
        pair = f"{read(self._basic.username)}:{read(self._basic.password)}"
        return "Basic " + b64encode(pair.encode()).decode()

    def renewed(self, sent: str) -> bool:
        return self.authorization() != sent


class _Bearer:
    def __init__(self, bearer: Bearer) -> None:
        self._token = bearer.token

    def authorization(self) -> str:
        return f"Bearer {_header(self._token)}"

    def renewed(self, sent: str) -> bool:
        return self.authorization() != sent


def _scheme(auth: Auth) -> _Scheme:
    match auth:
        case Basic():
            return _Basic(auth)
        case Bearer():
            return _Bearer(auth)


class Credentials(AuthBase):
    """Adds to a request what says who asks. Safe to use from several threads."""

    def __init__(self, access: Access) -> None:
        self._scheme = None if access.auth is None else _scheme(access.auth)
        self._tenant = access.tenant

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._tenant is not None:
            request.headers["X-Scope-OrgID"] = self._tenant
        if self._scheme is not None:
            request.headers["Authorization"] = self._scheme.authorization()
        return request

    def renewed(self, request: requests.PreparedRequest) -> bool:
        """Whether a request that got a 401 would be sent with other credentials by now."""
        return self._scheme is not None and self._scheme.renewed(request.headers["Authorization"])


def without_secrets(text: str, request: requests.PreparedRequest) -> str:
    """A server's text without the credentials that were sent to it: some show what they do not accept."""
    value = request.headers.get("Authorization", "").partition(" ")[2]
    return text.replace(value, _HIDDEN) if len(value) >= _SHORTEST_HIDDEN else text
