"""The scenarios, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from autoscaler.scenarios.draws import LogNormal, Uniform, Whole
from autoscaler.scenarios.scenario import Arrivals, Held, Scenario

_MINUTE, _HOUR = 60, 3600
_WORKDAY = Arrivals(
    profile=((0, 0), (7, 0), (9, 1), (12, 1), (12.25, 0.4), (12.75, 0.4), (13, 1), (17, 1), (19, 0), (24, 0))
)
_BUSY = Uniform(30, 30)  # arrivals per hour

_ALL = (
    Scenario(
        "steady-class",
        4 * _HOUR,
        "slack once warmed up; no flapping",
        "after 1 h at most 1 resize an hour; slack <= 35 %",
        (Held(12, from_s=4 * _MINUTE, within_s=_MINUTE, wobbles=True),),
        one_scene=True,
        collects=True,
        starts_ready=True,
    ),
    Scenario(
        "workday-ramp",
        24 * _HOUR,
        "shrink at night, grow in the morning without throttling",
        "throttled <= 1 % in hours 8 to 10; CPU size at night <= 40 % of the day's",
        (_WORKDAY,),
        {"sessions.per_hour": _BUSY},
    ),
    Scenario(
        "scene-hopper",
        3 * _HOUR,
        "peaks of memory of 2-30 s, two scenes side by side, that averages of 60 s hide",
        "no OOM kill once the largest scene was seen; no resize inside an overlap",
        (Held(4),),
        {"scenes.count": Whole(6, 6), "scenes.stay_s": LogNormal(180, 0.4, 60, 7200)},
    ),
    Scenario(
        "slow-leak",
        48 * _HOUR,
        "growth without end against a maximum",
        "steps grow with the leak; the maximum is kept; the size returns after the restart within the stated memory",
        (Held(6),),
        {"heap.leak_mib_per_hour": Uniform(150, 400)},
        one_scene=True,
        leaks=True,
        restarts_s=(36 * _HOUR,),
    ),
    Scenario(
        "gc-sawtooth",
        6 * _HOUR,
        "a saw must not be chased",
        "at most 2 resizes of memory after the second hour; the size follows the envelope",
        (Held(3),),
        {"heap.trigger_gib": Uniform(1, 2), "heap.period_s": Uniform(180, 600)},
        one_scene=True,
        collects=True,
    ),
    Scenario(
        "gpu-plateau",
        8 * _HOUR,
        "GPU memory as guard and signal, never resized",
        "GPUs are in no plan; CPU is not lowered beneath its floor for a GPU while a scene is resident",
        (Arrivals(),),
        {
            "gpu.scene_gib": LogNormal(6, 0.5, 4, 16),
            "scenes.work": Uniform(0.5, 0.7),
            "scenes.stay_s": Uniform(1200, 3600),
        },
    ),
    Scenario(
        "reconnect-storm",
        2 * _HOUR,
        "peaks of CPU, and memory of old and new sessions side by side",
        "up within 2 cycles; nothing lowered for 5 minutes; one resize in flight on a node",
        (Held(16),),
        one_scene=True,
        storms_s=(30 * _MINUTE, 60 * _MINUTE, 90 * _MINUTE),
    ),
    Scenario(
        "overnight-idle",
        20 * _HOUR,
        "floors, an idle scene that is dropped, waking up",
        "not below the floor; in the first minute frame times <= 33 ms in 80 % of the seconds, or the plan says why",
        (Arrivals(until_s=2 * _HOUR), Held(10, from_s=16 * _HOUR, within_s=_MINUTE)),
        {"sessions.most": Whole(10, 24)},
    ),
    Scenario(
        "cold-start",
        1 * _HOUR,
        "the peak of a start against what is needed afterwards",
        "the peak is not cut; nothing is lowered before it is ready and stable",
        (Arrivals(from_s=4 * _MINUTE, first_at_once=True),),
        one_scene=True,
    ),
    Scenario(
        "demo-step",
        2 * _HOUR,
        "one clean step up, and down",
        "the time until each resource reacts is reported",
        (Held(None, from_s=40 * _MINUTE, until_s=80 * _MINUTE, within_s=20),),
        one_scene=True,
    ),
    Scenario(
        "bad-day",
        24 * _HOUR,
        "everything together",
        "no resize on missing data; throttled <= 1 %, OOM kills <= 0.4 and resizes <= 24 a day",
        (_WORKDAY,),
        {"sessions.per_hour": _BUSY, "heap.leak_mib_per_hour": Uniform(200, 200)},
        collects=True,
        leaks=True,
        storms_s=(37_800, 54_000),
        gaps_s=((32_400, 3 * _MINUTE), (50_400, 25 * _MINUTE)),
    ),
)

SCENARIOS: Mapping[str, Scenario] = MappingProxyType({scenario.name: scenario for scenario in _ALL})
