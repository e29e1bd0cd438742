"""The path of strengths: figures of the rankings by free queries, and the strength that a floor allows."""

import numpy as np
import pytest
from gallery import Gallery
from numpy.testing import assert_allclose
from scipy.stats import spearmanr

from fairerclip import EmbeddingMitigator
from fairerclip.embedding.strength_path import STRENGTHS, StrengthPath, StrengthPoint, mean_over_queries
from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.metrics.retrieval.skew import max_skew


@pytest.fixture(scope="module")
def g():
    return Gallery(n=240, v=3, seed=7)


@pytest.fixture(scope="module")
def fairer():
    g = Gallery(n=300, v=3)
    return EmbeddingMitigator(about=None).fit(g.X, sensitive_text=g.text)


@pytest.mark.parametrize("unit", [False, True])
def test_figures_are_those_of_the_scores(g, unit):
    fit = Gallery(n=300, v=3)
    fairer = EmbeddingMitigator(about=None, unit=unit).fit(fit.X, sensitive_text=fit.text)
    path = fairer.path(g.X, g.Q, g.named, strengths=[0.9, 0.0, 0.5], k=40)
    assert [p.strength for p in path.points] == [0.0, 0.5, 0.9]
    assert (path.k, path.rows) == (40, 240)
    original = g.X @ g.Q.T
    for point in path.points:
        scores = fairer.at(point.strength).scores(g.X, g.Q)
        assert_allclose(point.skews, max_skew(scores, g.s, 40))
        assert point.max_skew[0] == pytest.approx(np.mean(point.skews))
        expected = [
            [spearmanr(original[g.s == s, q], scores[g.s == s, q])[0] for s in range(3)] for q in range(6)
        ]
        assert_allclose(point.correlations, expected, atol=1e-12)
        assert point.rank_correlation[0] == pytest.approx(np.mean(expected))
        assert point.low_correlation == pytest.approx(np.quantile(expected, 0.05))
        for mean, low, high in (point.max_skew, point.rank_correlation):
            assert low <= mean <= high
        assert point.as_dict()["max_skew"] == list(point.max_skew)


def test_the_best_of_the_default_strengths_obeys_the_floor_and_no_allowed_point_is_better(g, fairer):
    done = []
    path = fairer.path(g.X, g.Q, g.s, progress=lambda *told: done.append(told))
    assert tuple(p.strength for p in path.points) == STRENGTHS
    assert done == [(k, len(STRENGTHS)) for k in range(1, len(STRENGTHS) + 1)]
    assert path.k == 60
    for floor in (0.0, *(p.rank_correlation[0] for p in path.points[1:])):
        best = path.best(floor=floor)
        assert best.rank_correlation[0] >= floor
        allowed = [p for p in path.points if p.rank_correlation[0] >= floor]
        assert best.max_skew[0] == min(p.max_skew[0] for p in allowed)
    assert path.best().max_skew[0] < path.points[0].max_skew[0]
    for wrong in ({"floor": 1.0}, {"floor": 2.0}, {"objective": "ndkl"}):
        with pytest.raises(ParameterError):
            path.best(**wrong)


def point(strength, skew, correlation):
    return StrengthPoint(
        strength, np.array([skew]), np.array([[correlation]]), (skew,) * 3, (correlation,) * 3, correlation
    )


def test_the_weaker_of_two_equal_strengths_is_taken_and_none_if_it_is_best():
    equal = StrengthPath((point(0.0, 0.5, 1.0), point(0.4, 0.2, 0.9), point(0.8, 0.2, 0.8)), 1, 1)
    assert equal.best().strength == 0.4
    worse = StrengthPath((point(0.0, 0.1, 1.0), point(0.4, 0.2, 0.9)), 1, 1)
    assert worse.best(floor=0.9).strength == 0.0  # mitigation does not help, and was possible
    with pytest.raises(ParameterError, match=r"0\.900"):
        worse.best(floor=0.95)


def test_rows_without_a_group_and_queries_about_s_are_left_out_and_attributes_are_combined(g, fairer):
    groups = g.named.astype(object)
    groups[::5] = None
    known = np.arange(len(g.X)) % 5 > 0
    a = fairer.path(g.X, g.Q, groups, strengths=[0.5], k=20)
    b = fairer.path(g.X[known], g.Q, g.named[known], strengths=[0.5], k=20)
    assert a.rows == known.sum()
    assert_allclose(a.points[0].skews, b.points[0].skews)
    both = fairer.path(g.X, g.Q, {"a": g.s, "b": np.arange(len(g.X)) % 2}, strengths=[1.0])
    assert both.points[0].correlations.shape == (6, 6)
    about = EmbeddingMitigator().fit(g.X, sensitive_text=g.text)
    path = about.path(g.X, np.vstack([g.Q, g.prompts]), g.s, strengths=[0.5])
    assert len(path.points[0].skews) == about.query_meaning(g.Q).mitigated.sum() < 9
    with pytest.raises(ParameterError, match="about"):
        about.path(g.X, g.prompts, g.s)


def test_small_groups_have_no_order(g, fairer):
    with pytest.raises(LabelError):
        fairer.path(g.X[:4], g.Q, [0, 0, 1, 1])
    path = fairer.path(g.X[:5], g.Q, [0, 0, 0, 1, 1], strengths=[0.5], k=2)
    assert np.isnan(path.points[0].correlations[:, 1]).all()
    assert np.isfinite(path.points[0].rank_correlation).all()


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("strengths", [1.2], ParameterError),
        ("k", 0, ParameterError),
        ("groups", [0, 1], LabelError),
        ("groups", [None] * 240, LabelError),
        ("queries", np.ones((1, 3)), ShapeError),
    ],
)
def test_wrong_inputs_are_told(g, fairer, name, value, error):
    with pytest.raises(error):
        fairer.path(**{"X": g.X, "queries": g.Q, "groups": g.s, "strengths": [0.5], name: value})


def test_intervals_are_those_of_resampled_queries():
    values = np.random.default_rng(0).normal(size=40)
    mean, low, high = mean_over_queries(values, 0.95)
    assert mean == pytest.approx(values.mean())
    assert high - low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(40), rel=0.15)
    assert mean_over_queries([0.5], 0.95) == (0.5, 0.5, 0.5)
