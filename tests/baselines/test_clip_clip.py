"""CLIP-clip: the estimate of mutual information, and what dropping dimensions changes."""

import numpy as np
import pytest
from free_rankings import skew_and_order
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.feature_selection import mutual_info_classif

from fairerclip.baselines import CLIPClip, ZeroShot
from fairerclip.baselines.clip_clip import mutual_information
from fairerclip.errors import ConstantSensitiveWarning, ParameterError, PromptError


def literal(x, s, weight, bins):
    """The same estimate, cell by cell."""
    total, order = weight.sum(), np.argsort(x, kind="stable")
    edges = []
    for level in range(1, bins):
        reached = 0.0
        for i in order:
            reached += weight[i]
            if reached / total >= level / bins - 1e-12:
                edges.append(x[i])
                break
    place = np.array([sum(edge < value for edge in edges) for value in x])
    found, cells = 0.0, 0
    for b in range(bins):
        for v in np.unique(s):
            share = weight[(place == b) & (s == v)].sum() / total
            if share > 0:
                cells += 1
                product = weight[place == b].sum() * weight[s == v].sum() / total**2
                found += share * np.log(share / product)
    n = total**2 / (weight**2).sum()
    return found - (cells - len(np.unique(place)) - len(np.unique(s)) + 1) / (2 * n)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bins", [2, 5])
def test_the_estimate_is_that_of_its_definition(weighted, bins):
    rng = np.random.default_rng(3)
    s = rng.integers(3, size=90)
    X = rng.normal(size=(90, 4)) + 0.8 * np.outer(s, rng.normal(size=4))
    X[:, 1] = X[:, 1].round()  # equal entries
    X[:, 2] = 0.5
    weight = rng.integers(1, 4, size=90).astype(float) if weighted else np.ones(90)
    found = mutual_information(X, s, weight, bins)
    assert_allclose(found, [literal(x, s, weight, bins) for x in X.T], atol=1e-12)
    assert found[2] == 0


def test_rows_of_weight_zero_do_not_count_and_weights_are_repetitions_without_the_correction():
    rng = np.random.default_rng(4)
    X, s = rng.normal(size=(80, 3)), rng.integers(2, size=80)
    X[:, 0] += s
    weight = rng.integers(0, 4, size=80)
    some = weight > 0
    found = mutual_information(X, s, weight.astype(float), 4)
    assert_array_equal(found, mutual_information(X[some], s[some], weight[some].astype(float), 4))
    rows = np.repeat(np.arange(80), weight)
    repeated = mutual_information(X[rows], s[rows], np.ones(len(rows)), 4)
    n = weight.sum() ** 2 / (weight**2).sum()
    assert_allclose(
        found + 3 / (2 * n), repeated + 3 / (2 * len(rows)), atol=1e-12
    )  # all eight cells are occupied


def test_the_estimate_approaches_the_exact_value_and_is_zero_without_dependence():
    rng = np.random.default_rng(5)
    s = np.arange(40_000) % 2
    x = rng.normal(size=40_000) + 2.0 * s
    mixture = lambda v: 0.5 * (norm.pdf(v) + norm.pdf(v, 2.0))  # noqa: E731
    entropy = -quad(lambda v: mixture(v) * np.log(mixture(v)), -8, 10)[0]
    exact = entropy - 0.5 * np.log(2 * np.pi * np.e)
    noise = rng.normal(size=(40_000, 200))
    found = mutual_information(np.column_stack([x, noise]), s, np.ones(40_000))
    assert found[0] == pytest.approx(exact, rel=0.02)
    assert abs(found[1:].mean()) < 1e-5  # without the correction it would be 15/80,000
    assert found[1:].max() < 0.001


def test_dimensions_are_in_the_order_of_scikit_learn():
    rng = np.random.default_rng(6)
    s = rng.integers(2, size=1500)
    X = rng.normal(size=(1500, 6)) + np.outer(s, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
    found = mutual_information(X, s, np.ones(1500))
    theirs = mutual_info_classif(X, s, random_state=0)
    assert_array_equal(np.argsort(found), np.argsort(theirs))
    assert_allclose(found, theirs, atol=0.06)


def test_kept_dimensions_have_less_information_than_dropped_ones_and_only_they_count(embeddings):
    e = embeddings(seed=1, n=300, n_sensitive=3)
    model = CLIPClip(keep=0.5).fit(e.X, text=e.text, sensitive_features=e.s)
    kept = model.kept_ > 0
    assert kept.sum() == 6
    assert model.information_[kept].max() < model.information_[~kept].min()
    assert not model.transform(e.X)[:, ~kept].any()
    left = mutual_information(model.transform(e.X), e.s, np.ones(len(e.X)))
    assert_allclose(left, np.where(kept, model.information_, 0.0), atol=1e-12)
    a, t = e.X[:, kept], e.text[:, kept]
    cosines = (a @ t.T) / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(t, axis=1)
    assert_allclose(model.scores(e.X), cosines, atol=1e-12)


def test_to_keep_all_changes_nothing(embeddings):
    e = embeddings(seed=2)
    model = CLIPClip(keep=1).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    plain = ZeroShot().fit(e.X, text=e.text)
    assert_allclose(model.scores(e.X), plain.scores(e.X), atol=1e-12)
    assert_allclose(model.transform_text(e.sensitive_text), e.sensitive_text, atol=1e-12)


def test_skew_falls_where_s_lives_in_few_dimensions():
    rng = np.random.default_rng(7)
    s = np.arange(800) % 2
    X = rng.normal(size=(800, 32)) + 3.0 * np.outer(2 * s - 1, np.arange(32) < 3)
    queries = rng.normal(size=(10, 32)) + 1.0 * (np.arange(32) < 3)
    model = CLIPClip().fit(X, text=queries[:2], sensitive_features=s)
    assert not model.kept_[:3].any()
    before, after, order = skew_and_order(model, X, queries, s, k=100)
    assert after < 0.15 < 0.4 < before
    assert order > 0.8


def test_one_value_of_s_drops_nothing_and_bad_shares_are_refused(embeddings):
    e = embeddings(seed=3)
    with pytest.warns(ConstantSensitiveWarning):
        model = CLIPClip().fit(e.X, text=e.text, sensitive_features=np.zeros(len(e.X)))
    assert model.kept_.all()
    assert model.diagnostics_["note"] == "12 of 12 dimensions are kept: S has one value"
    for keep in (0, 1.5, "most"):
        with pytest.raises(ParameterError, match=r"keep must be a number in \(0, 1\]"):
            CLIPClip(keep).fit(e.X, text=e.text, sensitive_features=e.s)
    text = np.eye(12)[:2]
    information = CLIPClip().fit(e.X, text=e.text, sensitive_features=e.s).information_
    text[1] = np.eye(12)[information.argmax()]
    with pytest.raises(
        PromptError, match=r"nothing is left of class prompts \[1\] after dropping dimensions.*raise keep"
    ):
        CLIPClip().fit(e.X, text=text, sensitive_features=e.s)
