"""What is drawn where."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.running import Terms
from autoscaler.cli.rendering.report.front import Point, front, unbeaten
from autoscaler.cli.rendering.report.markup import Html, element, number
from autoscaler.cli.rendering.report.scale import Scale, clock, root_up_to, time_ticks, unit_for, up_to
from autoscaler.cli.rendering.report.thinning import spans, thinned
from autoscaler.cli.rendering.report.timeline import BOTTOM, COLUMNS, TOP, WIDTH, area, happened, stairs, timeline
from tests.report.made import GIB, outcome, two_weeks

nan = float("nan")
PIXELS = Scale(10, 100, 0)


def test_what_is_no_markup_is_escaped() -> None:
    made = element("a", "<b> & ", Html("<i></i>"), href='"x"', class_="one", stroke_width=1.5, hidden=None)
    assert made == '<a href="&quot;x&quot;" class="one" stroke-width="1.5">&lt;b&gt; &amp; <i></i></a>'
    assert [number(value) for value in (3.0, 0.126, -0.001, 100)] == ["3", "0.13", "0", "100"]


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (10, [0, 2.5, 5, 7.5, 10]),
        (7, [0, 2, 4, 6, 8]),
        (0.003, [0, 0.001, 0.002, 0.003]),
        (0, [0]),
        (41, [0, 20, 40, 60]),
    ],
)
def test_axes_end_at_round_numbers(most: float, ticks: list[float]) -> None:
    scale, found = up_to(most, 100, 0)
    assert found[: len(ticks)] == pytest.approx(ticks)
    assert len(found) <= 6
    assert scale(0) == 100
    assert scale(found[-1]) == pytest.approx(0)
    assert found[-1] >= most


def test_square_roots_draw_small_values_apart() -> None:
    scale, ticks = root_up_to(46, 0, 100)
    assert scale.most == 60
    assert scale(scale.most / 4) == pytest.approx(50)
    assert ticks == sorted(set(ticks))
    assert 0 < min(tick for tick in ticks if tick) <= 1


def test_time_is_written_in_whole_units() -> None:
    assert [words for _, words in time_ticks(14 * 86400)] == ["0 d", "2 d", "4 d", "6 d", "8 d", "10 d", "12 d"]
    assert time_ticks(3600)[1] == (900, "15 min")
    assert len(time_ticks(10)) <= 9
    assert [clock(seconds) for seconds in (0, 3725, 86400 * 2 + 60)] == ["00:00", "01:02:05", "2 d 00:01"]


def test_units_fit_the_amount() -> None:
    assert unit_for(4, Replayed.CPU).written(2.5) == "2.5"
    assert unit_for(0.05, Replayed.CPU).name == "millicores"
    assert (unit_for(3 * GIB, Replayed.MEMORY).name, unit_for(GIB / 4, Replayed.MEMORY).name) == ("GiB", "MiB")


def test_a_spike_of_one_sample_survives() -> None:
    values = np.ones(20160)
    values[9000], values[9001] = 9, 0
    found = thinned(values, 900)
    assert len(found.high) == 900
    column = int(np.flatnonzero(found.starts <= 9000)[-1])
    assert (found.low[column], found.high[column], found.last[column]) == (0, 9, 1)
    assert np.delete(found.high, column).max() == 1


def test_short_series_are_left_alone_and_holes_stay_holes() -> None:
    values = np.array([1, nan, 3])
    found = thinned(values, 900)
    np.testing.assert_array_equal(found.low, values)
    np.testing.assert_array_equal(found.high, values)
    assert found.starts.tolist() == [0, 1, 2, 3]
    half = thinned(np.array([1, 2, nan, 4, nan, nan]), 3)
    np.testing.assert_array_equal(half.high, [2, 4, nan])


def test_stretches_are_where_it_happens() -> None:
    there = np.zeros(100, np.bool_)
    there[[0, 1, 50, 99]] = True
    assert spans(there, 100) == [(0, 2), (50, 51), (99, 100)]
    assert spans(there, 10) == [(0, 10), (50, 60), (90, 100)]
    assert spans(np.zeros(5, np.bool_), 10) == []


def test_values_hit_their_pixels() -> None:
    assert stairs(thinned(np.array([5.0, 5, 10, 0]), 4), PIXELS) == "M0 50H500V0H750V100H1000"
    assert stairs(thinned(np.array([1.0, 9, 2, 2]), 2), PIXELS) == "M0 90V90V10V10H500V80H1000"
    assert stairs(thinned(np.array([5, nan, 10.0, 10]), 4), PIXELS) == "M0 50H250M500 0H1000"
    assert area(thinned(np.array([5, nan, 10.0, 10]), 4), PIXELS) == "M0 100V50H250V100zM500 100V0H1000V100z"
    assert stairs(thinned(np.array([nan, nan]), 2), PIXELS) == area(thinned(np.array([nan, nan]), 2), PIXELS) == ""


def test_events_are_those_that_are_scored() -> None:
    terms = Terms(Replayed.MEMORY, warmup_s=120)
    wanted = GIB * np.array([3, 1, 1, 3, 3, 1, 3, 1.0])
    limit = GIB * np.array([2, 2, 1, 2, 2, 2.5, 2.5, 2.5])
    found = outcome(wanted, limit, terms)
    events = happened(found, terms)
    assert np.flatnonzero(events.lacking).tolist() == [3, 4, 6]
    assert np.flatnonzero(events.resized).tolist() == [3, 5]
    assert found.scores.resizes == 2
    assert found.scores.oom_episodes == 2


@pytest.mark.parametrize("replayed", Replayed)
def test_a_plot_says_what_it_is(replayed: Replayed) -> None:
    terms = Terms(replayed)
    found = outcome(
        *two_weeks(replayed, "x"), terms, name="<x> & co", start=4.0 if replayed is Replayed.CPU else 4 * GIB
    )
    drawn = ET.fromstring(timeline(found, terms, "bridge", found.demand.start * 2.5))
    words = [each.text for each in drawn.iter("text")]
    assert drawn.findtext("title") == f"<x> & co under bridge: {replayed.value.replace('_', ' ')} over time"
    described = drawn.findtext("desc")
    assert described is not None
    assert "most at 6 d 06:00" in described
    assert drawn.get("role") == "img"
    assert words[0] == ("cores" if replayed is Replayed.CPU else "GiB")
    assert words[1:6] == ["0", "2.5", "5", "7.5", "10"]
    assert words[-2:] == ["throttled" if replayed is Replayed.CPU else "OOM", "resizes"]
    assert "12 d" in words
    paths = {each.get("class"): each.get("d", "") for each in drawn.iter("path")}
    assert paths.keys() == {"used", "wanted", "limit", "wrong", "resized"}
    top = min(float(y) for y in re.findall(r"V([0-9.]+)", paths["wanted"]))
    assert top == pytest.approx(BOTTOM + (TOP - BOTTOM) * 0.9, abs=0.01)
    assert f"H{WIDTH}" in paths["limit"]
    assert paths["wanted"].count("H") <= COLUMNS


def test_the_front_is_what_nothing_beats() -> None:
    a, b, c, d = (
        Point("1", "a", 0, 50, 1),
        Point("2", "b", 1, 40, 1),
        Point("3", "c", 1, 45, 1),
        Point("4", "d", 4, 40, 1),
    )
    assert unbeaten([d, c, b, a]) == [a, b]
    drawn = ET.fromstring(front([a, b, c, d], [Point("O", "oracle <1>", 0, 10, 0)], "OOM episodes a day", 1))
    marks = {each.findtext("text"): each for each in drawn.iter("g")}
    assert [marks[each.mark].get("class") for each in (a, b, c, d)] == [
        "mark best",
        "mark best",
        "mark beaten",
        "mark beaten",
    ]
    assert marks["O"].findtext("title") == "oracle <1>: 10.0% slack, 0.00, 0.0 changes a day"
    circles = {mark: each.find("circle") for mark, each in marks.items()}
    places = {mark: (each.get("cx"), each.get("cy")) for mark, each in circles.items() if each is not None}
    assert places == {
        "1": ("6%", "75"),
        "2": ("51%", "120"),
        "3": ("51%", "97.5"),
        "4": ("96%", "120"),
        "O": ("6%", "255"),
    }
    texts = [each.text for each in drawn.findall("text")]
    assert texts[0] == "slack, % of what is reserved"
    assert texts[-1] == "OOM episodes a day (drawn by square roots)"
