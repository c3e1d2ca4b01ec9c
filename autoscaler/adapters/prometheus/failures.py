"""What is said about a request that got no answer of Prometheus: what happened, and which setting may be at fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from http.client import RemoteDisconnected
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import DecodeError, ProtocolError, ReadTimeoutError

from autoscaler.adapters.prometheus.access import Access, Basic, Bearer
from autoscaler.adapters.prometheus.answers import MetricsError

CONNECT_TIMEOUT_S = 3.0


def no_answer(error: Exception, access: Access) -> MetricsError:
    """The failure that an exception of requests or urllib3 stands for."""
    match error:
        case requests.ConnectTimeout():
            text = f"cannot be reached: no connection within {CONNECT_TIMEOUT_S:.0f} s; check --prometheus-url"
            return MetricsError(None, "connection", text)
        case requests.Timeout() | ReadTimeoutError():
            return MetricsError(None, "hang", f"did not answer within {access.timeout_s:g} s")
        case (
            requests.exceptions.InvalidSchema() | requests.exceptions.MissingSchema() | requests.exceptions.InvalidURL()
        ):
            text = "is not an address; --prometheus-url looks like http://prometheus.monitoring:9090"
            return MetricsError(None, "address", text)
        case ProtocolError() | DecodeError():
            return MetricsError(None, "broken_off", "broke off in the middle of an answer")
    text = f"cannot be reached: {_word(error)}; check --prometheus-url and that it runs"
    return MetricsError(None, "connection", text)


def _word(error: BaseException) -> str:
    """The operating system's word for what happened, from the bottom of the chain; never the address."""
    word = type(error).__name__
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.strerror:
            word = cause.strerror
        elif isinstance(cause, RemoteDisconnected):
            word = "it closed the connection without an answer"
    return word


def _chain(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        inner = next((a for a in (*cause.args, getattr(cause, "reason", None)) if isinstance(a, BaseException)), None)
        cause = inner or cause.__cause__ or cause.__context__


def not_prometheus(response: requests.Response, body: bytes, access: Access) -> MetricsError:
    """The failure that a response stands for which holds no answer."""
    status = response.status_code
    start = body[:200].lstrip().lower()
    html = start.startswith((b"<!doctype html", b"<html")) or "html" in response.headers.get("content-type", "")
    kind = "html" if html else "not_json" if body.strip() else "empty"
    if 300 <= status < 400:
        to = _site(response.headers.get("location", ""))
        text = f"redirects to {to} (HTTP {status}): a login page, or --prometheus-url has a wrong scheme or path"
    elif status in (401, 403):
        text = f"refuses access (HTTP {status}): {_who(status, body, access)}"
    elif status == 404:
        text = "has no query API (HTTP 404): --prometheus-url has a wrong path (some servers need /prometheus)"
    elif status in (429, 500, 502, 503, 504):
        text = f"fails with HTTP {status}: {_excerpt(body) or response.reason or 'no explanation'}"
    elif html:
        text = f"answered with an HTML page (HTTP {status}): not Prometheus, or a login page; check --prometheus-url"
    elif kind == "empty":
        text = f"sent an empty answer (HTTP {status}): it does not seem to be Prometheus; check --prometheus-url"
    else:
        text = (
            f"sent something that is not Prometheus' JSON (HTTP {status}): {_excerpt(body)!r}; check --prometheus-url"
        )
    return MetricsError(status, kind, text)


def _who(status: int, body: bytes, access: Access) -> str:
    """Why somebody may not ask, and which setting says who asks."""
    if b"no org id" in body:
        return "no org id: it serves several tenants; set prometheus.tenant to the one to ask for"
    if access.auth is None:
        return "it wants credentials; set prometheus.auth"
    match access.auth:
        case Basic(username, password):
            how = f"prometheus.auth.basic (from {username.setting} and {password.setting})"
        case Bearer(token):
            how = f"prometheus.auth.bearer (from {token.setting})"
    if status == 401:
        return f"it does not accept {how}"
    tenant = "" if access.tenant is None else ", or not for prometheus.tenant"
    return f"whom {how} stands for may not query{tenant}"


def _site(location: str) -> str:
    with suppress(ValueError):  # foreign text need not be an address
        target = urlsplit(location)
        if target.hostname:
            return f"{target.scheme}://{target.hostname}"
    return "another page"


def _excerpt(body: bytes) -> str:
    if body.lstrip()[:1] == b"<":
        return "an HTML page"
    return " ".join(body[:200].decode("utf-8", "replace").split())[:80]
