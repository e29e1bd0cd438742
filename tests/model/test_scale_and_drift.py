"""Lengths of rows, and rows of another length or kind than those of the fit, which are noticed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fairerclip import FairerCLIP
from fairerclip.data.embedding_rows import RowSummary, row_lengths, unit_rows
from fairerclip.data.row_drift import compare_rows
from fairerclip.errors import DirectionDriftWarning, NormDriftWarning
from small_models import small


def fitted(e, X):
    return small().fit(X, e.y, text=e.text, sensitive_text=e.sensitive_text)


# Unit rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_unit_rows_have_length_one_whatever_their_scale(scale):
    rows = scale * np.random.default_rng(0).normal(size=(20, 5))
    expected = rows / scale / np.linalg.norm(rows / scale, axis=1, keepdims=True)
    assert_allclose(unit_rows(rows), expected, rtol=1e-13)
    assert_allclose(row_lengths(rows), scale * np.linalg.norm(rows / scale, axis=1), rtol=1e-13)


# Drift --------------------------------------------------------------------------------------------------


def kinds(drift):
    return [kind for kind, _ in drift.warnings]


def cone(e):
    """Rows about a common direction, as those of CLIP are."""
    return e.X + 1.2 * np.eye(e.X.shape[1])[0]


def test_rows_like_those_of_the_fit_have_not_drifted(embeddings):
    e = embeddings(n=800)
    X = cone(e)
    m = fitted(e, X)
    longer = m.drift(10 * X)
    assert kinds(longer) == [NormDriftWarning]
    assert longer.length == pytest.approx(10 * longer.fitted_length)
    for rows in (X[:1], X[:5], X[:50], X[e.y == 1], X[e.s == 0], X[(e.y == 0) & (e.s == 1)]):
        assert kinds(m.drift(rows)) == []


def test_rows_of_another_encoder_are_named(embeddings):
    e = embeddings(n=400)
    X = cone(e)
    m = fitted(e, X)
    turned, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))
    drift = m.drift(X @ turned)
    assert kinds(drift) == [DirectionDriftWarning]
    assert drift.cosine < 0.25


def test_the_summary_is_that_of_plain_formulas_and_survives_a_file(embeddings, tmp_path, monkeypatch):
    monkeypatch.setattr("fairerclip.data.row_pass.BLOCK_ROWS", 37)
    e = embeddings()
    X = 3 * e.X * np.random.default_rng(1).uniform(1, 2, size=(240, 1))
    summary = RowSummary.of(X)
    assert_allclose(summary.lengths, np.quantile(np.linalg.norm(X, axis=1), [0.01, 0.5, 0.99]))
    assert_allclose(summary.mean, e.X.mean(axis=0), atol=1e-12)
    m = fitted(e, X)
    back = FairerCLIP.load(m.save(tmp_path / "model"))
    assert back.drift(e.X) == m.drift(e.X)
    assert compare_rows(
        RowSummary.of(cone(e)), RowSummary.of(cone(e)), normalize=True
    ).cosine == pytest.approx(1)
