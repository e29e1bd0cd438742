"""TIE*: rows move against the prompt of the value that is read from them, by the mean cosine of its training rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fairerclip.baselines import TIE, ZeroShot
from fairerclip.errors import ConstantSensitiveWarning, VanishedLabelWarning


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def literal(X, fitted_on, s, weight, attributes, scale):
    """Row after row and attribute after attribute; ``s`` has a column of codes per attribute, or None to read them."""
    moved = []
    for x in unit(X):
        new = x.copy()
        for a, values in enumerate(attributes):
            u = unit(values)
            own = (unit(fitted_on) @ u.T).argmax(axis=1) if s is None else s[a]
            value = max(range(len(u)), key=lambda v: x @ u[v])
            rows = unit(fitted_on)[own == value]
            if len(rows):
                new = new - scale * np.average(rows @ u[value], weights=weight[own == value]) * u[value]
        moved.append(new)
    return np.array(moved)


@pytest.mark.parametrize("scale", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("n_sensitive", [2, 4])
def test_it_is_the_published_translation(embeddings, scale, n_sensitive):
    e = embeddings(seed=1, n_classes=3, n_sensitive=n_sensitive)
    weight = np.random.default_rng(1).uniform(0.1, 2, size=len(e.X))
    model = TIE(scale).fit(3 * e.X, text=e.text, sensitive_text=2 * e.sensitive_text, sample_weight=weight)
    new = embeddings(seed=2, n_classes=3, n_sensitive=n_sensitive).X
    expected = literal(new, e.X, None, weight, [e.sensitive_text], scale)
    assert_allclose(model.transform(new), expected, atol=1e-12)
    assert_allclose(model.scores(new), unit(expected) @ unit(e.text).T, atol=1e-12)
    assert model.diagnostics_["sensitive"] == "predicted"
    if scale == 0:
        assert_allclose(model.scores(new), ZeroShot().fit(e.X, text=e.text).scores(new), atol=1e-12)


def test_lengths_are_those_of_true_values_where_they_are_given(embeddings):
    e = embeddings(seed=3, n_sensitive=3)
    names = np.array(["b", "c", "a"])  # the order of the prompts is not that of the sorted names
    text = dict(zip(names, e.sensitive_text, strict=True))
    model = TIE().fit(e.X, text=e.text, sensitive_features=names[e.s], sensitive_text=text)
    for v in range(3):
        mean = np.mean(unit(e.X[e.s == v]) @ unit(e.sensitive_text[v]))
        assert model.shifts_[v] == pytest.approx(mean)
    assert model.diagnostics_["sensitive"] == "true"
    guessed = TIE().fit(e.X, text=e.text, sensitive_text=text)
    assert np.abs(guessed.shifts_ - model.shifts_).max() > 1e-4


def test_several_attributes_add_up_and_their_order_has_no_effect(embeddings):
    e, rng = embeddings(seed=4), np.random.default_rng(4)
    sex, age = e.sensitive_text, unit(rng.normal(size=(3, 12)))
    codes = (e.X @ age.T).argmax(axis=1)
    given = {"sex": np.array(["f", "m"])[e.s], "age": np.array(["x", "y", "z"])[codes]}
    text = {"sex": dict(zip("fm", sex, strict=True)), "age": dict(zip("xyz", age, strict=True))}
    model = TIE().fit(e.X, text=e.text, sensitive_features=given, sensitive_text=text)
    expected = literal(e.X, e.X, [e.s, codes], np.ones(len(e.X)), [sex, age], 1.0)
    assert_allclose(model.transform(e.X), expected, atol=1e-12)
    turned = {name: text[name] for name in ("age", "sex")}
    other = TIE().fit(e.X, text=e.text, sensitive_features=given, sensitive_text=turned)
    assert_allclose(other.transform(e.X), expected, atol=1e-12)
    assert model.attribute_.tolist() == [0, 0, 1, 1, 1]


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
