"""Queries of a mitigator: those about S are told apart and left alone, and rankings are those of the scores."""

import numpy as np
import pytest
from gallery import Gallery
from numpy.testing import assert_allclose, assert_array_equal

from block_sizes import in_blocks
from fairerclip import EmbeddingMitigator
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.embedding.query_meaning import meaning_of
from fairerclip.errors import ParameterError, SensitiveQueryWarning, ShapeError


@pytest.fixture(scope="module")
def g():
    return Gallery(v=3, p=24, lean=0.2)


@pytest.fixture(scope="module")
def fairer(g):
    return EmbeddingMitigator().fit(g.X, sensitive_text={"sex": g.text})


def test_the_share_of_a_prompt_is_one_and_that_of_an_orthogonal_query_none(g):
    other = unit_rows(np.random.default_rng(5).normal(size=(2, 24)))
    text = {"sex": g.text, "age": {"old": other[0], "young": other[1]}}
    fairer = EmbeddingMitigator().fit(g.X, sensitive_text=text)
    meaning = fairer.query_meaning(np.vstack([g.prompts[:1], other[1:], g.Q[:1]]))
    assert_allclose(np.diag(meaning.shares), 1.0)
    assert [meaning.about(k) for k in range(3)] == ["sex", "age", None]
    centre = g.prompts.mean(axis=0)
    basis = np.linalg.svd(g.prompts - centre)[2]
    # Seen from the mean of the prompts, these differ from it only across the prompts' differences.
    across = meaning_of(centre + 0.7 * basis[2:], {"sex": [prompt[None] for prompt in g.prompts]}, 0.4)
    assert_allclose(across.shares, 0.0, atol=1e-12)
    assert across.mitigated.all()


def test_the_share_is_the_explained_part_of_a_regression_on_the_prompts_of_any_length(g, fairer):
    Q = np.random.default_rng(0).normal(size=(5, 24))
    centre = g.prompts.mean(axis=0)
    for k, q in enumerate(unit_rows(Q)):
        seen = q - centre
        _, residual, *_ = np.linalg.lstsq((g.prompts - centre)[:2].T, seen, rcond=None)
        assert fairer.query_meaning(Q).shares[k, 0] == pytest.approx(1 - residual[0] / (seen @ seen))
    longer = {name: 5 * prompt for name, prompt in g.text.items()}
    longer = EmbeddingMitigator().fit(g.X, sensitive_text={"sex": longer})
    assert_allclose(longer.query_meaning(g.Q).shares, fairer.query_meaning(7 * g.Q).shares)
    assert_allclose(fairer.scores(g.X, 7 * g.Q), fairer.scores(g.X, g.Q))


def test_queries_about_s_have_their_original_scores_and_are_told(g, fairer):
    asked = np.vstack([g.Q[:2], g.prompts[:1], g.Q[2:3]])
    with pytest.warns(SensitiveQueryWarning, match=r"queries 2 \(sex\)") as told:
        scores = fairer.scores(g.X, asked)
    assert told[0].filename == __file__
    assert_allclose(scores[:, 2], g.X @ g.prompts[0], atol=1e-14)
    mapped = fairer.transform(g.X) @ asked.T
    assert_allclose(scores[:, [0, 1, 3]], mapped[:, [0, 1, 3]], atol=1e-14)
    with pytest.warns(SensitiveQueryWarning):
        ranking = fairer.rank(g.prompts[0], g.X, k=5)
    assert_array_equal(ranking.indices, np.argsort(-(g.X @ g.prompts[0]), kind="stable")[:5])


def test_about_none_mitigates_every_query_and_about_0_none_and_without_prompts_none_is_about_s(g):
    asked = np.vstack([g.Q, g.prompts])
    every = EmbeddingMitigator(about=None).fit(g.X, sensitive_text=g.text)
    assert every.query_meaning(asked).mitigated.all()
    assert_allclose(every.scores(g.X, asked), every.transform(g.X) @ asked.T, atol=1e-14)
    none = EmbeddingMitigator(about=0.0).fit(g.X, sensitive_text=g.text)
    with pytest.warns(SensitiveQueryWarning, match="6 of 6"):
        assert_allclose(none.scores(g.X, g.Q), g.X @ g.Q.T, atol=1e-14)
    meaning = EmbeddingMitigator().fit(g.X, sensitive_features=g.s).query_meaning(asked)
    assert meaning.shares.shape == (9, 0)
    assert meaning.mitigated.all()


def test_a_ranking_is_the_order_of_the_scores(g, fairer):
    scores = fairer.scores(g.X, g.Q[:1])[:, 0]
    ranking = fairer.rank(g.Q[0], g.X)
    assert_array_equal(ranking.indices, np.argsort(-scores, kind="stable"))
    assert_array_equal(ranking.scores, scores[ranking.indices])
    for k in (1, 7, len(g.X)):
        assert_array_equal(fairer.rank(g.Q[:1], g.X, k=k).indices, ranking.indices[:k])
    for k in (0, len(g.X) + 1):
        with pytest.raises(ParameterError, match="k must"):
            fairer.rank(g.Q[0], g.X, k=k)
    with pytest.raises(ShapeError):
        fairer.rank(g.Q, g.X)


def test_scores_are_made_in_blocks_of_any_size(g, fairer, monkeypatch):
    expected = fairer.scores(g.X, g.Q)
    for threads in (1, 3):
        in_blocks(monkeypatch, 7, threads)
        assert_allclose(fairer.scores(g.X, g.Q), expected, atol=1e-14)
        assert_allclose(fairer.transform(g.X) @ g.Q.T, expected, atol=1e-14)
