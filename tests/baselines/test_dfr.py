"""DFR: balanced draws, averaged refits, and a choice by worst group."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler

from fairerclip.baselines import DFR
from fairerclip.baselines.dfr import _l1_regression, balanced_rows, halves

TIGHT = {"tol": 1e-8, "max_iter": 20_000}


def validation(e):
    return e.X, e.y, e.s


def drawn(cell, rng):
    """Rows by the definition: as many of each cell as the smallest has."""
    size = min(np.sum(cell == k) for k in set(cell.tolist()))
    return np.concatenate(
        [rng.permutation(np.flatnonzero(cell == k))[:size] for k in sorted(set(cell.tolist()))]
    )


@pytest.mark.parametrize("variant", ["validation", "train"])
def test_averaged_refits_equal_a_loop_by_hand(embeddings, variant):
    e, held = embeddings(seed=1), embeddings(seed=2, n=100)
    model = DFR(variant, C=0.5, n_refits=4, random_state=5, **TIGHT)
    model.fit(e.X, e.y, sensitive_features=e.s, validation=validation(held))
    scaler = StandardScaler().fit(e.X)
    source = held if variant == "validation" else e
    cell, rng = 2 * source.y + source.s, np.random.RandomState(5)
    draws = [drawn(cell, rng) for _ in range(4)]
    coefs, intercepts = [], []
    for rows in draws:
        fit = _l1_regression(C=0.5, random_state=0, **TIGHT).fit(
            scaler.transform(source.X[rows]), source.y[rows]
        )
        coefs.append(fit.coef_[0])
        intercepts.append(fit.intercept_[0])
    margin = scaler.transform(e.X) @ np.mean(coefs, axis=0) + np.mean(intercepts)
    assert_allclose(model.decision_function(e.X), margin, atol=1e-4)
    assert model.diagnostics_["rows_per_group"] == np.bincount(cell).min()


def test_draws_are_balanced_over_the_cells_that_occur():
    sizes = (9, 0, 3, 1)
    cell = np.repeat(np.arange(4), sizes)
    draws = [balanced_rows(cell, np.random.RandomState(k)) for k in range(100)]
    for rows in draws:
        assert np.bincount(cell[rows], minlength=4).tolist() == [1, 0, 1, 1]
    assert set(np.concatenate(draws)) == set(range(13))


def test_halves_split_every_cell():
    cell = np.repeat(np.arange(4), (10, 5, 1, 2))
    first, second = halves(cell, np.random.RandomState(1))
    assert_array_equal(np.sort(np.concatenate([first, second])), np.arange(18))
    assert np.bincount(cell[first], minlength=4).tolist() == [5, 3, 1, 1]
    assert np.bincount(cell[second], minlength=4).tolist() == [5, 2, 0, 1]


@pytest.mark.slow
def test_c_and_class_weight_are_those_with_the_best_worst_group(embeddings):
    e = embeddings(seed=4, n=301, p=20)
    grid = (3.0, 0.1, 0.001)
    model = DFR(C=grid, class_weights=(1.0, 3.0), n_refits=1, random_state=3, **TIGHT)
    model.fit(e.X, e.y, validation=validation(e))
    X, rng = StandardScaler().fit_transform(e.X), np.random.RandomState(3)
    first, other = halves(2 * e.y + e.s, rng)
    rows = first[drawn(2 * e.y[first] + e.s[first], rng)]

    def figures(choice):
        C, (a, b) = choice
        fit = _l1_regression(C=C, class_weight={0: a, 1: b}, random_state=0, **TIGHT).fit(X[rows], e.y[rows])
        right = fit.predict(X[other]) == e.y[other]
        cell = 2 * e.y[other] + e.s[other]
        return min(right[cell == k].mean() for k in set(cell.tolist())), right.mean()

    choices = [(C, w) for w in ((1.0, 1.0), (3.0, 1.0), (1.0, 3.0)) for C in grid]
    best = max(choices, key=figures)
    assert (model.diagnostics_["C"], tuple(model.diagnostics_["class_weight"])) == best
    assert len({figures(choice) for choice in choices}) > 2  # there is something to choose


def test_several_classes_and_values_one_against_the_rest(embeddings):
    e = embeddings(seed=6, n=600, n_classes=4, n_sensitive=3)
    model = DFR(C=1.0, n_refits=1, random_state=7, **TIGHT).fit(e.X, e.y, validation=validation(e))
    rows, scaler = drawn(3 * e.y + e.s, np.random.RandomState(7)), StandardScaler().fit(e.X)
    for k in range(4):
        fit = _l1_regression(C=1.0, random_state=0, **TIGHT).fit(scaler.transform(e.X[rows]), e.y[rows] == k)
        expected = fit.decision_function(scaler.transform(e.X))
        assert_allclose(model.scores(e.X)[:, k], expected, atol=1e-4)
    assert np.mean(model.predict(e.X) == e.y) > 0.7


def test_validation_rows_with_an_unknown_value_of_any_attribute_are_left_out(embeddings):
    e = embeddings(seed=13)
    s2 = np.where(np.arange(len(e.y)) % 2, "old", "young").astype(object)
    s2[::5] = None
    known = np.array([v is not None for v in s2])
    columns = {"sex": e.s, "age": s2}
    a = DFR(C=0.3, random_state=0).fit(e.X, e.y, validation=(e.X, e.y, columns))
    kept = {name: column[known] for name, column in columns.items()}
    b = DFR(C=0.3, random_state=0).fit(e.X, e.y, validation=(e.X[known], e.y[known], kept))
    assert_array_equal(a.coef_, b.coef_)
