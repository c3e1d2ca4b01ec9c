"""The syntax of names in Kubernetes, for what users write (apimachinery/pkg/util/validation).

All raise `ValueError`.
"""

from __future__ import annotations

import re

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Signal

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_CONTAINER = re.compile(r"[-a-z0-9*?\[\]!]{1,63}")


_SIGNAL = re.compile(r"[a-z][A-Za-z0-9]{0,62}")


def _refusal(value: str, what: str) -> ValueError:
    return ValueError(f"{value[:80]!r} is not {what}")


def checked_name(value: str) -> str:
    """A DNS subdomain, as object names are."""
    if _SUBDOMAIN.fullmatch(value) is None:
        raise _refusal(value, "a name; use lower-case letters, digits, - and .")
    return value


def checked_namespace(value: str) -> str:
    """A namespace, or `*`."""
    if value != "*" and _LABEL.fullmatch(value) is None:
        raise _refusal(value, 'a namespace; write names in full, or "*" alone for all')
    return value


def checked_container(value: str) -> str:
    """A container name or a pattern with `*`, `?` and `[…]`."""
    if _CONTAINER.fullmatch(value) is None:
        raise _refusal(value, "a container name; use lower-case letters, digits and -, or a pattern with * and ?")
    return value


def checked_label_key(value: str) -> str:
    """A label key with or without prefix: `component`, `app.kubernetes.io/component`."""
    prefix, slash, name = value.rpartition("/")
    if _QUALIFIED.fullmatch(name) is None or (slash and _SUBDOMAIN.fullmatch(prefix) is None):
        raise _refusal(value, "a label key; write it like component or app.kubernetes.io/component")
    return value


def checked_label_value(value: str) -> str:
    """A label value; it may be empty."""
    if value and _QUALIFIED.fullmatch(value) is None:
        raise _refusal(value, "a label value; at most 63 letters, digits, -, _ and .")
    return value


def checked_signal(value: str) -> str:
    """The name of a policy's own signal; those that every policy has are not among them."""
    if _SIGNAL.fullmatch(value) is None:
        raise _refusal(value, "a name for a signal; write it like frameTime")
    if value in frozenset(Signal) | frozenset(Resource):
        raise _refusal(value, "a name for a signal of its own: every policy has one of that name")
    return value
