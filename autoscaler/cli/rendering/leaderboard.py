"""The leaderboard as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from textwrap import fill

import numpy as np

from autoscaler import __version__
from autoscaler.backtest.demand import Replayed
from autoscaler.backtest.ranking import ALLOWED, CHANGES, harm, ranked
from autoscaler.backtest.running import Outcome, Terms
from autoscaler.backtest.scoring import Scores, gap_closed
from autoscaler.cli.rendering.backtest import Result
from autoscaler.cli.rendering.report.front import Point, unbeaten

PUBLIC = (
    *("alibaba18_c12104", "bitbrains_batch_vm43", "bitbrains_bursty_vm233", "bitbrains_dailyjob_vm304"),
    *("bitbrains_diurnal_vm413", "gentd26_burst_9ba6962f", "gentd26_cold_3ed83727", "gentd26_leak_c26bb102"),
    *("nezha_tt_basic_0129", "nezha_tt_gateway_0129"),
)
"""The public traces that this page can be about; those that do not ship may be read and not passed on."""

_VPA = "histogram"
_SOURCES = {
    "alibaba18_": "container c_12104 of Alibaba's cluster trace of 2018, as in microsoft/vasim",
    "bitbrains_": "Bitbrains, GWA-T-12: Shen, van Beek, Iosup, “Statistical characterization of business-critical"
    " workloads hosted in cloud datacenters”, CCGrid 2015",
    "gentd26_": "Alibaba, cluster-trace-v2026-GenAI: Lin et al., “Understanding Diffusion Model Serving in"
    " Production”, SoCC '25",
    "nezha_": "TrainTicket of IntelligentDDS/Nezha",
}
_NAMES = {Replayed.CPU: "CPU, hard limit", Replayed.MEMORY: "Memory", Replayed.GPU_MEMORY: "GPU memory"}


@dataclass(frozen=True, slots=True)
class Board:
    """Several recommenders on the same traces. `title`: what these are."""

    title: str
    results: Sequence[Result]

    @property
    def terms(self) -> Terms:
        return self.results[0].terms


def as_markdown(boards: Sequence[Board], public: Sequence[str], scenarios: Sequence[str], seed: int) -> str:
    """The page. `public`: names of the public traces that were there."""
    parts = [_head(), _present(public, scenarios, seed), *map(_board, boards)]
    return "\n\n".join(parts) + "\n"


def _head() -> str:
    bounds = (
        f"throttled time of at most {ALLOWED[Replayed.CPU]:g} %, OOM episodes of at most {ALLOWED[Replayed.MEMORY]:g} a"
        f" day (GPU memory: {ALLOWED[Replayed.GPU_MEMORY]:g}), and at most {CHANGES:g} changes a day"
    )
    how = (
        f"Made by `make leaderboard` with bridge-autoscaler {__version__}; do not edit. Every recommender has its"
        " default parameters, the same for all traces. Replays are neutral and open: recorded usage is what is wanted,"
        " request and limit are equal, and what is decided is in force at the next sample."
    )
    rule = (
        f"Ranked by slack, the part of what is reserved that is not used, are those whose means have {bounds}. Slack"
        " alone would reward starving. Means are macro means: every trace counts once; behind each, in brackets, is the"
        " worst trace. `front`: no other one has less slack and no more throttled time, or OOM episodes. `gap`: of what"
        " an oracle saves over `histogram`, the share that is saved, as the median over traces. `late frames`: of the"
        " seconds with frames, those in which they take more than 33.3 ms for lack of CPU alone. The oracle knows the"
        " future and changes once an hour at most; who changes more often can have less slack."
    )
    return "\n\n".join(["# Leaderboard", fill(how, 120), fill(rule, 120)])


def _present(public: Sequence[str], scenarios: Sequence[str], seed: int) -> str:
    lines = ["## Traces", ""]
    for prefix, source in _SOURCES.items():
        names = [name for name in public if name.startswith(prefix)]
        lines += [f"- {', '.join(f'`{name}`' for name in names)}: {source}."] if names else []
    others = [name for name in public if not name.startswith(tuple(_SOURCES))]
    lines += [f"- {', '.join(f'`{name}`' for name in others)}."] if others else []
    absent = [name for name in PUBLIC if name not in public]
    if absent:
        lines += [f"- Absent when this was made: {', '.join(f'`{name}`' for name in absent)}."]
    lines += [f"- [Scenarios](scenarios.md), made up, seed {seed}: {', '.join(f'`{name}`' for name in scenarios)}."]
    return "\n".join(lines)


def _board(board: Board) -> str:
    terms = board.terms
    means = {result.label: result.mean for result in board.results}
    order = ranked(means, terms.replayed)
    behind = sorted(means.keys() - set(order), key=lambda name: (means[name].slack_percent, name))
    best = {
        each.name
        for each in unbeaten(
            [Point("", name, harm(one, terms.replayed), one.slack_percent, 0.0) for name, one in means.items()]
        )
    }
    results = {result.label: result for result in board.results}
    vpa = results.get(_VPA)
    rows = []
    for place, name in enumerate([*order, *behind], 1):
        head = str(place) if name in order else _missed(means[name], terms.replayed)
        rows.append([head, f"`{name}`", *_cells(results[name], vpa), "yes" if name in best else ""])
    first = board.results[0].outcomes
    oracle = fmean(one.oracle_slack_percent for one in first)
    columns = _heads(board)
    rows.append(["", "oracle", f"{oracle:.1f}", *[""] * (len(columns) - 3)])
    scored = f"the first {terms.warmup_s // 3600} h not scored" if terms.warmup_s else "scored from the start"
    return "\n".join(
        [
            f"## {_NAMES[terms.replayed]}: {board.title}",
            "",
            fill(f"A decision every {terms.interval_s} s, {scored}: {', '.join(one.trace for one in first)}.", 120),
            "",
            *(f"| {' | '.join(row)} |" for row in [columns, ["---"] * len(columns), *rows]),
        ]
    )


def _heads(board: Board) -> list[str]:
    is_cpu = board.terms.replayed is Replayed.CPU
    harms = ["throttled, %", "unmet, %"] if is_cpu else ["OOM a day", "OOM kills", "gap"]
    if board.results[0].mean.late_frames_percent is not None:
        harms.append("late frames, %")
    return ["rank", "recommender", "slack, %", *harms, "changes a day", "front"]


def _missed(mean: Scores, replayed: Replayed) -> str:
    found = ["throttled" if replayed is Replayed.CPU else "OOM"] if harm(mean, replayed) > ALLOWED[replayed] else []
    return f"– ({', '.join([*found, *(['changes'] if mean.resizes_per_day > CHANGES else [])])})"


def _cells(result: Result, vpa: Result | None) -> list[str]:
    mean, replayed = result.mean, result.terms.replayed
    cells = [
        _with_worst(mean.slack_percent, result, lambda one: one.slack_percent, 1),
        _with_worst(harm(mean, replayed), result, lambda one: harm(one, replayed), 2),
    ]
    if replayed is Replayed.CPU:
        cells.append(_with_worst(mean.unmet_percent, result, lambda one: one.unmet_percent, 1))
    else:
        cells += [f"{mean.oom_kills}", _gap(result, vpa)]
    if mean.late_frames_percent is not None:
        cells.append(_with_worst(mean.late_frames_percent, result, lambda one: one.late_frames_percent or 0.0, 2))
    return [*cells, _with_worst(mean.resizes_per_day, result, lambda one: one.resizes_per_day, 1)]


def _with_worst(value: float, result: Result, of: Callable[[Scores], float], decimals: int) -> str:
    worst = max(result.outcomes, key=lambda one: of(one.scores))
    if not of(worst.scores):
        return f"{value:.{decimals}f}"
    return f"{value:.{decimals}f} ({of(worst.scores):.{decimals}f} {worst.trace})"


def _gap(result: Result, vpa: Result | None) -> str:
    if vpa is None:
        return "–"
    shares = [
        gap_closed(one.scores.reserved_hours, other.scores.reserved_hours, _oracle_hours(one, result.terms))
        for one, other in zip(result.outcomes, vpa.outcomes, strict=True)
    ]
    known = [share for share in shares if share is not None]
    return f"{median(known):.2f}" if known else "–"


def _oracle_hours(outcome: Outcome, terms: Terms) -> float:
    """What the oracle reserves, of which all that is wanted is the part that is used."""
    wanted = float(np.nansum(outcome.replay.wanted[terms.unscored(outcome.demand) :]))
    return wanted * outcome.demand.step_s / 3600 / (1 - outcome.oracle_slack_percent / 100)
