import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairerclip.errors import ShapeError
from fairerclip.solver.moments import Moments


def batch(Phi, J, w):
    """The obvious formulas on all rows at once."""
    w = w / w.sum()
    mean = w @ Phi
    centred = Phi - mean
    return mean, centred.T @ (w[:, None] * centred), centred.T @ (w[:, None] * J)


def problem(seed, n, D=5, K=3, offset=0.0):
    rng = np.random.default_rng(seed)
    w = rng.uniform(size=n) * (rng.random(n) > 0.2)
    w[0] = 1.0
    return rng.normal(size=(n, D)) + offset, rng.normal(size=(n, K)), w


def streamed(Phi, J, w, block, covariance=True):
    moments = Moments(Phi.shape[1], J.shape[1], covariance=covariance)
    for start in range(0, len(Phi), block):
        moments.update(Phi[start : start + block], J[start : start + block], w[start : start + block])
    return moments


def assert_equal(result, expected, rtol):
    mean, cov, cross = expected
    for got, want in (
        (result.mean, mean),
        (result.covariance, cov),
        (result.cross, cross),
        (result.trace, np.trace(cov)),
    ):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * max(1.0, np.abs(want).max()))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 60), st.sampled_from([1, 7, 64]))
def test_streamed_and_merged_moments_equal_batch(seed, n, block):
    Phi, J, w = problem(seed, n)
    expected = batch(Phi, J, w)
    assert_equal(streamed(Phi, J, w, block).finalise(), expected, 1e-12)
    a, b, c = [lambda i=i: streamed(Phi[i], J[i], w[i], block) for i in np.array_split(np.arange(n), 3)]
    empty = Moments(5, 3)
    assert_equal(empty.merge(a()).merge(b()).merge(c()).finalise(), expected, 1e-12)
    assert_equal(c().merge(b().merge(Moments(5, 3)).merge(a())).finalise(), expected, 1e-12)


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_a_large_common_offset_does_not_hurt(block):
    Phi, J, w = problem(1, 300)
    plain = streamed(Phi, J, w, block).finalise()
    moved = streamed(Phi[:100] + 1e6, J[:100], w[:100], block)
    moved = moved.merge(streamed(Phi[100:] + 1e6, J[100:], w[100:], block)).finalise()
    np.testing.assert_allclose(moved.covariance, plain.covariance, atol=1e-8)
    np.testing.assert_allclose(moved.cross, plain.cross, atol=1e-8)


def test_without_covariance_the_cross_moments_are_the_same():
    Phi, J, w = problem(2, 50)
    full, light = streamed(Phi, J, w, 8).finalise(), streamed(Phi, J, w, 8, covariance=False).finalise()
    assert light.covariance is None
    np.testing.assert_array_equal(light.cross, full.cross)
    assert light.trace == pytest.approx(full.trace, rel=1e-13)


def test_float32_features_are_summed_in_float64():
    Phi, J, w = problem(3, 5000)
    result = streamed(Phi.astype(np.float32), J, w, 64).finalise()
    assert result.covariance.dtype == np.float64
    np.testing.assert_allclose(result.covariance, batch(Phi, J, w)[1], atol=3e-7)


@pytest.mark.parametrize("rows", [0, 3, 4])
def test_rows_that_do_not_match_or_weigh_nothing_are_refused(rows):
    with pytest.raises(ShapeError):
        Moments(2, 1).update(np.ones((4, 2))[: rows or 4], np.ones((4, 1)), np.zeros(4)).finalise()
