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
    NonFiniteError,
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


@pytest.fixture(scope="module")
def expected(g):
    return EmbeddingMitigator().fit(g.X, sensitive_features=g.named, sensitive_text=g.text).transform(g.X)


def fitted(g, **given):
    return EmbeddingMitigator(missing_label=given.pop("missing_label", None)).fit(g.X, **given)


# Forms of the same values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        "strings",
        "list",
        "objects",
        "column",
        "numbers",
        "floats",
        "mapping",
        "soft",
        "soft-reversed",
        "frame",
    ],
)
def test_the_same_values_in_another_form_give_the_same_map(g, expected, form):
    text = g.text if form not in ("numbers", "floats") else g.prompts
    values = {
        "strings": g.named,
        "list": g.named.tolist(),
        "objects": g.named.astype(object),
        "column": g.named[:, None],
        "numbers": g.s,
        "floats": g.s.astype(float),
        "mapping": {"s": g.named},
        "soft": SoftValues(np.eye(3)[g.s], g.names),
        "soft-reversed": SoftValues(np.eye(3)[g.s][:, ::-1], g.names[::-1]),
    }
    if form == "frame":
        values["frame"] = pytest.importorskip("pandas").DataFrame({"s": g.named})
    found = fitted(g, sensitive_features=values[form], sensitive_text=text)
    assert_allclose(found.transform(g.X), expected, atol=1e-9)


@pytest.mark.parametrize(
    "form", ["array", "lists", "values in another order", "attribute and values", "several each"]
)
def test_the_same_prompts_in_another_form_give_the_same_map(g, expected, form):
    several = {name: np.stack([prompt, 2 * prompt]) for name, prompt in g.text.items()}
    forms = {
        "array": (g.s, g.prompts),
        "lists": (g.s, list(g.prompts)),
        "values in another order": (g.named, dict(reversed(g.text.items()))),
        "attribute and values": ({"place": g.named}, {"place": g.text}),
        "several each": (g.named, several),
    }
    values, text = forms[form]
    found = fitted(g, sensitive_features=values, sensitive_text=text)
    assert_allclose(found.transform(g.X), expected, atol=1e-4 if form == "values in another order" else 1e-9)
    assert found.fitted_.attributes[0].values.tolist()[0] in ("value 0", "value 2", 0)


@pytest.mark.parametrize("form", ["none", "nan", "label"])
def test_missing_values_are_read_however_they_are_marked(g, form):
    known = np.arange(len(g.X)) % 4 > 0
    if form == "nan":
        values, text = np.where(known, g.s, np.nan), g.prompts
    else:
        values, text = g.named.astype(object), g.text
        values[~known] = None if form == "none" else "?"
    missing = "?" if form == "label" else None
    found = fitted(g, sensitive_features=values, sensitive_text=text, missing_label=missing)
    other = fitted(g, labelled=(g.X[known], g.s[known]), sensitive_text=g.prompts)
    assert found.diagnostics_["attributes"]["s"]["reader"] == "prompts and labelled rows"
    assert found.diagnostics_["attributes"]["s"]["labelled_rows"] == known.sum()
    # The labelled rows are the same ones; the map differs only because it knows them to be certain.
    reader, same = (m.fitted_.attributes[0].reader for m in (found, other))
    assert_allclose(reader.weights, same.weights, atol=1e-6)


def test_labelled_rows_may_lie_elsewhere_and_be_soft_or_named(g):
    few = Gallery(v=3, n=60, seed=5)
    a = fitted(g, labelled=(few.X, few.named))
    b = fitted(g, labelled=[few.X.tolist(), SoftValues(np.eye(3)[few.s][:, [2, 0, 1]], few.names[[2, 0, 1]])])
    assert_allclose(a.transform(g.X), b.transform(g.X), atol=1e-6)
    assert a.diagnostics_["attributes"]["s"]["reader"] == "labelled rows"
    both = fitted(
        g,
        sensitive_features={"a": g.named},
        labelled=(few.X, {"b": few.s % 2}),
        sensitive_text={"a": g.text},
    )
    assert [attribute.name for attribute in both.fitted_.attributes] == ["a", "b"]


def test_soft_values_of_fewer_values_than_prompts_are_put_in_their_place(g):
    two = np.eye(2)[(g.s > 0).astype(int)]
    names = {"value 0": g.prompts[0], "value 1": g.prompts[1], "none": g.prompts[2]}
    soft = fitted(
        g, sensitive_features=SoftValues(two[:, ::-1], ["value 1", "value 0"]), sensitive_text=names
    )
    hard = fitted(g, sensitive_features=np.where(g.s > 0, "value 1", "value 0"), sensitive_text=names)
    assert_allclose(soft.transform(g.X), hard.transform(g.X), atol=1e-9)


def test_mixed_types_and_unseen_order_of_values_without_prompts(g):
    mixed = np.array(["a", 1, 2.5], dtype=object)[g.s]
    found = EmbeddingMitigator(1).fit(g.X, sensitive_features=mixed)
    assert set(found.fitted_.attributes[0].values.tolist()) == {"a", 1, 2.5}
    assert found.diagnostics_["remaining"]["s"] < 1e-12


def test_prompts_alone_are_enough(g):
    by_value = EmbeddingMitigator(1).fit(g.X, sensitive_text=g.text)
    by_place = EmbeddingMitigator(1).fit(g.X, sensitive_text=g.prompts)
    assert_allclose(by_value.transform(g.X), by_place.transform(g.X), atol=1e-12)
    assert by_value.diagnostics_["attributes"] == {"s": {"reader": "prompts"}}
    assert by_value.diagnostics_["remaining"]["s"] < 1e-20


# Nothing to do --------------------------------------------------------------------------------------


def test_nothing_given_is_told_and_changes_nothing(g):
    with pytest.warns(NoSensitiveWarning, match="nothing is mitigated") as told:
        fairer = EmbeddingMitigator().fit(g.X)
    assert told[0].filename == __file__
    assert_array_equal(fairer.transform(g.X), unit_rows(g.X))
    assert fairer.query_meaning(g.Q).mitigated.all()
    assert_array_equal(fairer.at(0.5).transform(g.X), unit_rows(g.X))
    assert fairer.drift(g.X).shares == {}


@pytest.mark.parametrize("soft", [False, True])
def test_a_constant_attribute_is_told_and_left_out(g, soft):
    constant = SoftValues(np.tile([0.3, 0.7], (len(g.X), 1)), ["a", "b"]) if soft else ["a"] * len(g.X)
    with pytest.warns(ConstantSensitiveWarning, match="'b' has one value only"):
        fairer = fitted(g, sensitive_features={"a": g.s, "b": constant})
    alone = fitted(g, sensitive_features={"a": g.s})
    assert_array_equal(fairer.transform(g.X), alone.transform(g.X))


def test_one_row_has_one_group(g):
    with pytest.warns(ConstantSensitiveWarning) as told:
        fairer = EmbeddingMitigator().fit(g.X[:1], sensitive_features=[1])
    assert told[0].filename == __file__
    assert_array_equal(fairer.transform(g.X), unit_rows(g.X))


def test_one_row_with_prompts_changes_nothing_of_it(g):
    fairer = EmbeddingMitigator().fit(g.X[:1], sensitive_text=g.text)
    assert_allclose(fairer.transform(g.X[:1]), g.X[:1], atol=1e-12)


def test_two_rows_of_two_groups(g):
    fairer = EmbeddingMitigator(1).fit(g.X[:2], sensitive_features=[0, 1])
    Z = fairer.transform(g.X[:2])
    assert_allclose(Z[0], Z[1], atol=1e-10)


def test_duplicated_rows_and_constant_columns(g):
    X = np.column_stack([np.repeat(g.X[:20], 3, axis=0), np.full(60, 0.1), np.zeros(60)])
    s = np.repeat(g.s[:20], 3)
    fairer = EmbeddingMitigator(1).fit(X, sensitive_features=s)
    assert np.isfinite(fairer.transform(X)).all()
    assert fairer.diagnostics_["remaining"]["s"] < 1e-12
    assert_allclose(fairer.transform(X)[:, -1], 0, atol=1e-15)


# Errors ---------------------------------------------------------------------------------------------


def test_all_values_missing_without_prompts_is_an_error_and_with_prompts_is_not(g):
    unknown = [None] * len(g.X)
    with pytest.raises(LabelError, match="cannot be read: give its prompts"):
        fitted(g, sensitive_features=unknown)
    found = fitted(g, sensitive_features=unknown, sensitive_text={"s": g.text})
    assert_allclose(found.transform(g.X), fitted(g, sensitive_text=g.text).transform(g.X), atol=1e-12)
    partly = np.where(np.arange(len(g.X)) < 9, "value 1", None)
    with pytest.raises(LabelError, match="cannot be read"):
        fitted(g, sensitive_features=partly)  # one value only


def test_a_value_without_a_prompt_is_an_error(g):
    text = {name: g.text[name] for name in ("value 0", "value 1")}
    with pytest.raises(PromptError, match="'value 2'"):
        fitted(g, sensitive_features={"a": g.named}, sensitive_text={"a": text})
    with pytest.raises(PromptError, match="'value 2'"):
        fitted(g, labelled=(g.X, {"a": g.named}), sensitive_text={"a": text})
    with pytest.raises(PromptError, match="it is unknown which prompt belongs to which value"):
        fitted(g, sensitive_features=g.named, sensitive_text=g.prompts)


def test_prompts_of_an_unknown_attribute_are_an_error(g):
    with pytest.raises(PromptError, match=r"sensitive_text names \['age'\]"):
        fitted(g, sensitive_features={"sex": g.named}, sensitive_text={"age": g.text})


def test_prompts_in_another_order_than_the_labels_are_told(g):
    text = dict(zip((1, 2, 0), g.prompts, strict=True))
    with pytest.warns(PromptOrderWarning, match="contradict its labels") as told:
        EmbeddingMitigator().fit(g.X, labelled=(g.X, g.s), sensitive_text=text)
    assert told[0].filename == __file__


def test_many_values_are_told_where_the_fit_is_called(g):
    many = np.arange(len(g.X)) % 60
    for given in ({"sensitive_features": many}, {"labelled": (g.X, many)}):
        with pytest.warns(ManyCategoriesWarning, match="60 distinct values") as told:
            EmbeddingMitigator().fit(g.X, **given)
        assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sensitive_features": [0, 1]}, "X has 200 rows but sensitive attribute 's' has 2"),
        ({"labelled": np.eye(10)}, r"labelled must be a pair \(X_few, s_few\)"),
        ({"labelled": (np.eye(4), [0, 1, 0, 1])}, r"labelled rows must have shape \(m, 10\)"),
        ({"labelled": (np.empty((0, 10)), [])}, r"labelled rows must have shape \(m, 10\)"),
        ({"labelled": (np.eye(10), [0, 1])}, "labelled X has 10 rows but"),
        ({"sensitive_text": np.eye(4)}, "as wide as X"),
    ],
)
def test_wrong_shapes_are_told(g, given, message):
    with pytest.raises(ShapeError, match=message):
        fitted(g, **given)


def test_a_quantity_among_labelled_rows_is_an_error(g):
    with pytest.raises(LabelError, match="is a quantity, which cannot be read from a few rows"):
        fitted(g, labelled=(g.X, {"age": g.X[:, 0]}))


def test_rows_that_are_not_finite_or_zero_are_told_by_number(g):
    fairer = fitted(g, sensitive_features=g.s)
    for bad in (np.nan, np.inf):
        X = g.X.copy()
        X[3, 2] = bad
        with pytest.raises(NonFiniteError, match="row 3 of 200"):
            fitted(Gallery(v=3, n=200), labelled=(X, g.s))
        for call in (
            lambda X: EmbeddingMitigator().fit(X, sensitive_features=g.s),
            fairer.transform,
            fairer.drift,
        ):
            with pytest.raises(NonFiniteError, match="row 3 of 200"):
                call(X)
    X = g.X.copy()
    X[5] = 0
    with pytest.raises(ZeroRowError, match="row 5"):
        EmbeddingMitigator().fit(X, sensitive_features=g.s)
    with pytest.warns(ZeroRowWarning, match="row 5"):
        assert np.isfinite(fairer.transform(X)).all()
    for call in (fairer.transform, fairer.drift, lambda X: fairer.path(X, g.Q, g.s, strengths=[0.5], k=9)):
        with pytest.warns(ZeroRowWarning, match="row 5") as told:
            call(X)
        assert {warning.filename for warning in told} == {__file__}
    with pytest.warns(ZeroRowWarning, match="row 5") as told:
        scores = fairer.scores(X, g.Q)
    assert told[0].filename == __file__
    with pytest.warns(ZeroRowWarning):
        assert_allclose(scores, fairer.transform(X) @ g.Q.T, atol=1e-12)
    with pytest.raises(ZeroRowError, match="labelled X is zero in row 5"):
        fitted(g, labelled=(X, g.s))


def test_wrong_widths_and_axes_are_told(g):
    fairer = fitted(g, sensitive_features=g.s)
    for call in (
        fairer.transform,
        fairer.drift,
        lambda X: fairer.scores(X, g.Q),
        lambda X: fairer.rank(g.Q[0], X),
    ):
        with pytest.raises(ShapeError, match="9 features"):
            call(g.X[:, :9])
    with pytest.raises(ShapeError, match="one feature|1 feature"):
        EmbeddingMitigator().fit(g.X[:, :1], sensitive_features=g.s)
    with pytest.raises(ShapeError, match="Expected 2D array"):
        EmbeddingMitigator().fit(g.X[0], sensitive_features=[0])
    with pytest.raises(ShapeError, match="0 sample"):
        EmbeddingMitigator().fit(g.X[:0], sensitive_features=[])
