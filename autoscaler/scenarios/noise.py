"""Noise, as a share of what it is added to."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from autoscaler.scenarios.draws import Draws
from autoscaler.scenarios.elementary import Floats

_CPU, _CPU_KEEPS = 0.03, 0.8
_MEMORY = 0.002


def cpu_noise(draws: Draws, seconds: int) -> Floats:
    """Of CPU, shape (seconds,): each second keeps most of the one before (AR(1)), sigma 3 %."""
    fresh = _CPU * float(np.sqrt(1 - _CPU_KEEPS**2)) * draws.stream("noise.cpu").normals(0, seconds)
    return np.array(list(accumulate(fresh.tolist(), lambda before, new: _CPU_KEEPS * before + new)))


def memory_noise(draws: Draws, seconds: int) -> Floats:
    """Of memory, shape (seconds,): each second by itself, sigma 0.2 %."""
    return _MEMORY * draws.stream("noise.memory").normals(0, seconds)
