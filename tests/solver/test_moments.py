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


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60), st.sampled_from([1, 7, 64]))
def test_streaming_moments_equal_batch(seed, n, block):
    Phi, J, w = problem(seed, n)
    assert_equal(streamed(Phi, J, w, block).finalise(), batch(Phi, J, w), 1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 60))
def test_row_order_does_not_matter(seed, n):
    Phi, J, w = problem(seed, n)
    order = np.random.default_rng(seed).permutation(n)
    assert_equal(streamed(Phi[order], J[order], w[order], 7).finalise(), batch(Phi, J, w), 1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 60))
def test_merging_is_associative_and_commutative(seed, n):
    Phi, J, w = problem(seed, n)
    thirds = np.array_split(np.arange(n), 3)
    a, b, c = [lambda i=i: streamed(Phi[i], J[i], w[i], 4) for i in thirds]
    expected = batch(Phi, J, w)
    assert_equal(a().merge(b()).merge(c()).finalise(), expected, 1e-12)
    assert_equal(a().merge(b().merge(c())).finalise(), expected, 1e-12)
    assert_equal(c().merge(a()).merge(b()).finalise(), expected, 1e-12)


def test_merging_an_empty_accumulator_changes_nothing():
    Phi, J, w = problem(0, 20)
    assert_equal(Moments(5, 3).merge(streamed(Phi, J, w, 4)).finalise(), batch(Phi, J, w), 1e-12)
    assert_equal(streamed(Phi, J, w, 4).merge(Moments(5, 3)).finalise(), batch(Phi, J, w), 1e-12)


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_a_large_common_offset_does_not_hurt(block):
    Phi, J, w = problem(1, 300)
    plain = streamed(Phi, J, w, block).finalise()
    moved = streamed(Phi + 1e6, J, w, block).finalise()
    np.testing.assert_allclose(moved.covariance, plain.covariance, atol=1e-8)
    np.testing.assert_allclose(moved.cross, plain.cross, atol=1e-8)


def test_merging_across_a_large_offset_does_not_hurt():
    Phi, J, w = problem(1, 300, offset=1e6)
    merged = (
        streamed(Phi[:100], J[:100], w[:100], 10).merge(streamed(Phi[100:], J[100:], w[100:], 10)).finalise()
    )
    centred = Phi - 1e6
    _, cov, cross = batch(centred, J, w)
    np.testing.assert_allclose(merged.covariance, cov, atol=1e-8)
    np.testing.assert_allclose(merged.cross, cross, atol=1e-8)


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


def test_mismatched_rows_are_refused():
    with pytest.raises(ShapeError, match="4, 3 and 4"):
        Moments(2, 1).update(np.zeros((4, 2)), np.zeros((3, 1)), np.ones(4))


def test_no_weight_at_all_is_refused():
    with pytest.raises(ShapeError, match="positive weight"):
        Moments(2, 1).update(np.ones((4, 2)), np.ones((4, 1)), np.zeros(4)).finalise()
    with pytest.raises(ShapeError, match="positive weight"):
        Moments(2, 1).finalise()
