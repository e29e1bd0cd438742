"""TIE: rows move against the prompt of their true value, which is given with the rows to predict."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from gradient_inputs import spurious
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip import load
from fairerclip.baselines import TIE, ZeroShot
from fairerclip.data.coded_labels import CodedLabels
from fairerclip.data.row_pass import BLOCK_ROWS
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import LabelError, ModelFileError, ShapeError
from fairerclip.inputs.sensitive_columns import SoftValues
from fairerclip.metrics import group_report
from forged import canonical, forge

NAMES = np.array(["b", "c", "a"])  # the order of the prompts is not that of the sorted names


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def literal(X, s, fitted_on, s_fit, prompts, scale):
    """x' = x − λ_s u_s, row after row; λ_s is the mean of x·u_s over the rows of the fit whose value is s."""
    moved = []
    for x, value in zip(unit(X), s, strict=True):
        u = unit(prompts[value])
        lengths = [row @ u for row, other in zip(unit(fitted_on), s_fit, strict=True) if other == value]
        moved.append(x - scale * sum(lengths) / len(lengths) * u)
    return np.array(moved)


@pytest.fixture
def fitted(embeddings):
    e, new = (embeddings(seed=seed, n_sensitive=3) for seed in (1, 2))
    text = dict(zip(NAMES.tolist(), e.sensitive_text, strict=True))
    model = TIE(1.5).fit(e.X, text=e.text, sensitive_features=NAMES[e.s], sensitive_text=text)
    return model.at(offsets=[0.1, 0.0]), e, new


def two_attributes(embeddings):
    e, rng = embeddings(seed=4), np.random.default_rng(4)
    age = unit(rng.normal(size=(3, 12)))
    codes = (e.X @ age.T).argmax(axis=1)
    codes[::3] = rng.integers(0, 3, size=len(codes[::3]))  # some are read wrongly
    given = {"sex": np.array(["f", "m"])[e.s], "age": np.array([20, 40, 60])[codes]}
    text = {
        "sex": dict(zip("fm", e.sensitive_text, strict=True)),
        "age": dict(zip((20, 40, 60), age, strict=True)),
    }
    return TIE().fit(e.X, text=e.text, sensitive_features=given, sensitive_text=text), e, given, text


def test_it_is_the_published_translation_of_true_values(fitted):
    model, e, new = fitted
    s = NAMES[new.s]
    moved = literal(new.X, new.s, e.X, e.s, e.sensitive_text, 1.5)
    scores = unit(moved) @ unit(e.text).T + [0.1, 0.0]
    assert_allclose(model.transform(3 * new.X, sensitive_features=s), moved, atol=1e-12)
    assert_allclose(model.scores(new.X, sensitive_features=s), scores, atol=1e-12)
    assert_array_equal(model.predict(new.X, sensitive_features=s), scores.argmax(axis=1))
    assert_allclose(
        model.decision_function(new.X, sensitive_features=s), scores[:, 1] - scores[:, 0], atol=1e-12
    )
    queries = np.random.default_rng(3).normal(size=(4, 12))
    ranked = model.query_scores(new.X, queries, sensitive_features=s)
    assert_allclose(ranked, unit(moved) @ unit(queries).T, atol=1e-12)
    assert np.abs(model.scores(new.X) - scores).max() > 0.01  # some values are read wrongly


def test_values_that_were_read_and_are_given_make_tie_star_bit_for_bit(fitted):
    model, e, new = fitted
    read = NAMES[(unit(new.X) @ unit(e.sensitive_text).T).argmax(axis=1)]
    for call in (model.transform, model.scores, model.predict, model.decision_function):
        assert_array_equal(call(new.X, sensitive_features=read), call(new.X))


def test_rows_of_a_store_get_the_values_of_their_block(fitted):
    model, _, new = fitted
    X, s = np.tile(new.X.astype(np.float32), (90, 1)), np.tile(NAMES[new.s], 90)
    expected = np.tile(model.scores(X[: len(new.X)], sensitive_features=s[: len(new.X)]), (90, 1))
    for rows in (X, EmbeddingStore.from_array(X)):
        assert len(rows) > 2 * BLOCK_ROWS
        assert_allclose(model.scores(rows, sensitive_features=s), expected, atol=1e-12)


def test_values_come_in_every_form_that_a_fit_takes(fitted):
    model, _, new = fitted
    s = NAMES[new.s]
    expected = model.scores(new.X, sensitive_features=s)
    forms = (
        s.tolist(),
        s[:, None],
        pd.Series(s, name="another"),
        pd.DataFrame({"s": s}),
        {"s": s},
        CodedLabels(new.s.astype(np.int8), tuple(NAMES)),
    )
    for form in forms:
        assert_array_equal(model.scores(new.X, sensitive_features=form), expected)


def test_several_attributes_add_up_in_any_order(embeddings):
    model, e, given, text = two_attributes(embeddings)
    expected = -unit(e.X)  # each attribute adds its own translation of the row: x + Σ (x'_a − x)
    for name, prompts in text.items():
        values = np.array(list(prompts)).tolist()
        codes = np.array([values.index(value) for value in given[name].tolist()])
        expected = expected + literal(e.X, codes, e.X, codes, np.array(list(prompts.values())), 1.0)
    for frame in (given, pd.DataFrame(given)[["age", "sex"]]):
        assert_allclose(model.transform(e.X, sensitive_features=frame), expected, atol=1e-12)


def test_values_without_names_are_the_numbers_of_the_prompts(embeddings):
    e = embeddings(seed=5)
    model = TIE().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    assert model.sensitive_values_ == {"s": (0, 1)}
    read = (unit(e.X) @ unit(e.sensitive_text).T).argmax(axis=1)
    moved = literal(e.X, e.s, e.X, read, e.sensitive_text, 1.0)
    assert_allclose(model.transform(e.X, sensitive_features=e.s), moved, atol=1e-12)


def test_a_value_of_no_training_row_moves_nothing(embeddings):
    e = embeddings(seed=1)
    text = {**dict(zip("ab", e.sensitive_text, strict=True)), "c": -e.sensitive_text[0] - e.sensitive_text[1]}
    model = TIE().fit(e.X, text=e.text, sensitive_features=np.array(["a", "b"])[e.s], sensitive_text=text)
    assert model.shifts_[:2].all()
    assert_allclose(model.transform(e.X, sensitive_features=["c"] * len(e.X)), unit(e.X), atol=1e-12)


def changed(s, row, value):
    s = s.astype(object)
    s[row] = value
    return s


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (lambda s: changed(s, 7, None), LabelError, "'s' is missing in 1 of 240 rows, first in row 7: drop"),
        (
            lambda s: changed(s, 5, "z"),
            LabelError,
            r"has the value 'z' in row 5.* values are \['b', 'c', 'a'\]",
        ),
        (
            lambda s: s[1:],
            ShapeError,
            "X has 240 rows but sensitive_features has 239: give one value per row",
        ),
        (lambda s: {"sex": s}, LabelError, r"the attributes of the fit, \['s'\]; got \['sex'\]"),
        (lambda s: np.column_stack([s, s]), LabelError, r"got \['s0', 's1'\]"),
        (lambda s: SoftValues(np.full((len(s), 3), 1 / 3), NAMES), LabelError, "one value per row; got prob"),
    ],
)
@pytest.mark.parametrize("method", ["transform", "predict"])
def test_wrong_values_are_named(fitted, method, given, error, words):
    model, _, new = fitted
    with pytest.raises(error, match=words):
        getattr(model, method)(new.X, sensitive_features=given(NAMES[new.s]))


def test_all_attributes_are_given_with_as_many_rows(embeddings):
    model, e, given, _ = two_attributes(embeddings)
    with pytest.raises(LabelError, match=re.escape("the attributes of the fit, ['sex', 'age']; got ['sex']")):
        model.predict(e.X, sensitive_features={"sex": given["sex"]})
    with pytest.raises(ShapeError, match="the same number of rows; got {'sex': 240, 'age': 239}"):
        model.predict(e.X, sensitive_features={**given, "age": given["age"][1:]})


def test_a_saved_model_takes_true_values(embeddings, tmp_path):
    model, e, given, _ = two_attributes(embeddings)
    back = load(model.save(tmp_path / "model"))
    assert back.sensitive_values_ == {"sex": ("f", "m"), "age": (20, 40, 60)}
    assert_array_equal(
        back.scores(e.X, sensitive_features=given), model.scores(e.X, sensitive_features=given)
    )
    assert_array_equal(back.scores(e.X), model.scores(e.X))


def test_a_file_without_names_reads_values_as_it_did(fitted, tmp_path):
    model, _, new = fitted
    folder = model.save(tmp_path / "model")
    manifest = json.loads((folder / "fairerclip.json").read_text())
    state = {name: value for name, value in manifest["state"].items() if name != "sensitive_values"}
    (folder / "fairerclip.json").write_bytes(canonical({**manifest, "state": state}))
    back = load(folder)
    assert_array_equal(back.scores(new.X), model.scores(new.X))
    with pytest.raises(LabelError, match="file of an earlier version"):
        back.predict(new.X, sensitive_features=NAMES[new.s])
    assert_array_equal(load(back.save(tmp_path / "again")).scores(new.X), back.scores(new.X))


@pytest.mark.parametrize(
    "values",
    [
        None,
        [],
        [{"name": "s", "values": ["a", "b"]}],
        [{"name": "s", "values": ["a", "b", "b"]}],
        [{"name": 1, "values": ["a", "b", "c"]}],
        [{"name": "s", "values": ["a", "b", "c"], "more": 1}],
    ],
)
def test_impossible_names_of_values_are_refused(fitted, tmp_path, values):
    folder = fitted[0].save(tmp_path / "model")
    forge(folder, state={"sensitive_values": values})
    with pytest.raises(ModelFileError, match="do not name the values"):
        load(folder)


def test_the_worst_group_is_better_where_zero_shot_follows_s():
    X, y, s, text = spurious(0, n=400, correlation=0.0)
    values = np.array([X[s == v].mean(axis=0) for v in range(2)])
    fit, test = slice(200), slice(200, 400)
    model = TIE().fit(
        X[fit], text=text, sensitive_features=s[fit], sensitive_text=values - values.mean(axis=0)
    )
    before = group_report(y[test], ZeroShot().fit(X[fit], text=text).predict(X[test]), s[test])
    after = group_report(y[test], model.predict(X[test], sensitive_features=s[test]), s[test])
    assert after.worst.accuracy > before.worst.accuracy + 0.2
    assert after.average > before.average + 0.05
