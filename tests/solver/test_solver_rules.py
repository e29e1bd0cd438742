"""Small rules of the solver, each against what it says: thresholds, notes, signs, and classes without rows."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from two_sides import SETTING, Case

from fairerclip.errors import DroppedTermWarning, NoSolutionError, VanishedLabelWarning
from fairerclip.solver import alternation, rows, terms
from fairerclip.solver.alternation import alternate
from fairerclip.solver.decision import fit_temperature
from fairerclip.solver.rows import cache_budget, sums_budget
from fairerclip.solver.terms import Attribute

# A class without rows -------------------------------------------------------------------------------------


@pytest.fixture
def without_last_class(embeddings):
    """Three classes with prompts, of which the last has no row; and one round of the alternation."""
    case = Case(embeddings, c=3)
    y = np.where(case.y == 2, 0, case.y)
    return case, y, alternate(case.problem, y, replace(SETTING, zero="balanced", max_iter=1))


def test_a_class_without_rows_has_no_mean_and_is_no_part_of_the_zero(without_last_class):
    _, _, found = without_last_class
    means, vectors = found.last.image.class_means, found.last.text_vectors
    assert_array_equal(means[2], 0.0)
    assert_allclose(found.last.decision.zero, means[:2].mean(axis=0))
    assert_allclose(found.last.text_zero, vectors[:2].mean(axis=0))


def test_a_class_that_never_had_rows_has_not_vanished(without_last_class):
    _, _, found = without_last_class
    assert [kind for kind, _ in found.notes if kind is VanishedLabelWarning] == []


# Signs and zeros ------------------------------------------------------------------------------------------


def test_the_last_class_with_rows_lies_on_the_positive_side(embeddings, without_last_class):
    for seed in range(4):
        case = Case(embeddings, c=3, seed=seed)
        last = alternate(case.problem, case.y, replace(SETTING, n_components=2)).last
        assert np.all(last.image.class_means[2] > 0)
        assert np.all(last.text.class_means[2] > 0)
    _, _, found = without_last_class
    assert np.all(found.last.image.class_means[1] > 0)


@pytest.mark.parametrize("kind", ["none", "mean", "balanced"])
def test_the_zero_is_where_its_name_says(embeddings, kind):
    case = Case(embeddings, c=3, prompts_per_class=2)
    last = alternate(case.problem, case.y, replace(SETTING, n_components=2, zero=kind)).last
    encoders = last.encoders()
    if kind == "none":  # Z = Φ U on both sides
        assert_allclose(encoders.offset, 0.0, atol=1e-12)
        assert_allclose(encoders.text_mean @ encoders.text_components, encoders.text_intercept)
    elif kind == "mean":
        assert_array_equal(encoders.intercept, 0.0)
        assert_array_equal(encoders.text_intercept, 0.0)
    else:
        assert_allclose((last.image.class_means + encoders.intercept).mean(axis=0), 0.0, atol=1e-12)
        assert_allclose((last.text_vectors + encoders.text_intercept).mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(encoders.decision.zero, 0.0, atol=1e-12)


def test_a_constant_coordinate_is_one_for_images_and_zero_for_prompts(embeddings):
    case = Case(embeddings, c=5)  # five classes in two dimensions
    encoders = alternate(
        case.problem, case.y, replace(SETTING, n_components=2, decision="target")
    ).last.encoders()
    assert_array_equal(encoders.intercept, [0.0, 0.0, 1.0])
    assert_array_equal(encoders.text_intercept, [0.0, 0.0, 0.0])
    assert_array_equal(encoders.components[:, 2], 0.0)
    assert_array_equal(encoders.text_components[:, 2], 0.0)


def test_parts_of_a_block_change_no_moment(embeddings, monkeypatch):
    whole = Case(embeddings, c=3, scores=True)
    monkeypatch.setattr(terms, "LEAST_ROWS", 10)
    monkeypatch.setattr(terms, "LABEL_VALUES", 1)
    parts = Case(embeddings, c=3, scores=True)  # ten rows at a time of blocks of 37
    for name in ("mean", "cross", "trace"):
        first, second = (getattr(case.problem.sides(case.y).image, name) for case in (whole, parts))
        assert_allclose(second, first, rtol=1e-10, atol=1e-12)


# Notes and errors -----------------------------------------------------------------------------------------


def test_a_class_that_refinement_leaves_without_rows_is_a_note(embeddings, monkeypatch):
    case = Case(embeddings, c=3)
    monkeypatch.setattr(
        alternation.Round, "predict", lambda self: np.where(self.sides.y == 1, 0, self.sides.y)
    )
    found = alternate(case.problem, case.y, replace(SETTING, max_iter=1), np.ones(len(case.y), dtype=bool))
    notes = [text for kind, text in found.notes if kind is VanishedLabelWarning]
    assert len(notes) == 1
    assert "class number 1 after" in notes[0]


def test_an_attribute_that_does_not_vary_is_a_note(embeddings):
    case = Case(embeddings)
    case.problem.attributes = (Attribute("hue", np.ones((len(case.y), 1))),)
    case.problem._latest = case.problem._sides(case.y, case.problem._pass(case.y, covariance=False))
    found = alternate(case.problem, case.y, SETTING)
    assert [text.split(" vanished")[0] for kind, text in found.notes if kind is DroppedTermWarning] == [
        "the dependence on hue"
    ]


def test_rows_of_one_class_alone_are_an_error(embeddings):
    case = Case(embeddings)
    with pytest.raises(NoSolutionError):
        alternate(case.problem, np.zeros_like(case.y), SETTING)


# Memory -----------------------------------------------------------------------


def test_kept_features_may_take_half_of_the_free_memory_and_sums_a_quarter(monkeypatch):
    monkeypatch.setattr(rows, "available_memory", lambda: 8000)
    assert (cache_budget(), sums_budget()) == (4000, 2000)
    assert (cache_budget(1000), sums_budget(1000)) == (500, 250)
    monkeypatch.setattr(rows, "available_memory", lambda: None)
    assert cache_budget() == 2 << 30
    monkeypatch.setattr(rows, "worker_memory", lambda: 100)
    assert cache_budget() == 50


# Temperature ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_temperature_has_the_largest_likelihood(seed):
    rng = np.random.default_rng(seed)
    y, w = rng.integers(3, size=200), rng.uniform(size=200)
    scores = 0.01 * (np.eye(3)[y] + rng.normal(size=(200, 3)))

    def loss(log_beta):
        return -w @ log_softmax(np.exp(log_beta) * scores, axis=1)[np.arange(200), y]

    best = np.exp(minimize_scalar(loss, bracket=(0.0, 8.0), tol=1e-10).x)
    assert fit_temperature(scores, y, w) == pytest.approx(best, rel=1e-5)
    assert fit_temperature(scores, y, 7 * w) == pytest.approx(best, rel=1e-5)


def test_the_temperature_stays_within_two_decades_of_the_scale_of_the_scores():
    y = np.array([0, 1, 1])
    right = 3.0 * np.array([[1.0, -1.0], [-1.0, 1.0], [-1.0, 1.0]])  # mean squared score 9
    w = np.array([1.0, 2.0, 3.0])
    assert fit_temperature(right, y, w) == pytest.approx(100 / 3)
    assert fit_temperature(-right, y, w) == pytest.approx(0.01 / 3)
    assert fit_temperature(np.zeros((3, 2)), y, w) == pytest.approx(0.01)
