"""A search takes labels of every kind, and names what it cannot take."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tuning_inputs import TINY, figures, held, prompts, small, task, tuned

from fairerclip.errors import ShapeError
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


def test_a_class_that_validation_rows_lack_keeps_its_place():
    t = task("multiclass")
    X, y, s = held(t)
    some = np.flatnonzero(y != 1)
    model = tuned(t, validation=(X[some], y[some].astype(float), s[some]), search=TINY)
    assert figures(model)["chosen"]["average"] == pytest.approx(
        np.mean(model.predict(X[some]) == y[some]), abs=0.02
    )
    assert len(model.classes_) == 3


@pytest.mark.parametrize("missing", [None, np.nan, -1])
def test_validation_rows_without_labels_are_left_out(missing):
    t = task()
    X, y, s = held(t)
    gone = np.random.default_rng(92).random(len(y)) < 0.3
    some = [missing if g else int(k) for k, g in zip(y, gone, strict=True)]
    options = {"missing_label": -1} if missing == -1 else {}
    found = tuned(t, validation=(X, some, s), search=TINY, **options)
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
    with pytest.raises(ShapeError):
        tune(small(), frame, t.train.y, validation=(rows.iloc[:, ::-1], y, s), search=TINY, **prompts(t))
