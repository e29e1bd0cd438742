"""A search does each piece of its work once: reading, features of validation rows, judging, and the last fit."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from tuning_inputs import SEARCH, TINY, held, prompts, searched, small, task

from fairerclip.errors import FairerClipWarning, ParameterError, ZeroRowWarning
from fairerclip.features.fourier import FourierFeatures
from fairerclip.judging import verdicts as verdicts_module
from fairerclip.judging.evidence import Evidence
from fairerclip.judging.objectives import Objective
from fairerclip.model.fit_inputs import read_inputs
from fairerclip.solver.rows import CENTRE_ROWS
from fairerclip.tuning.pool import Candidate, verdicts_of
from fairerclip.tuning.read_once import ReadOnce

GIVEN = {"sample_weight": None}


def test_the_chosen_model_is_the_fit_of_its_parameters_to_the_last_digit():
    t = task()
    fits = {**SEARCH, "fits": [{"class_weight": "group"}, {"kernel": "linear", "gamma": 1e-4}]}
    for search in (SEARCH, TINY, fits):
        found = searched(t, search=search)
        model = found.best_estimator_
        again = (
            clone(found.estimator).set_params(**found.best_params_).fit(t.train.X, t.train.y, **prompts(t))
        )
        assert_array_equal(again.at(offsets=model.offsets_).scores(t.test.X), model.scores(t.test.X))
        assert again.n_features_in_ == model.n_features_in_
        assert again.fitted_.temperature == pytest.approx(again.at(offsets=[0, 0]).fitted_.temperature)
        assert again.at(offsets=model.offsets_).fitted_.temperature == model.fitted_.temperature


def test_features_of_validation_rows_are_made_once_for_each_kernel(monkeypatch):
    t = task()
    made = []
    transform = FourierFeatures.transform
    monkeypatch.setattr(
        FourierFeatures, "transform", lambda self, X: made.append(len(X)) or transform(self, X)
    )
    searched(t, search=SEARCH)
    # Besides the point about which sums are taken, from a few rows.
    assert sorted(made) == sorted([len(t.train.X), len(t.val.X), CENTRE_ROWS])


def test_each_candidate_is_judged_once(monkeypatch):
    judged = []
    judge = verdicts_module.judge_margins
    monkeypatch.setattr(
        verdicts_module,
        "judge_margins",
        lambda e, o, margins: judged.append(len(margins)) or judge(e, o, margins),
    )
    found = searched(task(), search=SEARCH)
    assert sum(judged) == len(found.results_)


def test_other_rows_judge_anew():
    y = np.arange(40) % 2
    rng = np.random.default_rng(0)
    first, other = (Evidence.of_codes(y, s, 2, 2, rng.normal(size=40)) for s in (y // 1, np.arange(40) // 20))
    candidates = [Candidate({}, k, rng.normal(size=(40, 2)).astype(np.float32)) for k in range(3)]
    goal = Objective("worst_group")
    one = verdicts_of(candidates, first, goal)
    two = verdicts_of(candidates, other, goal)
    assert np.any(one.hits != two.hits)
    assert_array_equal(verdicts_of(candidates, first, goal).hits, one.hits)
    assert verdicts_of(candidates, first, None).draws is None


def test_rows_that_are_read_once_are_those_of_a_fit_with_other_parameters():
    t = task()
    params = small(tau=0.5, zero_shot=0.5, gamma=1e-3).get_params()
    given = {**GIVEN, **prompts(t)}
    read = ReadOnce(params, t.train.X, t.train.y, given)
    others = [
        {"kernel": "linear"},
        {"orthogonal": True},
        {"kernel": "linear", "subsample": "balanced"},
        {"n_features": 20, "bandwidth": 2.0},
        {"normalize": False},
    ]
    for changes in others:
        other = {**params, **changes}
        assert read.is_shared(other) is ("normalize" not in changes)
        found, expected = read.data(other), read_inputs(other, t.train.X, t.train.y, **given).data
        assert_array_equal(found.chosen, expected.chosen)
        assert_array_equal(found.scores, expected.scores)
        rows = np.arange(10)
        assert_array_equal(found.rows.take(rows), expected.rows.take(rows))


def test_warnings_of_reading_are_given_once_and_other_ones_are_not_kept(monkeypatch):
    t = task()
    X = t.val.X.copy()
    X[0] = 0
    y = t.train.y.astype(object)
    y[:3] = None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        searched(t, y=y, search=TINY, validation=(X, *held(t)[1:]))
    kinds = [w.category for w in told]
    assert kinds.count(ZeroRowWarning) == 1
    assert all(issubclass(kind, FairerClipWarning) for kind in kinds)

    def noisy(*args, **options):
        warnings.warn("from elsewhere", RuntimeWarning, stacklevel=2)
        return read_inputs(*args, **options)

    monkeypatch.setattr("fairerclip.tuning.read_once.read_inputs", noisy)
    with pytest.warns(RuntimeWarning, match="from elsewhere"):
        ReadOnce(small().get_params(), t.train.X, t.train.y, {**GIVEN, **prompts(t)})


def test_a_fit_that_reads_its_rows_in_another_way_is_fitted_in_full():
    t = task()
    search = {**TINY, "fits": [{"normalize": False, "class_weight": "group"}]}
    found = searched(t, search=search)
    again = clone(found.estimator).set_params(**found.best_params_).fit(t.train.X, t.train.y, **prompts(t))
    assert_array_equal(
        again.at(offsets=found.best_estimator_.offsets_).scores(t.test.X), found.scores(t.test.X)
    )
    with pytest.raises(ParameterError):
        searched(t, search={**TINY, "fits": [{"normalise": False}]})
