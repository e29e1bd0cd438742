"""Softmax regression: its minimum, found in independent ways, for penalties and rows at the ends of their ranges."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import log_softmax

from fairerclip.baselines import AFR, JTT, LEACE, PPA, LinearProbe, WiSE
from fairerclip.baselines.shared_solutions import shared_solutions
from fairerclip.baselines.softmax import softmax_path

GRID = [10.0 ** (k / 5) for k in range(-25, 15)]


def drawn(n, p, n_classes, *, seed=0, spread=1.5):
    """Rows (n, p) of every class, whose columns have variances from 1 to 1e-4, their codes, and weights."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = (rng.normal(size=(n, p)) + spread * rng.normal(size=(n_classes, p))[y]) * np.logspace(0, -2, p)
    return X, y, rng.uniform(0.2, 3.0, size=n)


def solve(X, y, weight, C, n_classes, tol=1e-9):
    (solution,) = softmax_path(X, y, weight, n_classes, [C], tol=tol, max_iter=200)
    assert solution.converged
    return solution


def gradient(X, y, weight, C, coef, intercept):
    """Gradient (c, p + 1) of the objective, written out; for two classes that of half of scikit-learn's C."""
    n_classes = len(coef)
    P = np.exp(log_softmax(X @ coef.T + intercept, axis=1))
    by_row = C * (0.5 if n_classes == 2 else 1.0) * weight[:, None] * (P - np.eye(n_classes)[y])
    return np.column_stack([by_row.T @ X + coef, by_row.sum(axis=0)])


def by_scipy(X, y, weight, C, n_classes):
    """Minimise by L-BFGS, with the objective written out."""
    share, onehot = 0.5 if n_classes == 2 else 1.0, np.eye(n_classes)[y]

    def objective(theta):
        T = theta.reshape(n_classes, -1)
        P = log_softmax(X @ T[:, :-1].T + T[:, -1], axis=1)
        value = 0.5 * np.sum(T[:, :-1] ** 2) - share * C * np.sum(weight[:, None] * onehot * P)
        return value, gradient(X, y, weight, C, T[:, :-1], T[:, -1]).ravel()

    options = {"gtol": 1e-10, "ftol": 0, "maxiter": 50_000, "maxfun": 100_000, "maxcor": 50}
    start = np.zeros(n_classes * (X.shape[1] + 1))
    T = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x.reshape(n_classes, -1)
    return T[:, :-1], T[:, -1] - T[:, -1].mean()


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("C", [1e-6, 1.0, 1e3])
@pytest.mark.parametrize(("n", "p"), [(120, 15), (25, 60)], ids=["tall", "wide"])
def test_it_is_the_minimum_that_scipy_finds(n_classes, C, n, p):
    X, y, weight = drawn(n, p, n_classes)
    found = solve(X, y, weight, C, n_classes)
    coef, intercept = by_scipy(X, y, weight, C, n_classes)
    # The reference has a gradient of its own, which bounds its distance from the minimum.
    doubt = np.linalg.norm(gradient(X, y, weight, C, coef, intercept)) + 1e-9 * np.linalg.norm(coef)
    assert doubt < 1e-4 * np.linalg.norm(coef)
    assert np.linalg.norm(found.coef - coef) <= 2 * doubt
    assert_allclose(found.intercept, intercept, atol=1e-5 + 1e-5 * np.abs(intercept).max())


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("C", [1e-8, 1e6, 1e10])
def test_the_gradient_that_it_names_is_that_of_the_objective(n_classes, C):
    X, y, weight = drawn(200, 20, n_classes, seed=1, spread=0.3)
    X = X - weight @ X / weight.sum()  # the gradient is by the intercept of the centred rows
    found = solve(X, y, weight, C, n_classes, tol=1e-4)
    there = np.linalg.norm(gradient(X, y, weight, C, found.coef, found.intercept))
    rounding = 1e-15 * C * np.sum(weight * np.linalg.norm(X, axis=1))
    assert there <= 1e-4 * np.linalg.norm(found.coef) + rounding
    assert_allclose(there / np.linalg.norm(found.coef), found.gradient, rtol=1e-2, atol=1e-9 + rounding)


def test_constant_and_equal_columns():
    X, y, weight = drawn(60, 6, 3, seed=5)
    X = np.column_stack([X, X[:, :2], np.zeros(60)])
    found = solve(X, y, weight, 50.0, 3)
    assert_allclose(found.coef[:, 6:8], found.coef[:, :2], atol=1e-8 * np.linalg.norm(found.coef))
    assert_allclose(found.coef[:, 8], 0, atol=1e-12)


# Shared work ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda C: LEACE(head="probe", C=C, tol=1e-7),
        lambda C: WiSE(C=C, alpha=0.3, class_weight="group", tol=1e-7),
        lambda C: LinearProbe(C=C, class_weight="group", standardize="column", tol=1e-7),
        lambda C: JTT(5.0, C=C, tol=1e-7),
        lambda C: AFR(2.0, C=C, random_state=0, tol=1e-7),
        lambda C: PPA(C=C, random_state=0, tol=1e-7),
    ],
    ids=["leace", "wise", "probe", "jtt", "afr", "ppa"],
)
def test_shared_work_belongs_to_its_rows_labels_groups_and_weights(embeddings, make):
    e = embeddings(seed=17, n=90, n_classes=3)
    base = {"X": e.X, "y": e.y, "text": e.text, "sensitive_features": e.s, "sample_weight": None}
    fits = [
        base,
        base | {"X": e.X[::-1].copy()},
        base | {"y": np.where(np.arange(90) % 9, e.y, (e.y + 1) % 3)},
        base | {"sensitive_features": np.roll(e.s, 1)},
        base | {"sample_weight": np.arange(90) % 4},
    ]
    with shared_solutions():
        shared = [make(C).fit(**given) for given in fits for C in (1.0, 0.01)]
    alone = [make(C).fit(**given) for given in fits for C in (1.0, 0.01)]
    for one, other in zip(shared, alone, strict=True):
        assert_allclose(one.scores(e.X), other.scores(e.X), atol=1e-4 * np.abs(other.scores(e.X)).max())


@pytest.mark.parametrize(("n", "p", "n_classes"), [(150, 30, 2), (30, 50, 5)], ids=["tall", "wide"])
def test_solutions_of_a_path_in_any_order_are_those_of_single_fits(n, p, n_classes):
    X, y, weight = drawn(n, p, n_classes, seed=6)
    for grid in ([1.0, *(C for C in GRID if C != 1)], np.random.default_rng(0).permutation(GRID).tolist()):
        path = softmax_path(X, y, weight, n_classes, grid, tol=1e-8, max_iter=100)
        for C, solution in [*zip(grid, path, strict=True)][::5]:
            alone = solve(X, y, weight, C, n_classes, tol=1e-8)
            size = np.linalg.norm(alone.coef)
            assert solution.converged
            assert np.linalg.norm(solution.coef - alone.coef) <= 2e-8 * size + 1e-12
            scores = X @ (solution.coef - alone.coef).T + solution.intercept - alone.intercept
            assert np.abs(scores).max() <= 1e-5 * max(size, 1.0)
