"""The map into the same space: the minimiser that it claims to be, at every strength, and no less than that."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

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

    def minimiser(self, q, strengths):
        """The change c of f(x) = q·x − c·x that minimises Σ w (c·x)² + γ‖c‖² + Σ τ‖Cov(f, L̃)‖², by least squares."""
        root = np.sqrt(self.w)[:, None]
        blocks = [root * self.centred(self.X), np.sqrt(self.gamma) * np.eye(self.X.shape[1])]
        sides = [np.zeros(len(self.X)), np.zeros(self.X.shape[1])]
        for L, tau in zip(self.whitened(), self.taus(strengths), strict=True):
            blocks.append(np.sqrt(tau) * self.covariance(L, self.X))
            sides.append(np.sqrt(tau) * self.covariance(L, self.X) @ q)
        return np.linalg.lstsq(np.vstack(blocks), np.concatenate(sides), rcond=None)[0]

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


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(3, 60),
    p=st.integers(1, 8),
    sizes=st.lists(st.integers(2, 5), max_size=3),
    kind=st.sampled_from(["hard", "soft", "quantity"]),
    weighted=st.booleans(),
    strength=st.sampled_from([0.3, 0.9, 0.9999]),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_scores_and_what_remains_are_those_of_the_minimiser_by_least_squares(
    seed, n, p, sizes, kind, weighted, strength
):
    made = problem(seed, n, p, sizes, kind, weighted)
    strengths = [strength] * len(sizes)
    q = np.random.default_rng(seed).normal(size=p)
    expected = made.minimiser(q, strengths)
    scale = 1 + np.abs(made.X).max() * np.abs(expected).max()
    mapped = made.mapped(strengths)
    assert_allclose(mapped @ q, made.X @ q - made.centred(made.X) @ expected, atol=1e-6 * scale)
    assert_allclose(made.w @ mapped, made.w @ made.X, atol=1e-10)
    for L, share in zip(made.whitened(), made.space.remaining(strengths), strict=True):
        before, after = (np.sum(made.covariance(rows, L) ** 2) for rows in (made.X, mapped))
        assert share * before == pytest.approx(after, abs=1e-9 * (1 + before))
    assert_array_equal(made.mapped([0.0] * len(sizes)), made.X)


@pytest.mark.parametrize(
    "shape",
    [{}, {"sizes": (2, 3, 4)}, {"kind": "soft", "sizes": (3, 2)}, {"kind": "quantity"}, {"weighted": True}],
    ids=str,
)
@pytest.mark.parametrize("gamma", [1e-6, 1.0])
def test_strength_1_leaves_no_covariance_with_s_for_any_ridge(shape, gamma):
    made = problem(n=300, p=12, gamma=gamma, **shape)
    full = [1.0] * len(made.labels)
    for L in made.whitened():
        assert np.abs(made.covariance(made.X, L)).max() > 1e-2
        assert np.abs(made.covariance(made.mapped(full), L)).max() < 1e-10
    assert max(made.space.remaining(full)) < 1e-20
    assert_allclose(made.mapped([1 - 1e-9] * len(full)), made.mapped(full), atol=1e-5)
    solved = made.space.at(full)
    A = np.eye(12) - solved.right @ solved.left
    assert_allclose(A @ A, A, atol=1e-10)
    assert np.linalg.matrix_rank(A, tol=1e-8) == 12 - sum(L.shape[1] for L in made.labels)


@pytest.mark.parametrize("v", [2, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_without_a_ridge_and_at_full_strength_it_is_leace(v, weighted):
    made = problem(seed=2, n=500, p=10, sizes=(v,), weighted=weighted, gamma=1e-12)
    codes = np.where(made.labels[0].any(axis=1), made.labels[0].argmax(axis=1) + 1, 0)
    assert_allclose(made.mapped([1.0]), erase(made.X, codes, made.w)(made.X), atol=1e-7)


def test_strengths_of_attributes_are_their_own_and_a_tiny_one_hides_no_other():
    made = problem(n=300, p=8, sizes=(3, 2))
    only_first = made.space.remaining([1.0, 0.0])
    assert only_first[0] < 1e-20 < 0.3 < only_first[1]
    assert_allclose(made.mapped([1.0, 0.0]), Problem(made.X, made.labels[:1]).mapped([1.0]), atol=1e-12)
    for tiny in (1e-6, 1e-15, 1e-300):
        assert made.space.remaining([1.0, tiny])[0] < 1e-18
        assert_allclose(made.mapped([1.0, tiny]), made.mapped([1.0, 0.0]), atol=1e-5)


def test_labels_without_any_covariance_change_nothing_where_rounding_would_be_erased():
    half = np.random.default_rng(0).normal(size=(60, 5))
    # The same rows in both groups, summed in another order: covariances are rounding error, which has a direction too.
    X, s = np.vstack([half, half[::-1]]), np.arange(120) // 60
    made = Problem(X, [onehot(s, 2)])
    for strength in (0.5, 1.0):
        assert_array_equal(made.mapped([strength]), X)
        assert made.space.remaining([strength]) == [0.0]
    other = onehot((X[:, 0] > 0).astype(int), 2)
    both, alone = Problem(X, [onehot(s, 2), other]), Problem(X, [other])
    assert_allclose(both.mapped([1.0, 1.0]), alone.mapped([1.0]), atol=1e-10)


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_labels_in_another_base_and_repeated_rows_give_the_same_map(strength):
    made = problem(n=100, p=5, sizes=(4,))
    (L,), rng = made.labels, np.random.default_rng(0)
    expected = made.mapped([strength])
    assert_allclose(Problem(made.X, [L @ rng.normal(size=(3, 3))]).mapped([strength]), expected, atol=1e-9)
    padded = Problem(made.X, [np.column_stack([L, np.ones(100), L[:, 0], np.zeros(100)])])
    assert_allclose(padded.mapped([strength]), expected, atol=1e-9)
    counts = rng.integers(1, 4, size=100)
    a = Problem(np.repeat(made.X, counts, axis=0), [np.repeat(L, counts, axis=0)]).space.at([strength])
    b = Problem(made.X, made.labels, counts.astype(float)).space.at([strength])
    assert_allclose(a.right @ a.left, b.right @ b.left, atol=1e-12)
    assert_allclose(a.mean, b.mean, atol=1e-14)


def test_wrong_numbers_of_strengths_or_columns_and_a_singular_problem_are_refused():
    with pytest.raises(ShapeError):
        problem(sizes=(2, 2)).space.at([1.0])
    moments = Moments(3, 0).update(np.eye(3), np.empty((3, 0)), np.ones(3)).finalise()
    with pytest.raises(ShapeError):
        factor_same_space(moments, [3], GAMMA)
    moments = Moments(4, 0).update(np.full((3, 4), 2.0), np.empty((3, 0)), np.ones(3)).finalise()
    with pytest.raises(NotDefiniteError):
        factor_same_space(moments, [1], 0.0)
