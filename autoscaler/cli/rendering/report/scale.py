"""Where a value is drawn, and which values are written along an axis. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoscaler.backtest.demand import Replayed

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TIME_STEPS = (
    *(1, 5, 15),
    *(_MINUTE * count for count in (1, 5, 15, 30)),
    *(_HOUR * count for count in (1, 2, 3, 6, 12)),
    *(_DAY * count for count in (1, 2, 7, 14, 30, 90, 365)),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from 0 to `most` on `first` to `last`. `root`: by their square roots, which draws small ones apart."""

    most: float
    first: float
    last: float
    root: bool = False

    def __call__(self, value: float) -> float:
        share = value / self.most
        return self.first + (self.last - self.first) * (math.sqrt(share) if self.root else share)


def up_to(most: float, first: float, last: float) -> tuple[Scale, list[float]]:
    """A scale that ends at a round number, and at most six round values on it, 0 included."""
    step = _round_step(most / 4) if most > 0 else 0.25
    count = max(1, math.ceil(most / step - 1e-9))
    return Scale(count * step, first, last), [index * step for index in range(count + 1)]


def root_up_to(most: float, first: float, last: float) -> tuple[Scale, list[float]]:
    """The same by square roots: values about evenly apart where they are drawn."""
    whole, ticks = up_to(most, first, last)
    small = [share for share in (_round_step(whole.most * part) for part in (0.01, 0.06)) if share < ticks[1]]
    return Scale(whole.most, first, last, root=True), [0, *small, *ticks[1:]]


def _round_step(least: float) -> float:
    """The next of 1, 2, 2.5 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= least * (1 - 1e-9))


def time_ticks(seconds: float) -> list[tuple[float, str]]:
    """Instants at which to write the time since the start, eight at most, and what to write there."""
    step = next((step for step in _TIME_STEPS if seconds / step <= 8), _TIME_STEPS[-1])
    size, unit = next(pair for pair in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1, "s")) if step % pair[0] == 0)
    return [(float(at), f"{at // size} {unit}") for at in range(0, math.ceil(seconds), step)][:9]


def clock(seconds: float) -> str:
    """An instant since the start, as people say it: `2 d 03:15`."""
    days, rest = divmod(round(seconds), _DAY)
    hours, rest = divmod(rest, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    text = f"{hours:02d}:{minutes:02d}" + (f":{rest:02d}" if rest else "")
    return f"{days} d {text}" if days else text


@dataclass(frozen=True, slots=True)
class Unit:
    """`factor`: how many cores or bytes it is."""

    name: str
    factor: float

    def written(self, value: float) -> str:
        """An amount, with three digits and without the unit."""
        amount = value / self.factor
        return f"{amount:,.0f}" if abs(amount) >= 100 else f"{amount:.3g}"


def unit_for(most: float, replayed: Replayed) -> Unit:
    """One in which `most` is not too long."""
    if replayed is Replayed.CPU:
        return Unit("cores", 1.0) if most >= 0.5 else Unit("millicores", 1e-3)
    return Unit("GiB", 2.0**30) if most >= 2**29 else Unit("MiB", 2.0**20)
