from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.moving import Stage, Staged
from tests.rig.rig import Rig


@pytest.fixture
def staged(rig: Rig, tmp_path: Path) -> Iterator[Staged]:
    """Stages, which are taken away at the end."""
    stages: list[Stage] = []

    def make(story: str) -> Stage:
        stages.append(Stage(rig, tmp_path, story))
        return stages[-1]

    yield make
    for stage in stages:
        stage.close()
