"""TIE: rows move against the prompt of their value, which is given with the rows to predict, or read (TIE*)."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip import load
from fairerclip.baselines import TIE, ZeroShot
from fairerclip.data.row_pass import BLOCK_ROWS
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import (
    ConstantSensitiveWarning,
    LabelError,
    ShapeError,
    VanishedLabelWarning,
)

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


def test_rows_of_a_store_get_the_values_of_their_block(fitted):
    model, _, new = fitted
    X, s = np.tile(new.X.astype(np.float32), (90, 1)), np.tile(NAMES[new.s], 90)
    assert len(X) > 2 * BLOCK_ROWS
    expected = np.tile(model.scores(X[: len(new.X)], sensitive_features=s[: len(new.X)]), (90, 1))
    scores = model.scores(EmbeddingStore.from_array(X), sensitive_features=s)
    assert_allclose(scores, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (lambda s: np.where(np.arange(len(s)) == 7, None, s.astype(object)), LabelError),
        (lambda s: s[1:], ShapeError),
    ],
    ids=["unknown", "too few"],
)
def test_wrong_values_are_refused(fitted, given, error):
    model, _, new = fitted
    with pytest.raises(error):
        model.predict(new.X, sensitive_features=given(NAMES[new.s]))


def test_several_attributes_add_up_in_any_order_also_after_saving(embeddings, tmp_path):
    model, e, given, text = two_attributes(embeddings)
    expected = -unit(e.X)  # each attribute adds its own translation of the row: x + Σ (x'_a − x)
    for name, prompts in text.items():
        values = np.array(list(prompts)).tolist()
        codes = np.array([values.index(value) for value in given[name].tolist()])
        expected = expected + literal(e.X, codes, e.X, codes, np.array(list(prompts.values())), 1.0)
    back = load(model.save(tmp_path / "model"))
    pd = pytest.importorskip("pandas")
    for frame in (given, pd.DataFrame(given)[["age", "sex"]]):
        assert_allclose(model.transform(e.X, sensitive_features=frame), expected, atol=1e-12)
        assert_allclose(back.transform(e.X, sensitive_features=frame), expected, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 2.5])
def test_values_are_read_from_rows_and_their_lengths_are_weighted_means(embeddings, scale):
    e = embeddings(seed=1, n_classes=3, n_sensitive=4)
    weight = np.random.default_rng(1).uniform(0.1, 2, size=len(e.X))
    model = TIE(scale).fit(3 * e.X, text=e.text, sensitive_text=2 * e.sensitive_text, sample_weight=weight)
    new, u = unit(embeddings(seed=2, n_classes=3, n_sensitive=4).X), unit(e.sensitive_text)
    own, moved = (unit(e.X) @ u.T).argmax(axis=1), []
    for x in new:
        v = (u @ x).argmax()
        moved.append(x - scale * np.average(unit(e.X)[own == v] @ u[v], weights=weight[own == v]) * u[v])
    assert_allclose(model.transform(new), moved, atol=1e-12)
    assert_allclose(model.scores(new), unit(np.array(moved)) @ unit(e.text).T, atol=1e-12)
    if scale == 0:
        assert_allclose(model.scores(new), ZeroShot().fit(e.X, text=e.text).scores(new), atol=1e-12)


def test_values_without_rows_and_constant_values_move_nothing(embeddings):
    e = embeddings(seed=6, n_sensitive=3)
    read = (e.X @ e.sensitive_text.T).argmax(axis=1)
    with pytest.warns(VanishedLabelWarning):
        model = TIE().fit(e.X[read != 2], text=e.text, sensitive_text=e.sensitive_text)
    assert model.shifts_[2] == 0
    assert_allclose(model.transform(e.X[read == 2]), unit(e.X[read == 2]), atol=1e-12)
    with pytest.warns(ConstantSensitiveWarning):
        model = TIE().fit(e.X[read == 1], text=e.text, sensitive_text=e.sensitive_text)
    assert not model.shifts_.any()
