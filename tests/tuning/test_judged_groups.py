"""Groups of training and validation rows are the same groups, whatever they are called and however they are known."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tuning_inputs import TINY, figures, held, remember, searched, task

from fairerclip.errors import NoSensitiveWarning, UnusedRowsWarning
from fairerclip.judging.group_doubt import calibrated_probabilities, mixture_probabilities, prompt_cosines

NAMES = np.array(["land", "water"])


@pytest.fixture
def groups(monkeypatch):
    """A function: run a search, and return the probabilities of the groups of training and of validation rows."""
    seen = remember(monkeypatch)

    def run(t, **given):
        found_search = searched(t, **{"search": TINY, **given})
        found = seen["found"]
        P, names = found.judged.evidence.groups, found.judged.group_names.tolist()
        return figures(found_search.best_estimator_), P[: found.trained_rows], P[found.trained_rows :], names

    return run


def known(t, values=None):
    s = t.train.sensitive()
    return {"sensitive_text": None, "sensitive_features": s if values is None else values[s]}


def read_prompts(t, X):
    return prompt_cosines(X, [row[None] for row in t.sensitive_attribute().text])


def without(figures, *names):
    return {name: value for name, value in figures.items() if name not in names}


def test_known_groups_are_certain_and_the_validation_rows_may_call_the_attribute_something_else(groups):
    t = task()
    X, y, s = held(t)
    first, trained, held_out, names = groups(t, **known(t))
    assert names == [0, 1]
    assert_array_equal(trained, np.eye(2)[t.train.sensitive()])
    assert_array_equal(held_out, np.eye(2)[s])
    for other in ({"place": s}, s.astype(float), s[:, None]):
        assert groups(t, validation=(X, y, other), **known(t))[0] == first
    named = groups(t, validation=(X, y, NAMES[s]), **known(t, NAMES))
    assert named[3] == ["land", "water"]
    assert named[0] == first


def test_known_values_of_training_rows_meet_the_prompts_of_validation_rows_by_name(groups):
    """Without s, groups of validation rows are read from prompts, whose order is not that of the known values."""
    t = task()
    X, y, _ = held(t)
    text = t.sensitive_attribute().text
    found = []
    for order in ([0, 1], [1, 0]):
        given = {NAMES[k]: np.stack([text[k], text[k] + 0.01]) for k in order}
        features = NAMES[t.train.sensitive()]
        found.append(groups(t, validation=(X, y), sensitive_features=features, sensitive_text=given))
    (plain, trained, held_out, names), (turned, *rest) = found
    assert (names, rest[2]) == (["land", "water"], ["water", "land"])
    assert_array_equal(trained, np.eye(2)[t.train.sensitive()])
    assert_array_equal(rest[0][:, ::-1], trained)
    assert_allclose(rest[1][:, ::-1], held_out, atol=1e-9)
    assert np.mean(held_out.argmax(axis=1) == t.val.sensitive()) > 0.8
    assert without(turned, "chosen", "neighbours", "gain", "doubt", "value") == without(
        plain, "chosen", "neighbours", "gain", "doubt", "value"
    )


def test_guessed_groups_are_calibrated_on_the_known_groups_of_validation_rows(groups):
    t = task()
    X, _, s = held(t)
    _, trained, held_out, _ = groups(t)
    expected = calibrated_probabilities(read_prompts(t, t.train.X), read_prompts(t, X), s)
    assert_allclose(trained, expected, atol=1e-5)
    assert_array_equal(held_out, np.eye(2)[s])
    assert 0.05 < np.mean((trained > 0.02) & (trained < 0.98))  # some are doubtful


def test_without_known_groups_all_are_as_sure_as_the_prompts(groups):
    t = task()
    X, y, _ = held(t)
    _, trained, held_out, _ = groups(t, validation=(X, y))
    assert_allclose(held_out, mixture_probabilities(read_prompts(t, X)), atol=1e-5)
    assert_allclose(trained, mixture_probabilities(read_prompts(t, t.train.X)), atol=1e-5)
    _, alone, _, _ = groups(t, validation=None)
    assert_allclose(alone, trained, atol=1e-9)


def test_known_values_stay_where_others_are_guessed(groups):
    t = task()
    s = t.train.sensitive().astype(float)
    guessed = np.arange(len(s)) % 3 == 0
    s[guessed] = np.nan
    _, trained, _, _ = groups(t, sensitive_features=s)
    assert_array_equal(trained[~guessed], np.eye(2)[t.train.sensitive()[~guessed]])
    assert np.any((trained[guessed] > 0.02) & (trained[guessed] < 0.98))


@pytest.mark.parametrize("guessed", [True, False])
def test_a_value_that_training_rows_do_not_have_is_a_group_of_validation_rows(guessed, groups):
    t = task()
    X, y, s = held(t)
    other = np.where(np.arange(len(s)) % 9 == 0, 7, s)
    found, trained, held_out, names = groups(t, validation=(X, y, other), **({} if guessed else known(t)))
    assert names == [0, 1, 7]
    assert_array_equal(trained[:, 2], 0)
    assert_allclose(trained.sum(axis=1), 1)
    assert_array_equal(held_out.argmax(axis=1), np.where(other == 7, 2, s))
    assert found["rows"] == len(t.train.y) + len(y)


# Several attributes ---------------------------------------------------------------------------------


def two(t):
    """A second attribute of training and of validation rows, and prompts that tell nothing of it."""
    rng = np.random.default_rng(91)
    return (
        *(rng.integers(2, size=len(rows)) for rows in (t.train.y, t.val.y)),
        rng.normal(size=t.sensitive_attribute().text.shape),
    )


def test_groups_of_several_attributes_are_their_combinations_in_any_order(groups):
    t = task()
    X, y, s = held(t)
    b, b_val, _ = two(t)
    given = {"sensitive_text": None, "sensitive_features": {"a": t.train.sensitive(), "b": b}}
    first, trained, held_out, names = groups(t, validation=(X, y, {"a": s, "b": b_val}), **given)
    assert names == ["0, 0", "0, 1", "1, 0", "1, 1"]
    assert_array_equal(trained, np.eye(4)[2 * t.train.sensitive() + b])
    assert_array_equal(held_out, np.eye(4)[2 * s + b_val])
    turned, *_ = groups(t, validation=(X, y, {"b": b_val, "a": s}), **given)
    assert turned["gain"] == pytest.approx(first["gain"], abs=1e-9)
    assert turned["rows"] == first["rows"]


# Other attributes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["other", "quantity", "none of validation"])
def test_validation_rows_with_other_attributes_judge_alone(kind, groups):
    t = task()
    X, y, s = held(t)
    b, b_val, _ = two(t)
    given = {"sensitive_text": None, "sensitive_features": {"a": t.train.sensitive(), "b": b}}
    rows = (X, y, s)
    if kind == "other":
        rows = (X, y, {"a": s, "c": b_val})
    elif kind == "quantity":
        given["sensitive_features"] = t.train.X[:, 0].astype(float)
    elif kind == "none of validation":
        rows = (X, y)
    with pytest.warns(UnusedRowsWarning):
        found, trained, held_out, _ = groups(t, validation=rows, **given)
    assert (found["rows"], found["folds"], len(trained)) == (len(y), None, 0)
    alone = groups(t, validation=rows, options={"cv": None}, **given)
    assert found == alone[0]
    assert_array_equal(held_out, alone[2])


def test_without_sensitive_attributes_in_training_the_validation_rows_judge_alone(groups):
    t = task()
    with (
        pytest.warns(NoSensitiveWarning),
        pytest.warns(UnusedRowsWarning),
    ):
        found, *_ = groups(t, sensitive_text=None)
    assert found["rows"] == len(t.val.y)
    with pytest.warns(NoSensitiveWarning):
        together, trained, _, names = groups(t, sensitive_text=None, validation=held(t)[:2])
    assert (together["rows"], together["groups"]) == (len(t.train.y) + len(t.val.y), "none")
    assert_array_equal(trained, np.ones((len(t.train.y), 1)))
    assert names == ["all"]
