"""`FairerCLIP.tune` from end to end: what it takes, what it leaves, and what it refuses."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from tuning_inputs import SEARCH, held, prompts, small, task, tuned, worst_accuracy

from fairerclip import FairerCLIP
from fairerclip.errors import (
    AccuracyFloorWarning,
    FairerClipError,
    LabelError,
    NonFiniteError,
    ParameterError,
    ShapeError,
)
from fairerclip.inputs.prompts import zero_shot
from fairerclip.tuning.objectives import OBJECTIVES
from small_models import tune

TINY = {
    "fits": [{"class_weight": "balanced"}],
    "taus": [0.0, 0.8],
    "zero_shots": [0.5],
    "criteria": ["marginal"],
}


def figures(model):
    return model.diagnostics_["tuning"]


# What it does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["waterbirds", "multiclass"])
@pytest.mark.parametrize("kind", ["labels", "no labels", "true S"])
def test_the_worst_group_is_no_worse_than_zero_shot_on_fresh_rows(name, kind):
    t = task(name, scale=0.2)
    options = {"sensitive_text": None, "sensitive_features": t.train.sensitive()} if kind == "true S" else {}
    arguments = {**prompts(t), **options}
    y = None if kind == "no labels" else t.train.y
    model = tune(small(n_features=200), t.train.X, y, validation=held(t), search=SEARCH, **arguments)
    X, truth, s = held(t, "test")
    before = worst_accuracy(truth, s, zero_shot(X, [p[None] for p in t.text_target])[0])
    after = worst_accuracy(truth, s, model.predict(X))
    assert after > before + (0.1 if name == "waterbirds" else -0.02)
    assert figures(model)["rows"] == len(t.val.y)
    assert figures(model)["groups"] == "given"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_chooses_a_model(objective):
    t = task()
    model = tuned(t, objective=objective, search=TINY)
    found = figures(model)
    assert found["objective"] == objective
    assert found["strategy"] in found["held_out"]
    assert found["held_out"][found["strategy"]] == max(found["held_out"].values())
    assert np.isfinite(found["value"])


def test_a_floor_keeps_the_average_up():
    t = task()
    X, y, _ = held(t)
    floor = 0.7
    model = tuned(t, objective="eod", accuracy_floor=floor)
    assert figures(model)["accuracy_floor"] == floor
    assert np.mean(model.predict(X) == y) >= floor


def test_a_scorer_sees_labels_predictions_and_groups_of_the_validation_rows():
    t = task()
    X, y, s = held(t)
    seen = []

    def share_of_waterbirds(truth, predicted, groups):
        assert_array_equal(truth, y)
        assert_array_equal(groups, s)
        seen.append(float(np.mean(predicted)))
        return seen[-1]

    model = tuned(t, objective=share_of_waterbirds)
    assert len(seen) == figures(model)["candidates"]
    assert figures(model)["objective"] == "share_of_waterbirds"
    assert figures(model)["value"] == max(seen)
    assert not model.offsets_.any()
    assert np.mean(model.predict(X)) == pytest.approx(max(seen), abs=0.02)


def test_groups_are_read_from_prompts_where_none_are_given():
    t = task()
    X, y, _ = held(t)
    read = zero_shot(X, [p[None] for p in t.sensitive_attribute().text])[0]
    model = tuned(t, validation=(X, y))
    assert figures(model)["groups"] == "read from prompts"
    for same in (tuned(t, validation=(X, y, None)), tuned(t, validation=(X, y, read))):
        assert_array_equal(same.predict(t.test.X), model.predict(t.test.X))
        assert figures(same)["held_out"] == figures(model)["held_out"]


def test_prompts_by_value_are_values_of_the_attribute_that_was_given():
    """Several prompts per value look like one attribute per key, unless the attribute is known."""
    t = task()
    X, y, _ = held(t)
    text = t.sensitive_attribute().text
    names = np.array(["land", "water"])
    several = {name: np.stack([p, p + 0.01]) for name, p in zip(names, text, strict=True)}
    given = {"sensitive_features": names[t.train.sensitive()], "sensitive_text": several}
    found = figures(tuned(t, validation=(X, y), search=TINY, **given))
    read = zero_shot(X, list(several.values()))[0]
    assert found["held_out"] == figures(tuned(t, validation=(X, y, read), search=TINY, **given))["held_out"]


def test_without_any_groups_the_worst_class_is_all_there_is():
    t = task()
    X, y, _ = held(t)
    given = {"sensitive_text": None, "sensitive_features": t.train.sensitive()}
    model = tuned(t, validation=(X, y), search=TINY, **given)
    assert figures(model)["groups"] == "none"
    assert figures(model)["chosen"]["eod"] is None
    assert figures(model)["chosen"]["intervals"]["eod"] is None
    same = tuned(t, validation=(X, y), search=TINY, objective="worst_class", **given)
    assert_array_equal(same.predict(t.test.X), model.predict(t.test.X))
    with pytest.raises(LabelError, match="eod is not defined on the labelled rows"):
        tuned(t, validation=(X, y), search=TINY, objective="eod", **given)


def test_groups_of_several_attributes_are_their_combinations():
    t = task()
    X, y, s = held(t)
    other = np.random.default_rng(91).integers(2, size=len(y))
    model = tuned(t, validation=(X, y, {"a": s, "b": other}), search=TINY)
    crossed = tuned(t, validation=(X, y, 2 * s + other), search=TINY)
    assert figures(model)["held_out"] == figures(crossed)["held_out"]
    json.dumps(figures(model))


# What it leaves -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["waterbirds", "multiclass"])
def test_the_parameters_are_the_model(name):
    t = task(name)
    model = tuned(t, search=TINY)
    again = clone(model).fit(t.train.X, t.train.y, **prompts(t))
    assert_array_equal(again.scores(t.test.X), model.scores(t.test.X))
    assert_array_equal(again.predict(t.test.X), model.predict(t.test.X))


@pytest.mark.parametrize(
    "options", [{}, {"validation": "no groups"}, {"search": {**TINY, "fits": [{}]}}], ids=str
)
def test_a_tuned_model_survives_a_file(options, tmp_path):
    t = task()
    if "validation" in options:
        given = {"sensitive_text": None, "sensitive_features": t.train.sensitive()}
        options = {"validation": held(t)[:2], **given}
    model = tuned(t, **{"search": TINY, **options})
    back = FairerCLIP.load(model.save(tmp_path / "model"))
    assert_array_equal(back.predict(t.test.X), model.predict(t.test.X))
    assert back.diagnostics_["tuning"] == json.loads(json.dumps(figures(model)))
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


def test_figures_are_those_of_the_chosen_model():
    t = task()
    X, y, s = held(t)
    model = tuned(t)
    predicted = model.predict(X)
    chosen = figures(model)["chosen"]
    assert chosen["average"] == pytest.approx(np.mean(predicted == y), abs=0.01)
    assert chosen["worst_group"] == pytest.approx(worst_accuracy(y, s, predicted), abs=0.05)
    for figure in ("average", "worst_group", "eod"):
        low, high = chosen["intervals"][figure]
        assert low <= chosen[figure] <= high
    parameters = model.get_params()
    for name, value in chosen["parameters"].items():
        if name == "offsets":
            assert_allclose(value, model.offsets_)
        elif name != "zero_shot" or parameters[name] is not None:
            assert parameters[name] == value


def test_the_share_that_a_given_model_takes_is_shown():
    t = task()
    arguments = {"text": None, "search": TINY}
    assert figures(tuned(t, **arguments))["chosen"]["parameters"]["zero_shot"] == 0.0
    # A scorer that likes the model as it came: the only one that was not searched for.
    calls = []
    first = tuned(t, search=TINY, objective=lambda y, p, s: calls.append(0) or -len(calls))
    assert figures(first)["chosen"]["parameters"]["zero_shot"] == 0.5
    assert first.zero_shot is None
    assert figures(first)["neighbours"] == []


def test_equal_seeds_give_equal_models():
    t = task()
    first, again, other = (tuned(t, small(random_state=seed), search=TINY) for seed in (3, 3, 4))
    assert_array_equal(first.scores(t.test.X), again.scores(t.test.X))
    alike = {k: v for k, v in figures(first).items() if k != "seconds"}
    assert alike == {k: v for k, v in figures(again).items() if k != "seconds"}
    assert other.get_params()["random_state"] == 4


def test_tuning_again_starts_from_parameters_and_not_from_offsets():
    t = task()
    fitted = small().fit(t.train.X, t.train.y, **prompts(t)).at(offsets=[0.0, 0.1])
    assert_array_equal(
        tuned(t, fitted, search=TINY).predict(t.test.X), tuned(t, small(), search=TINY).predict(t.test.X)
    )


def test_progress_is_called_after_every_fit():
    t = task()
    seen = []
    model = tuned(t, progress=lambda done, planned: seen.append((done, planned)))
    planned = figures(model)["fits_planned"]
    assert planned >= 2 + len(SEARCH["fits"])  # as given, and by the prompts alone
    assert figures(model)["fits"] == planned
    assert seen == [(done, planned) for done in range(1, planned + 1)]


def test_a_budget_is_kept_and_said():
    model = tuned(task(), max_seconds=1e-6)
    assert figures(model)["fits"] == figures(model)["fits_planned"] - 1  # one of the search's own two


def test_a_call_that_fails_leaves_the_model_as_it_was():
    t = task()
    model = small().fit(t.train.X, t.train.y, **prompts(t))
    before, parameters = model.scores(t.test.X), model.get_params()
    with pytest.raises(LabelError):
        tuned(t, model, validation=(t.val.X, None, t.val.sensitive()))
    assert_array_equal(model.scores(t.test.X), before)
    assert model.get_params() == parameters


# Labels of every kind -------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [True, False])
def test_names_with_classes_or_a_mapping_are_the_same_model(labels):
    t = task("multiclass")
    names = np.array(["zebra", "yak", "wolf"])  # their order is not the sorted one
    X, y, s = held(t)
    train = t.train.y if labels else None
    plain = tune(small(), t.train.X, train, validation=(X, y, s), search=TINY, **prompts(t))
    shared = {"validation": (X, names[y], s), "search": TINY}
    sensitive = t.sensitive_attribute().text
    train = names[t.train.y] if labels else None
    listed = tune(
        small(),
        t.train.X,
        train,
        **shared,
        text=t.text_target,
        sensitive_text=sensitive,
        classes=iter(names.tolist()),
    )
    mapped = tune(
        small(),
        t.train.X,
        train,
        **shared,
        text=dict(zip(names.tolist(), t.text_target, strict=True)),
        sensitive_text=sensitive,
    )
    expected = names[plain.predict(t.test.X)]
    assert_array_equal(listed.predict(t.test.X), expected)
    assert_array_equal(mapped.predict(t.test.X), expected)
    assert figures(mapped)["held_out"] == figures(plain)["held_out"]


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
    assert figures(moved)["held_out"] == figures(plain)["held_out"]
    assert_array_equal(moved.predict(t.test.X), move(plain.predict(t.test.X)))


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("labels", [True, False])
def test_a_class_that_validation_rows_lack_keeps_its_place(kind, labels):
    t = task("multiclass")
    X, y, s = held(t)
    some = np.flatnonzero(y != 1)
    train = t.train.y if labels else None
    model = tune(
        small(),
        t.train.X,
        train,
        validation=(X[some], y[some].astype(kind), s[some]),
        search=TINY,
        **prompts(t),
    )
    assert figures(model)["chosen"]["average"] == pytest.approx(
        np.mean(model.predict(X[some]) == y[some]), abs=0.02
    )
    assert len(model.classes_) == 3


@pytest.mark.parametrize("how", ["None", "NaN", "missing_label", "constructor"])
def test_rows_without_labels_are_left_out(how):
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
    assert figures(found)["rows"] == int((~gone).sum())
    expected = tuned(t, validation=(X[~gone], y[~gone], s[~gone]), search=TINY)
    assert figures(found)["held_out"] == figures(expected)["held_out"]
    assert_array_equal(found.predict(t.test.X), expected.predict(t.test.X))


def test_rows_without_groups_are_left_out():
    t = task()
    X, y, s = held(t)
    some = [None if i % 3 == 0 else int(g) for i, g in enumerate(s)]
    keep = np.arange(len(s)) % 3 > 0
    found = tuned(t, validation=(X, y, some), search=TINY)
    expected = tuned(t, validation=(X[keep], y[keep], s[keep]), search=TINY)
    assert figures(found)["rows"] == int(keep.sum())
    assert figures(found)["held_out"] == figures(expected)["held_out"]


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
        (lambda X, y, s: (X.astype(str), y, s), ShapeError, "must be numbers"),
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
        (lambda X, y, s: (X[:1], y[:1], s[:1]), LabelError, "1 labelled rows are too few"),
    ],
)
def test_validation_rows_that_cannot_be_are_named(spoil, error, message):
    t = task()
    with pytest.raises(error, match=message) as caught:
        tune(small(), t.train.X, t.train.y, validation=spoil(*held(t)), search=TINY, **prompts(t))
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
        (
            {"objective": "max_skew", "accuracy_floor": 0.8},
            "accuracy_floor and search_space cannot be used with max_skew",
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
    with pytest.raises(LabelError, match=r"labels \['land', 'water'\] are not among the classes \[0, 1\]"):
        tune(
            small(),
            t.train.X,
            validation=(X, np.array(["land", "water"])[y], s),
            progress=lambda *done: seen.append(done),
            **prompts(t),
        )
    assert seen == []


@pytest.mark.parametrize("objective", ["eod", "equalized_odds"])
def test_differences_need_two_groups_of_a_class(objective):
    t = task()
    X, y, s = held(t)
    rows = y == s
    with pytest.raises(LabelError, match=f"{objective} is not defined on the labelled rows"):
        tuned(t, validation=(X[rows], y[rows], s[rows]), objective=objective, search=TINY)


def test_validation_rows_of_one_class_are_enough_for_the_worst_group():
    t = task()
    X, y, s = held(t)
    found = figures(tuned(t, validation=(X[y == 0], y[y == 0], s[y == 0]), search=TINY))
    assert found["rows"] == int((y == 0).sum())
    assert found["chosen"]["worst_group"] > 0.8


def test_a_difference_between_groups_never_goes_without_a_floor():
    """One class for every row has no EOD; zero-shot's average is the floor where none is given."""
    made = task()
    model = tuned(made, objective="eod")
    guesses = zero_shot(made.val.X, [row[None, :] for row in made.text_target])[0]
    floor = model.diagnostics_["tuning"]["accuracy_floor"]
    assert floor == pytest.approx(np.mean(guesses == made.val.y), abs=2 / len(made.val.y))
    assert len(set(model.predict(made.val.X).tolist())) == made.n_classes


def test_a_floor_that_nothing_reaches_is_said_and_not_hidden():
    made = task()
    with pytest.warns(AccuracyFloorWarning, match=r"reaches the accuracy_floor of 0\.9999"):
        model = tuned(made, accuracy_floor=0.9999)
    tuning = model.diagnostics_["tuning"]
    assert tuning["floor_met"] is False
    assert 0 < tuning["value"] < 2
    assert tuned(made, accuracy_floor=0.1).diagnostics_["tuning"]["floor_met"] is True


def test_the_floor_of_a_difference_is_that_of_zero_shot_even_with_fewer_rows_than_dimensions():
    made = task(width=256)
    few = np.random.default_rng(1).permutation(len(made.train.y))[:60]
    guesses = zero_shot(made.val.X, [row[None, :] for row in made.text_target])[0]
    model = tune(
        small(),
        made.train.X[few],
        made.train.y[few],
        validation=held(made),
        objective="equalized_odds",
        search=SEARCH,
        **prompts(made),
    )
    assert model.diagnostics_["tuning"]["accuracy_floor"] == np.mean(guesses == made.val.y)
