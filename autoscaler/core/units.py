"""Kubernetes quantities on exact arithmetic.

Amounts inside the program are whole numbers with their unit in the type: `Millicores` and `Bytes`. Text enters and
leaves through `parse_*` and `format_*` alone. Fractions are rounded up, as the API server does when it stores them, so
that a request is never smaller than what was asked for.

Grammar: k8s.io/apimachinery/pkg/api/resource, `Quantity`.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Context, Decimal
from typing import NewType

Millicores = NewType("Millicores", int)
Bytes = NewType("Bytes", int)

_PATTERN = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MAX_LENGTH = 64  # the API server parses 1e400; a bound keeps hostile text from costing time
_MAX_EXPONENT = 30
# the longest text with the largest suffix has 83 digits; Python's own context keeps 28
_EXACT = Context(prec=128)
MAX_AMOUNT = 2**63 - 1
"""The largest amount there is: the API server stores them as signed 64-bit numbers."""


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity, or not one that this resource can have."""


def parse_quantity(text: str) -> Decimal:
    """The exact value of a Kubernetes quantity, in its base unit (cores, bytes). Raises `QuantityError`."""
    match = _PATTERN.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise QuantityError(f"{text[:_MAX_LENGTH]!r} is not a quantity; write it like 500m, 2, 1.5, 256Mi, 4Gi or 1e3")
    number, suffix, exponent = Decimal(match["number"]), match["suffix"], match["exponent"]
    if exponent is not None:
        if abs(int(exponent)) > _MAX_EXPONENT:
            raise QuantityError(f"{text!r} is out of range: exponents beyond ±{_MAX_EXPONENT} are not accepted")
        return _EXACT.scaleb(number, int(exponent))
    if suffix is None:
        return number
    if suffix in _BINARY:
        return _EXACT.multiply(number, 1 << _BINARY[suffix])
    return _EXACT.scaleb(number, _DECIMAL[suffix])


def parse_cpu(text: str) -> Millicores:
    """CPU text to millicores, rounded up. Raises `QuantityError`, also for negative amounts."""
    return Millicores(_whole(text, _EXACT.scaleb(parse_quantity(text), 3)))


def parse_memory(text: str) -> Bytes:
    """Memory text to bytes, rounded up. Raises `QuantityError`, also for negative amounts."""
    return Bytes(_whole(text, parse_quantity(text)))


def _whole(text: str, value: Decimal) -> int:
    if value < 0:
        raise QuantityError(f"{text!r} is negative; an amount of a resource cannot be")
    whole = int(value.to_integral_value(ROUND_CEILING))
    if whole > MAX_AMOUNT:
        raise QuantityError(f"{text!r} is out of range")
    return whole


def format_cpu(amount: Millicores) -> str:
    """Canonical text: whole cores without suffix (`2`), anything else in millicores (`1500m`)."""
    cores, rest = divmod(amount, 1000)
    return f"{amount}m" if rest else f"{cores}"


def format_memory(amount: Bytes) -> str:
    """Canonical text: the largest of Gi, Mi and Ki that divides the amount, else plain bytes."""
    for suffix, shift in (("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if amount and amount % (1 << shift) == 0:
            return f"{amount >> shift}{suffix}"
    return f"{amount}"
