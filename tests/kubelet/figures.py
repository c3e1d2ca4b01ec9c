"""What the stories measured, told at the end of the run."""

from __future__ import annotations

import pytest

_KEY = "measured"


class Figures:
    """Of one story. They travel with its report, also from another process."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def note(self, story: str, text: str) -> None:
        """Keep a figure for the end."""
        self._item.user_properties.append((_KEY, f"{story}: {text}"))


def tell(reporter: pytest.TerminalReporter) -> None:
    """Write them all, of stories that failed too."""
    reports = (one for kind in ("passed", "failed") for one in reporter.stats.get(kind, []))
    noted = [text for report in reports for key, text in report.user_properties if key == _KEY]
    if noted:
        reporter.section("measured")
    for text in noted:
        reporter.write_line(str(text))
