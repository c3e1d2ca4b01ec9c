"""Logarithm, exponential and circle, from additions, multiplications and divisions alone.

Those are rounded alike everywhere, while the last digit of a library's `log` depends on the processor and its version:
scenarios are the same bytes on every machine. Errors are below 1e-15 of the value.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LN2_HIGH, _LN2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")  # their sum is ln 2
_LOG = tuple(2 / (2 * k + 1) for k in range(12))
_EXP = tuple(1 / math.factorial(k) for k in range(14))
_COS = tuple((-1) ** k / math.factorial(2 * k) for k in range(9))
_SIN = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(9))
_QUARTER = math.pi / 2


def log(x: Floats) -> Floats:
    """The natural logarithm of positive numbers, as a series in (m - 1) / (m + 1) with m between 0.7 and 1.4."""
    mantissa: Floats
    mantissa, exponent = np.frexp(x)
    small = mantissa < math.sqrt(0.5)
    mantissa[small] *= 2
    exponent -= small
    f = (mantissa - 1) / (mantissa + 1)
    logarithm: Floats = exponent * _LN2_HIGH + (exponent * _LN2_LOW + f * _series(_LOG, f * f))
    return logarithm


def exp(x: Floats) -> Floats:
    """e to the power of numbers between -700 and 700, as a series about the next power of 2."""
    power = np.rint(x / (_LN2_HIGH + _LN2_LOW))
    rest = (x - power * _LN2_HIGH) - power * _LN2_LOW
    return np.ldexp(_series(_EXP, rest), power.astype(np.int32))


def circle(turns: Floats) -> tuple[Floats, Floats]:
    """Cosine and sine of 0 to 1 turns, as series about the next quarter."""
    quarters = turns * 4
    nearest = np.rint(quarters)
    angle = (quarters - nearest) * _QUARTER
    square = angle * angle
    cosine, sine = _series(_COS, square), angle * _series(_SIN, square)
    swapped = nearest % 2 == 1
    x, y = np.where(swapped, sine, cosine), np.where(swapped, cosine, sine)
    x[(nearest == 1) | (nearest == 2)] *= -1
    y[(nearest == 2) | (nearest == 3)] *= -1
    return x, y


def _series(coefficients: tuple[float, ...], x: Floats) -> Floats:
    value = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value *= x
        value += coefficient
    return value
