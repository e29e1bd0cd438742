"""A search does each piece of its work once: reading, features of validation rows, judging, and the last fit."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from tuning_inputs import SEARCH, TINY, prompts, searched, small, task

from fairerclip.model.fit_inputs import read_inputs
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
