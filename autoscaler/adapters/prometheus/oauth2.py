"""Tokens of an OAuth 2 server, asked for with the client credentials grant. RFC 6749, sections 2.3.1, 4.4 and 5."""

from __future__ import annotations

import math
import threading
import time
from base64 import b64encode
from dataclasses import replace
from urllib.parse import quote_plus

import msgspec
import requests
from urllib3.exceptions import HTTPError

from autoscaler.adapters.prometheus.access import Access, OAuth2, Tls
from autoscaler.adapters.prometheus.answers import MetricsError, foreign
from autoscaler.adapters.prometheus.failures import CONNECT_TIMEOUT_S, no_answer, without_query
from autoscaler.adapters.prometheus.secrets import hide, read, sendable
from autoscaler.adapters.prometheus.transport import Session

_MOST_BYTES = 1 << 20
_MOST_WORDS = 200
_LEEWAY_S = 60.0  # a token is given up this long before it expires, and short-lived ones at four fifths of their time
_LEEWAY_SHARE = 0.2
_SETTING = "prometheus.auth.oauth2"


class _Token(msgspec.Struct):
    access_token: str
    token_type: str = "Bearer"  # noqa: S105 (not a secret)
    expires_in: float | None = None


class _Refusal(msgspec.Struct):
    error: str
    error_description: str = ""


_TOKEN = msgspec.json.Decoder(_Token, strict=False)  # some send seconds as text
_REFUSAL = msgspec.json.Decoder(_Refusal)


class OAuth2Scheme:
    """Sends a token, which is kept until shortly before it expires or a server does not accept it."""

    def __init__(self, oauth2: OAuth2, access: Access) -> None:
        self._oauth2 = oauth2
        self._timeout_s = access.timeout_s
        # the client certificate is for Prometheus alone
        self._tls = Tls(oauth2.ca_file or access.tls.ca_file)
        if oauth2.ca_file is not None or access.tls.ca_file is None:
            self._tls = replace(self._tls, ca_setting=f"{_SETTING}.caFile")
        self._session = Session(self._tls)
        self._lock = threading.Lock()  # held while a token is fetched: the others wait for the same one
        self._token: str | None = None
        self._until_s = float("inf")
        self._secret_in_body: bool | None = None

    def authorize(self, request: requests.PreparedRequest) -> None:
        """Add the token; fetch one if there is none. Raises `MetricsError`."""
        with self._lock:
            if self._token is None or time.monotonic() >= self._until_s:
                self._token = None
                asked_s = time.monotonic()
                token = self._fetch()
                self._token = f"Bearer {token.access_token}"
                lasts_s = _lasts_s(token)
                self._until_s = asked_s + lasts_s - min(_LEEWAY_S, _LEEWAY_SHARE * lasts_s)
            request.headers["Authorization"] = self._token

    def renewed(self, sent: str) -> bool:
        """Give up a token that was not accepted, so that the next request has another."""
        with self._lock:
            if self._token == sent:
                self._token = None
        return True

    def check(self) -> None:
        """Read the files. Raises `MetricsError`."""
        read(self._oauth2.client_secret)
        self._session.check()

    def close(self) -> None:
        self._session.close()

    def _fetch(self) -> _Token:
        secret = read(self._oauth2.client_secret)
        # servers take the secret in a header, as the RFC wants, or in the body, or in both places; none says which
        for in_body in (False, True) if self._secret_in_body is None else (self._secret_in_body,):
            status, content = self._ask(secret, in_body=in_body)
            if status == 200:
                self._secret_in_body = in_body
                return self._decoded(content)
            if status not in (400, 401):
                break
        pair = b64encode(f"{quote_plus(self._oauth2.client_id)}:{quote_plus(secret)}".encode()).decode()
        reason = foreign(hide(_reason(content), secret, quote_plus(secret), pair), _MOST_WORDS)
        remedy = "check clientId and the client secret" if reason else "check tokenUrl"
        raise self._failed(f"the token server refuses (HTTP {status}){reason}; {remedy}")

    def _ask(self, secret: str, *, in_body: bool) -> tuple[int, bytes]:
        client = self._oauth2
        form = {"grant_type": "client_credentials", **dict(client.parameters)}
        if client.scopes:
            form["scope"] = " ".join(client.scopes)
        auth = None
        if in_body:
            form |= {"client_id": client.client_id, "client_secret": secret}
        else:
            auth = (quote_plus(client.client_id), quote_plus(secret))
        try:
            with self._session.post(
                client.token_url,
                data=form,
                auth=auth,
                headers={"Accept": "application/json"},
                timeout=(CONNECT_TIMEOUT_S, self._timeout_s),
                allow_redirects=False,
                stream=True,
            ) as response:
                return response.status_code, response.raw.read(_MOST_BYTES, decode_content=True)
        except (requests.RequestException, HTTPError) as error:
            failure = no_answer(error, self._tls, self._timeout_s, url_setting=f"{_SETTING}.tokenUrl")
            raise MetricsError(None, failure.error_type, self._said(f"the token server {failure.text}")) from error

    def _decoded(self, content: bytes) -> _Token:
        try:
            token = _TOKEN.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._failed("the token server sent no token (HTTP 200); check tokenUrl") from None
        if token.token_type.lower() != "bearer":
            raise self._failed("the token server gives no bearer tokens")
        if not token.access_token or not sendable(token.access_token):
            raise self._failed("the token is empty, or holds characters that cannot stand in a header")
        return token

    def _failed(self, why: str) -> MetricsError:
        return MetricsError(None, "credentials", self._said(why))

    def _said(self, why: str) -> str:
        return f"is not asked: {_SETTING} ({without_query(self._oauth2.token_url)}): {why}"


def _lasts_s(token: _Token) -> float:
    """For how long a token lasts; what cannot be right counts as not said: then a refusal ends it."""
    return token.expires_in if token.expires_in is not None and token.expires_in > 0 else math.inf  # NaN compares false


def _reason(content: bytes) -> str:
    try:
        refusal = _REFUSAL.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return f": {refusal.error} {refusal.error_description}".rstrip()
