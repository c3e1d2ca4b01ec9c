"""What demand becomes when it depends on what was decided: the closed loop. Pure but for its own memory.

CPU: work that was not done is done later, on top of what is recorded there. What would take longer than five minutes
at the limit in force is given up, as users would. Memory: who is killed is away for as long as a kubelet waits before
it starts a container again, and wants nothing meanwhile; then the recording goes on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

PATIENCE_S = 300.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 10.0, 300.0  # the kubelet's back-off; the first restart is at once
_FORGOTTEN_S = 600.0  # of running, after which it begins anew


class Backlog:
    """CPU: the core-seconds that are still to be done."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._left = 0.0

    def want(self, recorded: Values, limit: float) -> Values:
        """Cores wanted in each of the next steps under a limit in cores; blank where nothing is recorded."""
        wanted = np.empty(len(recorded))
        for index, cores in enumerate(recorded.tolist()):
            if cores != cores:
                wanted[index] = cores
                continue
            wanted[index] = total = cores + self._left / self._step_s
            self._left = min(max(total - limit, 0.0) * self._step_s, PATIENCE_S * limit)
        return wanted


class Restarts:
    """Memory: a container that is killed, and when it is back."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._away = 0  # steps
        self._wait_s = 0.0
        self._ran_s = 0.0

    def want(self, recorded: Values, limit: float) -> Values:
        """Bytes wanted in each of the next steps under a limit in bytes; blank where nothing is recorded."""
        wanted = recorded.copy()
        for index, amount in enumerate(recorded.tolist()):
            if self._away:
                self._away -= 1
                wanted[index] = 0.0 if amount == amount else amount
                continue
            self._ran_s += self._step_s
            if self._ran_s >= _FORGOTTEN_S:
                self._wait_s = 0.0
            if amount > limit:
                self._away = round(self._wait_s / self._step_s)
                self._wait_s = min(max(2 * self._wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S)
                self._ran_s = 0.0
        return wanted
