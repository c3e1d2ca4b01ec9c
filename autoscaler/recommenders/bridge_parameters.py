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

Window = Annotated[Duration, bounded(timedelta(seconds=BLOCK_S), timedelta(hours=6))]
HalfLife = Annotated[Duration, bounded(timedelta(minutes=10), timedelta(days=365))]
Cost = Annotated[Duration, bounded(timedelta(0), timedelta(seconds=REMEMBERED * BLOCK_S))]
Hold = Annotated[Duration, bounded(timedelta(0), timedelta(hours=2))]
Part = Annotated[Ratio, bounded(0.0, 0.9)]
Growth = Annotated[Ratio, bounded(0.01, 4.0)]


class LoweringParameters(Parameters):
    """When a size is lowered."""

    change_cost: Cost = Field(
        timedelta(minutes=5),
        description="What a change is worth, in time of holding the whole size for nothing. What was held too much has "
        "to add up to it before the size is lowered: half of a size for nothing, twice as long.",
    )
    dead_band: Part = Field(0.06, description="What is too much by less is left as it is.")
    settle: Part = Field(0.05, description="A need that grows by more than this in five minutes starts the count anew.")


class CpuParameters(Parameters):
    """How much CPU is needed."""

    window: Window = Field(timedelta(minutes=29), description="The level is the highest usage of so long.")
    margin: Ratio = Field(0.21, description="What is added to the level when a size is lowered to it.")
    growth: Growth = Field(
        0.47,
        description="By how much a size grows that is used up. How much more is wanted cannot be seen: usage ends at "
        "the limit. Less throttles longer, more is given back later.",
    )
    hurry: Annotated[Ratio, bounded(1.0, 3.0)] = Field(
        1.58, description="By how much the growth itself grows with each sample in a row that is throttled."
    )
    reached: Part = Field(0.005, description="A size of which less than this is free is used up.")
    throttled: Part = Field(
        0.05, description="A size is used up as well where so many of the CFS periods end at the limit."
    )
    pressure: Part = Field(
        0.2, description="And where some task waits for so much of the time, of a size of which most is used."
    )
    most: Annotated[Ratio, bounded(1.0, 10.0)] = Field(
        4.0, description="The most that a size which is used up may become, in times of the level."
    )
    lowering: LoweringParameters = Field(LoweringParameters(), description="When the size is lowered.")


class MemoryParameters(Parameters):
    """How much memory is needed."""

    window: Window = Field(timedelta(minutes=10), description="The level is the highest usage of so long.")
    margin: Ratio = Field(0.04, description="What stays free above the level in any case.")
    rises: Annotated[Ratio, bounded(0.0, 5.0)] = Field(
        1.2, description="Room for a rise as large as the largest that is remembered, times this."
    )
    rise_within: Window = Field(timedelta(minutes=15), description="A rise is one within so long.")
    rise_half_life: HalfLife = Field(timedelta(hours=108), description="Age at which a rise counts half.")
    beyond: Ratio = Field(
        0.24, description="The room ends so much above the highest usage that is remembered: from a peak nothing rises."
    )
    highest_half_life: HalfLife = Field(timedelta(days=35), description="Age at which that highest usage counts half.")
    newcomer: Ratio = Field(
        0.08, description="Room for what has not been seen yet, as a share of the first sample. It fades."
    )
    newcomer_half_life: HalfLife = Field(timedelta(minutes=35), description="Age at which that room is half.")
    kill: Growth = Field(0.2, description="By how much a limit grows at which the container was killed.")
    kill_hold: Hold = Field(timedelta(minutes=15), description="For how long; the rise itself is remembered longer.")
    pressure: Part = Field(
        0.1, description="Share of time in which some task waits for memory, from which a full size counts as a kill."
    )
    dead_band: Part = Field(0.015, description="A need that is more than the size by less is left alone.")
    lowering: LoweringParameters = Field(LoweringParameters(), description="When the size is lowered.")


class BridgeParameters(Parameters):
    """Parameters of the recommender `bridge`."""

    cpu: CpuParameters = Field(CpuParameters(), description="How much CPU is needed.")
    memory: MemoryParameters = Field(MemoryParameters(), description="How much memory is needed.")
    min_history: Hold = Field(
        timedelta(hours=1), description="Samples that must be there, in time, before anything is lowered."
    )

    def needs(self) -> timedelta:
        return self.min_history

    def remembers(self) -> timedelta:
        return 3 * self.memory.rise_half_life
