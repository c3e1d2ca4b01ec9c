"""How long to wait between attempts, as data."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that grow by `factor` from `first_s` to `limit_s`; each shortened by up to `jitter` (0 to 1) of itself."""

    first_s: float = 0.5
    factor: float = 2.0
    limit_s: float = 30.0
    jitter: float = 0.5

    def delay_s(self, failures: int, chance: float | None = None) -> float:
        """The wait after this many failures in a row (1 is the first). `chance` in [0, 1) replaces the random draw."""
        if chance is None:
            chance = random.random()  # noqa: S311 - spreads load, guards nothing
        # the exponent is bounded because a float overflows after some 1,000 failures
        longest = min(self.limit_s, self.first_s * self.factor ** min(max(failures - 1, 0), 64))
        return longest * (1 - self.jitter * chance)
