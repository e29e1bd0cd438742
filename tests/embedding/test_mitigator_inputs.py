"""EmbeddingMitigator: sensitive values of any kind, and inputs that are wrong, degenerate or missing."""

import numpy as np
import pytest
from gallery import Gallery
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip import EmbeddingMitigator
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import (
    ConstantSensitiveWarning,
    LabelError,
    ManyCategoriesWarning,
    NoSensitiveWarning,
    PromptError,
    PromptOrderWarning,
    ShapeError,
    ZeroRowError,
    ZeroRowWarning,
)
from fairerclip.inputs.sensitive_columns import SoftValues


@pytest.fixture(scope="module")
def g():
    return Gallery(v=3, n=200)


def fitted(g, **given):
    return EmbeddingMitigator(missing_label=given.pop("missing_label", None)).fit(g.X, **given)


FORMS = {
    "list": lambda g: (g.named.tolist(), g.text),
    "column": lambda g: (g.named[:, None], g.text),
    "numbers": lambda g: (g.s, g.prompts),
    "floats": lambda g: (g.s.astype(float), list(g.prompts)),
    "soft": lambda g: (SoftValues(np.eye(3)[g.s][:, ::-1], g.names[::-1]), g.text),
    "another order": lambda g: (g.named, dict(reversed(g.text.items()))),
    "attribute and values": lambda g: ({"place": g.named}, {"place": g.text}),
    "several prompts": lambda g: (g.named, {n: np.stack([p, 2 * p]) for n, p in g.text.items()}),
    "frame": lambda g: (pytest.importorskip("pandas").DataFrame({"s": g.named}), g.text),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_values_and_prompts_in_another_form_give_the_same_map(g, form):
    expected = fitted(g, sensitive_features=g.named, sensitive_text=g.text)
    values, text = FORMS[form](g)
    found = fitted(g, sensitive_features=values, sensitive_text=text)
    assert_allclose(found.transform(g.X), expected.transform(g.X), atol=1e-9)


@pytest.mark.parametrize("form", ["none", "nan", "label"])
def test_missing_values_are_read_however_they_are_marked(g, form):
    known = np.arange(len(g.X)) % 4 > 0
    if form == "nan":
        values, text = np.where(known, g.s, np.nan), g.prompts
    else:
        values, text = g.named.astype(object), g.text
        values[~known] = None if form == "none" else "?"
    found = fitted(
        g, sensitive_features=values, sensitive_text=text, missing_label="?" if form == "label" else None
    )
    other = fitted(g, labelled=(g.X[known], g.s[known]), sensitive_text=g.prompts)
    record = found.diagnostics_["attributes"]["s"]
    assert (record["reader"], record["labelled_rows"]) == ("prompts and labelled rows", known.sum())
    # The labelled rows are the same ones; the map differs only because it knows them to be certain.
    reader, same = (m.fitted_.attributes[0].reader for m in (found, other))
    assert_allclose(reader.weights, same.weights, atol=1e-6)


# Nothing to do --------------------------------------------------------------------------------------


def test_nothing_given_is_told_and_changes_nothing(g):
    with pytest.warns(NoSensitiveWarning) as told:
        fairer = EmbeddingMitigator().fit(g.X)
    assert told[0].filename == __file__
    for same in (fairer, fairer.at(0.5)):
        assert_array_equal(same.transform(g.X), unit_rows(g.X))
    assert fairer.query_meaning(g.Q).mitigated.all()
    assert fairer.drift(g.X).shares == {}


@pytest.mark.parametrize("soft", [False, True])
def test_a_constant_attribute_is_told_and_left_out(g, soft):
    constant = SoftValues(np.tile([0.3, 0.7], (len(g.X), 1)), ["a", "b"]) if soft else ["a"] * len(g.X)
    with pytest.warns(ConstantSensitiveWarning, match="'b'"):
        fairer = fitted(g, sensitive_features={"a": g.s, "b": constant})
    assert_array_equal(fairer.transform(g.X), fitted(g, sensitive_features={"a": g.s}).transform(g.X))


def test_few_and_repeated_rows_and_constant_columns(g):
    with pytest.warns(ConstantSensitiveWarning):
        one = EmbeddingMitigator().fit(g.X[:1], sensitive_features=[1])
    assert_array_equal(one.transform(g.X), unit_rows(g.X))
    one = EmbeddingMitigator().fit(g.X[:1], sensitive_text=g.text)
    assert_allclose(one.transform(g.X[:1]), g.X[:1], atol=1e-12)
    Z = EmbeddingMitigator(1).fit(g.X[:2], sensitive_features=[0, 1]).transform(g.X[:2])
    assert_allclose(Z[0], Z[1], atol=1e-10)
    X = np.column_stack([np.repeat(g.X[:20], 3, axis=0), np.full(60, 0.1), np.zeros(60)])
    many = EmbeddingMitigator(1).fit(X, sensitive_features=np.repeat(g.s[:20], 3))
    assert many.diagnostics_["remaining"]["s"] < 1e-12
    assert np.isfinite(many.transform(X)).all()
    assert_allclose(many.transform(X)[:, -1], 0, atol=1e-15)


# Errors ---------------------------------------------------------------------------------------------


WRONG = {
    "no known value": (LabelError, lambda g: {"sensitive_features": [None] * len(g.X)}),
    "one known value": (
        LabelError,
        lambda g: {"sensitive_features": np.where(np.arange(len(g.X)) < 9, "value 1", None)},
    ),
    "a value without a prompt": (
        PromptError,
        lambda g: {"sensitive_features": g.named, "sensitive_text": dict(list(g.text.items())[:2])},
    ),
    "prompts of unknown values": (
        PromptError,
        lambda g: {"sensitive_features": g.named, "sensitive_text": g.prompts},
    ),
    "prompts of another attribute": (
        PromptError,
        lambda g: {"sensitive_features": {"sex": g.named}, "sensitive_text": {"age": g.text}},
    ),
    "a quantity among few rows": (LabelError, lambda g: {"labelled": (g.X, {"age": g.X[:, 0]})}),
    "labelled is no pair": (ShapeError, lambda g: {"labelled": np.eye(10)}),
    "labelled of another width": (ShapeError, lambda g: {"labelled": (np.eye(4), [0, 1, 0, 1])}),
    "prompts of another width": (ShapeError, lambda g: {"sensitive_text": np.eye(4)}),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_and_prompts_are_refused(g, case):
    error, given = WRONG[case]
    with pytest.raises(error):
        fitted(g, **given(g))


def test_swapped_prompts_and_many_values_are_told_where_the_fit_is_called(g):
    text = dict(zip((1, 2, 0), g.prompts, strict=True))
    with pytest.warns(PromptOrderWarning) as told:
        EmbeddingMitigator().fit(g.X, labelled=(g.X, g.s), sensitive_text=text)
    assert told[0].filename == __file__
    with pytest.warns(ManyCategoriesWarning, match="60") as told:
        EmbeddingMitigator().fit(g.X, sensitive_features=np.arange(len(g.X)) % 60)
    assert told[0].filename == __file__


def test_rows_of_one_column_have_no_direction(g):
    with pytest.raises(ShapeError):
        EmbeddingMitigator().fit(g.X[:, :1], sensitive_features=g.s)


def test_zero_rows_are_told_by_number_where_the_call_is(g):
    fairer, X = fitted(g, sensitive_features=g.s), g.X.copy()
    X[5] = 0
    for given in ({"sensitive_features": g.s}, {"labelled": (g.X, g.s)}):
        with pytest.raises(ZeroRowError, match="row 5"):
            EmbeddingMitigator().fit(X, **given)
    calls = (fairer.transform, fairer.drift, lambda X: fairer.path(X, g.Q, g.s, strengths=[0.5], k=9))
    for call in (*calls, lambda X: fairer.scores(X, g.Q)):
        with pytest.warns(ZeroRowWarning, match="row 5") as told:
            call(X)
        assert {warning.filename for warning in told} == {__file__}
