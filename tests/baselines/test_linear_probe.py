"""Linear probes: scikit-learn's logistic regression with the weights and the scaling that they say."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from fairerclip.baselines import LinearProbe
from fairerclip.baselines.linear_probe import KUMAR_GRID
from fairerclip.baselines.shared_solutions import shared_solutions
from fairerclip.baselines.softmax import softmax_path
from fairerclip.errors import (
    ConstantSensitiveWarning,
    LabelError,
    NotConvergedWarning,
    ParameterError,
    PromptError,
    VanishedLabelWarning,
)

TIGHT = {"tol": 1e-8}
REFERENCE = {"solver": "newton-cg", "tol": 1e-10, "max_iter": 5000}


def scaled(X, how):
    if how == "scalar":
        return (X - X.mean()) / X.std()
    return X if how is None else StandardScaler().fit_transform(X)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("how", ["scalar", "column", None])
def test_it_is_the_logistic_regression_of_scikit_learn(embeddings, n_classes, how):
    e = embeddings(seed=3, n_classes=n_classes)
    probe = LinearProbe(C=0.3, standardize=how, **TIGHT).fit(e.X, e.y)
    expected = LogisticRegression(C=0.3, **REFERENCE).fit(scaled(e.X, how), e.y)
    assert_allclose(probe.decision_function(e.X), expected.decision_function(scaled(e.X, how)), atol=1e-6)
    assert_array_equal(probe.predict(e.X), expected.predict(scaled(e.X, how)))


@pytest.mark.parametrize("n_sensitive", [2, 3])
def test_group_balance_is_explicit_weights_that_give_every_cell_the_same_total(embeddings, n_sensitive):
    e = embeddings(seed=4, n_classes=3, n_sensitive=n_sensitive)
    weight, cells = np.empty(len(e.y)), {*zip(e.y.tolist(), e.s.tolist(), strict=True)}
    for y, s in cells:
        rows = (e.y == y) & (e.s == s)
        weight[rows] = len(e.y) / (len(cells) * rows.sum())
    expected = LogisticRegression(**REFERENCE).fit(scaled(e.X, "scalar"), e.y, sample_weight=weight)
    probe = LinearProbe(class_weight="group", **TIGHT).fit(e.X, e.y, sensitive_features=e.s)
    assert_allclose(
        probe.decision_function(e.X), expected.decision_function(scaled(e.X, "scalar")), atol=1e-6
    )
    assert probe.diagnostics_["sensitive"] == "given"


def test_groups_are_read_from_prompts_where_they_are_not_given(embeddings):
    e = embeddings(seed=5)
    read = (e.X @ e.sensitive_text.T).argmax(axis=1)
    assert 0 < np.mean(read != e.s) < 0.5
    a = LinearProbe(class_weight="group").fit(e.X, e.y, sensitive_text=e.sensitive_text)
    b = LinearProbe(class_weight="group").fit(e.X, e.y, sensitive_features=read)
    assert_array_equal(a.coef_, b.coef_)
    assert a.diagnostics_["sensitive"] == "read from prompts"


def test_class_balance_is_that_of_scikit_learn(embeddings):
    e = embeddings(seed=6, n_classes=3)
    expected = LogisticRegression(class_weight="balanced", **REFERENCE).fit(scaled(e.X, "scalar"), e.y)
    probe = LinearProbe(class_weight="balanced", **TIGHT).fit(e.X, e.y)
    assert_allclose(
        probe.decision_function(e.X), expected.decision_function(scaled(e.X, "scalar")), atol=1e-6
    )


def test_group_balance_raises_the_worst_group_where_training_is_correlated(embeddings):
    e = embeddings(seed=7, n=2000, correlation=0.95)
    cells = 2 * e.y + e.s
    plain = LinearProbe().fit(e.X, e.y)
    group = LinearProbe(class_weight="group").fit(e.X, e.y, sensitive_features=e.s)
    worst = [
        min(np.mean(m.predict(e.X)[cells == k] == e.y[cells == k]) for k in range(4)) for m in (plain, group)
    ]
    assert worst[1] > worst[0] + 0.05


def test_one_sensitive_value_balances_classes(embeddings):
    e = embeddings(seed=8)
    with pytest.warns(ConstantSensitiveWarning):
        group = LinearProbe(class_weight="group").fit(
            e.X, e.y, sensitive_features=np.zeros(len(e.y), dtype=int)
        )
    assert_allclose(group.coef_, LinearProbe(class_weight="balanced").fit(e.X, e.y).coef_, atol=1e-12)


def test_an_empty_cell_is_left_out(embeddings):
    e = embeddings(seed=9)
    rows = ~((e.y == 0) & (e.s == 1))
    X, y, s = e.X[rows], e.y[rows], e.s[rows]
    probe = LinearProbe(class_weight="group", **TIGHT).fit(X, y, sensitive_features=s)
    cell = 2 * y + s
    weight = len(y) / (3 * np.bincount(cell, minlength=4)[cell])
    expected = LogisticRegression(**REFERENCE).fit(scaled(X, "scalar"), y, sample_weight=weight)
    assert_allclose(probe.decision_function(X), expected.decision_function(scaled(X, "scalar")), atol=1e-6)


def test_repeated_rows_are_weights_and_rows_of_weight_zero_are_absent(embeddings):
    e = embeddings(seed=10, n=60)
    times = np.arange(60) % 3
    a = LinearProbe(class_weight="group", **TIGHT).fit(e.X, e.y, sensitive_features=e.s, sample_weight=times)
    rows = np.repeat(np.arange(60), times)
    b = LinearProbe(class_weight="group", **TIGHT).fit(e.X[rows], e.y[rows], sensitive_features=e.s[rows])
    assert_allclose(a.coef_, b.coef_, atol=1e-6)


@pytest.mark.parametrize("how", ["scalar", "column"])
def test_a_constant_column_gets_no_weight_and_no_nan(embeddings, how):
    e = embeddings(seed=11)
    X = np.column_stack([e.X, np.full(len(e.X), 0.1)])
    probe = LinearProbe(standardize=how).fit(X, e.y)
    assert np.isfinite(probe.coef_).all()
    if how == "column":
        assert not probe.coef_[:, -1].any()
        assert_allclose(probe.scores(X), LinearProbe(standardize=how).fit(e.X, e.y).scores(e.X), atol=1e-3)


def test_more_columns_than_rows(embeddings):
    e = embeddings(seed=12, n=30, p=100, n_classes=3)
    assert np.mean(LinearProbe().fit(e.X, e.y).predict(e.X) == e.y) == 1


def test_rows_without_a_label_are_left_out(embeddings):
    e = embeddings(seed=13)
    y = e.y.astype(float)
    y[::3] = np.nan
    known = ~np.isnan(y)
    a = LinearProbe().fit(e.X, y, text=e.text)
    assert_array_equal(a.coef_, LinearProbe().fit(e.X[known], e.y[known]).coef_)


# A grid of C ----------------------------------------------------------------------------------------


def test_the_published_grid():
    assert_allclose(KUMAR_GRID, np.logspace(-7, 2, 100), rtol=1e-5)


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


def test_a_grid_needs_validation_rows(embeddings):
    e = embeddings()
    with pytest.raises(ParameterError, match="chosen on validation rows"):
        LinearProbe(C=[0.1, 1.0]).fit(e.X, e.y)


# What it says ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0.0}, "C must be a positive number"),
        ({"C": "large"}, "C must be a positive number"),
        ({"C": []}, "C must be a positive number"),
        ({"C": [1.0, -1.0]}, "C must be a positive number"),
        ({"class_weight": "subsample"}, "class_weight must be one of None, 'balanced', 'group'"),
        ({"standardize": "rows"}, "standardize must be one of 'scalar', 'column', None"),
        ({"solver": "adam"}, "solver must be one of 'newton', 'sgd'"),
        ({"select": "best"}, "select must be one of"),
        ({"max_iter": 0}, "max_iter must be a whole number from 1"),
        ({"tol": -1.0}, "tol must be a positive number"),
        ({"solver": "sgd", "class_weight": "balanced"}, "needs solver='newton'"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(embeddings, parameters, message):
    e = embeddings()
    with pytest.raises(ParameterError, match=message):
        LinearProbe(**parameters).fit(e.X, e.y)


def test_missing_inputs_are_named(embeddings):
    e = embeddings()
    with pytest.raises(LabelError, match="LinearProbe learns from labels: give y"):
        LinearProbe().fit(e.X, text=e.text)
    with pytest.raises(PromptError, match="LinearProbe needs sensitive values"):
        LinearProbe(class_weight="group").fit(e.X, e.y)
    prompts = np.vstack([e.text, -e.text.sum(axis=0)])
    with (
        pytest.warns(VanishedLabelWarning),
        pytest.raises(LabelError, match=r"no labelled rows of classes \['c'\]"),
    ):
        LinearProbe().fit(e.X, np.array(["a", "b"])[e.y], classes=["a", "b", "c"], text=prompts)


def test_too_few_steps_are_a_warning_of_ours(embeddings):
    e = embeddings()
    with pytest.warns(
        NotConvergedWarning, match=r"C=100 is not at its minimum after 1 steps.*raise max_iter"
    ):
        model = LinearProbe(max_iter=1, C=100.0).fit(e.X, e.y)
    assert not model.diagnostics_["converged"]
    assert model.diagnostics_["gradient"] > model.tol


def minimum(X, y, weight, C):
    """Weights (c, p) that minimise ½‖W‖² + C·Σ wᵢ·CEᵢ, by scipy; an independent way to the same point."""
    n_classes, share = len(np.unique(y)), 0.5 if len(np.unique(y)) == 2 else 1.0
    onehot, X1 = np.eye(n_classes)[y], np.column_stack([X, np.ones(len(X))])
    penalty = np.append(np.ones(X.shape[1]), 0)

    def objective(theta):
        T = theta.reshape(n_classes, -1)
        logits = X1 @ T.T
        P = log_softmax(logits, axis=1)
        gradient = share * C * ((np.exp(P) - onehot) * weight[:, None]).T @ X1 + penalty * T
        loss = -np.sum(weight[:, None] * onehot * P)
        return 0.5 * np.sum(penalty * T**2) + share * C * loss, gradient.ravel()

    options = {"gtol": 1e-9, "ftol": 0, "maxiter": 50_000, "maxfun": 100_000, "maxcor": 50}
    start = np.zeros(n_classes * X1.shape[1])
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
    assert np.linalg.norm(objective(found)[1]) < 1e-4 * np.linalg.norm(found)
    return found.reshape(n_classes, -1)[:, :-1]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("class_weight", [None, "group"])
def test_converged_means_close_to_the_minimum_though_the_penalty_is_weak(embeddings, n_classes, class_weight):
    e = embeddings(seed=15, n=150, p=40, n_classes=n_classes, correlation=0.9)
    probe = LinearProbe(C=100.0, class_weight=class_weight, standardize=None)
    probe.fit(e.X, e.y, sensitive_features=e.s)
    weight = np.ones(len(e.y))
    if class_weight == "group":
        cell = np.unique(2 * e.y + e.s, return_inverse=True)[1]
        weight = len(cell) / ((cell.max() + 1) * np.bincount(cell)[cell])
    expected = minimum(e.X, e.y, weight, 100.0)
    away = np.linalg.norm(probe.coef_ - expected) / np.linalg.norm(expected)
    assert probe.diagnostics_["converged"]
    assert probe.diagnostics_["gradient"] <= probe.tol
    assert away < 3 * probe.tol


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_grid_ends_where_one_c_alone_does(embeddings, n_classes):
    e = embeddings(seed=16, n=120, p=20, n_classes=n_classes)
    grid = list(softmax_path(e.X, e.y, np.ones(120), n_classes, (0.01, 1.0, 100.0), tol=1e-8, max_iter=100))
    alone = next(softmax_path(e.X, e.y, np.ones(120), n_classes, (100.0,), tol=1e-8, max_iter=100))
    assert_allclose(grid[-1].coef, alone.coef, atol=1e-6)
    assert grid[-1].steps < alone.steps


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


def test_fits_that_share_solutions_end_where_fits_alone_do():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(90, 12)), rng.integers(3, size=90)
    grid = (1.0, 0.01, 30.0, 1.0)
    alone = [LinearProbe(C=C, tol=1e-6).fit(X, y) for C in grid]
    with shared_solutions():
        shared = [LinearProbe(C=C, tol=1e-6).fit(X, y) for C in grid]
        other = LinearProbe(C=1.0, tol=1e-6).fit(X[:70], y[:70])  # other rows take nothing from these
    for one, two in zip(alone, shared, strict=True):
        np.testing.assert_allclose(two.coef_, one.coef_, atol=1e-5 * np.linalg.norm(one.coef_))
    assert shared[3].diagnostics_["n_iter"] == 0 < alone[3].diagnostics_["n_iter"]
    np.testing.assert_array_equal(shared[3].coef_, shared[0].coef_)
    np.testing.assert_array_equal(other.coef_, LinearProbe(C=1.0, tol=1e-6).fit(X[:70], y[:70]).coef_)
