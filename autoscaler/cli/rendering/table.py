"""The plan for people: one block a pod, readable at 80 columns, with the steps beside the sizes when it is wider."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from io import StringIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autoscaler.cli.document import ContainerPart, Document, Item
from autoscaler.cli.rendering.words import (
    because,
    blocker,
    cell,
    check,
    drift,
    mark,
    migration,
    one_line,
    prediction,
    qos,
    server,
    sides,
    summary,
    verdict,
)
from autoscaler.core.actions import OutcomeKind
from autoscaler.core.problems import NOTES

WIDE = 130  # columns from which the steps have a column of their own


def render_table(document: Document, *, width: int = 80, color: bool = False) -> str:
    """The whole plan, its problems, and a last line that sums it up."""
    parts: list[RenderableType] = []
    for item in document.items:
        parts += [*_block(item, width), ""]
    for problem in document.problems:
        text = f"{problem.source}: {problem.reason}: {problem.detail}"
        label = "Note" if problem.reason in NOTES else "Problem"
        parts.append(_labelled(label, text, width, indent="", style="yellow"))
    return _text([*parts, Text(summary(document), "bold")], width, color)


def render_explanation(item: Item, *, width: int = 80, color: bool = False) -> str:
    """One pod: everything the plan says of it, every step of every container, what the reason means and its remedy."""
    parts: list[RenderableType] = [*_head(item, width), *_checks(item, width)]
    parts.append(_labelled("Meaning", item.reason.meaning, width))
    if item.reason.remedy:
        parts.append(_labelled("Remedy", item.reason.remedy, width))
    blocked = blocker(item.migration) if item.migration else None
    if blocked is not None and blocked.reason is not item.reason and blocked.reason.remedy:
        parts.append(_labelled("Remedy", f"{blocked.name}: {blocked.reason.remedy}", width))
    if item.due_at:
        parts.append(_labelled("Next look", item.due_at, width))
    for container in item.containers:
        parts += ["", _sizes((container,), steps=False)]
        for resource, _ in sides(container):
            steps = because(container, resource)
            parts += [
                _paragraph(f"{n}. {resource}: {step}", width, "    ", "       ") for n, step in enumerate(steps, 1)
            ]
        if not container.because:
            parts.append("    no step was taken")
    return _text(parts, width, color)


def _block(item: Item, width: int) -> Iterator[RenderableType]:
    yield from _head(item, width)
    wide = width >= WIDE
    if item.containers:
        yield _sizes(tuple(item.containers), steps=wide)
    if not wide:
        for container in item.containers:
            if container.changed:
                for step in container.because:
                    yield _paragraph(f"{container.name}  {step}", width, "    ", "      ", style="dim")


def _head(item: Item, width: int) -> Iterator[RenderableType]:
    where = [item.workload, f"on {item.node}" if item.node else "on no node"]
    where += [f"policy {item.policy}" if item.policy else "no policy"]
    yield Text.assemble((f"{item.namespace}/{item.pod}", "bold"), "  " + ", ".join(filter(None, where)))
    yield _paragraph(verdict(item), width, "  ", "    ", style="green" if item.action != "None" else "")
    if item.proposes:
        yield _labelled("Predicted", prediction(item), width)
    if item.server is not None:
        refused = item.server.outcome is not OutcomeKind.ACCEPTED
        yield _labelled("Server", server(item), width, style="red" if refused else "")
    if item.migration is not None:
        yield _labelled("Migration", migration(item), width)
    yield _labelled("QoS", qos(item), width)
    if item.drift:
        yield _labelled("Drift", drift(item), width)


def _checks(item: Item, width: int) -> Iterator[RenderableType]:
    """What a migration needs, one thing a line, in the order in which it is looked at."""
    for n, one in enumerate(item.migration.checks if item.migration else ()):
        first = f"  {'' if n else 'Checks':11}{mark(one):5}  "
        yield _paragraph(check(one), width, first, " " * len(first), "" if one.holds else "yellow")


def _sizes(containers: tuple[ContainerPart, ...], *, steps: bool) -> Padding:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("container", "resource", "request", "limit", *(["why"] if steps else [])):
        table.add_column(heading, overflow="fold", no_wrap=heading == "resource")
    for container in containers:
        kind = "" if container.kind == "Container" else f" ({container.kind.lower()})"
        name = container.name + kind
        for resource, both in sides(container):
            cells = [name, resource.value, cell(both.request, resource), cell(both.limit, resource)]
            if steps:
                cells.append("\n".join(because(container, resource)) if container.changed else "")
            table.add_row(*(Text(text, "green" if "→" in text else "") for text in cells))
            name = ""
    return Padding(table, (0, 0, 0, 2))


def _labelled(label: str, text: str, width: int, indent: str = "  ", style: str = "") -> Text:
    return _paragraph(f"{label:11}{text}", width, indent, indent + " " * 11, style)


def _paragraph(text: str, width: int, first: str, further: str, style: str = "") -> Text:
    """Lines of at most `width` columns. Line breaks of the text itself become spaces: they would break the layout."""
    lines = textwrap.wrap(one_line(text), width, initial_indent=first, subsequent_indent=further)
    return Text("\n".join(lines), style)


def _text(parts: list[RenderableType], width: int, color: bool) -> str:
    out = StringIO()
    console = Console(file=out, width=width, force_terminal=color, highlight=False, markup=False, emoji=False)
    for part in parts:
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
