"""The map into the same space: the minimiser that it claims to be, at every strength, and no less than that."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from fairerclip.baselines.leace import erase
from fairerclip.embedding.same_space import RANK_TOLERANCE, factor_same_space
from fairerclip.errors import NotDefiniteError, ShapeError
from fairerclip.solver.moments import Moments

GAMMA = 1e-2


class Problem:
    """Rows x, label columns of each attribute, and weights; all naive."""

    def __init__(self, X, labels, weight=None, gamma=GAMMA):
        self.X, self.labels, self.gamma = X, labels, gamma
        w = np.ones(len(X)) if weight is None else weight
        self.w = w / w.sum()
        rows = np.hstack([X, *labels])
        moments = Moments(rows.shape[1], 0).update(rows, np.empty((len(X), 0)), w).finalise()
        self.space = factor_same_space(moments, [L.shape[1] for L in labels], gamma)

    def centred(self, A):
        return A - self.w @ A

    def covariance(self, A, B):
        return self.centred(A).T @ (self.w[:, None] * self.centred(B))

    def whitened(self):
        """Label columns of each attribute with covariance I, by the eigenvectors of their covariance."""
        out = []
        for L in self.labels:
            values, vectors = np.linalg.eigh(self.covariance(L, L))
            kept = values > RANK_TOLERANCE * max(values.max(initial=0.0), 1e-300)
            out.append(self.centred(L) @ vectors[:, kept] / np.sqrt(values[kept]))
        return out

    def taus(self, strengths):
        """τ = strength/(1 − strength)/ρ with ρ the largest eigenvalue of MᵀC⁻¹M."""
        C = self.covariance(self.X, self.X) + self.gamma * np.eye(self.X.shape[1])
        out = []
        for L, strength in zip(self.whitened(), strengths, strict=True):
            M = self.covariance(self.X, L)
            rho = np.linalg.eigvalsh(M.T @ np.linalg.solve(C, M)).max(initial=0.0)
            out.append(strength / (1 - strength) / rho if rho > RANK_TOLERANCE**2 else 0.0)
        return out

    def objective(self, c, q, strengths):
        """Σ w (f − q·x)² + γ‖f − f_q‖² + Σ τ‖Cov(f, L̃)‖² of f(x) = q·x − c·x, all about the mean."""
        change = self.centred(self.X) @ c
        f = self.centred(self.X) @ q - change
        value = self.w @ change**2 + self.gamma * c @ c
        for L, tau in zip(self.whitened(), self.taus(strengths), strict=True):
            value += tau * np.sum((f @ (self.w[:, None] * L)) ** 2)
        return value

    def minimiser(self, q, strengths):
        """The coefficients of the change, by least squares on stacked rows."""
        root = np.sqrt(self.w)[:, None]
        blocks = [root * self.centred(self.X), np.sqrt(self.gamma) * np.eye(self.X.shape[1])]
        sides = [np.zeros(len(self.X)), np.zeros(self.X.shape[1])]
        for L, tau in zip(self.whitened(), self.taus(strengths), strict=True):
            blocks.append(np.sqrt(tau) * self.covariance(L, self.X))
            sides.append(np.sqrt(tau) * self.covariance(L, self.X) @ q)
        return np.linalg.lstsq(np.vstack(blocks), np.concatenate(sides), rcond=None)[0]

    def coefficients(self, q, strengths):
        """The same of the map: q·A(x) = q·x − c·(x − mean)."""
        solved = self.space.at(strengths)
        return solved.right @ (solved.left @ q)

    def mapped(self, strengths):
        solved = self.space.at(strengths)
        return self.X - (self.X - solved.mean) @ solved.right @ solved.left


def onehot(codes, v):
    return np.eye(v)[codes][:, 1:]


def problem(seed=0, n=80, p=4, sizes=(2,), kind="hard", weighted=False, gamma=GAMMA):
    """A random problem; attributes shift the rows, and kinds of labels are hard, soft or quantities."""
    rng = np.random.default_rng(seed)
    X, labels = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)), []
    for v in sizes:
        codes = rng.integers(v, size=n)
        X = X + rng.normal(size=(v, p))[codes]
        if kind == "quantity":
            labels.append(rng.normal(size=(n, 1)) + X[:, :1])
        elif kind == "soft":
            labels.append(rng.dirichlet(np.ones(v), size=n)[:, 1:] / 2 + onehot(codes, v) / 2)
        else:
            labels.append(onehot(codes, v))
    return Problem(X, labels, rng.integers(4, size=n) + 0.5 if weighted else None, gamma)


SHAPES = {
    "one binary attribute": {},
    "five values": {"sizes": (5,)},
    "several attributes": {"sizes": (2, 3, 4)},
    "more label columns than dimensions": {"sizes": (6,), "p": 3},
    "fewer rows than columns": {"n": 5, "p": 9},
    "soft": {"kind": "soft", "sizes": (3, 2)},
    "a quantity": {"kind": "quantity"},
    "weights": {"weighted": True, "sizes": (3,)},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strength", [0.3, 0.9, 0.9999])
def test_the_score_of_any_query_is_the_minimiser_found_by_least_squares(shape, strength):
    made = problem(seed=len(shape), **SHAPES[shape])
    strengths = [strength] * len(made.labels)
    for q in np.random.default_rng(1).normal(size=(3, made.X.shape[1])):
        expected = made.minimiser(q, strengths)
        assert_allclose(made.coefficients(q, strengths), expected, atol=1e-8 * (1 + np.abs(expected).max()))
        scores = made.mapped(strengths) @ q
        assert_allclose(scores, made.X @ q - made.centred(made.X) @ expected, atol=1e-7)


def test_a_minimiser_by_gradient_descent_agrees():
    made = problem(seed=3, sizes=(3, 2))
    q = np.random.default_rng(0).normal(size=4)
    found = minimize(made.objective, np.zeros(4), args=(q, [0.7, 0.4]), tol=1e-14)
    assert_allclose(made.coefficients(q, [0.7, 0.4]), found.x, atol=1e-5)


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(3, 30),
    p=st.integers(1, 6),
    sizes=st.lists(st.integers(2, 4), min_size=1, max_size=3),
    kind=st.sampled_from(["hard", "soft", "quantity"]),
    strength=st.floats(0.01, 0.99),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_first_order_optimality_by_finite_differences(seed, n, p, sizes, kind, strength):
    made = problem(seed=seed, n=n, p=p, sizes=sizes, kind=kind)
    rng = np.random.default_rng(seed)
    q, strengths = rng.normal(size=p), [strength] * len(sizes)
    c, step = made.coefficients(q, strengths), 1e-4
    best = made.objective(c, q, strengths)
    for _ in range(4):
        d = rng.normal(size=len(c))
        d /= np.linalg.norm(d)
        up, down = (made.objective(c + sign * step * d, q, strengths) for sign in (1, -1))
        assert min(up, down) >= best - 1e-12 * (1 + best)
        curvature = (up + down - 2 * best) / step**2
        assert abs(up - down) / (2 * step) <= 1e-6 * (1 + best + abs(curvature))


@pytest.mark.parametrize("shape", SHAPES)
def test_strength_0_changes_nothing_at_all(shape):
    made = problem(**SHAPES[shape])
    assert_array_equal(made.mapped([0.0] * len(made.labels)), made.X)


@pytest.mark.parametrize(
    "shape", ["one binary attribute", "several attributes", "soft", "a quantity", "weights"]
)
@pytest.mark.parametrize("gamma", [1e-6, 1.0])
def test_strength_1_leaves_no_covariance_with_s_for_any_ridge(shape, gamma):
    made = problem(n=300, p=12, gamma=gamma, **SHAPES[shape])
    after = made.mapped([1.0] * len(made.labels))
    for L in made.whitened():
        assert np.abs(made.covariance(made.X, L)).max() > 1e-2
        assert np.abs(made.covariance(after, L)).max() < 1e-10
    assert max(made.space.remaining([1.0] * len(made.labels))) < 1e-20


def test_the_dependence_that_is_left_falls_with_the_strength_and_is_the_one_that_is_told():
    made = problem(n=200, p=5, sizes=(4,))
    (L,) = made.whitened()
    before = np.sum(made.covariance(made.X, L) ** 2)
    told = []
    for strength in np.linspace(0, 1, 11):
        (share,) = made.space.remaining([strength])
        found = np.sum(made.covariance(made.mapped([strength]), L) ** 2) / before
        assert share == pytest.approx(found, abs=1e-12)
        told.append(share)
    assert told[0] == pytest.approx(1.0)
    assert np.all(np.diff(told) < 0)


def test_the_objective_falls_and_the_change_grows_with_the_strength():
    made = problem(n=200, p=5, sizes=(3,))
    changes = [np.sum((made.mapped([s]) - made.X) ** 2) for s in np.linspace(0, 1, 11)]
    assert np.all(np.diff(changes) > 0)


def test_strengths_of_attributes_are_their_own():
    made = problem(n=300, p=8, sizes=(3, 2))
    only_first = made.space.remaining([1.0, 0.0])
    assert only_first[0] < 1e-20
    assert only_first[1] > 0.3
    alone = Problem(made.X, made.labels[:1])
    assert_allclose(made.mapped([1.0, 0.0]), alone.mapped([1.0]), atol=1e-12)


def test_a_tiny_strength_of_one_attribute_does_not_hide_another():
    made = problem(n=300, p=8, sizes=(3, 2))
    for tiny in (1e-6, 1e-15, 1e-300):
        assert made.space.remaining([1.0, tiny])[0] < 1e-18
        assert_allclose(made.mapped([1.0, tiny]), made.mapped([1.0, 0.0]), atol=1e-5)


def test_labels_without_any_covariance_change_nothing_where_rounding_would_be_erased():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(60, 5))
    # The same rows in both groups, summed in another order: covariances are rounding error, which has a direction too.
    X, s = np.vstack([half, half[::-1]]), np.arange(120) // 60
    made = Problem(X, [onehot(s, 2)])
    assert np.abs(made.space.half).max() < 1e-10
    for strength in (0.5, 1.0):
        assert_array_equal(made.mapped([strength]), X)
        assert made.space.remaining([strength]) == [0.0]


def test_a_label_that_is_noise_beside_one_that_is_not_is_left_alone():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(60, 5))
    X, s = np.vstack([half, half[::-1]]), np.arange(120) // 60
    other = (X[:, 0] > 0).astype(int)
    both = Problem(X, [onehot(s, 2), onehot(other, 2)])
    alone = Problem(X, [onehot(other, 2)])
    assert_allclose(both.mapped([1.0, 1.0]), alone.mapped([1.0]), atol=1e-10)


def test_constant_and_repeated_label_columns_change_nothing_of_the_result():
    made = problem(n=100, p=5, sizes=(4,))
    (L,) = made.labels
    padded = Problem(made.X, [np.column_stack([L, np.ones(100), L[:, 0], np.zeros(100)])])
    assert padded.space.blocks[0].stop == 3
    for strength in (0.5, 1.0):
        assert_allclose(padded.space.at([strength]).right.shape, (5, 3))
        # A repeated column weighs its direction twice before whitening, and not after it.
        assert_allclose(padded.mapped([strength]), made.mapped([strength]), atol=1e-9)


def test_columns_in_another_base_span_the_same_labels():
    made = problem(n=100, p=5, sizes=(4,))
    (L,) = made.labels
    other = Problem(made.X, [L @ np.random.default_rng(0).normal(size=(3, 3))])
    assert_allclose(other.mapped([0.6]), made.mapped([0.6]), atol=1e-9)


def test_repeated_rows_are_weights():
    made = problem(n=40, p=4, sizes=(3,))
    counts = np.random.default_rng(0).integers(1, 4, size=40)
    repeated = Problem(np.repeat(made.X, counts, axis=0), [np.repeat(made.labels[0], counts, axis=0)])
    weighted = Problem(made.X, made.labels, counts.astype(float))
    for strength in (0.4, 1.0):
        a, b = repeated.space.at([strength]), weighted.space.at([strength])
        assert_allclose(a.right @ a.left, b.right @ b.left, atol=1e-12)
        assert_allclose(a.mean, b.mean, atol=1e-14)


@pytest.mark.parametrize("v", [2, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_without_a_ridge_and_at_full_strength_it_is_leace(v, weighted):
    made = problem(seed=2, n=500, p=10, sizes=(v,), weighted=weighted, gamma=1e-12)
    codes = np.where(made.labels[0].any(axis=1), made.labels[0].argmax(axis=1) + 1, 0)
    eraser = erase(made.X, codes, made.w)
    assert_allclose(made.mapped([1.0]), eraser(made.X), atol=1e-7)


def test_full_strength_is_the_limit_of_strong_penalties_and_idempotent():
    made = problem(n=300, p=6, sizes=(4,))
    assert_allclose(made.mapped([1 - 1e-9]), made.mapped([1.0]), atol=1e-6)
    solved = made.space.at([1.0])
    A = np.eye(6) - solved.right @ solved.left
    assert_allclose(A @ A, A, atol=1e-10)
    assert np.linalg.matrix_rank(A, tol=1e-8) == 3


def test_the_mean_of_the_rows_stays():
    made = problem(n=100, p=5, sizes=(3,), weighted=True)
    assert_allclose(made.w @ made.mapped([1.0]), made.w @ made.X, atol=1e-12)


def test_no_map_changes_scores_less_than_subtracting_the_group_means_does():
    # Of all functions of the rows that are uncorrelated with S, x minus its regression on S is closest to x.
    made = problem(n=60, p=5, sizes=(3,), gamma=1e-8)
    (L,) = made.whitened()
    oracle = L @ made.covariance(L, made.X)
    least = np.mean(oracle**2)
    assert max(made.space.remaining([1.0])) < 1e-12
    assert np.mean((made.mapped([1.0]) - made.X) ** 2) >= least - 1e-12


def test_no_attribute_gives_the_identity():
    made = Problem(np.random.default_rng(0).normal(size=(9, 3)), [])
    assert_array_equal(made.mapped([]), made.X)
    assert made.space.remaining([]) == []


def test_wrong_numbers_of_strengths_or_columns_are_refused():
    made = problem(sizes=(2, 2))
    with pytest.raises(ShapeError, match="expected 2, got 1"):
        made.space.at([1.0])
    moments = Moments(3, 0).update(np.eye(3), np.empty((3, 0)), np.ones(3)).finalise()
    with pytest.raises(ShapeError):
        factor_same_space(moments, [3], GAMMA)
    moments = Moments(4, 0).update(np.full((3, 4), 2.0), np.empty((3, 0)), np.ones(3)).finalise()
    with pytest.raises(NotDefiniteError, match="raise gamma"):
        factor_same_space(moments, [1], 0.0)
