"""What a recommender's parameters are made of: the base class and the field types. Policies are read with the same.

A plug-in declares a subclass of `Parameters`; its fields are what may stand under `spec.recommender.parameters`, in
camelCase. Unknown keys and wrong units are refused when the policy is loaded, with file, line and key path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from autoscaler.core.foreign import shown
from autoscaler.core.units import Bytes, Millicores, format_cpu, format_memory, parse_cpu, parse_memory

STRICT = ConfigDict(
    frozen=True,
    extra="forbid",
    strict=True,
    allow_inf_nan=False,
    alias_generator=to_camel,
    validate_by_alias=True,
    validate_by_name=True,  # for Python callers; YAML is validated by alias alone
)

_UNITS = {"y": 365 * 86400.0, "w": 7 * 86400.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>[0-9]+){unit})?" for unit in _UNITS))
_MAX_DURATION = timedelta(days=100 * 365)
_MAX_RATIO = 10
_PERCENTILE = re.compile(r"p(?P<rank>[0-9]{1,2}(?:\.[0-9]{1,6})?)")
_PERCENT = re.compile(r"(?P<number>[0-9]{1,6}(?:\.[0-9]{1,6})?) ?%")


class Parameters(BaseModel):
    """Base of a recommender's parameters: frozen, without unknown keys.

    YAML names them in camelCase, Python in snake_case.
    """

    model_config = STRICT

    def needs(self) -> timedelta:
        """How much history an answer needs. A policy whose `metrics.lookback` is shorter is refused."""
        return timedelta(0)

    def remembers(self) -> timedelta:
        """How far back samples still matter. A shorter `metrics.lookback` is warned about: a restart would forget."""
        return timedelta(0)


def parse_duration(value: object) -> timedelta:
    """A duration as Prometheus writes it: `90s`, `1h30m`, `14d`; units y w d h m s ms, largest first.

    Raises `ValueError`, also for numbers without a unit.
    """
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) and 0 < len(value) <= 40 else None
    if match is None:
        raise ValueError(f"{shown(value)} is not a duration; write a number with its unit, like 90s, 1h30m or 14d")
    seconds = sum(int(match[unit]) * length for unit, length in _UNITS.items() if match[unit])
    if seconds > _MAX_DURATION.total_seconds():
        raise ValueError(f"{shown(value)} is out of range; at most 100y")
    return timedelta(milliseconds=round(seconds * 1000))


def format_duration(duration: timedelta) -> str:
    """The shortest text that `parse_duration` reads back, in whole milliseconds: `1h30m`. No weeks and years."""
    rest = round(duration.total_seconds() * 1000)
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, round(_UNITS[unit] * 1000))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_ratio(value: object) -> float:
    """A share: `15%`, or a plain number up to 1 (`0.15`). More than the whole is written in percent: `150%`.

    Raises `ValueError`.
    """
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value)
        if match is not None and (ratio := Decimal(match["number"]) / 100) <= _MAX_RATIO:
            return float(ratio)
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError(f"{shown(value)} is not a ratio; write 15%, or 0.15 (at most {_MAX_RATIO * 100}%)")


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of a field, for `bounded`. Raises `ValueError` for what is outside."""

    least: Any
    most: Any

    def __call__(self, value: Any) -> Any:
        if not self.least <= value <= self.most:
            raise ValueError(f"{written(value)} is out of range; write {self}")
        return value

    def __str__(self) -> str:
        return f"{written(self.least)} to {written(self.most)}"


def bounded(least: Any, most: Any) -> AfterValidator:
    """Makes a field refuse what is not between these two: `Annotated[Duration, bounded(an_hour, a_day)]`."""
    return AfterValidator(Within(least, most))


def written(value: Any) -> str:
    """A duration, a share or a number as a policy writes it."""
    if isinstance(value, timedelta):
        return format_duration(value)
    return f"{value * 100:g}%" if isinstance(value, float) else f"{value}"


def parse_cpu_amount(value: object) -> Millicores:
    """CPU as Kubernetes writes it: `25m`, `0.5`, `2`. Raises `ValueError`."""
    return parse_cpu(_quantity(value))


def parse_memory_amount(value: object) -> Bytes:
    """Memory as Kubernetes writes it: `250Mi`, `1Gi`. Raises `ValueError`."""
    return parse_memory(_quantity(value))


def _quantity(value: object) -> str:
    if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return str(value)
    raise ValueError(f"{shown(value)} is not a quantity; write it like 500m, 2 or 256Mi")


_QUANTITY = WithJsonSchema({"type": ["string", "number"]})

CpuAmount = Annotated[
    Millicores,
    PlainValidator(parse_cpu_amount),
    PlainSerializer(lambda amount: format_cpu(amount), return_type=str),
    _QUANTITY,
]
"""An amount of CPU, millicores in Python (`parse_cpu_amount`)."""

MemoryAmount = Annotated[
    Bytes,
    PlainValidator(parse_memory_amount),
    PlainSerializer(lambda amount: format_memory(amount), return_type=str),
    _QUANTITY,
]
"""An amount of memory, bytes in Python (`parse_memory_amount`)."""

Duration = Annotated[
    timedelta,
    PlainValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^([0-9]+(y|w|d|h|m|s|ms))+$", "examples": ["90s", "1h30m", "14d"]}),
]
"""A length of time, written as Prometheus does (`parse_duration`)."""

Ratio = Annotated[
    float,
    PlainValidator(parse_ratio),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?%$"},
                {"type": "number", "minimum": 0, "maximum": 1},
            ],
            "examples": ["15%", 0.15],
        }
    ),
]
"""A share of something, written `15%` or `0.15` (`parse_ratio`)."""


@dataclass(frozen=True, slots=True)
class Percentile:
    """`p95`, `p99.9`, or `max`: exactly that one, never rounded to another. Raises `ValueError` for anything else."""

    text: str

    def __post_init__(self) -> None:
        match = _PERCENTILE.fullmatch(self.text) if isinstance(self.text, str) else None
        if self.text != "max" and (match is None or not Decimal(match["rank"])):
            raise ValueError(f"{shown(self.text)} is not a percentile; write it like p95 or p99.9, or max")

    @property
    def is_max(self) -> bool:
        return self.text == "max"

    @property
    def fraction(self) -> float:
        """The share of samples that must not exceed the answer: 0.95 for p95, 1 for max."""
        return 1.0 if self.is_max else float(Decimal(self.text[1:]) / 100)

    def __str__(self) -> str:
        return self.text

    @classmethod
    def _read(cls, value: Any) -> Percentile:
        return value if isinstance(value, Percentile) else cls(value)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls._read, serialization=core_schema.to_string_ser_schema())

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": r"^(max|p[0-9]{1,2}(\.[0-9]{1,6})?)$", "examples": ["p95", "p99.9", "max"]}
