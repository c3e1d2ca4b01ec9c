"""The maximum of a sliding window, exactly, in little room: only samples that no later one exceeds are kept. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Peaks = tuple[tuple[int, float], ...]
"""When (unix seconds) and how much; ascending in time, descending in amount."""


def pushed(peaks: Peaks, fresh: Iterable[tuple[int, float]], since: int) -> Peaks:
    """With further samples, later ones, of which those up to `since` have left the window."""
    kept = [*peaks]
    for at, value in fresh:
        while kept and kept[-1][1] <= value:
            kept.pop()
        kept.append((at, value))
    first = next((index for index, (at, _) in enumerate(kept) if at > since), len(kept))
    return tuple(kept[first:])


def within(peaks: Peaks, since: int) -> float | None:
    """The maximum after an instant; None without a sample."""
    return next((value for at, value in peaks if at > since), None)
