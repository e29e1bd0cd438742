"""Drift of a collection: nothing is told of rows like those of the fit, and each kind of other rows by its name."""

import numpy as np
import pytest
from gallery import Gallery
from numpy.testing import assert_allclose

from fairerclip import EmbeddingMitigator
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.embedding.collection_drift import MEAN_SHIFT, OVERLAP, SHARE_CHANGE
from fairerclip.errors import CollectionDriftWarning, DirectionDriftWarning, SensitiveDriftWarning


@pytest.fixture(scope="module")
def g():
    return Gallery(n=600, v=3)


@pytest.fixture(scope="module")
def fairer(g):
    return EmbeddingMitigator().fit(g.X, sensitive_text=g.text)


def kinds(drift):
    return [kind for kind, _ in drift.warnings]


def test_the_rows_of_the_fit_have_no_drift_and_a_saved_mitigator_tells_the_same(g, fairer, tmp_path):
    drift = fairer.drift(g.X)
    assert drift.mean_shift < 1e-12
    assert drift.variance_kept <= 1 + 1e-12
    assert drift.warnings == ()
    for before, after in drift.shares["s"].values():
        assert after == pytest.approx(before, abs=1e-12)
    new = Gallery(n=50, v=3, world=2).X
    assert EmbeddingMitigator.load(fairer.save(tmp_path / "m")).drift(new) == fairer.drift(new)


@pytest.mark.parametrize("rows", [1, 5, 100])
def test_new_rows_of_the_same_collection_have_none_however_few_they_are(fairer, rows):
    told = [fairer.drift(Gallery(n=rows, v=3, seed=seed).X).warnings for seed in range(1, 21)]
    assert sum(map(bool, told)) <= 1


def test_figures_are_those_of_the_moments(g, fairer):
    new = Gallery(n=300, v=3, seed=3, world=1).X
    drift = fairer.drift(new)
    spread = np.sqrt(np.trace(np.cov(g.X.T, bias=True)))
    assert drift.mean_shift == pytest.approx(np.linalg.norm(new.mean(axis=0) - g.X.mean(axis=0)) / spread)
    values, vectors = np.linalg.eigh(np.cov(g.X.T, bias=True))
    shares = np.cumsum(values[::-1]) / values.sum()
    main = vectors[:, ::-1][:, : int(np.argmax(shares >= 0.9)) + 1]
    C = np.cov(new.T, bias=True)
    best = np.linalg.eigvalsh(C)[::-1][: main.shape[1]].sum()
    assert drift.variance_kept == pytest.approx(np.trace(main.T @ C @ main) / best)
    reader = fairer.fitted_.attributes[0].reader
    assert_allclose([b for _, b in drift.shares["s"].values()], reader.probabilities(new).mean(axis=0))


def test_another_mean_and_the_opposite_direction_are_told(g, fairer):
    spread = np.sqrt(np.trace(np.cov(g.X.T)))
    # No direction of the prompts or the mean.
    aside = np.linalg.svd(np.vstack([g.X.mean(axis=0), g.prompts]))[2][-1]
    moved = fairer.drift(unit_rows(g.X + 3 * MEAN_SHIFT * spread * aside))
    assert CollectionDriftWarning in kinds(moved)
    assert moved.mean_shift > MEAN_SHIFT
    assert {DirectionDriftWarning, CollectionDriftWarning} <= set(kinds(fairer.drift(-g.X)))


def test_another_subspace_is_told():
    rng = np.random.default_rng(0)
    mean = np.r_[1.0, np.zeros(19)]
    low = mean + 0.3 * np.column_stack([np.zeros(400), rng.normal(size=(400, 5)), np.zeros((400, 14))])
    high = mean + 0.3 * np.column_stack([np.zeros((400, 10)), rng.normal(size=(400, 5)), np.zeros((400, 5))])
    fairer = EmbeddingMitigator().fit(low, sensitive_features=np.arange(400) % 2)
    drift = fairer.drift(high)
    assert drift.mean_shift < MEAN_SHIFT
    assert drift.variance_kept < OVERLAP
    assert kinds(drift) == [CollectionDriftWarning]
    assert kinds(fairer.drift(high[:6])) == [CollectionDriftWarning]  # even of a few rows


def test_other_shares_are_told_by_value_and_only_where_values_are_read(g, fairer):
    rows = g.X[np.r_[np.flatnonzero(g.s == 1), np.flatnonzero(g.s == 0)[:20]]]
    drift = fairer.drift(rows)
    (message,) = [text for kind, text in drift.warnings if kind is SensitiveDriftWarning]
    changed = [name for name, (a, b) in drift.shares["s"].items() if abs(a - b) > SHARE_CHANGE]
    assert any(repr(value) in message for value in changed)
    known = EmbeddingMitigator().fit(g.X, sensitive_features=g.s).drift(g.X[g.s == 1])
    assert known.shares == {}
    assert SensitiveDriftWarning not in kinds(known)


def test_rows_without_a_variance(g, fairer):
    assert fairer.drift(g.X[:1]).variance_kept == 1.0
    X = np.repeat([[1.0, 2.0]], 4, axis=0)
    drift = EmbeddingMitigator().fit(X, sensitive_features=[0, 1, 0, 1]).drift(X)
    assert (drift.variance_kept, drift.warnings) == (1.0, ())
