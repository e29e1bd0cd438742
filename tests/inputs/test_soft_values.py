"""Sensitive attributes that are known with doubt: probabilities in place of values."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.errors import ConstantSensitiveWarning, LabelError, ShapeError
from fairerclip.inputs.sensitive_columns import SoftValues, encode_groups, sensitive_columns
from fairerclip.metrics import dep
from small_models import small


def scores(e, s, **parameters):
    return small(**parameters).fit(e.X, e.y, sensitive_features=s, text=e.text).scores(e.X)


def certain(codes, n_values=None, values=None):
    """Probabilities of 0 and 1."""
    P = np.eye(n_values or codes.max() + 1)[codes]
    return SoftValues(P, np.arange(P.shape[1]) if values is None else values)


def doubtful(codes, doubt, seed=8):
    """The true value gets the most, the others the rest."""
    v = codes.max() + 1
    P = np.full((len(codes), v), 1.0) * (
        doubt * np.random.default_rng(seed).uniform(size=(len(codes), 1)) / v
    )
    P[np.arange(len(codes)), codes] += 1 - P.sum(axis=1)
    return P


# What it takes --------------------------------------------------------------------------------------


def test_codes_are_the_likeliest_values():
    soft = SoftValues([[0.2, 0.5, 0.3], [0.4, 0.3, 0.3]], ["a", "b", "c"])
    assert_array_equal(soft.codes, [1, 0])
    column = soft.column("sex")
    assert column.name == "sex"
    assert not column.continuous
    assert_array_equal(column.categories, ["a", "b", "c"])
    assert_array_equal(column.soft, [[0.2, 0.5, 0.3], [0.4, 0.3, 0.3]])


@pytest.mark.parametrize(
    ("probabilities", "values", "message"),
    [
        ([0.5, 0.5], ["a", "b"], r"shape \(n, v\)"),
        ([[0.5, 0.5]], ["a", "b", "c"], r"one column per value; got \(1, 2\) for 3"),
        ([[0.5, 0.5]], [["a", "b"]], r"shape \(n, v\)"),
        ([[0.5, 0.6]], ["a", "b"], "sum to one"),
        ([[1.5, -0.5]], ["a", "b"], "nowhere negative"),
        ([[np.nan, 0.5]], ["a", "b"], "finite"),
        ([[np.inf, 0.5]], ["a", "b"], "finite"),
        ([["much", "little"]], ["a", "b"], "of numbers"),
        ([[0.5, 0.5], [1.0]], ["a", "b"], "of numbers"),
        (np.zeros((3, 0)), [], "sum to one"),
    ],
)
def test_probabilities_that_cannot_be_are_named(probabilities, values, message):
    with pytest.raises(LabelError, match=message):
        SoftValues(probabilities, values)


def test_rounding_of_float32_still_sums_to_one():
    P = np.random.default_rng(0).dirichlet(np.ones(7), size=200).astype(np.float32)
    assert SoftValues(P, np.arange(7)).probabilities.dtype == np.float64


def test_as_many_rows_as_embeddings(embeddings):
    e = embeddings()
    with pytest.raises(ShapeError, match="X has 240 rows but sensitive attribute 's' has 239"):
        scores(e, certain(e.s[1:]))


# What a fit makes of it -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_sensitive", [2, 3])
@pytest.mark.parametrize("criterion", ["marginal", "conditional"])
@pytest.mark.parametrize("class_weight", ["balanced", "group"])
def test_certain_probabilities_are_known_values(embeddings, n_sensitive, criterion, class_weight):
    e = embeddings(n_sensitive=n_sensitive)
    parameters = {"criterion": criterion, "class_weight": class_weight}
    assert_allclose(scores(e, certain(e.s), **parameters), scores(e, e.s, **parameters), atol=1e-10)


def test_what_the_values_are_called_does_not_matter(embeddings):
    e = embeddings()
    P = doubtful(e.s, 0.6)
    assert_array_equal(scores(e, SoftValues(P, ["x", "y"])), scores(e, SoftValues(P, [1, 0])))


def test_a_doubtful_attribute_is_a_term_of_its_probabilities(embeddings):
    e = embeddings(n=300)
    P = doubtful(e.s, 0.9)
    m = small(class_weight=None).fit(e.X, e.y, sensitive_features=SoftValues(P, [0, 1]), text=e.text)
    term = next(t for t in m.state.prepared.problem.sides(e.y).image.sensitive_terms("marginal"))
    Phi = m.features_.transform(e.X)
    M = (Phi - Phi.mean(axis=0)).T @ (P - P.mean(axis=0)) / 300
    assert term.norm == pytest.approx(np.linalg.norm(M, 2) ** 2, rel=1e-8)
    assert not np.allclose(m.scores(e.X), scores(e, e.s, class_weight=None), atol=1e-4)


def test_dependence_falls_although_values_are_in_doubt(embeddings):
    e = embeddings(n=600)
    soft = SoftValues(doubtful(e.s, 0.5), [0, 1])
    Z = [
        small(tau=tau).fit(e.X, e.y, sensitive_features=soft, text=e.text).transform(e.X)
        for tau in (0.0, 0.9)
    ]
    before, after = (dep(z / z.std(), e.s) for z in Z)
    assert after < 0.3 * before


def test_several_attributes_some_of_them_in_doubt(embeddings):
    e = embeddings()
    rng = np.random.default_rng(21)
    race = rng.integers(3, size=len(e.y))
    known = scores(e, {"sex": e.s, "race": race})
    assert_allclose(scores(e, {"sex": certain(e.s), "race": race}), known, atol=1e-10)
    assert_allclose(scores(e, {"sex": e.s, "race": certain(race)}), known, atol=1e-10)
    assert_allclose(scores(e, {"sex": certain(e.s), "race": certain(race)}), known, atol=1e-10)
    columns = sensitive_columns({"race": race, "sex": certain(e.s), "age": e.X[:, 0]})
    assert [c.name for c in columns] == ["race", "sex", "age"]
    assert [c.soft is not None for c in columns] == [False, True, False]
    assert [c.continuous for c in columns] == [False, False, True]


def test_an_intersection_needs_certainty(embeddings):
    e = embeddings()
    other = np.random.default_rng(21).integers(2, size=len(e.y))
    with pytest.raises(LabelError, match=r"\['sex'\] are probabilities"):
        scores(e, {"sex": certain(e.s), "race": other}, sensitive_terms="intersection")
    alone = scores(e, certain(e.s), sensitive_terms="intersection")  # one attribute has nothing to cross
    assert_array_equal(alone, scores(e, certain(e.s)))


def test_probabilities_that_never_vary_are_a_constant_attribute(embeddings):
    e = embeddings()
    with pytest.warns(ConstantSensitiveWarning, match="'s' has one value only"):
        scores(e, SoftValues(np.full((240, 2), 0.5), [0, 1]))
    # One value is the likeliest everywhere, and yet rows differ.
    leaning = 0.6 + 0.3 * e.s
    varied = scores(e, SoftValues(np.column_stack([leaning, 1 - leaning]), [0, 1]))
    assert np.isfinite(varied).all()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_value_that_no_row_may_have_is_not_a_constant_attribute(embeddings, place):
    e = embeddings()
    codes = np.array([k for k in range(3) if k != place])[e.s]
    assert_allclose(scores(e, certain(codes, 3)), scores(e, e.s), atol=1e-10)


def test_groups_of_doubtful_values_are_the_likeliest():
    encoded = encode_groups(SoftValues([[0.9, 0.1], [0.2, 0.8]], ["f", "m"]), None)
    assert encoded.classes[encoded.codes].tolist() == ["f", "m"]


def test_shifts_of_a_doubtful_attribute_fit_its_values(embeddings):
    e = embeddings()
    P = doubtful(e.s, 0.5)
    plain = small().fit(e.X, e.y, sensitive_features=SoftValues(P, [0, 1]), text=e.text)
    shifted = plain.at(sensitive_shifts=[[0.3, 0.0], [0.0, 0.3]])
    assert not np.allclose(plain.scores(e.X), shifted.scores(e.X), atol=1e-3)
