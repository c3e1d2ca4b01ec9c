"""Scenes: which one is resident, and what moving from one to the next takes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.scenarios.draws import Draws
from autoscaler.scenarios.elementary import Floats
from autoscaler.scenarios.lifecycle import Life, slope
from autoscaler.scenarios.ranges import GIB
from autoscaler.scenarios.sessions import NEVER

_RESIDUE_CHANCE = 0.2


class Transition(NamedTuple):
    """From one scene to the next, or to none.

    The new one loads from `loads_s`, both are there from `ready_s`, the old one leaves from `drops_s` and has left by
    `done_s`; all cut off at `ends_s`, when the process ends. before, peak, after: host memory of scenes, in bytes.
    """

    number: int
    loads_s: int
    ready_s: int
    drops_s: int
    done_s: int
    ends_s: int
    old: int | None
    new: int | None
    before: float
    peak: float
    after: float
    cores: float


class Table(NamedTuple):
    """The scenes of a seed, shape (scenes,): host memory and GPU memory in bytes, work in multiples of the usual."""

    memory: Floats
    gpu_memory: Floats
    work: Floats


def table(draws: Draws, *, one_scene: bool) -> Table:
    """The scenes that there are."""
    count = 1 if one_scene else draws.whole("scenes.count")
    memory, gpu = (draws.each(what, count) * GIB for what in ("scenes.memory_gib", "gpu.scene_gib"))
    return Table(memory, gpu, draws.each("scenes.work", count))


class _Quiet:
    """When somebody is connected, and for how long nobody is."""

    def __init__(self, users: NDArray[np.int64]) -> None:
        self._busy = np.flatnonzero(users)
        padded = np.concatenate(([False], users == 0, [False]))
        edges = np.flatnonzero(padded[1:] != padded[:-1])
        self._begins, self._ends = edges[::2].tolist(), edges[1::2].tolist()

    def busy_from(self, at_s: int) -> int:
        """The first second from `at_s` on with a user."""
        place = int(np.searchsorted(self._busy, at_s))
        return int(self._busy[place]) if place < len(self._busy) else NEVER

    def idle_from(self, at_s: int, for_s: int) -> int:
        """The first second from `at_s` on by which nobody has been there for `for_s` since `at_s`."""
        for place in range(bisect_left(self._ends, at_s), len(self._ends)):
            due_s: int = max(self._begins[place], at_s) + for_s
            if due_s <= self._ends[place]:
                return due_s
        return NEVER


def transitions(
    draws: Draws, scenes: Table, runs: Sequence[Life], users: NDArray[np.int64], *, starts_ready: bool
) -> list[Transition]:
    """Every transition, in the order of time. A scene is loaded when somebody is there to see it, and dropped when
    nobody has been for a while."""
    found, quiet = list[Transition](), _Quiet(users)
    for place, life in enumerate(runs):
        resident = starts_ready and not place
        _live(draws, scenes, life, quiet, found, 0 if resident else None)
    return found


def _live(draws: Draws, scenes: Table, life: Life, quiet: _Quiet, found: list[Transition], scene: int | None) -> None:
    from_s, residue = life.ready_s, 0.0
    level = 0.0 if scene is None else float(scenes.memory[scene])
    while True:
        number = len(found)
        stay_s = draws.whole("scenes.stay_s", number) if len(scenes.memory) > 1 else NEVER
        idle_s = quiet.idle_from(from_s, draws.whole("scenes.idle_s", number)) if scene is not None else NEVER
        loads_s = quiet.busy_from(from_s if scene is None else from_s + stay_s)
        if min(idle_s, loads_s) >= life.ends_s:
            return
        drop_s = draws.whole("scenes.drop_s", number)
        if scene is not None and idle_s <= loads_s:
            after = float(scenes.memory[scene]) * draws.nth("scenes.cached", number) + residue
            times = (idle_s, idle_s, idle_s, idle_s + drop_s, life.ends_s)
            found.append(Transition(number, *times, scene, None, level, level, after, 0.0))
            scene, level = None, after
        else:
            ready_s = loads_s + draws.whole("scenes.load_s", number)
            drops_s = ready_s + draws.whole("scenes.overlap_s", number)
            new = _next(draws, number, scene, len(scenes.memory))
            memory = float(scenes.memory[new])
            peak = level + memory * (1 + draws.nth("scenes.staging", number))
            if scene is not None and draws.stream("scenes.residue_chance").uniforms(number, 1)[0] < _RESIDUE_CHANCE:
                residue += draws.nth("scenes.residue", number) * float(scenes.memory[scene])
            times = (loads_s, ready_s, drops_s, drops_s + drop_s, life.ends_s)
            cores = draws.nth("scenes.load_cores", number)
            found.append(Transition(number, *times, scene, new, level, peak, memory + residue, cores))
            scene, level = new, memory + residue
        from_s = found[-1].done_s


def _next(draws: Draws, number: int, scene: int | None, count: int) -> int:
    others = [each for each in range(count) if each != scene]
    return others[int(len(others) * draws.stream("scenes.choice").uniforms(number, 1)[0])]


class Scenery(NamedTuple):
    """Shape (seconds,): host memory of scenes in bytes, cores that loading takes, work factor of the scene in view."""

    memory: Floats
    load_cores: Floats
    work: Floats


def scenery(
    scenes: Table, runs: Sequence[Life], changes: Sequence[Transition], seconds: int, *, starts_ready: bool
) -> Scenery:
    """What the transitions come to."""
    memory, load_cores, work = np.zeros(seconds), np.zeros(seconds), np.zeros(seconds)
    if starts_ready:
        memory[: runs[0].ends_s], work[: runs[0].ends_s] = scenes.memory[0], scenes.work[0]
    for change in changes:
        here, shown = memory[: change.ends_s], work[: change.ends_s]
        slope(here, change.loads_s, change.ready_s, change.before, change.peak)
        here[change.ready_s : change.drops_s] = change.peak
        slope(here, change.drops_s, change.done_s, change.peak, change.after)
        here[change.done_s :] = change.after
        shown[change.ready_s :] = 0 if change.new is None else scenes.work[change.new]
        loading = load_cores[change.loads_s : min(change.ready_s, change.ends_s)]
        loading[:] = change.cores * (1 - np.arange(len(loading)) / max(change.ready_s - change.loads_s, 1))
    return Scenery(memory, load_cores, work)
