"""Linear probes: scikit-learn's logistic regression with the weights and the scaling that they say."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from fairerclip.baselines import LinearProbe
from fairerclip.errors import (
    NotConvergedWarning,
)

TIGHT = {"tol": 1e-8}
REFERENCE = {"solver": "newton-cg", "tol": 1e-10, "max_iter": 5000}


def scaled(X, how):
    if how == "scalar":
        return (X - X.mean()) / X.std()
    return X if how is None else StandardScaler().fit_transform(X)


@pytest.mark.parametrize(("n_classes", "how"), [(2, "scalar"), (4, "column"), (4, None)])
def test_it_is_the_logistic_regression_of_scikit_learn(embeddings, n_classes, how):
    e = embeddings(seed=3, n_classes=n_classes)
    probe = LinearProbe(C=0.3, standardize=how, **TIGHT).fit(e.X, e.y)
    expected = LogisticRegression(C=0.3, **REFERENCE).fit(scaled(e.X, how), e.y)
    assert_allclose(probe.decision_function(e.X), expected.decision_function(scaled(e.X, how)), atol=1e-6)


def test_group_balance_is_explicit_weights_that_give_every_cell_the_same_total(embeddings):
    e = embeddings(seed=4, n_classes=3, n_sensitive=3)
    some = ~((e.y == 0) & (e.s == 1))  # one cell is empty
    X, y, s = e.X[some], e.y[some], e.s[some]
    weight, cells = np.empty(len(y)), {*zip(y.tolist(), s.tolist(), strict=True)}
    for a, b in cells:
        rows = (y == a) & (s == b)
        weight[rows] = len(y) / (len(cells) * rows.sum())
    expected = LogisticRegression(**REFERENCE).fit(scaled(X, "scalar"), y, sample_weight=weight)
    probe = LinearProbe(class_weight="group", **TIGHT).fit(X, y, sensitive_features=s)
    assert_allclose(probe.decision_function(X), expected.decision_function(scaled(X, "scalar")), atol=1e-6)


def test_repeated_rows_are_weights_and_rows_of_weight_zero_are_absent(embeddings):
    e = embeddings(seed=10, n=60)
    times = np.arange(60) % 3
    a = LinearProbe(class_weight="group", **TIGHT).fit(e.X, e.y, sensitive_features=e.s, sample_weight=times)
    rows = np.repeat(np.arange(60), times)
    b = LinearProbe(class_weight="group", **TIGHT).fit(e.X[rows], e.y[rows], sensitive_features=e.s[rows])
    assert_allclose(a.coef_, b.coef_, atol=1e-6)


def test_a_constant_column_gets_no_weight_and_no_nan(embeddings):
    e = embeddings(seed=11)
    X = np.column_stack([e.X, np.full(len(e.X), 0.1)])
    probe = LinearProbe(standardize="column").fit(X, e.y)
    assert not probe.coef_[:, -1].any()
    other = LinearProbe(standardize="column").fit(e.X, e.y)
    assert_allclose(probe.scores(X), other.scores(e.X), atol=1e-3)


def test_rows_without_a_label_are_left_out(embeddings):
    e = embeddings(seed=13)
    y = e.y.astype(float)
    y[::3] = np.nan
    known = ~np.isnan(y)
    a = LinearProbe().fit(e.X, y, text=e.text)
    assert_array_equal(a.coef_, LinearProbe().fit(e.X[known], e.y[known]).coef_)


# A grid of C ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("select", ["average", "worst_group"])
def test_c_is_chosen_on_validation_rows(embeddings, select):
    e, grid = embeddings(seed=14, n=400, p=30), [1e-6, 1e-3, 1.0, 1e3]
    train, held = slice(0, 60), slice(60, None)
    v = (e.X[held], e.y[held], e.s[held])
    chosen = LinearProbe(C=grid[::-1], select=select, **TIGHT).fit(e.X[train], e.y[train], validation=v)
    cell = 2 * v[1] + v[2]

    def figure(C):
        right = LinearProbe(C=C, **TIGHT).fit(e.X[train], e.y[train]).predict(v[0]) == v[1]
        worst = min(right[cell == k].mean() for k in range(4))
        return (right.mean() if select == "average" else worst), right.mean()

    best = max(grid, key=figure)
    assert chosen.diagnostics_["C"] == best
    assert_allclose(chosen.coef_, LinearProbe(C=best, **TIGHT).fit(e.X[train], e.y[train]).coef_, atol=1e-5)


# What it says ---------------------------------------------------------------------------------------


def test_too_few_steps_are_a_warning_of_ours(embeddings):
    e = embeddings()
    with pytest.warns(NotConvergedWarning):
        model = LinearProbe(max_iter=1, C=100.0).fit(e.X, e.y)
    assert not model.diagnostics_["converged"]
    assert model.diagnostics_["gradient"] > model.tol


EXPECTED = {
    "check_class_weight_classifiers": "a mapping from class to weight is not taken",
    "check_estimators_dtypes": "one of its integer rows is zero, which has no direction",
    "check_non_transformer_estimators_n_iter": "steps are in diagnostics_",
    "check_transformer_n_iter": "steps are in diagnostics_",
}


def checks():
    for estimator, check in estimator_checks_generator(LinearProbe()):
        name = getattr(check, "func", check).__name__
        marks = pytest.mark.xfail(reason=EXPECTED[name], strict=True) if name in EXPECTED else ()
        details = "-".join(f"{k}={v}" for k, v in getattr(check, "keywords", {}).items())
        yield pytest.param(estimator, check, id=f"{name}-{details}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), [*checks()])
def test_a_check_of_scikit_learn(estimator, check):
    check(estimator)
