"""Chance of our own: the right distributions, and the same numbers however they are asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.scenarios.draws import Draws, LogNormal, Stream, Uniform, Whole
from autoscaler.scenarios.elementary import circle, exp, log

STREAM = Stream(0)
MANY = 200_000


def test_the_generator_is_splitmix64() -> None:
    """The first numbers of seed 0, as the reference implementation of Steele, Lea and Flood gives them."""
    reference = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert STREAM.uniforms(0, 3).tolist() == [(bits >> 11) * 2.0**-53 for bits in reference]


@given(first=st.integers(0, 1000), count=st.integers(0, 50))
def test_a_draw_depends_on_its_number_alone(first: int, count: int) -> None:
    for draw in (STREAM.uniforms, STREAM.normals, STREAM.exponentials):
        assert draw(first, count).tolist() == draw(0, first + count)[first:].tolist()


def test_distributions_are_what_they_are_called() -> None:
    uniforms, normals, exponentials = STREAM.uniforms(0, MANY), STREAM.normals(0, MANY), STREAM.exponentials(0, MANY)
    assert (uniforms >= 0).all()
    assert (uniforms < 1).all()
    np.testing.assert_allclose(np.quantile(uniforms, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.005)
    np.testing.assert_allclose(np.quantile(normals, [0.025, 0.5, 0.975]), [-1.96, 0, 1.96], atol=0.02)
    np.testing.assert_allclose([normals.std(), np.corrcoef(normals[::2], normals[1::2])[0, 1]], [1, 0], atol=0.01)
    np.testing.assert_allclose([exponentials.mean(), np.median(exponentials)], [1, np.log(2)], atol=0.01)


def test_ranges() -> None:
    whole = Whole(2, 5).draw(STREAM, 0, MANY)
    assert sorted(set(whole)) == [2, 3, 4, 5]
    np.testing.assert_allclose(np.unique(whole, return_counts=True)[1] / MANY, 0.25, atol=0.01)
    log_normal = LogNormal(8, 0.8, 1, 120).draw(STREAM, 0, MANY)
    np.testing.assert_allclose([np.median(log_normal), np.log(log_normal).std()], [8, 0.8], rtol=0.02)
    assert LogNormal(8, 0.8, 7, 9).draw(STREAM, 0, 1000).min() == 7
    uniform = Uniform(3, 4).draw(STREAM, 0, 1000)
    assert 3 <= uniform.min() < uniform.max() < 4


def test_streams_of_other_names_are_others() -> None:
    ranges = {"a.x": Uniform(0, 1), "a.y": Uniform(0, 1)}
    draws = [Draws("s", 0, ranges), Draws("s", 1, ranges), Draws("t", 0, ranges)]
    assert len({each.nth(name) for each in draws for name in ranges}) == 6
    assert draws[0].nth("a.x") == Draws("s", 0, {"a.x": Uniform(0, 1)}).nth("a.x")


@given(st.floats(1e-300, 1e300))
def test_logarithms(x: float) -> None:
    assert log(np.array([x]))[0] == pytest.approx(np.log(x), rel=1e-14, abs=1e-15)


@given(st.floats(-700, 700))
def test_exponentials(x: float) -> None:
    assert exp(np.array([x]))[0] == pytest.approx(np.exp(x), rel=1e-14)


@given(st.floats(0, 1))
def test_circle(turns: float) -> None:
    cosine, sine = circle(np.array([turns]))
    assert (cosine[0], sine[0]) == pytest.approx((np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)), abs=1e-14)
