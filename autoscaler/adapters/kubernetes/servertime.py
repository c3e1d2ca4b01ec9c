"""The API server's time, from the `Date` header of its answers and the local monotonic clock.

The local wall clock is never read: asks are dated by the server (`managedFields`), so ages must be told by its clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


class ServerTime:
    """An estimate that gets better with each answer.

    A `Date` header says in which second an answer was made, and the answer was made between sending and receiving: so
    each one bounds the offset from both sides, and the bounds are intersected. When they no longer meet (the server's
    clock was set, another server answers, ours drifts), the newest answer alone counts.
    """

    def __init__(self) -> None:
        self._low = self._high = 0.0
        self._known = False

    @property
    def known(self) -> bool:
        """Whether there has been an answer at all."""
        return self._known

    def note(self, date: str, sent_at: float, received_at: float) -> None:
        """Learn from one answer. Instants are readings of the monotonic clock, in seconds; a bad header is ignored."""
        try:
            second = parsedate_to_datetime(date).replace(tzinfo=UTC).timestamp()
        except ValueError:
            return
        low, high = second - received_at, second + 1 - sent_at
        if self._known and max(low, self._low) <= min(high, self._high):
            low, high = max(low, self._low), min(high, self._high)
        self._low, self._high, self._known = low, high, True

    def at(self, monotonic_s: float) -> datetime:
        """The server's time, aware UTC, at a reading of the monotonic clock; off by half a second at most."""
        return datetime.fromtimestamp(monotonic_s + (self._low + self._high) / 2, UTC)
