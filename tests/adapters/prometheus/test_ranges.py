from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.adapters.prometheus import ranges
from autoscaler.adapters.prometheus.ranges import Span
from autoscaler.core.history import ContainerRef
from autoscaler.core.recommender import Grid, Signal

NOW = 1_795_759_200
STEPS = st.sampled_from([1, 5, 15, 60, 90, 300, 3600])
GRIDS = st.builds(
    lambda step, steps, fine: Grid(step, step * steps, step * fine), STEPS, st.integers(1, 30_000), st.integers(1, 200)
)


def instants(span: Span) -> list[int]:
    return list(range(span.first, span.last + 1, span.step))


def test_two_weeks_are_blocks_and_two_hours_of_steps() -> None:
    end = ranges.newest_instant(NOW + 59, 30, 60)
    assert end == NOW - 60
    coarse, fine = ranges.spans(None, end, Grid())
    assert (coarse.step, fine.step) == (300, 60)
    assert coarse.first == NOW - 14 * 86400
    assert coarse.last + 60 == fine.first
    assert fine.last == end
    assert 7200 <= end - fine.first + 60 < 7200 + 300


def test_an_hour_is_steps_only() -> None:
    assert ranges.spans(None, NOW, Grid(60, 3600)) == (Span(NOW - 3540, NOW, 60),)


def test_a_live_cycle_asks_for_one_instant() -> None:
    assert ranges.spans(NOW - 60, NOW, Grid()) == (Span(NOW, NOW, 60),)
    assert ranges.spans(NOW, NOW, Grid()) == ()
    assert ranges.spans(NOW + 60, NOW, Grid()) == ()


def test_a_thousand_containers_take_a_hundred_steps_a_request() -> None:
    pieces = ranges.chunks(Span(NOW, NOW + 300 * 4031, 300), 1000)
    assert {len(piece) for piece in pieces} == {100, 32}


def test_no_request_has_more_steps_than_prometheus_accepts() -> None:
    assert max(map(len, ranges.chunks(Span(0, 60 * 50_000, 60), 1))) == 11_000


@given(GRIDS, st.integers(0, 10**6), st.one_of(st.none(), st.integers(-(10**6), 10**6)))
def test_spans_meet_without_gap_and_lie_on_the_grid(grid: Grid, now: int, ago: int | None) -> None:
    end = ranges.newest_instant(NOW + now, 30, grid.step)
    after = None if ago is None else (end - ago) // grid.step * grid.step
    wanted = ranges.spans(after, end, grid)
    start = end - grid.lookback if after is None else max(after, end - grid.lookback)
    for span in wanted:
        assert span.first % span.step == span.last % span.step == 0
        assert start < span.first <= span.last <= end
    for earlier, later in pairwise(wanted):
        assert earlier.step == grid.block
        assert earlier.last + later.step == later.first
    if start < end:
        assert wanted[-1].last == end
        assert wanted[-1].step == grid.step
        first = wanted[0]
        assert first.first - start <= first.step
    else:
        assert wanted == ()


@given(STEPS, st.integers(0, 10**6), st.integers(1, 20_000), st.integers(1, 10_000))
def test_pieces_are_the_span(step: int, first: int, count: int, series: int) -> None:
    span = Span(first * step, (first + count - 1) * step, step)
    pieces = ranges.chunks(span, series)
    assert [i for piece in pieces for i in instants(piece)] == instants(span)
    for piece in pieces:
        assert len(piece) * series <= ranges.MOST_POINTS or len(piece) == 1
        assert len(piece) <= ranges.MOST_STEPS


@given(st.integers(1, 600), st.integers(1, 3), st.integers(1, 6000))
def test_batches_are_bounded_and_keep_pods_together(pods: int, containers: int, columns: int) -> None:
    everything = [ContainerRef("n", f"p{p}", f"c{c}") for p in range(pods) for c in range(containers)]
    parts = list(ranges.batches(everything, columns))
    assert sorted(c for part in parts for c in part) == sorted(everything)
    seen: set[str] = set()
    for part in parts:
        names = {container.pod for container in part}
        assert not names & seen
        seen |= names
        assert len(part) * columns <= max(2_000_000, containers * columns)
        assert len(names) <= ranges.MOST_PODS or len(part) * columns <= ranges.MOST_POINTS


@given(st.integers(1, 600), st.integers(1, 400), st.integers(0, 300_000))
def test_whole_namespaces_are_asked_for_only_where_the_answer_is_small(pods: int, columns: int, others: int) -> None:
    everything = [ContainerRef("n", f"p{p}", "c") for p in range(pods)]
    for part in ranges.batches(everything, columns, pods + others):
        assert len(part) <= ranges.MOST_PODS or (pods + others) * columns <= ranges.MOST_POINTS


@given(STEPS, st.integers(1, 5000), st.integers(1, 100), st.integers(0, 6000))
def test_what_is_affordable_is_no_more_and_hardly_less(step: int, steps: int, fine: int, instants: int) -> None:
    grid = Grid(step, steps * step, fine * step)
    past_s = ranges.affordable(grid, instants)
    found = sum(map(len, ranges.spans(None, 10**9 // step * step, grid, past_s)))
    assert found <= max(instants, grid.block // step)
    assert past_s == grid.lookback or past_s > 0
    if instants >= 5000:
        assert past_s == grid.lookback


def test_the_budget_is_two_weeks_of_all_that_can_be_read_of_2000_containers() -> None:
    instants = sum(map(len, ranges.spans(None, 1_795_759_200, Grid())))
    assert instants == 4128
    needed = 2000 * (2 + len(Signal)) * instants
    assert ranges.MOST_PAST * 0.8 < needed <= ranges.MOST_PAST


def test_no_range_is_longer_than_any_server_allows() -> None:
    year = Span(0, 365 * 86400, 3600)
    pieces = ranges.chunks(year, 1)
    assert [instant for piece in pieces for instant in instants(piece)] == instants(year)
    assert max(piece.last - piece.first for piece in pieces) <= ranges.MOST_RANGE_S


def test_names_in_one_query_are_of_bounded_length() -> None:
    found = [ContainerRef("sim", f"{i:0200}", "app") for i in range(200)]
    parts = list(ranges.batches(found, 20_160))
    assert [container for part in parts for container in part] == found
    assert max(sum(len(container.pod) for container in part) for part in parts) <= ranges.MOST_LETTERS
