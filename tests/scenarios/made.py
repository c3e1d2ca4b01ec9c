"""Demands that tests look at, each made once where tests that share it follow each other."""

from __future__ import annotations

from functools import lru_cache

from autoscaler.scenarios.catalog import SCENARIOS
from autoscaler.scenarios.generator import Demand, compose

SEEDS = range(10)  # for development; figures are published for others


@lru_cache(maxsize=4)
def made(name: str, seed: int, seconds: int | None = None) -> Demand:
    """The demand of a scenario."""
    return compose(SCENARIOS[name], seed, seconds)
