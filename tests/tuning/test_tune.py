"""A search from end to end: what it finds, and what it leaves."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tuning_inputs import (
    TINY,
    all_rows,
    figures,
    held,
    searched,
    small,
    task,
    tuned,
    worst_accuracy,
)

from fairerclip import FairerCLIP
from fairerclip.errors import LabelError, UnusedRowsWarning
from fairerclip.inputs.prompts import zero_shot

# What it finds --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("waterbirds", "labels"), ("waterbirds", "no labels"), ("multiclass", "true S")]
)
def test_the_worst_group_is_no_worse_than_zero_shot_on_fresh_rows(name, kind):
    t = task(name, scale=0.2)
    options = {"sensitive_text": None, "sensitive_features": t.train.sensitive()} if kind == "true S" else {}
    model = tuned(t, small(n_features=200), y=None if kind == "no labels" else "train", **options)
    X, truth, s = held(t, "test")
    before = worst_accuracy(truth, s, zero_shot(X, [p[None] for p in t.text_target])[0])
    after = worst_accuracy(truth, s, model.predict(X))
    assert after > before + (0.1 if name == "waterbirds" else -0.02)
    assert figures(model)["rows"] == len(t.val.y) + (0 if kind == "no labels" else len(t.train.y))
    assert figures(model)["groups"] == "given"


def test_a_scorer_sees_labels_predictions_and_groups_of_all_rows_that_judge():
    t = task()
    _, y, s = all_rows(t)
    given = {"sensitive_text": None, "sensitive_features": t.train.sensitive()}
    seen = []

    def share_of_waterbirds(truth, predicted, groups):
        assert_array_equal(truth, y)
        assert_array_equal(groups, s)
        seen.append(float(np.mean(predicted)))
        return seen[-1]

    found = searched(t, options={"objective": share_of_waterbirds}, **given)
    record = figures(found.best_estimator_)
    assert len(seen) == record["candidates"]
    assert record["objective"] == "share_of_waterbirds"
    assert record["value"] == found.best_score_ == max(seen)
    assert record["gain"] == max(seen) - seen[0]
    assert not found.best_estimator_.offsets_.any()


def test_groups_of_validation_rows_are_read_from_prompts_where_none_are_given():
    t = task()
    X, y, _ = held(t)
    model = tuned(t, validation=(X, y))
    assert figures(model)["groups"] == "read from prompts"
    same = tuned(t, validation=(X, y, None))
    assert_array_equal(same.predict(t.test.X), model.predict(t.test.X))
    assert figures(same) == figures(model)
    # Without any values, the report counts each row for the group that its prompts make the most likely.
    assert figures(model)["chosen"]["worst_group"] != figures(tuned(t))["chosen"]["worst_group"]


def test_without_any_groups_the_worst_class_is_all_there_is():
    t = task()
    X, y, _ = held(t)
    given = {"sensitive_text": None, "sensitive_features": t.train.sensitive(), "validation": (X, y)}
    with pytest.warns(UnusedRowsWarning):
        model = tuned(t, search=TINY, **given)
    assert figures(model)["groups"] == "none"
    assert figures(model)["chosen"]["eod"] is None
    assert figures(model)["chosen"]["intervals"]["eod"] is None
    with pytest.warns(UnusedRowsWarning):
        same = tuned(t, search=TINY, objective="worst_class", **given)
    assert_array_equal(same.predict(t.test.X), model.predict(t.test.X))
    for objective in ("eod", "equalized_odds"):
        with pytest.warns(UnusedRowsWarning), pytest.raises(LabelError, match=objective):
            tuned(t, search=TINY, objective=objective, **given)


# What it leaves -------------------------------------------------------------------------------------


def test_a_tuned_model_survives_a_file(tmp_path):
    t = task()
    model = tuned(t, search={**TINY, "taus": np.array([0.8], dtype=np.float32)})
    back = FairerCLIP.load(model.save(tmp_path / "model"))
    assert_array_equal(back.predict(t.test.X), model.predict(t.test.X))
    assert back.diagnostics_["tuning"] == json.loads(json.dumps(model.diagnostics_["tuning"]))
    assert back.get_params() == model.get_params()


def test_figures_are_those_of_the_chosen_model_on_the_validation_rows():
    t = task()
    X, y, s = held(t)
    model = tuned(t)
    predicted = model.predict(X)
    record = figures(model)
    chosen = record["chosen"]
    assert chosen["average"] == pytest.approx(np.mean(predicted == y), abs=0.01)
    assert chosen["worst_group"] == pytest.approx(worst_accuracy(y, s, predicted), abs=0.05)
    for figure in ("average", "worst_group", "eod"):
        low, high = chosen["intervals"][figure]
        assert low <= chosen[figure] <= high
    parameters = model.get_params()
    for name, value in chosen["parameters"].items():
        if name == "offsets":
            assert_allclose(value, model.offsets_)
        else:
            assert parameters[name] == value
    assert all(set(row) == set(chosen) for row in record["neighbours"])


@pytest.mark.parametrize("seed", [None, np.random.RandomState(3)], ids=str)
def test_without_a_seed_the_features_are_drawn_once_for_the_whole_search(seed):
    """Or else the model that is fitted in the end would be another than the one that was chosen."""
    t = task()
    seen = []

    def last(y, predicted, groups):
        seen.append(predicted[len(t.train.y) :])
        return len(seen)  # the last candidate, which has random features, is the best

    model = tuned(t, small(random_state=seed), objective=last)
    assert model.kernel == "rbf"
    assert np.mean(model.predict(t.val.X) == seen[-1]) > 0.99
    assert isinstance(model.random_state, int)
    if seed is None:
        assert model.random_state == 0
    else:  # the generator of the user is as it was
        assert seed.randint(1000) == np.random.RandomState(3).randint(1000)
