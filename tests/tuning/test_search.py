"""The candidates of a search are the models that their parameters fit, and what cannot be fitted is said."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from tuning_inputs import SEARCH, START, figures, prompts, remember, searched, small, task

from fairerclip.errors import NoSolutionError
from fairerclip.inputs.prompts import zero_shot
from fairerclip.tuning import candidates as module
from fairerclip.tuning.pool import neighbours


@pytest.fixture
def pool_of(monkeypatch):
    """A function: the candidates of a search, scored on the validation rows alone."""
    seen = remember(monkeypatch)

    def run(t, model=None, **given):
        searched(t, model, **{"options": {"cv": None, **given.pop("options", {})}, **given})
        return seen["pool"]

    return run


@pytest.mark.parametrize(
    ("name", "parameters", "labels"),
    [
        ("waterbirds", {}, "train"),
        ("multiclass", {"decision": "prompts"}, "train"),
        ("waterbirds", {"tau": 0.0, "refine": True}, None),
    ],
)
def test_the_second_candidate_predicts_what_zero_shot_does(name, parameters, labels, pool_of):
    t = task(name)
    search = {**SEARCH, "fits": [{}], "zero_shots": [0.0]}
    pool = pool_of(t, small(**parameters), y=labels, search=search)
    codes, margins = zero_shot(t.val.X, [p[None] for p in t.text_target])
    first = pool.candidates[1]
    assert (first.fit, first.parameters["tau"], first.parameters["zero_shot"]) == (1, 0.0, 1.0)
    clear = margins > 1e-3
    assert clear.mean() > 0.9
    assert_array_equal(first.scores.argmax(axis=1)[clear], codes[clear])


def test_prompts_that_are_orthogonal_to_the_sensitive_ones_are_a_candidate(pool_of):
    t = task()
    pool = pool_of(t)
    first = next(c for c in pool.candidates if c.parameters.get("orthogonal"))
    assert (first.fit, first.parameters["tau"], first.parameters["zero_shot"]) == (2, 0.0, 1.0)
    basis = np.linalg.qr(t.sensitive_attribute().text.T)[0]
    text = t.text_target - t.text_target @ basis @ basis.T
    codes, margins = zero_shot(t.val.X, [p[None] for p in text])
    clear = margins > 1e-3
    assert clear.mean() > 0.9
    assert_array_equal(first.scores.argmax(axis=1)[clear], codes[clear])


def test_given_is_the_model_as_it_came(pool_of):
    t, parameters = task(), {"tau": 0.3, "gamma": 1e-2, "kernel": "linear"}
    pool = pool_of(t, small(**parameters))
    fitted = small(**{**START, **parameters}).fit(t.train.X, t.train.y, **prompts(t))
    assert (pool.given, pool.reference) == (0, 0)
    assert pool.candidates[0].parameters == {}
    assert_allclose(pool.candidates[0].scores, fitted.scores(t.val.X), rtol=1e-5, atol=1e-6)


def test_points_of_the_grid_are_refits(pool_of):
    t = task("multiclass")
    pool = pool_of(t)
    assert {c.fit for c in pool.candidates} == {0, 1, 2, 3, 4}
    chosen = np.random.default_rng(61).choice(len(pool.candidates), 6, replace=False)
    for candidate in (pool.candidates[i] for i in chosen):
        model = clone(small(**START)).set_params(**candidate.parameters)
        fitted = model.fit(t.train.X, t.train.y, **prompts(t))
        scale = np.abs(candidate.scores).max()
        assert_allclose(candidate.scores, fitted.scores(t.val.X), atol=2e-4 * scale)


def test_every_fit_brings_its_grid_and_idle_criteria_are_left_out(pool_of):
    pool = pool_of(task())
    points = [
        (c.parameters["tau"], c.parameters["criterion"], c.parameters["zero_shot"])
        for c in pool.candidates
        if c.fit == 3
    ]
    expected = {(0.0, "marginal", z) for z in (0.0, 0.5)} | {
        (0.8, k, z) for k in ("marginal", "conditional") for z in (0.0, 0.5)
    }
    assert len(points) == len(expected)
    assert set(points) == expected
    assert (pool.fits, pool.planned, pool.failures) == (5, 5, [])
    assert pool.seconds > 0


def test_neighbours_differ_in_one_step(pool_of):
    grid = {"taus": [0.0, 0.4, 0.8], "zero_shots": [0, 0.3, 0.6]}
    pool = pool_of(task(), search={**SEARCH, "fits": [{}], **grid})
    by = {
        (c.parameters["tau"], c.parameters["criterion"], c.parameters["zero_shot"]): c
        for c in pool.candidates
        if c.fit == 3
    }
    found = neighbours(pool, by[0.4, "marginal", 0.3])
    expected = [(0.0, "marginal", 0.3), (0.8, "marginal", 0.3), (0.4, "conditional", 0.3)]
    expected += [(0.4, "marginal", 0.0), (0.4, "marginal", 0.6)]
    assert {id(c) for c in found} == {id(by[point]) for point in expected}
    corner = neighbours(pool, by[0.8, "conditional", 0.6])
    expected = [(0.4, "conditional", 0.6), (0.8, "marginal", 0.6), (0.8, "conditional", 0.3)]
    assert {id(c) for c in corner} == {id(by[point]) for point in expected}
    assert neighbours(pool, pool.candidates[0]) == []


# What has no solution -------------------------------------------------------------------------------


def test_settings_without_a_solution_are_collected(pool_of):
    """S is the target itself: the penalty outweighs it from τ = 1/2 on."""
    t = task()
    given = {"text": None, "sensitive_text": None, "sensitive_features": t.train.y}
    search = {"fits": [{"tau": 0.0}, {"tau": 0.9}], "taus": [0.0, 0.9], "criteria": ["marginal"]}
    pool = pool_of(t, small(tau=0.9), search=search, **given)
    assert (pool.given, pool.reference) == (None, 0)
    assert [c.parameters["tau"] for c in pool.candidates] == [0.0, 0.0]
    assert len(pool.failures) == 1
    search |= {"taus": [0.9], "fits": [{"gamma": 1e-2}]}
    with pytest.raises(NoSolutionError):
        pool_of(t, small(tau=0.9), search=search, **given)


def test_a_setting_has_to_have_a_solution_in_every_fold(pool_of):
    """One fold has no row whose S differs from the target, so that nothing is left there from τ = 1/2 on."""
    t = task()
    s = t.train.y.copy()
    s[:9] = 1 - s[:9]
    n = len(s)
    pairs = [(np.arange(9, n), np.arange(9)), (np.r_[:9, 200:n], np.arange(9, 200))]
    given = {"text": None, "sensitive_text": None, "sensitive_features": s, "validation": None}
    search = {"fits": [{}], "taus": [0.0, 0.9], "criteria": ["marginal"]}
    pool = pool_of(t, small(tau=0.0), search=search, options={"cv": pairs}, **given)
    assert [c.parameters.get("tau") for c in pool.candidates] == [None, 0.0]


# The next ridge -------------------------------------------------------------------------------------


def ridges(found):
    """Ridges of the fits of a search, the given one first."""
    return list(dict.fromkeys(row["gamma"] for row in found.results_))


def test_a_default_search_tries_further_ridges_and_one_with_fits_of_the_user_does_not(monkeypatch):
    fits = [{"class_weight": "group", "gamma": gamma} for gamma in (3e-1, 1e-1)]
    monkeypatch.setattr(module, "FITS", fits)  # too large: the best one is the smallest
    t, seen = task(), []
    given = {"text": None, "sensitive_text": None, "sensitive_features": t.train.sensitive()}
    grid, model = {"taus": [0.0, 0.8], "criteria": ["marginal"]}, small(gamma=1.0)
    found = searched(t, model, search=grid, progress=lambda *done: seen.append(done), **given)
    assert_allclose(ridges(found), [1.0, 3e-1, 1e-1, 1e-1 / 3, 1e-1 / 9, 1e-1 / 27])
    assert seen == [(1, 3), (2, 3), (3, 3), (4, 4), (5, 5), (6, 6)]
    record = figures(found.best_estimator_)
    assert (record["fits"], record["fits_planned"]) == (6, 6)
    assert found.best_params_["gamma"] < 1e-1
    own = searched(t, model, search={**grid, "fits": fits}, **given)
    assert ridges(own) == [1.0, 3e-1, 1e-1]
    few = searched(t, model, search=grid, options={"max_seconds": 1e-9}, **given)
    assert ridges(few) == [1.0, 3e-1]
