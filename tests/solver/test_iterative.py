import numpy as np
import pytest

from fairerclip.errors import NotDefiniteError, ToleranceError
from fairerclip.features import FourierFeatures
from fairerclip.solver import iterative
from fairerclip.solver.covariance_product import covariance_product
from fairerclip.solver.iterative import ConjugateGradientFactor
from fairerclip.solver.lowrank import CholeskyFactor
from fairerclip.solver.moments import Moments
from fairerclip.solver.rows import FeatureRows


def setup(dtype="float64", n=900, D=60, gamma=1e-4):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    J = np.concatenate([X[:, :2] + rng.normal(size=(n, 2)), np.eye(2)[(X[:, 2] > 0).astype(int)]], axis=1)
    J[:, 3] = 1 - J[:, 2]  # centred, the last two are collinear
    w = rng.uniform(size=n) * (rng.random(n) > 0.1)
    features = FourierFeatures.fit(X, n_features=D, bandwidth="median", random_state=0)
    rows = FeatureRows(features, X, dtype=dtype, block_rows=128)
    moments = Moments(D, J.shape[1])
    for block, Phi in rows.blocks():
        moments.update(Phi, J[block], w[block])
    result = moments.finalise()
    cg = ConjugateGradientFactor(rows, w, result.mean, gamma, np.random.RandomState(0))
    return result, cg, CholeskyFactor(result.covariance, gamma)


def test_conjugate_gradients_span_the_same_space_as_cholesky():
    moments, cg, cholesky = setup()
    a, b = cg.reduce(moments.cross), cholesky.reduce(moments.cross)
    assert a.basis.shape == b.basis.shape == (60, 3)
    np.testing.assert_allclose(a.basis.T @ cholesky.apply(a.basis), np.eye(3), atol=1e-9)
    overlap = np.linalg.svd(a.basis.T @ cholesky.apply(b.basis), compute_uv=False)
    np.testing.assert_allclose(overlap, 1.0, atol=1e-6)
    np.testing.assert_allclose(
        a.coordinates.T @ a.coordinates, b.coordinates.T @ b.coordinates, rtol=1e-8, atol=1e-12
    )


def test_no_convergence_is_a_named_error(monkeypatch):
    monkeypatch.setattr(iterative, "MAX_STEPS", 1)
    moments, cg, _ = setup()
    with pytest.raises(NotDefiniteError):
        cg.solve(moments.cross)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_each_right_hand_side_is_solved_to_its_own_scale(size):
    moments, cg, cholesky = setup()
    M = moments.cross * [size, 1.0, 0.0, 1.0]
    X = cg.solve(M)
    residual = np.linalg.norm(cholesky.apply(X) - M, axis=0)
    assert np.all(residual <= 2e-12 * np.linalg.norm(M, axis=0))
    np.testing.assert_array_equal(X[:, 2], 0.0)


# Warm starts ----------------------------------------------------------------------------------------------------------


def other_labels(rows, share=0.02):
    """Return cross-moments (D, 2) of labels, and of labels that differ in a share of the rows near the boundary."""
    Phi = np.concatenate([block for _, block in rows.blocks()]).astype(np.float64)
    Phi -= Phi.mean(axis=0)
    score = Phi @ np.random.default_rng(4).normal(size=Phi.shape[1])
    y = score > 0
    changed = y.copy()
    changed[np.argsort(np.abs(score))[: int(share * len(y))]] ^= True
    return tuple(Phi.T @ np.column_stack([z, ~z]).astype(float) / len(y) for z in (y, changed))


def problem(gamma=1e-3, n=1400, D=80, seed=0, bandwidth="median", **options):
    X = np.random.default_rng(seed).normal(size=(n, 8))
    features = FourierFeatures.fit(X, n_features=D, bandwidth=bandwidth, random_state=0)
    rows = FeatureRows(features, X, dtype="float64")
    Phi = features.transform(X)
    mean = Phi.mean(axis=0)
    C = CholeskyFactor((Phi - mean).T @ (Phi - mean) / n, gamma)
    return (
        rows,
        C,
        ConjugateGradientFactor(rows, np.ones(n), mean, gamma, np.random.RandomState(0), **options),
    )


def assert_solved(cholesky, X, M, tolerance=1e-12):
    residual = np.linalg.norm(cholesky.apply(X) - M, axis=0)
    assert np.all(residual <= 2 * tolerance * np.linalg.norm(M, axis=0))


def test_the_result_for_labels_does_not_depend_on_what_was_solved_in_between():
    rows, _, cg = problem()
    before, after = other_labels(rows)
    first, then = cg.reduce(before), cg.reduce(after)
    steps = cg.steps
    other = cg.reduce(np.random.default_rng(0).normal(size=(80, 3)))
    assert other.basis.shape == (80, 3)
    again = cg.reduce(after)
    np.testing.assert_array_equal(again.basis, then.basis)
    assert cg.steps == steps
    assert cg.reduce(before) is first
    assert cg.steps > steps  # those of the first solve, from zero
    assert cg.relative_residual <= cg.tolerance


def test_another_ridge_shares_the_sample_and_starts_from_earlier_solutions():
    rows, _, cg = problem(1e-3)
    _, cholesky, cold = problem(7e-4)
    M, _ = other_labels(rows)
    cg.solve(M)
    cold.solve(M)
    other = cg.at(7e-4)
    assert other.steps == 0
    assert other.relative_residual is None
    X = other.solve(M)
    assert_solved(cholesky, X, M)
    assert other.steps < cold.steps
    np.testing.assert_allclose(other.apply(X), cholesky.apply(X), rtol=1e-11, atol=1e-14)
    assert other.condition > cg.condition


# Degenerate problems --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1e-3, 1e-8])
@pytest.mark.parametrize(("n", "D"), [(40, 90), (700, 30), (900, 600)])
def test_few_rows_small_ridges_and_rows_without_weight_are_solved(n, D, gamma):
    rng = np.random.default_rng(n + D)
    X = rng.normal(size=(n, 3))
    w = rng.uniform(size=n) * (rng.random(n) < 0.3)
    w[:3] *= 1e3
    rows = FeatureRows(
        FourierFeatures.fit(X, n_features=D, random_state=0), X, dtype="float64", block_rows=100
    )
    moments = Moments(D, 5)
    J = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0, X[:, 0] > 0, np.ones(n), X[:, 1]]).astype(float)
    for block, Phi in rows.blocks():
        moments.update(Phi, J[block], w[block])
    result = moments.finalise()
    cg = ConjugateGradientFactor(rows, w, result.mean, gamma, np.random.RandomState(0), tolerance=1e-10)
    cholesky = CholeskyFactor(result.covariance, gamma)
    a, b = cg.reduce(result.cross), cholesky.reduce(result.cross)
    assert a.basis.shape == b.basis.shape == (D, 2)
    assert 0 < cg.relative_residual <= cg.tolerance == 1e-10
    Pa, Pb = (r.coordinates.T @ r.coordinates for r in (a, b))  # = crossᵀC⁻¹cross, whatever the signs
    np.testing.assert_allclose(Pa, Pb, rtol=1e-6, atol=1e-8 * np.abs(Pb).max())
    overlap = np.linalg.svd(a.basis.T @ cholesky.apply(b.basis), compute_uv=False)
    np.testing.assert_allclose(overlap, 1.0, atol=1e-5)
    if a.projected is not None:
        np.testing.assert_allclose(a.projected, rows.project(result.mean, a.basis), atol=1e-7)


def test_single_precision_reaches_its_tolerance_with_residuals_in_double():
    moments, cg, _ = setup("float32", gamma=1e-7)
    cg.solve(moments.cross)
    assert cg.relative_residual <= cg.tolerance == iterative.TOLERANCES["float32"]


def test_a_tolerance_that_rounding_forbids_is_a_named_error_and_not_an_endless_loop():
    moments, cg, _ = setup("float64", gamma=1e-7)
    cg.tolerance = 1e-18
    with pytest.raises(ToleranceError):
        cg.solve(moments.cross)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [1, 6, 7])
def test_products_and_projected_rows_are_those_of_the_definition(k, dtype):
    rng = np.random.default_rng(k)
    X, V = rng.normal(size=(300, 4)), rng.normal(size=(50, k))
    w = rng.uniform(size=300)
    w /= w.sum()
    rows = FeatureRows(FourierFeatures.fit(X, n_features=50, random_state=0), X, dtype=dtype, block_rows=130)
    Phi = np.concatenate([block for _, block in rows.blocks()]).astype(np.float64)
    mean = w @ Phi
    expected = (Phi - mean) @ V
    for precision, error in ((None, 2e-5 if dtype == "float32" else 1e-12), (np.float64, 1e-12)):
        product, projected = covariance_product(rows, w, mean, V, dtype=precision, projects=True)
        np.testing.assert_allclose(product, (Phi - mean).T @ (w[:, None] * expected), atol=error)
        np.testing.assert_allclose(projected, expected, atol=error)
        assert covariance_product(rows, w, mean, V)[1] is None
