"""A scenario and a seed, made into the demand of a bridge, second by second. docs/scenarios.md describes both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.scenarios.catalog import SCENARIOS
from autoscaler.scenarios.draws import Draws
from autoscaler.scenarios.elementary import Floats
from autoscaler.scenarios.frames import frames
from autoscaler.scenarios.gpu import gpu
from autoscaler.scenarios.heap import Heap, garbage, leak
from autoscaler.scenarios.lifecycle import Life, lives, process
from autoscaler.scenarios.noise import cpu_noise, memory_noise
from autoscaler.scenarios.ranges import OCCASIONS, PARAMETERS
from autoscaler.scenarios.scenario import Scenario
from autoscaler.scenarios.scenes import Table, Transition, scenery, table, transitions
from autoscaler.scenarios.sessions import Connection, most_users, presence, visits
from autoscaler.scenarios.storms import Cut, connections, cuts, try_cores
from autoscaler.traces.trace import Column, Event, EventKind, Trace

PAGE = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What a bridge would use, second by second, and why.

    phase_cores: shape (seconds,), the part of CPU that boots, compiles or loads: it is not dropped under a limit, but
    takes longer (limits.py). base_bytes: memory that the process never falls below. most: users at a time.
    """

    trace: Trace
    draws: Draws
    runs: tuple[Life, ...]
    cuts: tuple[Cut, ...]
    connections: tuple[Connection, ...]
    scenes: Table
    transitions: tuple[Transition, ...]
    stalls: tuple[tuple[int, int], ...]
    collections_s: tuple[int, ...]
    phase_cores: Floats
    base_bytes: float
    most: int


def generate(name: str, seed: int, seconds: int | None = None) -> Trace:
    """The trace of a scenario of the catalog, `seconds` long (None: as long as the scenario).

    The same arguments give the same bytes on every machine, and a longer trace begins with the shorter one. Raises
    `KeyError` for an unknown name, `ValueError` for fewer than two seconds or a negative seed.
    """
    return compose(SCENARIOS[name], seed, seconds).trace


def compose(scenario: Scenario, seed: int, seconds: int | None = None, kills_s: Sequence[int] = ()) -> Demand:
    """The demand of a scenario. kills_s: seconds in which the process is killed, and starts anew, beside the restarts
    of the scenario; they change nothing ahead of them. Raises `ValueError` for fewer than two seconds or a negative
    seed.
    """
    length = scenario.seconds if seconds is None else seconds
    if length < 2 or seed < 0:
        raise ValueError("a scenario has two seconds or more, and a seed of 0 or more")
    draws = Draws(scenario.name, seed, {**PARAMETERS, **OCCASIONS, **scenario.ranges})
    ready = scenario.starts_ready
    most = most_users(scenario.crowds, draws)

    restarts_s = sorted({*scenario.restarts_s, *kills_s})
    runs = lives(draws, restarts_s, length, starts_ready=ready)
    bare = process(draws, runs, length)

    cut = cuts(draws, scenario.storms_s, runs)
    connected, tries = connections(draws, visits(scenario.crowds, draws, runs[0].ready_s, length), cut)
    there = presence(connected, length)

    scenes = table(draws, one_scene=scenario.one_scene)
    changes = transitions(draws, scenes, runs, there.users, starts_ready=ready)
    seen = scenery(scenes, runs, changes, length, starts_ready=ready)
    on_gpu = gpu(draws, scenes, runs, changes, there.surfaces, most, starts_ready=ready)
    drawn = frames(draws, seen.work, there.users, on_gpu.stalls)

    nothing = np.zeros(length)
    heap = garbage(draws, runs, there.users) if scenario.collects else Heap(nothing, nothing, ())
    leaked = leak(draws, runs, there.users) if scenario.leaks else nothing
    cpu_factor = 1 + cpu_noise(draws, length) if scenario.noisy else nothing + 1
    memory_factor = 1 + memory_noise(draws, length) if scenario.noisy else nothing + 1

    phases = bare.start_cores + seen.load_cores
    cpu = bare.base_cores + drawn.cores + there.join_cores + try_cores(tries, length) + heap.cores + phases
    memory = (bare.memory + there.memory + seen.memory + heap.memory + leaked) * memory_factor
    trace = Trace.of(
        f"{scenario.name}-{seed}",
        1,
        {
            Column.CPU: np.round(np.maximum(cpu * cpu_factor, 0), 5),
            Column.MEMORY: np.ceil(np.maximum(memory, bare.base_bytes) / PAGE) * PAGE,
            Column.GPU_MEMORY: on_gpu.memory,
            Column.SESSIONS: there.users,
            Column.FRAME_TIME: np.round(drawn.time_ms, 2),
        },
        _events(scenario, runs, cut, changes, heap, there.users.tolist()),
    )
    return Demand(
        trace,
        draws,
        runs,
        tuple(cut),
        tuple(connected),
        scenes,
        tuple(changes),
        on_gpu.stalls,
        heap.collections_s,
        phases * cpu_factor,
        bare.base_bytes,
        most,
    )


def _events(
    scenario: Scenario,
    runs: Sequence[Life],
    cut: Sequence[Cut],
    changes: Sequence[Transition],
    heap: Heap,
    users: Sequence[int],
) -> list[Event]:
    happened = [] if scenario.starts_ready else [(0, EventKind.START)]
    for change in changes:
        steps = [(change.drops_s, EventKind.SCENE_DROP)] if change.old is not None else []
        if change.new is not None:
            steps += [(change.loads_s, EventKind.SCENE_LOAD), (change.ready_s, EventKind.SCENE_READY)]
        happened += [step for step in steps if step[0] < change.ends_s]
    happened += [(each.at_s, EventKind.RESTART if each.restarts else EventKind.STORM) for each in cut]
    happened += [(at_s, EventKind.GC) for at_s in heap.collections_s]
    cut_s = {each.at_s for each in cut}
    left = [at_s for at_s in range(1, len(users)) if not users[at_s] and users[at_s - 1] and at_s not in cut_s]
    happened += [(at_s, EventKind.IDLE) for at_s in left]
    order = list(EventKind)
    first: dict[int, EventKind] = {}
    for at_s, kind in sorted(happened, key=lambda one: (one[0], order.index(one[1]))):
        if at_s < len(users):
            first.setdefault(at_s, kind)
    return [Event(at_s, kind) for at_s, kind in first.items()]
