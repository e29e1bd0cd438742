"""CLIP-clip: the estimate of mutual information, and what dropping dimensions changes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fairerclip.baselines import CLIPClip
from fairerclip.baselines.clip_clip import mutual_information


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


@pytest.mark.parametrize(("weighted", "bins"), [(False, 2), (True, 5)])
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
