"""The page: who did best, then each trace with its plots and tables. Pure, but for the style sheet that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from autoscaler import __version__
from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.ranking import ALLOWED, harm
from autoscaler.backtest.running import Outcome
from autoscaler.backtest.scoring import Scores, mean
from autoscaler.cli.rendering.backtest import Result, in_words
from autoscaler.cli.rendering.report.figures import (
    Row,
    against_today,
    bound_cells,
    by_period,
    legend,
    score_cells,
    score_heads,
    table,
)
from autoscaler.cli.rendering.report.front import Point, front
from autoscaler.cli.rendering.report.markup import Html, element, joined
from autoscaler.cli.rendering.report.scale import unit_for
from autoscaler.cli.rendering.report.timeline import greatest, happened, timeline

_ORACLE = "oracle, one change an hour"
_TODAY = "today's size"
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def as_page(results: Sequence[Result]) -> str:
    """A whole document. It loads nothing and runs nothing."""
    terms = results[0].terms
    what = terms.replayed.value.replace("_", " ").replace("cpu", "CPU").replace("gpu", "GPU")
    words = in_words(terms).replace("cpu", "CPU").replace("gpu", "GPU")
    title = f"Back-test of {what}"
    traces = [one.trace for one in results[0].outcomes]
    links = [element("li", element("a", name, href=f"#{_anchor(index)}")) for index, name in enumerate(traces)]
    style = files("autoscaler.cli.rendering.report").joinpath("page.css").read_text(encoding="utf-8")
    head = joined(
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><link rel="icon" href="data:,">'),
        element("title", title),
        Html(f"<style>{style}</style>"),
    )
    body = joined(
        element("a", "Skip to the scores", href="#scores", class_="skip"),
        element(
            "header",
            element("h1", title),
            element("p", f"{words[0].upper()}{words[1:]}. bridge-autoscaler {__version__}."),
            element("nav", element("ul", *links), aria_label="Traces"),
        ),
        element(
            "main",
            _scores(results),
            *(_trace(results, index) for index in range(len(traces))),
        ),
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _anchor(index: int) -> str:
    return f"trace-{index + 1}"


def _scores(results: Sequence[Result]) -> Html:
    """All traces together: the front, and what it is drawn from."""
    replayed = results[0].terms.replayed
    oracle = sum(one.oracle_slack_percent for one in results[0].outcomes) / len(results[0].outcomes)
    today = mean([one.today.scores for one in results[0].outcomes])
    points = [_point(str(index), result.label, result.mean, replayed) for index, result in enumerate(results, 1)]
    beside = [_point("T", _TODAY, today, replayed), Point("O", _ORACLE, 0.0, oracle, 0.0)]
    rows = [
        *(
            Row(f"{point.mark} {each.label}", score_cells(each.mean, replayed))
            for point, each in zip(points, results, strict=True)
        ),
        Row(f"T {_TODAY}", score_cells(today, replayed), "beside"),
        Row(f"O {_ORACLE}", bound_cells(oracle, replayed), "beside"),
    ]
    across = "% of the time throttled" if replayed is Replayed.CPU else "OOM episodes a day"
    caption = "Less of both is better, and no other mark beats a filled one in both. Shaded is what the ranking allows."
    return element(
        "section",
        element("h2", "Scores", id="scores"),
        element(
            "div",
            element("figure", front(points, beside, across, ALLOWED[replayed]), element("figcaption", caption)),
            table("Means of the traces; counts are sums", ("recommender", *score_heads(replayed)), rows),
            class_="pair",
        ),
    )


def _point(mark: str, name: str, scores: Scores, replayed: Replayed) -> Point:
    return Point(mark, name, harm(scores, replayed), scores.slack_percent, scores.resizes_per_day)


def _trace(results: Sequence[Result], index: int) -> Html:
    terms = results[0].terms
    outcomes = [result.outcomes[index] for result in results]
    most = greatest(outcomes)
    first = outcomes[0]
    rows = [
        *(
            Row(each.label, score_cells(one.scores, terms.replayed))
            for each, one in zip(results, outcomes, strict=True)
        ),
        Row(_TODAY, score_cells(first.today.scores, terms.replayed), "beside"),
        Row(_ORACLE, bound_cells(first.oracle_slack_percent, terms.replayed), "beside"),
    ]
    heading = element("h2", first.trace, id=_anchor(index))
    wrong = "throttled" if terms.replayed is Replayed.CPU else "OOM"
    return element(
        "section",
        heading,
        table(f"{first.trace}, {first.scores.days:.1f} days", ("recommender", *score_heads(terms.replayed)), rows),
        legend(wrong, _TODAY),
        *(_replay(result, one, most) for result, one in zip(results, outcomes, strict=True)),
        aria_labelledby=_anchor(index),
    )


def _replay(result: Result, outcome: Outcome, most: float) -> Html:
    unit = unit_for(most, result.terms.replayed)
    return joined(
        element("h3", result.label),
        element("p", against_today(outcome, result.terms, unit), class_="note"),
        element("figure", timeline(outcome, result.terms, result.label, most)),
        by_period(outcome, result.terms, happened(outcome, result.terms), unit),
    )
