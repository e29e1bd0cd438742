"""A search takes labels of every kind, and names what it cannot take."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tuning_inputs import TINY, figures, held, prompts, small, task, tuned

from fairerclip.errors import FairerClipError, LabelError, NonFiniteError, ParameterError, ShapeError
from small_models import tune


@pytest.mark.parametrize("labels", [True, False])
def test_names_with_classes_or_a_mapping_are_the_same_model(labels):
    t = task("multiclass")
    names = np.array(["zebra", "yak", "wolf"])  # their order is not the sorted one
    X, y, s = held(t)
    plain = tuned(t, y="train" if labels else None, search=TINY)
    shared = {"validation": (X, names[y], s), "search": TINY, "y": names[t.train.y] if labels else None}
    listed = tuned(t, **shared, classes=iter(names.tolist()))
    mapped = tuned(t, **shared, text=dict(zip(names.tolist(), t.text_target, strict=True)))
    expected = names[plain.predict(t.test.X)]
    assert_array_equal(listed.predict(t.test.X), expected)
    assert_array_equal(mapped.predict(t.test.X), expected)
    for name in ("value", "gain", "doubt", "strategy"):
        assert figures(mapped)[name] == figures(listed)[name] == figures(plain)[name]


@pytest.mark.parametrize(
    "move", [lambda y: y + 1, lambda y: 2 * y - 1, lambda y: 10.0 * y, lambda y: y == 1], ids=range(4)
)
def test_two_classes_may_have_any_two_labels(move):
    t = task()
    X, y, s = held(t)
    plain = tuned(t, search=TINY)
    names = move(np.arange(2)).tolist()
    text = dict(zip(names, t.text_target, strict=True))
    moved = tuned(t, y=move(t.train.y), validation=(X, move(y), s), search=TINY, text=text)
    assert (figures(moved)["value"], figures(moved)["gain"]) == (
        figures(plain)["value"],
        figures(plain)["gain"],
    )
    assert_array_equal(moved.predict(t.test.X), move(plain.predict(t.test.X)))


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("labels", ["train", None])
def test_a_class_that_validation_rows_lack_keeps_its_place(kind, labels):
    t = task("multiclass")
    X, y, s = held(t)
    some = np.flatnonzero(y != 1)
    model = tuned(t, y=labels, validation=(X[some], y[some].astype(kind), s[some]), search=TINY)
    assert figures(model)["chosen"]["average"] == pytest.approx(
        np.mean(model.predict(X[some]) == y[some]), abs=0.02
    )
    assert len(model.classes_) == 3


@pytest.mark.parametrize("how", ["None", "NaN", "missing_label", "constructor"])
def test_validation_rows_without_labels_are_left_out(how):
    t = task()
    X, y, s = held(t)
    gone = np.random.default_rng(92).random(len(y)) < 0.3
    options, model = {}, small()
    if how == "None":
        some = [None if g else int(k) for k, g in zip(y, gone, strict=True)]
    elif how == "NaN":
        some = np.where(gone, np.nan, y)
    else:
        some = np.where(gone, -1, y)
        options, model = (
            ({}, small(missing_label=-1)) if how == "constructor" else ({"missing_label": -1}, model)
        )
    found = tuned(t, model, validation=(X, some, s), search=TINY, **options)
    assert figures(found)["validation_rows"] == int((~gone).sum())
    expected = tuned(t, validation=(X[~gone], y[~gone], s[~gone]), search=TINY)
    assert figures(found) == figures(expected)
    assert_array_equal(found.predict(t.test.X), expected.predict(t.test.X))


def test_validation_rows_without_groups_are_left_out():
    t = task()
    X, y, s = held(t)
    some = [None if i % 3 == 0 else int(g) for i, g in enumerate(s)]
    keep = np.arange(len(s)) % 3 > 0
    found = tuned(t, validation=(X, y, some), search=TINY)
    expected = tuned(t, validation=(X[keep], y[keep], s[keep]), search=TINY)
    assert figures(found)["validation_rows"] == int(keep.sum())
    assert figures(found) == figures(expected)


def test_data_frames_are_taken_and_their_columns_compared():
    pd = pytest.importorskip("pandas")
    t = task()
    X, y, s = held(t)
    frame, rows = (pd.DataFrame(a, columns=[f"f{j}" for j in range(a.shape[1])]) for a in (t.train.X, X))
    model = tune(
        small(), frame, t.train.y, validation=(rows, pd.Series(y), pd.Series(s)), search=TINY, **prompts(t)
    )
    assert_array_equal(model.predict(rows), tuned(t, search=TINY).predict(X))
    with pytest.raises(ShapeError, match="the columns of X in the same order"):
        tune(small(), frame, t.train.y, validation=(rows.iloc[:, ::-1], y, s), search=TINY, **prompts(t))


# What it refuses ------------------------------------------------------------------------------------


def with_nan(X):
    X = X.copy()
    X[7, 3] = np.nan
    return X


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda X, y, s: 3, ParameterError, r"validation must be \(X, y, s\), or \(X, y\).* got int"),
        (lambda X, y, s: X, ParameterError, "got ndarray"),
        (lambda X, y, s: {"X": X}, ParameterError, "got dict"),
        (lambda X, y, s: (X,), ParameterError, "got 1 entries"),
        (lambda X, y, s: (X, y, s, s), ParameterError, "got 4 entries"),
        (lambda X, y, s: (X[0], y, s), ShapeError, r"shape \(m, p\); got float32 of shape \(64,\)"),
        (lambda X, y, s: (X.astype(str), y, s), ShapeError, "must hold real numbers; got an array of"),
        (lambda X, y, s: ([[1.0, 2.0], [3.0]], y, s), ShapeError, "rows of different lengths"),
        (lambda X, y, s: (X[:, :9], y, s), ShapeError, "as wide as X, which has 64 columns; got 9"),
        (
            lambda X, y, s: (with_nan(X), y, s),
            NonFiniteError,
            "validation X contains NaN or infinity in row 7",
        ),
        (lambda X, y, s: (X, None, s), LabelError, "validation y is needed to choose a model"),
        (lambda X, y, s: (X, y + 5, s), LabelError, r"labels \[5, 6\] are not among the classes \[0, 1\]"),
        (lambda X, y, s: (X, y.astype(str), s), LabelError, r"labels \['0', '1'\] are not among the classes"),
        (lambda X, y, s: (X, [None] * len(y), s), LabelError, "no validation row has both"),
        (lambda X, y, s: (X[:0], y[:0], s[:0]), LabelError, "no validation row has both"),
        (lambda X, y, s: (X, y[:-1], s), ShapeError, r"as many rows each; got \[120, 119, 120\]"),
        (lambda X, y, s: (X, y, s[:1]), ShapeError, r"as many rows each; got \[120, 120, 1\]"),
        (lambda X, y, s: (X[:50], y, s), ShapeError, r"as many rows each; got \[50, 120, 120\]"),
        (lambda X, y, s: (X, y, X[:, 0]), LabelError, "groups need categories; s is a quantity"),
        (lambda X, y, s: (X, X, s), LabelError, "should be a 1d array"),
    ],
)
def test_validation_rows_that_cannot_be_are_named(spoil, error, message):
    t = task()
    with pytest.raises(error, match=message) as caught:
        tuned(t, validation=spoil(*held(t)), search=TINY)
    assert isinstance(caught.value, FairerClipError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_seconds": 0}, "max_seconds must be a number above 0 or None; got 0"),
        ({"max_seconds": -3.0}, "max_seconds"),
        ({"max_seconds": "60"}, "max_seconds"),
        ({"max_seconds": np.nan}, "max_seconds"),
        ({"objective": "fairness"}, "objective must be one of worst_group"),
        ({"objective": None}, "objective must be one of worst_group"),
        ({"accuracy_floor": 80}, "accuracy_floor must be a share"),
        (
            {"objective": lambda y, p, s: 0.0, "accuracy_floor": 0.8},
            "accuracy_floor cannot be used with a function",
        ),
        ({"search": {"gammas": [1.0]}}, "search_space has unknown entries"),
    ],
)
def test_options_that_cannot_be_are_named(options, message):
    with pytest.raises(ParameterError, match=message):
        tuned(task(), **options)


def test_names_that_the_prompts_do_not_have_are_refused_before_the_search():
    t = task()
    X, y, s = held(t)
    seen = []
    rows = (X, np.array(["land", "water"])[y], s)
    with pytest.raises(LabelError, match=r"labels \['land', 'water'\] are not among the classes \[0, 1\]"):
        tuned(t, y=None, validation=rows, progress=lambda *done: seen.append(done))
    assert seen == []


def test_fractions_are_groups_where_the_estimator_says_that_they_are_categories():
    t = task()
    X, y, s = held(t)
    given = {"sensitive_text": None, "search": TINY}
    halves = tuned(
        t,
        small(sensitive_kind="categorical"),
        validation=(X, y, s + 0.5),
        sensitive_features=t.train.sensitive() + 0.5,
        **given,
    )
    whole = tuned(t, sensitive_features=t.train.sensitive(), **given)
    assert figures(halves) == figures(whole)
