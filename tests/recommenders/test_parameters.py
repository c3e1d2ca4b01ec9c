"""The field types of parameters: what they read, what they refuse, and that nothing is rounded."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autoscaler.recommenders.parameters import (
    Duration,
    Parameters,
    Percentile,
    Ratio,
    format_duration,
    parse_duration,
    parse_ratio,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1h30m", 5400), ("14d", 1209600), ("1w2d", 777600), ("1y", 31536000), ("250ms", 0.25), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", ["", "90", 90, "1.5h", "30m1h", "-1s", "1 h", "1H", "٣s", None, True, "1h" * 30])
def test_no_durations(value: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write a number with its unit, like 90s"):
        parse_duration(value)


def test_durations_are_bounded() -> None:
    with pytest.raises(ValueError, match="out of range"):
        parse_duration("101y")


@given(st.timedeltas(timedelta(0), timedelta(days=36500)))
def test_a_formatted_duration_reads_back(duration: timedelta) -> None:
    whole = timedelta(milliseconds=duration // timedelta(milliseconds=1))
    assert parse_duration(format_duration(whole)) == whole


@pytest.mark.parametrize(
    ("value", "ratio"),
    [("15%", 0.15), (0.15, 0.15), ("7.5 %", 0.075), ("150%", 1.5), (1, 1.0), (0, 0.0), ("0%", 0.0), ("1000%", 10.0)],
)
def test_ratios(value: object, ratio: float) -> None:
    assert parse_ratio(value) == ratio


@pytest.mark.parametrize("value", [15, 1.01, -0.1, "0.15", "15", "-1%", "1001%", True, None, "x%", float("nan")])
def test_no_ratios(value: object) -> None:
    with pytest.raises(ValueError, match=r"is not a ratio; write 15%, or 0\.15"):
        parse_ratio(value)


@pytest.mark.parametrize(("text", "fraction"), [("p95", 0.95), ("p99.9", 0.999), ("p0.1", 0.001), ("max", 1.0)])
def test_percentiles_are_taken_exactly(text: str, fraction: float) -> None:
    assert Percentile(text).fraction == fraction
    assert str(Percentile(text)) == text


@pytest.mark.parametrize("text", ["p100", "p0", "p0.0", "95", "P95", "p-1", "p95%", "p", "Max", "p99.9999999"])
def test_no_percentiles(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a percentile; write it like p95 or p99\.9, or max"):
        Percentile(text)


class Example(Parameters):
    """Parameters as a plug-in declares them."""

    half_life: Duration = timedelta(hours=1)
    margin: Ratio = 0.1
    target: Percentile = Percentile("p50")
    count: int = 3


def test_parameters_are_strict_frozen_and_camel_case() -> None:
    read = Example.model_validate_json('{"halfLife": "2h", "target": "max"}', by_alias=True, by_name=False)
    assert read == Example(half_life=timedelta(hours=2), target=Percentile("max"))
    for bad in ('{"half_life": "2h"}', '{"count": "3"}', '{"count": true}', '{"target": 95}'):
        with pytest.raises(ValidationError):
            Example.model_validate_json(bad, by_alias=True, by_name=False)
    with pytest.raises(ValidationError, match="frozen"):
        read.margin = 0.2
    assert read.model_dump(mode="json", by_alias=True) == {"halfLife": "2h", "margin": 0.1, "target": "max", "count": 3}
