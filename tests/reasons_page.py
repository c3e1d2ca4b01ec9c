"""docs/reasons.md, made from `autoscaler.core.reasons` and `autoscaler.core.problems`.

`python -m tests.reasons_page` writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason
from autoscaler.core.worded import Worded

PAGE = Path(__file__).parents[1] / "docs" / "reasons.md"


class Section(NamedTuple):
    """Words from `first` on, until the next section. `check`: how to look into all of them."""

    first: Reason | Trouble
    title: str
    check: str


ACTING = Section(
    Reason.INCREASE,
    "Something is done",
    "`explain` has every step that led to the size. What became of it: the log lines `resize` and `migrate`, the "
    "events of the pod (`kubectl describe pod`), and the [phases](operations.md) that follow.",
)
SECTIONS = (
    ACTING,
    Section(
        Reason.RECOMMEND_ONLY,
        "The policy says no",
        "`bridge-autoscaler policy validate` reads the files, and `doctor` says how many pods each policy selects, and "
        "which are selected by two.",
    ),
    Section(
        Reason.DELETING,
        "The pod cannot be resized, or not so",
        "`kubectl get pod NAME -o yaml`: `status.conditions`, `status.qosClass`, and the resources of its containers. "
        "`plan --server-dry-run` sends each change with dryRun=All and shows the API server's answer; `doctor` makes a "
        "resize of a selected pod in the same way, and looks at the nodes.",
    ),
    Section(
        Reason.GATED,
        "It is someone else's",
        "`kubectl get hpa,vpa -n NAMESPACE`, the labels of the pod, and its `metadata.managedFields`, in which the "
        "subresource `resize` names who wrote last.",
    ),
    Section(
        Reason.RESIZE_PROPOSED,
        "An earlier resize is not over, or a pod is to be moved",
        "`kubectl get pod NAME -o jsonpath='{.status.conditions}'`: `PodResizePending` and `PodResizeInProgress` have "
        "the kubelet's words. `explain` lists the deadline and every precondition of a move; what the controller does "
        "in each phase is in [operations](operations.md) and [migration](migration.md).",
    ),
    Section(
        Reason.METRICS_UNAVAILABLE,
        "The measurements are not fit to act on",
        "`bridge-autoscaler doctor` asks what a plan asks, and says of how many of the selected pods each series is "
        "there, how old it is, and which setting may be at fault. By hand, in Prometheus' own page: "
        '`container_memory_working_set_bytes{pod="NAME"}` shows labels, copies and clusters, '
        '`count_over_time(container_memory_working_set_bytes{pod="NAME"}[1h])` shows holes, and `up` of that job shows '
        "scrapes that fail. Which series are read is in [metrics](metrics.md), and what each doubt comes to in "
        "[operations](operations.md#what-measurements-are-worth).",
    ),
    Section(
        Reason.RECOMMENDER_FAILED,
        "The recommender did not answer",
        "`explain` has its words; `--debug` adds tracebacks. What recommenders may and may not do is in "
        "[recommenders](recommenders.md).",
    ),
    Section(
        Reason.AT_TARGET,
        "Nothing is worth doing",
        "`explain` shows what is proposed, and the steps by which it came to that.",
    ),
    Section(
        Trouble.NOTHING_SELECTED,
        "Problems of policies and of the cluster",
        "`plan` lists them below the pods, the log has each as a line `problem` when it appears, and `doctor` checks "
        "files, rights and objects one by one.",
    ),
    Section(
        Trouble.CLOCK_SKEW,
        "Problems and notes of Prometheus",
        "As above; `doctor` has them at the checks `clocks`, `labels`, `metrics` and `signals`. `MetricsUnavailable` "
        "and `PartialResponse`, which hold pods, are listed here as well when they happen.",
    ),
)
_HEAD = """\
# Reasons: what they mean, how to check, what to do

Every decision about a pod has one of these words: in plans, in log lines, and as the label `reason` of
`bridge_autoscaler_decisions_total`. The set is closed: a word is never used for something else, and whatever is not
done has one. The detail beside it names the container, the numbers and the kubelet's or server's own words.

Wherever you meet one, `bridge-autoscaler explain NAMESPACE/POD` shows all that led to it, and
`bridge-autoscaler doctor` checks what the program needs. Each section begins with further ways to look into its words.

When a hold begins whose reason is marked under *event*, that is also written as a Kubernetes event on the pod.
"""
_PROBLEMS = """
# Problems and notes

What belongs to no single pod is listed at the end of a plan. One marked under *error* makes a plan incomplete, and its
exit status 1; the others are notes: they hold nothing.
"""
_FOOT = """
Made from `autoscaler/core/reasons.py` and `autoscaler/core/problems.py` by `python -m tests.reasons_page`.
"""


def words_of(section: Section) -> list[Worded]:
    """What stands in a section."""
    every: Sequence[Worded] = list(type(section.first))
    firsts = {one.first for one in SECTIONS} - {section.first}
    found: list[Worded] = []
    for word in every[every.index(section.first) :]:
        if word in firsts and isinstance(word, type(section.first)):
            break
        found.append(word)
    return found


def page() -> str:
    """The text of the page."""
    return _HEAD + "\n".join(_lines()) + "\n" + _FOOT


def _lines() -> Iterator[str]:
    for section in SECTIONS:
        problems = isinstance(section.first, Trouble)
        if section.first is Trouble.NOTHING_SELECTED:
            yield _PROBLEMS.rstrip()
        mark = "error" if problems else "event"
        yield from ("", f"## {section.title}", f"How to check: {section.check}", "")
        yield from (f"| {'problem' if problems else 'reason'} | {mark} | meaning | what to do |", "|---|---|---|---|")
        for word in words_of(section):
            yield f"| `{word.value}` | {'x' if word.notify else ''} | {word.meaning} | {word.remedy} |"


if __name__ == "__main__":
    PAGE.write_text(page())
