"""How good a series of limits was for a series of demand: the figures that recommenders are compared by. Pure.

Demand is what would be used without a limit; u = min(demand, limit) is what was. Slack alone rewards starving, so it is
never shown without throttled time and OOM episodes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

_DAY_S = 86400.0
_ROUNDING = 1e-9  # of a limit: less is no lack of CPU
_CHANGE = 1e-6  # of a limit: less is no resize
_RESTART_S = 60.0  # a container is killed once in this time at most
_LATE_MS = 1000 / 30  # a frame


@dataclass(frozen=True, slots=True)
class Scores:
    """The figures of one resource of one trace. Amounts are cores or bytes, hours of them `..._hours`.

    `slack_percent`: of what was reserved, the part that was not used. `throttled_percent`: of the time, with demand
    above the limit. `unmet_percent`: of the demand, the part above the limit. `oom_episodes`: unbroken stretches with
    demand above the limit, the first sample included; `oom_kills`: restarts in them, one a minute at most. `resizes`:
    changes of the limit between scored samples. `days`: scored, without samples that have no demand.
    `late_frames_percent`: of the time with frames, the share in which they take more than 33.3 ms for lack of CPU
    alone; None where frame times are not known.
    """

    days: float
    slack_percent: float
    throttled_percent: float
    unmet_percent: float
    oom_per_day: float
    resizes_per_day: float
    oom_episodes: int
    oom_kills: int
    resizes: int
    slack_hours: float
    reserved_hours: float
    late_frames_percent: float | None = None


def score(
    demand: Values,
    limit: Values,
    step_s: float,
    unscored: int = 0,
    *,
    kills: bool = True,
    frames_ms: Values | None = None,
) -> Scores:
    """Score `limit`, in force during each sample of `demand`; both of one length, samples of `step_s` seconds.

    The first `unscored` samples do not count. `kills`: whether demand above the limit ends the container, as it does
    for memory and not for CPU. `frames_ms`: what a frame takes with all the CPU that is wanted. Where demand is not
    known (NaN) nothing is scored but a resize. Raises `ValueError` if nothing is left.
    """
    demand, limit = demand[unscored:], limit[unscored:]
    resizes = int(changed(limit).sum())
    known = np.isfinite(demand)
    if not known.any():
        raise ValueError("no sample is left to be scored")
    over = lacking(demand, limit, kills=True) if kills else np.zeros(len(demand), np.bool_)
    began = over & ~np.concatenate(([False], over[:-1]))
    wanted, given = demand[known], limit[known]
    used = np.minimum(wanted, given)
    days = len(wanted) * step_s / _DAY_S
    hours = step_s / 3600
    return Scores(
        days=days,
        slack_percent=_percent(float((given - used).sum()), float(given.sum())),
        throttled_percent=_percent(int(lacking(wanted, given, kills=False).sum()), len(wanted)),
        unmet_percent=_percent(float(np.maximum(wanted - given, 0).sum()), float(wanted.sum())),
        oom_per_day=int(began.sum()) / days,
        resizes_per_day=resizes / days,
        oom_episodes=int(began.sum()),
        oom_kills=_kills(np.flatnonzero(over), step_s),
        resizes=resizes,
        slack_hours=float((given - used).sum()) * hours,
        reserved_hours=float(given.sum()) * hours,
        late_frames_percent=None if frames_ms is None else _late(frames_ms[unscored:][known], wanted, given),
    )


def changed(limit: Values) -> NDArray[np.bool_]:
    """Whether each limit but the first differs from the one before, as a resize."""
    return np.asarray(np.abs(np.diff(limit)) > _CHANGE * limit[:-1])


def lacking(demand: Values, limit: Values, *, kills: bool) -> NDArray[np.bool_]:
    """Where demand is above the limit, so that it `kills`, or throttles; not where it is not known."""
    return np.asarray(demand > (limit if kills else limit * (1 + _ROUNDING)))


def _late(frames_ms: Values, wanted: Values, given: Values) -> float | None:
    """A frame takes as much longer as more CPU is wanted than given. One that is late anyway is nobody's fault."""
    drawn = np.isfinite(frames_ms)
    if not drawn.any():
        return None
    at_best = frames_ms[drawn]
    short = lacking(wanted[drawn], given[drawn], kills=False)
    late = short & (at_best <= _LATE_MS) & (at_best * np.fmax(1, wanted[drawn] / given[drawn]) > _LATE_MS)
    return _percent(int(late.sum()), len(late))


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def _kills(over: NDArray[np.intp], step_s: float) -> int:
    """Of samples that are too much, those that kill: who has just been killed is not there to be killed again."""
    if step_s >= _RESTART_S:
        return len(over)
    count, back_at = 0, 0.0
    for at_s in (over * step_s).tolist():
        if at_s >= back_at:
            count, back_at = count + 1, at_s + _RESTART_S
    return count


def mean(scores: list[Scores]) -> Scores:
    """The macro mean: every trace of which a figure is known counts once, however long it is. Counts are sums. Raises
    `ValueError` for none."""
    if not scores:
        raise ValueError("there is nothing to take the mean of")
    made: dict[str, Any] = {}
    for one in fields(Scores):
        known = [value for each in scores if (value := getattr(each, one.name)) is not None]
        whole = sum(known)
        made[one.name] = whole if one.type == "int" else whole / len(known) if known else None
    return Scores(**made)


def gap_closed(reserved: float, of_vpa: float, of_oracle: float) -> float | None:
    """Of what the oracle saves over VPA, the share that was saved: 1 is the oracle, 0 VPA; None where there is nothing
    to save. Of the sums of limits, memory alone: who starves CPU reserves less than the demand."""
    return None if of_vpa <= of_oracle else (of_vpa - reserved) / (of_vpa - of_oracle)
