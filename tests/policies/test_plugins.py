"""Finding recommenders: each bad plug-in is named with what is wrong, and harms no other."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from autoscaler.core.recommender import ENTRY_POINT_GROUP, Abstain, Samples, Situation, WindowRecommender
from autoscaler.plugins import UnknownRecommender, discover
from autoscaler.recommenders.parameters import Parameters
from autoscaler.recommenders.percentile import Percentile


class Loose(WindowRecommender):
    """Its parameters would let unknown keys pass."""

    name: ClassVar[str] = "loose"
    Parameters: ClassVar[type[Any]] = dict

    def recommend(self, state: Samples, situation: Situation) -> Abstain:
        return Abstain("never")


class Unfinished(WindowRecommender):
    """Forgets `recommend`."""

    name: ClassVar[str] = "unfinished"
    Parameters: ClassVar[type[Any]] = Parameters


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, ENTRY_POINT_GROUP)


SHIPPED = entry("percentile", "autoscaler.recommenders.percentile:Percentile")
HERE = __name__


def test_the_shipped_recommender_is_found() -> None:
    assert discover().named("percentile") is Percentile


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("gone", "no_such_module:X", "no_such_module:X: ModuleNotFoundError: No module named 'no_such_module'"),
        ("exits", "tests.policies.exits:X", "tests.policies.exits:X: SystemExit: 3"),
        ("number", "math:pi", "math:pi: TypeError: is not a subclass of autoscaler.core.recommender.Recommender"),
        ("other", SHIPPED.value, "TypeError: its name is 'percentile', its entry point's 'other'"),
        ("loose", f"{HERE}:Loose", "TypeError: Parameters is not a subclass of"),
        ("unfinished", f"{HERE}:Unfinished", "TypeError: does not define recommend"),
    ],
)
def test_a_bad_plugin_is_named_and_the_others_work(name: str, value: str, why: str) -> None:
    catalog = discover([entry(name, value), SHIPPED])
    assert list(catalog.usable) == ["percentile"]
    assert why in catalog.broken[name]
    (problem,) = catalog.problems
    assert (problem.source, problem.reason) == (f"recommender {name}", "PluginUnusable")
    with pytest.raises(UnknownRecommender, match="is installed but cannot be used"):
        catalog.named(name)


def test_two_plugins_of_one_name_are_both_refused() -> None:
    catalog = discover([SHIPPED, entry("percentile", "other:Percentile")])
    assert not catalog.usable
    assert catalog.broken["percentile"] == (
        "more than one package provides it (autoscaler.recommenders.percentile:Percentile, other:Percentile); "
        "uninstall all but one"
    )


def test_the_same_entry_seen_twice_is_one_plugin() -> None:
    assert list(discover([SHIPPED, SHIPPED]).usable) == ["percentile"]


def test_an_unknown_name() -> None:
    with pytest.raises(UnknownRecommender, match=r"no recommender 'x' is installed; installed: none"):
        discover([]).named("x")
