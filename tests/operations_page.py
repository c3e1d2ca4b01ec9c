"""The part of docs/operations.md that is made from the table of phases: `python -m tests.operations_page`."""

from __future__ import annotations

from pathlib import Path

from autoscaler.core.ladder import PHASES
from autoscaler.core.resize import Phase

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
BEGIN, END = "<!-- phases: made by python -m tests.operations_page -->\n", "<!-- end of phases -->\n"
_ASKS = {Phase.DEFERRED: ": fit or revert"}


def phases() -> str:
    """The diagram of phases and their table."""
    arrows = [f"    {Phase.SETTLED} --> {Phase.PROPOSED}: ask"]
    arrows += [
        f"    {phase} --> {follows}{_ASKS.get(phase, ': revert') if follows is Phase.PROPOSED else ''}"
        for phase, rule in PHASES.items()
        for follows in rule.next
        if phase is not Phase.UNKNOWN
    ]
    rows = [
        f"| {phase} | {rule.read_from} | `{rule.waiting}` | {_setting(rule.setting)} | {rule.then}"
        f"{f' (`{rule.overdue}`)' if rule.overdue else ''} |"
        for phase, rule in PHASES.items()
    ]
    return "\n".join(
        [
            "```mermaid",
            "stateDiagram-v2",
            *arrows,
            "```",
            "",
            "| phase | read from | held as | waited for | then |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _setting(setting: str) -> str:
    if not setting:
        return "ever"
    return f"`{setting}`" if "." in setting else setting


def page(text: str) -> str:
    """The page with its generated part made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{phases()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
