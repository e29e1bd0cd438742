"""DFR: balanced draws, averaged refits, and a choice by worst group."""

import numpy as np
import pytest
from gradient_inputs import spurious
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler

from fairerclip.baselines import DFR, LinearProbe
from fairerclip.baselines.dfr import C_GRIDS, CLASS_WEIGHTS, _l1_regression, balanced_rows, halves
from fairerclip.errors import (
    ConstantSensitiveWarning,
    LabelError,
    NotConvergedWarning,
    ParameterError,
    PromptError,
)
from fairerclip.metrics import group_report

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


def test_the_penalty_is_l1(embeddings):
    e = embeddings(seed=3, p=40)
    coef = DFR(C=0.3, n_refits=1, random_state=0).fit(e.X, e.y, validation=validation(e)).coef_
    assert 0 < np.count_nonzero(coef[1]) < 20


@pytest.mark.parametrize("sizes", [(30, 4, 7, 50), (5, 5, 5, 5), (9, 0, 3, 1)])
def test_draws_are_balanced_over_the_cells_that_occur(sizes):
    cell = np.repeat(np.arange(4), sizes)
    rows = balanced_rows(cell, np.random.RandomState(1))
    counts = np.bincount(cell[rows], minlength=4)
    smallest = min(n for n in sizes if n)
    assert counts.tolist() == [smallest if n else 0 for n in sizes]
    assert len(set(rows.tolist())) == len(rows)
    assert set(np.concatenate([balanced_rows(cell, np.random.RandomState(k)) for k in range(200)])) == set(
        range(len(cell))
    )


def test_halves_split_every_cell():
    cell = np.repeat(np.arange(4), (10, 5, 1, 2))
    first, second = halves(cell, np.random.RandomState(1))
    assert_array_equal(np.sort(np.concatenate([first, second])), np.arange(18))
    assert np.bincount(cell[first], minlength=4).tolist() == [5, 3, 1, 1]
    assert np.bincount(cell[second], minlength=4).tolist() == [5, 2, 0, 1]


@pytest.mark.parametrize("variant", ["validation", "train"])
def test_c_and_class_weight_are_those_with_the_best_worst_group(embeddings, variant):
    e, held = embeddings(seed=4, n=300, p=20), embeddings(seed=4, n=301, p=20)
    grid, weights = (3.0, 0.1, 0.001), (1.0, 3.0)
    model = DFR(variant, C=grid, class_weights=weights, n_refits=1, random_state=3, **TIGHT)
    model.fit(e.X, e.y, sensitive_features=e.s, validation=validation(held))
    scaler, rng = StandardScaler().fit(e.X), np.random.RandomState(3)
    H = scaler.transform(held.X)
    if variant == "validation":
        first, other = halves(2 * held.y + held.s, rng)
        X, y, s = H[first], held.y[first], held.s[first]
    else:
        X, y, s, other = scaler.transform(e.X), e.y, e.s, np.arange(len(held.y))
    rows = drawn(2 * y + s, rng)

    def figures(choice):
        C, (a, b) = choice
        fit = _l1_regression(C=C, class_weight={0: a, 1: b}, random_state=0, **TIGHT).fit(X[rows], y[rows])
        right = fit.predict(H[other]) == held.y[other]
        cell = 2 * held.y[other] + held.s[other]
        return min(right[cell == k].mean() for k in set(cell.tolist())), right.mean()

    choices = [(C, w) for w in ((1.0, 1.0), (3.0, 1.0), (1.0, 3.0)) for C in grid]
    best = max(choices, key=figures)
    assert (model.diagnostics_["C"], tuple(model.diagnostics_["class_weight"])) == best
    assert len({figures(choice) for choice in choices}) > 2  # there is something to choose


def test_published_numbers():
    assert C_GRIDS["waterbirds"] == (1, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)
    assert C_GRIDS["celeba"] == (3, 1, 0.3, 0.1, 0.03, 0.01, 0.003)
    assert CLASS_WEIGHTS == (1, 2, 3, 10, 100, 300, 1000)
    assert len(DFR(class_weights=CLASS_WEIGHTS)._choices(2)) == 7 * 13  # 1:1 is one of them once


@pytest.mark.parametrize(("variant", "refits"), [("validation", 20), ("train", 10)])
def test_the_published_number_of_refits(embeddings, variant, refits):
    e = embeddings(seed=5)
    model = DFR(variant, C=0.1, random_state=0).fit(
        e.X, e.y, sensitive_features=e.s, validation=validation(e)
    )
    assert model.diagnostics_["refits"] == refits


def test_several_classes_and_values_one_against_the_rest(embeddings):
    e = embeddings(seed=6, n=600, n_classes=4, n_sensitive=3)
    model = DFR(C=1.0, n_refits=1, random_state=7, **TIGHT).fit(e.X, e.y, validation=validation(e))
    rows, scaler = drawn(3 * e.y + e.s, np.random.RandomState(7)), StandardScaler().fit(e.X)
    for k in range(4):
        fit = _l1_regression(C=1.0, random_state=0, **TIGHT).fit(scaler.transform(e.X[rows]), e.y[rows] == k)
        expected = fit.decision_function(scaler.transform(e.X))
        assert_allclose(model.scores(e.X)[:, k], expected, atol=1e-4)
    assert np.mean(model.predict(e.X) == e.y) > 0.7


def test_more_columns_than_rows_and_a_constant_column(embeddings):
    e = embeddings(seed=8, n=40, p=80)
    X = np.column_stack([e.X, np.full(40, 0.1)])
    model = DFR(random_state=0).fit(X, e.y, validation=(X, e.y, e.s))
    assert np.isfinite(model.coef_).all()
    assert not model.coef_[:, -1].any()


def test_groups_of_training_rows_may_be_read_from_prompts(embeddings):
    e = embeddings(seed=9)
    read = (e.X @ e.sensitive_text.T).argmax(axis=1)
    a = DFR("train", C=0.3, random_state=0).fit(e.X, e.y, sensitive_text=e.sensitive_text)
    b = DFR("train", C=0.3, random_state=0).fit(e.X, e.y, sensitive_features=read)
    assert_array_equal(a.coef_, b.coef_)
    assert a.diagnostics_["sensitive"] == "read from prompts"


def test_a_seed_gives_the_same_model(embeddings):
    e = embeddings(seed=10)
    a, b, c = (DFR(random_state=k).fit(e.X, e.y, validation=validation(e)).coef_ for k in (1, 1, 2))
    assert_array_equal(a, b)
    assert np.any(a != c)


def test_one_sensitive_value_balances_classes(embeddings):
    e = embeddings(seed=11)
    one = np.zeros(len(e.y), dtype=int)
    with pytest.warns(ConstantSensitiveWarning):
        model = DFR("train", C=1.0, random_state=0).fit(e.X, e.y, sensitive_features=one)
    assert model.diagnostics_["rows_per_group"] == np.bincount(e.y).min()


def test_what_is_missing_or_wrong_is_named(embeddings):
    e = embeddings(seed=12)
    v = validation(e)
    with pytest.raises(ParameterError, match="DFR needs validation rows with labels"):
        DFR().fit(e.X, e.y)
    with pytest.raises(PromptError, match="DFR needs sensitive values"):
        DFR("train").fit(e.X, e.y, validation=v)
    with pytest.raises(ParameterError, match="variant must be one of 'validation', 'train'"):
        DFR("test").fit(e.X, e.y, validation=v)
    with pytest.raises(ParameterError, match="n_refits must be a whole number from 1"):
        DFR(n_refits=0).fit(e.X, e.y, validation=v)
    with pytest.raises(LabelError, match=r"no validation rows of classes \[1\]"):
        DFR().fit(e.X, e.y, validation=tuple(a[e.y == 0] for a in v))
    first = [int(np.flatnonzero((e.y == y) & (e.s == s))[0]) for y in (0, 1) for s in (0, 1)]
    with pytest.raises(LabelError, match="no group has two validation rows"):
        DFR().fit(e.X, e.y, validation=tuple(a[first] for a in v))
    with pytest.warns(NotConvergedWarning, match="max_iter=1"):
        DFR(C=1.0, max_iter=1, tol=1e-12).fit(e.X, e.y, validation=v)


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


@pytest.mark.parametrize("variant", ["validation", "train"])
def test_the_worst_group_is_better_than_that_of_a_probe_where_rows_are_correlated(variant):
    gains = []
    for seed in range(6):
        X, y, s, _ = spurious(seed, n=1200, correlation=0.9, noise=0.45)
        fit, val, test = slice(600), slice(600, 900), slice(900, 1200)
        given = {"sensitive_features": s[fit], "validation": (X[val], y[val], s[val])}
        models = (
            LinearProbe().fit(X[fit], y[fit]),
            DFR(variant, random_state=0).fit(X[fit], y[fit], **given),
        )
        probe, model = (group_report(y[test], m.predict(X[test]), s[test]).worst.accuracy for m in models)
        gains.append(model - probe)
    assert min(gains) >= 0
    assert np.mean(gains) > 0.1
