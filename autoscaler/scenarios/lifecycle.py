"""Starts and restarts: boot, compile, ready; and what the bare process takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoscaler.scenarios.draws import Draws
from autoscaler.scenarios.elementary import Floats
from autoscaler.scenarios.ranges import GIB


class Life(NamedTuple):
    """One run of the process, from `starts_s` to before `ends_s`; ready from `ready_s` on, unless it ends earlier."""

    starts_s: int
    compiles_s: int
    ready_s: int
    ends_s: int
    boot_cores: float
    compile_cores: float
    peak: float  # of memory while it compiles, in multiples of its base
    release_s: int

    def up(self, at_s: int) -> bool:
        """Whether it is ready at this second."""
        return self.ready_s <= at_s < self.ends_s


def lives(draws: Draws, restarts_s: Sequence[int], seconds: int, *, starts_ready: bool) -> tuple[Life, ...]:
    """The runs of `seconds`. The first start finds its cache cold, later ones warm."""
    starts = [0, *(at for at in sorted(restarts_s) if at < seconds)]
    found = []
    for number, (starts_s, ends_s) in enumerate(zip(starts, [*starts[1:], seconds], strict=True)):
        boot_s = draws.whole("lifecycle.boot_s", number)
        compile_s = draws.whole(f"lifecycle.compile_{'warm' if number else 'cold'}_s", number)
        release_s = draws.whole("lifecycle.compile_release_s", number)
        if starts_ready and not number:
            boot_s = compile_s = release_s = 0
        compiles_s = starts_s + boot_s
        boot_cores, compile_cores, peak = (
            draws.nth(f"lifecycle.{what}", number) for what in ("boot_cores", "compile_cores", "compile_peak")
        )
        found.append(
            Life(starts_s, compiles_s, compiles_s + compile_s, ends_s, boot_cores, compile_cores, peak, release_s)
        )
    return tuple(found)


class Process(NamedTuple):
    """What the process takes by itself, shape (seconds,): `start_cores` to boot and compile, `base_cores` once it is
    ready; memory in bytes, of which it never has less than `base_bytes`."""

    start_cores: Floats
    base_cores: Floats
    memory: Floats
    base_bytes: float


def process(draws: Draws, runs: Sequence[Life], seconds: int) -> Process:
    """The bare process over time."""
    base_bytes = draws.nth("lifecycle.base_gib") * GIB
    start_cores, base_cores = np.zeros(seconds), np.zeros(seconds)
    memory = np.full(seconds, base_bytes)
    for life in runs:
        start_cores[life.starts_s : life.compiles_s] = life.boot_cores
        start_cores[life.compiles_s : life.ready_s] = life.compile_cores
        start_cores[life.ends_s :] = 0
        base_cores[life.ready_s : life.ends_s] = draws.nth("lifecycle.base_cores")
        most = base_bytes * life.peak
        slope(memory[: life.ends_s], life.compiles_s, life.ready_s, base_bytes, most)
        slope(memory[: life.ends_s], life.ready_s, life.ready_s + life.release_s, most, base_bytes)
    return Process(start_cores, base_cores, memory, base_bytes)


def slope(series: Floats, from_s: int, to_s: int, before: float, after: float) -> None:
    """Write a straight line into a series: `before` in the second ahead of `from_s`, `after` in the last before
    `to_s`."""
    part = series[from_s:to_s]
    part[:] = before + (after - before) * np.arange(1, len(part) + 1) / max(to_s - from_s, 1)
