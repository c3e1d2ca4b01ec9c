"""A controller that restarts ends in the state that it would have had."""

import math
from collections.abc import Iterable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.adapters.prometheus import ranges
from autoscaler.adapters.prometheus.answers import Series
from autoscaler.adapters.prometheus.batch import Batch, Member
from autoscaler.adapters.prometheus.layout import Layout
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.core.history import ContainerRef, History
from autoscaler.core.model import Resource
from autoscaler.core.recommender import Grid, Samples, Situation, Target, WindowRecommender

STEP = 60
START = 1_795_759_200
REF = ContainerRef("sim", "a", "main")
GRID = Grid(STEP, STEP * 4321, fine=1200)


class Window(WindowRecommender):
    name = "window"
    Parameters = dict
    lookback_s = GRID.lookback

    def recommend(self, state: Samples, situation: Situation) -> Target:
        return Target(None, None)


class Past:
    """What Prometheus has: CPU rates at grid points, memory maxima since the grid point before."""

    def __init__(self, values: list[tuple[float, float]]) -> None:
        self.values = values
        self.end = START + STEP * (len(values) - 1)

    def _at(self, instant: int) -> tuple[float, float]:
        index = (instant - START) // STEP
        return self.values[index] if 0 <= index < len(self.values) else (math.nan, math.nan)

    def answer(self, resource: Resource, span: Span) -> Iterable[Series]:
        pairs = []
        for instant in range(span.first, span.last + 1, span.step):
            if resource is Resource.CPU:
                value = self._at(instant)[0]
            else:
                inside = [self._at(at)[1] for at in range(instant - span.step + STEP, instant + 1, STEP)]
                value = max((x for x in inside if not math.isnan(x)), default=math.nan)
            if not math.isnan(value):
                pairs.append((instant, value))
        if pairs:
            at, values = zip(*pairs, strict=True)
            yield Series(REF._asdict(), np.asarray(at, np.float64), np.asarray(values, np.float64))


def measure(past: Past, history: History | None, after: int | None, end: int, most_points: int) -> History | None:
    spans = ranges.spans(after, end, GRID)
    if not spans:
        return history
    batch = Batch({REF: Member(history, Window({}))}, GRID, 300, spans, Layout())
    batch.open()
    for chunk in reversed(batch.chunks(most_points)):
        batch.fill(chunk, past.answer(Resource(chunk.reading.name), chunk.span))
    return batch.fold()[REF]


amounts = st.one_of(st.just(math.nan), st.integers(1, 1000).map(float))


@given(
    st.lists(st.tuples(amounts, amounts), min_size=30, max_size=150),
    st.lists(st.integers(0, 149), max_size=5),
    st.integers(0, 20),
    st.integers(500, 5000),
)
@settings(max_examples=60, deadline=None)
def test_restart_is_live(values: list[tuple[float, float]], cycles: list[int], offset: int, most_points: int) -> None:
    values = [(math.nan, math.nan)] * offset + values
    values[-1] = (1.0, 1.0)  # the container is alive
    past = Past(values)
    live, after = None, None
    for cycle in sorted({*(cycle % len(values) for cycle in cycles), len(values) - 1}):
        end = START + cycle * STEP
        live = measure(past, live, after, end, 100_000)
        after = end
    restarted = measure(past, None, None, past.end, most_points)
    assert live is not None
    assert restarted is not None
    for one, other in ((live.state, restarted.state), (live.open, restarted.open)):
        np.testing.assert_array_equal(one.end_at, other.end_at)
        np.testing.assert_array_equal(one.cpu, other.cpu)
        np.testing.assert_array_equal(one.memory, other.memory)
    assert (live.newest_at, live.folded_until) == (restarted.newest_at, restarted.folded_until)


def test_answers_of_others_and_beyond_the_range_are_left_out() -> None:
    span = Span(START, START + 2 * STEP, STEP)
    batch = Batch({REF: Member(None, Window({}))}, Grid(STEP, 3600), 300, (span,), Layout())
    batch.open()
    chunk = batch.chunks(1000)[0]
    at = np.asarray([START - STEP, START, START + STEP, START + 3 * STEP], np.float64)
    series = Series(REF._asdict(), at, np.asarray([1, 2, np.inf, 4], np.float64))
    batch.fill(chunk, [series, Series({"namespace": "sim"}, at, at)])
    history = batch.fold()[REF]
    assert history is not None
    assert history.state.end_at.tolist() == [START]
    assert history.state.cpu.tolist() == [2]
    assert np.isnan(history.state.memory).all()
