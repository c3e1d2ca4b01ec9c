"""What the flags of a back-test take: durations, sizes, amounts and conditions, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.limits import Condition, parse_condition
from autoscaler.core.model import Resource, ResourceList
from autoscaler.core.units import QuantityError, parse_cpu, parse_memory
from autoscaler.recommenders.parameters import parse_duration

_LEAST_BYTES = 1 << 20  # no container has less memory


class Duration(click.ParamType[timedelta]):
    """A duration as policies have it, in whole seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        try:
            duration = parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if duration % timedelta(seconds=1):
            self.fail(f"{value} is not a whole number of seconds", param, ctx)
        return duration


class NewFile(click.Path):
    """A file that is written at the end of what takes long, so that its folder has to be there before."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(str(super().convert(value, param, ctx)))
        try:
            there = path.parent.is_dir()
        except OSError:  # a name that is too long, a folder that may not be looked at
            there = False
        if not there:
            self.fail(f"there is no folder {path.parent} for {path.name}; create it", param, ctx)
        return path


class ConditionType(click.ParamType[Condition]):
    """`oom_per_day > 0.4`."""

    name = "condition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Condition:
        try:
            return value if isinstance(value, Condition) else parse_condition(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Sizes(click.ParamType[dict[Replayed, float]]):
    """`cpu=4,memory=8Gi` in cores and bytes."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[Replayed, float]:
        if isinstance(value, dict):
            return value
        found: dict[Replayed, float] = {}
        for item, name, quantity in _items(self, value, param, ctx):
            if name not in list(Replayed):
                self.fail(f"{item!r} is no size; write cpu=4,memory=8Gi,gpu_memory=20Gi, or some of them", param, ctx)
            try:
                is_cpu = name == Replayed.CPU
                found[Replayed(name)] = parse_cpu(quantity) / 1000 if is_cpu else float(parse_memory(quantity))
            except QuantityError as error:
                self.fail(str(error), param, ctx)
            if (found[Replayed(name)] < _LEAST_BYTES and not is_cpu) or not found[Replayed(name)]:
                self.fail(f"{item!r} is next to nothing; write what runs today, like memory=4Gi", param, ctx)
        return found


class Amounts(click.ParamType[ResourceList]):
    """`cpu=16,memory=64Gi`."""

    name = "amounts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ResourceList:
        if isinstance(value, ResourceList):
            return value
        amounts = ResourceList()
        for item, name, quantity in _items(self, value, param, ctx):
            try:
                if name == Resource.CPU:
                    amounts = replace(amounts, cpu=parse_cpu(quantity))
                elif name == Resource.MEMORY:
                    amounts = replace(amounts, memory=parse_memory(quantity))
                else:
                    self.fail(f"{item!r} is no amount; write cpu=16,memory=64Gi, or one of them", param, ctx)
            except QuantityError as error:
                self.fail(str(error), param, ctx)
        return amounts


def _items(
    of: click.ParamType[Any], text: str, param: click.Parameter | None, ctx: click.Context | None
) -> Iterator[tuple[str, str, str]]:
    """The items of `name=quantity,…`, each whole and in its two parts. A name that comes again fails."""
    seen = set[str]()
    for item in text.split(","):
        name, _, quantity = item.strip().partition("=")
        if name in seen:
            of.fail(f"{name} is given twice; leave one of them out", param, ctx)
        seen.add(name)
        yield item, name, quantity
