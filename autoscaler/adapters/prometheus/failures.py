"""What is said about a request that got no answer of Prometheus: what happened, and which setting may be at fault."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import DecodeError, InvalidHeader, LocationValueError, ProtocolError, ReadTimeoutError

from autoscaler.adapters.prometheus.access import Access, Basic, Bearer, OAuth2, SigV4, Tls
from autoscaler.adapters.prometheus.answers import MetricsError, Shown

CONNECT_TIMEOUT_S = 3.0
URL_SETTING = "--prometheus-url"

_NO_ADDRESS = (
    *(requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema, requests.exceptions.InvalidURL),
    LocationValueError,
    UnicodeError,  # of a name that IDNA does not know
)
_NO_HTTP = (HTTPException, InvalidHeader, requests.exceptions.InvalidHeader)
_MOST_DIGITS = 9
_EXCERPT = 80  # letters of what a server says


def no_answer(error: Exception, tls: Tls, timeout_s: float, *, url_setting: str = URL_SETTING) -> MetricsError:
    """The failure that an exception of requests or urllib3 stands for. `url_setting` says where the address is from."""
    chain = list(_chain(error))
    if any(isinstance(cause, ssl.SSLEOFError | ConnectionResetError) for cause in chain) and _over_tls(error):
        # a refusal of the client's certificate can be lost with the connection
        text = f"ended the connection without a word: it may be that it {_client_refused('', tls)}, or see its log"
        return MetricsError(None, "connection", text)
    for cause in chain:
        if isinstance(cause, ssl.SSLError):
            return MetricsError(None, "tls", _tls(cause, tls, url_setting))
    if any(isinstance(cause, _NO_ADDRESS) for cause in chain):
        text = f"is not an address; {url_setting} looks like http://prometheus.monitoring:9090"
        return MetricsError(None, "address", text)
    match error:
        case requests.ConnectTimeout():
            text = f"cannot be reached: no connection within {CONNECT_TIMEOUT_S:.0f} s; check {url_setting}"
            return MetricsError(None, "connection", text)
        case requests.Timeout() | ReadTimeoutError():
            return MetricsError(None, "hang", f"did not answer within {timeout_s:g} s")
        case ProtocolError() | DecodeError():
            return MetricsError(None, "broken_off", "broke off in the middle of an answer")
    spoken = next((cause for cause in chain if isinstance(cause, _NO_HTTP)), None)
    if spoken is not None and not isinstance(spoken, RemoteDisconnected | IncompleteRead):
        text = f"does not speak HTTP/1.1 ({type(spoken).__name__}); check {url_setting}: it may be the port of gRPC"
        return MetricsError(None, "not_http", text)
    text = f"cannot be reached: {_word(error)}; check {url_setting}, http or https, and that it runs"
    return MetricsError(None, "connection", text)


def _over_tls(error: Exception) -> bool:
    request = getattr(error, "request", None)
    return request is not None and str(request.url).startswith("https:")


def _tls(error: ssl.SSLError, tls: Tls, url_setting: str) -> str:
    """What a failed handshake says about the settings. OpenSSL's reasons are in its openssl/sslerr.h and x509_vfy.h."""
    reason = (error.reason or "").replace("_", " ").lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        if error.verify_code in _OTHER_NAME:
            server_name = "" if url_setting != URL_SETTING else "set prometheus.tls.serverName to one of its names, or "
            return f"shows a certificate for another name ({why}); {server_name}correct {url_setting}"
        if error.verify_code in _OUT_OF_TIME:
            return f"shows a certificate whose time is not now ({why}); renew it, or set this machine's clock"
        if tls.ca_file is None:
            return f"shows a certificate of an authority that is not known ({why}); name it in {tls.ca_setting}"
        return f"shows a certificate that {tls.ca_setting} ({tls.ca_file}) does not vouch for ({why})"
    if any(word in reason for word in _PLAIN):
        return f"does not speak TLS ({reason}); write http:// in {url_setting}"
    if "alert" in reason and any(word in reason for word in _OF_CLIENTS):
        return _client_refused(reason, tls)
    return f"and this side find no way to speak TLS: {reason or error}; check {url_setting} and prometheus.tls"


def _client_refused(reason: str, tls: Tls) -> str:
    why = f" ({reason})" if reason else ""
    if tls.cert_file is None:
        return f"wants a client certificate{why}; set prometheus.tls.certFile and prometheus.tls.keyFile"
    return f"does not accept the client certificate{why}; check prometheus.tls.certFile ({tls.cert_file})"


_OTHER_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_OUT_OF_TIME = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_PLAIN = ("wrong version number", "http request", "record layer failure", "packet length too long")
_OF_CLIENTS = ("certificate", "unknown ca", "handshake failure", "access denied")


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


def not_prometheus(response: requests.Response, body: bytes, access: Access, shown: Shown) -> MetricsError:
    """The failure that a response stands for which holds no answer."""
    status = response.status_code
    said = "an HTML page" if body.lstrip()[:1] == b"<" else shown(body.decode(errors="replace"), _EXCERPT)
    start = body[:200].lstrip().lower()
    html = start.startswith((b"<!doctype html", b"<html")) or "html" in response.headers.get("content-type", "")
    kind = "html" if html else "not_json" if body.strip() else "empty"
    if 300 <= status < 400:
        to = shown(_site(response.headers.get("location", "")), _EXCERPT)
        text = f"redirects to {to} (HTTP {status}): a login page, or a wrong scheme or path; correct --prometheus-url"
    elif status in (401, 403):
        text = f"refuses access (HTTP {status}): {_who(status, body, access)}"
    elif status == 400 and b"HTTPS" in body:  # Go's and nginx' servers say so
        kind, text = "tls", "speaks https (HTTP 400); write https:// in --prometheus-url"
    elif status == 400 and b"SSL certificate" in body:  # nginx
        kind, text = "tls", _client_refused("HTTP 400", access.tls)
    elif status == 404:
        text = "has no query API (HTTP 404); check --prometheus-url: another server, or a path that is too much, or"
        text += " missing, such as /prometheus"
    elif status in (429, 500, 502, 503, 504):
        text = f"fails with HTTP {status}: {said or shown(response.reason or '', _EXCERPT) or 'no explanation'}"
    elif html:
        text = f"answered with an HTML page (HTTP {status}): not Prometheus, or a login page; check --prometheus-url"
    elif kind == "empty":
        text = f"sent an empty answer (HTTP {status}): it does not seem to be Prometheus; check --prometheus-url"
    else:
        text = f"sent something that is not Prometheus' JSON (HTTP {status}): {said!r}; check --prometheus-url"
    return MetricsError(status, kind, text)


def _who(status: int, body: bytes, access: Access) -> str:
    """Why somebody may not ask, and which setting says who asks."""
    if b"no org id" in body:
        return "no org id: it serves several tenants; set prometheus.tenant to the one to ask for"
    if isinstance(access.auth, SigV4) and any(word in body for word in _CLOCKS_DIFFER):
        return "its clock and this one differ by more than signatures allow; set both by NTP"
    if access.auth is None:
        also = "" if not access.headers else ", or correct prometheus.headers"
        return f"it wants credentials; set prometheus.auth{also}"
    match access.auth:
        case Basic(username, password):
            how = f"prometheus.auth.basic (from {username.setting} and {password.setting})"
        case Bearer(token):
            how = f"prometheus.auth.bearer (from {token.setting})"
        case OAuth2(token_url, client_id):
            how = f"the token of prometheus.auth.oauth2 (client {client_id} at {without_query(token_url)})"
        case SigV4(region, service):
            how = f"prometheus.auth.sigv4 (region {region}, service {service})"
    if status == 401:
        return f"it does not accept {how}"
    tenant = "" if access.tenant is None else ", or not for prometheus.tenant"
    return f"whom {how} stands for may not query{tenant}"


_CLOCKS_DIFFER = (b"ignature expired", b"ignature not yet current", b"RequestTimeTooSkewed")  # words of AWS


def pause_s(retry_after: str) -> float:
    """The seconds that this header asks for, or those until its date. RFC 9110, section 10.2.3. 0 for anything else."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:_MOST_DIGITS])
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def without_query(url: str) -> str:
    """An address as it may be shown: some put keys into the rest."""
    return urlsplit(url)._replace(query="", fragment="").geturl()


def _site(location: str) -> str:
    with suppress(ValueError):  # foreign text need not be an address
        target = urlsplit(location)
        if target.hostname:
            return f"{target.scheme}://{target.hostname}"
    return "another page"
