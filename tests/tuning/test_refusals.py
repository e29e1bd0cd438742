"""What cannot be searched is refused by a named error, before a model is fitted where that is possible."""

import numpy as np
import pytest
from tuning_inputs import SEARCH, TINY, held, prompts, searched, small, task

from fairerclip import FairerCLIPSearch
from fairerclip.errors import LabelError, NonFiniteError, ParameterError, ShapeError, ZeroRowError
from fairerclip.tuning.candidates import search_space


@pytest.mark.parametrize(
    ("space", "fact"),
    [({"tau": [0.1]}, "'tau'"), ({"fits": [3]}, "fits"), ({"taus": 0.5}, "'taus'"), ("taus", "'taus'")],
    ids=str,
)
def test_a_search_space_that_cannot_be_is_named(space, fact):
    with pytest.raises(ParameterError, match=fact):
        search_space(space)


@pytest.mark.parametrize(
    ("space", "fact"),
    [
        ({"fits": [{"gamma": 1e-3}, {"gama": 1.0}]}, "gama"),
        ({"fits": [{"gamma": "auto"}]}, "gamma"),
        ({**SEARCH, "taus": [1.0]}, "tau"),
    ],
    ids=str,
)
def test_parameters_that_cannot_be_are_named(space, fact):
    fits = []
    with pytest.raises(ParameterError, match=fact):
        searched(task(), search=space, progress=lambda *done: fits.append(done))
    assert fits == [] or space.keys() > {"fits"}  # those of fits are refused before the first one


def by_hand(y, predicted, groups):
    return 0.0


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"estimator": 3}, "estimator"),
        ({"cv": 1}, "folds"),
        ({"cv": "many"}, "splitter"),
        ({"cv": [([0], [1]), ([2], [1])]}, "test fold"),
        ({"cv": [(range(480), range(9))]}, "row 0"),
        *(({"max_seconds": seconds}, "max_seconds") for seconds in (0, np.nan)),
        ({"objective": "best"}, "objective"),
        ({"objective": lambda y, predicted, groups: None}, "number"),
        ({"accuracy_floor": 80}, "accuracy_floor"),
        ({"objective": by_hand, "accuracy_floor": 0.8}, "accuracy_floor"),
    ],
)
def test_options_that_cannot_be_are_named(options, fact):
    t = task()
    model = FairerCLIPSearch(**{"estimator": small(), "search_space": TINY, **options})
    with pytest.raises(ParameterError, match=fact):
        model.fit(t.train.X, t.train.y, **prompts(t))


def with_row(X, value):
    X = X.copy()
    X[7] = value
    return X


@pytest.mark.parametrize(
    ("spoil", "error", "fact"),
    [
        (lambda X, y, s: (X,), ParameterError, "1 entries"),
        (lambda X, y, s: (X[:, :9], y, s), ShapeError, "64 .* 9"),
        (lambda X, y, s: (with_row(X, np.nan), y, s), NonFiniteError, "row 7"),
        (lambda X, y, s: (X, y + 5, s), LabelError, r"\[5, 6\]"),
        (lambda X, y, s: (X, [None] * len(y), s), LabelError, "no validation row"),
        (lambda X, y, s: (X, y[:-1], s), ShapeError, "119"),
        (lambda X, y, s: (X, y, X[:, 0]), LabelError, "quantity"),
    ],
)
def test_validation_rows_that_cannot_be_are_named(spoil, error, fact):
    t = task()
    with pytest.raises(error, match=fact):
        searched(t, validation=spoil(*held(t)), search=TINY)


def test_training_rows_that_cannot_be_are_named():
    t = task()
    n, one = len(t.train.y), np.zeros(len(t.train.y), dtype=int)
    people = [None if i == 7 else i for i in range(n)]
    some = np.where(t.train.y == 0, 0.0, np.nan)  # the other class has prompts and guessed labels
    cases = [
        (LabelError, "y", {"y": None}),
        (LabelError, "one class", {"y": some}),
        (ShapeError, r"\(2,\)", {"groups": [1, 2]}),
        (LabelError, "row 7", {"groups": people}),
        (LabelError, "class [01]", {"groups": t.train.y, "options": {"cv": 2}}),
        (ParameterError, "cv=None", {"groups": one, "validation": "val", "options": {"cv": None}}),
    ]
    for error, fact, given in cases:
        with pytest.raises(error, match=fact):
            searched(t, **{"search": TINY, "validation": None, **given})
    with pytest.raises(ZeroRowError, match=f"row 7 of {n}"):
        FairerCLIPSearch(small(), search_space=TINY).fit(with_row(t.train.X, 0), t.train.y, **prompts(t))


def test_weights_by_group_that_were_asked_for_need_groups():
    t = task()
    given = {"sensitive_text": None, "sensitive_features": t.train.X[:, 0].astype(np.float64)}
    with pytest.raises(ParameterError, match="group"):
        searched(t, search=SEARCH, options={"cv": None}, **given)
