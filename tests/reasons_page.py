"""docs/reasons.md, made from `autoscaler.core.reasons`. `python -m tests.reasons_page` writes it anew."""

from __future__ import annotations

from pathlib import Path

from autoscaler.core.reasons import Reason

PAGE = Path(__file__).parents[1] / "docs" / "reasons.md"
_HEAD = """\
# Reasons

Every decision about a pod has one of these words: in plans, in log lines, and as the label `reason` of
`bridge_autoscaler_decisions_total`. The set is closed: a word is never used for something else, and whatever is not
done has one. The detail beside it names the container, the numbers and the kubelet's or server's own words.

When a hold begins whose reason is marked under *event*, that is also written as a Kubernetes event on the pod.

| reason | event | meaning | what to do |
|---|---|---|---|
"""
_FOOT = """
Made from `autoscaler/core/reasons.py` by `python -m tests.reasons_page`.
"""


def page() -> str:
    """The text of the page."""
    rows = (
        f"| `{reason.value}` | {'x' if reason.notify else ''} | {reason.meaning} | {reason.remedy} |"
        for reason in Reason
    )
    return _HEAD + "\n".join(rows) + "\n" + _FOOT


if __name__ == "__main__":
    PAGE.write_text(page())
