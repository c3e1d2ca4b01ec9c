"""One object as read, and what becomes of one that cannot be read: a `Problem`, never an exception. Pure."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Generic, NamedTuple, TypeVar

import msgspec

from autoscaler.adapters.kubernetes import schema
from autoscaler.core.model import Problem
from autoscaler.core.problems import Trouble
from autoscaler.core.units import QuantityError

K = TypeVar("K")
T = TypeVar("T")
W = TypeVar("W", bound=schema.Object)


class UnknownWord(ValueError):
    """A word that this version does not know, where guessing what it means could do harm."""


UNREADABLE = (*schema.UNREADABLE, QuantityError, UnknownWord)
"""What reading an object raises."""


class Owned(NamedTuple):
    """An object of a kind: its namespace and "Kind/name"."""

    namespace: str
    object: str


class Decoded(NamedTuple, Generic[K, T]):
    """One object as read. `value` is None if it could not be; `problem` says why, or what was odd about it."""

    key: K
    version: str
    value: T | None
    problem: Problem | None = None


_named = msgspec.json.Decoder(schema.Named)


def read(
    kind: str, raw: msgspec.Raw | bytes, decoder: msgspec.json.Decoder[W], make: Callable[[W], T | None]
) -> Decoded[Owned, T]:
    """An object of a kind. Where `make` gives None, it is of no interest."""
    try:
        wire = decoder.decode(raw)
        value = make(wire)
    except UNREADABLE as error:
        name = name_of(raw)
        owned = Owned(name.namespace, f"{kind}/{name.name}")
        where = f" in {owned.namespace}" if owned.namespace else ""
        return Decoded(owned, name.resource_version, None, unreadable(f"{owned.object}{where}", error))
    meta = wire.metadata
    return Decoded(Owned(intern(meta.namespace), intern(f"{kind}/{meta.name}")), meta.resource_version, value)


def name_of(raw: msgspec.Raw | bytes) -> schema.Name:
    """The name of an object of which nothing else can be read."""
    try:
        return _named.decode(raw).metadata
    except schema.UNREADABLE:
        return schema.Name(name="?")


def unreadable(source: str, error: Exception) -> Problem:
    """The problem of an object that cannot be read."""
    return Problem(source, Trouble.UNREADABLE, f"{source} is left out, this version cannot read it: {error}")
