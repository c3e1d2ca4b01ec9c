"""What has been read of one kind of object: the newest of each, and what could not be read. Pure.

Changes arrive from a watch, from lists and from answers to patches, in any order: an older one never replaces a newer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from autoscaler.adapters.kubernetes.decoded import Decoded
from autoscaler.core.model import Problem

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def newer(version: str, than: str) -> bool:
    """Whether a resourceVersion is newer: they are growing integers (KEP-5504); if not, what came last is newer."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than


class Cache(Generic[K, T]):
    """Objects by key. `accept` may turn a new value into what is kept, seeing the old one; both may be None."""

    def __init__(self, accept: Callable[[K, T | None, T | None], T | None]) -> None:
        self.items: dict[K, T] = {}
        self.problems: dict[K, Problem] = {}
        self._versions: dict[K, str] = {}
        self._accept = accept

    def replace(self, objects: Iterable[Decoded[K, T]], *, rewound: bool = False) -> None:
        """A complete list: what is not in it is gone. `rewound`: the server's versions went back, older is newer."""
        if rewound:
            self._versions = dict.fromkeys(self._versions, "")
        kept = set()
        for one in objects:
            kept.add(one.key)
            self.put(one)
        for key in [key for key in self._versions if key not in kept]:
            self.remove(key)

    def put(self, one: Decoded[K, T]) -> None:
        """The state of one object, if it is newer than what is known."""
        known = self._versions.get(one.key)
        if known is not None and not newer(one.version, known):
            return
        self._versions[one.key] = one.version
        if one.problem is None:
            self.problems.pop(one.key, None)
        else:
            self.problems[one.key] = one.problem
        self._keep(one.key, one.value)

    def remove(self, key: K) -> None:
        """The object is gone."""
        self._versions.pop(key, None)
        self.problems.pop(key, None)
        self._keep(key, None)

    def _keep(self, key: K, value: T | None) -> None:
        kept = self._accept(key, self.items.get(key), value)
        if kept is None:
            self.items.pop(key, None)
        else:
            self.items[key] = kept
