"""The figures of a back-test as tables of HTML. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.running import Outcome, Terms
from autoscaler.backtest.scoring import Scores
from autoscaler.cli.rendering.report.markup import Html, element, joined
from autoscaler.cli.rendering.report.scale import Unit, clock
from autoscaler.cli.rendering.report.timeline import Happened

_GIB = float(1 << 30)
_PERIODS_S = (3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400)
_MOST_PERIODS = 48


@dataclass(frozen=True, slots=True)
class Row:
    """`kind`: its class, which says what is no recommender."""

    name: str | Html
    cells: Sequence[str]
    kind: str | None = None


def table(caption: str, head: Sequence[str], rows: Iterable[Row]) -> Html:
    """A table that scrolls by itself where it is too wide, with the keyboard too."""
    body = [
        element(
            "tr", element("th", row.name, scope="row"), *(element("td", cell) for cell in row.cells), class_=row.kind
        )
        for row in rows
    ]
    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *(element("th", words, scope="col") for words in head))),
        element("tbody", *body),
    )
    return element("div", whole, class_="table", role="region", tabindex="0", aria_label=caption)


def score_heads(replayed: Replayed) -> tuple[str, ...]:
    """What `score_cells` are."""
    is_cpu = replayed is Replayed.CPU
    harm = ("throttled", "unmet", "late frames") if is_cpu else ("OOM a day", "OOM episodes", "OOM kills")
    return "slack", *harm, "resizes a day", "core-hours" if is_cpu else "GiB-hours"


def score_cells(scores: Scores, replayed: Replayed) -> list[str]:
    """Scores as they are written, without the name of whose they are."""
    if replayed is Replayed.CPU:
        late = scores.late_frames_percent
        harm = [
            f"{scores.throttled_percent:.2f}%",
            f"{scores.unmet_percent:.1f}%",
            "–" if late is None else f"{late:.2f}%",
        ]
    else:
        harm = [f"{scores.oom_per_day:.2f}", f"{scores.oom_episodes}", f"{scores.oom_kills}"]
    reserved = scores.reserved_hours / (1.0 if replayed is Replayed.CPU else _GIB)
    return [f"{scores.slack_percent:.1f}%", *harm, f"{scores.resizes_per_day:.1f}", f"{reserved:,.1f}"]


def bound_cells(slack_percent: float, replayed: Replayed) -> list[str]:
    """Those of an oracle, of which only the slack is of interest."""
    return [f"{slack_percent:.1f}%", *["–"] * (len(score_heads(replayed)) - 1)]


def against_today(outcome: Outcome, terms: Terms, unit: Unit) -> str:
    """What would be different from today."""
    today = outcome.today
    held = "" if today.reserved == today.size else f", {unit.written(today.reserved)} of it reserved,"
    size = f"{unit.written(today.size)} {unit.name}{held} all the time"
    words = f"Against {size}: {today.reserved_change_percent:+.0f}% reserved"
    if terms.replayed is Replayed.CPU:
        was = today.scores.throttled_percent
        return f"{words}, throttled {outcome.scores.throttled_percent:.2f}% of the time instead of {was:.2f}%."
    return f"{words}, {today.oom_avoided} OOM episodes avoided, {today.oom_caused} caused."


def by_period(outcome: Outcome, terms: Terms, events: Happened, unit: Unit) -> Html:
    """What the plot shows, in figures."""
    step_s, count = outcome.demand.step_s, len(outcome.replay.wanted)
    period_s = next((each for each in _PERIODS_S if count * step_s / each <= _MOST_PERIODS), _PERIODS_S[-1])
    is_cpu = terms.replayed is Replayed.CPU
    began = events.lacking & ~np.append(False, events.lacking[:-1])
    rows = []
    for first in range(0, count, max(1, period_s // step_s)):
        part = slice(first, first + max(1, period_s // step_s))
        wanted, limit = outcome.replay.wanted[part], outcome.replay.limit[part]
        most = float(np.fmax.reduce(wanted))
        scored = int((events.scored[part] & np.isfinite(wanted)).sum())
        share = f"{100 * int(events.lacking[part].sum()) / scored:.2f}%" if scored else "–"
        cells = [
            unit.written(most) if most == most else "–",
            unit.written(float(limit.min())),
            unit.written(float(limit.max())),
            share if is_cpu else f"{int(began[part].sum())}",
            f"{int(events.resized[part].sum())}",
        ]
        rows.append(Row(clock(first * step_s), cells))
    harm = "throttled" if is_cpu else "OOM episodes"
    head = ("from", f"wanted at most, {unit.name}", "lowest limit", "highest limit", harm, "resizes")
    return element("details", element("summary", "In figures"), table(f"{outcome.trace} by time", head, rows))


def legend(wrong: str, today: str) -> Html:
    """What the colours and strokes of the plots over time are."""
    line = "M0 6H24"
    entries = (
        (element("rect", class_="used", width=24, height=12), "used"),
        (element("path", class_="wanted", d=line), "wanted"),
        (element("path", class_="limit", d=line), "limit"),
        (element("path", class_="today", d=line), today),
        (element("rect", class_="wrong", width=24, height=12), wrong),
        (element("rect", class_="resized", width=24, height=12), "resized"),
        (element("rect", class_="unscored", width=24, height=12), "not scored"),
    )
    return element(
        "ul",
        *(
            element("li", joined(element("svg", mark, width=24, height=12, aria_hidden="true"), words))
            for mark, words in entries
        ),
        class_="key",
    )
