"""Dependence measures against n×n references, known values and their invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh

from fairerclip.errors import NonFiniteError, ParameterError, ShapeError
from fairerclip.features import median_bandwidth
from fairerclip.metrics import (
    dep,
    dependence_interval,
    dependence_test,
    hsic,
    hsic_bound,
    kcc,
    permutation_test,
)
from fairerclip.metrics.dependence import attribute as _attribute
from fairerclip.metrics.dependence import measures as dependence
from fairerclip.metrics.dependence import permutation

TIGHT = 1e-12


def naive_rbf(X, sigma):
    X = np.asarray(X, dtype=float).reshape(len(X), -1)
    return np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / (2 * sigma**2))


def naive_delta(s):
    return np.array([[float(a == b) for b in s] for a in s])


def median_rbf(X):
    X = np.asarray(X, dtype=float).reshape(len(X), -1)
    return naive_rbf(X, median_bandwidth(X))


def centring(n):
    return np.eye(n) - 1 / n


def naive_dep(Z, K):
    n, L = len(K), np.linalg.cholesky(K + 1e-13 * np.eye(len(K)))
    return np.linalg.norm(Z.T @ centring(n) @ L) ** 2 / n**2


def naive_hsic(K, L):
    H = centring(len(K))
    return np.trace(K @ H @ L @ H) / len(K) ** 2


def sample(seed, n=60, d=3, categories=3):
    """Rows that depend on a label, with the label and a quantity."""
    rng = np.random.default_rng(seed)
    s = rng.integers(categories, size=n)
    X = rng.normal(size=(n, d)) + s[:, None]
    return X, s, X[:, 0] + 0.3 * rng.normal(size=n)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few rows, so that small inputs cross their borders."""
    monkeypatch.setattr(_attribute, "BLOCK", 400)
    monkeypatch.setattr(dependence, "BLOCK", 400)
    monkeypatch.setattr(permutation, "_BATCH", 4000)


# Dep


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 50), r=st.integers(1, 5), categories=st.integers(1, 6))
def test_dep_on_categories_is_the_factor_norm_of_the_paper(seed, n, r, categories):
    rng = np.random.default_rng(seed)
    Z, s = rng.normal(size=(n, r)), rng.integers(categories, size=n)
    one_hot = np.eye(categories)[s]
    expected = np.linalg.norm(Z.T @ centring(n) @ one_hot) ** 2 / n**2
    assert dep(Z, s) == pytest.approx(expected, rel=TIGHT, abs=1e-30)


@pytest.mark.parametrize(("n", "r"), [(2, 1), (17, 1), (60, 4), (61, 2)])
@pytest.mark.usefixtures("small_blocks")
def test_dep_on_a_quantity_equals_the_trace_with_the_full_gram_matrix(n, r):
    rng = np.random.default_rng(n)
    Z, s = rng.normal(size=(n, r)), rng.normal(size=n)
    K = median_rbf(s)
    Zc = Z - Z.mean(0)
    assert dep(Z, s) == pytest.approx(np.trace(Zc.T @ K @ Zc) / n**2, rel=TIGHT)
    assert dep(Z, s) == pytest.approx(naive_dep(Z, K), rel=1e-9)


def test_dep_takes_a_number_or_a_multiple_of_the_median_as_bandwidth():
    X, _, c = sample(0)
    assert dep(X, c, bandwidth=0.5) == pytest.approx(naive_dep(X, naive_rbf(c, 0.5)), rel=1e-9)
    three = naive_dep(X, naive_rbf(c, 3 * median_bandwidth(c[:, None])))
    assert dep(X, c, bandwidth="3*median") == pytest.approx(three, rel=1e-6)


@pytest.mark.parametrize("measure", [dep, hsic, kcc])
def test_measures_do_not_change_with_label_names_row_order_or_a_shift(measure):
    X, s, _ = sample(1)
    value = measure(X, s)
    order = np.random.default_rng(0).permutation(len(s))
    assert measure(X, np.array(["x", "a", "m"])[s]) == pytest.approx(value, rel=1e-10)
    assert measure(X, [("x", "a", "m")[i] for i in s]) == pytest.approx(value, rel=1e-10)
    assert measure(X[order], s[order]) == pytest.approx(value, rel=1e-10)
    assert measure(X + 100.0, s) == pytest.approx(value, rel=1e-9)


def test_kind_is_read_from_the_values():
    X, s, _ = sample(3)
    halves = s + 0.5
    assert dep(X, s.astype(float)) == dep(X, s)
    assert dep(X, halves) == dep(X, halves, kind="continuous") != dep(X, halves, kind="categorical")
    assert dep(X, halves, kind="categorical") == dep(X, s)
    assert dep(X, s, kind="continuous") == pytest.approx(naive_dep(X, median_rbf(s)), rel=1e-6)
    assert dep(X, s == 1) == dep(X, (s == 1).astype(str))


@pytest.mark.parametrize("measure", [dep, hsic, kcc])
def test_several_categorical_columns_are_intersected(measure):
    X, s, _ = sample(4)
    t = np.random.default_rng(4).integers(2, size=len(s))
    assert measure(X, np.column_stack([s, t])) == measure(X, s * 2 + t)
    table = np.array([["abc"[i], bool(j)] for i, j in zip(s, t, strict=True)], dtype=object)
    assert measure(X, table) == measure(X, s * 2 + t)


@pytest.mark.parametrize("measure", [dep, hsic, kcc, permutation_test])
@pytest.mark.parametrize(
    ("rows", "labels", "options", "error", "fact"),
    [
        (6, 5, {}, ShapeError, "5"),
        ([[1.0], [np.nan]], 2, {}, NonFiniteError, "row 1"),
        (6, np.array([0.5, 1, 2, 3, 4, np.inf]), {}, NonFiniteError, "row 5"),
        (6, 6, {"kind": "ordinal"}, ParameterError, "ordinal"),
    ],
)
def test_bad_input_is_named(measure, rows, labels, options, error, fact):
    X = sample(6, rows)[0] if isinstance(rows, int) else rows
    with pytest.raises(error, match=fact):
        measure(X, np.arange(labels) % 2 if isinstance(labels, int) else labels, **options)


@pytest.mark.parametrize(
    "call",
    [
        lambda X, s: kcc(X, s, regularization=0.0),
        lambda X, s: permutation_test(X, s, statistic="mmd"),
        lambda X, s: dependence_interval(X, s, confidence=1.0),
        lambda X, s: dependence_test(X, s, max_rows=1),
    ],
)
def test_parameters_out_of_range_are_refused(call):
    with pytest.raises(ParameterError):
        call(*sample(0)[:2])


@pytest.mark.parametrize("measure", [dep, hsic, kcc])
def test_a_constant_side_gives_zero(measure):
    X, s, c = sample(5)
    assert measure(X, np.zeros(len(X))) == 0.0
    assert measure(X, np.full(len(X), 0.1)) == 0.0
    assert measure(np.full((len(X), 2), 0.1), s) == 0.0
    assert measure(np.full((len(X), 2), 0.1), c) == 0.0


# HSIC


@pytest.mark.parametrize(("n", "d"), [(2, 1), (23, 2), (60, 5), (61, 1)])
@pytest.mark.usefixtures("small_blocks")
def test_hsic_by_blocks_equals_the_dense_trace(n, d):
    X, s, c = sample(n, n, d)
    s[:2] = 0, 1
    K = median_rbf(X)
    assert hsic(X, s) == pytest.approx(naive_hsic(K, naive_delta(s)), rel=TIGHT)
    assert hsic(X, c) == pytest.approx(naive_hsic(K, median_rbf(c)), rel=TIGHT)
    assert hsic(X, c, bandwidth=2.0) == pytest.approx(
        naive_hsic(naive_rbf(X, 2.0), naive_rbf(c, 2.0)), rel=TIGHT
    )


# Kernel canonical correlation


def naive_kcc(K, L, kappa):
    """Dense generalised eigenproblem in the Gram matrices, restricted to their range."""
    n, H = len(K), centring(len(K))
    factors = []
    for G in (H @ K @ H, H @ L @ H):
        w, V = np.linalg.eigh(G)
        keep = w > 1e-11 * w[-1]
        factors.append(V[:, keep] * np.sqrt(w[keep]))
    F, E = factors
    p, q = F.shape[1], E.shape[1]
    A = np.zeros((p + q, p + q))
    A[:p, p:] = F.T @ E / n
    A[p:, :p] = A[:p, p:].T
    B = np.zeros_like(A)
    B[:p, :p] = F.T @ F / n + kappa * np.eye(p)
    B[p:, p:] = E.T @ E / n + kappa * np.eye(q)
    return eigh(A, B, eigvals_only=True)[-1]


@pytest.mark.parametrize("kappa", [1e-3, 1e-2, 1.0])
@pytest.mark.parametrize("n", [2, 80])
@pytest.mark.usefixtures("small_blocks")
def test_kcc_equals_the_dense_generalised_eigenproblem(n, kappa):
    X, s, c = sample(n, n)
    s[:2] = 0, 1
    K = median_rbf(X)
    assert kcc(X, s, regularization=kappa) == pytest.approx(naive_kcc(K, naive_delta(s), kappa), rel=1e-9)
    assert kcc(X, c, regularization=kappa) == pytest.approx(naive_kcc(K, median_rbf(c), kappa), rel=1e-7)


def test_canonical_correlation_of_linear_features_is_that_of_cca():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 2))
    y = np.column_stack([x[:, 0] + rng.normal(size=500), rng.normal(size=500)])
    qx, qy = (np.linalg.qr(v - v.mean(0))[0] for v in (x, y))
    cca = np.linalg.svd(qx.T @ qy, compute_uv=False)[0]
    value = dependence.correlation_of_features(lambda b: x[b], lambda b: y[b], 500, 1e-12)
    assert value == pytest.approx(cca, rel=1e-9)
    assert value == pytest.approx(np.sqrt(0.5), abs=0.05)
    shrunk = dependence.correlation_of_features(lambda b: x[b], lambda b: y[b], 500, 1.0)
    assert shrunk < 0.7 * value


def test_fourier_features_of_kcc_approach_the_exact_value_and_follow_the_seed(monkeypatch):
    X, s, c = sample(10, n=150)
    exact = kcc(X, s), kcc(X, c)
    monkeypatch.setattr(dependence, "EXACT_ROWS", 150)
    assert (kcc(X, s), kcc(X, c)) == exact
    monkeypatch.setattr(dependence, "EXACT_ROWS", 149)
    for target, value in zip((s, c), exact, strict=True):
        first = kcc(X, target, n_features=500, random_state=0)
        assert first == pytest.approx(value, abs=0.05)
        assert first == kcc(X, target, n_features=500, random_state=0)
        assert first != kcc(X, target, n_features=500, random_state=1)


# Permutation test


@pytest.mark.parametrize("statistic", ["dep", "hsic", "kcc"])
@pytest.mark.parametrize("target", [1, 2], ids=["categories", "quantity"])
@pytest.mark.usefixtures("small_blocks")
def test_fast_permuted_values_equal_the_measure_on_permuted_labels(statistic, target):
    data = sample(11, n=40)
    X, S = data[0], data[target]
    measure = {"dep": dep, "hsic": hsic, "kcc": kcc}[statistic]
    fast = permutation_test(X, S, statistic=statistic, n_permutations=25, random_state=3)
    slow = permutation_test(X, S, statistic=measure, n_permutations=25, random_state=3)
    assert fast.statistic == pytest.approx(measure(X, S), rel=1e-9)
    np.testing.assert_allclose(fast.null, slow.null, rtol=1e-8)
    assert fast.p_value == slow.p_value == (1 + (slow.null >= slow.statistic).sum()) / 26


def test_kcc_permutations_through_fourier_features_equal_the_measure(monkeypatch):
    X, s, c = sample(12, n=120)
    monkeypatch.setattr(dependence, "EXACT_ROWS", 50)
    monkeypatch.setattr(permutation, "EXACT_ROWS", 50)
    for S in (s, s == 0, c):
        options = {"n_features": 60, "random_state": 0}
        result = permutation_test(X, S, statistic="kcc", n_permutations=9, **options)
        assert result.statistic == pytest.approx(kcc(X, S, **options), rel=1e-9)
        assert result.p_value == 0.1


def test_permutations_that_give_the_same_partition_count_as_equal():
    # Of the 6 ways to split 4 rows into two pairs, swapping the labels gives the observed partition too.
    Z = np.array([[0.1], [0.2], [7.3], [7.7]])
    for statistic in ("dep", "hsic", "kcc"):
        result = permutation_test(
            Z, [0, 0, 1, 1], statistic=statistic, n_permutations=3000, bandwidth=2.0, random_state=0
        )
        assert result.p_value == pytest.approx(1 / 3, abs=0.03)


# The package


@pytest.mark.parametrize(
    "counts", [(50, 50), (30, 70), (4, 96), (20, 30, 50), (5, 5, 90), (2, 3, 5, 90)], ids=str
)
def test_hsic_stays_below_its_bound_and_two_groups_far_apart_reach_it(counts):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(len(counts)), counts)
    for scale in (0.1, 1.0, 1e3):
        X = rng.normal(size=(len(y), 2)) + scale * rng.normal(size=(len(counts), 2))[y]
        assert hsic(X, y) <= hsic_bound(y)
    apart = hsic(1e6 * np.eye(len(counts))[y], y, bandwidth=1.0)
    assert apart <= hsic_bound(y) * (1 + 1e-12)
    if len(counts) == 2:
        p = counts[0] / 100
        assert hsic_bound(y) == pytest.approx(4 * p**2 * (1 - p) ** 2)
        assert apart == pytest.approx(hsic_bound(y))
