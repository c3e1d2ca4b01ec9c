"""Quantities: Kubernetes' grammar by value, canonical text, rounding up."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.model import Resource
from autoscaler.core.units import (
    Bytes,
    Millicores,
    QuantityError,
    format_cpu,
    format_memory,
    parse_cpu,
    parse_memory,
    parse_quantity,
)

AMOUNTS = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1E", Decimal(10**18)),
        ("1E3", Decimal(1000)),
        ("1e3", Decimal(1000)),
        ("1e+3", Decimal(1000)),
        ("1e-3", Decimal("0.001")),
        ("1Ei", Decimal(2**60)),
        ("1Pi", Decimal(2**50)),
        ("1Ti", Decimal(2**40)),
        ("0.5", Decimal("0.5")),
        (".5", Decimal("0.5")),
        ("5.", Decimal(5)),
        ("+5", Decimal(5)),
        ("500m", Decimal("0.5")),
        ("100n", Decimal("1e-7")),
        ("1u", Decimal("1e-6")),
        ("12e6", Decimal(12_000_000)),
        ("1k", Decimal(1000)),
        ("100M", Decimal(100_000_000)),
        ("100Mi", Decimal(104_857_600)),
        ("1G", Decimal(10**9)),
        ("1T", Decimal(10**12)),
        ("1P", Decimal(10**15)),
        ("0.2Gi", Decimal("214748364.8")),
        ("-1", Decimal(-1)),
        ("0", Decimal(0)),
    ],
)
def test_reads_a_quantity_by_value(text: str, value: Decimal) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [*"+.m", "1K", "1gi", "1 Gi", " 1Gi", "1Gi ", "1Gi\n", "", "NaN", "12e6m", "1e3Ki", "1000mi", "Infinity", "1e"],
)
def test_refuses_what_is_not_a_quantity(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity; write it like"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1_000", "1,5", "--1", "0x10", "1mm", "Gi", "1e1.5", "١"])
def test_refuses_what_other_grammars_allow(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1e400", "1e-400", "1e31", "1E99999999999999999999"])
def test_refuses_an_exponent_that_costs_time(text: str) -> None:
    with pytest.raises(QuantityError, match="out of range"):
        parse_quantity(text)


def test_refuses_a_text_that_is_too_long_without_repeating_it() -> None:
    with pytest.raises(QuantityError) as error:
        parse_quantity("9" * 10_000)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("text", "millicores", "canonical"),
    [
        ("0.5", 500, "500m"),
        (".5", 500, "500m"),
        ("500m", 500, "500m"),
        ("100n", 1, "1m"),
        ("1u", 1, "1m"),
        ("250u", 1, "1m"),
        ("0.0001", 1, "1m"),
        ("1e-3", 1, "1m"),
        ("1.0001", 1001, "1001m"),
        ("1", 1000, "1"),
        ("1000m", 1000, "1"),
        ("2000m", 2000, "2"),
        ("1e3", 1_000_000, "1000"),
        ("0", 0, "0"),
    ],
)
def test_stores_cpu_as_the_server_does(text: str, millicores: int, canonical: str) -> None:
    assert parse_cpu(text) == millicores
    assert format_cpu(Millicores(millicores)) == canonical


@pytest.mark.parametrize(
    ("text", "size", "canonical"),
    [
        ("0.2Gi", 214_748_365, "214748365"),
        ("128974848000m", 128_974_848, "123Mi"),
        ("1500m", 2, "2"),
        ("1Gi", 1 << 30, "1Gi"),
        ("1024Mi", 1 << 30, "1Gi"),
        ("1536Mi", 3 << 29, "1536Mi"),
        ("1Ti", 1 << 40, "1024Gi"),
        ("70000", 70_000, "70000"),
        ("3Ki", 3072, "3Ki"),
        ("100M", 100_000_000, "100000000"),
        ("0", 0, "0"),
    ],
)
def test_stores_memory_as_the_server_does(text: str, size: int, canonical: str) -> None:
    assert parse_memory(text) == size
    assert format_memory(Bytes(size)) == canonical


@pytest.mark.parametrize("parse", [parse_cpu, parse_memory])
def test_refuses_negative_amounts_and_those_beyond_64_bits(parse: object) -> None:
    assert callable(parse)
    with pytest.raises(QuantityError, match="negative"):
        parse("-1")
    with pytest.raises(QuantityError, match="out of range"):
        parse("1e30")


def test_the_largest_amount_is_accepted() -> None:
    assert parse_memory(str(2**63 - 1)) == 2**63 - 1
    assert parse_cpu(f"{2**63 - 1}m") == 2**63 - 1


@given(AMOUNTS)
def test_what_is_written_is_read_back(amount: int) -> None:
    assert parse_cpu(format_cpu(Millicores(amount))) == amount
    assert parse_memory(format_memory(Bytes(amount))) == amount


@given(AMOUNTS)
def test_writes_whole_numbers_with_known_suffixes_alone(amount: int) -> None:
    for resource, suffixes in ((Resource.CPU, ("m", "")), (Resource.MEMORY, ("Ki", "Mi", "Gi", ""))):
        text = resource.quantity(amount)
        digits = text.rstrip("mKMGi")
        assert digits.isdecimal()
        assert text.removeprefix(digits) in suffixes
        assert text != "0m"


@given(st.decimals(0, 10**12, allow_nan=False, places=20))
def test_rounds_up_and_loses_nothing(number: Decimal) -> None:
    text = f"{number:f}"
    cores, exact = parse_cpu(text), Fraction(text)
    assert 0 <= cores - exact * 1000 < 1
    assert 0 <= parse_memory(text) - exact < 1


@given(st.integers(1, 10**17), st.integers(0, 30), st.sampled_from(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]))
def test_binary_suffixes_lose_nothing(digits: int, places: int, suffix: str) -> None:
    number = Decimal(digits).scaleb(-places, Context(prec=60))
    power = 10 * (1 + ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].index(suffix))
    assert Fraction(parse_quantity(f"{number:f}{suffix}")) == Fraction(number) * 2**power


def test_a_thousandth_behind_forty_digits_still_counts() -> None:
    assert parse_cpu("1." + "0" * 40 + "1") == 1001
    whole = parse_quantity("1." + "0" * 40 + "1Ki")
    assert whole.to_integral_value(ROUND_CEILING) == 1025
