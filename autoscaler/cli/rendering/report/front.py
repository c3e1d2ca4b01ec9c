"""Who reserves least for how little harm: each recommender as a point, and the front of those that none beats. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autoscaler.cli.rendering.report.markup import Html, element, number
from autoscaler.cli.rendering.report.scale import Scale, root_up_to, up_to

TOP, BOTTOM = 30, 300
_HEIGHT = 346
_LEFT, _RIGHT = 6.0, 96.0  # shares of the width
_MARK = 11


class Point(NamedTuple):
    """`harm`: time throttled in percent, or OOM episodes a day. `changes` a day. `slack` in percent."""

    mark: str
    name: str
    harm: float
    slack: float
    changes: float


def unbeaten(points: Sequence[Point]) -> list[Point]:
    """Those than which none has less of one and no more of the other, by ascending harm."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda each: (each.harm, each.slack)):
        if not kept or point.slack < kept[-1].slack:
            kept.append(point)
    return kept


def front(points: Sequence[Point], beside: Sequence[Point], harm: str, allowed: float) -> Html:
    """The drawing. `beside`: points that are no recommenders. `harm`: what is drawn across; `allowed`: how much of it
    the ranking lets pass."""
    everyone = [*points, *beside]
    across, across_ticks = root_up_to(max(allowed, *(each.harm for each in everyone)), _LEFT, _RIGHT)
    up, up_ticks = up_to(max(each.slack for each in everyone), BOTTOM, TOP)
    title = f"Slack against {harm}"
    best = unbeaten(points)
    words = ", ".join(
        f"{each.name}: {each.slack:.1f}% slack, {each.harm:.2f} {harm}, {each.changes:.1f} changes a day"
        for each in best
    )
    limit = number(across(allowed))
    return element(
        "svg",
        element("title", title),
        element("desc", f"Less of both is better. Not beaten: {words}."),
        element("rect", class_="allowed", x=f"{_LEFT:g}%", y=TOP, height=BOTTOM - TOP, width=f"{_width(limit)}%"),
        *_axes(across, across_ticks, up, up_ticks, harm),
        *_stairs(best, across, up),
        *(_mark(each, across, up, "beside") for each in beside),
        *(_mark(each, across, up, "best" if each in best else "beaten") for each in points),
        class_="plot front",
        role="img",
        aria_label=title,
        width="100%",
        height=_HEIGHT,
    )


def _width(limit: str) -> str:
    return number(float(limit) - _LEFT)


def _axes(across: Scale, across_ticks: list[float], up: Scale, up_ticks: list[float], harm: str) -> list[Html]:
    made = [element("text", "slack, % of what is reserved", class_="axis", x=0, y=12)]
    for value in up_ticks:
        y = up(value)
        made.append(element("line", class_="grid", x1=0, x2="100%", y1=y, y2=y))
        made.append(element("text", f"{value:g}", class_="tick", x=0, y=y - 3))
    for value in across_ticks:
        x = f"{number(across(value))}%"
        made += [element("text", f"{value:g}", class_="time", x=x, y=BOTTOM + 18, text_anchor="middle")]
    words = f"{harm} (drawn by square roots)"
    made.append(element("text", words, class_="axis", x="100%", y=_HEIGHT - 8, text_anchor="end"))
    return made


def _stairs(best: list[Point], across: Scale, up: Scale) -> list[Html]:
    """What cannot be had without giving up some of the other: from each point to the right, then down to the next."""
    made = []
    ends = [*(across(each.harm) for each in best[1:]), _RIGHT]
    for index, (each, end) in enumerate(zip(best, ends, strict=True)):
        x, y = f"{number(across(each.harm))}%", up(each.slack)
        made.append(element("line", class_="edge", x1=x, x2=f"{number(end)}%", y1=y, y2=y))
        if index:
            made.append(element("line", class_="edge", x1=x, x2=x, y1=up(best[index - 1].slack), y2=y))
    return made


def _mark(point: Point, across: Scale, up: Scale, kind: str) -> Html:
    x, y = f"{number(across(point.harm))}%", up(point.slack)
    figures = f"{point.slack:.1f}% slack, {point.harm:.2f}, {point.changes:.1f} changes a day"
    return element(
        "g",
        element("title", f"{point.name}: {figures}"),
        element("circle", cx=x, cy=y, r=_MARK),
        element("text", point.mark, x=x, y=y + 4, text_anchor="middle"),
        class_=f"mark {kind}",
    )
