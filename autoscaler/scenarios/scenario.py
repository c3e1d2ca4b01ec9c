"""What sets one scenario apart from the others. All instants are seconds since its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.scenarios.draws import Range

Profile = tuple[tuple[float, float], ...]  # (hour, share of the highest rate), straight lines in between
ALWAYS: Profile = ((0, 1),)


@dataclass(frozen=True, slots=True)
class Held:
    """Users who come together and stay: `count` of them, or as many as fit, from `from_s` to `until_s` (None: the end).

    within_s: how long it takes until all are there, and until all have left; None: drawn. wobbles: now and then one
    more or one less.
    """

    count: int | None
    from_s: int = 0
    until_s: int | None = None
    within_s: int | None = None
    wobbles: bool = False


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Users who come one by one (Poisson) from `from_s` to `until_s` (None: the end), by when all have left.

    profile: over the hours of the scenario. first_at_once: one of them comes at `from_s`.
    """

    from_s: int = 0
    until_s: int | None = None
    profile: Profile = ALWAYS
    first_at_once: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named kind of life of a bridge.

    ranges: of quantities that differ from the usual ones (ranges.py). restarts_s, storms_s: when they happen. gaps_s:
    (begin, length) of stretches without scrapes. starts_ready: it has been up, with a scene, before it begins.
    """

    name: str
    seconds: int
    purpose: str
    expect: str
    crowds: tuple[Held | Arrivals, ...]
    ranges: Mapping[str, Range] = field(default_factory=dict)
    one_scene: bool = False
    collects: bool = False
    leaks: bool = False
    noisy: bool = True
    starts_ready: bool = False
    restarts_s: tuple[int, ...] = ()
    storms_s: tuple[int, ...] = ()
    gaps_s: tuple[tuple[int, int], ...] = ()
