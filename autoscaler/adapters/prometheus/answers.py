"""What Prometheus' HTTP API answers: decoded once, values into arrays; or that there was no answer.

https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

from collections.abc import Mapping
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


class MetricsError(Exception):
    """A query that was not answered. `status`: the HTTP status, None if there was no answer.

    `error_type`: Prometheus' own word (`bad_data`, `execution`, `timeout`, …), or one of ours: `connection`, `hang`,
    `broken_off`, `too_large`, `tls`, `html`, `not_json`, `empty`. `text`: what is to be said, without the address.
    """

    def __init__(self, status: int | None, error_type: str, text: str) -> None:
        super().__init__(status, error_type, text)
        self.status = status
        self.error_type = error_type
        self.text = text

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
        return MetricsError(self.status, self.error_type, f"{what} (query: {shown}){semicolon}{remedy}")

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.status in (429, 499, 502, 503, 504) or self.error_type in ("connection", "broken_off", "canceled")

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


def decoded(status: int, body: bytes) -> Answer[list[Series]] | None:
    """The answer in a body; None if it is not Prometheus' JSON. Raises `MetricsError` for a query that was refused."""
    try:
        envelope = _ENVELOPE.decode(body)
    except _UNREADABLE:
        return None
    if status != 200 or envelope.status != "success":
        text = envelope.error.strip() or f"status {envelope.status}"
        raise MetricsError(status, envelope.error_type, f"refused a query (HTTP {status}): {text[:500]}")
    missing = tuple(text for text in envelope.warnings or () if not text.startswith("PromQL"))
    try:
        return Answer(_series(_DATA.decode(envelope.data)), missing)
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
    raise msgspec.DecodeError(f"result type {data.result_type[:40]!r}")


def _arrays(labels: Mapping[str, str], pairs: list[tuple[float, float]]) -> Series:
    flat = np.fromiter(chain.from_iterable(pairs), np.float64, 2 * len(pairs))
    return Series(labels, flat[0::2], flat[1::2])


def _pairs(raw: msgspec.Raw) -> list[tuple[float, float]]:
    try:
        return _PAIRS.decode(raw)
    except msgspec.ValidationError:  # the decoder knows "Inf" and "-Inf", not "+Inf"
        return _PAIRS.decode(bytes(raw).replace(b'"+Inf"', b'"Inf"'))


def _pair(raw: msgspec.Raw) -> tuple[float, float]:
    return _PAIR.decode(bytes(raw).replace(b'"+Inf"', b'"Inf"'))
