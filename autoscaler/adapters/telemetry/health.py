"""When the controller counts as alive, and when as ready."""

from __future__ import annotations

from autoscaler.ports import Turn

LONGEST_TURN_S = 120.0
"""A turn that lasts longer is stuck: deciding about 10,000 pods takes a second, a patch has a timeout of 10 s."""


def stuck(what: str, busy_since_s: float | None, now_s: float, longest_s: float = LONGEST_TURN_S) -> str | None:
    """Why the controller is not alive, or None. `busy_since_s`: monotonic begin of what is running, if anything is.

    What hangs for ever is a plug-in: everything else has a timeout.
    """
    if busy_since_s is None or (lasted_s := now_s - busy_since_s) <= longest_s:
        return None
    return f"the running {what} has lasted {lasted_s:.0f} s: something in it does not return"


class Readiness:
    """A journal that knows whether there has been a turn that observed the cluster. Once ready, always ready."""

    def __init__(self) -> None:
        self._ready = False

    def record(self, turn: Turn) -> None:
        self._ready = self._ready or turn.plan is not None

    def unready(self) -> str | None:
        """Why the controller is not ready, or None."""
        return None if self._ready else "the cluster has not been observed yet"
