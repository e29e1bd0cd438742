"""How sure a group that is read from prompts is."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.inputs.sensitive import resolve_sensitive
from fairerclip.inputs.sensitive_columns import SoftValues
from fairerclip.inputs.target import resolve_target
from fairerclip.judging.group_doubt import (
    calibrated_probabilities,
    group_probabilities,
    mixture_probabilities,
    prompt_cosines,
)
from sample_rows import Embeddings


def clusters(seed=0, sizes=(300, 200), distance=0.2, noise=0.02):
    """Cosines (n, v) with the prompts of each value, larger for the true one."""
    rng = np.random.default_rng(seed)
    s = np.repeat(np.arange(len(sizes)), sizes)
    v = len(sizes)
    return 0.2 + distance * np.eye(v)[s] + noise * rng.normal(size=(len(s), v)), s


def resolved(e, sensitive_features=None, sensitive_text=None, terms="each"):
    target = resolve_target(e.X, e.y, e.text, np.ones(len(e.y)))
    return resolve_sensitive(
        *(e.X, sensitive_features, sensitive_text, target),
        kind="auto",
        terms=terms,
        missing_label=None,
    )


def test_probabilities_are_calibrated_where_clusters_overlap():
    cosines, s = clusters(sizes=(6000, 3000), distance=0.1, noise=0.08)
    P = mixture_probabilities(cosines)[:, 1]
    hard = (cosines.argmax(axis=1) == s).mean()
    assert 0.75 < hard < 0.9
    for low in (0.1, 0.3, 0.5, 0.7):
        rows = (P > low) & (P < low + 0.2)
        assert s[rows].mean() == pytest.approx(P[rows].mean(), abs=0.08)


def test_what_all_prompts_share_does_not_matter_and_neither_does_the_order():
    cosines, _ = clusters(noise=0.1)
    rng = np.random.default_rng(0)
    P = mixture_probabilities(cosines)
    assert_allclose(mixture_probabilities(cosines + rng.normal(size=(500, 1))), P, atol=1e-9)
    assert_allclose(mixture_probabilities(cosines[:, ::-1])[:, ::-1], P, atol=1e-9)
    order = rng.permutation(500)
    assert_allclose(mixture_probabilities(cosines[order]), P[order], atol=1e-9)
    assert_allclose(mixture_probabilities(3 * cosines), P, atol=1e-9)


def test_a_value_that_no_row_is_near_has_no_probability():
    cosines, _ = clusters(sizes=(100, 100))
    P = mixture_probabilities(np.column_stack([cosines, np.full(200, -0.5)]))
    assert_array_equal(P[:, 2], np.zeros(200))
    assert_allclose(P.sum(axis=1), 1)


def test_rows_without_any_spread_keep_their_zero_shot_value():
    P = mixture_probabilities(np.repeat([[0.3, 0.2], [0.1, 0.4]], 5, axis=0))
    assert_array_equal(P, np.repeat(np.eye(2), 5, axis=0))
    assert_array_equal(mixture_probabilities(np.array([[0.3, 0.2]])), [[1, 0]])


def test_calibrated_probabilities_are_the_shares_of_a_known_confusion():
    # The cosine says a or b, and is right for 9 of 10 rows of a and 6 of 10 rows of b.
    values = np.repeat([0, 1], [1000, 1000])
    says = np.concatenate([np.repeat([0, 1], [900, 100]), np.repeat([0, 1], [400, 600])])
    cosines = 0.2 + 0.1 * np.eye(2)[says]
    P = calibrated_probabilities(np.array([[0.3, 0.2], [0.2, 0.3]]), cosines, values)
    assert_allclose(P[:, 0], [900 / 1300, 100 / 700], atol=0.01)
    assert_allclose(P.sum(axis=1), 1)


def test_a_value_that_no_known_row_has_gets_probability_zero():
    cosines, s = clusters(sizes=(50, 50, 50))
    known = s != 1
    P = calibrated_probabilities(cosines, cosines[known], s[known])
    assert_array_equal(P[:, 1], np.zeros(150))
    assert_allclose(P.sum(axis=1), 1)
    assert np.all(P[known].argmax(axis=1) == s[known])
    alone = calibrated_probabilities(cosines, cosines[s == 2], s[s == 2])
    assert_array_equal(alone, np.tile([0, 0, 1], (150, 1)))


def test_guessed_groups_are_as_sure_as_the_mixture_and_known_ones_stay():
    e = Embeddings(n=300)
    e.X = e.X + 0.3 * np.random.default_rng(0).normal(size=e.X.shape)
    s = np.where(np.arange(300) % 3 > 0, e.s, np.nan)
    rows = np.arange(0, 300, 2)
    sensitive = resolved(e, s, e.sensitive_text)
    P = group_probabilities(e.X, rows, sensitive)
    known = ~np.isnan(s[rows])
    assert_array_equal(P[known], np.eye(2)[e.s[rows][known]])
    expected = mixture_probabilities(prompt_cosines(e.X[rows], [t[None] for t in e.sensitive_text]))
    assert_allclose(P[~known], expected[~known])
    assert np.any((P[~known] > 0.01) & (P[~known] < 0.99))


def test_groups_of_several_attributes_are_combinations():
    e = Embeddings(n=60)
    other = np.arange(60) % 3
    soft = SoftValues(np.random.default_rng(0).dirichlet([1, 1], size=60), ["a", "b"])
    rows = np.arange(10, 30)
    P = group_probabilities(e.X, rows, resolved(e, {"s": e.s, "other": other}))
    assert P.shape == (20, 6)
    assert_array_equal(P.argmax(axis=1), 3 * e.s[rows] + other[rows])
    P = group_probabilities(e.X, rows, resolved(e, {"s": e.s, "soft": soft}))
    for i, row in enumerate(rows):
        expected = np.outer(np.eye(2)[e.s[row]], soft.probabilities[row]).ravel()
        assert_allclose(P[i], expected)


def test_the_combinations_of_guessed_attributes_are_as_sure_as_each_of_them():
    # sensitive_terms="intersection" makes one attribute of all; its guesses are still guesses.
    e = Embeddings(n=300)
    features = {"s": np.where(np.arange(300) % 2, e.s, np.nan), "other": np.arange(300) % 3}
    rows = np.arange(300)
    each = group_probabilities(e.X, rows, resolved(e, features, {"s": e.sensitive_text}))
    joint = group_probabilities(e.X, rows, resolved(e, features, {"s": e.sensitive_text}, "intersection"))
    assert joint.shape == each.shape
    assert_allclose(joint, each, atol=1e-9)
