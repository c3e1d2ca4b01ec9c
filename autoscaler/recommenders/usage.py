"""Which samples are usage at all, and how amounts and spans are written in a trail. Pure."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.bounds import HIGHEST
from autoscaler.core.model import Resource
from autoscaler.core.units import Bytes, Millicores

LEAST_CPU, LEAST_MEMORY = Millicores(1), Bytes(1 << 20)
"""What is recommended at least, also for a container that uses nothing: a size of zero is none."""

SCALE = {Resource.CPU: 1000, Resource.MEMORY: 1}
"""From cores or bytes to the base unit of steps."""

_MEMORY = Resource.MEMORY  # an enumeration is slow to look things up in
_EXACT = 1 - 4e-16

MOST = {resource: most / SCALE[resource] for resource, most in HIGHEST.items()}
"""In cores or bytes: what is more is no usage."""


def known(usage: NDArray[np.float32], resource: Resource) -> NDArray[np.bool_]:
    """Where usage (cores, bytes) is known: what is NaN, negative, or more than any container has is missing."""
    return (usage >= 0) & (usage <= MOST[resource])  # NaN compares false


def amount(resource: Resource, value: float) -> int:
    """Cores or bytes in base units, rounded up, but not for 0.1 * 1000 being 100.00000000000001."""
    return math.ceil((value if resource is _MEMORY else 1000 * value) * _EXACT)


def span(seconds: float) -> str:
    """A length of time in a few letters, cut: `2.5d`, `3h`, `20m`."""
    for length, unit in ((86400, "d"), (3600, "h")):
        if seconds >= length:
            return f"{math.floor(10 * seconds / length) / 10:g}{unit}"
    return f"{int(seconds // 60)}m" if seconds >= 60 else f"{int(seconds)}s"
