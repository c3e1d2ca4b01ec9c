"""How much CPU `bridge` finds needed: the level, what so many users took, and how a size grows that is used up. Pure.

Under a limit usage never exceeds it: a container that is starved looks like one that has just enough. So what was used
says how much is enough only as long as it has not reached the size; from there on the size grows by a factor, again and
again, until it is no longer reached. Then usage can be believed again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Samples, Signal, Situation
from autoscaler.recommenders.blocks import BLOCK_S, Fading, Peaks, count_of, greatest_since, in_blocks
from autoscaler.recommenders.bridge_parameters import CpuParameters
from autoscaler.recommenders.lowering import REMEMBERED
from autoscaler.recommenders.usage import MOST, known
from autoscaler.recommenders.week import Week

SESSIONS, FRAME_TIME = "sessions", "frameTime"
"""A policy's own signals that are read where it defines them: how many users there are, and how long a frame takes."""

LEAST = 0.01
"""Cores: the least target. The kernel takes no quota below 1 ms, which is 10m of a period of 100 ms: a smaller limit
would not bind (kubernetes, pkg/kubelet/cm/helpers_linux.go, MinQuotaPeriod)."""

_MOST_USAGE = MOST[Resource.CPU]
_THROTTLED, _PRESSURE = Signal.THROTTLED, Signal.CPU_PRESSURE  # an enumeration is slow to look things up in
_IN_A_ROW = 5  # throttled samples, beyond which growth no longer grows
_LATELY_S = 60  # samples may be closer than that, and each of them throttled by a hitch
_NOT_FALLING = 0.9  # of a share of throttled periods one sample ago
_LANDS_S = 10  # after it was asked for a size is in force, as a rule: a second or two, and more on busy nodes
_MOST_USED = 0.8  # of a size, from which on waiting is a matter of the size
_MOST_LONGER = 1000.0  # than before a frame takes; a query may answer anything
_FRAMES = 12  # samples before the newest, whose frames are what frames take otherwise
_CROWDS = 16  # from 16,384 users on all are alike


class Block(NamedTuple):
    """What the samples of one block, or of a part of it, say: the highest usage in cores, whether the container was
    throttled, the crowd (`crowd_of`) of the newest sample, -1 where that is not known, and what each crowd took."""

    number: int
    peak: float
    throttled: bool = False
    crowd: int = -1
    took: tuple[tuple[int, float], ...] = ()


class CpuPast(NamedTuple):
    """The past of one container's CPU, in cores.

    `block`: the running one; `peak`: the highest in it; `throttled`: whether it was; `before`: of complete blocks, as
    many as matter; `needs`: at the ends of complete blocks since it was last throttled. `took`: the most that each
    crowd took, by its number; `crowd`: the newest that is known, `crowd_block`: when. `week`: empty where it does not
    count.
    """

    block: int = -1
    peak: float = 0.0
    throttled: bool = False
    before: Peaks = ()
    needs: tuple[float, ...] = ()
    took: tuple[Fading, ...] = ()
    crowd: int = -1
    crowd_block: int = -1
    week: Week = Week()


NO_CPU = CpuPast()


class Reached(NamedTuple):
    """A size that is used up: by how much it is to grow, and how that is known."""

    growth: float
    because: str


class Taken(NamedTuple):
    """What a crowd as large as the one that is there, or a smaller one, has taken, in cores."""

    cores: float
    crowd: int
    blocks_ago: int


NONE_TAKEN = Taken(0.0, 0, 0)


def crowd_of(users: float) -> int:
    """The number of a crowd: 0 for nobody, 1 for one user, 2 for two or three, 3 for four to seven, and so on; -1 for
    what is no number of users."""
    if not 0 <= users < math.inf:  # NaN compares false
        return -1
    return min(int(users).bit_length(), _CROWDS - 1)


def crowd_name(crowd: int) -> str:
    """How many users a crowd has: `4-7`."""
    if crowd < 2:
        return f"{crowd}"
    least = 1 << (crowd - 1)
    return f"{least} or more" if crowd == _CROWDS - 1 else f"{least}-{2 * least - 1}"


class CpuNeeds:
    """The rule, with its parameters."""

    def __init__(self, params: CpuParameters) -> None:
        self._params = params
        self._window = count_of(params.window)
        self._half_life = in_blocks(params.sessions_half_life)

    def blocks_of(self, samples: Samples) -> tuple[Sequence[Block], int]:
        """What samples say, block by block, ascending in time; and how many of them have usage."""
        if len(samples) == 1:  # what a turn has to fold
            usage = samples.cpu.item()
            if not 0 <= usage <= _MOST_USAGE:  # NaN compares false
                return (), 0
            number, signals = (samples.end_at.item() - 1) // BLOCK_S, samples.signals
            throttled, users = signals.get(_THROTTLED), signals.get(SESSIONS)
            was = throttled is not None and throttled.item() > self._params.throttled
            if users is None or (crowd := crowd_of(users.item())) < 0:
                return (Block(number, usage, was),), 1
            return (Block(number, usage, was, crowd, ((crowd, usage),)),), 1
        there = known(samples.cpu, Resource.CPU)
        samples = samples.each(lambda values: values[there])
        if not len(samples):
            return (), 0
        block = (samples.end_at - 1) // BLOCK_S
        first = np.flatnonzero(np.diff(block, prepend=block[0] - 1))
        peaks = np.maximum.reduceat(samples.cpu, first).tolist()
        was_throttled = samples.signal(_THROTTLED) > self._params.throttled
        found = list(map(Block, block[first].tolist(), peaks, np.logical_or.reduceat(was_throttled, first).tolist()))
        if SESSIONS in samples.signals:
            users = samples.signals[SESSIONS].tolist()
            ends = [*first[1:].tolist(), len(samples)]
            parts = (zip(users[a:b], samples.cpu[a:b].tolist(), strict=True) for a, b in zip(first, ends, strict=True))
            found = [_crowded(one, part) for one, part in zip(found, parts, strict=True)]
        return found, len(samples)

    def seen(self, past: CpuPast, fresh: Block) -> CpuPast:
        """The past with one more block, or a further part of the running one. Older blocks are ignored."""
        block, peak, throttled, crowd, fresh_took = fresh
        if block < past.block:
            return past
        before, needs, took = past.before, past.needs, past.took
        if block == past.block:
            peak, throttled = max(peak, past.peak), throttled or past.throttled
        elif past.block >= 0:
            before = (*before, (past.block, past.peak))[-self._window :]
            if not past.throttled:
                needs = (*needs, self.need(self.level(past), self.taken(past).cores, self.usual(past)))[-REMEMBERED:]
        if throttled:
            needs = ()
        if fresh_took:
            took = self._took(took, block, fresh_took)
        week = past.week.seen(((block, fresh.peak),)) if self._params.usual else past.week
        if crowd < 0:
            return CpuPast(block, peak, throttled, before, needs, took, past.crowd, past.crowd_block, week)
        return CpuPast(block, peak, throttled, before, needs, took, crowd, block, week)

    def all_seen(self, past: CpuPast, fresh: Sequence[Block]) -> CpuPast:
        """The past with many blocks, ascending in time. Older ones than the running one are ignored."""
        if len(fresh) > 1:
            fresh = [block for block in fresh if block.number >= past.block]
        if len(fresh) > (matter := REMEMBERED + self._window + 1):
            took, week = past.took, past.week
            far = fresh[:-matter]
            for block in far:
                if block.took:
                    took = self._took(took, block.number, block.took)
            if self._params.usual:
                week = week.seen([block[:2] for block in far])
            past, fresh = NO_CPU._replace(took=took, week=week), fresh[-matter:]
        for block in fresh:
            past = self.seen(past, block)
        return past

    def _took(self, took: tuple[Fading, ...], block: int, fresh: Iterable[tuple[int, float]]) -> tuple[Fading, ...]:
        for crowd, usage in fresh:
            if crowd >= len(took):
                took = (*took, *[Fading()] * (crowd - len(took)), Fading(usage, block))
            elif usage >= took[crowd].at(block, self._half_life):
                took = (*took[:crowd], Fading(usage, block), *took[crowd + 1 :])
        return took

    def level(self, past: CpuPast) -> float:
        """The highest usage of the window that ends with the running block."""
        return greatest_since(past.before, past.peak, past.block - self._window + 1)

    def taken(self, past: CpuPast) -> Taken:
        """What so many users have taken as there are now, or fewer of them."""
        if past.crowd < 0 or past.crowd_block <= past.block - self._window:
            return NONE_TAKEN
        block, half_life = past.block, self._half_life
        most = NONE_TAKEN
        for crowd, took in enumerate(past.took[: past.crowd + 1]):
            if (cores := took.at(block, half_life)) > most.cores:
                most = Taken(cores, crowd, block - took.block)
        return most

    def usual(self, past: CpuPast) -> float:
        """What is expected in this block and the next one, by what was used at that time of other days."""
        factor, week, block = self._params.usual, past.week, past.block
        return max(week.usual(block), week.usual(block + 1)) * factor if factor else 0.0

    def need(self, level: float, *expected: float) -> float:
        """What is enough for a level of usage, and for what is expected besides."""
        return max(level * (1 + self._params.margin), LEAST, *expected)

    def reached(self, situation: Situation, size: float, limit: float | None) -> Reached | None:
        """Whether the newest sample has used up the size, or its container has been throttled at it.

        `size`: cores that are promised, `limit`: cores above which it is throttled; None: it is not.
        """
        params, recent, sample_s = self._params, situation.recent, situation.sample_s
        used = recent.cpu.item(-1)
        throttled = recent.signals.get(_THROTTLED)
        if limit is not None and throttled is not None and throttled.item(-1) > params.throttled:
            share = throttled[-max(_IN_A_ROW, _LATELY_S // sample_s) :].tolist()
            count = max(1, _LATELY_S // max(sample_s, situation.rate_window_s))
            lately = [one for one in share[-count:] if one == one]
            falls = len(share) > 1 and share[-1] < _NOT_FALLING * share[-2]
            goes_on = not falls and _since_resized(situation, throttled, params.throttled)
            if goes_on and sum(lately) > params.throttled * len(lately):
                growth = params.growth * params.hurry ** (self._in_a_row(share, situation) - 1)
                longer = _longer(recent, params.throttled)
                if longer > 1 + growth:
                    return Reached(longer - 1, f"throttled, and frames take {longer:.1f} times as long as before")
                return Reached(growth, f"throttled in {share[-1]:.0%} of the time")
        line = size if limit is None else min(size, limit)
        if used > line * (1 - params.reached):
            return Reached(params.growth, f"{used / line:.0%} of the size is used")
        if not used > _MOST_USED * line or (throttled is not None and throttled.item(-1) <= params.throttled):
            return None  # what it waits for is not its own limit
        pressure = recent.signals.get(_PRESSURE)
        waits = pressure is not None and pressure.item(-1) > params.pressure
        if pressure is not None and waits and _since_resized(situation, pressure, params.pressure):
            return Reached(params.growth, f"some task waited for {pressure.item(-1):.0%} of the time")
        if (longer := _longer(recent, params.throttled)) > 1 + params.frames:
            return Reached(params.growth, f"frames take {longer:.1f} times as long as before")
        return None

    def _in_a_row(self, share: Sequence[float], situation: Situation) -> int:
        """How many of the newest samples were throttled; of rates over longer than a sample, which show each burst many
        times, as many minutes, or samples, as were throttled in the window."""
        if (window_s := situation.rate_window_s) > situation.sample_s:
            return min(max(round(share[-1] * window_s / max(_LATELY_S, situation.sample_s)), 1), _IN_A_ROW)
        row = [*reversed(share[-_IN_A_ROW:])]
        return next((n for n, one in enumerate(row) if not one > self._params.throttled), len(row))


def newest_is_known(recent: Samples) -> bool:
    """Whether the newest sample has CPU."""
    return len(recent) > 0 and math.isfinite(recent.cpu.item(-1))


def _since_resized(situation: Situation, share: NDArray[np.float32], least: float) -> bool:
    """Whether the newest sample of a share of time, which is above `least`, says so of the time since the pod was last
    resized: rates show for the whole of their window what is over, as high as before.

    What was known when a size was asked for led to it, and counts no more until the window lies behind that. What came
    on top counts before, but for as much as the time until the new size was in force may have added.
    """
    if not situation.resized_at:
        return True
    end_at, window_s, lands_at = situation.recent.end_at, situation.rate_window_s, situation.resized_at + _LANDS_S
    if end_at.item(-1) - window_s >= lands_at:
        return True
    known = int(end_at.searchsorted(situation.resized_at, side="right"))
    if not known:
        return False
    before, newest = share.item(known - 1), share.item(-1)
    if before <= least:
        return True
    meanwhile_s: int = max(0, lands_at - end_at.item(known - 1))
    return window_s * (newest - before) > window_s * least + meanwhile_s  # false if one of them is not known


def _crowded(block: Block, part: Iterable[tuple[float, float]]) -> Block:
    """The block with what its samples, (users, cores), say of crowds."""
    newest, took = -1, dict[int, float]()
    for users, cores in part:
        if (crowd := crowd_of(users)) >= 0:
            newest = crowd
            took[crowd] = max(cores, took.get(crowd, 0.0))
    return block._replace(crowd=newest, took=tuple(took.items()))


def _longer(recent: Samples, throttled: float) -> float:
    """How many times as long as the longest of the last samples before it, but for those that were throttled, a frame
    takes in the newest; 0 where that is not known."""
    frames = recent.signals.get(FRAME_TIME)
    if frames is None:
        return 0.0
    before = frames[-1 - _FRAMES : -1]
    calm = before[(before > 0) & ~(recent.signal(_THROTTLED)[-1 - _FRAMES : -1] > throttled)]
    newest = frames[-1].item()
    return min(newest / float(calm.max()), _MOST_LONGER) if len(calm) and math.isfinite(newest) else 0.0
