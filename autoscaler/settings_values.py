"""What values of the settings have to be like: addresses, names of hosts, headers. Messages show no secret."""

from __future__ import annotations

import re
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr

from autoscaler.core.foreign import shown
from autoscaler.recommenders.parameters import Duration


def _url(value: str) -> str:
    if "@" in value:  # not shown: it may hold a password
        raise ValueError("must not hold credentials, which would end in logs; prometheus.auth.basic takes them")
    if "?" in value or "#" in value:  # not shown either: some have a key there
        raise ValueError("must end with its path, without ? and #; write it like http://prometheus:9090")
    if not _is_address(value):
        raise ValueError(f"{shown(value)} is not the address of a Prometheus; write it like http://prometheus:9090")
    return value.rstrip("/")


def _token_url(value: str) -> str:
    if "@" in value:
        raise ValueError("must not hold credentials, which would end in logs; clientId and clientSecretFile take them")
    if not _is_address(value):  # not shown as far as there may be a key
        start = shown(re.split("[?#]", value)[0])
        raise ValueError(f"{start} is not an address; write it like https://login.example.com/oauth2/token")
    return value


def _is_address(value: str) -> bool:
    if re.search(r"[\s\\]", value) or not value.isprintable():  # urlsplit passes over some of them
        return False
    try:
        parts = urlsplit(value)
        is_host = _is_host(parts.hostname or "")
        return parts.scheme in ("http", "https") and is_host and parts.port != 0 and not parts.fragment
    except ValueError:
        return False


def _is_host(value: str) -> bool:
    """Whether it is an IP address, or a name that can be looked up."""
    try:
        ip_address(value)
    except ValueError:
        try:
            name = value.removesuffix(".").encode("idna").decode()
        except UnicodeError:
            return False
        return bool(_HOST.fullmatch(name))
    return True


def _server_name(value: str) -> str:
    if not _is_host(value):
        raise ValueError(f"{shown(value)} is not a name of a host; write it like prometheus.monitoring.svc")
    return value


def _path(value: object) -> object:
    return Path(value) if isinstance(value, str) and value else value


def _in_a_header(value: str) -> str:
    if not value or value != value.strip() or not (value.isascii() and value.isprintable()):
        raise ValueError("cannot stand in a header: it is empty, starts or ends with a space, or is not plain ASCII")
    return value


def _sendable(value: SecretStr) -> SecretStr:
    _in_a_header(value.get_secret_value())
    return value


def _username(value: str) -> str:
    if ":" in value:
        raise ValueError("must not hold a colon, which ends the user name (RFC 7617)")
    return _word(value)


def _word(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("is empty, or holds a line break or another control character")
    return value


def _aws_name(value: str) -> str:
    if not re.fullmatch("[A-Za-z0-9-]+", value):
        raise ValueError("is letters, digits and hyphens, like eu-central-1")
    return value


def _timeout(value: timedelta) -> timedelta:
    if not timedelta(seconds=1) <= value <= timedelta(minutes=5):
        raise ValueError("must be between 1s and 5m")
    return value


def _samples(value: object) -> object:
    if isinstance(value, str) and re.fullmatch("[0-9]{1,13}", value):  # of a variable
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 10**6 <= value <= 10**12:
        raise ValueError("must be a whole number from 1000000 to 1000000000000, like 100000000")
    return value


def _words(value: object) -> object:
    """`a b` or `a,b`, as a variable has it, as a list; and a list as a tuple."""
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    return tuple(value) if isinstance(value, list) else value


def _lines(value: object) -> object:
    """Lines of `name: value`, as a variable has them, as a mapping. A value may hold colons."""
    if not isinstance(value, str):
        return value
    found: dict[str, str] = {}
    for number, line in enumerate(value.split("\n"), 1):
        name, colon, text = line.partition(":")
        if name.strip() in found:
            raise ValueError(f"line {number} gives {shown(name.strip())} again; keep one")
        if colon:
            found[name.strip()] = text.strip()
        elif line.strip():  # not shown: it may be a secret
            raise ValueError(f"line {number} is not like name: value, one a line")
    return found


def _header(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{shown(name)} is not the name of a header")
    if name.lower() in _OWN_HEADERS:
        raise ValueError(f"the header {name} is this program's to set")
    return name


def _parameter(name: str) -> str:
    if name in _OWN_PARAMETERS:
        raise ValueError(f"the parameter {name} is this program's to set")
    return name


_HOST = re.compile(r"(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.|$))+")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, section 5.6.2
_OWN_HEADERS = frozenset(
    {
        *("accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    }
)
_OWN_PARAMETERS = ("grant_type", "scope", "client_id", "client_secret")

Url = Annotated[str, AfterValidator(_url)]
TokenUrl = Annotated[str, AfterValidator(_token_url)]
ServerName = Annotated[str, AfterValidator(_server_name)]
File = Annotated[Path, BeforeValidator(_path)]
UserName = Annotated[str, AfterValidator(_username)]
Word = Annotated[str, AfterValidator(_word)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
AwsName = Annotated[str, AfterValidator(_aws_name)]
SampleCount = Annotated[int, BeforeValidator(_samples)]
Timeout = Annotated[Duration, AfterValidator(_timeout)]
Sendable = Annotated[str, AfterValidator(_in_a_header)]
Header = Annotated[str, AfterValidator(_header)]
HeaderValue = Annotated[SecretStr, AfterValidator(_sendable)]
Headers = Annotated[dict[Header, HeaderValue], BeforeValidator(_lines)]
HeaderFiles = Annotated[dict[Header, File], BeforeValidator(_lines)]
Parameter = Annotated[str, AfterValidator(_parameter)]
Parameters = Annotated[dict[Parameter, str], BeforeValidator(_lines)]
