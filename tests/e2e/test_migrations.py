"""Pods that are moved, and pods that are not, by the real controller, scheduler and disruption controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.moving import Stage, cpu_of, written
from tests.e2e.story import Story
from tests.rig.rig import Rig

pytestmark = pytest.mark.rig

OWN = {"patch pods/resize", "create pods/eviction", "create events"}
"""All that a controller without surges ever writes, besides its Lease."""


@pytest.fixture
def staged(rig: Rig, tmp_path: Path) -> Iterator[Callable[[str], Stage]]:
    stages: list[Stage] = []

    def make(story: str) -> Stage:
        stages.append(Stage(rig, tmp_path, story))
        return stages[-1]

    yield make
    for stage in stages:
        stage.close()


def test_deferred_fitted_drained_evicted_and_at_its_size_on_another_node(staged: Callable[[str], Stage]) -> None:
    stage = staged("sim")
    story = Story(stage)
    story.run()
    print(story.told())

    assert "by Evict: not possible: ReplacementTooSmall" in story.foreseen
    assert f"may land on {story.full}, with no room for the rest; there is room on {story.other}" in story.foreseen
    assert "Draining: 3 sessions" in story.draining
    assert story.evicted_before_the_end == []
    assert story.bridge.drains[-1] is True
    assert story.bridge.told[-1]["uid"] == story.before["metadata"]["uid"]

    before, after = story.before, story.after
    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    assert [pod["spec"]["nodeName"] for pod in (before, after)] == [story.full, story.other]
    assert [cpu_of(pod) for pod in (before, after)] == ["2", "2"]
    for pod in (before, after):
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    writes = stage.writes()
    assert {one.what for one in writes} == OWN
    acts = [one.manager or one.what for one in writes if one.what != "create events"]
    assert acts == [
        "bridge-autoscaler",
        "bridge-autoscaler-fit",
        "bridge-autoscaler-rest",
        "create pods/eviction",
        "bridge-autoscaler",
    ]
    everywhere = {one.what for one in written(stage.rig, lambda of: True)}
    assert not any(
        what.startswith("delete") or what.endswith(("statefulsets", "deployments", "pods")) for what in everywhere
    )
