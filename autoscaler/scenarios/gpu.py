"""GPU memory: a plateau that is tied to the scene, and a step a user. It has nothing to do with CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.scenarios.draws import Draws
from autoscaler.scenarios.elementary import Floats
from autoscaler.scenarios.lifecycle import Life
from autoscaler.scenarios.ranges import GIB, MIB
from autoscaler.scenarios.scenes import Table, Transition

CARD = 24 * GIB
UNIT = 2 * MIB


class Gpu(NamedTuple):
    """memory: bytes, shape (seconds,). stalls: (begin, end) of stretches in which no frame is drawn, since the
    old scene had to go before the new one fitted."""

    memory: Floats
    stalls: tuple[tuple[int, int], ...]


def gpu(
    draws: Draws,
    scenes: Table,
    runs: Sequence[Life],
    changes: Sequence[Transition],
    surfaces: NDArray[np.int64],
    most: int,
    *,
    starts_ready: bool,
) -> Gpu:
    """GPU memory of the process, in whole units of the allocator, which gives back nothing while a scene stays but what
    sessions leave."""
    context, surface = draws.nth("gpu.context_mib") * MIB, draws.nth("gpu.surfaces_mib") * MIB
    memory, resident = np.zeros(len(surfaces)), np.zeros(len(surfaces))
    for life in runs:
        memory[life.compiles_s : life.ends_s] = context
    if starts_ready:
        resident[: runs[0].ends_s] = scenes.gpu_memory[0]
    stalls = []
    for change in changes:
        here = resident[: change.ends_s]
        old = 0.0 if change.old is None else float(scenes.gpu_memory[change.old])
        new = 0.0 if change.new is None else float(scenes.gpu_memory[change.new])
        here[change.ready_s : change.drops_s] = old + new
        here[change.drops_s :] = new
        if context + old + new + most * surface > CARD:
            until_s = min(change.ready_s + draws.whole("gpu.stall_s", change.number), change.drops_s, change.ends_s)
            here[change.ready_s : until_s] = 0
            here[until_s : change.drops_s] = new
            if change.ready_s < until_s:
                stalls.append((change.ready_s, until_s))
    memory += resident
    # the cached surfaces of those who left serve those who come
    memory += np.minimum(surfaces, most) * surface
    return Gpu(np.ceil(memory / UNIT) * UNIT, tuple(stalls))
