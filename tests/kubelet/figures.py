"""What the stories measured, told at the end of the run."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """A line of the summary: of which story, what was measured."""

    story: str
    text: str


class Figures:
    """Collects them in the order in which they come."""

    def __init__(self) -> None:
        self.noted: list[Figure] = []

    def note(self, story: str, text: str) -> None:
        """Keep a figure for the end."""
        self.noted.append(Figure(story, text))
