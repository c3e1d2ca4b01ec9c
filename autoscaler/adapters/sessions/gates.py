"""What the answer to a drain gate says: a number of live sessions, or why none is known. Pure.

Nothing but a number counts. 0 is no sessions; what cannot be read is not taken for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from autoscaler.adapters.prometheus.answers import Series
from autoscaler.adapters.prometheus.layout import whose
from autoscaler.core.foreign import shown
from autoscaler.core.model import PodRef

MOST_BYTES = 4096  # of a pod's answer
_SHOWN = 60  # letters of an answer


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look at a pod's sessions found. `sessions` None: it is not known how many, and `detail` says why.

    `kind`: the same in a word, which stays while only numbers change.
    """

    sessions: float | None
    detail: str
    kind: str

    @classmethod
    def unknown(cls, kind: str, detail: str) -> Reading:
        return cls(None, f"not known: {detail}", kind)


class _Object(msgspec.Struct):
    sessions: float


_NUMBER = msgspec.json.Decoder(float | _Object)


def of_number(number: float, source: str) -> Reading:
    """A number of sessions, if it can be one."""
    if not math.isfinite(number) or number < 0:
        return Reading.unknown("not a number", f"{source} says {number:g}, which is no number of sessions")
    if not number:
        return Reading(0, "no sessions", "none")
    return Reading(number, f"{number:.15g} session{'' if number == 1 else 's'}", "some")


def of_answer(status: int, body: bytes, source: str) -> Reading:
    """A pod's answer to GET. `body`: of an answer that is too long, more than `MOST_BYTES` of it."""
    if status == 204:
        return of_number(0, source)
    if status != 200:
        return Reading.unknown(f"HTTP {status}", f"{source} answered HTTP {status}")
    if len(body) > MOST_BYTES:
        return Reading.unknown("too long", f"{source} answered with more than {MOST_BYTES >> 10} KiB")
    try:
        found = _NUMBER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        start = shown(body[:_SHOWN].decode(errors="replace"))
        return Reading.unknown("unreadable", f'{source} answered {start}; expected 3 or {{"sessions": 3}}')
    return of_number(found.sessions if isinstance(found, _Object) else found, source)


def of_series(
    series: Iterable[Series], namespace: str, pods: Iterable[str], source: str, *, namespaced: bool
) -> dict[PodRef, Reading]:
    """The answer to a query for these pods. Of several series of a pod the greatest counts, if all are numbers.

    `namespaced`: the query was for this namespace alone, so that series need not say which they are of.
    """
    found: dict[str, list[float]] = {}
    homeless = False
    for one in series:
        names, _ = whose(one.labels)
        home = names.namespace or (namespace if namespaced else "")
        homeless = homeless or not home
        if home == namespace and len(one.values):
            found.setdefault(names.pod, []).append(float(one.values[-1]))
    return {PodRef(namespace, pod): _greatest(found.get(pod, ()), source, homeless) for pod in pods}


def _greatest(values: Sequence[float], source: str, homeless: bool) -> Reading:
    if not values:
        remedy = "; its series have no label namespace: write by (namespace, pod)" if homeless else ""
        return Reading.unknown("no series", f"the query has no series for this pod in {source}{remedy}")
    readings = [of_number(value, source) for value in values]
    return max(readings, key=lambda one: math.inf if one.sessions is None else one.sessions)
