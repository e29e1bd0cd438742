"""The (τ, τ_z) plane from one factorisation: each point is the model that a fit would have given."""

import itertools
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from fairerclip import FairerCLIP
from fairerclip.errors import (
    LabelError,
    NonFiniteError,
    NoSolutionError,
    NotConvergedWarning,
    ParameterError,
    ShapeError,
    StateError,
)
from fairerclip.model.path import CHOOSE, PRIOR
from paper import PAPER
from small_models import small


def labelled(e, **parameters):
    return small(**parameters).fit(e.X, e.y, sensitive_features=e.s, text=e.text)


@pytest.mark.parametrize(
    ("n_classes", "scaling", "alignment"),
    [(2, "spectral", "rbf"), (2, "paper", "linear"), (3, "spectral", "linear"), (3, "paper", "rbf")],
)
def test_each_point_equals_a_fresh_fit_with_labels(embeddings, n_classes, scaling, alignment):
    e = embeddings(n_classes=n_classes, correlation=0.6)
    common = {"scaling": scaling, "alignment": alignment, "max_iter": 100}
    m = labelled(e, **common)
    path = m.path([0.0, 0.4], [0.2, 0.6], criterion=["marginal", "conditional"], zero_shots=[0.0, 0.3])
    assert len(path) == 16
    codes = path.predict_codes(e.X)
    for g, point in enumerate(path):
        names = ("tau", "tau_z", "criterion", "zero_shot")
        own = {name: getattr(point.setting, name) for name in names}
        fresh = labelled(e, **own, **common)
        assert_array_equal(codes[g], np.searchsorted(fresh.classes_, fresh.predict(e.X)))
        at = path.model(g)
        assert {name: getattr(at, name) for name in names} == own
        assert_allclose(at.decision_function(e.X), fresh.decision_function(e.X), atol=1e-6)
        assert_allclose(at.predict_proba(e.X), fresh.predict_proba(e.X), atol=1e-6)
        assert_allclose(at.eigenvalues_, fresh.eigenvalues_, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::fairerclip.errors.NotConvergedWarning")
@pytest.mark.parametrize("labels", [True, False])
def test_along_a_path_of_the_papers_method_the_text_side_follows(embeddings, labels):
    # Two components for four classes: the text side chooses directions, so that its strengths tell.
    e = embeddings(n_classes=4, correlation=0.6)
    paper = FairerCLIP.preset("paper").set_params(n_features=40, n_components=2, dtype="float64", max_iter=3)
    y = e.y if labels else None
    given = {"text": e.text, "sensitive_features": e.s}
    path = clone(paper).fit(e.X, y, **given).path([0.1, 0.9], [0.0, 0.8])
    assert path.refine
    for g, (tau_z, tau) in enumerate(itertools.product([0.0, 0.8], [0.1, 0.9])):
        spelt = {"tau": tau, "tau_z": tau_z, "tau_text": tau, "tau_z_text": tau_z}
        fresh = clone(paper).set_params(**spelt).fit(e.X, y, **given)
        assert_array_equal(path.predict_codes(e.X)[g], fresh.predict(e.X))
        at = path.model(g)
        assert (at.tau, at.tau_z, at.tau_text, at.tau_z_text) == (tau, tau_z, None, None)
        assert_allclose(at.scores(e.X), fresh.scores(e.X), rtol=1e-9, atol=1e-12)
    alone = clone(paper).set_params(tau=0.9, tau_text=0.1, tau_z=0.8, tau_z_text=0.1).fit(e.X, y, **given)
    assert not np.allclose(alone.scores(e.X), path.model(3).scores(e.X))


@pytest.mark.parametrize("parameters", [PAPER, {"refine": True}], ids=["paper", "default"])
def test_each_point_equals_a_fresh_fit_without_labels_when_refined(embeddings, parameters):
    e = embeddings(seed=3, correlation=0.3, n=300)
    given = {"text": e.text, "sensitive_text": e.sensitive_text}
    m = small(max_iter=30, **{**parameters, "refine": False}).fit(e.X, **given)
    taus = [0.0, 0.3, 0.6]
    path = m.path(taus, refine=True)
    codes = path.predict_codes(e.X)
    for g, tau in enumerate(taus):
        fresh = small(**{**parameters, "tau": tau, "max_iter": 30}).fit(e.X, **given)
        assert_array_equal(codes[g], fresh.predict(e.X))
        at = path.model(g)
        assert at.refine
        assert_array_equal(at.pseudo_labels_, fresh.pseudo_labels_)
        assert_allclose(at.decision_function(e.X), fresh.decision_function(e.X), atol=1e-6)
        assert path.points[g].n_iter == fresh.n_iter_


@pytest.mark.parametrize(
    ("own", "refine", "solver"),
    [(True, None, "cholesky"), (False, None, "cg"), (True, False, "cg"), (False, True, "cholesky")],
)
def test_the_parameters_of_a_point_fit_the_same_model_again(embeddings, own, refine, solver):
    e = embeddings(seed=3, correlation=0.3, n=300)
    given = {"text": e.text, "sensitive_text": e.sensitive_text}
    seeded = np.random.RandomState(5)  # a generator moves on: the number that it gave is kept
    m = small(**{**PAPER, "max_iter": 3, "refine": own, "solver": solver, "random_state": seeded})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        m.fit(e.X, **given)
        path = m.path([0.0, 0.5, 0.9], refine=refine)
        for g in range(len(path)):
            at = path.model(g)
            assert at.refine is (own if refine is None else refine)
            again = FairerCLIP(**at.get_params()).fit(e.X, **given)
            assert_array_equal(again.scores(e.X), at.scores(e.X))
            assert_array_equal(again.components_, at.components_)
            assert_array_equal(again.predict(e.X), path.predict_codes(e.X)[g])


def test_a_path_leaves_its_model_alone(embeddings):
    e = embeddings(seed=3, correlation=0.3, n=300)
    m = small(max_iter=30, **PAPER).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    before = m.decision_function(e.X), m.get_params(), m.pseudo_labels_.copy()
    path = m.path([0.0, 0.8], refine=True)
    path.evaluate(e.X, e.y, e.s)
    best = path.best("average")
    assert best is not m
    assert_array_equal(m.decision_function(e.X), before[0])
    assert m.get_params() == before[1]
    assert_array_equal(m.pseudo_labels_, before[2])
    again = m.path([m.tau]).predict_codes(e.X)[0]
    assert_array_equal(again, m.predict(e.X))


def test_the_order_of_the_grid_and_its_defaults(embeddings):
    m = labelled(embeddings())
    path = m.path([0.1, 0.2], [0.3, 0.4], criterion=["conditional", "marginal"], zero_shots=[0.5, 0.0])
    got = [(p.setting.criterion, p.setting.zero_shot, p.setting.tau_z, p.setting.tau) for p in path]
    assert got == list(itertools.product(["conditional", "marginal"], [0.5, 0.0], [0.3, 0.4], [0.1, 0.2]))
    assert [p.setting.tau for p in m.path()] == pytest.approx(np.linspace(0, 0.95, 20))


# The table ------------------------------------------------------------------------------------------

HIGHER = ("worst_group", "shrunken_worst_group", "average")


def naive(y, s, predicted, classes):
    """Cell by cell, in plain loops."""
    cells = {(a, b): np.mean(predicted[(y == a) & (s == b)] == a) for a, b in set(zip(y, s, strict=True))}
    counts = {cell: int(np.sum((y == cell[0]) & (s == cell[1]))) for cell in cells}
    average = np.mean(predicted == y)
    worst = min(cells, key=cells.get)
    spreads = {}
    for a in classes:
        of_class = [v for (k, _), v in cells.items() if k == a]
        if len(of_class) > 1:
            spreads[a] = max(of_class) - min(of_class)
    eod = spreads[classes[-1]] if len(classes) == 2 else max(spreads.values())
    shrunken = min((cells[c] * counts[c] + PRIOR * average) / (counts[c] + PRIOR) for c in cells)
    return {
        "average": average,
        "worst_group": cells[worst],
        "gap": average - cells[worst],
        "eod": eod,
        "shrunken_worst_group": shrunken,
        "cells": cells,
        "counts": counts,
    }


@pytest.mark.parametrize(("n_classes", "n_sensitive"), [(2, 3), (4, 3)])
def test_the_table_equals_naive_loops(embeddings, n_classes, n_sensitive):
    e = embeddings(n_classes=n_classes, n_sensitive=n_sensitive, n=400)
    names, groups = np.array(["a", "b", "c", "d"])[e.y], np.array(["x", "y", "z"])[e.s]
    text = dict(zip("abcd", e.text, strict=False))
    m = small().fit(e.X[:200], names[:200], sensitive_features=groups[:200], text=text)
    path = m.path([0.0, 0.5, 0.8])
    table = path.evaluate(e.X[200:], names[200:], groups[200:])
    assert path.table is table
    for g, row in enumerate(table):
        predicted = path.model(g).predict(e.X[200:])
        expected = naive(names[200:], groups[200:], predicted, m.classes_)
        for name in CHOOSE:
            assert row[name] == pytest.approx(expected[name]), name
        cell = tuple(row["worst_group_name"].split(", "))
        assert expected["cells"][cell] == pytest.approx(row["worst_group"])
        assert expected["counts"][cell] == row["worst_group_n"]
        assert row["failure"] is None
        assert row["tau"] == path.points[g].setting.tau
    for by in CHOOSE:
        extreme = (max if by in HIGHER else min)(row[by] for row in table)
        assert table[path.best_index(by)][by] == extreme
        assert path.best(by).tau == table[path.best_index(by)]["tau"]


def test_eod_is_none_where_the_positive_class_has_one_group_only(embeddings):
    e = embeddings(n=300)
    path = labelled(e).path([0.3])
    only = (e.y == 0) | (e.s == 0)
    row = path.evaluate(e.X[only], e.y[only], e.s[only])[0]
    assert row["eod"] is None
    assert row["worst_group"] is not None
    assert path.best_index("gap") == 0
    with pytest.raises(LabelError):
        path.best("eod")


def test_ties_go_to_the_better_average_and_then_to_the_smaller_tau(embeddings):
    path = labelled(embeddings()).path([0.1, 0.2, 0.3, 0.4])
    path.evaluate(*(lambda e: (e.X, e.y, e.s))(embeddings()))
    for row, average in zip(path.table, (0.7, 0.9, 0.9, 0.8), strict=True):
        row.update(worst_group=0.5, average=average)
    assert path.best_index("worst_group") == 1
    for row in path.table:
        row["average"] = 0.8
    assert path.best_index("worst_group") == 0


# Failures -------------------------------------------------------------------------------------------


def test_a_point_without_solution_is_kept_with_its_reason(embeddings):
    e = embeddings()
    parameters = {**PAPER, "tau": 0.2, "tau_z": 0.0, "tau_text": 0.0}
    m = small(**parameters).fit(e.X, e.y, sensitive_features=e.y, text=e.text)
    path = m.path([0.2, 0.9])  # S is Y: nothing survives a strong penalty
    assert path.points[0].failure is None
    assert path.points[1].encoders is None
    assert "Lower tau" in path.points[1].failure
    assert_array_equal(path.predict_codes(e.X)[1], -1)
    table = path.evaluate(e.X, e.y, e.s)
    assert table[1]["failure"] == path.points[1].failure
    assert table[1]["worst_group"] is None
    assert path.best_index() == 0
    with pytest.raises(NoSolutionError):
        path.model(1)


def test_the_front_has_the_points_that_no_other_point_beats(embeddings):
    e = embeddings()
    path = labelled(e).path([0.0, 0.5, 0.9], [0.0, 0.7])
    table = path.evaluate(e.X, e.y, e.s)
    pairs = [(row["average"], row["worst_group"]) for row in table]
    found = path.front()
    best = {p for p in pairs if not any(o != p and o[0] >= p[0] and o[1] >= p[1] for o in pairs)}
    assert {pairs[g] for g in found} == best
    assert [pairs[g][0] for g in found] == sorted(p[0] for p in best)


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_another_ridge_gives_the_model_of_a_fit_with_it(embeddings, solver):
    e = embeddings()
    arguments = {"sensitive_features": e.s, "text": e.text}
    fixed = {"tau": 0.6, "zero_shot": 0.3, "criterion": "marginal", "class_offsets": None, "solver": solver}
    own = {**fixed, "n_features": 60, "dtype": "float64", "random_state": 0}
    model = FairerCLIP(gamma=1e-3, **own).fit(e.X, e.y, **arguments)
    for gamma in (2e-4, 5e-2):
        fresh = FairerCLIP(gamma=gamma, **own).fit(e.X, e.y, **arguments)
        found = model.at(gamma=gamma)
        assert found.gamma_ == found.gamma == gamma
        assert_allclose(found.scores(e.X), fresh.scores(e.X), rtol=1e-7, atol=1e-7)
        assert_allclose(found.path([0.2, 0.8]).model(1).scores(e.X), fresh.at(tau=0.8).scores(e.X), atol=1e-7)
    assert model.gamma_ == 1e-3
    assert_array_equal(model.at(tau=0.6).scores(e.X), model.scores(e.X))


def test_what_cannot_be_is_refused(embeddings):
    e = embeddings()
    m = labelled(e)
    for grid in ({"taus": [0.5, 1.0]}, {"taus": []}, {"tau_zs": [2]}, {"zero_shots": [0.5, 1.1]}):
        with pytest.raises(ParameterError):
            m.path(**grid)
    with pytest.raises(ParameterError, match="n_features"):
        m.at(n_features=7)
    path, X = m.path([0.5]), e.X.copy()
    with pytest.raises(StateError):
        path.best()
    X[3, 2] = np.nan
    for error, given in (
        (ShapeError, (e.X, e.y[:10], e.s)),
        (LabelError, (e.X, ["zebra"] * 240, e.s)),
        (LabelError, (e.X, e.y, e.X[:, 0])),
        (NonFiniteError, (X, e.y, e.s)),
    ):
        with pytest.raises(error):
            path.evaluate(*given)
    path.evaluate(e.X, e.y, e.s)
    with pytest.raises(ParameterError):
        path.best(by="luck")
