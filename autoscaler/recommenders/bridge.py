"""`bridge`, the default: sizes pods whose need changes within minutes, as in-place resizing allows.

Four ideas, each of which can be read from the explanation of every answer. CPU that is used up says nothing of how
much is wanted, so the size grows until it is no longer reached (`bridge_cpu`). What was used at the same time on most
days is expected (`week`). Memory gets as much room as it has been seen to need at once (`bridge_memory`). And a size
is raised at once, but lowered only when holding it has cost as much as a change is worth (`lowering`). All is derived
from samples and from what is in force: after a restart of the controller the answers are the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, NamedTuple

from autoscaler.core.bounds import HIGHEST
from autoscaler.core.model import Resource
from autoscaler.core.recommender import Abstain, Recommender, Samples, Signal, Situation, Step, Target
from autoscaler.recommenders.blocks import BLOCK_S, seen
from autoscaler.recommenders.bridge_cpu import (
    FRAME_TIME,
    NO_CPU,
    SESSIONS,
    CpuNeeds,
    CpuPast,
    crowd_name,
    newest_is_known,
)
from autoscaler.recommenders.bridge_memory import NO_MEMORY, MemoryNeeds, MemoryPast
from autoscaler.recommenders.bridge_parameters import BridgeParameters, LoweringParameters
from autoscaler.recommenders.kills import killed_with
from autoscaler.recommenders.lowering import REMEMBERED, excess
from autoscaler.recommenders.parameters import format_duration
from autoscaler.recommenders.usage import SCALE, amount, span
from autoscaler.recommenders.week import DAYS, MOST_DAYS

_MORE = 0.03  # than a size has to be known to be needed before it is raised without being used up
_FULL = 0.9  # of a memory size, from which on waiting for memory is a matter of the size
_CPU, _MEMORY = Resource.CPU, Resource.MEMORY


class Folded(NamedTuple):
    """The past of one container. `cpu_s`, `memory_s`: seconds that all samples of each stand for."""

    cpu: CpuPast = NO_CPU
    memory: MemoryPast = NO_MEMORY
    cpu_s: int = 0
    memory_s: int = 0


class Bridge(Recommender[Folded]):
    """Recommends the size in force until more is needed, or it has been too much for long enough."""

    name: ClassVar[str] = "bridge"
    Parameters: ClassVar[type[Any]] = BridgeParameters
    params: BridgeParameters

    def __init__(self, params: BridgeParameters) -> None:
        super().__init__(params)
        self._cpu = CpuNeeds(params.cpu)
        self._memory = MemoryNeeds(params.memory)
        self._min_s = int(params.min_history.total_seconds())
        self._margin_because = f"margin {params.cpu.margin:.0%}"
        share = "" if params.cpu.usual == 1 else f"{params.cpu.usual:.0%} of what was "
        self._usual_because = f"{share}used about this time of day on {MOST_DAYS} of the last {DAYS} days"
        self._level_because = f"highest of {format_duration(params.cpu.window)}"

    @property
    def signals(self) -> frozenset[str]:
        measured = (Signal.THROTTLED, Signal.CPU_PRESSURE, Signal.MEMORY_PRESSURE, Signal.MEMORY_LIMIT)
        return self.optional_signals.union(measured)

    @property
    def optional_signals(self) -> frozenset[str]:
        return frozenset({SESSIONS, FRAME_TIME})

    @property
    def fold_key(self) -> Hashable:
        cpu, memory = self.params.cpu, self.params.memory
        of_cpu = (cpu.window, cpu.margin, cpu.throttled, cpu.sessions_half_life, cpu.usual)
        reads = (memory.window, memory.margin, memory.rises, memory.rise_within)
        fades = (memory.rise_half_life, memory.beyond, memory.highest_half_life)
        return (self.name, *of_cpu, *reads, *fades, memory.newcomer, memory.newcomer_half_life)

    def for_gpu_memory(self) -> Bridge:
        return Bridge(self.params.model_copy(update={"memory": self.params.gpu_memory}))

    def start(self) -> Folded:
        return Folded()

    def fold(self, state: Folded, samples: Samples, block_s: int) -> Folded:
        cpu, memory, cpu_s, memory_s = state
        blocks, known = self._cpu.blocks_of(samples)
        of_memory = seen(_MEMORY, samples.end_at, samples.memory)
        return Folded(
            self._cpu.all_seen(cpu, blocks),
            self._memory.all_seen(memory, of_memory.peaks),
            cpu_s + block_s * known,
            memory_s + block_s * of_memory.samples,
        )

    def recommend(self, state: Folded, situation: Situation) -> Target | Abstain:
        if len(situation.open):
            state = self.fold(state, situation.open, situation.sample_s)
        if state.cpu.block < 0 and state.memory.block < 0:
            return Abstain("no sample yet", insufficient_history=True)
        now_s = int(situation.now.timestamp())
        cpu, cpu_trail = self._cpu_target(state, situation, now_s)
        memory, memory_trail = self._memory_target(state, situation, now_s)
        return Target(cpu, memory, (*cpu_trail, *memory_trail))

    def _cpu_target(self, state: Folded, situation: Situation, now_s: int) -> tuple[float | None, list[Step]]:
        past, params = state.cpu, self.params.cpu
        if past.block < 0:
            return None, [Step(_CPU, "usage", None, None, "no sample yet")]
        level, taken = self._cpu.level(past), self._cpu.taken(past)
        need = self._cpu.need(level)
        asked = amount(_CPU, level)
        trail = [Step(_CPU, "usage", None, asked, self._level_because)]
        trail.append(Step(_CPU, "margin", asked, amount(_CPU, need), self._margin_because))
        expected = False
        if taken.cores > need:
            ago = f"{span(taken.blocks_ago * BLOCK_S)} ago, fading"
            because = f"{crowd_name(taken.crowd)} users took up to so much {ago}"
            trail.append(Step(_CPU, "sessions", amount(_CPU, need), amount(_CPU, taken.cores), because))
            need, expected = taken.cores, True
        if (usual := self._cpu.usual(past)) > need:
            trail.append(Step(_CPU, "usual", amount(_CPU, need), amount(_CPU, usual), self._usual_because))
            need, expected = usual, True
        size, limit = _in_force(situation, _CPU)
        if size is None:
            return _most(_CPU, need, trail)
        reached = None
        if newest_is_known(situation.recent):
            reached = self._cpu.reached(situation, size, limit)
        if reached is not None:
            grown = max(need, min(size * (1 + reached.growth), params.most * level))
            if grown > need:
                because = f"{reached.because}: more may be wanted than is seen, {reached.growth:+.0%}"
                trail.append(Step(_CPU, "reached", amount(_CPU, need), amount(_CPU, grown), because))
            if grown > size:
                return _most(_CPU, grown, trail)
            trail.append(_kept(_CPU, grown, size, f"{reached.because}, but most of it is not used"))
            return size, trail
        if expected and need > size * (1 + _MORE):
            return _most(_CPU, need, trail)
        if need > size:
            trail.append(_kept(_CPU, need, size, "the size has not been used up"))
            return size, trail
        if past.throttled and need < size * (1 - params.lowering.dead_band):
            trail.append(_kept(_CPU, need, size, "it has been throttled in the last five minutes"))
            return size, trail
        return self._lowered(_CPU, size, need, need, state.cpu_s, past, now_s, params.lowering, trail)

    def _memory_target(self, state: Folded, situation: Situation, now_s: int) -> tuple[float | None, list[Step]]:
        past, params = state.memory, self.params.memory
        if past.block < 0:
            return None, [Step(_MEMORY, "usage", None, None, "no sample yet")]
        found = self._memory.need(past)
        need = wanted = found.total
        trail = self._memory.trail(past, found)
        size, _ = _in_force(situation, _MEMORY)
        kill = self._kill(situation, size, past, now_s)
        if kill is not None and kill[0] > wanted:
            trail.append(Step(_MEMORY, "oomKill", amount(_MEMORY, wanted), amount(_MEMORY, kill[0]), kill[1]))
            wanted = kill[0]
        if size is None or wanted > size * (1 + params.dead_band):
            return _most(_MEMORY, wanted, trail)
        if wanted > size:
            trail.append(_kept(_MEMORY, wanted, size, f"less than {params.dead_band:.1%} more"))
            return size, trail
        return self._lowered(_MEMORY, size, need, wanted, state.memory_s, past, now_s, params.lowering, trail)

    def _kill(self, situation: Situation, size: float | None, past: MemoryPast, now_s: int) -> tuple[float, str] | None:
        """What a kill shows to be needed, as long as it is new, or a container that waits for memory instead."""
        params = self.params.memory
        killed = killed_with(situation)
        if killed is not None and now_s - killed[0] < params.kill_hold.total_seconds():
            return killed[1] * (1 + params.kill), (
                f"killed for lack of memory {span(now_s - killed[0])} ago, {params.kill:+.0%}"
            )
        if size is None or not len(situation.recent) or past.peak < _FULL * size:
            return None
        waiting = float(situation.recent.signal(Signal.MEMORY_PRESSURE)[-1])
        if not waiting > params.pressure:
            return None
        return past.peak * (1 + params.kill), f"some task waited for memory for {waiting:.0%} of the time"

    def _lowered(
        self,
        resource: Resource,
        size: float,
        need: float,
        wanted: float,
        seen_s: int,
        past: CpuPast | MemoryPast,
        now_s: int,
        params: LoweringParameters,
        trail: list[Step],
    ) -> tuple[float, list[Step]]:
        """What is wanted if it pays to lower the size to it; else the size."""
        if wanted >= size * (1 - params.dead_band):
            if wanted != size:
                trail.append(_kept(resource, wanted, size, f"less than {params.dead_band:.0%} too much"))
            return size, trail
        if seen_s < self._min_s:
            because = f"{span(seen_s)} of {format_duration(self.params.min_history)} of samples"
            trail.append(_kept(resource, wanted, size, because))
            return size, trail
        running_s = min(max(now_s - past.block * BLOCK_S, 0), BLOCK_S)
        cost_s = params.change_cost.total_seconds()
        held = excess(size, need, running_s, past.needs, params.settle, cost_s)
        words = f"too much in the last {span(held.for_s)}: worth {held.worth_s / 60:.0f}m of the whole size"
        if held.worth_s < cost_s and held.for_s < REMEMBERED * BLOCK_S:
            trail.append(_kept(resource, wanted, size, f"{words}, a change is worth {span(cost_s)}"))
            return size, trail
        lowered = amount(resource, wanted)
        trail.append(Step(resource, "lowered", lowered, lowered, words))
        return _most(resource, wanted, trail)


def _in_force(situation: Situation, resource: Resource) -> tuple[float | None, float | None]:
    """The request and the limit in force, in cores or bytes."""
    size, limit = situation.in_force.requests.get(resource), situation.in_force.limits.get(resource)
    scale = SCALE[resource]
    return (size / scale if size else None), (limit / scale if limit else None)


def _kept(resource: Resource, wanted: float, size: float, because: str) -> Step:
    return Step(resource, "kept", amount(resource, wanted), amount(resource, size), because)


def _most(resource: Resource, wanted: float, trail: list[Step]) -> tuple[float, list[Step]]:
    """What is wanted, but no more than any container has."""
    most = HIGHEST[resource] / SCALE[resource]
    if wanted <= most:
        return wanted, trail
    trail.append(Step(resource, "most", amount(resource, wanted), HIGHEST[resource], "no container has more", cap=True))
    return most, trail
