"""Sensitive attributes that are known with doubt: probabilities in place of values."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.errors import ConstantSensitiveWarning, LabelError
from fairerclip.inputs.sensitive_columns import SoftValues, sensitive_columns
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


@pytest.mark.parametrize(
    ("probabilities", "values"),
    [
        ([[0.5, 0.5]], ["a", "b", "c"]),
        ([[0.5, 0.6]], ["a", "b"]),
        ([[1.5, -0.5]], ["a", "b"]),
        ([[np.nan, 0.5]], ["a", "b"]),
    ],
)
def test_probabilities_that_cannot_be_are_refused(probabilities, values):
    with pytest.raises(LabelError):
        SoftValues(probabilities, values)


# What a fit makes of it -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_sensitive", "criterion", "class_weight"), [(2, "marginal", "group"), (3, "conditional", "balanced")]
)
def test_certain_probabilities_are_known_values(embeddings, n_sensitive, criterion, class_weight):
    e = embeddings(n_sensitive=n_sensitive)
    parameters = {"criterion": criterion, "class_weight": class_weight}
    assert_allclose(scores(e, certain(e.s), **parameters), scores(e, e.s, **parameters), atol=1e-10)


def test_a_doubtful_attribute_is_a_term_of_its_probabilities(embeddings):
    e = embeddings(n=300)
    P = doubtful(e.s, 0.9)
    m = small(class_weight=None).fit(e.X, e.y, sensitive_features=SoftValues(P, [0, 1]), text=e.text)
    term = next(t for t in m.state.prepared.problem.sides(e.y).image.sensitive_terms("marginal"))
    Phi = m.features_.transform(e.X)
    M = (Phi - Phi.mean(axis=0)).T @ (P - P.mean(axis=0)) / 300
    assert term.norm == pytest.approx(np.linalg.norm(M, 2) ** 2, rel=1e-8)
    assert not np.allclose(m.scores(e.X), scores(e, e.s, class_weight=None), atol=1e-4)


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
    with pytest.raises(LabelError):
        scores(e, {"sex": certain(e.s), "race": other}, sensitive_terms="intersection")
    alone = scores(e, certain(e.s), sensitive_terms="intersection")  # one attribute has nothing to cross
    assert_array_equal(alone, scores(e, certain(e.s)))


def test_probabilities_that_never_vary_are_a_constant_attribute(embeddings):
    e = embeddings()
    with pytest.warns(ConstantSensitiveWarning):
        scores(e, SoftValues(np.full((240, 2), 0.5), [0, 1]))
    # One value is the likeliest everywhere, and yet rows differ.
    leaning = 0.6 + 0.3 * e.s
    varied = scores(e, SoftValues(np.column_stack([leaning, 1 - leaning]), [0, 1]))
    assert np.isfinite(varied).all()
