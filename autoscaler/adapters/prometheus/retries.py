"""Asking again where that may help."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from autoscaler.adapters.prometheus.answers import MetricsError

T = TypeVar("T")

_RETRIES = 2
_RETRY_PAUSE_S = 0.5


def retried(function: Callable[..., T], *args: object) -> T:
    """Call up to three times while the failure may pass. What is too much at once is not repeated as it is."""
    for attempt in range(_RETRIES):
        try:
            return function(*args)
        except MetricsError as error:
            if not error.passing or error.too_much:
                raise
        time.sleep(_RETRY_PAUSE_S * 2**attempt * random.uniform(0.5, 1))  # noqa: S311 (jitter, not a secret)
    return function(*args)
