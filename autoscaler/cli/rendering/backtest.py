"""What a back-test found, as plain data and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any

from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.running import Outcome, Terms
from autoscaler.backtest.scoring import Scores, mean
from autoscaler.core.reasons import Reason
from autoscaler.core.units import Bytes, format_memory

_GIB = float(1 << 30)
_OFTEN = 0.05  # of the decisions, from which on it is said what held a size


@dataclass(frozen=True, slots=True)
class Result:
    """One of those that were replayed, on all traces. `in_force`: what runs today was found in the cluster."""

    label: str
    terms: Terms
    outcomes: Sequence[Outcome]
    in_force: bool = False

    @property
    def mean(self) -> Scores:
        return mean([one.scores for one in self.outcomes])


def as_data(results: Sequence[Result]) -> dict[str, Any]:
    """For JSON: one result as it is, several under `runs`."""
    documents = [_document(result) for result in results]
    return documents[0] if len(documents) == 1 else {"runs": documents}


def _document(result: Result) -> dict[str, Any]:
    terms = result.terms
    return {
        "recommender": result.label,
        "resource": terms.replayed.value,
        "limit": "soft" if terms.soft else "hard",
        "replay": "closed" if terms.closed else "open",
        "interval_seconds": terms.interval_s,
        "warmup_seconds": terms.warmup_s,
        "traces": [_trace(one, terms) for one in result.outcomes],
        "mean": {
            **asdict(result.mean),
            "oracle_slack_percent": _mean([one.oracle_slack_percent for one in result.outcomes]),
            **_as_often(_paced(result)),
            **_summed(result.outcomes),
        },
    }


def _trace(one: Outcome, terms: Terms) -> dict[str, Any]:
    return {
        "trace": one.trace,
        "resource": terms.replayed.value,
        **asdict(one.scores),
        "oracle_slack_percent": one.oracle_slack_percent,
        **_as_often(one.paced_slack_percent),
        "reserved_change_percent": one.today.reserved_change_percent,
        "oom_avoided": one.today.oom_avoided,
        "oom_caused": one.today.oom_caused,
        "today": {"size": one.today.size, "reserved": one.today.reserved, **asdict(one.today.scores)},
        "deferred": one.replay.deferred,
        "infeasible": one.replay.infeasible,
        "migrations": one.replay.migrations,
        "held": {reason.value: count for reason, count in sorted(one.held.items())},
    }


def _as_often(slack: float | None) -> dict[str, float]:
    return {} if slack is None else {"oracle_same_resizes_slack_percent": slack}


def _paced(result: Result) -> float | None:
    found = [one.paced_slack_percent for one in result.outcomes if one.paced_slack_percent is not None]
    return _mean(found) if found else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _summed(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    before = sum(one.today.scores.reserved_hours for one in outcomes)
    after = sum(one.scores.reserved_hours for one in outcomes)
    return {
        "reserved_change_percent": 100 * (after / before - 1) if before else 0.0,
        "oom_avoided": sum(one.today.oom_avoided for one in outcomes),
        "oom_caused": sum(one.today.oom_caused for one in outcomes),
        "deferred": sum(one.replay.deferred for one in outcomes),
        "infeasible": sum(one.replay.infeasible for one in outcomes),
        "migrations": sum(one.replay.migrations for one in outcomes),
    }


# ---- for people


def as_table(results: Sequence[Result], width: int) -> str:
    """Each result trace by trace; several of them also beside each other."""
    parts = [_section(result, width) for result in results]
    if len(results) > 1:
        parts.append(_beside(results, width))
    return "\n\n".join(parts) + "\n"


_CPU = ("slack", "throttled", "unmet", "resizes/d", "reserved", "oracle")
_MEMORY = ("slack", "OOM/d", "OOMs", "kills", "resizes/d", "reserved", "oracle")


def _heads(result: Result) -> tuple[str, ...]:
    heads = _CPU if result.terms.replayed is Replayed.CPU else _MEMORY
    if result.mean.late_frames_percent is not None:
        heads = (*heads[:3], "late", *heads[3:])
    return (*heads, "as often") if result.terms.paced else heads


def _of_all(result: Result) -> list[str]:
    best = _mean([one.oracle_slack_percent for one in result.outcomes])
    return _cells(result.mean, best, _paced(result), result)


def _section(result: Result, width: int) -> str:
    rows = [
        [one.trace, *_cells(one.scores, one.oracle_slack_percent, one.paced_slack_percent, result)]
        for one in result.outcomes
    ]
    if len(rows) > 1:
        rows.append(["mean", *_of_all(result)])
    return "\n".join(
        [
            *_title(result),
            "",
            *_aligned(["trace", *_heads(result)], rows, width),
            *(fill(words, width) for words in (_saved(result), _held_back(result)) if words),
        ]
    )


def _title(result: Result) -> list[str]:
    return [result.label, in_words(result.terms)]


def in_words(terms: Terms) -> str:
    """What was replayed, and how."""
    limit = "" if terms.replayed is not Replayed.CPU else f", {'soft' if terms.soft else 'hard'} limit"
    every, warmup = (
        f"{seconds // 3600}h" if seconds and seconds % 3600 == 0 else f"{seconds}s"
        for seconds in (terms.interval_s, terms.warmup_s)
    )
    what = f"{terms.replayed.value.replace('_', ' ')}{limit}, {'closed' if terms.closed else 'open'} replay"
    return f"{what}, a decision every {every}, the first {warmup} not scored"


def _cells(scores: Scores, oracle: float, paced: float | None, of: Result) -> list[str]:
    memory = of.terms.replayed is not Replayed.CPU
    unit = _GIB if memory else 1.0
    hours = scores.reserved_hours / unit
    reserved = f"{hours:,.{0 if hours >= 10 else 2}f} {'GiBh' if memory else 'core-h'}"
    first = (
        [f"{scores.oom_per_day:.2f}", str(scores.oom_episodes), str(scores.oom_kills)]
        if memory
        else [f"{scores.throttled_percent:.2f}%", f"{scores.unmet_percent:.1f}%"]
    )
    bounds = [f"{slack:.1f}%" for slack in (oracle, paced) if slack is not None]
    if of.mean.late_frames_percent is not None:
        first.append("–" if scores.late_frames_percent is None else f"{scores.late_frames_percent:.2f}%")
    return [f"{scores.slack_percent:.1f}%", *first, f"{scores.resizes_per_day:.1f}", reserved, *bounds]


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Columns of text, the first on the left. A name that does not fit has a line of its own."""
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    widths[0] = max(min(widths[0], width - sum(widths[1:]) - 2 * (len(widths) - 1)), len(head[0]))
    lines = []
    for name, *cells in (head, *rows):
        fits = len(name) <= widths[0]
        if not fits:
            lines.append(name)
        first = (name if fits else "").ljust(widths[0])
        lines.append("  ".join([first, *(c.rjust(size) for c, size in zip(cells, widths[1:], strict=True))]).rstrip())
    return lines


def _saved(result: Result) -> str:
    sums = _summed(result.outcomes)
    if result.in_force:
        today = "what runs today"
    elif result.terms.today is None:
        today = "today's twice the peak of the first hour"
    else:
        today = f"today's {_size(result.terms.today, result.terms.replayed)}"
    words = f"Against {today}: {sums['reserved_change_percent']:+.0f}% reserved"
    if any(sums[name] for name in ("deferred", "infeasible", "migrations")):
        asks = f"{sums['deferred']} asks deferred, {sums['infeasible']} infeasible, {sums['migrations']} migrations"
        words = f"{asks}. {words}"
    if result.terms.replayed is Replayed.CPU:
        throttled = _mean([one.today.scores.throttled_percent for one in result.outcomes])
        return f"{words}, throttled {result.mean.throttled_percent:.2f}% of the time instead of {throttled:.2f}%."
    return f"{words}, {sums['oom_avoided']} OOM episodes avoided, {sums['oom_caused']} caused."


def _held_back(result: Result) -> str:
    """What else than a size that fits kept sizes as they were for a good part of the time."""
    decisions = sum(one.replay.decisions for one in result.outcomes)
    held = sum((Counter(one.held) for one in result.outcomes), Counter[Reason]())
    often = [(reason, count) for reason, count in held.most_common() if reason is not Reason.AT_TARGET]
    words = [f"{reason} in {count / decisions:.0%}" for reason, count in often if count >= _OFTEN * decisions]
    return f"Held back: {', '.join(words)} of the decisions (docs/reasons.md)." if words else ""


def _size(size: float, replayed: Replayed) -> str:
    return f"{size:g} cores" if replayed is Replayed.CPU else format_memory(Bytes(int(size)))


def _beside(results: Sequence[Result], width: int) -> str:
    rows = [[result.label, *_of_all(result)] for result in results]
    return "\n".join(_aligned(["mean", *_heads(results[0])], rows, width))
