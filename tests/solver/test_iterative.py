import numpy as np
import pytest

from fairerclip.errors import NotDefiniteError
from fairerclip.features import FourierFeatures
from fairerclip.solver import iterative
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


def test_float32_features_reach_what_they_hold():
    moments, cg, cholesky = setup("float32")
    a, b = cg.reduce(moments.cross), cholesky.reduce(moments.cross)
    overlap = np.linalg.svd(a.basis.T @ cholesky.apply(b.basis), compute_uv=False)
    np.testing.assert_allclose(overlap, 1.0, atol=1e-4)


def test_applying_c_by_passes_equals_the_formed_matrix():
    _, cg, cholesky = setup()
    V = np.random.default_rng(1).normal(size=(60, 2))
    np.testing.assert_allclose(cg.apply(V), cholesky.apply(V), rtol=1e-11, atol=1e-13)


def test_the_preconditioner_keeps_the_number_of_steps_small():
    moments, cg, _ = setup(n=4000)
    cg.solve(moments.cross)
    assert 0 < cg.steps <= 60


def test_no_convergence_is_a_named_error(monkeypatch):
    monkeypatch.setattr(iterative, "MAX_STEPS", 1)
    moments, cg, _ = setup()
    messages = []
    for scale in (1.0, 1e-6):
        M = scale * moments.cross
        M[:, 1] = 0.0
        with pytest.raises(NotDefiniteError, match="did not converge in 1 steps") as error:
            cg.solve(M)
        messages.append(str(error.value))
    assert messages[0] == messages[1]  # the residual is relative


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_each_right_hand_side_is_solved_to_its_own_scale(size):
    moments, cg, cholesky = setup()
    M = moments.cross * [size, 1.0, 0.0, 1.0]
    X = cg.solve(M)
    residual = np.linalg.norm(cholesky.apply(X) - M, axis=0)
    assert np.all(residual <= 2e-12 * np.linalg.norm(M, axis=0))
    np.testing.assert_array_equal(X[:, 2], 0.0)


def test_c_is_taken_about_the_mean_that_is_given():
    class Identity:
        n_features = 4

        def transform(self, X):
            return X

    rng = np.random.default_rng(2)
    X, w, mean, V = (
        rng.normal(size=(30, 4)),
        rng.uniform(size=30),
        rng.normal(size=4),
        rng.normal(size=(4, 2)),
    )
    rows = FeatureRows(Identity(), X, dtype="float64", block_rows=7)
    cg = ConjugateGradientFactor(rows, w, mean, 0.1, np.random.RandomState(0))
    C = (X - mean).T @ ((w / w.sum())[:, None] * (X - mean)) + 0.1 * np.eye(4)
    np.testing.assert_allclose(cg.apply(V), C @ V, rtol=1e-12)
