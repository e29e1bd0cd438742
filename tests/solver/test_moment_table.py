"""The moments of parts of the rows add up to those of any weighted union of the parts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fairerclip.errors import ShapeError
from fairerclip.solver import moments as moments_module
from fairerclip.solver.moments import Moments, MomentTable


def problem(seed, n, D=5, K=3, parts=4, dtype=np.float64):
    """Rows with weights, some of them zero, that belong to parts, of which the last may be empty."""
    rng = np.random.default_rng(seed)
    Phi = (rng.normal(size=(n, D)) + rng.normal(size=D)).astype(dtype)
    w = rng.uniform(0.1, 2, size=n) * (rng.random(n) > 0.2)
    w[0] = 1.0
    return Phi, rng.normal(size=(n, K)), w, rng.integers(max(parts - 1, 1), size=n)


def table_of(Phi, J, w, part, parts=4, block=7):
    table = MomentTable(parts, Phi.shape[1], J.shape[1])
    for start in range(0, len(Phi), block):
        at = slice(start, start + block)
        table.update(Phi[at], J[at], w[at], part[at])
    return table


def naive(Phi, J, w):
    """The definitions, one row after the other: total weight, mean, covariance, cross-moments and trace."""
    Phi, D, K = Phi.astype(np.float64), Phi.shape[1], J.shape[1]
    total = mean = 0.0
    for phi, weight in zip(Phi, w, strict=True):
        total, mean = total + weight, mean + weight * phi
    mean = mean / total
    covariance, cross, trace = np.zeros((D, D)), np.zeros((D, K)), 0.0
    for phi, j, weight in zip(Phi, J, w, strict=True):
        covariance += weight / total * np.outer(phi - mean, phi - mean)
        cross += weight / total * np.outer(phi - mean, j)
        trace += weight / total * float((phi - mean) @ (phi - mean))
    return total, mean, covariance, cross, trace


def assert_equal(result, expected, rtol):
    found = (result.weight, result.mean, result.covariance, result.cross, result.trace)
    for got, want in zip(found, expected, strict=True):
        assert_allclose(got, want, rtol=rtol, atol=rtol * max(1.0, np.abs(want).max()))


def as_tuple(result):
    return result.weight, result.mean, result.covariance, result.cross, result.trace


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 40),
    D=st.integers(1, 6),
    K=st.integers(1, 4),
    parts=st.integers(1, 5),
    block=st.sampled_from([1, 7, 64]),
)
def test_combined_parts_equal_the_definitions_on_the_weighted_rows(seed, n, D, K, parts, block):
    Phi, J, w, part = problem(seed, n, D, K, parts)
    factors = np.random.default_rng(seed + 1).uniform(0, 3, size=(2, parts))
    factors[:, part[0]] += 0.1
    found = table_of(Phi, J, w, part, parts, block).combine(factors)
    assert len(found) == 2
    for result, own in zip(found, factors, strict=True):
        assert_equal(result, naive(Phi, J, w * own[part]), 1e-11)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 3e-6)])
@pytest.mark.parametrize("block", [1, 16, 1000])
def test_combined_parts_equal_the_accumulator_on_the_same_weighted_rows(dtype, rtol, block):
    Phi, J, w, part = problem(3, 120, D=20, K=6, dtype=dtype)
    factors = np.array([[1.0, 1, 1, 1], [0.5, 2, 0, 7], [0, 0, 3, 1]])
    for result, own in zip(table_of(Phi, J, w, part, block=block).combine(factors), factors, strict=True):
        once = Moments(20, 6).update(Phi, J, w * own[part]).finalise()
        assert_equal(result, as_tuple(once), rtol)
        assert result.covariance.dtype == result.cross.dtype == np.float64


def test_a_part_with_the_factor_zero_takes_no_part():
    Phi, J, w, part = problem(5, 60)
    Phi[part == 1] = 1e3  # would show in every moment
    (result,) = table_of(Phi, J, w, part).combine([[1, 0, 2, 1]])
    left = part != 1
    expected = naive(Phi[left], J[left], w[left] * np.array([1, 0, 2, 1])[part[left]])
    # The point about which sums are taken is far from these rows: some digits are lost.
    assert_equal(result, expected, 1e-9)


def test_one_part_with_the_factor_one_is_the_plain_accumulator():
    Phi, J, w, _ = problem(6, 50)
    (result,) = table_of(Phi, J, w, np.zeros(50, dtype=np.int64), parts=1, block=50).combine([[1.0]])
    assert_equal(result, as_tuple(Moments(5, 3).update(Phi, J, w).finalise()), 1e-14)


def test_a_common_factor_changes_the_weight_alone():
    Phi, J, w, part = problem(7, 50)
    plain, twice = table_of(Phi, J, w, part).combine([[1, 2, 3, 4], [2, 4, 6, 8]])
    assert twice.weight == pytest.approx(2 * plain.weight)
    assert_equal(twice, (2 * plain.weight, *as_tuple(plain)[1:]), 1e-13)


def test_empty_blocks_change_nothing():
    Phi, J, w, part = problem(8, 30)
    table = MomentTable(4, 5, 3)
    for at in (slice(0, 0), slice(0, 12), slice(12, 12), slice(12, 30)):
        assert table.update(Phi[at], J[at], w[at], part[at]) is table
    (result,) = table.combine([[1, 1, 1, 1]])
    assert_equal(result, naive(Phi, J, w), 1e-12)


def test_the_order_and_the_size_of_blocks_do_not_matter():
    Phi, J, w, part = problem(9, 80)
    order = np.random.default_rng(0).permutation(80)
    factors = [[1, 0.3, 2, 1]]
    (one,) = table_of(Phi, J, w, part, block=80).combine(factors)
    (other,) = table_of(Phi[order], J[order], w[order], part[order], block=3).combine(factors)
    assert_equal(other, as_tuple(one), 1e-12)


def test_combining_does_not_use_up_the_table():
    # A factorisation overwrites the covariance that it gets; the next combination must not see that.
    Phi, J, w, part = problem(10, 40)
    table = table_of(Phi, J, w, part)
    (first,) = table.combine([[1, 1, 2, 1]])
    kept = [np.copy(value) for value in as_tuple(first)]
    first.covariance[:] = np.nan
    again, _ = table.combine([[1, 1, 2, 1], [0, 1, 0, 0]])
    assert_equal(again, kept, 1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_common_offset_of_the_features_does_not_hurt(dtype):
    Phi, J, w, part = problem(11, 200, dtype=dtype)
    offset = 256.0  # so large that the differences between rows are rounded, and so small that they are there
    moved = (Phi + dtype(offset)).astype(dtype)
    expected = naive(moved, J, w * np.array([1, 2, 0.5, 1])[part])
    (result,) = table_of(moved, J, w, part).combine([[1, 2, 0.5, 1]])
    assert_allclose(result.covariance, expected[2], atol=2e-6 if dtype == np.float32 else 1e-12)
    assert_allclose(result.trace, expected[4], rtol=2e-6 if dtype == np.float32 else 1e-12)


def test_the_covariance_of_float32_rows_is_symmetric():
    Phi, J, w, part = problem(12, 100, D=30, dtype=np.float32)
    for result in table_of(Phi, J, w, part, block=13).combine([[1, 2, 3, 4], [0, 0, 1, 0]]):
        assert_allclose(result.covariance, result.covariance.T, atol=1e-7)
        assert result.trace == pytest.approx(np.trace(result.covariance), rel=1e-6)


def test_a_combination_without_weight_is_an_error():
    Phi, J, w, part = problem(13, 30)
    table = table_of(Phi, J, w, part)
    for factors in (
        [[0, 0, 0, 0]],
        [[0, 0, 0, 5]],
        [[1, 1, 1, 1], [0, 0, 0, 1]],
    ):  # the last part has no rows
        with pytest.raises(ShapeError, match="no row with a positive weight is left"):
            table.combine(factors)
    with pytest.raises(ShapeError, match="no row with a positive weight is left"):
        MomentTable(4, 5, 3).combine([[1, 1, 1, 1]])
    with pytest.raises(ShapeError, match="no row with a positive weight is left"):
        table_of(Phi, J, 0 * w, part).combine([[1, 1, 1, 1]])


def test_a_constant_feature_has_no_variance():
    Phi, J, w, part = problem(14, 30)
    Phi[:] = [0.1, -3, 1e5, 0, 7]
    (result,) = table_of(Phi, J, w, part).combine([[1, 2, 3, 1]])
    assert_allclose(result.mean, Phi[0], rtol=1e-15)
    assert result.trace < 1e-20
    assert np.abs(result.covariance).max() < 1e-20


@pytest.mark.parametrize("pending", [1, 5, 10_000])
def test_rows_of_small_parts_are_gathered_and_none_is_lost(pending, monkeypatch):
    monkeypatch.setattr(moments_module, "PENDING_ROWS", pending)
    Phi, J, w, part = problem(0, 40)
    table = table_of(Phi, J, w, part)
    for _ in range(2):  # a combination leaves the table as it was
        (found,) = table.combine([[1.0, 0.5, 2.0, 1.0]])
        assert_equal(found, naive(Phi, J, w * np.array([1.0, 0.5, 2.0, 1.0])[part]), 1e-12)
    table.update(Phi, J, w, part)
    assert table.combine([np.ones(4)])[0].weight == pytest.approx(2 * w.sum())
