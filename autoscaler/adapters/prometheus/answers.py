"""What Prometheus' HTTP API answers: decoded once, values into arrays; or that there was no answer.

https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # the last: nested beyond all reason
_OF_QUERIES = ("hang", "broken_off")
_OF_THE_WAY = (301, 302, 303, 307, 308, 401, 403, 404)  # answers of proxies, and of no query API
_SHOWN = 120  # letters of a query: what it is about, less the names of pods
_MOST_WORDS = 500  # letters of an error
_MOST_WARNINGS = 20
_TYPES = ("matrix", "vector", "scalar", "string")
_MOST = 2**53  # of what is counted: floats tell all whole numbers apart up to here

TIME = "time()"
"""The query for the server's clock."""


class MetricsError(Exception):
    """A query that was not answered. `status`: the HTTP status, None if there was no answer.

    `error_type`: Prometheus' own word (`bad_data`, `execution`, `timeout`, …), or one of ours: `connection`, `hang`,
    `broken_off`, `not_http`, `too_large`, `tls`, `address`, `credentials`, `html`, `not_json`, `empty`,
    `no_labels`. `text`: what is to be said, without the address. `pause_s`: for how long the server wants not to be
    asked again.
    """

    def __init__(self, status: int | None, error_type: str, text: str, pause_s: float = 0.0) -> None:
        super().__init__(status, error_type, text)
        self.status = status
        self.error_type = error_type
        self.text = text
        self.pause_s = pause_s

    def __str__(self) -> str:
        return self.text

    def about(self, query: str) -> MetricsError:
        """The same with the query named, if that may have to do with it: how a server is reached has not."""
        of_the_way = self.status in _OF_THE_WAY or self.error_type == "tls"
        if of_the_way or (self.status is None and self.error_type not in _OF_QUERIES):
            return self
        words = " ".join(query.split())
        shown = words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"
        what, semicolon, remedy = self.text.partition("; ")
        text = f"{what} (query: {shown}){semicolon}{remedy}"
        return MetricsError(self.status, self.error_type, text, self.pause_s)

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.status in (429, 499, 502, 503, 504) or self.error_type in ("connection", "broken_off", "canceled")

    @property
    def busy(self) -> bool:
        """Whether the server wants to be asked less, whatever the query."""
        return self.pause_s > 0 or (
            self.status in (429, 503) and not self.too_much and self.error_type not in ("canceled", "timeout")
        )

    @property
    def too_much(self) -> bool:
        """Whether a shorter range may succeed."""
        return (
            self.error_type in ("timeout", "too_large")
            or (self.status == 422 and "too many samples" in self.text)
            or (self.status == 400 and "exceeded maximum resolution" in self.text)
        )

    @property
    def refused(self) -> bool:
        """Whether Prometheus refuses the query for what it asks, alone or of its data."""
        return self.status in (400, 422) and self.error_type not in ("html", "not_json", "empty", "tls")

    @property
    def of_query(self) -> bool:
        """Whether the query itself may be at fault, so that others may well be answered."""
        return not self.passing or self.too_much


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One series of an answer: unix seconds and values, both float64; values may be NaN or infinite."""

    labels: Mapping[str, str]
    at: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Answer(Generic[T]):
    """What a query returned. `missing`: warnings which say that data is missing; remarks about the query are not."""

    result: T
    missing: tuple[str, ...] = ()


class _Envelope(msgspec.Struct, rename="camel"):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None
    is_partial: bool | None = None  # of VictoriaMetrics' cluster, which warns of nothing


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    values: msgspec.Raw = msgspec.Raw(b"[]")  # absent where there are only native histograms, which are no data here


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_DATA = msgspec.json.Decoder(_Data)
_SERIES = msgspec.json.Decoder(list[_Series])
# not strict: numbers come as strings, "NaN" and "-Inf" included
_PAIR = msgspec.json.Decoder(tuple[float, float], strict=False)
_PAIRS = msgspec.json.Decoder(list[tuple[float, float]], strict=False)


def foreign(text: str, most: int) -> str:
    """A server's text on one line, without what would command a terminal; and without "; ", after which messages have
    what to do: that is never a server's to say."""
    letters = (letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split()))
    return "".join(letters).replace("; ", ", ")[:most]


Shown = Callable[[str, int], str]
"""A server's text as it may be shown, of so many letters at most."""


def weight(body: bytes) -> int:
    """About how many bytes of memory the parts of a body take: a few bytes of text are a series or a sample."""
    return 350 * body.count(b"{") + 150 * body.count(b"[") + 45 * body.count(b'"')


def kinds_of(query: str, *, ranged: bool = False) -> tuple[str, ...]:
    """The types of result that servers have for a query, asked for a range or for one instant."""
    if ranged or query.rstrip().endswith("]"):  # samples as they were scraped
        return ("matrix",)
    return ("scalar", "vector") if query == TIME else ("vector",)  # VictoriaMetrics has no scalars


def amount(series: Series) -> int | None:
    """How many of something there are, as the newest value says; None if it is no number of things."""
    value = float(series.values[-1]) if len(series.values) else math.nan
    return int(value) if 0 <= value <= _MOST else None  # NaN compares false


def decoded(
    status: int, body: bytes, shown: Shown = foreign, *, kinds: tuple[str, ...] = _TYPES
) -> Answer[list[Series]] | None:
    """The answer in a body; None if it is not Prometheus' JSON. `kinds`: types of result that it may be.

    Raises `MetricsError` for a query that was refused, and for an answer that Prometheus never gives.
    """
    try:
        envelope = _ENVELOPE.decode(body)
    except _UNREADABLE:
        return None
    if status != 200 or envelope.status != "success":
        text = envelope.error.strip() or f"status {envelope.status}"
        words = shown(text, _MOST_WORDS)
        raise MetricsError(status, shown(envelope.error_type, _SHOWN), f"refused a query (HTTP {status}): {words}")
    missing = [text for text in envelope.warnings or () if not text.startswith("PromQL")][:_MOST_WARNINGS]
    if envelope.is_partial:
        missing.append("it says that its answer is partial (isPartial)")
    try:
        data = _DATA.decode(envelope.data)
        if data.result_type not in kinds:
            raise msgspec.DecodeError(f"a {_type(data)} in place of a {' or a '.join(kinds)}")
        return Answer(_distinct(_series(data)), tuple(shown(text, _MOST_WORDS) for text in missing))
    except _UNREADABLE as error:
        raise MetricsError(status, "not_json", f"sent an answer that is not Prometheus': {error}") from None


def _series(data: _Data) -> list[Series]:
    match data.result_type:
        case "matrix":
            return [_arrays(s.metric, _pairs(s.values)) for s in _SERIES.decode(data.result)]
        case "vector":
            found = _SERIES.decode(data.result)
            return [_arrays(s.metric, [_pair(s.value)]) for s in found if isinstance(s.value, msgspec.Raw)]
        case "scalar":
            return [_arrays({}, [_pair(data.result)])]
    raise msgspec.DecodeError(f"a {_type(data)}")


def _type(data: _Data) -> str:
    return f"result of type {data.result_type}" if data.result_type in _TYPES else "result of no type that is known"


def _distinct(found: list[Series]) -> list[Series]:
    """None twice: which of them would count?"""
    if len(found) > 1 and len({frozenset(series.labels.items()) for series in found}) < len(found):
        raise msgspec.DecodeError("two series with the same labels")
    return found


def _arrays(labels: Mapping[str, str], pairs: list[tuple[float, float]]) -> Series:
    before = -math.inf
    for at, _ in pairs:  # quicker than with arrays, as most are short; NaN compares false
        if not before < at < math.inf:
            raise msgspec.DecodeError("samples that are not in order of time")
        before = at
    flat = np.fromiter(chain.from_iterable(pairs), np.float64, 2 * len(pairs))
    return Series(labels, flat[0::2], flat[1::2])


def _pairs(raw: msgspec.Raw) -> list[tuple[float, float]]:
    try:
        return _PAIRS.decode(raw)
    except msgspec.ValidationError:  # the decoder knows "Inf" and "-Inf", not "+Inf"
        return _PAIRS.decode(bytes(raw).replace(b'"+Inf"', b'"Inf"'))


def _pair(raw: msgspec.Raw) -> tuple[float, float]:
    return _PAIR.decode(bytes(raw).replace(b'"+Inf"', b'"Inf"'))
