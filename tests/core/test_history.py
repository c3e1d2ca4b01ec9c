from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from autoscaler.core.history import ContainerRef, Gap, History, Measurements, advance, blocks
from autoscaler.core.model import PodRef
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid, Recommender, Samples, Signal, Situation, Target, WindowRecommender

NAN = float("nan")
T0 = 1_795_759_200  # a multiple of an hour
FINE = Grid(60, 3600, 7200)
LONG = Grid()  # two weeks: blocks of five minutes


class Window(WindowRecommender):
    name = "window"
    Parameters = dict

    def recommend(self, state: Samples, situation: Situation) -> Target:
        return Target(None, None)


class Seen(NamedTuple):
    """Every fold: the ends of its blocks, and their length."""

    folds: tuple[tuple[tuple[int, ...], int], ...] = ()


class Counting(Recommender[Seen]):
    name = "counting"
    Parameters = dict

    def start(self) -> Seen:
        return Seen()

    def fold(self, state: Seen, samples: Samples, block_s: int) -> Seen:
        return Seen((*state.folds, (tuple(samples.end_at.tolist()), block_s)))

    def recommend(self, state: Seen, situation: Situation) -> Target:
        return Target(None, None)


class FailsToStart(Counting):
    def start(self) -> Seen:
        raise ValueError("no start")


class FailsToFold(Counting):
    def fold(self, state: Seen, samples: Samples, block_s: int) -> Seen:
        raise ZeroDivisionError("no fold")


class EndsTheProgram(Counting):
    def fold(self, state: Seen, samples: Samples, block_s: int) -> Seen:
        raise SystemExit(1)


def minutes(first: int, count: int, *, step: int = 60) -> Samples:
    ends = [T0 + (first + i) * step for i in range(count)]
    return Samples.of(ends, [end % 1000 for end in ends], [end % 7000 for end in ends])


def f32(values: Any) -> NDArray[np.float32]:
    return np.asarray(values, np.float32)


def throttled(first: int, count: int) -> Samples:
    samples = minutes(first, count)
    return Samples(samples.end_at, samples.cpu, samples.memory, {Signal.THROTTLED: f32(samples.cpu / 1000)})


def grown(history: History | None) -> History:
    assert history is not None
    return history


def assert_same(one: Samples, other: Samples) -> None:
    np.testing.assert_array_equal(one.end_at, other.end_at)
    np.testing.assert_array_equal(one.cpu, other.cpu)
    np.testing.assert_array_equal(one.memory, other.memory)
    for name in one.signals.keys() | other.signals.keys():
        np.testing.assert_array_equal(one.signal(name), other.signal(name))


def test_a_block_has_the_last_cpu_and_the_greatest_memory() -> None:
    samples = Samples.of([60, 120, 180, 240, 300, 360], [1, 2, 3, 4, 5, 6], [7, 9, 8, NAN, 1, 2])
    reduced = blocks(samples, 300)
    assert reduced.end_at.tolist() == [300, 600]
    np.testing.assert_array_equal(reduced.cpu, [5, NAN])
    np.testing.assert_array_equal(reduced.memory, [9, 2])


def test_a_block_has_the_last_of_a_mean_and_the_greatest_of_a_peak() -> None:
    signals = {
        Signal.THROTTLED: f32([0.1, 0.2, 0.3, 0.4, NAN, 0.6]),
        Signal.MEMORY_PEAK: f32([7, 9, 8, NAN, 1, NAN]),
        "frameTime": f32([1, 2, 3, 4, 5, 6]),
    }
    samples = Samples.of([60, 120, 180, 240, 300, 360], [1] * 6, [1] * 6)
    reduced = blocks(Samples(samples.end_at, samples.cpu, samples.memory, signals), 300)
    np.testing.assert_array_equal(reduced.signals[Signal.THROTTLED], [NAN, NAN])
    np.testing.assert_array_equal(reduced.signals[Signal.MEMORY_PEAK], [9, NAN])
    np.testing.assert_array_equal(reduced.signals["frameTime"], [5, NAN])


def test_what_was_not_asked_for_before_is_missing_there() -> None:
    late = Samples.of([T0 + 360], [1], [1])
    joined = minutes(1, 5) + Samples(late.end_at, late.cpu, late.memory, {Signal.THROTTLED: f32([0.5])})
    np.testing.assert_array_equal(joined.signals[Signal.THROTTLED], [NAN] * 5 + [0.5])
    np.testing.assert_array_equal(joined.signal(Signal.CPU_PRESSURE), [NAN] * 6)
    assert minutes(1, 5).signals == {}


def test_a_block_without_memory_has_none() -> None:
    np.testing.assert_array_equal(blocks(Samples.of([240, 300], [1, 2], [NAN, NAN]), 300).memory, [NAN])


def test_blocks_without_any_value_are_not_folded() -> None:
    samples = Samples.of([T0 + 60, T0 + 600, T0 + 660], [1, 2, 3], [NAN, NAN, NAN])
    assert grown(advance(None, samples, Counting({}), LONG, sample_s=60)).state.folds == (((T0 + 600,), 300),)


@given(st.lists(st.integers(1, 200), unique=True).map(sorted), st.sampled_from([60, 120, 300, 600]))
def test_blocks_of_blocks_are_the_same(ends: Sequence[int], block_s: int) -> None:
    samples = Samples.of([60 * end for end in ends], ends, ends)
    once = blocks(samples, block_s)
    assert_same(blocks(once, block_s), once)
    assert len(np.unique(once.end_at)) == len(once)
    assert not (once.end_at % block_s).any()


def test_no_samples_are_no_history() -> None:
    assert advance(None, Samples.of((), (), ()), Counting({}), FINE, sample_s=60) is None
    assert advance(None, Samples.of([T0], [NAN], [NAN]), Counting({}), FINE, sample_s=60) is None


def test_complete_blocks_are_folded_and_the_running_one_stays_open() -> None:
    history = grown(advance(None, minutes(1, 7), Counting({}), LONG, sample_s=60))
    assert history.state.folds == (((T0 + 300,), 300),)
    assert (history.first_at, history.folded_until, history.newest_at) == (T0 + 60, T0 + 300, T0 + 420)
    assert history.open.end_at.tolist() == [T0 + 360, T0 + 420]
    assert_same(history.recent, minutes(1, 7))
    later = grown(advance(history, minutes(8, 2), Counting({}), LONG, sample_s=60))
    assert later.state is history.state
    closed = grown(advance(later, minutes(10, 1), Counting({}), LONG, sample_s=60))
    assert closed.state.folds == (((T0 + 300,), 300), ((T0 + 600,), 300))
    assert len(closed.open) == 0
    assert closed.first_at == T0 + 60


def test_a_history_is_never_changed() -> None:
    history = grown(advance(None, minutes(1, 7), Window({}), LONG, sample_s=60))
    advance(history, minutes(8, 200), Window({}), LONG, sample_s=60)
    assert_same(history.recent, minutes(1, 7))
    assert len(history.state) == 1


class WritesInto(Counting):
    """Changes what it is given; which part, its parameters say."""

    def fold(self, state: Seen, samples: Samples, block_s: int) -> Seen:
        self.params(samples)[:] = 0
        return state


@pytest.mark.parametrize(
    "part",
    [lambda s: s.end_at, lambda s: s.cpu, lambda s: s.memory, lambda s: s.signals[Signal.THROTTLED]],
    ids=["end", "cpu", "memory", "throttled"],
)
@pytest.mark.parametrize("grid", [FINE, LONG], ids=["as they are", "reduced"])
def test_a_recommender_cannot_change_what_others_see(part: Callable[[Samples], Any], grid: Grid) -> None:
    samples = throttled(1, 7)
    history = grown(advance(None, samples, WritesInto(part), grid, sample_s=60))
    assert history.failure == "ValueError: assignment destination is read-only"
    for seen in (history.recent, history.open, samples):
        assert not part(seen).flags.writeable
    assert_same(samples, throttled(1, 7))
    later = grown(advance(history, throttled(8, 2), Counting({}), grid, sample_s=60))
    assert not part(later.recent).flags.writeable


def test_old_samples_are_ignored() -> None:
    history = grown(advance(None, minutes(1, 10), Counting({}), LONG, sample_s=60))
    assert advance(history, minutes(1, 10), Counting({}), LONG, sample_s=60) is history
    assert advance(history, minutes(-5, 3), Counting({}), LONG, sample_s=60) is history


def test_a_back_fill_goes_from_blocks_to_steps() -> None:
    coarse = advance(None, minutes(1, 12, step=300), Counting({}), LONG, sample_s=300)
    assert len(grown(coarse).recent) == 0
    history = grown(advance(coarse, minutes(61, 7), Counting({}), LONG, sample_s=60))
    assert [len(ends) for ends, _ in history.state.folds] == [12, 1]
    assert_same(history.recent, minutes(61, 7))
    assert history.open.end_at.tolist() == [T0 + 66 * 60, T0 + 67 * 60]


def test_a_block_that_was_open_when_coarse_samples_follow_is_folded_once() -> None:
    history = advance(None, minutes(1, 7), Window({}), LONG, sample_s=60)
    later = Samples.of([T0 + 600, T0 + 900], [5, 6], [1, 6999])
    history = grown(advance(history, later, Window({}), LONG, sample_s=300))
    assert history.state.end_at.tolist() == [T0 + 300, T0 + 600, T0 + 900]
    assert history.state.cpu.tolist()[1:] == [5, 6]
    assert history.state.memory.tolist()[1] == max(minutes(6, 2).memory)
    assert len(history.open) == 0


def test_recent_samples_are_those_of_the_last_hours_and_keep_no_others_alive() -> None:
    grid = Grid(60, 2 * 86400, 3600)
    history = grown(advance(None, minutes(1, 2000), Window({}), grid, sample_s=60))
    assert_same(history.recent, minutes(1941, 60))
    for array in (history.recent.end_at, history.recent.cpu, history.recent.memory):
        assert array.base is None
    assert len(history.open) == 0


@pytest.mark.parametrize(
    ("recommender", "failure"),
    [
        (FailsToStart({}), "ValueError: no start"),
        (FailsToFold({}), "ZeroDivisionError: no fold"),
        (EndsTheProgram({}), "SystemExit: 1"),
    ],
)
def test_a_plug_in_that_raises_fails_its_history(recommender: Counting, failure: str) -> None:
    history = grown(advance(None, minutes(1, 10), recommender, LONG, sample_s=60))
    assert history.failure == failure
    history = grown(advance(history, minutes(11, 10), Counting({}), LONG, sample_s=60))
    assert history.failure == failure
    assert history.newest_at == T0 + 20 * 60


cells = st.one_of(st.just(NAN), st.integers(0, 1000).map(float))


def with_signals(first: int, values: list[tuple[float, float, float, float]]) -> Samples:
    table = np.asarray(values, np.float32)
    end_at = T0 + (first + np.arange(len(values), dtype=np.int64)) * 60
    signals: dict[str, NDArray[np.float32]] = {
        Signal.THROTTLED: table[:, 2].copy(),
        Signal.MEMORY_PEAK: table[:, 3].copy(),
    }
    return Samples(end_at, table[:, 0].copy(), table[:, 1].copy(), signals)


@given(
    st.lists(st.tuples(st.integers(0, 9).map(float), cells, cells, cells), min_size=10, max_size=60),
    st.integers(0, 10),
)
def test_a_back_fill_leaves_what_live_folding_leaves(
    values: list[tuple[float, float, float, float]], coarse: int
) -> None:
    """Blocks that a server reduces are those that live samples are reduced to."""
    samples = with_signals(1, values)
    live = None
    for one in range(len(samples)):
        live = advance(live, samples[one : one + 1], Window({}), LONG, sample_s=60)
    cut = 5 * min(coarse, len(samples) // 5)
    filled = advance(None, blocks(samples[:cut], 300), Window({}), LONG, sample_s=300)
    filled = advance(filled, samples[cut:], Window({}), LONG, sample_s=60)
    assert_same(grown(filled).state, grown(live).state)
    assert_same(grown(filled).open, grown(live).open)


@given(
    st.lists(st.tuples(cells, cells, cells, cells), min_size=1, max_size=60),
    st.lists(st.integers(1, 60)),
    st.sampled_from([FINE, LONG, Grid(60, 86400 * 14, 600)]),
    st.integers(-10, 10),
)
def test_samples_in_pieces_or_twice_are_samples_at_once(
    values: list[tuple[float, float, float, float]], cuts: list[int], grid: Grid, first: int
) -> None:
    samples = with_signals(first, values)
    at_once = advance(None, samples, Window({}), grid, sample_s=60)
    in_pieces = None
    for cut in [*sorted(cuts), len(values)]:
        in_pieces = advance(in_pieces, samples[:cut], Window({}), grid, sample_s=60)
    if at_once is None:
        assert in_pieces is None
        return
    in_pieces = grown(in_pieces)
    assert_same(in_pieces.state, at_once.state)
    assert_same(in_pieces.recent, at_once.recent)
    assert_same(in_pieces.open, at_once.open)
    assert (in_pieces.first_at, in_pieces.folded_until, in_pieces.newest_at) == (
        at_once.first_at,
        at_once.folded_until,
        at_once.newest_at,
    )


@pytest.mark.parametrize(("step", "block"), [(1, 300), (60, 300), (90, 360), (300, 300), (450, 450)])
def test_blocks_are_whole_steps(step: int, block: int) -> None:
    assert Grid(step, step * 4320).block == step
    assert Grid(step, step * 4321).block == block


def test_measurements_say_why_there_is_nothing() -> None:
    known, unknown = ContainerRef("n", "p", "c"), ContainerRef("n", "p", "d")
    history = grown(advance(None, minutes(1, 3), Window({}), FINE, sample_s=60))
    measurements = Measurements(datetime.now(UTC), {known: history})
    assert measurements.of(known) is history
    assert measurements.of(unknown) == Gap(Reason.NO_DATA, "no samples in Prometheus")
    assert known.pod_ref == PodRef("n", "p")
