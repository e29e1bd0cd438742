"""A search from end to end: what it finds, and what it leaves."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tuning_inputs import (
    START,
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
    with (
        pytest.warns(UnusedRowsWarning),
        pytest.raises(LabelError),
    ):
        tuned(t, search=TINY, objective="eod", **given)


@pytest.mark.parametrize("objective", ["equalized_odds"])
def test_differences_need_two_groups_of_a_class(objective):
    t = task()
    X, y, s = held(t)
    rows = y == s
    given = {"validation": (X[rows], y[rows], s[rows]), "options": {"cv": None}}
    with pytest.raises(LabelError):
        tuned(t, objective=objective, search=TINY, **given)


def test_validation_rows_of_one_class_are_enough_for_the_worst_group():
    t = task()
    X, y, s = held(t)
    one = {"validation": (X[y == 0], y[y == 0], s[y == 0]), "search": TINY}
    found = figures(tuned(t, options={"cv": None}, **one))
    assert found["rows"] == found["validation_rows"] == int((y == 0).sum())
    assert found["chosen"]["worst_group"] > 0.8
    assert figures(tuned(t, **one))["rows"] == int((y == 0).sum()) + len(t.train.y)


# What it leaves -------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"validation": "no groups"}], ids=str)
@pytest.mark.filterwarnings("ignore:the training rows have other:fairerclip.errors.UnusedRowsWarning")
def test_a_tuned_model_survives_a_file(options, tmp_path):
    t = task()
    if "validation" in options:
        given = {"sensitive_text": None, "sensitive_features": t.train.sensitive()}
        options = {"validation": held(t)[:2], **given}
    model = tuned(t, **{"search": TINY, **options})
    back = FairerCLIP.load(model.save(tmp_path / "model"))
    assert_array_equal(back.predict(t.test.X), model.predict(t.test.X))
    assert back.diagnostics_["tuning"] == json.loads(json.dumps(model.diagnostics_["tuning"]))
    assert back.get_params() == model.get_params()


def test_values_of_numpy_in_a_search_are_written_too(tmp_path):
    t = task()
    search = {**TINY, "fits": [{"gamma": np.float32(1e-3)}], "taus": np.array([0.8], dtype=np.float32)}
    calls = []
    model = tuned(
        t, search=search, objective=lambda y, p, s: calls.append(0) or len(calls)
    )  # the last one wins
    back = FairerCLIP.load(model.save(tmp_path / "model"))
    assert back.gamma == pytest.approx(1e-3)
    assert back.diagnostics_["tuning"]["chosen"]["parameters"]["gamma"] == pytest.approx(1e-3)


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


def test_automatic_parameters_are_replaced_by_values_to_start_from():
    t = task()
    calls = []
    # A scorer that likes the model as it came: the only one that was not searched for.
    first = searched(
        t, search=TINY, options={"objective": lambda y, p, s: calls.append(0) or -len(calls)}
    ).best_estimator_
    assert {name: first.get_params()[name] for name in START} == START
    chosen = figures(first)["chosen"]["parameters"]
    assert {name: chosen[name] for name in ("tau", "zero_shot", "gamma", "criterion")} == {
        name: START[name] for name in ("tau", "zero_shot", "gamma", "criterion")
    }
    assert (figures(first)["strategy"], figures(first)["neighbours"]) == ("given", [])
    calls = []
    guessed = searched(
        t, y=None, search=TINY, options={"objective": lambda y, p, s: calls.append(0) or -len(calls)}
    ).best_estimator_
    assert (guessed.tau, guessed.zero_shot, guessed.gamma) == (0.7, 1.0, 3e-4)
    assert figures(tuned(t, text=None, search=TINY))["chosen"]["parameters"]["zero_shot"] == 0.0


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
