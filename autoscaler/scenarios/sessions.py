"""Users: when they mean to come and go, and what those who are connected take."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.scenarios.draws import Draws
from autoscaler.scenarios.elementary import Floats
from autoscaler.scenarios.ranges import MIB
from autoscaler.scenarios.scenario import Arrivals, Held, Profile

NEVER = 1 << 40
_WOBBLE_S = 600  # mean time between changes of a class by one
_LAST_S = 60  # within which the last of them leave
_CROWD = 100_000  # numbers of users that a crowd has to itself
_DAY_H = 24


class Visit(NamedTuple):
    """A user, from the first join to the last leave, if nothing cuts the connection in between."""

    number: int  # its own in the scenario, for draws
    from_s: int
    until_s: int


class Connection(NamedTuple):
    """A time of being connected, from `joins_s` to before `leaves_s`. What it took of the host's memory is released at
    `released_s`, of the GPU's at `freed_s`."""

    joins_s: int
    leaves_s: int
    released_s: int
    freed_s: int
    join_s: int
    join_cores: float
    memory: float


class Presence(NamedTuple):
    """Those who are connected, shape (seconds,): how many; what their joins cost in cores; their host memory in bytes;
    for how many of them the GPU holds surfaces."""

    users: NDArray[np.int64]
    join_cores: Floats
    memory: Floats
    surfaces: NDArray[np.int64]


def most_users(crowds: Sequence[Held | Arrivals], draws: Draws) -> int:
    """How many users there may be at a time."""
    held = [crowd.count + crowd.wobbles for crowd in crowds if isinstance(crowd, Held) and crowd.count is not None]
    return max(held) if len(held) == len(crowds) else draws.whole("sessions.most")


def visits(crowds: Sequence[Held | Arrivals], draws: Draws, ready_s: int, seconds: int) -> list[Visit]:
    """Who means to come in `seconds`. Nobody comes before the process is ready for the first time."""
    most, found = most_users(crowds, draws), list[Visit]()
    for place, crowd in enumerate(crowds):
        first = place * _CROWD
        if isinstance(crowd, Held):
            users = most if crowd.count is None else crowd.count
            found += _held(crowd, users, draws, first, max(crowd.from_s, ready_s), seconds)
        else:
            found += _arrivals(crowd, most, draws, first, ready_s, seconds)
    return found


def _held(crowd: Held, users: int, draws: Draws, first: int, from_s: int, seconds: int) -> list[Visit]:
    within_s = draws.whole("sessions.step_s", first) if crowd.within_s is None else crowd.within_s
    come = np.floor(within_s * draws.stream("sessions.step").uniforms(first, users)).astype(np.int64)
    go = np.floor(within_s * draws.stream("sessions.step_back").uniforms(first, users)).astype(np.int64)
    until = [NEVER if crowd.until_s is None else crowd.until_s + int(after) for after in go]
    found = [Visit(first + place, from_s + int(come[place]), until[place]) for place in range(users)]
    if crowd.wobbles:
        _wobble(found, users, draws, first, from_s + within_s, seconds)
    return found


def _wobble(found: list[Visit], users: int, draws: Draws, first: int, from_s: int, seconds: int) -> None:
    """Let one more come or one leave now and then; the one who leaves is the one who came first."""
    ups = draws.stream("sessions.wobble_up")
    level, gone, at_s = users, 0, from_s
    for number in count(first):
        at_s += 1 + int(_WOBBLE_S * draws.stream("sessions.wobble").exponentials(number, 1)[0])
        if at_s >= seconds:
            return
        if level < users or (level == users and ups.uniforms(number, 1)[0] < 0.5):
            found.append(Visit(first + len(found), at_s, NEVER))
            level += 1
        else:
            found[gone] = found[gone]._replace(until_s=at_s)
            level, gone = level - 1, gone + 1


def _arrivals(crowd: Arrivals, most: int, draws: Draws, first: int, ready_s: int, seconds: int) -> list[Visit]:
    end_s = min(seconds, crowd.until_s or seconds)
    mean_s = 3600 / draws.nth("sessions.per_hour")
    times: list[float] = [float(crowd.from_s)] if crowd.first_at_once else []
    batch, begun, last = 256, 0, float(crowd.from_s)
    while last < end_s:
        gaps = mean_s * draws.stream("sessions.arrival").exponentials(first + begun, batch)
        times += np.cumsum([last, *gaps])[1:].tolist()
        begun, last = begun + batch, times[-1]
    chosen = draws.stream("sessions.thinning").uniforms(first, len(times))
    stays = draws.each("sessions.stay_s", len(times), first=first)
    early = np.floor(_LAST_S * draws.stream("sessions.last").uniforms(first, len(times)))
    found = list[Visit]()
    for place, time in enumerate(times):
        from_s = int(time)
        if from_s >= end_s or from_s < ready_s or chosen[place] >= _share(crowd.profile, time):
            continue
        if sum(visit.until_s > from_s for visit in found) >= most:
            continue
        until_s = from_s + round(stays[place])
        if crowd.until_s is not None:
            until_s = min(until_s, crowd.until_s - int(early[place]))
        if until_s > from_s:
            found.append(Visit(first + place, from_s, until_s))
    return found


def _share(profile: Profile, second: float) -> float:
    hour = second / 3600 % _DAY_H
    before = profile[0]
    for after in profile:
        if after[0] > hour:
            return before[1] + (after[1] - before[1]) * (hour - before[0]) / (after[0] - before[0])
        before = after
    return before[1]


def presence(connections: Sequence[Connection], seconds: int) -> Presence:
    """What these connections come to."""
    users, surfaces = np.zeros(seconds, np.int64), np.zeros(seconds, np.int64)
    join_cores, memory = np.zeros(seconds), np.zeros(seconds)
    for one in connections:
        users[one.joins_s : one.leaves_s] += 1
        surfaces[one.joins_s : one.freed_s] += 1
        join_cores[one.joins_s : min(one.joins_s + one.join_s, one.leaves_s)] += one.join_cores
        memory[one.joins_s : one.released_s] += one.memory
    return Presence(users, join_cores, memory, surfaces)


def memory_of(draws: Draws, number: int) -> float:
    """Bytes of the host that a user takes while connected, in whole pages, so that sums are exact."""
    return round(draws.nth("sessions.memory_mib", number) * MIB / 4096) * 4096.0
