"""Steps in words."""

from __future__ import annotations

import pytest

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Step
from autoscaler.core.trail import sentence

CPU, MEMORY = Resource.CPU, Resource.MEMORY


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Step(CPU, "usage", None, 812, "p95 of 3.2d of samples"), "cpu: usage p95 of 3.2d of samples = 812m"),
        (Step(CPU, "usage", None, 812, ""), "cpu: usage = 812m"),
        (Step(CPU, "margin", 812, 934, "margin +15 %"), "cpu: margin +15 %: 812m -> 934m"),
        (Step(CPU, "round", 930, 930, "up to 10m"), "cpu: round up to 10m: stays 930m"),
        (Step(CPU, "usage", None, None, "12 of 30 minutes"), "cpu: usage 12 of 30 minutes"),
        (Step(CPU, "maxAllowed", 934, 800, "the policy", cap=True), "cpu: maxAllowed caps 934m at 800m (the policy)"),
        (Step(MEMORY, "minAllowed", 1 << 20, 2 << 20, "", cap=True), "memory: minAllowed raises 1Mi to 2Mi"),
        (Step(CPU, "maxStep", 5000, 2000, "", cap=True), "cpu: maxStep stops at 2 on the way to 5"),
        (Step(MEMORY, "usage", None, 3 << 19, "max"), "memory: usage max = 1.5Mi"),
        (
            Step(CPU, "cooldown", 934, 800, "20 s after the last resize", cap=True),
            "cpu: cooldown keeps 800m instead of 934m (20 s after the last resize)",
        ),
    ],
)
def test_sentence(step: Step, words: str) -> None:
    assert sentence(step) == words
