"""The moments of parts of the rows add up to those of any weighted union of the parts."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fairerclip.errors import ShapeError
from fairerclip.solver import moments as moments_module
from fairerclip.solver.moments import MomentTable


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


@settings(max_examples=30, deadline=None)
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
    factors[0, np.random.default_rng(seed).random(parts) < 0.3] = 0.0
    factors[:, part[0]] += 0.1
    halves = [
        table_of(Phi[i], J[i], w[i], part[i], parts, block) for i in np.array_split(np.arange(n), 2) if len(i)
    ]
    found = functools.reduce(MomentTable.merge, halves).combine(factors)
    assert len(found) == 2
    for result, own in zip(found, factors, strict=True):
        assert_equal(result, naive(Phi, J, w * own[part]), 1e-11)


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


@pytest.mark.parametrize("block", [1, 64])
def test_features_far_from_zero_lose_no_digits(block):
    Phi, J, w, part = problem(11, 200)
    expected = naive(Phi, J, w)
    (result,) = table_of(Phi + 1e6, J, w, part, block=block).combine([[1, 1, 1, 1]])
    assert_allclose(result.covariance, expected[2], atol=1e-8)
    assert_allclose(result.cross, expected[3], atol=1e-8)


@pytest.mark.parametrize("factors", [[[0, 0, 0, 0]], [[1, 1, 1, 1], [0, 0, 0, 5]]])
def test_a_combination_without_weight_is_an_error(factors):
    Phi, J, w, part = problem(13, 30)  # the last part has no rows
    with pytest.raises(ShapeError):
        table_of(Phi, J, w, part).combine(factors)
