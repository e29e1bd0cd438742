import numpy as np
import pytest
from dense_reference import solve_dense
from hypothesis import given, settings
from hypothesis import strategies as st

from fairerclip.errors import NotDefiniteError
from fairerclip.solver.lowrank import CholeskyFactor, solve_reduced
from fairerclip.solver.moments import Moments


def problem(seed, n, D, widths, degenerate=None):
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(n, D)) @ np.diag(np.logspace(0, -3, D))
    w = rng.uniform(0.2, 1.0, size=n)
    factors = [rng.normal(size=(n, k)) for k in widths]
    if degenerate == "constant columns":
        Phi[:, : D // 2] = 7.0
    if degenerate == "duplicate rows":
        Phi[n // 2 :] = Phi[: n - n // 2]
    if degenerate == "collinear factors":
        factors[-1] = factors[0] @ rng.normal(size=(widths[0], widths[-1]))
    return Phi, w, factors


def reduced_solution(Phi, w, factors, signs, gamma, r):
    J = np.concatenate(factors, axis=1)
    moments = Moments(Phi.shape[1], J.shape[1]).update(Phi, J, w).finalise()
    covariance = moments.covariance.copy()
    factor = CholeskyFactor(moments.covariance, gamma)
    reduced = factor.reduce(moments.cross)
    sigma = np.concatenate([np.full(L.shape[1], s) for L, s in zip(factors, signs, strict=True)])
    T = (reduced.coordinates * sigma) @ reduced.coordinates.T
    solution = solve_reduced(T, r)
    C = covariance + gamma * np.eye(len(covariance))
    B = (moments.cross * sigma) @ moments.cross.T
    return reduced.basis @ solution.coefficients, solution, B, C, factor


CASES = [None, "constant columns", "duplicate rows", "collinear factors"]


@pytest.mark.parametrize("degenerate", CASES)
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 60), st.integers(2, 30), st.floats(0.0, 5.0))
def test_the_reduction_equals_scipys_dense_eigenproblem(degenerate, seed, n, D, tau):
    Phi, w, factors = problem(seed, n, D, (2, 3, 1), degenerate)
    signs = (1.0, -tau, 0.5)
    gamma = 1e-3
    U, solution, B, C, _ = reduced_solution(Phi, w, factors, signs, gamma, r=4)
    values, vectors = solve_dense(Phi, w, list(zip(signs, factors, strict=True)), gamma)
    scale = max(np.abs(values).max(), 1e-12)
    r = len(solution.eigenvalues)
    np.testing.assert_allclose(solution.eigenvalues, values[:r], atol=1e-10 * scale)
    assert solution.n_positive == np.sum(values > 1e-10 * scale) or np.any(
        np.abs(np.abs(values) / scale - 1e-10) < 1e-10
    )
    np.testing.assert_allclose(U.T @ C @ U, np.eye(r), atol=1e-10)
    assert np.linalg.norm(B @ U - C @ U * solution.eigenvalues) <= 1e-10 * max(np.linalg.norm(B), 1e-12)
    # The objective of Eq. (7) is the sum of the eigenvalues.
    assert np.trace(U.T @ B @ U) == pytest.approx(solution.eigenvalues.sum(), abs=1e-10 * scale)
    # Where the spectrum is simple, the subspaces agree.
    if r and r < len(values) and values[r - 1] - values[r] > 1e-6 * scale:
        overlap = np.linalg.svd(U.T @ C @ vectors[:, :r], compute_uv=False)
        np.testing.assert_allclose(overlap, 1.0, atol=1e-6)


def test_the_factor_still_knows_c_after_factoring():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(50, 8))
    covariance = A.T @ A / 50
    C = covariance + 0.01 * np.eye(8)
    factor = CholeskyFactor(covariance.copy(), 0.01)
    V = rng.normal(size=(8, 3))
    np.testing.assert_allclose(factor.apply(V), C @ V, rtol=1e-13)
    np.testing.assert_allclose(factor.solve(C @ V), V, rtol=1e-10)
    assert factor.condition == pytest.approx(np.linalg.cond(C, 1), rel=0.5)


def test_an_indefinite_matrix_is_a_named_error():
    with pytest.raises(NotDefiniteError):
        CholeskyFactor(np.diag([1.0, -1.0]), 1e-3)


@pytest.mark.parametrize("first", [1e-6, 1e6, 1e14])
def test_the_factor_of_another_gamma_is_that_of_a_fresh_one(first):
    Phi, w, factors = problem(3, 50, 12, (3,))
    moments = Moments(12, 3).update(Phi, factors[0], w).finalise()
    other = CholeskyFactor(moments.covariance.copy(), first).at(1e-3)
    fresh = CholeskyFactor(moments.covariance.copy(), 1e-3)
    np.testing.assert_array_equal(other.reduce(moments.cross).basis, fresh.reduce(moments.cross).basis)
