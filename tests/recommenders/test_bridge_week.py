"""What `bridge` expects by the time of day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from autoscaler.core.model import Resource
from autoscaler.recommenders.bridge import Bridge
from autoscaler.recommenders.bridge_cpu import NO_CPU, Block, CpuNeeds
from autoscaler.recommenders.bridge_parameters import BridgeParameters, CpuParameters, MemoryParameters
from autoscaler.recommenders.week import Week
from tests.recommenders.test_bridge import T0, asked, minutes, size, steps

OF_A_DAY = 288  # blocks
NINE = 9 * 60  # minutes


def days(*busy: bool) -> list[float]:
    """Minutes of days with two cores from nine to ten, or without; else a fifth of a core."""
    return [2.0 if here and NINE <= minute < NINE + 60 else 0.2 for here in busy for minute in range(1440)]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ((True,) * 7, True),
        ((True, True, True, False, True, True, True), True),
        ((True, True, True, False, True, True, False), False),
        ((True,) * 6, True),
        ((True,) * 5, False),
        ((False,) * 8 + (True,) * 5, False),
        ((True,) * 8 + (False,) * 2, False),
    ],
)
def test_what_is_used_on_most_days_is_there_before_it_is_used(before: Sequence[bool], expected: bool) -> None:
    today = [0.2] * (NINE - 2)
    target = asked(minutes(cpu=[*days(*before), *today]), size(cores=0.5))
    assert target.cpu is not None
    assert (target.cpu == pytest.approx(2.0, rel=1e-6)) is expected
    assert (target.cpu < 0.5) is not expected
    assert ("usual" in steps(target, Resource.CPU)) is expected


@pytest.mark.parametrize("minute", [NINE - 20, NINE + 65])
def test_it_is_not_expected_at_other_times(minute: int) -> None:
    past = minutes(cpu=[*days(*[True] * 7), *[0.2] * minute])
    assert "usual" not in steps(asked(past, size(cores=0.5)), Resource.CPU)


def test_it_is_held_as_long_as_it_is_usual() -> None:
    """Nobody came today; the size stays until the hour is over."""
    past = minutes(cpu=[*days(*[True] * 7), *[0.2] * (NINE + 50)])
    assert asked(past, size(cores=2.0)).cpu == pytest.approx(2.0)


def test_blocks_that_are_older_than_the_newest_take_nothing_away() -> None:
    needs = CpuNeeds(CpuParameters())
    blocks = [Block(number, 1.0 + number % 7) for number in range(3000)]
    past = needs.all_seen(NO_CPU, blocks)
    again = needs.all_seen(past, [*blocks[1000:], Block(3000, 2.0)])
    one_more = needs.seen(past, Block(3000, 2.0))
    assert again[:5] == one_more[:5]
    assert np.array_equal(again.week.peaks, one_more.week.peaks)


def test_a_controller_that_restarts_needs_the_week() -> None:
    short = MemoryParameters(rise_half_life=timedelta(hours=6))
    assert BridgeParameters(memory=short).remembers() == timedelta(days=8)
    assert BridgeParameters(memory=short, cpu=CpuParameters(usual=0)).remembers() == timedelta(hours=12)


def test_a_share_of_it_or_nothing() -> None:
    past = minutes(cpu=[*days(*[True] * 7), *[0.2] * (NINE - 2)])
    half = Bridge(BridgeParameters(cpu=CpuParameters(usual=0.5)))
    target = asked(past, size(cores=0.5), bridge=half)
    assert target.cpu == pytest.approx(1.0)
    because = steps(target, Resource.CPU)["usual"].because
    assert because == "50% of what was used about this time of day on 6 of the last 7 days"
    none = Bridge(BridgeParameters(cpu=CpuParameters(usual=0)))
    assert "usual" not in steps(asked(past, size(cores=0.5), bridge=none), Resource.CPU)
    state = none.fold(none.start(), past, 60)
    assert not len(state.cpu.week.peaks)


# of two slots of the day, so that most days have them
BLOCKS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 5), st.integers(1, 5).map(float)), min_size=1, max_size=70
).map(lambda drawn: sorted({day * OF_A_DAY + block: peak for day, block, peak in drawn}.items()))


def usual(blocks: Sequence[tuple[int, float]], block: int) -> float:
    """By the words of the rule."""
    peaks = []
    for ago in range(1, 8):
        slot = block // 3 - ago * OF_A_DAY // 3
        peaks.append(max((peak for number, peak in blocks if number // 3 == slot), default=0.0))
    return sorted(peaks)[1]


@given(BLOCKS, st.integers(0, 59), st.integers(0, 1))
def test_slots_are_those_of_the_rule_and_do_not_depend_on_how_they_came(
    blocks: list[tuple[int, float]], cut: int, later: int
) -> None:
    at_once = Week().seen(blocks)
    in_parts = Week().seen(blocks[:cut]).seen(blocks[cut:])
    one_by_one = Week()
    for block in blocks:
        one_by_one = one_by_one.seen((block,))
    newest = blocks[-1][0]
    event("something is usual" if usual(blocks, newest) else "nothing is")
    for other in (in_parts, one_by_one):
        assert other.slot == at_once.slot
        assert np.array_equal(other.peaks, at_once.peaks)
    assert at_once.usual(newest + later) == usual(blocks, newest + later)


def test_a_state_that_is_folded_on_stays_as_it_was() -> None:
    before = Week().seen([(OF_A_DAY * day, 1.0) for day in range(8)])
    kept = before.peaks.copy()
    for blocks in ([(OF_A_DAY * 7 + 1, 5.0)], [(OF_A_DAY * 9, 5.0)], [(OF_A_DAY * 9, 5.0), (OF_A_DAY * 9 + 3, 6.0)]):
        before.seen(blocks)
        assert np.array_equal(before.peaks, kept)


def test_every_slot_of_two_weeks_with_holes() -> None:
    rng = np.random.default_rng(3)
    numbers = np.flatnonzero(rng.uniform(size=14 * OF_A_DAY) < 0.7) + T0 // 300
    blocks = [
        (int(number), float(peak)) for number, peak in zip(numbers, rng.integers(0, 9, len(numbers)), strict=True)
    ]
    week = Week()
    for index, block in enumerate(blocks):
        week = week.seen((block,))
        if index % 97 == 0:
            for number in (block[0], block[0] + 1):
                assert week.usual(number) == usual(blocks[: index + 1], number)
