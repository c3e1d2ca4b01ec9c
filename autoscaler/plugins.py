"""Finds recommenders by entry point and builds them. A plug-in that cannot be used is named, and harms no other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from autoscaler.core.foreign import shown, told
from autoscaler.core.model import Problem
from autoscaler.core.problems import Trouble
from autoscaler.core.recommender import ENTRY_POINT_GROUP, Recommender
from autoscaler.recommenders.parameters import Parameters
from autoscaler.strictyaml import did_you_mean


class UnknownRecommender(Exception):
    """No usable recommender has this name; the text says which do, or why this one cannot be used."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The recommenders that are installed, by name, and those that cannot be used, with the reason."""

    usable: Mapping[str, type[Recommender[Any]]]
    broken: Mapping[str, str]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """One problem for each plug-in that cannot be used."""
        return tuple(
            Problem(f"recommender {name}", Trouble.PLUGIN_UNUSABLE, why) for name, why in sorted(self.broken.items())
        )

    def named(self, name: str) -> type[Recommender[Any]]:
        """The recommender of that name. Raises `UnknownRecommender`."""
        if name in self.usable:
            return self.usable[name]
        if name in self.broken:
            raise UnknownRecommender(f"{shown(name)} is installed but cannot be used: {self.broken[name]}")
        raise UnknownRecommender(
            f"no recommender {shown(name)} is installed{did_you_mean(name, self.usable)}; "
            f"installed: {', '.join(sorted(self.usable)) or 'none'}"
        )


def discover(found: Iterable[EntryPoint] | None = None) -> Catalog:
    """Import every plug-in of the entry-point group `bridge_autoscaler.recommenders`, or those that are given."""
    by_name: dict[str, dict[str, EntryPoint]] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP) if found is None else found:
        by_name.setdefault(entry.name, {})[entry.value] = entry
    usable: dict[str, type[Recommender[Any]]] = {}
    broken: dict[str, str] = {}
    for name, entries in sorted(by_name.items()):
        if len(entries) > 1:
            broken[name] = f"more than one package provides it ({', '.join(sorted(entries))}); uninstall all but one"
            continue
        (entry,) = entries.values()
        try:
            usable[name] = _checked(name, entry.load())
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an import runs foreign code: whatever it raises is the plug-in's
            broken[name] = f"{entry.value}: {told(error)}"
    return Catalog(usable, broken)


def _checked(name: str, found: Any) -> type[Recommender[Any]]:
    if not (isinstance(found, type) and issubclass(found, Recommender)):
        raise TypeError("is not a subclass of autoscaler.core.recommender.Recommender")
    if getattr(found, "name", None) != name:
        raise TypeError(f"its name is {shown(getattr(found, 'name', None))}, its entry point's {shown(name)}")
    declared = getattr(found, "Parameters", None)
    if not (isinstance(declared, type) and issubclass(declared, Parameters)):
        raise TypeError("Parameters is not a subclass of autoscaler.recommenders.parameters.Parameters")
    json.dumps(declared.model_json_schema(), default=str)  # editors and messages need it
    if missing := sorted(found.__abstractmethods__):
        raise TypeError(f"does not define {', '.join(missing)}")
    return found
