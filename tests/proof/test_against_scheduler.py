"""A part of `make proof`: the landing proof against the real scheduler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proof.__main__ import judge_all
from tests.proof.generator import FEATURES, generate
from tests.proof.judge import EASED
from tests.proof.table import Tally
from tests.rig.control_plane import ControlPlane

pytestmark = pytest.mark.rig

CASES = 50


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One of its own: no node may be there but a case's."""
    running = ControlPlane(tmp_path_factory.mktemp("proof"))
    yield running
    running.stop()


async def test_the_scheduler_keeps_what_the_proof_promises(control_plane: ControlPlane) -> None:
    tally = Tally(await judge_all(control_plane, range(CASES)))
    assert not tally.exceptions, tally.shortcomings()
    assert tally.placed >= 0.4 * CASES
    assert tally.wrong_share <= 0.1, tally.wrong


def test_a_seed_is_always_the_same_case() -> None:
    assert generate(17) == generate(17)
    assert generate(17) != generate(18)


def test_every_predicate_can_be_eased() -> None:
    assert list(EASED) == [feature.name for feature in FEATURES]
