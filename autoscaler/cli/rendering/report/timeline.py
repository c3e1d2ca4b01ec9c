"""Usage, limit and events of one replay over time, as SVG. Pure.

Positions along the time are shares of the width, so that the drawing fits a phone and a screen; heights are pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.running import Outcome, Terms
from autoscaler.backtest.scoring import changed, lacking
from autoscaler.cli.rendering.report.markup import Html, element, joined, number
from autoscaler.cli.rendering.report.scale import Scale, Unit, clock, time_ticks, unit_for, up_to
from autoscaler.cli.rendering.report.thinning import Thinned, spans, thinned

COLUMNS = 900
"""Columns to which a longer series is thinned."""

WIDTH = 1000
"""What the width is in the drawing's own measure."""

TOP, BOTTOM = 36, 236
"""Pixels from the top at which the greatest value and zero are drawn."""

_LANES = (262, 290)  # of what goes wrong, and of resizes
_LANE_HEIGHT = 12
_TIMES_AT, _HEIGHT = 320, 328


@dataclass(frozen=True, slots=True, eq=False)
class Happened:
    """What happened in which sample, and in which of them it counts."""

    scored: NDArray[np.bool_]
    lacking: NDArray[np.bool_]  # demand above the limit
    resized: NDArray[np.bool_]


def happened(outcome: Outcome, terms: Terms) -> Happened:
    """As `score` counts it: nothing in the warm-up, and no change into the first scored sample."""
    wanted, limit = outcome.replay.wanted, outcome.replay.limit
    unscored = terms.unscored(outcome.demand)
    scored = np.arange(len(wanted)) >= unscored
    resized = np.append(False, changed(limit)) & scored
    resized[unscored] = False
    return Happened(scored, lacking(wanted, limit, kills=terms.replayed is not Replayed.CPU) & scored, resized)


def greatest(outcomes: list[Outcome]) -> float:
    """The greatest amount in any of them, so that they can be drawn to one scale."""
    return max(
        float(np.nanmax(series, initial=0.0))
        for one in outcomes
        for series in (one.replay.wanted, one.replay.limit, np.array([one.today.size]))
    )


def timeline(outcome: Outcome, terms: Terms, label: str, most: float) -> Html:
    """The drawing, up to the amount `most`."""
    unit = unit_for(most, terms.replayed)
    scale, ticks = up_to(most / unit.factor, BOTTOM, TOP)
    count = len(outcome.replay.wanted)
    seconds = count * outcome.demand.step_s
    events = happened(outcome, terms)
    wrong = "throttled" if terms.replayed is Replayed.CPU else "OOM"
    title = f"{outcome.trace} under {label}: {terms.replayed.value.replace('_', ' ')} over time"
    return element(
        "svg",
        element("title", title),
        element("desc", _described(outcome, events, terms, unit)),
        *(element("line", class_="grid", x1=0, x2="100%", y1=scale(tick), y2=scale(tick)) for tick in ticks),
        element(
            "svg",
            *_unscored(terms.unscored(outcome.demand), count),
            *_series(outcome, scale, unit),
            *_lane("wrong", _LANES[0], spans(events.lacking, COLUMNS), count),
            *_lane("resized", _LANES[1], spans(events.resized, COLUMNS), count),
            viewBox=f"0 0 {WIDTH} {_HEIGHT}",
            preserveAspectRatio="none",
            width="100%",
            height=_HEIGHT,
            aria_hidden="true",
        ),
        *_words(scale, ticks, unit, seconds),
        element("text", wrong, class_="lane", x=0, y=_LANES[0] - 4),
        element("text", "resizes", class_="lane", x=0, y=_LANES[1] - 4),
        class_="plot timeline",
        role="img",
        aria_label=title,
        width="100%",
        height=_HEIGHT,
    )


def _words(scale: Scale, ticks: list[float], unit: Unit, seconds: float) -> list[Html]:
    """What is written along both axes."""
    made = [element("text", unit.name, class_="axis", x=0, y=12)]
    made += [element("text", f"{tick:g}", class_="tick", x=0, y=scale(tick) - 3) for tick in ticks]
    for index, (at, words) in enumerate(time_ticks(seconds)):
        share = 100 * at / seconds
        anchor = "start" if share < 4 else "end" if share > 96 else "middle"
        minor = " minor" if index % 2 else ""
        made.append(
            element("text", words, class_=f"time{minor}", x=f"{number(share)}%", y=_TIMES_AT, text_anchor=anchor)
        )
    return made


def _unscored(unscored: int, count: int) -> list[Html]:
    width = WIDTH * unscored / count
    return [element("rect", class_="unscored", x=0, y=TOP, width=width, height=BOTTOM - TOP)] if unscored else []


def _series(outcome: Outcome, scale: Scale, unit: Unit) -> list[Html]:
    wanted, limit = (thinned(series / unit.factor, COLUMNS) for series in (outcome.replay.wanted, outcome.replay.limit))
    used = thinned(np.minimum(outcome.replay.wanted, outcome.replay.limit) / unit.factor, COLUMNS)
    y = scale(outcome.today.size / unit.factor)
    return [
        element("path", class_="used", d=area(used, scale)),
        element("path", class_="wanted", d=stairs(wanted, scale)),
        element("line", class_="today", x1=0, x2=WIDTH, y1=y, y2=y),
        element("path", class_="limit", d=stairs(limit, scale)),
    ]


def _lane(kind: str, top: int, found: list[tuple[int, int]], count: int) -> list[Html]:
    """Stretches as bars, each wide enough to be seen."""
    width = WIDTH / count
    bars = "".join(
        f"M{number(first * width)} {top}h{number(max((end - first) * width, 2))}v{_LANE_HEIGHT}"
        f"h{number(-max((end - first) * width, 2))}z"
        for first, end in found
    )
    return [
        element("rect", class_="bed", x=0, y=top, width=WIDTH, height=_LANE_HEIGHT),
        *([element("path", class_=kind, d=bars)] if bars else []),
    ]


def stairs(series: Thinned, scale: Scale) -> str:
    """The path of a series that keeps each value for its column; a column with several has them all as one stroke."""
    parts: list[str] = []
    across = _across(series)
    level: str | None = None
    for index, (low, high, last) in enumerate(_columns(series)):
        if math.isnan(high):
            level = None
            continue
        y, end = number(scale(high if math.isnan(last) else last)), across[index + 1]
        if level is None:
            level = number(scale(low))
            parts.append(f"M{across[index]} {level}")
        if low != high:
            parts.append(f"V{number(scale(low))}V{number(scale(high))}V{y}")
        elif level != y:
            parts.append(f"V{y}")
        elif parts[-1][0] == "H":
            parts.pop()
        parts.append(f"H{end}")
        level = y
    return "".join(parts)


def area(series: Thinned, scale: Scale) -> str:
    """The path of what lies between zero and the greatest value of each column."""
    parts: list[str] = []
    across, bottom = _across(series), number(scale(0))
    level: str | None = None
    for index, (_, high, _) in enumerate(_columns(series)):
        if math.isnan(high):
            parts += [f"V{bottom}z"] if level is not None else []
            level = None
            continue
        y = number(scale(high))
        if level is None:
            parts.append(f"M{across[index]} {bottom}V{y}")
        elif level == y:
            parts.pop()
        else:
            parts.append(f"V{y}")
        parts.append(f"H{across[index + 1]}")
        level = y
    return "".join(parts) + (f"V{bottom}z" if level is not None else "")


def _across(series: Thinned) -> list[str]:
    return [f"{at:.1f}".removesuffix(".0") for at in (WIDTH * series.starts / series.starts[-1]).tolist()]


def _columns(series: Thinned) -> list[tuple[float, float, float]]:
    return list(zip(series.low.tolist(), series.high.tolist(), series.last.tolist(), strict=True))


def _described(outcome: Outcome, events: Happened, terms: Terms, unit: Unit) -> Html:
    scores, wanted, limit = outcome.scores, outcome.replay.wanted, outcome.replay.limit
    peak = int(np.nanargmax(wanted))
    lack = (
        f"throttled {scores.throttled_percent:.2f}% of the time"
        if terms.replayed is Replayed.CPU
        else f"{scores.oom_episodes} OOM episodes"
    )
    return joined(
        f"Wanted: {unit.written(float(np.nanmin(wanted)))} to {unit.written(float(wanted[peak]))} {unit.name}, most at "
        f"{clock(peak * outcome.demand.step_s)}. Limit: {unit.written(float(limit[events.scored].min()))} to "
        f"{unit.written(float(limit[events.scored].max()))} {unit.name}, {scores.resizes} resizes; {lack}."
    )
