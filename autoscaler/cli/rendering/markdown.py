"""Markdown for a review comment: one table of all pods, then the reasons pod by pod."""

from __future__ import annotations

import re

from autoscaler.cli.document import Document, Item
from autoscaler.cli.rendering.words import (
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


def render_markdown(document: Document) -> str:
    """The plan as GitHub-flavoured Markdown."""
    lines = [f"## Resize plan: {summary(document)}", "", f"Taken at {document.taken_at}.", ""]
    if document.items:
        lines += ["| Pod | Container | Resource | Request | Limit | QoS | Action | Reason |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        lines += [row for item in document.items for row in _rows(item)] + [""]
    for item in document.items:
        lines += _section(item)
    if document.problems:
        lines += ["### Problems", ""]
        lines += [f"- **{_plain(p.source)}** {p.reason}: {_plain(p.detail)}" for p in document.problems] + [""]
    return "\n".join(lines)


def _rows(item: Item) -> list[str]:
    return [
        _row(
            f"{item.namespace}/{item.pod}",
            container.name,
            resource,
            cell(both.request, resource),
            cell(both.limit, resource),
            qos(item),
            item.action.value,
            item.reason.value,
        )
        for container in item.containers
        for resource, both in sides(container)
    ]


def _section(item: Item) -> list[str]:
    lines = [f"### {item.namespace}/{item.pod}", "", f"- {_plain(verdict(item))}"]
    if item.proposes:
        lines.append(f"- Predicted: {_plain(prediction(item))}")
    if item.server:
        lines.append(f"- Server dry run: {_plain(server(item))}")
    if item.migration:
        lines.append(f"- Migration: {_plain(migration(item))}")
        lines += [f"  - {mark(one)}: {_plain(check(one))}" for one in item.migration.checks]
    if item.drift:
        lines.append(f"- Drift: {_plain(drift(item))}")
    lines += [
        f"- `{container.name}` {_plain(step)}"
        for container in item.containers
        if container.changed
        for step in container.because
    ]
    return [*lines, ""]


def _row(*cells: str) -> str:
    return "| " + " | ".join(_plain(text) for text in cells) + " |"


def _plain(text: str) -> str:
    """Text as it is, on one line: nothing in it becomes markup or ends a cell."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(one_line(text).split()))
