"""The parameters of the recommender `bridge`: what each is for, and why its default is what it is.

The defaults were chosen by cross-validation over public traces and checked with all of them shaken by 10 % at once;
docs/adr has the figures. No default belongs to a trace.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from autoscaler.recommenders.blocks import BLOCK_S
from autoscaler.recommenders.lowering import REMEMBERED
from autoscaler.recommenders.parameters import Duration, Parameters, Ratio, bounded
from autoscaler.recommenders.week import DAYS

Window = Annotated[Duration, bounded(timedelta(seconds=BLOCK_S), timedelta(hours=6))]
HalfLife = Annotated[Duration, bounded(timedelta(minutes=10), timedelta(days=365))]
Cost = Annotated[Duration, bounded(timedelta(0), timedelta(seconds=REMEMBERED * BLOCK_S))]
Hold = Annotated[Duration, bounded(timedelta(0), timedelta(hours=2))]
Part = Annotated[Ratio, bounded(0.0, 0.9)]
Growth = Annotated[Ratio, bounded(0.01, 4.0)]


class LoweringParameters(Parameters):
    """When a size is lowered."""

    change_cost: Cost = Field(
        timedelta(minutes=4, seconds=30),
        description="What a change is worth, in time of holding the whole size for nothing. What was held too much has "
        "to add up to it before the size is lowered: half of a size for nothing, twice as long.",
    )
    dead_band: Part = Field(0.08, description="What is too much by less is left as it is.")
    settle: Part = Field(0.2, description="A need that grows by more than this in five minutes starts the count anew.")


class CpuParameters(Parameters):
    """How much CPU is needed."""

    window: Window = Field(
        timedelta(minutes=20),
        description="The level is the highest usage of so long. What was longer ago says little of the next minutes.",
    )
    margin: Ratio = Field(
        0.22,
        description="What is added to the level when a size is lowered to it. It is room to grow, and may be used.",
    )
    growth: Growth = Field(
        0.7,
        description="By how much a size grows that is used up. How much more is wanted cannot be seen: usage ends at "
        "the limit. Less throttles longer, more is given back later.",
    )
    hurry: Annotated[Ratio, bounded(1.0, 3.0)] = Field(
        1.5,
        description="By how much the growth itself grows with each sample in a row that is throttled; of rates over "
        "longer than a sample, with each minute of their window that was.",
    )
    reached: Part = Field(0.01, description="A size of which less than this is free is used up.")
    throttled: Part = Field(
        0.05,
        description="A size is used up as well where so many of the CFS periods of the last minute end at the limit.",
    )
    pressure: Part = Field(
        0.2,
        description="And where some task waits for a CPU for so much of the time, of a size of which most is used. "
        "Counts where throttling is not measured.",
    )
    frames: Annotated[Ratio, bounded(0.01, 10.0)] = Field(
        0.5,
        description="And where frames take so much longer than before, of a size of which most is used. Counts where "
        "throttling is not measured, and where the policy defines the signal `frameTime`.",
    )
    most: Annotated[Ratio, bounded(1.0, 10.0)] = Field(
        4.0, description="The most that a size which is used up may become, in times of the level."
    )
    sessions_half_life: HalfLife = Field(
        timedelta(hours=6),
        description="Age at which what so many users took counts half. Is read where the policy defines the signal "
        "`sessions`.",
    )
    usual: Annotated[Ratio, bounded(0.0, 2.0)] = Field(
        1.0,
        description="What was used at this time of day on six of the last seven days is expected again, times this. "
        "`0`: nothing is.",
    )
    lowering: LoweringParameters = Field(LoweringParameters(), description="When the size is lowered.")


class MemoryLoweringParameters(LoweringParameters):
    """When a memory size is lowered. A kill costs more than throttling, so what was needed is kept for longer."""

    change_cost: Cost = Field(timedelta(minutes=45), description="As that of CPU.")
    dead_band: Part = Field(0.05, description="As that of CPU.")
    settle: Part = Field(0.1, description="As that of CPU.")


class MemoryParameters(Parameters):
    """How much memory is needed."""

    window: Window = Field(timedelta(minutes=15), description="The level is the highest usage of so long.")
    margin: Ratio = Field(
        0.05,
        description="What stays free above the level in any case. Less than what creeping memory takes until the next "
        "resize costs a kill.",
    )
    rises: Annotated[Ratio, bounded(0.0, 5.0)] = Field(
        0.6, description="Room for a rise, in times of the largest that is remembered."
    )
    rise_within: Window = Field(timedelta(minutes=10), description="A rise is one within so long.")
    rise_half_life: HalfLife = Field(
        timedelta(days=7), description="Age at which a rise counts half. A job that runs once a week is remembered."
    )
    beyond: Ratio = Field(
        0.25, description="The room ends so much above the highest usage that is remembered: from a peak nothing rises."
    )
    highest_half_life: HalfLife = Field(timedelta(days=20), description="Age at which that highest usage counts half.")
    newcomer: Ratio = Field(
        0.1,
        description="Room for what has not been seen yet, as a share of the first sample. The first day is the "
        "dangerous one: no rise is known.",
    )
    newcomer_half_life: HalfLife = Field(timedelta(hours=6), description="Age at which that room is half.")
    kill: Growth = Field(0.2, description="By how much a limit grows at which the container was killed.")
    kill_hold: Hold = Field(timedelta(minutes=15), description="For how long; the rise itself is remembered longer.")
    pressure: Part = Field(
        0.1, description="Share of time in which some task waits for memory, from which a full size counts as a kill."
    )
    dead_band: Part = Field(0.03, description="A need that is more than the size by less is left alone.")
    lowering: MemoryLoweringParameters = Field(MemoryLoweringParameters(), description="When the size is lowered.")


class GpuLoweringParameters(MemoryLoweringParameters):
    """When a size of GPU memory would be lowered."""

    change_cost: Cost = Field(timedelta(minutes=12), description="As that of CPU.")


class GpuMemoryParameters(MemoryParameters):
    """How much GPU memory is needed. It lies on plateaus, as allocators keep what they have, and a step up is no sign
    of another one tomorrow: more room above the plateau, and rises are soon forgotten."""

    window: Window = Field(timedelta(hours=1), description="As of memory.")
    margin: Ratio = Field(0.2, description="As of memory.")
    rises: Annotated[Ratio, bounded(0.0, 5.0)] = Field(1.5, description="As of memory.")
    rise_within: Window = Field(timedelta(minutes=5), description="As of memory.")
    rise_half_life: HalfLife = Field(timedelta(minutes=45), description="As of memory.")
    beyond: Ratio = Field(0.05, description="As of memory.")
    highest_half_life: HalfLife = Field(timedelta(days=10), description="As of memory.")
    newcomer: Ratio = Field(0.3, description="As of memory.")
    lowering: GpuLoweringParameters = Field(GpuLoweringParameters(), description="When the size is lowered.")


class BridgeParameters(Parameters):
    """Parameters of the recommender `bridge`."""

    cpu: CpuParameters = Field(CpuParameters(), description="How much CPU is needed.")
    memory: MemoryParameters = Field(MemoryParameters(), description="How much memory is needed.")
    gpu_memory: GpuMemoryParameters = Field(
        GpuMemoryParameters(), description="How much GPU memory is needed, for back-tests: no pod's can be changed."
    )
    min_history: Hold = Field(
        timedelta(hours=1), description="Samples that must be there, in time, before anything is lowered."
    )

    def needs(self) -> timedelta:
        return self.min_history

    def remembers(self) -> timedelta:
        week = timedelta(days=DAYS + 1) if self.cpu.usual else timedelta(0)
        return max(2 * self.memory.rise_half_life, week)
