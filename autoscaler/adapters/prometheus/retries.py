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
_LONGEST_PAUSE_S = 5.0  # there is another cycle
_FIRST_REST_S = 10.0
_LONGEST_REST_S = 60.0
_LONGEST_WANTED_S = 300.0  # in which a look-back grows by little


def retried(function: Callable[..., T], *args: object) -> T:
    """Call up to three times while the failure may pass, and no sooner than the server wants. What is too much at once
    is not repeated as it is."""
    for attempt in range(_RETRIES):
        try:
            return function(*args)
        except MetricsError as error:
            if not error.passing or error.too_much or error.pause_s > _LONGEST_PAUSE_S:
                raise
            wanted_s = error.pause_s
        time.sleep(max(wanted_s, _RETRY_PAUSE_S * 2**attempt * random.uniform(0.5, 1)))  # noqa: S311 (not a secret)
    return function(*args)


def rest_s(error: MetricsError, times: int) -> float:
    """For how many seconds a server is asked nothing that was too busy in so many cycles, one after the other: as long
    as it wants, five minutes at most; and from 10 s on twice as long each time, up to a minute."""
    return max(min(error.pause_s, _LONGEST_WANTED_S), min(_LONGEST_REST_S, _FIRST_REST_S * 2.0 ** min(times - 1, 8)))
