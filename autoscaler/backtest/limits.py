"""What a back-test must not exceed, for CI: `oom_per_day > 0.4` fails it. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.scoring import Scores

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_CONDITION = re.compile(r"\s*(?P<figure>\w+)\s*(?P<sign><=|>=|<|>)\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*%?\s*")
FIGURES = tuple(one.name for one in fields(Scores))
_KILLS = frozenset({"oom_per_day", "oom_episodes", "oom_kills"})
_LACK = frozenset({"late_frames_percent"})


@dataclass(frozen=True, slots=True)
class Condition:
    """A figure of the mean, a comparison and a number."""

    figure: str
    sign: str
    number: float

    def holds(self, mean: Scores) -> bool:
        """Not where the figure is not known."""
        value = self.value(mean)
        return value is not None and _OPERATORS[self.sign](value, self.number)

    def value(self, mean: Scores) -> float | None:
        """The figure, None if it is not known."""
        found: float | None = getattr(mean, self.figure)
        return found

    def is_of(self, replayed: Replayed) -> bool:
        """Whether the figure says anything of that resource: nobody is killed for CPU, or late for memory."""
        return self.figure not in (_KILLS if replayed is Replayed.CPU else _LACK)

    def __str__(self) -> str:
        return f"{self.figure} {self.sign} {self.number:g}"


def parse_condition(text: str) -> Condition:
    """Raises `ValueError` with the remedy."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no condition; write a figure, one of < <= > >=, and a number: oom_per_day > 0.4")
    if match["figure"] not in FIGURES:
        raise ValueError(f"there is no figure {match['figure']!r}; figures: {', '.join(FIGURES)}")
    return Condition(match["figure"], match["sign"], float(match["number"]))
