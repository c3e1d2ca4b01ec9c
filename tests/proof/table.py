"""What many cases show together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.proof.generator import PREDICATES
from tests.proof.judge import Answer, Judged


class Tally:
    """Counts over judged cases."""

    def __init__(self, cases: Sequence[Judged]) -> None:
        self.cases = cases
        self.exceptions = [case for case in cases if case.exception is not None]
        self.placed = sum(case.placed is not None for case in cases)
        self.answers = Counter(case.answer for case in cases)
        self.barred = Counter(name for case in cases for name in case.barred)
        self.turned = Counter(name for case in cases for name in case.turned)
        self.wrong = Counter(case.kind for case in cases if case.wrong_no)

    @property
    def wrong_share(self) -> float:
        """Share of the "no" in which the scheduler does find another node for the target."""
        return self.wrong.total() / max(self.answers[Answer.NO], 1)

    def shortcomings(self) -> list[str]:
        """Where the cases fall short of what they are to show; of the exceptions each one."""
        short = [f"seed {case.seed}: {case.exception}; {case.proof}" for case in self.exceptions]
        if self.placed < 0.4 * len(self.cases):
            short.append(f"the scheduler places only {self.placed} of {len(self.cases)} replacements")
        short += [f"{name} decides in only {self.turned[name]} cases" for name in PREDICATES if self.turned[name] < 20]
        if self.wrong_share > 0.1:
            short.append(f"{self.wrong_share:.1%} of the no are wrong")
        return short

    def markdown(self) -> str:
        """The counts as two tables."""
        some, every, no = (self.answers[one] for one in (Answer.SOME, Answer.EVERY, Answer.NO))
        small = [case for case in self.cases if case.answer is Answer.SOME]
        small_or_idle = sum(case.placed in {*case.proof.too_small, *case.proof.astray} for case in small)
        elsewhere = sum(
            case.fits is True and case.placed not in {*case.proof.nodes, case.old_node} for case in self.cases
        )
        own = sum(case.placed == case.old_node for case in self.cases)
        wrong = ", ".join(f"{name} {count}" for name, count in self.wrong.most_common()) or "none"
        rows = [
            ("cases", len(self.cases)),
            ("replacements that the scheduler places, as they are created", self.placed),
            ("of these, on the node that the pod came from", own),
            ("proof: yes, on every node that may take the replacement", every),
            ("proof: yes on some node, but the replacement may land on another one and not grow or start there", some),
            ("of these, placed on such a node", small_or_idle),
            ("proof: no", no),
            ("placed on a node on which the proof does not count, and the target fits there", elsewhere),
            ("**promises not kept**", len(self.exceptions)),
            (f"wrong no: {wrong}", f"{self.wrong.total()} ({self.wrong_share:.1%})"),
        ]
        lines = ["| what | cases |", "|---|---|", *(f"| {what} | {count} |" for what, count in rows), ""]
        lines += ["| predicate | keeps the pod from a node, alone | turns the answer, alone |", "|---|---|---|"]
        lines += [f"| {name} | {self.barred[name]} | {self.turned[name]} |" for name in PREDICATES]
        return "\n".join(lines)
