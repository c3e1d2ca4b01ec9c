"""Connections: what becomes of users when all are cut at once, by the network or by a restart, and all come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoscaler.scenarios.draws import Draws
from autoscaler.scenarios.elementary import Floats
from autoscaler.scenarios.lifecycle import Life
from autoscaler.scenarios.sessions import NEVER, Connection, Visit, memory_of

_TRIES = 8  # the last of them, 256 s later, succeeds
_SUCCEEDS = 0.35
_USERS = 1_000_000  # numbers of users that a cut has to itself, for draws


class Cut(NamedTuple):
    """All connections end at `at_s`, and none begins before `back_s`. restarts: the process is down until then, and has
    forgotten them; else it holds their memory for a while, and its tries to come back cost it something."""

    at_s: int
    back_s: int
    restarts: bool


class Try(NamedTuple):
    """A client's try to come back, which takes `cores` for a second."""

    at_s: float
    cores: float


def cuts(draws: Draws, storms_s: Sequence[int], runs: Sequence[Life]) -> list[Cut]:
    """Storms and restarts, in the order of time. A storm while the process is down is none."""
    found = [Cut(life.starts_s, life.ready_s, True) for life in runs[1:]]
    for number, at_s in enumerate(storms_s):
        if any(life.up(at_s) for life in runs):
            found.append(Cut(at_s, at_s + draws.whole("storms.outage_s", number), False))
    return sorted(found)


def connections(draws: Draws, users: Sequence[Visit], cut: Sequence[Cut]) -> tuple[list[Connection], list[Try]]:
    """How the visits come out, and the tries of those who come back with exponential back-off."""
    found, tries = list[Connection](), list[Try]()
    for user in users:
        made, tried = _connected(draws, user, cut)
        found += made
        tries += tried
    return found, tries


def try_cores(tries: Sequence[Try], seconds: int) -> Floats:
    """What tries cost, shape (seconds,)."""
    cores = np.zeros(seconds + 2)
    for one in tries:
        second = int(one.at_s)
        if second < seconds:
            late = one.at_s - second
            cores[second] += (1 - late) * one.cores
            cores[second + 1] += late * one.cores
    return cores[:seconds]


def _connected(draws: Draws, user: Visit, cut: Sequence[Cut]) -> tuple[list[Connection], list[Try]]:
    linger_s = draws.whole("sessions.linger_s", user.number)
    takes = (
        draws.whole("sessions.join_s", user.number),
        draws.nth("sessions.join_cores", user.number),
        memory_of(draws, user.number),
    )
    found, tries = list[Connection](), list[Try]()
    joins_s = user.from_s
    for number, each in enumerate(cut):
        if each.back_s <= joins_s or user.until_s <= each.at_s:
            continue
        again_s, tried = _back(draws, number, each, user)
        tries += tried
        if joins_s < each.at_s:
            released_s = each.at_s + draws.whole("storms.release_s", number * _USERS + user.number)
            freed_s = again_s if again_s < user.until_s else each.at_s + linger_s
            found.append(Connection(joins_s, each.at_s, released_s, freed_s, *takes))
        joins_s = again_s
    if joins_s < user.until_s:
        found.append(Connection(joins_s, user.until_s, user.until_s, user.until_s + linger_s, *takes))
    restarts = [each.at_s for each in cut if each.restarts]
    return [_forgotten(one, restarts) for one in found], tries


def _back(draws: Draws, number: int, cut: Cut, user: Visit) -> tuple[int, list[Try]]:
    """The second in which a user is connected again, `NEVER` if the visit is over by then; and the tries."""
    first = (number * _USERS + user.number) * _TRIES
    waits = draws.stream("storms.wait").uniforms(first, _TRIES)
    luck = draws.stream("storms.luck").uniforms(first, _TRIES)
    cores = draws.each("storms.try_cores", _TRIES, first=first)
    tries = list[Try]()
    for place in range(_TRIES):
        at_s = cut.at_s + 2.0 ** (place + 1) + float(waits[place])
        if at_s >= user.until_s:
            break
        heard = at_s >= cut.back_s
        if heard or not cut.restarts:
            tries.append(Try(at_s, float(cores[place])))
        if heard and (luck[place] < _SUCCEEDS or place == _TRIES - 1):
            return int(at_s) + 1, tries
    return NEVER, tries


def _forgotten(one: Connection, restarts: Sequence[int]) -> Connection:
    end_s = min((at_s for at_s in restarts if at_s > one.joins_s), default=NEVER)
    return one._replace(released_s=min(one.released_s, end_s), freed_s=min(one.freed_s, end_s))
