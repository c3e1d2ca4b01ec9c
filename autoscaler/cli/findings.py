"""The findings of `doctor` as a document: the one source of its JSON, of its JSON Schema and of its text.

Pure. More keys, checks and statuses may be added within one schema version; none may change its meaning.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import click
import msgspec
from msgspec import Meta, Struct

from autoscaler.cli.rendering.words import one_line
from autoscaler.diagnosis.findings import Check, Finding, Status

SCHEMA_VERSION = "bridge-autoscaler.dev/doctor/v1"

_MARKS = {
    Status.OK: ("ok", "green"),
    Status.NOTE: ("note", None),
    Status.UNKNOWN: ("unknown", "yellow"),
    Status.SKIPPED: ("skipped", "yellow"),
    Status.WARNING: ("warning", "yellow"),
    Status.ERROR: ("ERROR", "red"),
}
_MARK, _HEAD = 9, 22  # columns before the name of the check, and before the text


class FindingPart(Struct, frozen=True, rename="camel"):
    """One finding. `detail` is for people; `check`, `subject` and `status` are stable."""

    check: Annotated[Check, Meta(description="What was looked at.")]
    subject: Annotated[str, Meta(description="Which of several: a folder of rbac/, a policy, a series; else empty.")]
    status: Annotated[
        Status,
        Meta(
            description="Error: the program cannot run, or selected pods cannot be sized as their policy says. "
            "Warning: it works, but for less than it could. Unknown: it cannot be found out. Skipped: not looked at."
        ),
    ]
    detail: str
    remedy: Annotated[str, Meta(description="What to do; empty where there is nothing.")]


class DoctorDocument(Struct, frozen=True, rename="camel"):
    """What `bridge-autoscaler doctor` found, in the order in which it looked."""

    kind: Literal["Doctor"]
    schema_version: Annotated[str, Meta(extra_json_schema={"const": SCHEMA_VERSION})]
    taken_at: Annotated[
        str, Meta(description="RFC 3339, UTC, by the local clock.", extra_json_schema={"format": "date-time"})
    ]
    interrupted: Annotated[bool, Meta(description="Whether it was ended early: what was left is Skipped.")]
    findings: list[FindingPart]


def document(findings: Collection[Finding], taken_at: datetime, *, interrupted: bool) -> DoctorDocument:
    """The document of these findings."""
    parts = [FindingPart(one.check, one.subject, one.status, one.detail, one.remedy) for one in findings]
    moment = taken_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return DoctorDocument("Doctor", SCHEMA_VERSION, moment, interrupted, parts)


def render_json(found: DoctorDocument) -> str:
    """Indented JSON, ending in a line feed."""
    return msgspec.json.format(msgspec.json.encode(found)).decode() + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the document."""
    schema = msgspec.json.schema(DoctorDocument)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def line(finding: Finding, *, width: int = 80, color: bool = False) -> str:
    """One finding for people, its remedy below it, in lines of at most `width` columns."""
    word, hue = _MARKS[finding.status]
    head = f"{word:{_MARK}}{finding.check:{_HEAD - _MARK}}"
    detail = f"because {finding.detail}" if finding.status is Status.SKIPPED else finding.detail
    text = _wrapped(f"{finding.subject}: {detail}" if finding.subject else detail, head, width)
    if finding.remedy:
        text += "\n" + _wrapped(f"→ {finding.remedy}", " " * _HEAD, width, 2)
    return click.style(word, fg=hue) + text[len(word) :] if color and hue else text


def _wrapped(text: str, head: str, width: int, further: int = 0) -> str:
    lines = textwrap.wrap(
        one_line(text),
        max(width, _HEAD + 20),
        initial_indent=head,
        subsequent_indent=" " * (_HEAD + further),
        break_on_hyphens=False,  # a flag that is broken in two cannot be copied
    )
    return "\n".join(lines)


def summary(findings: Collection[Finding]) -> str:
    """`14 ok, 1 note, 2 errors`."""
    counts = Counter(one.status for one in findings)
    plural = {Status.NOTE: "notes", Status.WARNING: "warnings", Status.ERROR: "errors"}
    words = [
        f"{counts[status]} {plural.get(status, '') if counts[status] > 1 and status in plural else word.lower()}"
        for status, (word, _) in _MARKS.items()
        if counts[status]
    ]
    return ", ".join(words)
