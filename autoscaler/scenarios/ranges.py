"""What is left to chance, and within which range.

Assumptions, chosen for plausibility and for the stress that they put on a vertical autoscaler. They are not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from autoscaler.scenarios.draws import LogNormal, Range, Uniform, Whole

MIB = 1024.0**2
GIB = 1024.0**3

# drawn once a seed
PARAMETERS: Mapping[str, Range] = MappingProxyType(
    {
        "frames.cost_ms": Uniform(4, 9),
        "frames.cost_per_session": Uniform(0.02, 0.08),
        "frames.encoder_cores": Uniform(0.03, 0.12),
        "frames.hitch_chance": Uniform(0.001, 0.01),
        "frames.idle_hz": Uniform(1, 10),
        "frames.simulation": Uniform(0.5, 2.5),
        "gpu.context_mib": Uniform(300, 700),
        "gpu.surfaces_mib": Uniform(60, 200),
        "heap.growth_mib": Uniform(0.2, 2),
        "heap.growth_per_session_mib": Uniform(0.2, 1),
        "heap.leak_mib_per_hour": Uniform(20, 400),
        "heap.trigger_gib": Uniform(0.4, 2),
        "lifecycle.base_cores": Uniform(0.10, 0.35),
        "lifecycle.base_gib": Uniform(1, 3),
        "scenes.count": Whole(3, 8),
        "sessions.most": Whole(4, 24),
        "sessions.per_hour": Uniform(2, 40),
    }
)

# drawn on each occasion: a start, a scene of the table, a transition, a join, a frame, a collection
OCCASIONS: Mapping[str, Range] = MappingProxyType(
    {
        "frames.hitch_factor": Uniform(3, 12),
        "gpu.scene_gib": LogNormal(6, 0.5, 1, 16),
        "gpu.stall_s": Whole(1, 4),
        "heap.collection_core_s": Uniform(0.5, 2),
        "lifecycle.boot_cores": Uniform(1, 2),
        "lifecycle.boot_s": Whole(10, 40),
        "lifecycle.compile_cold_s": Whole(30, 180),
        "lifecycle.compile_cores": Uniform(3, 8),
        "lifecycle.compile_peak": Uniform(1.3, 3),
        "lifecycle.compile_release_s": Whole(5, 30),
        "lifecycle.compile_warm_s": Whole(5, 20),
        "scenes.cached": Uniform(0.05, 0.3),
        "scenes.drop_s": Whole(1, 10),
        "scenes.idle_s": Whole(300, 1200),
        "scenes.load_cores": Uniform(1.5, 5),
        "scenes.load_s": Whole(5, 45),
        "scenes.memory_gib": LogNormal(3, 0.6, 0.5, 16),
        "scenes.overlap_s": Whole(2, 30),
        "scenes.residue": Uniform(0.02, 0.08),
        "scenes.residue_chance": Uniform(0, 1),
        "scenes.staging": Uniform(0.2, 0.8),
        "scenes.stay_s": LogNormal(480, 0.8, 60, 7200),
        "scenes.work": Uniform(0.5, 2),
        "sessions.join_cores": Uniform(0.4, 1.2),
        "sessions.join_s": Whole(2, 6),
        "sessions.linger_s": Whole(30, 300),
        "sessions.memory_mib": Uniform(60, 220),
        "sessions.step_s": Whole(5, 60),
        "sessions.stay_s": LogNormal(1500, 0.9, 30, 21_600),
        "storms.outage_s": Whole(3, 15),
        "storms.release_s": Whole(60, 180),
        "storms.try_cores": Uniform(0.2, 0.6),
    }
)
