"""A policy's own signals: what may be written, and who reads them."""

import re
from pathlib import Path
from typing import ClassVar

import pytest

from autoscaler.core.recommender import Abstain, Samples, Signal, Situation, WindowRecommender
from autoscaler.plugins import Catalog
from autoscaler.recommenders.parameters import Parameters
from tests.policies.documents import CATALOG, faults, read

DOCUMENTED = Path(__file__).parents[2] / "docs" / "recommenders.md"
QUERY = 'max by (namespace, pod) (frame_seconds{namespace=~"$namespace",pod=~"$pod",container=~"$container"})'
FRAMES = f"""
selector: {{namespaces: [sim]}}
recommender: {{name: frames}}
metrics: {{signals: {{frameTime: {{query: '{QUERY}'}}}}}}
"""


class Frames(WindowRecommender):
    name: ClassVar[str] = "frames"
    Parameters = Parameters

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({Signal.THROTTLED, "frameTime"})

    def recommend(self, state: Samples, situation: Situation) -> Abstain:
        return Abstain("never")


class Unsure(Frames):
    name: ClassVar[str] = "unsure"

    @property
    def signals(self) -> frozenset[str]:
        raise KeyError("frameTime")


BOTH = Catalog({**CATALOG.usable, "frames": Frames, "unsure": Unsure}, {})


def test_a_signal_arrives_in_the_core() -> None:
    loaded = read(FRAMES, BOTH)
    assert loaded.policy.signals == {"frameTime": QUERY}
    assert loaded.warnings == ()


def test_what_a_recommender_can_do_without_need_not_be_defined() -> None:
    with_frames, without = FRAMES.replace("frames", "bridge"), "selector: {namespaces: [sim]}"
    assert read(with_frames).policy.signals.keys() == {"frameTime"}
    assert read(with_frames).warnings == ()
    assert "sessions" in read(without).policy.recommender.signals


def test_the_documented_signals_are_those_that_bridge_reads() -> None:
    (found,) = re.findall(r"^## bridge$.*?^```yaml\n(.*?)^```$", DOCUMENTED.read_text(), re.DOTALL | re.MULTILINE)
    loaded = read(f"selector: {{namespaces: [sim]}}\n{found}")
    assert loaded.policy.signals.keys() == loaded.policy.recommender.optional_signals
    assert loaded.warnings == ()


def test_what_nobody_reads_has_no_effect() -> None:
    loaded = read(FRAMES.replace("frames", "percentile"), BOTH)
    assert [str(warning) for warning in loaded.warnings] == [
        "p.yaml:7: spec.metrics.signals.frameTime: has no effect, as recommender percentile does not read it"
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "frameTime",
            "frame_time",
            "spec.metrics.signals.frame_time: 'frame_time' is not a name for a signal; write it like frameTime",
        ),
        ("frameTime", "throttled", "every policy has one of that name"),
        ("frameTime", "memory", "every policy has one of that name"),
        ('"$pod"', '"$node"', "'$node' is not known; there are $namespace, $pod, $container and $cluster"),
        ('pod=~"$pod",', "", "does not select pods"),
        ("})", "}", "'(' is not closed"),
        ("query: ", "quary: ", "unknown key (did you mean query?)"),
        (
            "metrics: {signals",
            "metrics: {lookback: 14d} # {",
            "spec.recommender.name: recommender frames reads frameTime; define that under metrics.signals",
        ),
        ("name: frames", "name: unsure", "recommender unsure refuses them: KeyError: 'frameTime'"),
    ],
)
def test_what_is_wrong_is_said(old: str, new: str, expected: str) -> None:
    assert old in FRAMES
    found = faults(FRAMES.replace(old, new), BOTH)
    assert any(expected in fault for fault in found), found
