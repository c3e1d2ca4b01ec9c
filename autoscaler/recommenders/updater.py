"""When VPA's updater would change a size (VPA 1.7, pkg/updater/priority, every 60 s). Pure.

A size is changed where the request in force is outside the bounds or absent; where the container was killed for lack of
memory within minutes of its start and the target is another one; or where the pod is old and the target differs enough.
VPA adds up the differences of all containers of a pod and of both resources; here each is looked at by itself.
"""

from __future__ import annotations

import math
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Situation, Step
from autoscaler.recommenders.parameters import Duration, Parameters, Ratio, bounded, format_duration


class Updates(StrEnum):
    """When a size is changed."""

    WHEN_DUE = "WhenDue"
    ALWAYS = "Always"


class UpdateParameters(Parameters):
    """When the size in force is changed."""

    when: Updates = Field(
        Updates.WHEN_DUE,
        strict=False,
        description="`WhenDue`: when VPA's updater would. `Always`: whenever the target moves.",
    )
    min_age: Annotated[Duration, bounded(timedelta(0), timedelta(days=365))] = Field(
        timedelta(hours=12), description="Age of the pod from which on `minDifference` makes a change due."
    )
    min_difference: Ratio = Field(0.1, description="The difference that is enough for a pod of that age.")
    quick_oom: Annotated[Duration, bounded(timedelta(0), timedelta(days=1))] = Field(
        timedelta(minutes=10), description="An OOM kill after a shorter life makes a change due."
    )


def difference(target: int, in_force: int) -> float:
    """By how much of the size in force the target differs from it. Amounts in base units."""
    return abs(target - in_force) / max(in_force, 1)


def due(
    target: int, in_force: int | None, bounds: tuple[int, int], age_s: float, quick_oom: bool, rule: UpdateParameters
) -> str:
    """Why a change is due, in words; empty where it is not. Amounts in base units."""
    if in_force is None:
        return "no request yet"
    lower, upper = bounds
    if not lower <= in_force <= upper:
        return "below the lower bound" if in_force < lower else "above the upper bound"
    differs = difference(target, in_force)
    if quick_oom and differs:
        return f"killed for lack of memory within {format_duration(rule.quick_oom)} of its start"
    if age_s >= rule.min_age.total_seconds() and differs >= rule.min_difference:
        return f"differs by {differs:.0%}, pod older than {format_duration(rule.min_age)}"
    return ""


def settled(
    resource: Resource,
    target: int,
    bounds: tuple[int, int],
    situation: Situation,
    first_at: int,
    killed_at: tuple[int, int],
    rule: UpdateParameters,
) -> tuple[int, Step]:
    """The target, or the size in force where no change is due; and the step that says why. Amounts in base units.

    `first_at`: the first sample, from which the pod's age counts where it is not known. `killed_at`: when memory had
    reached its limit the last two times, for containers whose last end does not say when it had begun. Unix seconds.
    """
    in_force = situation.in_force.requests.get(resource)
    age_s = situation.now.timestamp() - (situation.own_from or first_at)
    because = due(target, in_force, bounds, age_s, _quick_oom(situation, first_at, killed_at, rule), rule)
    if because or in_force is None:
        return target, Step(resource, "updater", target, target, f"due: {because}")
    lower, upper = (resource.quantity(bound) for bound in bounds)
    because = f"no change due within {lower} to {upper}"
    return in_force, Step(resource, "updater", target, math.ceil(in_force), because, cap=True)


def _quick_oom(situation: Situation, first_at: int, killed_at: tuple[int, int], rule: UpdateParameters) -> bool:
    kill, ended = situation.oom_kill, situation.last_terminated
    if kill is None or ended is None:
        return False
    at = kill.finished_at.timestamp()
    if ended.started_at is not None:
        began = ended.started_at.timestamp()
    else:
        began = next((float(one) for one in reversed(killed_at) if 0 < one < at - situation.sample_s / 2), first_at)
    return at - began < rule.quick_oom.total_seconds()
