"""Printing a document: in which format, how wide the terminal is, and what goes to stderr."""

from __future__ import annotations

import shutil
import sys

import click

from autoscaler.cli.document import Document, ProblemPart
from autoscaler.cli.rendering.data import render_json, render_yaml
from autoscaler.cli.rendering.markdown import render_markdown
from autoscaler.cli.rendering.patch import render_patch
from autoscaler.cli.rendering.table import render_table
from autoscaler.cli.rendering.words import one_line, summary
from autoscaler.core.problems import NOTES

_PLAIN = {"json": render_json, "yaml": render_yaml, "markdown": render_markdown, "patch": render_patch}


def terminal() -> tuple[int, bool]:
    """Width to print at (COLUMNS, the terminal's, or 80), and whether stdout is a terminal."""
    return shutil.get_terminal_size((80, 24)).columns, sys.stdout.isatty()


def print_document(document: Document, output: str) -> None:
    """The document on stdout; a summary on stderr, unless it is part of the document."""
    if output == "table":
        width, color = terminal()
        click.echo(render_table(document, width=width, color=color), nl=False, color=color)
        return
    click.echo(_PLAIN[output](document), nl=False)
    click.echo(summary(document), err=True)


def errors(document: Document) -> list[ProblemPart]:
    """The problems that make a plan incomplete. A policy that selects nothing does not."""
    return [problem for problem in document.problems if problem.reason not in NOTES]


def print_errors(document: Document) -> bool:
    """Name them on stderr. Returns whether there are any."""
    found = errors(document)
    for problem in found:
        click.echo(one_line(f"Error: {problem.source}: {problem.reason}: {problem.detail}"), err=True)
    return bool(found)
